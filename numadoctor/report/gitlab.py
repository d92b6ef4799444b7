"""GitLab's code quality report: a JSON list that merge requests show."""

import hashlib
import json
from collections import Counter

from numadoctor.model import Finding, Report, Severity, Status
from numadoctor.report import plain
from numadoctor.report.verdict import worst

# A failure is as bad as its check's severity; a warning is a step less; not to know is told.
_SEVERITIES = {
    (Status.FAIL, Severity.HIGH): "critical",
    (Status.FAIL, Severity.MEDIUM): "major",
    (Status.FAIL, Severity.LOW): "minor",
    (Status.WARN, Severity.HIGH): "major",
    (Status.WARN, Severity.MEDIUM): "minor",
    (Status.WARN, Severity.LOW): "minor",
}
_SHOWN = (Status.FAIL, Status.ERROR, Status.WARN, Status.UNKNOWN)


def render(report: Report) -> str:
    """The findings that count; the format has no place for what is waived or passed."""
    seen: Counter[str] = Counter()
    entries = []
    for finding in worst(report):
        if finding.status in _SHOWN:
            entries.append(_entry(finding, report.host, seen[finding.fingerprint]))
            seen[finding.fingerprint] += 1
    return json.dumps(entries, indent=2) + "\n"


def _entry(finding: Finding, host: str, ordinal: int) -> dict[str, object]:
    undecided = "not decided: " if finding.status is Status.UNKNOWN else ""
    line = finding.location.line if finding.location else None
    return {
        "description": plain.line(f"{finding.id} {undecided}{finding.message}".strip()),
        "check_name": plain.line(f"{finding.id} {finding.name}".strip()) or "numadoctor",
        "fingerprint": _unique(finding.fingerprint, ordinal),
        "severity": _severity(finding),
        "location": {"path": _path(finding, host), "lines": {"begin": line or 1}},
    }


def _severity(finding: Finding) -> str:
    if finding.status is Status.ERROR:
        return "blocker"
    return _SEVERITIES.get((finding.status, finding.severity), "info")


def _unique(fingerprint: str, ordinal: int) -> str:
    # GitLab drops all but one of those that are equal.
    if not ordinal:
        return fingerprint
    return hashlib.sha256(f"{fingerprint} {ordinal}".encode()).hexdigest()[:16]


def _path(finding: Finding, host: str) -> str:
    """A path is demanded. What was found on a machine has the host's name for one."""
    if finding.location:
        return plain.line(finding.location.file.removeprefix("./")) or "."
    return plain.line(host).replace("/", "_").strip(". ") or "host"
