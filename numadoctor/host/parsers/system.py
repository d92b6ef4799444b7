"""What /proc says of the machine as a whole: boot options, mounts, swap, the processor, limits."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from numadoctor.host.parsers._text import (
    BLANK,
    count,
    decode,
    error,
    integer,
    lines,
    refuse_if_lost,
    unescape,
)

# Version 1 writes "no limit" as the largest multiple of the page size below 2**63,
# and for a huge page of 16 GiB that is 2**63 - 2**34 (PAGE_COUNTER_MAX).
_UNLIMITED = 1 << 62

_ARGUMENT = re.compile(rb'(?:[^\s"]+|"[^"]*"?)+')
_BLOCK_END = re.compile(rb"\n[ \t\r\v\f\0]*\n")


class Mount(NamedTuple):
    """One line of /proc/mounts.

    :ivar options: the value is None for options without one
    """

    device: str
    point: str
    fstype: str
    options: dict[str, str | None]


class MountInfo(NamedTuple):
    """One line of /proc/PID/mountinfo.

    :ivar number: the device number, ``major:minor``
    :ivar root: the folder of the file system that is mounted
    :ivar options: those of this mount
    :ivar super_options: those of the file system
    """

    mount_id: int
    parent_id: int
    number: str
    root: str
    point: str
    options: dict[str, str | None]
    fstype: str
    device: str
    super_options: dict[str, str | None]


class Swap(NamedTuple):
    """One swap area.

    :ivar kind: partition or file
    :ivar size: bytes
    :ivar used: bytes
    """

    path: str
    kind: str
    size: int
    used: int
    priority: int


class CpuInfo(NamedTuple):
    """The first processor of /proc/cpuinfo. None where the architecture does not say.

    :ivar vendor: ``AuthenticAMD``, or Arm's implementer code (``0x41``)
    :ivar flags: x86's flags, Arm's and s390's features
    :ivar hypervisor: x86 runs under a hypervisor that says so; None on other architectures
    """

    vendor: str | None
    model: str | None
    flags: frozenset[str]
    hypervisor: bool | None


def _argument(raw: bytes) -> tuple[str, str | None]:
    """Key and value of one boot option, by the rules of next_arg()."""
    quoted = raw.startswith(b'"')
    text = raw[1:] if quoted else raw
    # An "=" in first place belongs to the key.
    equals = text.find(b"=", 1)
    if equals < 0:
        return decode(text.removesuffix(b'"') if quoted else text), None
    key, value = text[:equals], text[equals + 1 :]
    if value.startswith(b'"'):
        value = value[1:].removesuffix(b'"')
    elif quoted:
        value = value.removesuffix(b'"')
    return decode(key), decode(value)


def parse_command_line(data: bytes) -> tuple[tuple[str, str | None], ...]:
    """/proc/cmdline: options and values in order, repeated ones too.

    An option without ``=`` has the value None. Double quotes hold blanks
    together. What follows ``--`` is for init and left out.

    Source: next_arg() in lib/cmdline.c, parse_args() in kernel/params.c.
    """
    found = []
    for match in _ARGUMENT.finditer(data.strip(BLANK).replace(b"\0", b" ")):
        key, value = _argument(match[0])
        if key == "--" and value is None:
            break
        found.append((key, value))
    return tuple(found)


def _option_texts(data: bytes) -> Iterator[bytes]:
    """The options in a comma-separated text.

    tmpfs shows ``mpol=bind:0,2-3`` without escaping the comma in the node list
    (shmem_show_mpol() in mm/shmem.c).
    """
    pending = b""
    for part in data.split(b","):
        if pending.startswith(b"mpol=") and part[:1].isdigit():
            pending += b"," + part
            continue
        if pending:
            yield pending
        pending = part
    if pending:
        yield pending


def _options(data: bytes) -> dict[str, str | None]:
    found = {}
    for option in _option_texts(data):
        key, equals, value = option.partition(b"=")
        found[unescape(key)] = unescape(value) if equals else None
    return found


def parse_mounts(data: bytes) -> tuple[Mount, ...]:
    """/proc/mounts, in order: of mounts on the same point the last one is seen.

    Lines that cannot be understood are left out.

    Source: show_vfsmnt() in fs/proc_namespace.c.

    :raises ParseError: there is text and no line of it can be understood
    """
    found = []
    for line in lines(data):
        fields = line.split(b" ")
        if len(fields) > 3 and fields[1].startswith(b"/"):
            device, point, fstype = map(unescape, fields[:3])
            found.append(Mount(device, point, fstype, _options(fields[3])))
    refuse_if_lost("mounts", data, bool(found))
    return tuple(found)


def _mountinfo_line(line: bytes) -> MountInfo | None:
    head, dash, tail = line.partition(b" - ")
    own, filesystem = head.split(b" "), tail.split(b" ")
    if not dash or len(own) < 6 or len(filesystem) < 3:
        return None
    mount_id, parent_id = count(own[0]), count(own[1])
    if mount_id is None or parent_id is None:
        return None
    number, root, point = map(unescape, own[2:5])
    fstype, device = map(unescape, filesystem[:2])
    options, super_options = _options(own[5]), _options(filesystem[2])
    return MountInfo(
        mount_id, parent_id, number, root, point, options, fstype, device, super_options
    )


def parse_mountinfo(data: bytes) -> tuple[MountInfo, ...]:
    """/proc/PID/mountinfo, in order.

    Lines that cannot be understood are left out.

    Source: show_mountinfo() in fs/proc_namespace.c; proc(5).

    :raises ParseError: there is text and no line of it can be understood
    """
    found = tuple(mount for line in lines(data) if (mount := _mountinfo_line(line)))
    refuse_if_lost("mountinfo", data, bool(found))
    return found


def parse_cgroup_limit(data: bytes) -> int | None:
    """A limit of a control group, in the file's unit; None is unlimited.

    Version 2 writes ``max``, version 1 a number just below 2**63.

    Source: Documentation/admin-guide/cgroup-v2.rst; include/linux/page_counter.h.

    :raises ParseError: neither a number nor ``max``, or negative
    """
    if data.strip(BLANK) == b"max":
        return None
    limit = integer("cgroup limit", data)
    if limit < 0:
        raise error("cgroup limit", data, "it is negative")
    return None if limit >= _UNLIMITED else limit


def _swap(fields: list[bytes]) -> Swap | None:
    if len(fields) != 5:
        return None
    size, used = count(fields[2]), count(fields[3])
    priority = count(fields[4].removeprefix(b"-"))
    if size is None or used is None or priority is None:
        return None
    if fields[4].startswith(b"-"):
        priority = -priority
    return Swap(unescape(fields[0]), decode(fields[1]), size * 1024, used * 1024, priority)


def parse_swaps(data: bytes) -> tuple[Swap, ...]:
    """/proc/swaps. A machine without swap has the heading alone: ().

    Lines that cannot be understood are left out.

    :raises ParseError: there is text, and neither the heading nor a line can be understood
    """
    rows = [line.split() for line in lines(data)]
    found = tuple(swap for row in rows if (swap := _swap(row)))
    refuse_if_lost("swaps", data, bool(found) or any(row[0] == b"Filename" for row in rows))
    return found


def parse_cpuinfo(data: bytes) -> CpuInfo:
    """/proc/cpuinfo, the first processor only: the file of a large machine has megabytes.

    :raises ParseError: there is no ``key : value`` line in the first block
    """
    text = data.strip(BLANK)
    end = _BLOCK_END.search(text)
    fields: dict[bytes, str] = {}
    for line in lines(text[: end.start()] if end else text):
        key, colon, value = line.partition(b":")
        if colon:
            fields.setdefault(key.strip(), decode(value.strip()))
    if not fields:
        raise error("cpuinfo", data, "it has no line of the form key : value")

    def first(*keys: bytes) -> str | None:
        return next((fields[key] for key in keys if key in fields), None)

    flags = frozenset((first(b"flags", b"Features", b"features") or "").replace(",", " ").split())
    return CpuInfo(
        vendor=first(b"vendor_id", b"vendor", b"CPU implementer"),
        model=first(b"model name", b"cpu model", b"cpu"),
        flags=flags,
        hypervisor="hypervisor" in flags if b"flags" in fields else None,
    )
