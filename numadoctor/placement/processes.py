"""Reads what is to be known of a process before its pages are looked for. Nothing walks them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from numadoctor.host import parsers
from numadoctor.model import (
    Denied,
    Malformed,
    Missing,
    ParseError,
    Target,
    Undecided,
    Vanished,
)
from numadoctor.model.placement import Process

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.parsers import Maps, ProcStatus

P = ParamSpec("P")
T = TypeVar("T")

# Why a thread of the kernel is not examined.
OF_THE_KERNEL = "it has no memory of its own"


class Examined(NamedTuple):
    """A process and its mappings.

    :ivar maps: None when it could not be read (a captured folder may lack it)
    :ivar descendant: it was asked for with an ancestor only
    :ivar ended: why it could not be examined
    """

    process: Process
    maps: "Maps | None"
    descendant: bool = False
    ended: bool = False

    def failed(self, error: Undecided) -> "Examined":
        """The same, no longer to be examined because of ``error``."""
        process = self.process._replace(problem=explain(error, self.process))
        return self._replace(process=process, ended=isinstance(error, (Vanished, Missing)))


def examine(host: "Host", pid: int, target: Target) -> Examined:
    """Status and faults of a process. ``problem`` tells why it cannot be examined."""
    proc = f"/proc/{pid}"
    status = optional(host.status, proc)
    stat = optional(host.parse, f"{proc}/stat", parsers.parse_stat)
    sched = optional(host.parse, f"{proc}/sched", parsers.parse_sched)
    migrated = sched.values.get("numa_pages_migrated") if sched else None
    process = Process(
        pid=pid,
        name=(status.name if status else None) or target.name,
        uid=status.uids[0] if status and status.uids else None,
        namespace_pids=status.nspid if status else (),
        threads=status.threads if status else None,
        resident=_resident(status),
        swapped=status.vm_swap if status else None,
        locked=status.vm_lck if status else None,
        minor_faults=stat.minor_faults if stat else None,
        major_faults=stat.major_faults if stat else None,
        migrated_pages=None if migrated is None else int(migrated),
    )
    examined = Examined(process, None, target.descendant)
    if stat is not None and stat.state in ("Z", "X"):
        return examined.failed(Vanished(proc))
    return examined


def with_maps(host: "Host", examined: Examined) -> Examined:
    """Adds the mappings of a process."""
    process = examined.process
    path = f"/proc/{process.pid}/maps"
    try:
        maps = host.parse(path, parsers.parse_maps)
    except Undecided as error:
        # A captured folder may hold numa_maps alone.
        captured = isinstance(error, Missing) and not host.live
        return examined if captured else examined.failed(error)
    if not maps.number and process.resident is None:
        # A kernel thread. Among descendants it is no more worth a word than one that ended.
        process = process._replace(problem=OF_THE_KERNEL)
        return examined._replace(process=process, ended=True)
    return examined._replace(process=process._replace(mappings=maps.number), maps=maps)


def explain(error: Undecided, process: Process) -> str:
    """Why a process could not be examined, and what helps: one line."""
    if isinstance(error, Denied) and not error.hint:
        owner = "another user" if process.uid is None else f"uid {process.uid}"
        told = f"cannot read {error.path}: {error.reason} (process of {owner})"
        return f"{told}: run as the same user or with CAP_SYS_PTRACE"
    if isinstance(error, (Vanished, Missing)) and "move_pages" not in error.reason:
        return "no such process, or it ended while it was examined"
    return str(error)


def _resident(status: "ProcStatus | None") -> int | None:
    """RSS leaves huge page pools out: add them."""
    if status is None or status.vm_rss is None:
        return None
    return status.vm_rss + (status.hugetlb_pages or 0)


def understood(path: str, data: bytes, parse: Callable[[bytes], T]) -> T:
    """What ``parse`` makes of the file at ``path``, which was not read through the host.

    :raises Malformed: the parser refused it
    """
    try:
        return parse(data)
    except ParseError as error:
        raise Malformed(path, None, str(error)) from None


def optional(read: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T | None:
    """What ``read`` gives, or None where it cannot be read."""
    try:
        return read(*arguments, **keywords)
    except Undecided:
        return None
