"""The plan of a deployment against the pools of the processes that run: policy and pages."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.model import (
    Evidence,
    Finding,
    Severity,
    Target,
    Undecided,
    fail,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.placement import Kind, Placement, Policy
from numadoctor.model.plan import Instance, Plan, PoolBacking, PoolPolicy
from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text

from ._expect import (
    NEEDS,
    Assignment,
    assignment,
    huge_page_size,
    in_force,
    named,
    start_fixes,
    stated,
    subject,
)
from ._placement import (
    looked_at,
    name_of,
    pids_of,
    seen,
    spread_text,
    total,
    what,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

_NONE_OF_IT = "none of the examined processes is of this instance"

_KINDS = {
    PoolBacking.PRIVATE: (Kind.ANONYMOUS, Kind.HEAP),
    PoolBacking.SHARED: (Kind.SHARED_ANONYMOUS,),
    PoolBacking.POSIX: (Kind.POSIX,),
    PoolBacking.SYSV: (Kind.SYSV,),
    PoolBacking.MEMFD: (Kind.MEMFD,),
    PoolBacking.HUGETLB: (Kind.HUGETLB,),
}

# What the kernel calls the modes (mpol_to_str() in mm/mempolicy.c).
_MODES = {
    PoolPolicy.LOCAL: ("default", "local"),
    PoolPolicy.PREFERRED: ("prefer", "prefer (many)"),
    PoolPolicy.BIND: ("bind",),
    PoolPolicy.INTERLEAVE: ("interleave",),
    PoolPolicy.WEIGHTED: ("weighted interleave",),
}

_NEEDS = (*NEEDS, "/proc/meminfo")


def _pools(instance: Instance, found: Assignment) -> list[Placement]:
    """The mappings of an instance that its pool is made of, or can be made of."""
    pids = set(found.pids[instance.name])
    kinds = _KINDS.get(instance.backing) if instance.backing else None
    candidates = [
        p
        for p in found.found.placement.mappings
        if pids.intersection(pids_of(p))
        and (p.mapping.kind in kinds if kinds else p.mapping.kind.is_pool)
    ]
    least = threshold("judged-mapping")
    if size := instance.pool_size:
        if whole := [p for p in candidates if (p.mapping.length or p.resident) >= 0.9 * size]:
            return whole
        # Each of several workers may have its part.
        least = min(least, size / 8)
    # A policy for each slab cuts a pool into many mappings.
    groups: dict[object, list[Placement]] = {}
    for p in candidates:
        m = p.mapping
        groups.setdefault((m.kind, m.name, m.device, m.inode), []).append(p)
    return [p for group in groups.values() if total(group) >= least for p in group]


def _nothing(plan: Plan, instance: Instance, about: str) -> Finding:
    kind = instance.backing.value if instance.backing else "its own"
    return unknown(
        f"no memory that could be its pool ({kind}) is resident",
        subject=about,
        cause="The pool is not touched yet, is smaller than planned, or is made of something else.",
        evidence=[stated(plan, instance, "pool_size", "backing")],
    )


@check(
    "P062",
    name="planned-policy-in-force",
    needs=_NEEDS,
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def planned_policy_in_force(host: "Host", target: Target) -> Iterator[Finding]:
    """The memory policy in force on each pool mapping against that of the plan.

    Why it matters
        What is not touched yet goes where the policy says: pages that lie right by chance
        say nothing of those to come, after a restart of a worker or a swap. A policy that
        was asked for and not applied is the commonest fault of all, since engines go on
        without a word.

    When it is harmless
        A cpuset that allows the planned nodes alone holds memory there without any policy:
        that passes for a plan that binds. Interleave over one node is bind.

    Fix
        Start the instance with the policy of the plan:

            numactl --physcpubind=1-7,17-23 --membind=0 COMMAND

    Source
        mbind(2); mpol_to_str() in mm/mempolicy.c; proc_pid_numa_maps(5)
    """
    plan = in_force(host)
    if isinstance(plan, Finding):
        yield plan
        return
    found = assignment(host, plan, looked_at(host, target))
    for instance in plan.instances:
        if instance.policy is not None:
            yield from named(instance, [_policy(host, plan, instance, found)])


def _policy(host: "Host", plan: Plan, instance: Instance, found: Assignment) -> Finding:
    about, pools = f"{subject(instance)}: policy", _pools(instance, found)
    if not found.pids[instance.name]:
        return skip(_NONE_OF_IT, subject=about)
    if not pools:
        return _nothing(plan, instance, about)
    evidence = [stated(plan, instance, "policy", "nodes"), *map(seen, pools[:3])]
    unread = [p for p in pools if p.policy is None or not p.policy.understood or p.policy.cut]
    wrong = [
        p
        for p in pools
        if p not in unread and p.policy and not _agrees(host, instance, p, p.policy)
    ]
    few = threshold("off-node") * total(pools)
    # Of a pool that nothing has touched yet every mapping counts.
    if total(wrong) > few or (wrong and not total(pools)):
        policy = wrong[0].policy
        return fail(
            f"{what(wrong)}: the policy in force is {policy.text if policy else 'unknown'}, "
            f"planned is {_planned(instance)}",
            subject=about,
            cause="What is touched from now on goes where the policy in force says.",
            evidence=[evidence[0], *map(seen, wrong[:3])],
            fixes=start_fixes(instance),
        )
    if total(unread) > few or (unread and not total(pools)):
        return unknown(
            f"{what(unread)}: the policy in force cannot be read",
            subject=about,
            cause="numa_maps tells it: numadoctor check --exact.",
            evidence=evidence,
        )
    told = {p.policy.text for p in pools if p.policy and p not in wrong}
    return passed(
        f"{what(pools)}: {' and '.join(sorted(told))}, as planned", subject=about, evidence=evidence
    )


def _planned(instance: Instance) -> str:
    nodes = f" on {nodes_text(instance.nodes)}" if instance.nodes else ""
    return f"{instance.policy.value if instance.policy else 'none'}{nodes}"


def _agrees(host: "Host", instance: Instance, placement: Placement, policy: Policy) -> bool:
    assert instance.policy is not None
    wanted = set(instance.nodes or ())
    modes: tuple[str, ...] = _MODES[instance.policy]
    if len(wanted) == 1 and instance.policy is not PoolPolicy.LOCAL:
        # On a single node these come to the same.
        modes = (*modes, "bind", "interleave", "weighted interleave")
    if policy.mode in modes:
        return policy.is_default or not wanted or set(policy.nodes) == wanted
    binds = instance.policy is PoolPolicy.BIND or len(wanted) == 1
    return policy.is_default and binds and _held(host, placement, wanted)


def _held(host: "Host", placement: Placement, wanted: set[int]) -> bool:
    """Whether a cpuset keeps the memory of whoever maps it on the planned nodes."""
    for pid in pids_of(placement):
        try:
            allowed = host.status(f"/proc/{pid}").mems_allowed
        except Undecided:
            return False
        online = {node.id for node in host.topology.nodes}
        if allowed is None or not set(allowed) & online <= wanted:
            return False
    return True


@check(
    "P063",
    name="planned-pages",
    needs=_NEEDS,
    requires=Requires.NUMA,
    scope=Scope.PROCESSES,
    severity=Severity.HIGH,
)
def planned_pages(host: "Host", target: Target) -> Iterator[Finding]:
    """The nodes on which the pages of each pool lie, and their size, against the plan.

    Why it matters
        A policy says where pages are to go; where they are is another matter. What was
        touched before the policy was set stays where it is, a full node sends pages
        elsewhere, a preferred node without huge pages gives those of another one. The
        engine was planned for this bandwidth and gets another.

    When it is harmless
        A tenth that lies elsewhere costs a tenth of the difference, and is not told. While
        the pool is filled the shares still change: look again when it is resident.

    Fix
        Start again, with the policy set before the memory is touched:

            numactl --physcpubind=1-7,17-23 --membind=0 COMMAND

        Pages that exist are moved by migratepages(8), at the cost of a stall.

    Source
        mbind(2); numa(7); docs/plan.md
    """
    plan = in_force(host)
    if isinstance(plan, Finding):
        yield plan
        return
    found = assignment(host, plan, looked_at(host, target))
    for instance in plan.instances:
        if instance.nodes or instance.shares or instance.pool_size:
            yield from named(instance, _memory(host, plan, instance, found))


def _memory(host: "Host", plan: Plan, instance: Instance, found: Assignment) -> Iterator[Finding]:
    about, pools = f"{subject(instance)}: pages", _pools(instance, found)
    if not found.pids[instance.name]:
        yield skip(_NONE_OF_IT, subject=about)
    elif not total(pools):
        yield _nothing(plan, instance, about)
    else:
        yield _pages(plan, instance, pools, about)
        yield from _sizes(host, plan, instance, pools)


def _pages(plan: Plan, instance: Instance, pools: list[Placement], about: str) -> Finding:
    nodes = {*(instance.nodes or ()), *instance.shares}
    evidence = [stated(plan, instance, "nodes", "policy", "shares"), *map(seen, pools[:3])]
    size = total(pools)
    if not nodes:
        return passed(f"{what(pools)} resident", subject=about, evidence=evidence)
    away = sum(share.low for p in pools for node, share in p.by_node.items() if node not in nodes)
    worst = max(pools, key=lambda p: sum(s.low for n, s in p.by_node.items() if n not in nodes))
    text = f"{what(pools)}, planned on {nodes_text(nodes)}"
    if away > threshold("off-node") * size:
        make = fail if away > threshold("off-node-most") * size else warn
        if instance.policy is PoolPolicy.BIND:
            make = fail
        return make(
            f"{text}: {100 * away / size:.0f} % lie elsewhere",
            subject=about,
            cause=f"{name_of(worst)}: {spread_text(worst.by_node)}.",
            evidence=[evidence[0], seen(worst)],
            fixes=start_fixes(instance),
        )
    uneven = _uneven(instance, pools, size)
    if uneven:
        return warn(
            f"{text}: {uneven}",
            subject=about,
            cause=f"{name_of(pools[0])}: {spread_text(pools[0].by_node)}; the fullest node sets "
            "the pace.",
            evidence=evidence,
            fixes=start_fixes(instance),
        )
    return passed(f"{text}: they lie there", subject=about, evidence=evidence)


def _uneven(instance: Instance, pools: list[Placement], size: int) -> str:
    """How the shares differ from those that an interleave was to give, or empty."""
    if instance.policy is None or not instance.policy.spreads:
        return ""
    planned = instance.shares or dict.fromkeys(instance.nodes or (), 1)
    whole = sum(planned.values())
    for node, part in sorted(planned.items()):
        wanted = part / whole
        low = sum(p.by_node[node].low for p in pools if node in p.by_node) / size
        high = sum(p.by_node[node].high for p in pools if node in p.by_node) / size
        allowed = threshold("interleave-deviation")
        if low > wanted + allowed or high < wanted - allowed:
            have = 100 * (low + high) / 2
            return f"{have:.0f} % are on node {node}, {100 * wanted:.0f} % were planned"
    return ""


def _sizes(
    host: "Host", plan: Plan, instance: Instance, pools: list[Placement]
) -> Iterator[Finding]:
    """Whether the pool is as large, and made of such pages, as planned."""
    about = f"{subject(instance)}: size"
    evidence = [
        stated(plan, instance, "pool_size", "backing", "page_size"),
        *(Evidence(f"page size of {name_of(p)}", f"{p.page_size} bytes") for p in pools[:2]),
    ]
    size = huge_page_size(host, instance)
    small = [p for p in pools if size and p.page_size != size and not _of_thp(instance, p)]
    if size and small:
        yield fail(
            f"{what(small)}: pages of {amount(small[0].page_size)}, planned are {amount(size)}",
            subject=about,
            cause="Huge pages were not asked for, or not to be had when the pool was made.",
            evidence=evidence,
            fixes=start_fixes(instance),
        )
    if instance.pool_size and total(pools) < 0.9 * instance.pool_size:
        yield unknown(
            f"{amount(total(pools))} of the planned {amount(instance.pool_size)} are resident: "
            "where the rest will be is not known",
            subject=about,
            cause="The pool is still being touched, or is smaller than planned.",
            evidence=evidence,
        )


def _of_thp(instance: Instance, placement: Placement) -> bool:
    """Whether transparent huge pages make up most of it, where the plan does not ask for others."""
    in_thp = placement.thp_bytes or 0
    return instance.backing is not PoolBacking.HUGETLB and 2 * in_thp > placement.resident
