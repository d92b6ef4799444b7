from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import Backing, MapsLine, parse_backing, parse_maps
from numadoctor.model import ParseError

ADDRESS = st.integers(0, 2**64 - 1)
NAME = st.text(st.sampled_from("ab/ \t\\01247=[]:()é\r\x85"), max_size=20)


class Written(NamedTuple):
    """A line and what was written into it."""

    text: bytes
    line: MapsLine


@st.composite
def lines(draw: st.DrawFn) -> Written:
    """show_map_vma() for a made-up mapping."""
    start, end = draw(ADDRESS), draw(ADDRESS)
    permissions = "".join(draw(st.sampled_from(pair)) for pair in ("r-", "w-", "x-", "ps"))
    offset, inode = draw(ADDRESS), draw(ADDRESS)
    major, minor = draw(st.integers(0, 4095)), draw(st.integers(0, 2**20 - 1))
    head = f"{start:08x}-{end:08x} {permissions} {offset:08x} {major:02x}:{minor:02x} {inode} "
    raw = draw(st.just("") | NAME.map(lambda text: "/" + text) | st.just("[anon:kv pool]"))
    text = head.encode()
    if raw:
        text = text.ljust(73) + raw.encode().replace(b"\n", rb"\012")
    name = raw.replace(r"\012", "\n")
    return Written(
        text, MapsLine(start, end, Backing(permissions, offset, (major, minor), inode, name))
    )


@given(st.lists(lines(), max_size=6))
def test_every_form_the_kernel_writes_is_read(written: list[Written]) -> None:
    read = parse_maps(b"".join(line.text + b"\n" for line in written))
    assert read.lines == tuple(line.line for line in written)
    assert read.unknown == ()


def test_lines_by_example() -> None:
    read = parse_maps(
        b"00400000-00452000 r-xp 00001000 fd:10 173521 /usr/bin/a b\n"
        b"7f1000000000-7f1000001000 rw-s 00000000 00:01 5    /dev/zero (deleted)\n"
        b"7f2000000000-7f2000002000 ---p 00000000 00:00 0 \n"
    )
    assert read.starts == (0x400000, 0x7F1000000000, 0x7F2000000000)
    assert read.ends == (0x452000, 0x7F1000001000, 0x7F2000002000)
    assert read.backings[0] == Backing("r-xp", 0x1000, (0xFD, 0x10), 173521, "/usr/bin/a b")
    assert read.backings[1].shared
    assert not read.backings[2].shared
    assert read.backings[2].name == ""
    assert read.lines[2].length == 0x2000


@pytest.mark.parametrize(
    "line",
    [
        b"7f00 rw-p 00000000 00:00 0",
        b"7f00-8f00-9f00 rw-p 00000000 00:00 0",
        b"-8f00 rw-p 00000000 00:00 0",
        b"7f00-8f00 rw-q 00000000 00:00 0",
        b"7f00-8f00 rw-p 00000000 00:00",
        b"7f00-" + b"f" * 17 + b" rw-p 0 00:00 0",
        b"7f00-8f00",
    ],
)
def test_a_line_of_another_form_is_told_and_left_out(line: bytes) -> None:
    good = b"00001000-00002000 rw-p 00000000 00:00 0\n"
    read = parse_maps(good + line + b"\n")
    assert read.starts == (0x1000,)
    assert len(read.unknown) == 1
    assert read.unknown[0].startswith('"' + line.decode()[:30])


def test_blank_lines_mean_nothing() -> None:
    read = parse_maps(b"\n  \n00001000-00002000 rw-p 00000000 00:00 0\n\0")
    assert read.starts == (0x1000,)
    assert read.unknown == ()
    assert parse_maps(b"").lines == ()
    assert parse_maps(b"\n").number == 0
    assert parse_maps(b"00001000-00002000 rw-p 0 00:00 0").number == 1


def test_text_without_a_mapping_is_refused() -> None:
    with pytest.raises(ParseError, match="no line of it can be understood"):
        parse_maps(b"what is this\n")


def test_what_follows_the_addresses_alone() -> None:
    assert parse_backing(b"r--s 00000000 08:02 12 /a") == Backing("r--s", 0, (8, 2), 12, "/a")
    assert parse_backing(b"r--s") is None


@given(st.sets(st.integers(0, 2**52 - 2), max_size=40), st.integers(0, 2**52 - 2))
def test_a_mapping_is_found_by_its_start(pages: set[int], other: int) -> None:
    text = "".join(
        f"{page << 12:08x}-{page + 1 << 12:08x} rw-p 0 00:00 0\n" for page in sorted(pages)
    )
    read = parse_maps(text.encode())
    for line in read.lines:
        assert read.find(line.start) == line
    assert (read.find(other << 12) is not None) == (other in pages)


def test_a_mapping_is_found_among_lines_that_are_not_understood() -> None:
    good = [f"{n << 16:08x}-{(n << 16) + 4096:08x} rw-p 0 00:00 0" for n in range(1, 40)]
    text = "\n".join([*good[:20], "what is this", "", *good[20:]])
    read = parse_maps(text.encode())
    assert [read.find(n << 16) for n in range(1, 40)] == list(read.lines)
    assert read.find(0) is None
    assert read.find(5) is None
    assert len(read.unknown) == 1


def test_what_is_found_may_not_be_understood() -> None:
    read = parse_maps(b"00001000-00002000 rw-p 0 00:00 0\n00002000-00003000 odd\n")
    assert read.find(0x2000) is None
    assert read.starts == (0x1000,)


def test_a_search_that_meets_a_strange_line_looks_at_all_lines() -> None:
    text = b"00001000-00002000 rw-p 0 00:00 0\n" + b"x" * 500
    read = parse_maps(text + b"\n00003000-00004000 rw-p 0 00:00 0\n")
    assert [read.find(start) for start in (0x1000, 0x3000)] == list(read.lines)
    assert read.find(0x2000) is None


def test_what_is_mapped_is_told_apart_from_other_files_of_that_number() -> None:
    first, second, shared, private = (
        Backing("rw-s", 0, (0, 1), 0, "/SYSV00000000 (deleted)"),
        Backing("rw-s", 0, (0, 1), 7, "/SYSV00000000 (deleted)"),
        Backing("rw-s", 0, (0, 1), 7, "/dev/zero (deleted)"),
        Backing("rw-p"),
    )
    assert private.identity is None
    assert len({first.identity, second.identity, shared.identity, None}) == 4
    assert first.identity == first._replace(permissions="r--s", offset=4096).identity
