"""What holds for every parser: it never raises anything but ParseError, and blanks mean nothing."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import parsers
from numadoctor.host.parsers import _NAMES
from numadoctor.model import ParseError
from tests.host.parsers.samples import EDITS, SAMPLES, damaged

EVERY = pytest.mark.parametrize("name", SAMPLES)
BY_LINES = pytest.mark.parametrize("name", [name for name in SAMPLES if SAMPLES[name].lines])


def refusal(name: str, data: bytes) -> ParseError | None:
    """The ParseError for the data, if any; every other exception passes through."""
    try:
        SAMPLES[name].parse(data)
    except ParseError as error:
        return error
    return None


def assert_fit_to_print(error: ParseError | None) -> None:
    if error is not None:
        assert str(error).isprintable()
        assert str(error).startswith("bad ")
        assert len(str(error)) < 400


@EVERY
def test_a_genuine_text_is_understood(name: str) -> None:
    assert refusal(name, SAMPLES[name].text) is None


@EVERY
@given(edits=EDITS)
def test_damaged_text_raises_parse_error_or_nothing(name: str, edits: bytes) -> None:
    assert_fit_to_print(refusal(name, damaged(SAMPLES[name].text, edits)))


@EVERY
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_raise_parse_error_or_nothing(name: str, data: bytes) -> None:
    assert_fit_to_print(refusal(name, data))


@EVERY
def test_every_cut_raises_parse_error_or_nothing(name: str) -> None:
    text = SAMPLES[name].text
    for end in range(len(text)):
        assert_fit_to_print(refusal(name, text[:end]))


@BY_LINES
@pytest.mark.parametrize("tail", [b"", b"\n", b"\0", b"\n\0", b"\r\n", b"\0\0\0", b" \t\n"])
def test_line_ends_and_trailing_nul_mean_nothing(name: str, tail: bytes) -> None:
    parse, text, _ = SAMPLES[name]
    body = text.rstrip(b" \n")
    assert parse(body + tail) == parse(text)
    assert parse(body.replace(b"\n", b"\r\n") + tail) == parse(text)


LINE_FORMATS = {
    "meminfo",
    "counters",
    "buddyinfo",
    "zoneinfo",
    "limits",
    "cgroup",
    "mounts",
    "mountinfo",
    "swaps",
    "key_values",
    "kfd_properties",
}


@pytest.mark.parametrize("name", sorted(LINE_FORMATS))
def test_an_unknown_line_hides_nothing(name: str) -> None:
    parse, text, _ = SAMPLES[name]
    assert parse(b"\x80 ?\n" + text + b"what is this\n") == parse(text)


@pytest.mark.parametrize("name", sorted(LINE_FORMATS))
def test_text_of_unknown_lines_alone_is_refused(name: str) -> None:
    error = refusal(name, b"what is this\n\x1b[2J another\n")
    assert error is not None
    assert "no line of it can be understood" in str(error)


@pytest.mark.parametrize("name", sorted(LINE_FORMATS))
@pytest.mark.parametrize("data", [b"", b"\n", b"\0", b" \r\n"])
def test_an_empty_table_is_empty(name: str, data: bytes) -> None:
    assert not SAMPLES[name].parse(data)


def test_every_parser_has_a_sample() -> None:
    covered = {sample.parse for sample in SAMPLES.values()}
    by_name = {
        "parse_page_size_dir", "parse_bus_id", "parse_policy", "parse_grouped_numa_maps",
    }  # fmt: skip
    functions = {name for names in _NAMES.values() for name in names.split() if "parse_" in name}
    assert {name for name in functions if getattr(parsers, name) not in covered} == by_name


@pytest.mark.parametrize("home", _NAMES)
def test_the_package_offers_every_public_name(home: str) -> None:
    module = importlib.import_module(f"numadoctor.host.parsers.{home}")
    own = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }
    offered = set(_NAMES[home].split())
    assert offered - {"MAX_ID"} == own
    for name in offered:
        assert getattr(parsers, name) is getattr(module, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'parse_nothing'"):
        _ = parsers.parse_nothing  # type: ignore[attr-defined]
