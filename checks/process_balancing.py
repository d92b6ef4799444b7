"""Automatic NUMA balancing at work on a process."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Target,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.placement.examination import Examination

from ._kernel import sysctl_fixes
from ._placement import PLACEMENT, looked_at, process_text

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.placement.window import Window


@check(
    "P019",
    name="balancing-acts",
    needs=(*PLACEMENT, "/.numadoctor/window.json", "/proc/sys/kernel/numa_balancing"),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def balancing_acts(host: "Host", target: Target) -> Iterator[Finding]:
    """Automatic NUMA balancing moves pages of this process while it serves.

    Why it matters
        Balancing takes away the access to pages now and then to learn who uses them, and
        moves them to that node: each time a thread stops for some microseconds, and a copy
        of the page is made. On memory that threads of both nodes use, pages go back and
        forth for as long as the process lives. Mappings with a policy of their own and
        huge page pools are left alone.

    When it is harmless
        For processes without a policy that stay on one node, it brings memory to them, and
        comes to rest after a minute.

    Fix
        Give pools a policy (mbind, numactl), or turn it off on a machine that only serves:

            sysctl -w kernel.numa_balancing=0

    Source
        Documentation/admin-guide/sysctl/kernel.rst, numa_balancing; task_numa_work() and
        vma_policy_mof() in kernel/sched/fair.c and mm/mempolicy.c
    """
    found = looked_at(host, target)
    window = found.window(threshold("window"))
    moving = []
    known = 0
    for pid, counts in window.processes.items():
        if pid not in found.processes:
            continue
        if counts.migrated_pages is None:
            continue
        known += 1
        if window.rate(counts.migrated_pages) > threshold("migration-rate"):
            moving.append(pid)
            yield _moved(found, pid, counts.migrated_pages, window.seconds)
    if not known:
        yield _of_all_processes(window)
    elif not moving:
        yield _at_rest(found, window.seconds)


def _of_all_processes(window: "Window") -> Finding:
    """Where the kernel does not count migrations for each process (CONFIG_SCHED_DEBUG)."""
    pages = window.machine.get("numa_pages_migrated")
    if pages is None:
        return skip("this kernel has no automatic NUMA balancing", subject="processes")
    told = f"balancing moved {pages:,} pages of all processes within {window.seconds:.2f} s"
    evidence = [Evidence("/proc/vmstat", f"numa_pages_migrated +{pages}")]
    if window.rate(pages) <= threshold("migration-rate"):
        return passed(told, evidence=evidence)
    return unknown(
        f"{told}; whose they were is not told",
        subject="processes",
        cause="This kernel has no /proc/PID/sched.",
        evidence=evidence,
    )


def _moved(found: Examination, pid: int, pages: int, seconds: float) -> Finding:
    process = found.processes[pid]
    counted = f"numa_pages_migrated +{pages} in {seconds:.2f} s"
    return warn(
        f"balancing moved {pages:,} pages of {process_text(found, pid)} within {seconds:.2f} s",
        subject=f"process {process.name}" if process.name else "process",
        cause="Each stops the thread that meets it and copies the page; on memory that both nodes "
        "use it never comes to rest.",
        evidence=[Evidence(f"/proc/{pid}/sched", counted)],
        fixes=(
            *sysctl_fixes("kernel.numa_balancing", 0),
            Fix("any", "# mbind the pools: memory with a policy is left alone", needs_restart=True),
        ),
    )


def _at_rest(found: Examination, seconds: float) -> Finding:
    since = sum(p.migrated_pages or 0 for p in found.processes.values())
    evidence = [
        Evidence(f"/proc/{p.pid}/sched", f"numa_pages_migrated {p.migrated_pages}")
        for p in list(found.processes.values())[:3]
    ]
    if since:
        return info(
            f"balancing moved {since:,} pages since the start, and nearly none in {seconds:.2f} s",
            subject="processes",
            evidence=evidence,
        )
    return passed(f"balancing moved no page in {seconds:.2f} s", evidence=evidence)
