"""What the kernel does with the memory of a process: faults, locking, huge pages."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Missing,
    Target,
    Undecided,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.placement import Kind, Placement, Process
from numadoctor.model.units import amount
from numadoctor.placement.examination import Examination

from ._envelope import memlock_fixes
from ._kernel import sysfs_fixes
from ._placement import (
    PLACEMENT,
    grouped,
    looked_at,
    pools,
    process_text,
    seen,
    undecided_processes,
    what,
)

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.placement.window import Counts

_THP = "/sys/kernel/mm/transparent_hugepage"

# /proc counts times in ticks of USER_HZ, which is 100 on every architecture Linux has
# (include/asm-generic/param.h; alpha, with 1024, has no NUMA any more).
_TICKS = 100


def _subject(process: Process) -> str:
    return f"process {process.name}" if process.name else "process"


@check(
    "P020",
    name="page-faults",
    needs=(*PLACEMENT, "/.numadoctor/window.json", "/proc/uptime"),
    scope=Scope.PROCESSES,
)
def page_faults(host: "Host", target: Target) -> Iterator[Finding]:
    """A process takes many page faults although it should be warm.

    Why it matters
        A server that is warm touches memory that is there. Thousands of faults a second
        afterwards mean that something is mapped and given back all the time (an allocator
        without a cache, a file mapped anew for each request), that pages were swapped out, or
        that balancing takes their mappings away: each fault stops a thread, and places a
        page on the node where that thread runs at that moment.

    When it is harmless
        During the start: weights are loaded, pools are touched. That is told (info) for
        processes that are younger than ten minutes.

    Fix
        Prefault and lock pools; MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ of
        glibc, or jemalloc with retained memory; see which code faults:

            perf trace -F all -p PID

    Source
        proc_pid_stat(5), minflt and majflt; mallopt(3); perf-trace(1), -F
    """
    found = looked_at(host, target)
    window = found.window(threshold("window"))
    quiet = 0
    for pid, counts in window.processes.items():
        process = found.processes.get(pid)
        if process is None or counts.minor_faults is None or counts.major_faults is None:
            continue
        minor, major = window.rate(counts.minor_faults), window.rate(counts.major_faults)
        if minor <= threshold("fault-rate") and major <= threshold("major-fault-rate"):
            quiet += 1
            continue
        yield _faulting(found, process, counts, window.seconds, _age(host, pid))
    if quiet:
        faults = sum(c.minor_faults or 0 for c in window.processes.values())
        yield passed(
            f"{faults:,} page faults within {window.seconds:.2f} s",
            evidence=[
                Evidence(f"/proc/{pid}/stat", f"minflt +{c.minor_faults} majflt +{c.major_faults}")
                for pid, c in list(window.processes.items())[:3]
            ],
        )
    elif not any(pid in found.processes for pid in window.processes):
        yield unknown("the processes do not tell their page faults", subject="processes")


def _age(host: "Host", pid: int) -> float | None:
    """Seconds since the process started, or None."""
    try:
        up = float(host.text("/proc/uptime").split()[0])
        return up - host.parse(f"/proc/{pid}/stat", parsers.parse_stat).start_ticks / _TICKS
    except (Undecided, ValueError, IndexError):
        return None


def _faulting(
    found: Examination, process: Process, counts: "Counts", seconds: float, age: float | None
) -> Finding:
    minor, major = counts.minor_faults or 0, counts.major_faults or 0
    message = f"{process_text(found, process.pid)}: {minor + major:,} page faults within "
    message += f"{seconds:.2f} s, {major:,} of them from disk"
    evidence = [Evidence(f"/proc/{process.pid}/stat", f"minflt +{minor} majflt +{major}")]
    if age is not None and age < threshold("warm-up"):
        return info(
            f"{message}; it is {age:.0f} s old and may be starting",
            subject=_subject(process),
            evidence=evidence,
        )
    return warn(
        message,
        subject=_subject(process),
        cause="Something maps and gives back memory, or reads it from disk, all the time; each "
        "fault stops a thread and places a page where that thread happens to run.",
        evidence=evidence,
        fixes=(
            Fix("any", f"perf trace -F all -p {process.pid}   # which code faults"),
            Fix(
                "any",
                "export MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824",
                needs_restart=True,
            ),
        ),
    )


# Options that ask an engine to lock its memory.
_LOCKING = ("--mlock", "--use-mlock", "--use_mlock", "--lock-memory")


@check(
    "P021",
    name="memory-locked",
    needs=(*PLACEMENT, "/proc/PID/cmdline", "/proc/PID/limits"),
    scope=Scope.PROCESSES,
)
def memory_locked(host: "Host", target: Target) -> Iterator[Finding]:
    """A process was asked to lock its memory and could not, or has locked what it may.

    Why it matters
        Locked memory is not swapped out, nor reclaimed. mlock fails with ENOMEM beyond
        RLIMIT_MEMLOCK, which is 8 MiB by default, and most programs only log it. Registering
        memory for RDMA counts against the same limit.

    When it is harmless
        Without swap, private memory stays where it is, locked or not; a mapped model file
        does not.

    Fix
        docker --ulimit memlock=-1, [Service] LimitMEMLOCK=infinity; or CAP_IPC_LOCK.

    Source
        mlock(2), getrlimit(2), RLIMIT_MEMLOCK; proc_pid_status(5), VmLck
    """
    found = looked_at(host, target)
    blind: dict[int, Undecided] = {}
    for pid, process in found.processes.items():
        try:
            argv = host.parse(f"/proc/{pid}/cmdline", parsers.parse_argv)
            limits = host.parse(f"/proc/{pid}/limits", parsers.parse_limits)
            if process.locked is None:
                raise Undecided(f"/proc/{pid}/status", None, "it does not tell VmLck")
        except Undecided as error:
            blind[pid] = error
            continue
        yield _locked(host, process, process.locked, argv, limits.get("Max locked memory"))
    yield from undecided_processes(found, blind, "what it has locked")


def _locked(
    host: "Host",
    process: Process,
    locked: int,
    argv: tuple[str, ...],
    limit: parsers.Limit | None,
) -> Finding:
    pid = process.pid
    soft = limit.soft if limit else None
    allowed = "any amount" if soft is None else f"at most {amount(soft)}"
    asked = next((word for word in argv if word.partition("=")[0] in _LOCKING), None)
    evidence = [
        host.evidence(f"/proc/{pid}/status", "VmLck", "VmRSS"),
        host.evidence(f"/proc/{pid}/limits", "Max locked memory"),
    ]
    subject = _subject(process)
    resident = process.resident or 0
    who = f"{process.name or 'the process'} (pid {pid})"
    if asked and locked < resident * threshold("huge-pages-missing"):
        return warn(
            f"{who} was started with {asked} and has {amount(locked)} of {amount(resident)} "
            f"locked; it may lock {allowed}",
            subject=subject,
            cause="mlock failed, and the program went on: its memory can be reclaimed.",
            evidence=[Evidence(f"/proc/{pid}/cmdline", asked), *evidence],
            fixes=memlock_fixes(),
        )
    if not locked:
        name = process.name or "the process"
        return skip(f"{name} locks no memory, and was not asked to", subject=subject)
    return passed(
        f"{who} has {amount(locked)} locked, and may lock {allowed}",
        subject=subject,
        evidence=evidence,
    )


@check(
    "P022",
    name="huge-pages-obtained",
    needs=(*PLACEMENT, f"{_THP}/enabled", f"{_THP}/shmem_enabled"),
    scope=Scope.PROCESSES,
)
def huge_pages_obtained(host: "Host", target: Target) -> Iterator[Finding]:
    """A large pool asked for huge pages and got small ones.

    Why it matters
        A KV cache of 64 GiB in pages of 4 KiB needs 16 million entries of the page table; each
        miss of the TLB is up to four more accesses to memory, on the node where the table
        lies. With transparent huge pages the kernel gives small ones without a word when no
        free block is to be had on the node: memory is fragmented, or defrag does not wait.

    When it is harmless
        khugepaged collapses pages later, slowly. Small and sparse mappings gain nothing.

    Fix
        Start on a machine that is not fragmented, or compact it first; let madvised memory
        wait for a huge page (defrag); or reserve huge pages (hugetlbfs), which are not
        subject to luck:

            echo 1 > /proc/sys/vm/compact_memory

    Source
        Documentation/admin-guide/mm/transhuge.rst; proc_pid_smaps(5), AnonHugePages
    """
    found = looked_at(host, target)
    large = pools(found, "large-pool")
    if not large:
        yield skip(f"no pool of {amount(int(threshold('large-pool')))} or more")
        return
    for subject, alike in grouped(large, found):
        yield _obtained(host, found, subject, alike)


def _obtained(host: "Host", found: Examination, subject: str, alike: list[Placement]) -> Finding:
    first = alike[0]
    kind = first.mapping.kind
    evidence = [seen(p) for p in alike[:2]]
    if kind is Kind.HUGETLB:
        return passed(
            f"{what(alike)}: huge pages of {amount(first.page_size)}",
            subject=subject,
            evidence=evidence,
        )
    path = f"{_THP}/{'enabled' if kind in (Kind.ANONYMOUS, Kind.HEAP) else 'shmem_enabled'}"
    try:
        mode = host.choice(path).selected
    except Missing:
        return skip("this kernel has no transparent huge pages", subject=subject)
    evidence.append(host.evidence(path))
    if mode in ("never", "deny"):
        return skip(f"{what(alike)}: transparent huge pages are off ({mode})", subject=subject)
    known = [p for p in alike if p.thp_bytes is not None]
    if not known:
        return unknown(
            f"{what(alike)}: what of it is in huge pages is not known",
            subject=subject,
            cause="Run numadoctor as root, or capture smaps: the state of single pages is told to "
            "nobody else.",
            evidence=evidence,
        )
    resident = sum(p.resident for p in known)
    huge = sum(p.thp_bytes or 0 for p in known)
    told = f"{what(alike)}: {100 * huge / max(1, resident):.0f} % in huge pages"
    asked = mode in ("always", "within_size", "force") or huge
    if not asked:
        return info(
            f"{told}; transparent huge pages are for memory that asks (madvise)",
            subject=subject,
            evidence=evidence,
        )
    if huge >= resident * threshold("huge-pages-missing"):
        return passed(told, subject=subject, evidence=evidence)
    return warn(
        f"{told}, which was asked for ({mode})",
        subject=subject,
        cause="No free blocks were to be had when it was touched: memory is fragmented, or the "
        "kernel was told not to wait for them.",
        evidence=evidence,
        fixes=(
            Fix("sysctl", "sysctl -w vm.compact_memory=1", needs_root=True),
            *sysfs_fixes(f"{_THP}/defrag", "madvise"),
            Fix("any", "# hugetlbfs: reserved pages do not depend on luck", needs_restart=True),
        ),
    )
