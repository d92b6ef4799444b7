"""A report as test cases, one a check, for formats that know tests: JUnit, TAP.

A case passes only if its check looked and found it right. It fails or is broken
exactly where the exit code says so, so that a CI system and the exit code agree.
"""

import enum
from collections.abc import Iterable
from typing import NamedTuple

from numadoctor.model import Finding, Report, Status


class Outcome(enum.IntEnum):
    """How a case ends; of several findings of a check the first of these decides.

    TOLERATED: found, but below --fail-on, waived, or in the baseline.
    """

    FAILED = 0
    BROKEN = 1
    TOLERATED = 2
    UNDECIDED = 3
    PASSED = 4
    INAPPLICABLE = 5


class Case(NamedTuple):
    """One check, and what it found that decides.

    :ivar title: id and name of the check
    :ivar family: the letter of its family, or empty
    :ivar reason: why it does not pass: a line for each finding that decides
    :ivar findings: those that decide
    """

    title: str
    family: str
    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...] = ()


def cases(report: Report) -> list[Case]:
    """A case for each check, by id, and one for each target that could not be examined."""
    checks: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        checks.setdefault((finding.id, finding.name), []).append(finding)
    found = [_case(report, id, name, checks[id, name]) for id, name in sorted(checks)]
    missing = [
        Case("examination", "", Outcome.BROKEN, f"not examined: {line}")
        for line in report.incomplete
    ]
    return found + missing


def _case(report: Report, id: str, name: str, findings: list[Finding]) -> Case:
    outcome = min(_outcome(report, finding) for finding in findings)
    deciding = tuple(f for f in findings if _outcome(report, f) is outcome)
    title = f"{id} {name}".strip() or "check"
    return Case(title, id[:1], outcome, _reason(outcome, deciding), deciding)


def _outcome(report: Report, finding: Finding) -> Outcome:
    status = finding.status
    if finding.suppressed is not None:
        return Outcome.TOLERATED
    if status is Status.FAIL:
        return Outcome.TOLERATED if report.fail_on == "never" else Outcome.FAILED
    if status is Status.WARN:
        return Outcome.FAILED if report.fail_on == "warn" else Outcome.TOLERATED
    if status is Status.ERROR:
        return Outcome.BROKEN
    if status is Status.UNKNOWN:
        return Outcome.BROKEN if report.strict else Outcome.UNDECIDED
    return Outcome.INAPPLICABLE if status is Status.SKIP else Outcome.PASSED


def _reason(outcome: Outcome, findings: Iterable[Finding]) -> str:
    if outcome is Outcome.PASSED:
        return ""
    return "\n".join(dict.fromkeys(_told(finding) for finding in findings))


def _told(finding: Finding) -> str:
    where = f"{finding.location}: " if finding.location else ""
    words = {Status.UNKNOWN: "not decided: ", Status.WARN: "warning: "}
    told = f"{words.get(finding.status, '')}{where}{finding.message}"
    if finding.suppressed is not None:
        told = f"{finding.suppressed} ({finding.status.value}: {where}{finding.message})"
    return told.replace("\n", " ")
