"""What all formats have in common, and what each writes of two reports (golden files)."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.cli.formats import render
from numadoctor.cli.gate import FORMATS
from numadoctor.engine.discovery import discover
from numadoctor.model import Report
from tests.report.reports import FULL, GATE, reports

GOLDEN = Path(__file__).parent / "golden"
RULES = tuple(discover())
MACHINE_FORMATS = [name for name in FORMATS if name not in ("text", "json")]
SUFFIXES = {
    "junit": "xml", "sarif": "sarif", "tap": "tap", "github": "txt", "gitlab": "json",
    "prometheus": "prom", "nagios": "txt", "npd": "txt", "nfd": "txt",
}  # fmt: skip
REPORTS = {"full": FULL, "gate": GATE}


def text(name: str, report: Report) -> str:
    return render(name, report, RULES, on_stdout=False, verbose=False, colour=None)


@pytest.fixture
def same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A golden file must not change with the words of a check, nor with a release."""
    monkeypatch.setattr("tests.report.test_formats.RULES", ())
    monkeypatch.setattr("numadoctor.cli.formats.__version__", "9.9")


@pytest.mark.usefixtures("same_words")
@pytest.mark.parametrize("which", sorted(REPORTS))
@pytest.mark.parametrize("name", MACHINE_FORMATS)
def test_golden(name: str, which: str) -> None:
    """``NUMADOCTOR_GOLDEN=write`` writes the files anew; read what changed before committing."""
    written = text(name, REPORTS[which])
    path = GOLDEN / f"{which}-{name}.{SUFFIXES[name]}"
    if os.environ.get("NUMADOCTOR_GOLDEN") == "write":
        path.write_text(written)
    assert written == path.read_text()


@given(reports(), st.floats(0, 1000))
def test_nothing_acts_on_a_terminal_and_time_leaves_no_trace(
    report: Report, seconds: float
) -> None:
    for name in MACHINE_FORMATS:
        written = text(name, report)
        assert written.endswith("\n")
        assert all(line.isprintable() for line in written.split("\n"))
        assert written.isascii() or written.encode()
        assert written == text(name, replace(report, seconds=seconds))


@pytest.mark.parametrize("name", [*MACHINE_FORMATS, "json", "text"])
def test_a_report_of_nothing(name: str) -> None:
    empty = Report("h", "", (), 0, 0.0)
    assert text(name, empty).strip()


@pytest.mark.parametrize("name", MACHINE_FORMATS)
def test_ten_thousand_findings(name: str) -> None:
    many = replace(GATE, findings=GATE.findings * 1000)
    written = text(name, many)
    assert len(written) < 40_000_000
    if name in ("nagios", "npd"):
        assert written.count("\n") == 1
        assert len(written) <= {"nagios": 1024, "npd": 81}[name]
