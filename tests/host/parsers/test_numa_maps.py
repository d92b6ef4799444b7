"""numa_maps against a writer made from the kernel's show_numa_map() and mpol_to_str()."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import (
    NumaMapsLine,
    NumaMapsPages,
    format_list,
    parse_grouped_numa_maps,
    parse_numa_maps,
    parse_policy,
)
from numadoctor.model import ParseError
from numadoctor.model.placement import Policy

MODES = (
    "default",
    "local",
    "prefer",
    "prefer (many)",
    "bind",
    "interleave",
    "weighted interleave",
)
NODES = st.sets(st.integers(0, 1023), min_size=1, max_size=40)
# What seq_path() has to escape, what it does not, and what only looks escaped.
NAME = st.text(
    st.sampled_from("ab/ \t\n=\\0147N\r\x0b\x85é\U0001f600"), min_size=1, max_size=20
).map(lambda text: "/" + text)


class Written(NamedTuple):
    """A policy and what the kernel writes for it."""

    text: str
    mode: str
    flags: tuple[str, ...]
    nodes: frozenset[int]


def write_policy(mode: str, flags: tuple[str, ...], nodes: frozenset[int]) -> str:
    """mpol_to_str() into its 64 bytes."""
    text = mode + ("=" + "|".join(flags) if flags else "")
    if nodes:
        text += ":" + format_list(nodes)
    return text[:63]


@st.composite
def policies(draw: st.DrawFn) -> Written:
    mode = draw(st.sampled_from(MODES))
    if mode in ("default", "local"):
        return Written(mode, mode, (), frozenset())
    flags: tuple[str, ...] = draw(st.sampled_from([(), ("static",), ("relative",)]))
    flags += draw(st.sampled_from([(), ("balancing",)]))
    nodes = frozenset(draw(NODES))
    return Written(write_policy(mode, flags, nodes), mode, flags, nodes)


@given(policies())
def test_a_policy_is_read_as_it_was_meant(policy: Written) -> None:
    read = parse_policy(policy.text)
    assert (read.text, read.mode, read.flags) == (policy.text, policy.mode, policy.flags)
    assert read.understood
    assert read.cut == (len(policy.text) == 63)
    if read.cut:
        # A part of the list, and no node that is not in it.
        assert set(read.nodes) <= policy.nodes
        listed = policy.text.rpartition(":")[2]
        assert len(read.nodes) >= listed.count(",")
    else:
        assert set(read.nodes) == policy.nodes
    assert read.is_default == (policy.mode in ("default", "local"))


@pytest.mark.parametrize(
    ("text", "mode", "flags", "nodes"),
    [
        ("weighted interleave:0-1", "weighted interleave", (), (0, 1)),
        ("prefer (many):0", "prefer (many)", (), (0,)),
        ("bind=static|balancing:0", "bind", ("static", "balancing"), (0,)),
        ("interleave=relative:0,8", "interleave", ("relative",), (0, 8)),
        # Linux 2.6.25 and before.
        ("interleave=0-3", "interleave", (), (0, 1, 2, 3)),
    ],
)
def test_policies_by_example(
    text: str, mode: str, flags: tuple[str, ...], nodes: tuple[int, ...]
) -> None:
    assert parse_policy(text) == Policy(text, mode, flags, nodes)


def full(head: str, end: str) -> str:
    """A policy text of 63 characters, as many as the kernel has room for."""
    room = 63 - len(head) - len(end)
    text = head + "10," * (room % 2) + "1," * ((room - 3 * (room % 2)) // 2) + end
    assert len(text) == 63
    return text


@pytest.mark.parametrize(
    ("end", "last"),
    # The last id may lack digits; that a range begins with 999 is certain.
    [
        ("999", ()),
        ("999-", (999,)),
        ("999-1001", (999,)),
        ("999,", (999,)),
        ("998-999,9", (998, 999)),
    ],
)
def test_of_a_list_that_was_cut_the_end_is_left_out(end: str, last: tuple[int, ...]) -> None:
    text = full("interleave:", end)
    first = {1, 10} if "10," in text else {1}
    assert parse_policy(text).nodes == (*sorted(first), *last)
    assert parse_policy(text).cut


@pytest.mark.parametrize(
    "text",
    ["", "unknown?", "bind:x", "bind:3-1", "bind:1-", "bind=odd:0", "bind:0,,1", "bind:65537", "9"],
)
def test_a_policy_of_unknown_form_is_kept_and_told(text: str) -> None:
    policy = parse_policy(text)
    assert policy.text == text
    assert not policy.understood


@pytest.mark.parametrize("end", ["x", "1-x", "-1"])
def test_what_is_no_list_is_told_even_if_it_was_cut(end: str) -> None:
    text = full("bind:", end)
    assert not parse_policy(text).understood


def test_a_mode_that_is_new_keeps_its_name() -> None:
    policy = parse_policy("striped:0-1")
    assert policy == Policy("striped:0-1", "striped", (), (0, 1), understood=False)


def mangle(name: str) -> bytes:
    """seq_path(m, path, "\\n\\t= ")."""
    return b"".join(
        b"\\%03o" % byte if byte in b"\n\t= " else bytes([byte]) for byte in name.encode()
    )


COUNT = st.integers(0, 2**40)


class Line(NamedTuple):
    """A line and what was written into it."""

    text: bytes
    start: int
    pages: NumaMapsPages


@st.composite
def lines(draw: st.DrawFn) -> Line:
    """show_numa_map() for a made-up mapping."""
    start = draw(st.integers(0, 2**64 - 1))
    policy = draw(policies()).text
    file = draw(st.none() | NAME)
    area = draw(st.sampled_from(["", "heap", "stack"])) if file is None else ""
    huge = draw(st.booleans())
    text = f"{start:08x} {policy}".encode()
    text += b" file=" + mangle(file) if file is not None else b""
    text += f" {area}".encode() if area else b""
    # Linux 3.2 to 4.4.
    text += b":1234" if area == "stack" and draw(st.booleans()) else b""
    text += b" huge" if huge else b""
    nodes = draw(st.dictionaries(st.integers(0, 1023), COUNT, max_size=5))
    names = ["anon", "dirty", "mapped", "mapmax", "swapcache", "active", "writeback"]
    counts: dict[str, int] = {}
    page_size = None
    if nodes:
        counts = {name: draw(COUNT) for name in names if draw(st.booleans())}
        text += "".join(f" {name}={value}" for name, value in counts.items()).encode()
        text += "".join(f" N{node}={pages}" for node, pages in nodes.items()).encode()
        if draw(st.booleans()):
            page_size = draw(st.sampled_from([4, 64, 2048, 1 << 20])) * 1024
            text += f" kernelpagesize_kB={page_size // 1024}".encode()
    return Line(text, start, NumaMapsPages(policy, file, area, huge, counts, nodes, page_size))


@given(st.lists(lines(), max_size=6), st.booleans())
def test_every_form_the_kernel_writes_is_read(written: list[Line], ended: bool) -> None:
    data = b"\n".join(line.text for line in written) + (b"\n" if ended else b"")
    # A name that holds \040 as such cannot be told from one with a blank.
    read = parse_numa_maps(data)
    assert read.starts == tuple(line.start for line in written)
    assert read.unknown == ()
    by_start = [(start, g.pages) for g in read.grouped.groups for start in g.starts]
    assert sorted(map(repr, by_start)) == sorted(
        map(repr, zip(read.starts, read.pages, strict=True))
    )
    assert sum(g.number for g in read.grouped.groups) == len(written)
    for line, got in zip(written, read.lines, strict=True):
        want = line.pages
        if want.file is not None:
            want = want._replace(file=literal(want.file))
        assert got == NumaMapsLine(line.start, want)


def literal(name: str) -> str:
    """The name as it must be read: the kernel does not escape the backslash."""
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("075", "=")):
        name = name.replace("\\" + code, character)
    return name


LIVE = rb"""00400000 default file=/usr/bin/python3.11 mapped=2 mapmax=9 N0=2 kernelpagesize_kB=4
01e6d000 prefer (many):0 heap anon=33 dirty=33 active=0 N0=32 N8=1 kernelpagesize_kB=64
7f0000000000 weighted interleave:0-1 file=/dev/zero\040(deleted) dirty=4 N0=3 N1=1
7f1000000000 interleave=static:0-1 file=/SYSV00000000\040(deleted) huge dirty=4 N0=2 N1=2 kernelpagesize_kB=2048
7f2000000000 bind=static|balancing:0 file=/memfd:a\075b\011c\012d\134 swapcache=1 writeback=2 N0=1 kernelpagesize_kB=4
7ffc00000000 default stack:77 anon=3 N1=3 kernelpagesize_kB=4
7ffd00000000 default
7ffe00000000 bind:1 huge anon=1 N250=1 later=7 novel N1=x N70000=2 anon= kernelpagesize_kB=0 file=/a file=/b
"""  # noqa: E501


def test_lines_by_example() -> None:
    read = parse_numa_maps(LIVE)
    pages = read.pages
    assert pages[0] == NumaMapsPages(
        "default", "/usr/bin/python3.11", "", False, {"mapped": 2, "mapmax": 9}, {0: 2}, 4096
    )
    assert pages[1] == NumaMapsPages(
        "prefer (many):0",
        None,
        "heap",
        False,
        {"anon": 33, "dirty": 33, "active": 0},
        {0: 32, 8: 1},
        65536,
    )
    assert pages[2].policy == "weighted interleave:0-1"
    assert pages[2].file == "/dev/zero (deleted)"
    assert pages[2].page_size is None
    assert pages[3].huge
    assert pages[3].page_size == 2 << 20
    # The backslash itself is not escaped, so \134 is part of the name.
    assert pages[4].file == "/memfd:a=b\tc\nd\\134"
    assert pages[5].area == "stack"
    assert pages[6] == NumaMapsPages("default")
    assert pages[7].nodes == {250: 1}
    assert pages[7].file == "/a"
    assert pages[7].unknown == (
        "later=7",
        "novel",
        "N1=x",
        "N70000=2",
        "anon=",
        "kernelpagesize_kB=0",
        "file=/b",
    )
    assert read.unknown == pages[7].unknown


@pytest.mark.parametrize(
    "line", [b"0x7f00 default", b"7_f default", b"-7f default", b"7f", b"7f  default", b"g default"]
)
def test_a_line_without_address_or_policy_is_told_and_left_out(line: bytes) -> None:
    read = parse_numa_maps(b"7f00 default\n" + line + b"\n8f00 default\n" + line + b"\n")
    assert read.starts == (0x7F00, 0x8F00)
    assert read.unknown == (f'"{line.decode()}"',)


def test_an_empty_file_is_a_process_without_mappings() -> None:
    for data in (b"", b"\n\0"):
        read = parse_numa_maps(data)
        assert (read.starts, read.pages, read.unknown, read.number) == ((), (), (), 0)


def test_blanks_beside_words_mean_nothing() -> None:
    assert parse_numa_maps(b"7f00 default  huge \n").pages == (NumaMapsPages("default", huge=True),)


def test_text_without_a_mapping_is_refused() -> None:
    with pytest.raises(ParseError, match="no line of it can be understood"):
        parse_numa_maps(b"what is this\n")


def test_mappings_that_say_the_same_share_it() -> None:
    text = b"default anon=1 N0=1 kernelpagesize_kB=4"
    data = b"".join(b"%08x %s\n" % (n << 12, text) for n in range(1000))
    read = parse_numa_maps(data)
    assert read.number == len(read.starts) == 1000
    assert len({id(pages) for pages in read.pages}) == 1


def test_lines_that_say_the_same_are_put_together() -> None:
    text = b"7f00 default N0=1\n8f00 bind:0 odd\n9f00 default N0=1\nwhat is this\n"
    read = parse_numa_maps(text).grouped
    first, second = read.groups
    assert (first.pages.nodes, first.number, first.starts) == ({0: 1}, 2, (0x7F00, 0x9F00))
    assert (second.pages.policy, second.number, second.starts) == ("bind:0", 1, (0x8F00,))
    assert set(read.unknown) == {"odd", '"what is this"'}
    lines = [(b"default N0=1", 2, b"7f00 9f00"), (b"bind:0 odd", 1, b"8f00"), (b" x", 1, b"af00")]
    again = parse_grouped_numa_maps(lines)
    assert again.groups == read.groups
    assert again.unknown == ("odd", '" x"')
