"""What /proc says of how tasks run: stat, sched; and the System V segments they may attach."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from numadoctor.host.parsers._text import (
    count,
    decode,
    error,
    integer,
    lines,
    quoted,
    refuse_if_lost,
)
from numadoctor.model.errors import ParseError

_NUMBER = re.compile(rb"-?[0-9]{1,20}")
# PF_KTHREAD of include/linux/sched.h, the same since Linux 2.6.27.
_OF_KERNEL = 0x00200000

_NUMBERED = re.compile(rb"([A-Za-z_]+)=(-?[0-9]{1,19})")


class ProcStat(NamedTuple):
    """/proc/PID/stat, or a thread's. None where the kernel is too old to tell.

    :ivar name: what the task calls itself; it may hold anything
    :ivar state: R running, S sleeping, D waiting for a disk, Z zombie, ...
    :ivar of_kernel: it is a thread of the kernel: it has no memory of its own, and makes no calls
    :ivar minor_faults: page faults that needed no reading, of its own
    :ivar major_faults: page faults that needed reading
    :ivar user_ticks: time in user mode, in clock ticks; ``system_ticks`` in the kernel
    :ivar start_ticks: when it started, in clock ticks after boot; with the pid it names a process
    :ivar resident_pages: an inexact count of resident pages
    :ivar last_cpu: on which it ran last
    """

    pid: int
    name: str
    state: str
    parent: int
    of_kernel: bool
    minor_faults: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    threads: int
    start_ticks: int
    resident_pages: int
    last_cpu: int | None


class Sched(NamedTuple):
    """/proc/PID/sched: what the scheduler and NUMA balancing did with a task.

    :ivar values: the numbers by the kernel's own names (numa_pages_migrated,
        total_numa_faults, numa_preferred_nid, se.nr_migrations)
    :ivar faults: node id to NUMA hinting faults there by kind (task_private, group_shared, ...)
    """

    values: Mapping[str, float]
    faults: Mapping[int, Mapping[str, int]]


class SysvSegment(NamedTuple):
    """One segment of /proc/sysvipc/shm.

    :ivar key: of shmget(2); 0 for IPC_PRIVATE
    :ivar id: what ``ipcrm -m`` takes; also the inode of its mappings
    :ivar mode: permission bits; 0o1000 when it is to be removed at the last detach
    :ivar size: bytes
    :ivar creator: pid
    :ivar last: pid of the last shmat or shmdt
    :ivar attached: number of attaches
    :ivar uid: of its owner
    :ivar resident: bytes, or None before Linux 3.2
    :ivar swapped: bytes, or None before Linux 3.2
    """

    key: int
    id: int
    mode: int
    size: int
    creator: int
    last: int
    attached: int
    uid: int
    resident: int | None
    swapped: int | None


def parse_stat(data: bytes) -> ProcStat:
    """/proc/PID/stat, or /proc/PID/task/TID/stat.

    Source: do_task_stat() in fs/proc/array.c; proc(5).

    :raises ParseError: it is not one
    """
    head, opening, rest = data.partition(b"(")
    # The name may hold parentheses, blanks and newlines: the last ")" ends it.
    name, closing, tail = rest.rpartition(b")")
    words = tail.replace(b"\0", b" ").split()
    pid = count(head.strip())
    if not opening or not closing or pid is None or len(words) < 22:
        raise error("process stat", data, "it has fewer fields than any kernel writes")
    for word in words[1:22]:
        if not _NUMBER.fullmatch(word):
            raise error("process stat", data, f"{quoted(word)} is not a number")
    # Fields by their number in proc(5), of which the state is the third.
    number = {field: int(words[field - 3]) for field in (4, 9, 10, 12, 14, 15, 20, 22, 24)}
    last_cpu = count(words[36]) if len(words) > 36 else None
    return ProcStat(
        pid=pid,
        name=decode(name),
        state=decode(words[0]),
        parent=number[4],
        of_kernel=bool(number[9] & _OF_KERNEL),
        minor_faults=number[10],
        major_faults=number[12],
        user_ticks=number[14],
        system_ticks=number[15],
        threads=number[20],
        start_ticks=number[22],
        resident_pages=number[24],
        last_cpu=last_cpu,
    )


def parse_sched(data: bytes) -> Sched:
    """/proc/PID/sched, or a thread's. Lines that cannot be understood are left out.

    Source: proc_sched_show_task() and print_numa_stats() in kernel/sched/debug.c.

    :raises ParseError: there is text and no line of it can be understood
    """
    values: dict[str, float] = {}
    faults: dict[int, dict[str, int]] = {}
    for line in lines(data):
        if line.startswith(b"numa_faults "):
            found = {decode(m[1]): int(m[2]) for m in _NUMBERED.finditer(line)}
            node = found.pop("node", -1)
            if node >= 0:
                faults.setdefault(node, found)
            continue
        key, colon, value = line.rpartition(b":")
        number = _decimal(value.strip())
        if colon and number is not None:
            values.setdefault(decode(key.strip()), number)
        for match in _NUMBERED.finditer(line):
            values.setdefault(decode(match[1]), int(match[2]))
    refuse_if_lost("sched", data, bool(values or faults))
    return Sched(values, faults)


def _decimal(word: bytes) -> float | None:
    """A number, or one with the six decimals of a time in milliseconds."""
    whole, point, decimals = word.partition(b".")
    if not _NUMBER.fullmatch(whole) or (point and count(decimals) is None):
        return None
    return float(word) if point else int(whole)


def parse_sysvipc_shm(data: bytes) -> tuple[SysvSegment, ...]:
    """/proc/sysvipc/shm, by the names of its heading.

    Lines that cannot be understood are left out.

    Source: sysvipc_shm_proc_show() in ipc/shm.c.

    :raises ParseError: there is text, and neither the heading nor a line can be understood
    """
    rows = [line.split() for line in lines(data)]
    headings = rows[0] if rows and rows[0][:2] == [b"key", b"shmid"] else []
    found = []
    for row in rows[1:] if headings else []:
        try:
            found.append(_segment(dict(zip(headings, row, strict=False))))
        except (KeyError, ParseError):
            continue
    refuse_if_lost("System V segments", data, bool(headings))
    return tuple(found)


def _segment(row: dict[bytes, bytes]) -> SysvSegment:
    """:raises ParseError: a column is not a number; KeyError: one is missing"""

    def number(name: bytes) -> int:
        return integer("number", row[name])

    perms = row[b"perms"]
    if not perms.isdigit() or len(perms) > 6 or perms.strip(b"01234567"):
        raise error("permissions", perms, "not an octal number")
    return SysvSegment(
        key=number(b"key"),
        id=number(b"shmid"),
        mode=int(perms, 8),
        size=number(b"size"),
        creator=number(b"cpid"),
        last=number(b"lpid"),
        attached=number(b"nattch"),
        uid=number(b"uid"),
        resident=number(b"rss") if b"rss" in row else None,
        swapped=number(b"swap") if b"swap" in row else None,
    )
