"""/proc/PID/maps: the mappings of a process, and what is mapped."""

import re
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

from numadoctor.host.parsers._addresses import ADDRESS, Table, lines_of
from numadoctor.host.parsers._text import decode

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

    @property
    def is_sysv(self) -> bool:
        """It is a System V segment: newseg() in ipc/shm.c gives it the name."""
        return self.name.startswith("/SYSV")

    @property
    def identity(self) -> tuple[tuple[int, int], int, str] | None:
        """What is mapped, the same for all who map it; None for memory without a file.

        A System V segment has its id as inode, which may be 0, and another
        file of the same file system may have that inode (newseg() in ipc/shm.c). The id
        is one of its IPC namespace: in another one it is another segment.
        """
        segment = self.name[:13] if self.is_sysv else ""
        return (self.device, self.inode, segment) if self.inode or segment else None


class MapsLine(NamedTuple):
    """One mapping of maps: ``start`` is its first address, ``end`` the one after its last."""

    start: int
    end: int
    backing: Backing

    @property
    def length(self) -> int:
        """Bytes."""
        return self.end - self.start


class Maps(Table[Backing]):
    """A maps file."""

    pattern = lines_of(ADDRESS, ADDRESS)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The address after the last of each mapping."""
        return tuple(map(int, self.heads[1], repeat(16)))

    @property
    def backings(self) -> tuple[Backing, ...]:
        """What is mapped there."""
        return self.values

    @property
    def lines(self) -> tuple[MapsLine, ...]:
        return tuple(map(MapsLine, self.starts, self.ends, self.backings))

    def find(self, start: int) -> MapsLine | None:
        """The mapping that begins at ``start``, or None. Looks at few lines, not at all."""
        data, low, high = self.data, 0, len(self.data)
        while low < high:
            # The line in the middle: those before it begin at lower addresses.
            begin = data.rfind(b"\n", low, (low + high) // 2) + 1 or low
            try:
                found = int(data[begin : data.find(b"-", begin, begin + 17)], 16)
            except ValueError:
                # Not the kernel's own text: then by all lines.
                return {line.start: line for line in self.lines}.get(start)
            if found == start:
                return self._line_at(begin)
            if found < start:
                low = data.find(b"\n", begin) + 1 or high
            else:
                high = begin
        return None

    def _line_at(self, begin: int) -> MapsLine | None:
        line = self.pattern.match(self.data, begin)
        backing = self.understand(line[3]) if line else None
        return MapsLine(int(line[1], 16), int(line[2], 16), backing) if line and backing else None


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
    return Maps("maps", data, parse_backing)
