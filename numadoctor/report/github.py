"""Workflow commands of GitHub Actions: each finding an annotation, at its line if it has one."""

from numadoctor.model import Finding, Report, Status
from numadoctor.report import plain
from numadoctor.report.verdict import headline, worst

_COMMANDS = {
    Status.FAIL: "error",
    Status.ERROR: "error",
    Status.WARN: "warning",
    Status.UNKNOWN: "warning",
}


def render(report: Report) -> str:
    """The findings that count, worst first: GitHub shows ten of each kind a step. Then the rest."""
    lines = [_annotation(finding) for finding in worst(report) if finding.status in _COMMANDS]
    lines += [_command("error", {"title": "not examined"}, line) for line in report.incomplete]
    lines += [_command("notice", {"title": "numadoctor"}, line) for line in report.remarks]
    lines.append(_command("notice", {"title": "numadoctor"}, headline(report)))
    return "\n".join(lines) + "\n"


def _annotation(finding: Finding) -> str:
    properties: dict[str, str] = {}
    if finding.location:
        properties["file"] = finding.location.file
        properties |= {"line": str(finding.location.line)} if finding.location.line else {}
        properties |= {"col": str(finding.location.column)} if finding.location.column else {}
    properties["title"] = f"{finding.id} {finding.name}".strip() or "numadoctor"
    undecided = "not decided: " if finding.status is Status.UNKNOWN else ""
    parts = [f"{undecided}{plain.line(finding.message)}", plain.line(finding.cause)]
    parts += map(plain.fix_text, finding.fixes)
    return _command(
        _COMMANDS[finding.status], properties, "\n".join(filter(None, parts)), cleaned=True
    )


def _command(name: str, properties: dict[str, str], message: str, *, cleaned: bool = False) -> str:
    told = ",".join(f"{key}={_property(plain.line(value))}" for key, value in properties.items())
    return f"::{name} {told}::{_data(message if cleaned else plain.line(message))}"


# As the runner takes them apart (actions/toolkit, packages/core/src/command.ts).
def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
