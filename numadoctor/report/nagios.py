"""One line for Nagios and what understands its plugins: state, text, figures."""

from enum import IntEnum

from numadoctor.model import Report, Status
from numadoctor.report import plain
from numadoctor.report.verdict import counts, verdict, worst

# NRPE of before 3.0 cuts at 1,024 bytes; the figures must not be what is lost.
_LONGEST_TEXT = 400


class State(IntEnum):
    """Exit codes of plugins (Monitoring Plugins Development Guidelines, "Plugin Return Codes")."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


def state(report: Report) -> State:
    """The state of the service: --fail-on does not touch it, since Nagios tells both kinds apart.

    Not to know is UNKNOWN where nothing could be examined, a check crashed, no
    check could decide, or --strict was given.
    """
    if report.count(Status.FAIL):
        return State.CRITICAL
    if report.count(Status.WARN):
        return State.WARNING
    if report.incomplete or report.count(Status.ERROR):
        return State.UNKNOWN
    decided = any(
        finding.status in (Status.PASS, Status.INFO) or finding.suppressed
        for finding in report.findings
    )
    doubted = report.strict and report.count(Status.UNKNOWN)
    return State.OK if decided and not doubted else State.UNKNOWN


def render(report: Report) -> str:
    """``NUMADOCTOR CRITICAL - …|problems=1;;0 …`` on one line."""
    told = f"{report.host}: {verdict(report)}: {counts(report) or 'no check ran'}"
    first = worst(report)[:1]
    if first and first[0].status in (Status.FAIL, Status.WARN, Status.ERROR, Status.UNKNOWN):
        told += f": {first[0].id} {first[0].message}"
    elif report.incomplete:
        told += f": not examined: {report.incomplete[0]}"
    # What stands behind a bar is figures.
    text = plain.line(told, _LONGEST_TEXT).replace("|", "/")
    figures = (
        f"problems={report.count(Status.FAIL)};;0 warnings={report.count(Status.WARN)};0 "
        f"passed={report.count(Status.PASS)} unknown={report.count(Status.UNKNOWN)} "
        f"errors={report.count(Status.ERROR)} suppressed={report.suppressed}"
    )
    return f"NUMADOCTOR {state(report).name} - {text} | {figures}\n"
