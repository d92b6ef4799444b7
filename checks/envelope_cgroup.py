"""What the control groups of the process limit: huge pages, memory, swap."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.engine import Scope, check
from numadoctor.host import parsers
from numadoctor.host.cgroup import Cgroup, read_cgroup
from numadoctor.host.runtime import read_runtimes
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    ParseError,
    Target,
    Undecided,
    fail,
    info,
    passed,
    warn,
)
from numadoctor.model.units import amount, page_size_folder, page_size_text

from ._envelope import for_target, memory_total, mount_line, mounts

if TYPE_CHECKING:
    from numadoctor.host import Host

# A cgroup that holds this share of its limit in pages that cannot be reclaimed
# has no room for a pool.
_NEARLY = 0.9


@check(
    "E007",
    name="cgroup-memory-limits",
    needs=(
        "/proc/PID/cgroup",
        "/proc/PID/mounts",
        "/proc/PID/status",
        "/proc/meminfo",
        "/proc/swaps",
        "/sys/fs/cgroup/*/cgroup.controllers",
        "/sys/fs/cgroup/*/memory.*",
        "/sys/fs/cgroup/*/hugetlb.*",
        "/sys/kernel/mm/hugepages/*/nr_hugepages",
    ),
    scope=Scope.PROCESS,
)
def cgroup_memory_limits(host: "Host", target: Target) -> Iterator[Finding]:
    """Reads the cgroup's limits on huge pages and memory, its own and those of all above it.

    Why it matters
        A limit on huge pages acts when a page is touched and not when it is mapped: mmap
        of a pool that is larger succeeds, and the process gets SIGBUS in the middle of
        it, minutes after the start. nr_hugepages shows the machine's pool, also inside
        the container, so an engine that sizes its pool by that runs into the limit.

        A limit on memory knows nothing of nodes: it neither sees that a bound node has
        less nor keeps its pages local. Page cache of model files counts, is reclaimed at
        the limit again and again, and comes back on whichever node reads it next. With
        swap allowed a pool is swapped out before anybody is killed, and the engine gets
        slow instead.

    When it is harmless
        In Kubernetes the limit on huge pages is what the pod asked for: a smaller one than
        the machine's pool is told, not a fault. A limit of 0 where the process shows no
        sign of huge pages is the runtime's default and told as well. A limit on memory
        that the process fits in is information.

    Fix
        Ask for the huge pages where the process is started, for each page size:

            resources: {limits: {hugepages-2Mi: 64Gi, memory: 128Gi}}

        Docker and podman set no limit of their own; one that is there comes from a parent
        cgroup (systemd-run, a slice).

    Source
        Documentation/admin-guide/cgroup-v2.rst, "HugeTLB" and "Memory";
        Documentation/admin-guide/cgroup-v1/hugetlb.rst; hugetlb_fault() in mm/hugetlb.c
    """
    cgroup = read_cgroup(host, target.proc)
    if not cgroup.directories:
        # Either error says why; a process in no cgroup at all has no such file.
        host.parse(f"{target.proc}/cgroup", parsers.parse_proc_cgroup)
        raise Undecided(
            "/sys/fs/cgroup", None, "no cgroup file system is mounted here, limits cannot be seen"
        )
    _refuse_partial(host, cgroup)
    quiet = True
    for finding in (
        *_huge_page_limits(host, target, cgroup),
        *_memory_limit(host, target, cgroup),
    ):
        quiet = False
        yield finding
    if quiet:
        yield passed(
            "no limit on memory or huge pages in the cgroups that can be seen from here",
            subject=target.subject,
            evidence=(host.evidence(f"{target.proc}/cgroup"),),
        )


def _refuse_partial(host: "Host", cgroup: Cgroup) -> None:
    """A limit that is not shown is not a limit that is not set.

    :raises Missing: a captured tree holds the cgroup without its limits
    """
    if (directory := cgroup.directories.get("memory")) is not None:
        host.read(f"{directory}/memory.limit_in_bytes")
    if (directory := cgroup.directories.get("")) is not None:
        # The first cgroup of a machine has the controller and no limit.
        controllers = host.parse(f"{directory}/cgroup.controllers", parsers.parse_words)
        if "memory" in controllers and directory != cgroup.tops[""]:
            host.read(f"{directory}/memory.max")


class _HugePool(NamedTuple):
    """The machine's pool of one huge page size.

    :ivar size: of a page, in bytes
    :ivar label: the size as cgroup files write it: ``2MB``
    """

    size: int
    pages: int
    label: str

    @property
    def total(self) -> int:
        return self.size * self.pages


def _huge_pools(host: "Host") -> Iterator[_HugePool]:
    folder = "/sys/kernel/mm/hugepages"
    for name in host.optional(host.list, folder) or ():
        try:
            size = parsers.parse_page_size_dir(name)
        except ParseError:
            continue
        pages = host.integer(f"{folder}/{name}/nr_hugepages")
        yield _HugePool(size, pages, f"{page_size_text(size)}B")


def _huge_page_limits(host: "Host", target: Target, cgroup: Cgroup) -> Iterator[Finding]:
    for pool in _huge_pools(host):
        # Reservations have a limit of their own since Linux 5.7: there mmap itself fails.
        for kind, v1 in (("max", "limit_in_bytes"), ("rsvd.max", "rsvd.limit_in_bytes")):
            found = cgroup.limit(
                f"hugetlb.{pool.label}.{kind}", "hugetlb", f"hugetlb.{pool.label}.{v1}"
            )
            if found is not None and pool.pages and found[0] < pool.total:
                yield _huge_page_limit(host, target, pool, *found)
                break


def _huge_page_limit(
    host: "Host", target: Target, pool: _HugePool, limit: int, path: str
) -> Finding:
    subject = f"{target.subject}: {pool.label} pages"
    evidence = (
        host.evidence(path),
        host.evidence(f"/sys/kernel/mm/hugepages/{page_size_folder(pool.size)}/nr_hugepages"),
    )
    text = (
        f"may use {amount(limit)} of the machine's {amount(pool.total)} in {pool.label} pages "
        f"({path.rpartition('/')[2]})"
    )
    wanted = _wants_huge_pages(host, target)
    in_pod = any(runtime.name == "Kubernetes" for runtime in read_runtimes(host, target.proc))
    if (limit and in_pod) or (not limit and not wanted):
        return info(
            text,
            subject=subject,
            cause="That is what it was started with. A larger pool can be mapped and gives SIGBUS "
            "when it is touched.",
            evidence=evidence,
        )
    reserves = "rsvd" in path.rpartition("/")[2]
    return fail(
        f"{text}: {'mmap of a larger pool fails' if reserves else 'a larger pool ends in SIGBUS'}",
        subject=subject,
        cause="The limit acts when pages are reserved, so mmap answers ENOMEM."
        if reserves
        else "The limit acts when a page is touched: mmap succeeds, and the process is killed "
        "by SIGBUS at the first page beyond it.",
        evidence=(*evidence, *(() if limit else (wanted,) if wanted else ())),
        fixes=for_target(host, target, _raise_hugetlb(pool, path)),
    )


def _wants_huge_pages(host: "Host", target: Target) -> Evidence | None:
    """A sign that the process uses huge pages or was given a file system of them."""
    status = host.status(target.proc)
    if status.hugetlb_pages:
        return host.evidence(f"{target.proc}/status", "HugetlbPages")
    path, table = mounts(host, target)
    for mount in table:
        if mount.fstype == "hugetlbfs":
            return Evidence(path, mount_line(mount))
    return None


def _raise_hugetlb(pool: _HugePool, path: str) -> tuple[Fix, ...]:
    gib = amount(pool.total)
    unit = f"hugepages-{page_size_text(pool.size)}i"
    return (
        Fix(
            "kubernetes",
            f"resources: {{limits: {{{unit}: {max(1, pool.total >> 30)}Gi}}}}",
            needs_restart=True,
            persists=True,
        ),
        Fix("any", f"echo {pool.total} > {path}\n# {gib}, the whole pool", needs_root=True),
        Fix("any", "give the engine a pool that fits the limit", needs_restart=True),
    )


def _memory_limit(host: "Host", target: Target, cgroup: Cgroup) -> Iterator[Finding]:
    total = memory_total(host)
    found = cgroup.limit("memory.max", "memory", "memory.limit_in_bytes")
    soft = cgroup.limit("memory.high", "memory", None)
    if soft is not None and (found is None or soft[0] < found[0]):
        yield warn(
            f"memory above {amount(soft[0])} is throttled ({soft[1].rpartition('/')[2]})",
            subject=f"{target.subject}: memory.high",
            cause="Beyond memory.high each allocation waits for reclaim: prefaulting a larger pool "
            "seems to hang.",
            evidence=(host.evidence(soft[1]),),
            fixes=for_target(
                host,
                target,
                (
                    Fix(
                        "systemd",
                        "systemctl set-property UNIT MemoryHigh=infinity",
                        needs_root=True,
                        persists=True,
                    ),
                    Fix("any", f"echo max > {soft[1]}", needs_root=True),
                ),
            ),
        )
    if found is None or (total is not None and found[0] >= total):
        return
    yield _limited_memory(host, target, cgroup, *found)


def _limited_memory(host: "Host", target: Target, cgroup: Cgroup, limit: int, path: str) -> Finding:
    subject = f"{target.subject}: memory"
    evidence = [host.evidence(path)]
    held = _held(host, path)
    if held is not None and held >= _NEARLY * limit:
        return warn(
            f"{amount(held)} of at most {amount(limit)} are in use and cannot be reclaimed",
            subject=subject,
            cause="The next large allocation ends in the cgroup's OOM killer, on a machine with "
            "free memory on every node.",
            evidence=[*evidence, Evidence(_stat(path), f"anonymous and shared: {held} bytes")],
            fixes=for_target(host, target, _raise_memory()),
        )
    swap = _swap_allowed(host, cgroup, limit)
    return info(
        f"memory is limited to {amount(limit)}, whichever node it is on{swap}",
        subject=subject,
        cause="Pages in shared memory and page cache count. A pool must fit the limit and, if it "
        "is bound, the node as well.",
        evidence=evidence,
    )


def _stat(limit_path: str) -> str:
    return f"{limit_path.rpartition('/')[0]}/memory.stat"


def _held(host: "Host", limit_path: str) -> int | None:
    """What the cgroup of that limit holds in anonymous and shared memory, in bytes."""
    try:
        counters = host.parse(_stat(limit_path), parsers.parse_counters)
    except Undecided:
        return None
    # Version 1 adds up its children under total_.
    names = (("anon", "shmem"), ("total_rss", "total_shmem"))
    return next((counters[a] + counters.get(b, 0) for a, b in names if a in counters), None)


def _swap_allowed(host: "Host", cgroup: Cgroup, memory: int) -> str:
    try:
        areas = host.parse("/proc/swaps", parsers.parse_swaps)
        limit = cgroup.limit("memory.swap.max", "memory", "memory.memsw.limit_in_bytes")
    except Undecided:
        return ""
    # Version 1 limits memory and swap together, version 2 swap alone.
    none_left = limit is not None and limit[0] <= (memory if "memsw" in limit[1] else 0)
    if not areas or none_left:
        return ""
    return "; beyond it pages are swapped out before anybody is killed"


def _raise_memory() -> tuple[Fix, ...]:
    return (
        Fix("docker", "docker update --memory SIZE --memory-swap SIZE CONTAINER"),
        Fix("podman", "podman update --memory SIZE CONTAINER"),
        Fix("compose", "mem_limit: SIZE", needs_restart=True, persists=True),
        Fix(
            "kubernetes",
            "resources: {limits: {memory: SIZE}}",
            needs_restart=True,
            persists=True,
        ),
        Fix("slurm", "sbatch --mem=SIZE (or --mem=0 for all of the node)", needs_restart=True),
        Fix(
            "systemd",
            "systemctl set-property UNIT MemoryMax=SIZE",
            needs_root=True,
            persists=True,
        ),
        Fix("any", "give the engine a smaller pool", needs_restart=True),
    )
