"""Reads what is to be known of a process before its pages are looked for. Nothing walks them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from numadoctor.host import parsers
from numadoctor.model import Denied, Missing, Undecided, Vanished
from numadoctor.model.placement import Process

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.parsers import Maps, ProcStatus

T = TypeVar("T")


class Examined(NamedTuple):
    """A process and its mappings.

    :ivar maps: None when it could not be read (a captured folder may lack it)
    """

    process: Process
    maps: "Maps | None"


def examine(host: "Host", pid: int, name: str = "") -> Examined:
    """Status, faults and mappings of a process. ``problem`` tells why it cannot be examined."""
    proc = f"/proc/{pid}"
    status = _optional(lambda: host.status(proc))
    stat = _optional(lambda: host.parse(f"{proc}/stat", parsers.parse_stat))
    sched = _optional(lambda: host.parse(f"{proc}/sched", parsers.parse_sched))
    migrated = sched.values.get("numa_pages_migrated") if sched else None
    process = Process(
        pid=pid,
        name=(status.name if status else None) or name,
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
    if stat is not None and stat.state in ("Z", "X"):
        return Examined(process._replace(problem="it has ended"), None)
    try:
        maps = host.parse(f"{proc}/maps", parsers.parse_maps)
    except Undecided as error:
        problem = "" if isinstance(error, Missing) and not host.live else explain(error, process)
        return Examined(process._replace(problem=problem), None)
    return Examined(process._replace(mappings=len(maps)), maps)


def explain(error: Undecided, process: Process) -> str:
    """Why a process could not be examined, and what helps: one line."""
    if isinstance(error, Denied):
        owner = "another user" if process.uid is None else f"uid {process.uid}"
        hint = error.hint or "run as the same user or with CAP_SYS_PTRACE"
        return f"cannot read {error.path}: {error.reason} (process of {owner}): {hint}"
    if isinstance(error, (Vanished, Missing)):
        return "no such process, or it ended while it was examined"
    return str(error)


def _resident(status: "ProcStatus | None") -> int | None:
    """RSS leaves huge page pools out: add them."""
    if status is None or status.vm_rss is None:
        return None
    return status.vm_rss + (status.hugetlb_pages or 0)


def _optional(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Undecided:
        return None
