"""SARIF 2.1.0 (OASIS Static Analysis Results Interchange Format): rules, results, places in files.

What passed and what does not apply is left out: readers show each result as an
alert. What could not be decided is a result of kind ``open``.
"""

import json
from collections.abc import Iterable
from typing import Any, Protocol

from numadoctor.model import Finding, Location, Report, Severity, Status
from numadoctor.report import plain

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

# Status to kind and level; a result that is no failure has the level "none" (3.27.10).
_KINDS = {
    Status.FAIL: ("fail", "error"),
    Status.WARN: ("fail", "warning"),
    Status.INFO: ("informational", "none"),
    Status.UNKNOWN: ("open", "none"),
}
_LEVELS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note"}


class Rule(Protocol):
    """What a rule is made of: a check."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def summary(self) -> str: ...
    @property
    def documentation(self) -> str: ...
    @property
    def sections(self) -> dict[str, str]: ...


def render(report: Report, rules: Iterable[Rule], version: str) -> str:
    """The report as one run.

    :param rules: checks; those of which there is a result are described
    """
    return json.dumps(sarif_data(report, rules, version), indent=2) + "\n"


def sarif_data(report: Report, rules: Iterable[Rule], version: str) -> dict[str, Any]:
    """As JSON data."""
    found = [finding for finding in report.findings if finding.status in _KINDS]
    ids = sorted({finding.id for finding in found})
    known = {rule.id: rule for rule in rules}
    driver: dict[str, Any] = {
        "name": "numadoctor",
        "version": version,
        "rules": [_rule(id, known.get(id)) for id in ids],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [_result(finding, ids.index(finding.id), report) for finding in found],
        "properties": {"host": plain.line(report.host), "target": plain.line(report.target)},
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(id: str, rule: Rule | None) -> dict[str, Any]:
    if rule is None:  # its check is not loaded here
        return {"id": id or "numadoctor"}
    why = rule.sections.get("Why it matters", "")
    return {
        "id": id,
        "name": rule.name,
        "shortDescription": {"text": plain.line(rule.summary)},
        "fullDescription": {"text": plain.lines(why) or plain.line(rule.summary)},
        "help": {"text": plain.lines(rule.documentation), "markdown": _markdown(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [f"family-{id[0]}"], "severity": rule.severity.value},
    }


def _markdown(rule: Rule) -> str:
    parts = [plain.line(rule.summary)]
    parts += [f"**{plain.line(k)}**\n\n{plain.lines(v)}" for k, v in rule.sections.items()]
    return "\n\n".join(parts)


def _invocation(report: Report) -> dict[str, Any]:
    crashed = [f"{f.id} {f.message}".strip() for f in report.findings if f.status is Status.ERROR]
    missing = [f"not examined: {line}" for line in report.incomplete]
    notes = [("error", text) for text in (*crashed, *missing)]
    notes += [("note", text) for text in report.remarks]
    return {
        "executionSuccessful": not crashed and not missing,
        "exitCode": report.exit_code,
        "toolExecutionNotifications": [
            {"level": level, "message": {"text": plain.line(text)}} for level, text in notes
        ],
    }


def _result(finding: Finding, index: int, report: Report) -> dict[str, Any]:
    kind, level = _KINDS[finding.status]
    result: dict[str, Any] = {
        "ruleId": finding.id or "numadoctor",
        "ruleIndex": index,
        "kind": kind,
        "level": level,
        "message": {"text": _message(finding)},
        "locations": [_location(finding, report.host)],
        "partialFingerprints": {"numadoctor/v1": finding.fingerprint},
        # Of all results or of none (3.27.23).
        "suppressions": _suppressions(finding),
        "properties": {
            "status": finding.status.value,
            "severity": finding.severity.value,
            "subject": plain.line(finding.subject),
            "evidence": [f"{plain.line(e.source)}: {plain.line(e.text)}" for e in finding.evidence],
        },
    }
    if finding.suppressed and finding.suppressed.kind == "baseline":
        result["baselineState"] = "unchanged"
    return result


def _message(finding: Finding) -> str:
    undecided = "not decided: " if finding.status is Status.UNKNOWN else ""
    parts = [f"{undecided}{plain.line(finding.message)}", plain.line(finding.cause)]
    parts += map(plain.fix_text, finding.fixes)
    return "\n".join(filter(None, parts)) or finding.status.value


def _suppressions(finding: Finding) -> list[dict[str, str]]:
    if finding.suppressed is None:
        return []
    why = plain.line(str(finding.suppressed))
    return [{"kind": "external", "status": "accepted", "justification": why}]


def _location(finding: Finding, host: str) -> dict[str, Any]:
    """The place in a file; for what was found on a machine, the machine and the subject."""
    if finding.location is not None:
        return {"physicalLocation": _physical(finding.location)}
    name = plain.line(f"{host}/{finding.subject}")
    return {"logicalLocations": [{"fullyQualifiedName": name, "kind": "resource"}]}


def _physical(location: Location) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(location.file)}}
    if location.line:
        place["region"] = {"startLine": location.line}
        place["region"] |= {"startColumn": location.column} if location.column else {}
    return place


def _uri(file: str) -> str:
    from urllib.parse import quote

    name = file.removeprefix("./")
    try:
        # Bytes that were no UTF-8 come as lone surrogates.
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = name.encode("utf-8", "backslashreplace")
    quoted = quote(raw)
    return f"file://{quoted}" if file.startswith("/") else quoted
