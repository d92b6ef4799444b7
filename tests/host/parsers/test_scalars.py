import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import (
    Choice,
    parse_choice,
    parse_flag,
    parse_hex,
    parse_integer,
    parse_size,
    parse_text,
    parse_weight,
    parse_words,
)
from numadoctor.model import ParseError

BLANKS = st.text(" \t\r\n\0", max_size=3).map(str.encode)
WORDS = st.lists(st.from_regex(r"[a-z0-9_+\-]{1,12}", fullmatch=True), min_size=1, max_size=6)


@given(st.integers(-(2**64) + 1, 2**64 - 1), BLANKS, BLANKS)
def test_integers(number: int, before: bytes, after: bytes) -> None:
    assert parse_integer(before + str(number).encode() + after) == number
    assert parse_integer(before + hex(number).encode() + after) == number


@pytest.mark.parametrize(
    ("text", "number"), [(b"+7", 7), (b"007", 7), (b"0XfF\0", 255), (b"-0", 0)]
)
def test_integer_spellings(text: bytes, number: int) -> None:
    assert parse_integer(text) == number


@pytest.mark.parametrize(
    "text",
    [b"", b"\n", b"1 2", b"1_0", b"0x", b"ff", b"1.5", b"--1", b"9" * 21, b"0x1" + b"0" * 16],
)
def test_other_integers_are_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="is not a number"):
        parse_integer(text)


@given(st.integers(0, 2**64 - 1), BLANKS)
def test_hexadecimal_numbers(number: int, blank: bytes) -> None:
    assert parse_hex(blank + f"0x{number:06x}".encode() + blank) == number
    assert parse_hex(f"{number:X}".encode()) == number


def test_a_pci_class_keeps_its_leading_zeros_out_of_the_way() -> None:
    assert parse_hex(b"0x030200\n") == 0x030200


@pytest.mark.parametrize("text", [b"", b"0x", b"-1", b"0xg", b"1 2", b"1" * 17, b"1_0"])
def test_other_hexadecimal_numbers_are_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="bad hexadecimal number"):
        parse_hex(text)


@given(st.integers(0, 10**6), st.sampled_from(["", "K", "M", "G", "T", "P"]), st.booleans())
def test_sizes(number: int, suffix: str, unit: bool) -> None:
    factor = 1024 ** ["", "K", "M", "G", "T", "P"].index(suffix)
    text = f"{number}{suffix}{'B' if unit else ''}"
    assert parse_size(text.encode()) == number * factor
    assert parse_size(text.lower().encode() + b"\n") == number * factor


@pytest.mark.parametrize("text", [b"", b"K", b"1.5G", b"-1", b"1X", b"50%", b"1 G", b"1" * 19])
def test_other_sizes_are_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="bad size"):
        parse_size(text)


@pytest.mark.parametrize("number", range(1, 256))
def test_weights(number: int) -> None:
    assert parse_weight(f"{number}\n".encode()) == number


@pytest.mark.parametrize("text", [b"0", b"256", b"-1", b"", b"a"])
def test_other_weights_are_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="bad weight"):
        parse_weight(text)


@pytest.mark.parametrize("word", ["1", "Y", "y", "true", "True", "on", "enabled", "yes"])
def test_on(word: str) -> None:
    assert parse_flag(f" {word}\n\0".encode()) is True


@pytest.mark.parametrize("word", ["0", "N", "n", "false", "FALSE", "off", "disabled", "no"])
def test_off(word: str) -> None:
    assert parse_flag(f"{word}\r\n".encode()) is False


@pytest.mark.parametrize("text", [b"", b"2", b"1 0", b"yesno", b"[1]", b"-1"])
def test_neither_on_nor_off(text: bytes) -> None:
    with pytest.raises(ParseError, match="is neither on nor off"):
        parse_flag(text)


@given(WORDS, st.data())
def test_choices(options: list[str], data: st.DataObject) -> None:
    selected = data.draw(st.integers(0, len(options) - 1))
    shown = [f"[{word}]" if n == selected else word for n, word in enumerate(options)]
    text = (" ".join(shown) + "\n").encode()
    assert parse_choice(text) == Choice(options[selected], tuple(options))


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        (b"always [madvise] never\n\0", Choice("madvise", ("always", "madvise", "never"))),
        (b"performance\n", Choice("performance", ("performance",))),
        (b"[none]", Choice("none", ("none",))),
        (b"[]", Choice("[]", ("[]",))),
        (b"a [b] [] [c", Choice("b", ("a", "b", "[]", "[c"))),
    ],
)
def test_choice_spellings(text: bytes, choice: Choice) -> None:
    assert parse_choice(text) == choice


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "0 of 0 words are selected"),
        (b"always never", "0 of 2 words are selected"),
        (b"[a] b [c]", "2 of 3 words are selected"),
        (b"[a] [a]", "2 of 2 words are selected"),
    ],
)
def test_not_a_choice(text: bytes, reason: str) -> None:
    with pytest.raises(ParseError, match=re.escape(reason)):
        parse_choice(text)


@given(WORDS, BLANKS.filter(len), BLANKS)
def test_words(words: list[str], between: bytes, around: bytes) -> None:
    text = around + between.join(map(str.encode, words)) + around
    assert parse_words(text) == tuple(words)


def test_no_words() -> None:
    assert parse_words(b"\n\0") == ()


def test_text_is_shown_as_far_as_it_is_utf8() -> None:
    assert parse_text(b"\0 gr\xc3\xbc\xdf \n\0") == "gr\u00fc\\xdf"
    assert parse_text(b"") == ""
