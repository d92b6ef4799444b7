"""A line for the custom plugin monitor of Kubernetes' node-problem-detector."""

from enum import IntEnum

from numadoctor.model import Report, Status
from numadoctor.report import plain
from numadoctor.report.verdict import verdict, worst

# The detector cuts there (max_output_length).
_LONGEST = 80

_TOLD = (Status.FAIL, Status.ERROR, Status.WARN, Status.UNKNOWN)


class Answer(IntEnum):
    """Exit codes of a plugin (node-problem-detector, docs/custom_plugin_monitor.md)."""

    OK = 0
    NON_OK = 1
    UNKNOWN = 2


def answer(report: Report) -> Answer:
    """Whether the node has the problem: the exit code of ``check``, as the detector counts."""
    return {0: Answer.OK, 1: Answer.NON_OK}.get(report.exit_code, Answer.UNKNOWN)


def render(report: Report) -> str:
    """The verdict and the worst finding, in at most 80 characters of ASCII."""
    found = [finding for finding in worst(report) if finding.status in _TOLD]
    text = verdict(report)
    if found:
        text += f": {found[0].id} {found[0].message}"
    elif report.incomplete:
        text += f": {report.incomplete[0]}"
    ascii_only = plain.line(text).encode("ascii", "replace").decode()
    return plain.line(ascii_only, _LONGEST) + "\n"
