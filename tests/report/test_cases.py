"""JUnit and TAP: cases agree with the exit code, and only a pass passes."""

import json
import re
from dataclasses import replace
from datetime import date
from xml.etree import ElementTree

import junitparser
import pytest
import yaml
from hypothesis import given

from numadoctor.engine.config import Config
from numadoctor.engine.settle import settle
from numadoctor.model import Report, Status, Suppression
from numadoctor.report.cases import Outcome, cases
from numadoctor.report.junit import render as junit
from numadoctor.report.tap import render as tap
from tests.report.reports import FULL, GATE, finding, reports

DAY = date(2026, 11, 30)


@given(reports())
def test_cases_agree_with_the_exit_code(report: Report) -> None:
    report = settle(report, Config(), None, DAY)
    outcomes = {case.outcome for case in cases(report)}
    bad = outcomes & {Outcome.FAILED, Outcome.BROKEN}
    assert bool(bad) == bool(report.exit_code)
    assert (Outcome.FAILED in outcomes) == (report.exit_code == 1)


@given(reports())
def test_every_finding_is_of_a_case_and_no_case_is_better_than_its_findings(report: Report) -> None:
    found = cases(report)
    keys = {(f.id, f.name) for f in report.findings}
    assert len(found) == len(keys) + len(report.incomplete)
    for id, name in keys:
        statuses = {f.status for f in report.findings if (f.id, f.name) == (id, name)}
        (case,) = [
            c for c in found if c.findings and (c.findings[0].id, c.findings[0].name) == (id, name)
        ]
        if case.outcome is Outcome.PASSED:
            assert statuses <= {Status.PASS, Status.INFO, Status.SKIP}


@pytest.mark.parametrize(
    ("status", "more", "outcome"),
    [
        (Status.PASS, {}, Outcome.PASSED),
        (Status.INFO, {}, Outcome.PASSED),
        (Status.SKIP, {}, Outcome.INAPPLICABLE),
        (Status.UNKNOWN, {}, Outcome.UNDECIDED),
        (Status.UNKNOWN, {"strict": True}, Outcome.BROKEN),
        (Status.ERROR, {}, Outcome.BROKEN),
        (Status.WARN, {}, Outcome.TOLERATED),
        (Status.WARN, {"fail_on": "warn"}, Outcome.FAILED),
        (Status.FAIL, {}, Outcome.FAILED),
        (Status.FAIL, {"fail_on": "never"}, Outcome.TOLERATED),
    ],
)
def test_outcomes(status: Status, more: dict[str, object], outcome: Outcome) -> None:
    report = replace(Report("h", "", (finding(status, "K001", "m"),), 0, 0.0), **more)  # type: ignore[arg-type]
    (case,) = cases(report)
    assert case.outcome is outcome
    element = ElementTree.fromstring(junit(report)).find(".//testcase")
    assert element is not None
    assert [child.tag for child in element] == {
        Outcome.PASSED: [], Outcome.FAILED: ["failure"], Outcome.BROKEN: ["error"],
    }.get(outcome, ["skipped"])  # fmt: skip


# JUnit.


@given(reports())
def test_junit_is_read_by_a_reader(report: Report) -> None:
    read = junitparser.JUnitXml.fromstring(junit(report).encode())
    (suite,) = read
    found = list(suite)
    assert len(found) == suite.tests == read.tests == len(cases(report))
    failures = sum(any(isinstance(r, junitparser.Failure) for r in case.result) for case in found)
    errors = sum(any(isinstance(r, junitparser.Error) for r in case.result) for case in found)
    skipped = sum(any(isinstance(r, junitparser.Skipped) for r in case.result) for case in found)
    assert (failures, errors, skipped) == (suite.failures, suite.errors, suite.skipped)
    passed = sum(not case.result for case in found)
    assert passed == sum(case.outcome is Outcome.PASSED for case in cases(report))


def test_junit_tells_why() -> None:
    read = ElementTree.fromstring(junit(GATE))
    by_name = {case.get("name"): case for case in read.iter("testcase")}
    failed = by_name["D001 x"]
    assert (failed.get("classname"), failed.get("file"), failed.get("line")) == (
        "numadoctor.D", "deploy/compose.yaml", "12",
    )  # fmt: skip
    told = failed[0].text or ""
    assert told.endswith("fix for compose (restart):\n    cap_add:\n      - SYS_NICE")
    (waived,) = by_name["K001 x"]
    assert waived.get("message") == (
        "waived until 2026-12-31: measured: no effect here (warn: automatic NUMA balancing is on)"
    )
    (known,) = by_name["E001 x"]
    assert known.get("message", "").startswith("in the baseline: known to baseline.json")
    (missing,) = by_name["examination"]
    assert (missing.tag, missing.get("message")) == (
        "error", "not examined: pid 4343: no such process",
    )  # fmt: skip


def test_several_findings_of_a_check_are_one_case() -> None:
    read = ElementTree.fromstring(junit(FULL))
    (case,) = [case for case in read.iter("testcase") if case.get("name") == "E001 x"]
    assert (case[0].get("message") or "").endswith("(and 1 more)")
    assert "set_mempolicy is refused" in (case[0].text or "")


# TAP.

_POINT = re.compile(r"(not )?ok ([0-9]+) - ((?:[^\\#]|\\.)*?)(?: # (TODO|SKIP)(?: (.*))?)?")


@given(reports())
def test_tap_has_one_point_for_each_case(report: Report) -> None:
    first, plan, *lines = tap(report).splitlines()
    assert first == "TAP version 14"
    points = []
    block: list[str] | None = None
    for line in lines:
        if line == "  ---":
            block = []
        elif line == "  ...":
            assert block is not None
            data = yaml.safe_load("\n".join(block))
            assert set(data) <= {"message", "findings"}
            block = None
        elif block is not None:
            assert line.startswith("  ")
            block.append(line)
        elif not line.startswith("#"):
            match = _POINT.fullmatch(line)
            assert match, line
            points.append((not match[1], int(match[2]), match[4]))
    assert plan.split()[0] == f"1..{len(points)}"
    found = cases(report)
    assert [number for _, number, _ in points] == list(range(1, len(found) + 1))
    for (ok, _, directive), case in zip(points, found, strict=True):
        harness_passes = ok and directive is None
        assert harness_passes == (case.outcome is Outcome.PASSED)
        harness_fails = not ok and directive != "TODO"
        assert harness_fails == (case.outcome in (Outcome.FAILED, Outcome.BROKEN))


def test_tap_diagnostics_hold_the_fix() -> None:
    text = tap(GATE)
    assert "# waiver of K002 is not used" in text
    line = next(line for line in text.splitlines() if "CAP_SYS_NICE" in line)
    assert "cap_add:\n" in json.loads(line.partition("text: ")[2])


def test_waived_crashes_do_not_exist_but_would_not_pass() -> None:
    crash = replace(
        finding(Status.ERROR, "X001", "crashed"), suppressed=Suppression("waiver", "no")
    )
    (case,) = cases(Report("h", "", (crash,), 0, 0.0))
    assert case.outcome is not Outcome.PASSED
