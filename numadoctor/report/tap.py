"""TAP 14 (the Test Anything Protocol): one test point a check.

What was found but does not count (below --fail-on, waived, in the baseline) is
``not ok … # TODO``, which harnesses show and do not fail on; what was not decided
or does not apply is ``# SKIP``, which they do not count as passed.
"""

import json

from numadoctor.model import Report
from numadoctor.report import plain
from numadoctor.report.cases import Case, Outcome, cases

_NOT_OK = (Outcome.FAILED, Outcome.BROKEN, Outcome.TOLERATED)
_DIRECTIVES = {
    Outcome.TOLERATED: "TODO",
    Outcome.UNDECIDED: "SKIP",
    Outcome.INAPPLICABLE: "SKIP",
}


def render(report: Report) -> str:
    """The report as a TAP document."""
    found = cases(report)
    lines = ["TAP version 14", f"1..{len(found)}" + ("" if found else " # SKIP no check ran")]
    for line in (f"host {report.host}", report.target, *report.remarks):
        lines += [f"# {plain.line(line)}"] if line else []
    for number, case in enumerate(found, 1):
        lines += _point(number, case)
    return "\n".join(lines) + "\n"


def _point(number: int, case: Case) -> list[str]:
    ok = "not ok" if case.outcome in _NOT_OK else "ok"
    line = f"{ok} {number} - {_escaped(case.title)}"
    if case.outcome in _DIRECTIVES:
        line += f" # {_DIRECTIVES[case.outcome]} {_escaped(_one_line(case.reason))}".rstrip()
    if case.outcome not in _NOT_OK:
        return [line]
    return [line, *_diagnostics(case)]


def _one_line(reason: str) -> str:
    return "; ".join(reason.split("\n"))


def _escaped(text: str) -> str:
    return plain.line(text).replace("\\", "\\\\").replace("#", "\\#")


def _diagnostics(case: Case) -> list[str]:
    """A YAML block. Its scalars are written as JSON, which is YAML too."""
    lines = ["  ---", f"  message: {_scalar(plain.line(_one_line(case.reason)))}"]
    lines += ["  findings:"] if case.findings else []
    for finding in case.findings:
        pairs = {
            "subject": plain.line(finding.subject),
            "status": finding.status.value,
            "severity": finding.severity.value,
            "text": plain.told(finding),
        }
        rows = [f"      {key}: {_scalar(value)}" for key, value in pairs.items()]
        lines += [f"    - {rows[0].lstrip()}", *rows[1:]]
    return [*lines, "  ..."]


def _scalar(text: str) -> str:
    return json.dumps(text)
