import io
import itertools
import os
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numadoctor.report.terminal import Terminal, columns, sanitise
from tests.report.reports import CHARACTERS, HOSTILE, NASTY

SHOWN = re.compile(r"\\x[0-9a-f]{2,6}")


def harmless(text: str) -> bool:
    """Whether no character of ``text`` acts on a terminal, hides or reorders."""
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return not any(unicodedata.category(c) in bad for c in text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("", ""),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc", "a b c"),
        ("a\r\nb", "a\\x0d b"),
        ("\0\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u202e\u2066\u200b\ufeff", "\\x202e\\x2066\\x200b\\xfeff"),
        ("\u2028\u2029\x85", "\\x2028\\x2029\\x85"),
        ("\xa0\xad", "\\xa0\\xad"),
        ("\udcff\U000e0041", "\\xdcff\\xe0041"),
        ("77 % · 71.3 GiB ≥ é 漢", "77 % · 71.3 GiB ≥ é 漢"),
    ],
)
def test_what_is_made_visible(text: str, shown: str) -> None:
    assert sanitise(text) == shown


@given(st.one_of(HOSTILE, st.text(CHARACTERS)))
def test_nothing_hostile_gets_through(text: str) -> None:
    shown = sanitise(text)
    assert harmless(shown)
    assert shown.isprintable()
    assert sanitise(shown) == shown
    # Nothing is dropped: each character is there, as itself, a blank or its number.
    rest = shown
    for character in text:
        piece = character if harmless(character) and character.isprintable() else None
        if piece is None:
            piece = " " if character in "\n\t" else f"\\x{ord(character):02x}"
        assert rest.startswith(piece)
        rest = rest[len(piece) :]
    assert rest == ""


@given(st.one_of(HOSTILE, st.text(CHARACTERS)))
def test_ascii_is_ascii(text: str) -> None:
    assert Terminal(unicode=False).text(text).isascii()
    assert harmless(Terminal(unicode=False).text(text))


def test_ascii_keeps_the_meaning() -> None:
    shown = Terminal(unicode=False).text("0–3 · 2 × ≥ 10 ± 1 … ’ → é 漢")
    assert shown == "0-3 . 2 x >= 10 +/- 1 ... ' -> \\xe9 \\u6f22"


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("漢字", 4), ("ｶ", 1), ("Ａ", 2), ("…·█", 3)],
)
def test_columns(text: str, width: int) -> None:
    assert columns(text) == width


printable = HOSTILE.map(sanitise)


@given(printable, st.integers(6, 60))
@example("漢字漢字", 7)
def test_cut(text: str, width: int) -> None:
    for terminal in (Terminal(width), Terminal(width, unicode=False)):
        cut = terminal.cut(text)
        assert columns(cut) <= width
        if columns(text) <= width:
            assert cut == text
        else:
            assert cut.endswith(terminal.ellipsis)
            assert text.startswith(cut.removesuffix(terminal.ellipsis))


def test_cut_to_a_given_width() -> None:
    assert Terminal(80).cut("abcdef", 4) == "abc…"
    assert Terminal(80, unicode=False).cut("abcdef", 5) == "ab..."


@given(printable, st.integers(40, 120), st.integers(0, 24), st.none() | st.integers(0, 24))
def test_wrapped_text_is_whole_and_fits(
    text: str, width: int, indent: int, first: int | None
) -> None:
    lines = Terminal(width).wrap(text, indent, first)
    assert all(columns(line) <= width for line in lines)
    starts = [indent if first is None else first, *([indent] * (len(lines) - 1))]
    assert all(line.startswith(" " * start) for line, start in zip(lines, starts, strict=True))
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    # A word that would fit on a line of its own is not broken.
    room = width - max(indent, starts[0])
    words = {word for line in lines for word in line.split(" ")}
    assert {word for word in text.split(" ") if columns(word) <= room} <= words | {""}


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1), st.integers(40, 60))
def test_lines_are_as_full_as_can_be(words: list[str], width: int) -> None:
    lines = Terminal(width).wrap(" ".join(words), 4, 2)
    for line, following in itertools.pairwise(lines):
        assert len(line) + 1 + len(following.split()[0]) > width


@pytest.mark.parametrize("indent", [39, 40, 1000])
def test_text_that_stands_too_deep_is_still_told(indent: int) -> None:
    lines = Terminal(40).wrap("漢" * 50, indent)
    assert [line.lstrip() for line in lines] == ["漢" * 6] * 8 + ["漢" * 2]
    assert Terminal(40).wrap("", indent, indent) == [" " * 28]


def test_wrap_keeps_inner_and_leading_blanks() -> None:
    assert Terminal(40).wrap("  a:  b", 2) == ["    a:  b"]
    assert Terminal(40).wrap("", 3) == ["   "]


class Screen(io.StringIO):
    def __init__(self, *, terminal: bool, encoding: str | None = "utf-8") -> None:
        super().__init__()
        self._terminal, self._encoding = terminal, encoding

    @property
    def encoding(self) -> str | None:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("COLUMNS", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((132, 50)))
    return monkeypatch


def of(environment: pytest.MonkeyPatch, screen: Screen | None, colour: bool | None) -> Terminal:
    environment.setattr("sys.stdout", screen)
    return Terminal.of_stdout(colour=colour)


@pytest.mark.parametrize(
    ("terminal", "variables", "asked", "colour"),
    [
        (True, {}, None, True),
        (False, {}, None, False),
        (True, {"NO_COLOR": "1"}, None, False),
        (True, {"NO_COLOR": ""}, None, True),
        (True, {"TERM": "dumb"}, None, False),
        (True, {"TERM": "xterm"}, None, True),
        (True, {}, False, False),
        (False, {"NO_COLOR": "1"}, True, True),
    ],
)
def test_colour(
    environment: pytest.MonkeyPatch,
    terminal: bool,
    variables: dict[str, str],
    asked: bool | None,
    colour: bool,
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert of(environment, Screen(terminal=terminal), asked).colour is colour


@pytest.mark.parametrize(
    ("terminal", "told", "width"),
    [
        (True, None, 132),
        (False, None, 80),
        (True, "60", 60),
        (False, "60", 60),
        (True, "0", 132),
        (True, "", 132),
        (True, "7", 40),
        (True, "99999", 500),
        (True, "9" * 5000, 132),
        (True, "²", 132),
        (True, "-5", 132),
        (True, "wide", 132),
    ],
)
def test_width(
    environment: pytest.MonkeyPatch, terminal: bool, told: str | None, width: int
) -> None:
    if told is not None:
        environment.setenv("COLUMNS", told)
    assert of(environment, Screen(terminal=terminal), None).width == width


def test_a_terminal_that_does_not_tell_its_width(environment: pytest.MonkeyPatch) -> None:
    environment.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((0, 0)))
    assert of(environment, Screen(terminal=True), None).width == 80

    def fails(fd: int) -> os.terminal_size:
        raise OSError

    environment.setattr(os, "get_terminal_size", fails)
    assert of(environment, Screen(terminal=True), None).width == 80


@pytest.mark.parametrize(
    ("encoding", "unicode"),
    [("utf-8", True), ("UTF8", True), ("ascii", False), ("latin-1", False), (None, False)],
)
def test_characters(environment: pytest.MonkeyPatch, encoding: str | None, unicode: bool) -> None:
    screen = Screen(terminal=False, encoding=encoding)
    assert of(environment, screen, None).unicode is unicode


def test_closed_standard_output(environment: pytest.MonkeyPatch) -> None:
    assert of(environment, None, None) == Terminal(80, colour=False, unicode=False)


def test_paint() -> None:
    assert Terminal(colour=False).paint("x", "red", bold=True) == "x"
    assert Terminal(colour=True).paint("x", "red") == "\x1b[31mx\x1b[0m"
    assert Terminal(colour=True).paint("x", "red", bold=True) == "\x1b[1;31mx\x1b[0m"


def test_the_nasty_texts_are_nasty() -> None:
    assert sum(not text.isprintable() for text in NASTY) >= 12
