import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import (
    BuddyRow,
    Zone,
    parse_buddyinfo,
    parse_counters,
    parse_distance,
    parse_meminfo,
    parse_page_size_dir,
    parse_zoneinfo,
)
from numadoctor.model import ParseError
from tests.host.parsers import samples

COUNTS = st.integers(0, 2**63)
KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_()]{0,20}", fullmatch=True)
ZONES = st.sampled_from(["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"])


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (b"10 20\n", (10, 20)),
        (b" 10 17 17\n\0", (10, 17, 17)),
        (b"255\r\n", (255,)),
        (b"\n", ()),
        (b"", ()),
    ],
)
def test_distances(text: bytes, columns: tuple[int, ...]) -> None:
    assert parse_distance(text) == columns


@pytest.mark.parametrize("text", [b"10 x", b"10,20", b"-1", b"10 0x14", b"1" * 21])
def test_faulty_distances(text: bytes) -> None:
    with pytest.raises(ParseError, match="is not a number"):
        parse_distance(text)


@given(st.lists(st.integers(0, 255)))
def test_distances_survive_the_round_trip(columns: list[int]) -> None:
    assert parse_distance((" ".join(map(str, columns)) + "\n").encode()) == tuple(columns)


def test_meminfo_of_the_machine() -> None:
    assert parse_meminfo(samples.MEMINFO) == {
        "MemTotal": 263858176 * 1024,
        "MemFree": 12345 * 1024,
        "Active(anon)": 112 * 1024,
        "HugePages_Total": 20,
        "Hugepagesize": 2 * 1024 * 1024,
        "DirectMap1G": 1 << 30,
    }


def test_meminfo_of_a_node() -> None:
    assert parse_meminfo(samples.NODE_MEMINFO) == {
        "MemTotal": 128 << 30,
        "MemFree": 3755128 * 1024,
        "FilePages": 18554 * 1024,
        "HugePages_Total": 10,
        "HugePages_Free": 0,
    }


@given(st.dictionaries(KEYS, st.tuples(COUNTS, st.booleans()), min_size=1), st.none() | COUNTS)
def test_meminfo_in_general(table: dict[str, tuple[int, bool]], node: int | None) -> None:
    prefix = "" if node is None else f"Node {node} "
    lines = (
        f"{prefix}{key}:{number:>16}{' kB' if kilobytes else ''}\n"
        for key, (number, kilobytes) in table.items()
    )
    assert parse_meminfo("".join(lines).encode()) == {
        key: number * 1024 if kilobytes else number for key, (number, kilobytes) in table.items()
    }


@pytest.mark.parametrize(
    "line", [b"A: 1 MB", b"A: 1 kB x", b"A:", b"A: -1 kB", b"A 1 kB", b": 1", b"Node 0 A B: 1 kB"]
)
def test_meminfo_leaves_out_what_it_cannot_understand(line: bytes) -> None:
    assert parse_meminfo(line + b"\nMemTotal: 1 kB\n") == {"MemTotal": 1024}
    with pytest.raises(ParseError, match="bad meminfo"):
        parse_meminfo(line)


@given(st.dictionaries(KEYS, COUNTS, min_size=1))
def test_counters(table: dict[str, int]) -> None:
    text = "".join(f"{key} {number}\n" for key, number in table.items())
    assert parse_counters(text.encode()) == table


@pytest.mark.parametrize("line", [b"numa_hit", b"numa_hit x", b"a 1 2", b"a -1", b"5"])
def test_counters_leave_out_what_they_cannot_understand(line: bytes) -> None:
    assert parse_counters(line + b"\nnuma_miss 7") == {"numa_miss": 7}
    with pytest.raises(ParseError, match="bad counters"):
        parse_counters(line)


@given(st.integers(1, 2**34))
def test_page_size_directories(kilobytes: int) -> None:
    assert parse_page_size_dir(f"hugepages-{kilobytes}kB") == kilobytes * 1024


@pytest.mark.parametrize(
    "name",
    [
        "",
        "hugepages-kB",
        "hugepages-0kB",
        "hugepages-2MB",
        "hugepages-2048kB ",
        "hugepages--1kB",
        "Hugepages-2048kB",
        "hugepages-\u0662kB",
        "\ud800",
    ],
)
def test_other_directories_are_refused(name: str) -> None:
    with pytest.raises(ParseError, match="it is not hugepages-<number>kB"):
        parse_page_size_dir(name)


def test_buddyinfo() -> None:
    assert parse_buddyinfo(samples.BUDDYINFO) == (
        BuddyRow(0, "DMA", (0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 3)),
        BuddyRow(0, "Normal", (1013, 589, 601, 528, 629, 391, 235, 144, 80, 48, 51)),
        BuddyRow(8, "Movable", (1, 2, 3)),
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 1023), ZONES, st.lists(COUNTS, min_size=1, max_size=14)),
        min_size=1,
    )
)
def test_buddyinfo_in_general(rows: list[tuple[int, str, list[int]]]) -> None:
    text = "".join(
        f"Node {node}, zone {zone:>8} {' '.join(f'{number:>6}' for number in counts)} \n"
        for node, zone, counts in rows
    )
    expected = tuple(BuddyRow(node, zone, tuple(counts)) for node, zone, counts in rows)
    assert parse_buddyinfo(text.encode()) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"Node 0, zone",
        b"Node 0, zone DMA",
        b"Node x, zone DMA 1",
        b"Node 0, zone DMA 1 x 2",
        b"Node 0, part DMA 1",
        b"node 0, zone DMA 1",
    ],
)
def test_buddyinfo_leaves_out_what_it_cannot_understand(line: bytes) -> None:
    assert parse_buddyinfo(line + b"\nNode 1, zone Normal 5") == (BuddyRow(1, "Normal", (5,)),)
    with pytest.raises(ParseError, match="bad buddyinfo"):
        parse_buddyinfo(line)


def test_zoneinfo() -> None:
    assert parse_zoneinfo(samples.ZONEINFO) == (
        Zone(0, "DMA", free=3840, min=40, low=50, high=60, managed=3841, present=3998),
        Zone(8, "Movable", free=0, min=32, low=33, high=34, managed=0, present=0),
    )


FIELDS = ("free", "min", "low", "high", "managed", "present")


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1023),
            ZONES,
            st.fixed_dictionaries(dict.fromkeys(FIELDS, st.none() | COUNTS)),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_zoneinfo_in_general(zones: list[tuple[int, str, dict[str, int | None], bool]]) -> None:
    lines = []
    for node, name, fields, populated in zones:
        lines += [f"Node {node}, zone {name:>8}", "  per-node stats", "      nr_mapped    2596"]
        for key, value in fields.items():
            label = "  pages free" if key == "free" else f"        {key}"
            if value is not None:
                lines.append(f"{label:<17}{value}")
        lines.append("        protection: (0, 1, 2)")
        if populated:
            # The page sets have a "high:"; a kernel that drops the colon must not fool us.
            lines += ["  pagesets", "    cpu: 0", "              high:  378", "        low  5"]
    expected = tuple(Zone(node, name, **fields) for node, name, fields, _ in zones)
    assert parse_zoneinfo("\n".join(lines).encode()) == expected


def test_a_zone_without_a_field_does_not_have_zero_of_it() -> None:
    text = b"Node 3, zone Normal\n pages free x\n min 1 2\n low\n high -1\n pages high 4\n"
    assert parse_zoneinfo(text) == (Zone(3, "Normal"),)


def test_the_first_value_of_a_zone_counts() -> None:
    text = b"Node 0, zone A\n min 1\n min 2\n protection: (0)\n low 3\n"
    assert parse_zoneinfo(text) == (Zone(0, "A", min=1),)


def test_zone_lines_before_any_zone_are_left_out() -> None:
    with pytest.raises(ParseError, match=re.escape("bad zoneinfo")):
        parse_zoneinfo(b"pages free 7\n min 1\n")
