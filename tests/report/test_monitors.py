"""Prometheus, Nagios, node-problem-detector, Node Feature Discovery."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families

from numadoctor.model import Report, Status, Suppression
from numadoctor.report import nagios, nfd, npd
from numadoctor.report.prometheus import render as prometheus
from tests.report.reports import FIT, FULL, GATE, finding, reports


def samples(report: Report) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What a scrape reads; no series twice."""
    found = {}
    for family in text_string_to_metric_families(prometheus(report, "1.0")):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            assert sample.timestamp is None
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


@given(reports())
def test_prometheus_is_read_back(report: Report) -> None:
    found = samples(report)
    for status in Status:
        key = "numadoctor_findings", (("status", status.value),)
        assert found[key] == report.count(status)
    told = (Status.FAIL, Status.ERROR, Status.WARN, Status.UNKNOWN)
    each = sum(value for (name, _), value in found.items() if name == "numadoctor_finding")
    assert each == sum(f.status in told for f in report.findings)
    assert found["numadoctor_exit_code", ()] == report.exit_code
    assert found["numadoctor_suppressed", ()] == report.suppressed
    assert found["numadoctor_incomplete", ()] == len(report.incomplete)


# As promtool check metrics has it.
_NAME = re.compile(r"numadoctor_[a-z][a-z_]*[a-z]")


def test_names_are_as_prometheus_wants_them() -> None:
    for family in text_string_to_metric_families(prometheus(GATE, "1.0")):
        assert _NAME.fullmatch(family.name)
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))


def test_hostile_labels_come_back_as_they_are_shown() -> None:
    subjects = {
        dict(labels)["subject"] for name, labels in samples(GATE) if name == "numadoctor_finding"
    }
    assert "100%: a,b | c # d" in subjects


# Nagios.


def of(*statuses: Status, **more: object) -> Report:
    findings = tuple(finding(status, "K001", "m") for status in statuses)
    return replace(Report("h", "", findings, 0, 0.0), **more)  # type: ignore[arg-type]


S = Status


@pytest.mark.parametrize(
    ("report", "state"),
    [
        (of(S.PASS), "OK"),
        (of(S.PASS, S.UNKNOWN), "OK"),
        (of(S.PASS, S.UNKNOWN, strict=True), "UNKNOWN"),
        (of(S.UNKNOWN), "UNKNOWN"),
        (of(), "UNKNOWN"),
        (of(S.SKIP), "UNKNOWN"),
        (of(S.PASS, S.ERROR), "UNKNOWN"),
        (of(S.PASS, incomplete=("pid 1",)), "UNKNOWN"),
        (of(S.WARN, S.ERROR), "WARNING"),
        (of(S.WARN, S.FAIL), "CRITICAL"),
        (of(S.FAIL, fail_on="never"), "CRITICAL"),
    ],
)
def test_nagios_states(report: Report, state: str) -> None:
    assert nagios.state(report).name == state
    assert nagios.render(report).startswith(f"NUMADOCTOR {state} - h: ")


def test_waived_findings_do_not_alarm() -> None:
    waived = replace(finding(S.FAIL, "K001", "m"), suppressed=Suppression("waiver", "known"))
    report = Report("h", "", (waived,), 0, 0.0)
    assert nagios.state(report) is nagios.State.OK
    assert "fit, with exceptions: 1 waived" in nagios.render(report)


_FIGURES = re.compile(r"[a-z]+=[0-9]+(;[0-9]*){0,4}( [a-z]+=[0-9]+(;[0-9]*){0,4})*")


@given(reports())
def test_nagios_is_one_line_with_figures(report: Report) -> None:
    text = nagios.render(report)
    assert text.count("\n") == 1
    told, bar, figures = text.rstrip("\n").partition("|")
    assert bar
    assert "|" not in figures
    assert _FIGURES.fullmatch(figures.strip())
    assert len(text.encode()) < 4096
    assert told.startswith("NUMADOCTOR ")


# node-problem-detector.


@given(reports())
def test_npd_is_one_short_line_of_ascii(report: Report) -> None:
    text = npd.render(report)
    assert text.isascii()
    assert text.count("\n") == 1
    assert 0 < len(text.strip()) <= 80


@pytest.mark.parametrize(("code", "answer"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_npd_answers(code: int, answer: int) -> None:
    assert npd.answer(replace(FIT, exit_code=code)) == answer


def test_npd_tells_the_worst() -> None:
    assert npd.render(FULL) == "not fit: E001 mbind is refused (EPERM) by a seccomp filter\n"
    assert npd.render(of(incomplete=("pid 7: gone",))) == "examination incomplete: pid 7: gone\n"


# Node Feature Discovery.

# What the API server takes for the name part of a key and for a value.
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


@given(reports())
def test_nfd_labels_are_valid(report: Report) -> None:
    lines = nfd.render(report).splitlines()
    assert lines == sorted(lines)
    for line in lines:
        name, equals, value = line.partition("=")
        assert equals
        assert name
        assert value
        assert _LABEL.fullmatch(name)
        assert _LABEL.fullmatch(value)


def test_nfd_labels_what_does_not_pass() -> None:
    assert nfd.render(GATE).splitlines() == [
        "numadoctor-D001=fail", "numadoctor-K013=unknown", "numadoctor-verdict=not-fit",
    ]  # fmt: skip
    assert nfd.render(FIT) == "numadoctor-verdict=fit\n"
