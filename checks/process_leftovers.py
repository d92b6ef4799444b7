"""What earlier processes left behind: segments that nobody uses, and why the kernel killed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numadoctor.engine import Requires, check
from numadoctor.engine.thresholds import threshold
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Malformed,
    Missing,
    ParseError,
    Target,
    Undecided,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.units import amount
from numadoctor.model.words import count, nodes_text

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.parsers import OomKill, SysvSegment

_SYSV = "/proc/sysvipc/shm"

# SHM_DEST of ipc/shm.c: it is removed when the last process lets go of it.
_TO_BE_REMOVED = 0o1000

# More than that are counted, not named.
_NAMED = 5


@check(
    "P023",
    name="leftover-segments",
    needs=(_SYSV, "fact shared_files", "/proc/PID/ns/ipc"),
)
def leftover_segments(host: "Host", target: Target) -> Iterator[Finding]:
    """Shared memory was left behind by a process that ended, and still takes room.

    Why it matters
        System V segments, files in /dev/shm and files of huge pages live until somebody
        removes them. An engine that was killed leaves its KV pool: 64 GiB of a node, or all
        of its huge pages, are gone, and the next start fails for want of memory, or lands
        on the other node, while no process shows why.

    When it is harmless
        A segment that is created first and attached later, by a process that is yet to come.
        System V segments of a container's own IPC namespace, and its own /dev/shm, end with
        it; they are not to be seen from outside, so that numadoctor has to run there to look.

    Fix
        Remove it once nobody means to use it:

            ipcrm -m ID
            rm /dev/shm/NAME

    Source
        sysvipc(7), ipcrm(1), shm_overview(7), ipc_namespaces(7); sysvipc_shm_proc_show() in
        ipc/shm.c
    """
    seen = 0
    told = False
    try:
        segments = host.parse(_SYSV, parsers.parse_sysvipc_shm)
        seen += 1
        for segment in segments:
            if _is_left(segment):
                told = True
                yield _segment(host, segment)
    except Missing as error:
        yield _not_looked_at("System V segments", error)
    try:
        files = _files(host)
        seen += 1
        for finding in _left_files(files):
            told = True
            yield finding
    except Undecided as error:
        yield _not_looked_at("files in /dev/shm and on hugetlbfs", error)
    if seen == 2 and not told:
        yield passed(
            f"no shared memory of {amount(int(threshold('leftover')))} or more is left behind",
            evidence=[host.evidence(_SYSV), Evidence("/dev/shm", count(len(files), "file"))],
        )
    if others := _other_namespaces(host):
        # No unknown: what is theirs ends with them, and is for who runs there to look at.
        yield info(
            f"{count(len(others), 'other IPC namespace')} not looked at: containers have System V "
            "segments of their own",
            subject="other IPC namespaces",
            cause="Run numadoctor in the container to look at them.",
            evidence=[Evidence(path, link) for link, path in list(others.items())[:_NAMED]],
        )


def _other_namespaces(host: "Host") -> dict[str, str]:
    """IPC namespaces of other processes, as far as they can be told, and where each was seen."""
    try:
        own = host.link("/proc/self/ns/ipc")
        pids = [name for name in host.list("/proc") if name.isdecimal()]
    except Undecided:
        return {}
    others: dict[str, str] = {}
    for path in (f"/proc/{pid}/ns/ipc" for pid in pids):
        try:
            others.setdefault(host.link(path), path)
        except Undecided:
            continue  # another user's
    others.pop(own, None)
    return others


def _not_looked_at(what: str, error: Undecided) -> Finding:
    return unknown(
        f"whether {what} were left behind cannot be told: {error.reason}",
        subject=what,
        cause="Run numadoctor on the machine, or as root there." if error.errno else "",
        evidence=[Evidence(error.path, error.reason)],
    )


def _is_left(segment: "SysvSegment") -> bool:
    resident = segment.size if segment.resident is None else segment.resident
    swapped = segment.swapped or 0
    return (
        segment.attached == 0
        and not segment.mode & _TO_BE_REMOVED
        and max(segment.size, resident + swapped) >= threshold("leftover")
    )


def _segment(host: "Host", segment: "SysvSegment") -> Finding:
    resident = "" if segment.resident is None else f", {amount(segment.resident)} in memory"
    return warn(
        f"System V segment {segment.id} was left behind: {amount(segment.size)}{resident}, "
        "attached by nobody",
        subject=f"System V segment of {amount(segment.size)}",
        cause=f"{_maker(segment)} made it (user {segment.uid}); "
        "it stays until somebody removes it.",
        evidence=[
            Evidence(
                _SYSV,
                f"key {segment.key} shmid {segment.id} size {segment.size} cpid {segment.creator} "
                f"nattch {segment.attached}",
            )
        ],
        fixes=(Fix("any", f"ipcrm -m {segment.id}"),),
    )


def _maker(segment: "SysvSegment") -> str:
    # pid_nr_ns() of who is not in the reader's pid namespace.
    return f"Process {segment.creator}" if segment.creator else "A process of another pid namespace"


def _files(host: "Host") -> list[dict[str, Any]]:
    """The files of the fact, each with a path, bytes, whether a process uses it, and who may.

    :raises Undecided: the fact cannot be had, or holds something else
    """
    fact = host.fact("shared_files")
    try:
        return [
            {
                "path": str(one["path"]),
                "bytes": int(one["bytes"]),
                "used": bool(one["used"]),
                "hidden": str(fact.get("hidden") or ""),
                "unread": int(fact["unread"]),
            }
            for one in fact["files"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Malformed("shared_files", None, "not what numadoctor records") from None


def _left_files(files: list[dict[str, Any]]) -> Iterator[Finding]:
    unused = [f for f in files if not f["used"] and f["bytes"] >= threshold("leftover")]
    for one in unused[:_NAMED]:
        quoted = "'" + one["path"].replace("'", "'\\''") + "'"
        message = f"{one['path']} ({amount(one['bytes'])}) is used by no process"
        subject = f"shared memory {one['path']}"
        evidence = [Evidence(one["path"], f"{one['bytes']} bytes; mapped or open nowhere")]
        if one["hidden"] or one["unread"]:
            seen = "that could be looked into; others could not"
            cause = "Run numadoctor as root, or with CAP_SYS_PTRACE."
            if one["hidden"]:
                seen = f"that is seen here; {one['hidden']}"
                cause = "Run numadoctor on the machine itself, as root there."
            yield unknown(f"{message} {seen}", subject=subject, cause=cause, evidence=evidence)
            continue
        yield warn(
            message,
            subject=subject,
            cause="A process that ended left it; it takes memory until it is removed.",
            evidence=evidence,
            fixes=(Fix("any", f"rm -- {quoted}"),),
        )
    if len(unused) > _NAMED:
        rest = unused[_NAMED:]
        yield info(
            f"{len(rest)} more files ({amount(sum(one['bytes'] for one in rest))}) of shared "
            "memory are used by no process",
            subject="shared memory",
            evidence=[Evidence("/dev/shm", ", ".join(one["path"] for one in rest)[:200])],
        )


@check("P024", name="oom-kills", needs=("fact kernel_log",), requires=Requires.NUMA)
def oom_kills(host: "Host", target: Target) -> Iterator[Finding]:
    """The kernel killed a process because its policy or cpuset had no memory left.

    Why it matters
        A machine with hundreds of GiB free kills: a policy of bind, or a cpuset, leaves the
        process one node, and that is full. The log of the engine ends in the middle of a line,
        the supervisor says "exit 137", and free memory is there. The kernel's log tells which
        of the two it was.

    When it is harmless
        When it was long ago. The log keeps the last few thousand records.

    Fix
        More nodes in the policy, --preferred instead of --membind, a wider cpuset, or less
        memory; see which node is full: numastat -m.

    Source
        enum oom_constraint and constrained_alloc() in mm/oom_kill.c
    """
    try:
        fact = host.fact("kernel_log")
        lines = [str(line) for line in fact["lines"]]
        records = int(fact["records"])
        visible = bool(fact["visible"])
    except (KeyError, TypeError, ValueError):
        raise Malformed("kernel_log", None, "not what numadoctor records") from None
    if not visible:
        yield skip("the kernel's log is not to be seen here (no /dev/kmsg), as in containers")
        return
    kills = []
    for line in lines:
        try:
            kills.append((parsers.parse_oom_kill(line.encode("utf-8", "backslashreplace")), line))
        except ParseError:
            continue
    for kind in ("memory_policy", "cpuset"):
        if mine := [kill for kill in kills if kill[0].constraint == kind]:
            yield _killed(kind, mine)
    others = [kill for kill in kills if kill[0].constraint not in ("memory_policy", "cpuset")]
    if others:
        yield info(
            f"{count(len(others), 'process was', 'processes were')} killed for want of memory of "
            f"the machine or of a control group: {others[-1][0].task}",
            subject="kills by other limits",
            evidence=[Evidence("/dev/kmsg", line[:240]) for _, line in others[-2:]],
        )
    if not kills:
        yield passed(
            f"no process was killed for want of memory in {records:,} records of the kernel's log",
            evidence=[Evidence("/dev/kmsg", f"{records} records, no line begins with oom-kill:")],
        )


def _killed(kind: str, kills: "list[tuple[OomKill, str]]") -> Finding:
    last = kills[-1][0]
    nodes = last.nodes if kind == "memory_policy" else last.allowed
    where = f" of {nodes_text(nodes)}" if nodes else ""
    what = "memory policy" if kind == "memory_policy" else "cpuset"
    number = f"{len(kills)} processes were" if len(kills) > 1 else "a process was"
    wanted = "NODES" if not nodes else f"{parsers.format_list(nodes)},…"
    return warn(
        f"{number} killed because the {what}{where} had no memory left, the last was {last.task}",
        subject=f"kills by {what}",
        cause=f"Other nodes may have had plenty: a {what} does not spill.",
        evidence=[Evidence("/dev/kmsg", line[:240]) for _, line in kills[-2:]],
        fixes=(
            Fix("numactl", "numactl --preferred=NODE COMMAND", needs_restart=True),
            Fix("docker", f"--cpuset-mems {wanted}", needs_restart=True),
            Fix("any", "numastat -m   # which node is full"),
        ),
    )
