"""Memory by node and by zone: distances, meminfo, counters, huge page pools, buddy lists, zones."""

from typing import NamedTuple

from numadoctor.host.parsers._text import (
    count,
    decode,
    error,
    kilobytes,
    lines,
    quoted,
    refuse_if_lost,
    words,
)

# In the order of the fields of Zone.
_SIZES = ("free", "min", "low", "high", "managed", "present")


class BuddyRow(NamedTuple):
    """The free blocks of one zone.

    :ivar counts: number of free blocks of 2**order pages, by order from 0
    """

    node: int
    zone: str
    counts: tuple[int, ...]


class Zone(NamedTuple):
    """One zone's sizes and watermarks, in pages; None where the kernel does not tell.

    :ivar managed: pages that the page allocator hands out
    :ivar present: physical pages in the zone
    """

    node: int
    name: str
    free: int | None = None
    min: int | None = None
    low: int | None = None
    high: int | None = None
    managed: int | None = None
    present: int | None = None


def parse_distance(data: bytes) -> tuple[int, ...]:
    """The columns of nodeN/distance, in the file's order (that of the online nodes); 10 is local.

    :raises ParseError: a column is not a number
    """
    columns = []
    for word in words(data):
        column = count(word)
        if column is None:
            raise error("distance", data, f"{quoted(word)} is not a number")
        columns.append(column)
    return tuple(columns)


def parse_meminfo(data: bytes) -> dict[str, int]:
    """/proc/meminfo or nodeN/meminfo: values in kB become bytes, those without a unit are counts.

    Lines that cannot be understood are left out.

    :raises ParseError: there is text and no line of it can be understood
    """
    found = {}
    for line in lines(data):
        key, colon, rest = line.partition(b":")
        names = key.split()
        if len(names) == 3 and names[0] == b"Node":
            names = names[2:]
        value = kilobytes(rest)
        if colon and len(names) == 1 and value is not None:
            found[decode(names[0])] = value
    refuse_if_lost("meminfo", data, bool(found))
    return found


def parse_counters(data: bytes) -> dict[str, int]:
    """Lines of a name and a count: numastat, vmstat, a cgroup's memory.stat.

    Lines that cannot be understood are left out.

    :raises ParseError: there is text and no line of it can be understood
    """
    found = {}
    for line in lines(data):
        parts = line.split()
        value = count(parts[-1])
        if len(parts) == 2 and value is not None:
            found[decode(parts[0])] = value
    refuse_if_lost("counters", data, bool(found))
    return found


def parse_page_size_dir(name: str) -> int:
    """The page size in bytes that a directory of a huge page pool is for: ``hugepages-2048kB``.

    :raises ParseError: it is named otherwise
    """
    raw = name.encode("utf-8", "backslashreplace")
    size = count(raw[10:-2]) if raw[:10] == b"hugepages-" and raw[-2:] == b"kB" else None
    if not size:
        raise error("huge page directory", raw, "it is not hugepages-<number>kB")
    return size * 1024


def _zone_header(parts: list[bytes]) -> tuple[int, str] | None:
    """Node and name from the words of ``Node 0, zone   Normal``, or None."""
    if len(parts) < 4 or parts[0] != b"Node" or parts[2] != b"zone":
        return None
    node = count(parts[1].rstrip(b","))
    return None if node is None else (node, decode(parts[3]))


def parse_buddyinfo(data: bytes) -> tuple[BuddyRow, ...]:
    """/proc/buddyinfo: the free blocks of each zone by order.

    Lines that cannot be understood are left out.

    :raises ParseError: there is text and no line of it can be understood
    """
    rows = []
    for line in lines(data):
        parts = line.split()
        header = _zone_header(parts)
        counts = [value for value in map(count, parts[4:]) if value is not None]
        if header and counts and len(counts) == len(parts) - 4:
            rows.append(BuddyRow(*header, tuple(counts)))
    refuse_if_lost("buddyinfo", data, bool(rows))
    return tuple(rows)


def _zone_line(parts: list[bytes]) -> tuple[str, int] | None:
    """Field and value from a line of a zone's first block, or None."""
    if parts[:2] == [b"pages", b"free"]:
        parts = parts[1:]
    name = decode(parts[0])
    value = count(parts[1]) if len(parts) == 2 and name in _SIZES else None
    return None if value is None else (name, value)


def parse_zoneinfo(data: bytes) -> tuple[Zone, ...]:
    """/proc/zoneinfo: sizes and watermarks of each zone, in pages.

    The counters per node that precede them and the page sets per CPU that
    follow are left out.

    Source: zoneinfo_show_print() in mm/vmstat.c.

    :raises ParseError: there is text and no zone in it
    """
    zones: list[tuple[int, str, dict[str, int]]] = []
    in_block = False
    for line in lines(data):
        parts = line.split()
        header = _zone_header(parts)
        if header:
            zones.append((*header, {}))
            in_block = True
        elif parts[0] == b"protection:":
            in_block = False
        elif in_block and (field := _zone_line(parts)):
            zones[-1][2].setdefault(*field)
    refuse_if_lost("zoneinfo", data, bool(zones))
    return tuple(Zone(node, name, *map(fields.get, _SIZES)) for node, name, fields in zones)
