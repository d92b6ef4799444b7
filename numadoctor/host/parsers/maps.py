"""/proc/PID/maps: the mappings of a process, and what is mapped."""

import re
from typing import NamedTuple

from numadoctor.host.parsers._addresses import read_table
from numadoctor.host.parsers._text import decode, refuse_if_lost

_BACKING = re.compile(
    rb"(?P<permissions>[r-][w-][x-][ps]) (?P<offset>[0-9a-f]{1,16}) "
    rb"(?P<major>[0-9a-f]{1,8}):(?P<minor>[0-9a-f]{1,8}) (?P<inode>[0-9]{1,20})(?: +(?P<name>.*))?",
    re.DOTALL,
)


class Backing(NamedTuple):
    """What a line of maps says after its addresses.

    A named tuple, since a process may have 65,000 lines; lines that say the
    same share one.

    :ivar permissions: ``rw-p``: readable, writable, executable, private or shared
    :ivar offset: of the mapping in the file, in bytes
    :ivar device: (major, minor) of the file system; (0, 0) for memory without a file
    :ivar inode: 0 for memory without a file
    :ivar name: path, ``[heap]``, ``[anon:NAME]``, or empty
    """

    permissions: str
    offset: int = 0
    device: tuple[int, int] = (0, 0)
    inode: int = 0
    name: str = ""

    @property
    def shared(self) -> bool:
        return self.permissions.endswith("s")


class MapsLine(NamedTuple):
    """One mapping of maps: ``start`` is its first address, ``end`` the one after its last."""

    start: int
    end: int
    backing: Backing

    @property
    def length(self) -> int:
        """Bytes."""
        return self.end - self.start


class Maps(NamedTuple):
    """A maps file, by columns.

    :ivar starts: the first address of each mapping, in the file's order, which is theirs
    :ivar ends: the address after the last
    :ivar backings: what is mapped there
    :ivar unknown: lines that were not understood, each once
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    backings: tuple[Backing, ...]
    unknown: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[MapsLine, ...]:
        return tuple(map(MapsLine, self.starts, self.ends, self.backings))


def parse_backing(text: bytes) -> Backing | None:
    """The part of a line after its addresses, or None when it is none."""
    match = _BACKING.fullmatch(text)
    if not match:
        return None
    name = match["name"] or b""
    return Backing(
        decode(match["permissions"]),
        int(match["offset"], 16),
        (int(match["major"], 16), int(match["minor"], 16)),
        int(match["inode"]),
        # Of all characters the newline alone is escaped, and the backslash is not.
        decode(name.replace(rb"\012", b"\n")),
    )


def parse_maps(data: bytes) -> Maps:
    """/proc/PID/maps.

    Lines that are not understood are kept in ``unknown``.

    Source: show_map_vma() in fs/proc/task_mmu.c.

    :raises ParseError: there is text and no line of it can be understood
    """
    table = read_table(data, 2, parse_backing)
    refuse_if_lost("maps", data, bool(table.values))
    return Maps(table.addresses[::2], table.addresses[1::2], table.values, table.unknown)
