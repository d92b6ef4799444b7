"""What a process will run into: full nodes, the limit of mappings, swap, migration."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Severity,
    Target,
    fail,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.placement import Kind, Placement
from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text
from numadoctor.placement.examination import Examination

from ._kernel import sysctl_fixes
from ._placement import PLACEMENT, looked_at, name_of, node_list, process_text, unread_policies

if TYPE_CHECKING:
    from numadoctor.host import Host

_NODES = "/sys/devices/system/node"
_MAP_COUNT = "/proc/sys/vm/max_map_count"

# What the kernel frees when it needs to, without writing anything to swap.
_RECLAIMABLE = ("Active(file)", "Inactive(file)", "SReclaimable")


class _Room(NamedTuple):
    """Bytes of some nodes."""

    total: int
    free: int
    reclaimable: int


@check(
    "P016",
    name="room-on-bound-nodes",
    needs=(*PLACEMENT, f"{_NODES}/node*/meminfo"),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
    severity=Severity.HIGH,
)
def room_on_bound_nodes(host: "Host", target: Target) -> Iterator[Finding]:
    """The nodes that memory is bound to have little room for what is still to come.

    Why it matters
        MPOL_BIND does not spill: when the bound nodes are full, the kernel reclaims there,
        and then kills, while other nodes have hundreds of GiB free. MemAvailable counts all
        nodes and so says nothing. Page cache of a model file fills a node without anybody
        noticing; it can be dropped, but by the thread that needs the page, at that moment.

    When it is harmless
        When the pool has been touched already: nothing more is to come.

    Fix
        Make room before the start (drop the page cache, stop who uses the node), bind to
        more nodes, or prefer the node instead of binding to it.

    Source
        set_mempolicy(2), MPOL_BIND; __alloc_pages_slowpath() in mm/page_alloc.c;
        constrained_alloc() in mm/oom_kill.c
    """
    found = looked_at(host, target)
    to_come: dict[tuple[int, ...], list[Placement]] = {}
    for placement in found.placement.mappings:
        if nodes := _bound(found, placement):
            to_come.setdefault(nodes, []).append(placement)
    unread = [p for p in found.placement.mappings if _may_be_bound(p) and not _bound(found, p)]
    yield from unread_policies(unread)
    if not to_come and not unread:
        yield skip("no memory of the processes is bound to nodes")
    for nodes, placements in to_come.items():
        yield _judge_room(found, nodes, placements)


def _bound(found: Examination, placement: Placement) -> tuple[int, ...]:
    """The nodes that a mapping takes its pages from and from no others; none if not bound."""
    mapping = placement.mapping
    policy = placement.policy or found.policy(mapping.pid)
    # Huge pages come from pools of their own; what may not be accessed gets no page.
    if mapping.kind is Kind.HUGETLB or mapping.permissions[:1] == "-":
        return ()
    if not mapping.kind.is_pool or policy is None or policy.mode != "bind" or policy.cut:
        return ()
    # The stack of a thread is mapped as a whole, and stays nearly empty.
    if (mapping.length or placement.resident) < threshold("judged-mapping"):
        return ()
    return policy.nodes


def _may_be_bound(placement: Placement) -> bool:
    """Whether much of it is still to come, and only a walk of page tables would tell where."""
    mapping = placement.mapping
    return (
        placement.policy is None
        and mapping.kind.is_pool
        and mapping.kind is not Kind.HUGETLB
        and mapping.permissions[:1] != "-"
        and (mapping.length or 0) - placement.resident >= threshold("judged-mapping")
    )


def _room(host: "Host", nodes: tuple[int, ...]) -> _Room:
    """What nodes have, from their own meminfo.

    :raises Undecided: one of them does not tell
    """
    totals = [0, 0, 0]
    for node in nodes:
        values = host.parse(f"{_NODES}/node{node}/meminfo", parsers.parse_meminfo)
        totals[0] += values.get("MemTotal", 0)
        totals[1] += values.get("MemFree", 0)
        totals[2] += sum(values.get(name, 0) for name in _RECLAIMABLE)
    return _Room(*totals)


def _judge_room(found: Examination, nodes: tuple[int, ...], placements: list[Placement]) -> Finding:
    room = _room(found.host, nodes)
    coming = sum(max(0, (p.mapping.length or p.resident) - p.resident) for p in placements)
    largest = max(placements, key=lambda p: (p.mapping.length or 0) - p.resident)
    bound = nodes_text(nodes)
    told = f"{bound} {'has' if len(nodes) == 1 else 'have'} {amount(room.free)} free and "
    told += f"{amount(room.reclaimable)} that can be reclaimed"
    evidence = [
        found.host.evidence(
            f"{_NODES}/node{node}/meminfo",
            *(f"Node {node} {name}" for name in ("MemFree", *_RECLAIMABLE)),
        )
        for node in nodes[:3]
    ]
    evidence.append(
        Evidence(
            f"/proc/{largest.mapping.pid}/maps",
            f"{largest.mapping.start:x}: {amount(largest.mapping.length or 0)} mapped, "
            f"{amount(largest.resident)} in memory",
        )
    )
    message = f"{amount(coming)} of bound memory are still to be touched on {bound}; {told}"
    subject = f"memory bound to {bound}"
    if coming > room.free + room.reclaimable:
        return fail(
            message,
            subject=subject,
            cause=f"When it is used up the kernel kills: a policy of bind takes no page from other "
            f"nodes. The most is missing in {name_of(largest)}.",
            evidence=evidence,
            fixes=_make_room(nodes),
        )
    if coming > room.free:
        return warn(
            message,
            subject=subject,
            cause="It fits once page cache is dropped, which the threads that touch it wait for; "
            "other nodes do not help, whatever MemAvailable says.",
            evidence=evidence,
            fixes=_make_room(nodes),
        )
    least = threshold("bound-room") * room.total
    if room.free + room.reclaimable < least:
        return warn(
            f"{told}, and memory is bound there",
            subject=subject,
            cause="The next allocation reclaims, or kills: a policy of bind does not spill.",
            evidence=evidence,
            fixes=_make_room(nodes),
        )
    return passed(f"{told}; {amount(coming)} are to come", subject=subject, evidence=evidence)


def _make_room(nodes: tuple[int, ...]) -> tuple[Fix, ...]:
    return (
        Fix("sysctl", "sysctl -w vm.drop_caches=1", needs_root=True),
        Fix("numactl", f"numactl --preferred={nodes[0]} COMMAND", needs_restart=True),
        Fix("any", f"# a smaller pool, or more nodes than {node_list(nodes)}", needs_restart=True),
    )


@check(
    "P017",
    name="mappings-used",
    needs=(*PLACEMENT, _MAP_COUNT),
    scope=Scope.PROCESSES,
    severity=Severity.HIGH,
)
def mappings_used(host: "Host", target: Target) -> Iterator[Finding]:
    """A process has nearly as many mappings as vm.max_map_count allows.

    Why it matters
        At the limit mmap, mbind, mprotect and the start of a thread fail with ENOMEM while
        memory is free, and the engine's log speaks of "out of memory". Usual causes: one
        mbind for each small slab, which splits the mapping at both ends, and allocators
        that give back memory piece by piece.

    When it is harmless
        Never, near the limit.

    Fix
        One mbind over the whole pool; a larger limit (about 200 bytes of kernel memory
        for each mapping):

            sysctl -w vm.max_map_count=1048576

    Source
        Documentation/admin-guide/sysctl/vm.rst, max_map_count; split_vma() in mm/vma.c
    """
    found = looked_at(host, target)
    limit = host.integer(_MAP_COUNT)
    evidence = [host.evidence(_MAP_COUNT)]
    counted = {p.pid: p.mappings for p in found.processes.values() if p.mappings is not None}
    if not counted:
        yield unknown("how many mappings the processes have is not known", evidence=evidence)
        return
    for pid, number in counted.items():
        used = number / max(1, limit)
        if used <= threshold("mappings-used"):
            continue
        process = found.processes[pid]
        tell = fail if used > threshold("mappings-failing") else warn
        yield tell(
            f"{process_text(found, pid)} has {number:,} mappings of {limit:,} that a process may "
            "have",
            subject=f"process {process.name}" if process.name else "process",
            cause="mmap, mbind and new threads fail with ENOMEM at the limit, whatever memory is "
            "free. One mbind for each slab splits mappings.",
            evidence=[Evidence(f"/proc/{pid}/maps", f"{number} lines"), *evidence],
            fixes=(
                *sysctl_fixes("vm.max_map_count", max(1 << 20, 2 * limit)),
                Fix("any", "# one mbind over the whole pool", needs_restart=True),
            ),
        )
    most = max(counted.values())
    if most <= threshold("mappings-used") * limit:
        yield passed(
            f"{most:,} mappings at the most, of {limit:,} that a process may have",
            evidence=evidence,
        )


@check("P018", name="swapped-memory", needs=PLACEMENT, scope=Scope.PROCESSES)
def swapped_memory(host: "Host", target: Target) -> Iterator[Finding]:
    """Memory of a serving process was swapped out.

    Why it matters
        A page that was swapped out is read from disk by the thread that needs it, and lands on
        the node of that thread, unless a policy says otherwise: the request waits, and the
        placement changes with it. Pools that are bound to a node are swapped out while the
        other nodes have free memory.

    When it is harmless
        A few MiB that were used at the start and never again.

    Fix
        Keep it from being swapped: MemorySwapMax=0 for the unit, vm.swappiness=1, mlock
        (raise MEMLOCK), or huge pages, which are never swapped.

    Source
        proc_pid_status(5), VmSwap; Documentation/admin-guide/cgroup-v2.rst, memory.swap.max
    """
    found = looked_at(host, target)
    told = 0
    shared = [
        p
        for p in found.placement.mappings
        if p.attachers and (p.swapped_bytes or 0) > threshold("swapped")
    ]
    for process in found.processes.values():
        if process.swapped is None or process.swapped <= threshold("swapped"):
            continue
        told += 1
        seen_in = host.evidence(f"/proc/{process.pid}/status", "VmSwap", "VmRSS")
        yield _swapped(process_text(found, process.pid), process.name, process.swapped, seen_in)
    for placement in shared:
        told += 1
        pid, swapped = placement.mapping.pid, placement.swapped_bytes or 0
        name = found.processes[pid].name if pid in found.processes else ""
        seen_in = Evidence(f"pagemap of pid {pid}", f"{amount(swapped)} swapped out")
        yield _swapped(name_of(placement), name, swapped, seen_in)
    known = [p for p in found.processes.values() if p.swapped is not None]
    if not known:
        yield unknown("no process tells what of it is swapped out", subject="processes")
    elif not told:
        yield passed(
            f"{amount(sum(p.swapped or 0 for p in known))} swapped out in all",
            evidence=[host.evidence(f"/proc/{p.pid}/status", "VmSwap") for p in known[:3]],
        )


def _swapped(who: str, name: str, swapped: int, evidence: Evidence) -> Finding:
    return warn(
        f"{amount(swapped)} of {who} are swapped out",
        subject=f"process {name}" if name else "process",
        cause="Whoever needs such a page waits for the disk, and gets it on the node where it "
        "happens to run.",
        evidence=[evidence],
        fixes=(
            Fix(
                "systemd",
                "[Service]\nMemorySwapMax=0",
                needs_root=True,
                needs_restart=True,
                persists=True,
            ),
            Fix("docker", "--memory-swap equal to --memory", needs_restart=True),
            *sysctl_fixes("vm.swappiness", 1),
        ),
    )
