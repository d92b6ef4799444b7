"""The pools of a plan against the memory of each node, before anything starts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Node,
    NodeKind,
    Severity,
    Status,
    Target,
    Undecided,
    fail,
    passed,
    unknown,
    warn,
)
from numadoctor.model.plan import Instance, Plan, PoolPolicy
from numadoctor.model.units import amount, page_size_folder, page_size_text
from numadoctor.model.words import count, nodes_text

from ._expect import PLAN, before_a_start, huge_page_size, machine, stated

if TYPE_CHECKING:
    from numadoctor.host import Host

_NODES = "/sys/devices/system/node"
_FOREIGN = (NodeKind.GPU, NodeKind.CXL)


@check(
    "P051",
    name="planned-memory",
    needs=(PLAN, f"{_NODES}/node*/meminfo", "/proc/meminfo"),
    severity=Severity.HIGH,
)
def planned_memory(host: "Host", target: Target) -> Iterator[Finding]:
    """Whether each node has free or reclaimable memory for the pools that are planned on it.

    Why it matters
        MPOL_BIND does not spill: when the bound nodes are full and nothing can be
        reclaimed, the kernel kills the engine, with half of the machine free. An
        interleaved or preferred pool goes to other nodes instead, without a word. So each
        node is compared by itself; MemAvailable of /proc/meminfo knows no nodes.

    When it is harmless
        Page cache counts as room, and dropping it takes time: prefault gets slower, the
        pages are had. That is a warning, not a failure.

    Fix
        Plan a smaller pool, or more nodes, or free the node first:

            echo 1 > /proc/sys/vm/drop_caches

        What is in page cache (model files) comes back from disk then.

    Source
        mbind(2), MPOL_BIND; mm/oom_kill.c; Documentation/ABI/stable/sysfs-devices-node
    """
    plan = before_a_start(host)
    if isinstance(plan, Finding):
        yield plan
        return
    ordinary = [one for one in plan.instances if _is_ordinary(host, one)]
    needs: dict[int, list[tuple[Instance, int]]] = {}
    for instance in ordinary:
        for node, size in instance.needs.items():
            needs.setdefault(node, []).append((instance, size))
    for node, wanted in sorted(needs.items()):
        yield _room(host, plan, node, wanted)
    placed = [one for one in ordinary if one.needs]
    if any(one.pool_size and not one.needs for one in ordinary):
        yield _room_anywhere(host, plan, [one for one in ordinary if one.pool_size])
    elif placed and all(one.policy is not PoolPolicy.BIND for one in placed):
        # What a node lacks goes to others, if they have it.
        everywhere = _room_anywhere(host, plan, placed)
        if everywhere.status is Status.FAIL:
            yield everywhere


def _is_ordinary(host: "Host", instance: Instance) -> bool:
    try:
        return huge_page_size(host, instance) is None
    except Undecided:
        return False


def _room(host: "Host", plan: Plan, node: int, wanted: list[tuple[Instance, int]]) -> Finding:
    about, path = f"node {node}", f"{_NODES}/node{node}/meminfo"
    size = sum(part for _, part in wanted)
    evidence = [stated(plan, one, "pool_size", "policy", "nodes") for one, _ in wanted[:3]]
    found = host.topology.node(node)
    if found is None or found.memory_bytes == 0:
        have = [node.id for node in host.topology.memory_nodes]
        return fail(
            f"{amount(size)} are planned on node {node}, which "
            + ("is not there" if found is None else "has no memory"),
            subject=about,
            cause=f"The machine has memory on {nodes_text(have)}.",
            evidence=[*evidence, host.evidence(path)],
            fixes=(Fix("any", f"in the plan, nodes: {parsers.format_list(have)}"),),
        )
    evidence.append(host.evidence(path, f"Node {node} MemTotal", f"Node {node} MemFree"))
    if found.kind in _FOREIGN:
        return warn(
            f"{amount(size)} are planned on node {node}, which is {found.kind.value} memory: "
            f"{found.because}",
            subject=about,
            cause="A pool for all GPUs does not belong into the memory of one, or into a slower "
            "tier.",
            evidence=evidence,
            fixes=(Fix("any", f"in the plan, nodes: {_host_nodes(host)}"),),
        )
    room = _room_of(host, found)
    if room is None:
        return unknown(
            f"whether {amount(size)} fit on node {node} cannot be told: what is free is not known",
            subject=about,
            evidence=evidence,
        )
    strict = any(one.policy is PoolPolicy.BIND for one, _ in wanted)
    return _fits(about, size, room, found.free_bytes or 0, strict, evidence)


def _room_of(host: "Host", node: Node) -> int | None:
    """Bytes that a pool can have on a node, also on one that plans are not made for."""
    from numadoctor.planning.machine import free_and_reclaimable

    room = machine(host).room.get(node.id)
    return free_and_reclaimable(host, node) if room is None else room


def _host_nodes(host: "Host") -> str:
    return parsers.format_list(node.id for node in machine(host).memory_nodes)


def _fits(
    about: str, size: int, room: int, free: int, strict: bool, evidence: list[Evidence]
) -> Finding:
    numbers = f"{amount(size)} are planned on {about}: {amount(free)} are free"
    smaller = Fix("any", f"pools of at most {amount(room)} together there, or more nodes")
    if size > room:
        text = f"{numbers}, {amount(room)} with what can be reclaimed"
        if strict:
            return fail(
                text,
                subject=about,
                cause="A bound pool does not go elsewhere: the kernel kills the engine when the "
                "node is used up.",
                evidence=evidence,
                fixes=(smaller, Fix("any", "in the plan, policy: interleave, with more nodes")),
            )
        return warn(
            text,
            subject=about,
            cause="The rest goes to other nodes, without a word.",
            evidence=evidence,
            fixes=(smaller,),
        )
    if size > free:
        return warn(
            f"{numbers}, the rest has to be reclaimed first ({amount(room)} can be had)",
            subject=about,
            cause="Page cache is dropped while the pool is touched: the start takes longer.",
            evidence=evidence,
            fixes=(
                Fix("any", "echo 1 > /proc/sys/vm/drop_caches\n# before the start",
                    needs_root=True),
            ),
        )  # fmt: skip
    return passed(numbers, subject=about, evidence=evidence)


def _room_anywhere(host: "Host", plan: Plan, pools: list[Instance]) -> Finding:
    size = sum(one.pool_size or 0 for one in pools)
    rooms = {node.id: _room_of(host, node) for node in host.topology.memory_nodes}
    evidence = [stated(plan, one, "pool_size", "policy") for one in pools[:3]]
    evidence.append(host.evidence("/proc/meminfo", "MemTotal", "MemAvailable"))
    if any(room is None for room in rooms.values()):
        return unknown(
            f"whether pools of {amount(size)} fit cannot be told: what is free on "
            f"{nodes_text(n for n, room in rooms.items() if room is None)} is not known",
            evidence=evidence,
        )
    room = sum(filter(None, rooms.values()))
    if size <= room:
        return passed(
            f"all pools together are {amount(size)}, and all nodes have {amount(room)}",
            evidence=evidence,
        )
    return fail(
        f"all pools together are {amount(size)}, and all nodes have {amount(room)}: they do not "
        "fit",
        cause="The kernel would kill to make room.",
        evidence=evidence,
        fixes=(Fix("any", f"pools of at most {amount(room)} together"),),
    )


@check(
    "P052",
    name="planned-huge-pages",
    needs=(
        PLAN,
        "/proc/meminfo",
        f"{_NODES}/node*/hugepages/hugepages-*/free_hugepages",
        "/sys/kernel/mm/hugepages/hugepages-*/nr_overcommit_hugepages",
    ),
    severity=Severity.HIGH,
)
def planned_huge_pages(host: "Host", target: Target) -> Iterator[Finding]:
    """Whether each node has the free huge pages that the planned pools take of it.

    Why it matters
        The kernel counts the huge pages of all nodes when memory is mapped: 20 pages that
        are all on node 0 let a pool of 10 on each node be mapped, and the process gets
        SIGBUS when it touches the eleventh on node 1, minutes after the start. Writing the
        common nr_hugepages spreads pages as it likes; only the files of each node say
        where they are.

    When it is harmless
        Pages beyond the pool (nr_overcommit_hugepages) can be taken while memory is touched, if
        they can be had then: told as a warning.

    Fix
        Set each node's pool by itself, best at boot for 1 GiB pages:

            echo 10 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
            hugepagesz=1G hugepages=0:10,1:10

    Source
        Documentation/admin-guide/mm/hugetlbpage.rst; hugetlb_reserve_pages() in mm/hugetlb.c
    """
    plan = before_a_start(host)
    if isinstance(plan, Finding):
        yield plan
        return
    needs: dict[tuple[int, int], int] = {}
    anywhere: dict[int, int] = {}
    shown: list[Evidence] = []
    for instance in plan.instances:
        size = huge_page_size(host, instance)
        if size is None or not instance.pool_size:
            continue
        shown.append(stated(plan, instance, "pool_size", "backing", "page_size", "nodes"))
        for node, part in instance.needs.items():
            needs[node, size] = needs.get((node, size), 0) + -(-part // size)
        if not instance.needs:
            anywhere[size] = anywhere.get(size, 0) + -(-instance.pool_size // size)
    for (node, size), needed in sorted(needs.items()):
        yield _pages(host, node, size, needed, shown[:3])
    for size, needed in sorted(anywhere.items()):
        yield _pages_anywhere(host, size, needed, shown[:3])


def _pages(host: "Host", node: int, size: int, needed: int, shown: list[Evidence]) -> Finding:
    path = f"{_NODES}/node{node}/hugepages/{page_size_folder(size)}"
    about = f"node {node}: {page_size_text(size)}B pages"
    pool = _pool(host, node, size)
    free_path = f"{path}/free_hugepages"
    evidence = [*shown, host.evidence(free_path)]
    if pool is None:
        if host.has(f"{_NODES}/node{node}/hugepages/{page_size_folder(size)}"):
            host.integer(free_path)  # says why it cannot be read
        return fail(
            f"node {node} has no pool of {amount(size)} pages",
            subject=about,
            cause="The kernel or the node does not know this size.",
            evidence=evidence,
            fixes=(Fix("any", "in the plan, a page_size that numadoctor topology -o json lists"),),
        )
    total, free = pool
    text = (
        f"{count(needed, 'page')} of {amount(size)} are planned on node {node}, {free:,} are free"
    )
    if free >= needed:
        return passed(text, subject=about, evidence=evidence)
    command = f"echo {total + needed - free} > {path}/nr_hugepages"
    fixes = (Fix("sysfs", command, needs_root=True),)
    more = _overcommit(host, size)
    if more >= needed - free:
        return warn(
            f"{text}; the rest may be taken as surplus pages",
            subject=about,
            cause="Surplus pages are made while memory is touched: on a fragmented node there are "
            "none, and the process gets SIGBUS.",
            evidence=evidence,
            fixes=fixes,
        )
    return fail(
        text,
        subject=about,
        cause="The mapping succeeds if other nodes have enough, and the process gets SIGBUS when "
        "it touches what this node does not have.",
        evidence=evidence,
        fixes=fixes,
    )


def _pool(host: "Host", node: int, size: int) -> tuple[int, int] | None:
    """Pages in all and free on a node; None where it has no such pool."""
    found = host.topology.node(node)
    pools = found.pools if found else ()
    return next(((p.total, p.free) for p in pools if p.page_size == size), None)


def _overcommit(host: "Host", size: int) -> int:
    path = f"/sys/kernel/mm/hugepages/{page_size_folder(size)}/nr_overcommit_hugepages"
    return host.optional(host.integer, path) or 0


def _pages_anywhere(host: "Host", size: int, needed: int, shown: list[Evidence]) -> Finding:
    pools = {n.id: _pool(host, n.id, size) for n in host.topology.nodes}
    free = {node: pool[1] for node, pool in pools.items() if pool}
    about = f"{page_size_text(size)}B pages"
    told = ", ".join(f"node {node}: {pages:,}" for node, pages in list(free.items())[:8])
    evidence = [*shown, Evidence(f"{_NODES}/node*/hugepages", told or "no pool of this size")]
    text = f"{count(needed, 'page')} of {amount(size)} are planned, {sum(free.values()):,} are free"
    if sum(free.values()) >= needed:
        return passed(text, subject=about, evidence=evidence)
    return fail(
        text,
        subject=about,
        cause="mmap answers ENOMEM, or the process gets SIGBUS when it touches the pool.",
        evidence=evidence,
        fixes=(
            Fix(
                "sysfs",
                f"echo COUNT > {_NODES}/nodeN/hugepages/{page_size_folder(size)}/nr_hugepages",
                needs_root=True,
            ),
        ),
    )
