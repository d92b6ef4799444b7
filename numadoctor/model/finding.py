"""What a check says: findings, their evidence and their fixes, and the report that holds them."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple


class Status(str, enum.Enum):
    """The outcome of one check for one subject. Only PASS is a pass."""

    PASS = "pass"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"
    ERROR = "error"


class Severity(str, enum.Enum):
    """How much harm it does when the check fails; orders the report."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Evidence(NamedTuple):
    """What a verdict was drawn from.

    :ivar source: a path on the examined machine, or the call that was made
    :ivar text: the raw text of the file (shortened), or the answer of the call
    """

    source: str
    text: str


class Fix(NamedTuple):
    """One way to make a finding go away, for one launcher.

    :ivar launcher: docker, podman, compose, kubernetes, systemd, slurm, numactl,
        sysctl, sysfs, grub, bios, vllm, sglang, lightllm, or "any"
    :ivar text: the command, option or snippet itself
    :ivar needs_root: root is needed on the machine to apply it
    :ivar needs_restart: the process (or, for boot options, the machine) must start again
    :ivar persists: it is still in force after a reboot
    """

    launcher: str
    text: str
    needs_root: bool = False
    needs_restart: bool = False
    persists: bool = False


class Location(NamedTuple):
    """The place in a deployment file that caused a finding.

    :ivar file: as it was given on the command line, or below the folder that was given
    :ivar line: counted from 1; None where the whole file is meant
    :ivar column: counted from 1, in characters; None where the whole line is meant
    """

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


class Suppression(NamedTuple):
    """Why a finding is told but does not count.

    :ivar kind: "waiver" or "baseline"
    :ivar reason: the waiver's reason, or which baseline knows the finding
    :ivar expires: the last day of a waiver (2026-12-31), or empty
    """

    kind: str
    reason: str
    expires: str = ""

    def __str__(self) -> str:
        until = f" until {self.expires}" if self.expires else ""
        what = f"waived{until}" if self.kind == "waiver" else "in the baseline"
        return f"{what}: {self.reason}" if self.reason else what


@dataclass(frozen=True)
class Finding:
    """The verdict of one check about one subject.

    A check fills in ``status`` to ``fixes``; the runner adds ``id``, ``name``,
    ``severity`` and ``source`` from the check's declaration.

    :ivar subject: what it is about, in words that stay the same between runs
        (no pid, no address): "machine", "node 1", "gpu 0000:c1:00.0", "mbind"
    :ivar message: what is wrong (or right), where and how much: one sentence
    :ivar cause: why it is so and why it matters here: one or two sentences
    :ivar source: where the underlying fact is documented
    :ivar location: the file and line that caused it, for a deployment file
    :ivar suppressed: why it does not count; its status stays what was found
    """

    status: Status
    message: str
    subject: str = "machine"
    cause: str = ""
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    severity: Severity = Severity.MEDIUM
    id: str = ""
    name: str = ""
    source: str = ""
    location: Location | None = None
    suppressed: Suppression | None = None

    @property
    def fingerprint(self) -> str:
        """A name for this finding that survives restarts (16 hex digits)."""
        from numadoctor.model.fingerprint import fingerprint

        return fingerprint(self.id, self.subject, self.location.file if self.location else "")


def _finding(
    status: Status,
    message: str,
    *,
    subject: str = "machine",
    cause: str = "",
    evidence: Iterable[Evidence] = (),
    fixes: Iterable[Fix] = (),
    location: Location | None = None,
) -> Finding:
    return Finding(
        status, message, subject, cause, tuple(evidence), tuple(fixes), location=location
    )


# What a check yields: each takes the message, and subject, cause, evidence, fixes and location
# by name.
passed = partial(_finding, Status.PASS)
"""Looked, and it is right."""
info = partial(_finding, Status.INFO)
"""Looked, and it is worth knowing; nothing needs to change."""
warn = partial(_finding, Status.WARN)
"""Looked, and it may do harm, or does some."""
fail = partial(_finding, Status.FAIL)
"""Looked, and placement does not work or does harm."""
skip = partial(_finding, Status.SKIP)
"""Does not apply here, for the reason that the message gives."""
unknown = partial(_finding, Status.UNKNOWN)
"""Could not look; ``fixes`` say how to let numadoctor look."""


@dataclass(frozen=True)
class Report:
    """All findings of one examination.

    :ivar host: the examined machine's name
    :ivar target: one line about the examined processes, or empty
    :ivar findings: worst first
    :ivar exit_code: what the process will end with (see numadoctor.engine.exitcodes)
    :ivar seconds: wall time of the examination
    :ivar incomplete: targets that could not be examined, one line each
    :ivar remarks: what is to be told about waivers and baselines, one line each
    :ivar fail_on: the least status that makes the exit code 1: "fail", "warn" or "never"
    :ivar strict: whether an unknown finding makes the examination incomplete
    """

    host: str
    target: str
    findings: tuple[Finding, ...]
    exit_code: int
    seconds: float
    incomplete: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    fail_on: str = "fail"
    strict: bool = False

    def count(self, status: Status) -> int:
        """Number of findings with this status that count: suppressed ones do not."""
        return sum(f.status is status and f.suppressed is None for f in self.findings)

    @property
    def suppressed(self) -> int:
        """Number of findings that are waived or in the baseline."""
        return sum(finding.suppressed is not None for finding in self.findings)

    @property
    def summary(self) -> dict[str, int]:
        """Number of findings that count per status, every status present."""
        return {status.value: self.count(status) for status in Status}
