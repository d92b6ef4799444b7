"""/proc/PID/smaps and smaps_rollup: how much of each mapping, or of all, is resident, and how.

The kernel walks the page tables to write them: they are read when asked for only.
"""

import re
from typing import NamedTuple

from numadoctor.host.parsers._text import decode, error, kilobytes, quoted, refuse_if_lost
from numadoctor.host.parsers.maps import MapsLine, parse_backing

_HEADER = re.compile(rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) (.*)", re.DOTALL)


class SmapsEntry(NamedTuple):
    """One mapping of smaps.

    :ivar mapping: its line of maps
    :ivar sizes: bytes by the kernel's own names (Rss, AnonHugePages, KernelPageSize); fields
        without a unit (THPeligible) are numbers
    :ivar flags: the words of VmFlags (``hg``: huge pages advised, ``ht``: hugetlb, ``lo``: locked)
    """

    mapping: MapsLine
    sizes: dict[str, int]
    flags: tuple[str, ...] = ()


class Smaps(NamedTuple):
    """A smaps file.

    :ivar unknown: lines that were not understood, each once
    """

    entries: tuple[SmapsEntry, ...]
    unknown: tuple[str, ...] = ()


def _mapping(line: bytes) -> MapsLine | None:
    match = _HEADER.fullmatch(line)
    backing = parse_backing(match[3]) if match else None
    return MapsLine(int(match[1], 16), int(match[2], 16), backing) if match and backing else None


def parse_smaps(data: bytes) -> Smaps:
    """/proc/PID/smaps.

    Source: show_smap() in fs/proc/task_mmu.c; Documentation/filesystems/proc.rst.

    :raises ParseError: there is text and no mapping in it
    """
    entries: list[SmapsEntry] = []
    unknown: dict[str, None] = {}
    for line in data.replace(b"\0", b"").split(b"\n"):
        key, _, value = line.partition(b":")
        size = kilobytes(value)
        if mapping := _mapping(line):
            entries.append(SmapsEntry(mapping, {}))
        elif entries and key == b"VmFlags":
            entries[-1] = entries[-1]._replace(flags=tuple(map(decode, value.split())))
        elif entries and size is not None:
            entries[-1].sizes.setdefault(decode(key), size)
        elif line.strip():
            unknown.setdefault(quoted(line))
    refuse_if_lost("smaps", data, bool(entries))
    return Smaps(tuple(entries), tuple(unknown))


def parse_smaps_rollup(data: bytes) -> dict[str, int]:
    """/proc/PID/smaps_rollup: bytes by the kernel's own names, over all mappings.

    :raises ParseError: it has no field
    """
    entries = parse_smaps(data).entries
    if not entries or not entries[0].sizes:
        raise error("smaps_rollup", data, "it has no field")
    return entries[0].sizes
