"""Waivers: findings that a site knows and accepts, each with its reason and its last day."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from typing import NamedTuple

from numadoctor.model import Finding, Status, Suppression

# A pass needs no waiver, and a crash of a check is no verdict that could be accepted.
SUPPRESSIBLE = (Status.FAIL, Status.WARN, Status.UNKNOWN)


class Waiver(NamedTuple):
    """An entry of ``[[waivers]]`` in numadoctor.toml.

    :ivar id: the id or the name of a check
    :ivar subject: a pattern of subjects: ``*``, ``?`` and ``[…]`` as in a shell
    :ivar host: such a pattern of host names
    :ivar expires: the last day on which it holds, or None
    """

    id: str
    reason: str
    subject: str = "*"
    host: str = "*"
    expires: date | None = None

    def __str__(self) -> str:
        about = "".join(
            f", {what} {pattern}"
            for what, pattern in (("subject", self.subject), ("host", self.host))
            if pattern != "*"
        )
        return f"waiver of {self.id}{about}"

    def is_of(self, finding: Finding) -> bool:
        """Whether it names the check that the finding is of."""
        return self.id.upper() == finding.id or self.id.lower() == finding.name

    def matches(self, finding: Finding, host: str) -> bool:
        """Whether it is about this finding on this host."""
        return (
            self.is_of(finding)
            and finding.status in SUPPRESSIBLE
            and fnmatchcase(host, self.host)
            and fnmatchcase(finding.subject, self.subject)
        )


def apply_waivers(
    findings: Iterable[Finding], waivers: Iterable[Waiver], host: str, today: date
) -> tuple[list[Finding], list[str]]:
    """The findings, those that are waived marked so; and what is to be told about the waivers.

    An expired waiver does not hold; one that nothing matches is told if its check
    looked at this host.
    """
    findings, waivers = list(findings), tuple(waivers)
    used: dict[Waiver, int] = dict.fromkeys(waivers, 0)
    marked = [_marked(finding, used, host, today) for finding in findings]
    return marked, [
        remark
        for waiver, count in used.items()
        if (remark := _remark(waiver, count, findings, host, today))
    ]


def _marked(finding: Finding, used: dict[Waiver, int], host: str, today: date) -> Finding:
    matching = [waiver for waiver in used if waiver.matches(finding, host)]
    for waiver in matching:
        used[waiver] += 1
    for waiver in matching:
        if not _is_over(waiver, today):
            until = waiver.expires.isoformat() if waiver.expires else ""
            return replace(finding, suppressed=Suppression("waiver", waiver.reason, until))
    return finding


def _is_over(waiver: Waiver, today: date) -> bool:
    return waiver.expires is not None and waiver.expires < today


def _remark(waiver: Waiver, count: int, findings: list[Finding], host: str, today: date) -> str:
    looked = any(waiver.is_of(finding) for finding in findings) and fnmatchcase(host, waiver.host)
    if _is_over(waiver, today) and count:
        again = "counts again" if count == 1 else f"count again ({count} findings)"
        return f"{waiver} expired on {waiver.expires}: what it covered {again}: {waiver.reason}"
    if looked and not count:
        return f"{waiver} is not used: nothing here matches it"
    return ""
