"""By which id a process can be examined, whatever of its ids somebody names."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from numadoctor.host import parsers
from numadoctor.model import Missing, OfKernel, Undecided, Vanished

if TYPE_CHECKING:
    from numadoctor.host import Host


# proc(5): whose processes are not listed for others. Since Linux 5.8 they are words.
_HIDDEN = frozenset({"2", "invisible", "4", "ptraceable"})


def hidden_by(mounts: Iterable[parsers.Mount]) -> str:
    """Why the caller's /proc does not list the processes of other users, or nothing."""
    proc = [mount for mount in mounts if mount.point == "/proc"]
    if os.geteuid() and proc and proc[-1].options.get("hidepid") in _HIDDEN:
        return "/proc is mounted with hidepid"
    return ""


def unseen(host: "Host") -> str:
    """Why there may be processes of which the /proc of a live machine has nothing, or nothing."""
    if not host.live:
        return ""
    try:
        return hidden_by(host.parse("/proc/self/mounts", parsers.parse_mounts))
    except Missing:
        return "there is no procfs here"
    except Undecided:
        return ""


def own_pid(host: "Host") -> int:
    """The calling process, as the /proc of a live machine names it."""
    try:
        return int(host.link("/proc/self"))
    except (Undecided, ValueError):
        return os.getpid()


def process_of(host: "Host", pid: int) -> int:
    """The process that ``pid``, which may be one of its threads, belongs to.

    :raises OfKernel: it is a thread of the kernel
    :raises Missing, Vanished: there is none, or it has ended
    :raises Undecided: it may not be looked at
    """
    proc = f"/proc/{pid}"
    try:
        status = host.status(proc)
    except Missing:
        why = unseen(host)
        but = f", or it is not seen: {why}" if why else ""
        raise Missing(proc, reason=f"no such process{but}") from None
    except Vanished as error:
        if error.errno:
            raise
        raise Vanished(proc, reason="it has ended, and waits for its parent (zombie)") from None
    try:
        of_kernel = host.parse(f"{proc}/stat", parsers.parse_stat).of_kernel
    except Undecided:
        of_kernel = False  # a captured folder may lack it
    if of_kernel:
        raise OfKernel(proc)
    return pid if status.tgid is None else status.tgid


def living_thread(host: "Host", process: int) -> int:
    """The thread whose files tell of a process: the first, unless that has ended before others.

    A first thread that has ended has no memory and no filter any more (exit_mm() in
    kernel/exit.c), though the process lives on.

    :raises Undecided: it may not be looked at
    """
    if not _has_ended(host, process):
        return process
    for thread in parsers.numbered(host.list(f"/proc/{process}/task"), ""):
        if not _has_ended(host, thread):
            return thread
    raise Vanished(f"/proc/{process}")


def _has_ended(host: "Host", pid: int) -> bool:
    return host.parse(f"/proc/{pid}/status", parsers.parse_status).state in ("Z", "X")
