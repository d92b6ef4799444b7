import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft4Validator

from numadoctor.engine.discovery import discover
from numadoctor.model import Location, Report, Status
from numadoctor.report.sarif import render
from tests.report.reports import FULL, GATE, finding, reports

SCHEMA = Path(__file__).parent / "vendored" / "sarif-2.1.0-rtm.5.json"
RULES = tuple(discover())


@cache
def validator() -> Any:
    schema = json.loads(SCHEMA.read_text())
    Draft4Validator.check_schema(schema)
    return Draft4Validator(schema)


def valid(report: Report) -> dict[str, Any]:
    """The one run, after the whole was found to follow the schema."""
    data = json.loads(render(report, RULES, "1.0"))
    errors = [f"{e.json_path}: {e.message[:200]}" for e in validator().iter_errors(data)]
    assert errors == []
    (run,) = data["runs"]
    assert isinstance(run, dict)
    return run


@given(reports())
def test_any_report_follows_the_schema(report: Report) -> None:
    run = valid(report)
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        # 3.27.9, 3.27.10: only a failure has a level.
        assert (result["level"] == "none") == (result["kind"] != "fail")
        assert result["message"]["text"]


@pytest.mark.parametrize("report", [FULL, GATE])
def test_what_passed_is_no_result(report: Report) -> None:
    shown = (Status.FAIL, Status.WARN, Status.INFO, Status.UNKNOWN)
    results = valid(report)["results"]
    assert [r["properties"]["status"] for r in results] == [
        f.status.value for f in report.findings if f.status in shown
    ]


def test_places_and_suppressions() -> None:
    results = valid(GATE)["results"]
    first, second, waived, known = results[:4]
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "deploy/compose.yaml"},
        "region": {"startLine": 12, "startColumn": 5},
    }
    assert second["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "odd%20name%2C%FF%0A%1B%5B31m%3A100%25.yaml"}
    }
    assert waived["suppressions"] == [
        {
            "kind": "external",
            "status": "accepted",
            "justification": "waived until 2026-12-31: measured: no effect here",
        }
    ]
    assert known["baselineState"] == "unchanged"
    # 3.27.23: of all results or of none.
    assert all("suppressions" in result for result in results)
    assert waived["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "gpu-07/machine"


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("./a/b.yaml", "a/b.yaml"),
        ("/etc/x y", "file:///etc/x%20y"),
        ("a:b", "a%3Ab"),
        ("ü", "%C3%BC"),
        ("\udcff", "%FF"),
        ("\ud800", "%5Cud800"),
    ],
)
def test_uris(file: str, uri: str) -> None:
    from dataclasses import replace

    placed = replace(finding(Status.FAIL, "K001", "m"), location=Location(file, 1))
    (result,) = valid(Report("h", "", (placed,), 1, 0.0))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_rules_come_from_docstrings() -> None:
    findings = tuple(finding(Status.FAIL, rule.id, "m") for rule in RULES)
    rules = valid(Report("h", "", findings, 1, 0.0))["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(rule.id for rule in RULES)
    for rule, check in zip(rules, sorted(RULES, key=lambda c: c.id), strict=True):
        assert rule["shortDescription"]["text"] == check.summary
        assert "Why it matters" in rule["help"]["text"]
        assert "**Fix**" in rule["help"]["markdown"]


def test_what_could_not_be_examined_is_told() -> None:
    (invocation,) = valid(GATE)["invocations"]
    assert invocation["executionSuccessful"] is False
    levels = [note["level"] for note in invocation["toolExecutionNotifications"]]
    assert levels == ["error", "error", "note"]
