import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model import Fix
from numadoctor.report.fixes import fix_lines
from numadoctor.report.terminal import Terminal, columns
from tests.report.reports import FIX


def lines(*fixes: Fix, width: int = 80, indent: int = 0) -> list[str]:
    return fix_lines(fixes, Terminal(width), indent)


@pytest.mark.parametrize(
    ("fix", "note"),
    [
        (Fix("docker", "X"), ""),
        (Fix("docker", "X", needs_restart=True), "   (restart)"),
        (Fix("sysctl", "X", needs_root=True), "   (root, until reboot)"),
        (Fix("sysctl", "X", needs_root=True, persists=True), "   (root, permanent)"),
        (Fix("systemd", "X", True, True, True), "   (root, restart, permanent)"),
        (Fix("systemd", "X", True, True, False), "   (root, restart)"),
        (Fix("compose", "X", persists=True), "   (permanent)"),
    ],
)
def test_what_a_fix_takes_stands_beside_it(fix: Fix, note: str) -> None:
    assert lines(fix) == [f"{fix.launcher:<12}X{note}"]


def test_a_note_without_room_stands_below() -> None:
    command = "x" * 60
    assert lines(Fix("docker", command, needs_restart=True)) == [
        f"docker      {command}",
        "            (restart)",
    ]
    assert lines(Fix("docker", "x" * 56, needs_restart=True)) == [
        f"docker      {'x' * 56}   (restart)"
    ]


def test_fixes_for_one_launcher_stand_together() -> None:
    assert lines(Fix("docker", "A"), Fix("podman", "B"), Fix("docker", "C"), indent=2) == [
        "  docker      A",
        "              C",
        "  podman      B",
    ]


def test_a_snippet_keeps_its_lines() -> None:
    assert lines(Fix("kubernetes", "securityContext:\n  capabilities: {add: [X]}")) == [
        "kubernetes  securityContext:",
        "              capabilities: {add: [X]}",
    ]


def test_an_explanation_is_filled_and_stays_a_comment() -> None:
    assert lines(Fix("docker", "--x\n# " + "word " * 12), width=50) == [
        "docker      --x",
        "            # word word word word word word word",
        "            # word word word word word",
    ]


def test_json_may_be_broken_at_blanks() -> None:
    entry = '{"names": ["mbind", "set_mempolicy", "get_mempolicy"], "action": "ALLOW"}'
    told = lines(Fix("docker", "--x\n" + entry), width=60)
    assert " ".join(line.strip() for line in told[1:]) == entry
    assert max(map(len, told)) <= 60


def test_words_for_the_firmware_are_filled() -> None:
    told = lines(Fix("bios", "word " * 30), width=60)
    assert len(told) > 2
    assert max(map(len, told)) <= 60


def test_what_stands_above_is_not_said_again() -> None:
    entry = "{" + "x" * 70 + "}"
    text = f"# put this first:\n{entry}\nshort"
    assert lines(Fix("docker", f"--a\n{text}"), Fix("podman", f"--b\n{text}"), width=120) == [
        "docker      --a",
        "            # put this first:",
        f"            {entry}",
        "            short",
        "podman      --b",
        "            # the entry above",
        "            short",
    ]


def test_the_first_line_is_always_said() -> None:
    command = "x" * 70
    told = lines(Fix("docker", command), Fix("podman", command), width=120)
    assert told == [f"docker      {command}", f"podman      {command}"]


def test_a_long_name_of_a_launcher_is_cut() -> None:
    assert lines(Fix("a-launcher-of-length", "X")) == ["a-launcher… X"]


@given(st.lists(FIX, max_size=4), st.sampled_from([40, 80]))
def test_any_fix_is_told_harmlessly(fixes: list[Fix], width: int) -> None:
    told = fix_lines(fixes, Terminal(width), 12)
    assert all(line.isprintable() for line in told)
    assert len({fix.launcher for fix in fixes}) <= len(told) or not fixes
    for line in told:
        if "# " in line[24:26]:
            assert columns(line) <= width
