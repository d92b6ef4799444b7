import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model import Evidence, Finding, Fix, Report, Status, Suppression
from numadoctor.report.terminal import Terminal, columns, sanitise
from numadoctor.report.text import render
from numadoctor.report.verdict import headline, verdict
from tests.report.reports import FIT, FULL, GATE, finding, reports

GOLDEN = Path(__file__).parent / "golden"
PAINT = re.compile("\x1b\\[[0-9;]*m")


@pytest.mark.parametrize(
    ("name", "terminal", "verbose"),
    [
        ("gate-80", Terminal(80), False),
        ("gate-80-verbose", Terminal(80), True),
        ("full-80", Terminal(80), False),
        ("full-80-verbose", Terminal(80), True),
        ("full-40", Terminal(40), False),
        ("full-80-ascii", Terminal(80, unicode=False), False),
        ("full-80-colour", Terminal(80, colour=True), False),
    ],
)
def test_golden(name: str, terminal: Terminal, verbose: bool) -> None:
    """``NUMADOCTOR_GOLDEN=write`` writes the files anew; read what changed before committing."""
    text = render(FULL if name.startswith("full") else GATE, terminal, verbose=verbose)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("NUMADOCTOR_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_colour_adds_nothing_but_colour() -> None:
    plain, painted = render(FULL, Terminal(80)), render(FULL, Terminal(80, colour=True))
    assert PAINT.sub("", painted) == plain
    assert painted.count("\x1b[1;31m") > 1


def report(*statuses: Status, **more: object) -> Report:
    findings = tuple(finding(s, f"X{n:03}", "x") for n, s in enumerate(statuses))
    return Report("h", "", findings, 0, 0.0, **more)  # type: ignore[arg-type]


S = Status


@pytest.mark.parametrize(
    ("given_report", "words"),
    [
        (report(), "h: nothing to examine · no check ran"),
        (report(S.SKIP), "h: nothing to examine · no check ran"),
        (report(S.PASS), "h: fit · 1 passed"),
        (report(S.INFO), "h: fit · no check ran"),
        (report(S.PASS, S.UNKNOWN), "h: fit as far as seen · 1 passed, 1 not decided"),
        (report(S.UNKNOWN, S.UNKNOWN), "h: not decided · 2 not decided"),
        (report(S.UNKNOWN, S.SKIP), "h: not decided · 1 not decided"),
        (report(S.PASS, S.PASS, S.WARN), "h: fit, with warnings · 1 warning, 2 passed"),
        (report(S.WARN, S.WARN), "h: fit, with warnings · 2 warnings"),
        (report(S.FAIL, S.WARN), "h: not fit · 1 problem, 1 warning"),
        (report(S.FAIL, S.FAIL, S.ERROR), "h: not fit · 2 problems, 1 crashed check"),
        (report(S.PASS, S.ERROR), "h: examination incomplete · 1 crashed check, 1 passed"),
        (report(S.PASS, incomplete=("x",)), "h: examination incomplete · 1 passed"),
        (report(S.FAIL, incomplete=("x",)), "h: not fit · 1 problem"),
    ],
)
def test_the_first_line_tells_the_whole_story(given_report: Report, words: str) -> None:
    assert headline(given_report) == words
    assert verdict(given_report) in words
    assert render(given_report, Terminal(80)).startswith(words)


def test_the_first_line_ends_with_the_time() -> None:
    first = render(FIT, Terminal(80)).splitlines()[0]
    assert first == "gpu-07: fit · 1 passed".ljust(75) + "1.2 s"


def test_a_long_first_line_keeps_numbers_with_their_words() -> None:
    long = Report("h" * 20, "", tuple(report(*[S.UNKNOWN] * 12, S.PASS).findings), 0, 0.0)
    lines = render(long, Terminal(40)).splitlines()
    assert lines[:2] == ["hhhhhhhhhhhhhhhhhhhh: fit as far as seen", "  · 1 passed, 12 not decided"]


def test_nothing_that_passed_is_told_without_being_asked() -> None:
    text = render(FULL, Terminal(80))
    assert "zone_reclaim" not in text
    assert "weighted" not in text
    verbose = render(FULL, Terminal(80), verbose=True)
    assert "zone_reclaim_mode is 0" in verbose
    assert "K005  this kernel has no weighted interleave" in verbose


def test_everything_that_was_not_decided_is_told() -> None:
    many = tuple(finding(S.UNKNOWN, f"K{n:03}", f"cannot read /proc/{n}") for n in range(200))
    text = render(Report("h", "", many, 0, 0.0), Terminal(80))
    assert all(f"  K{n:03}  cannot read /proc/{n}\n" in text for n in range(200))


def test_the_foot() -> None:
    def foot(r: Report, verbose: bool = False) -> str:
        return render(r, Terminal(80), verbose=verbose).splitlines()[-1]

    assert foot(FULL) == "numadoctor explain E001 tells more · -v shows what passed · exit 1"
    assert foot(FULL, verbose=True) == "numadoctor explain E001 tells more · exit 1"
    assert foot(FIT) == "-v shows what passed · exit 0"


# Any width, any text.


@given(reports(most_fixes=0), st.sampled_from([40, 60, 80, 120]), st.booleans())
def test_no_line_is_wider_than_the_terminal(
    given_report: Report, width: int, verbose: bool
) -> None:
    for line in render(given_report, Terminal(width), verbose=verbose).splitlines():
        assert columns(line) <= width, line


@given(reports(), st.booleans(), st.booleans(), st.booleans())
def test_nothing_hostile_reaches_the_terminal(
    given_report: Report, verbose: bool, colour: bool, unicode: bool
) -> None:
    text = render(given_report, Terminal(80, colour, unicode), verbose=verbose)
    assert PAINT.sub("", text).replace("\n", "").isprintable()
    assert text.endswith("\n")
    if not unicode:
        assert text.isascii()


@given(reports())
def test_no_text_forges_a_finding(given_report: Report) -> None:
    lines = render(given_report, Terminal(80)).splitlines()
    forged = [line for line in lines if re.match("(FAIL|WARN|ERROR) ", line)]
    bad = (S.FAIL, S.WARN, S.ERROR)
    problems = [f for f in given_report.findings if f.status in bad and not f.suppressed]
    assert len(forged) <= len(problems)
    assert bool(forged) is bool(problems)


def suppressed(status: Status, kind: str = "waiver") -> Report:
    one = replace(finding(status, "K001", "m"), suppressed=Suppression(kind, "why"))
    return Report("h", "", (one, finding(S.PASS, "K002", "m")), 0, 0.0)


@pytest.mark.parametrize(
    ("given_report", "words"),
    [
        (suppressed(S.FAIL), "h: fit, with exceptions · 1 waived, 1 passed"),
        (suppressed(S.WARN, "baseline"), "h: fit, with exceptions · 1 in the baseline, 1 passed"),
        # Waived or not: nobody looked.
        (suppressed(S.UNKNOWN), "h: fit as far as seen · 1 waived, 1 passed"),
    ],
)
def test_what_does_not_count_is_told(given_report: Report, words: str) -> None:
    assert headline(given_report) == words
    text = render(given_report, Terminal(80), verbose=True)
    assert "Waivers and settings\n  K001  m (" in text
    assert ": why)\n" in text


def test_a_hosts_name_cannot_forge_lines() -> None:
    host = "gpu\nFAIL  T001  forged\x1b[2J"
    text = render(Report(host, host, (), 0, 0.0, (host,)), Terminal(80))
    assert not re.search("^FAIL", text, re.MULTILINE)
    assert "\\x1b[2J" in text


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("width", [40, 80])
def test_commands_of_fixes_stay_on_one_line(status: Status, width: int) -> None:
    command = "sysctl -w kernel.numa_balancing=0 vm.zone_reclaim_mode=0 " * 3
    fixes = (Fix("sysctl", f"{command.strip()}\nsecond line of it", needs_root=True),)
    one = Finding(status, "m", id="K001", fixes=fixes)
    text = render(Report("h", "", (one,), 0, 0.0), Terminal(width), verbose=True)
    assert command.strip() + "\n" in text
    assert "second line of it\n" in text


def test_evidence_is_told_once_and_cut() -> None:
    same = Evidence("/x", "1")
    long = Evidence("/long", "word " * 400)
    one = finding(S.FAIL, "K001", "m", evidence=(same, same, long))
    lines = render(Report("h", "", (one,), 0, 0.0), Terminal(80)).splitlines()
    seen = [line for line in lines if "/x" in line or "word" in line]
    assert seen[0] == "            Seen: /x: 1"
    assert len(seen) == 3
    assert seen[-1].endswith("…")
    assert all(len(line) <= 80 for line in seen)


def test_empty_evidence_is_told_as_such() -> None:
    one = finding(S.FAIL, "K001", "m", evidence=(Evidence("/x", " \n"),))
    assert "Seen: /x: (empty)\n" in render(Report("h", "", (one,), 0, 0.0), Terminal(80))


def test_words_of_the_messages_are_all_there() -> None:
    text = render(FULL, Terminal(40), verbose=True)
    flat = " ".join(text.split())
    for one in FULL.findings:
        assert sanitise(one.message) in flat
