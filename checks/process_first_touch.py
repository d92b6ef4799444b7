"""Pools that nobody placed: the thread that touches a page first decides."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.model import (
    Finding,
    Fix,
    Severity,
    Target,
    Undecided,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.placement import Kind, Placement
from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text
from numadoctor.placement.examination import Examination

from ._placement import (
    EXACT,
    GPUS,
    PLACEMENT,
    THREADS,
    are,
    gpu_nodes,
    host_nodes,
    looked_at,
    node_list,
    off,
    pids_of,
    pools,
    seen,
    spread_text,
    subject_of,
    total,
    what,
)

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "P004",
    name="first-touch-pool",
    needs=(*PLACEMENT, *THREADS, *GPUS),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
    severity=Severity.HIGH,
)
def first_touch_pool(host: "Host", target: Target) -> Iterator[Finding]:
    """A large pool is left to first touch while threads of its processes run on several nodes.

    Why it matters
        Without a policy each page lies on the node of the thread that touched it first.
        Which thread that is, is decided by the scheduler at the moment of the prefault:
        one start puts a third of a KV pool on node 0, the next one three quarters. GPUs
        of the other node then read most of it over the socket link and through one
        memory controller, and a benchmark differs from start to start for no reason
        that anybody can see. An even split by luck is luck.

    When it is harmless
        When all threads may run on one node only, or when nobody but the threads that
        filled it reads the pool: per-thread arenas want first touch, so private memory of
        less than 8 GiB is left alone.

    Fix
        Give the pool a policy before it is touched: MPOL_INTERLEAVE over the nodes of
        its readers for a pool that GPUs of several nodes read, MPOL_BIND for one that
        serves one node. mbind(2) on the pool alone is better than numactl on the
        process, which moves every allocation.

    Source
        set_mempolicy(2), mbind(2); Documentation/admin-guide/mm/numa_memory_policy.rst;
        alloc_pages_mpol() in mm/mempolicy.c
    """
    found = looked_at(host, target)
    large = pools(found, "large-pool")
    if not large:
        yield skip(f"no pool of {amount(int(threshold('large-pool')))} or more")
        return
    groups: dict[tuple[str, frozenset[int], tuple[int, ...]], list[Placement]] = {}
    for placement in large:
        # Blocks of workers that serve GPUs of different nodes are different things.
        key = subject_of(found, placement), _served(found, placement), _held_by(placement)
        groups.setdefault(key, []).append(placement)
    judged = [(key, alike) for key, alike in groups.items() if _is_pool(alike)]
    for (subject, near, _), alike in judged:
        yield _first_touch(found, subject, near, alike)
    if not judged:
        yield skip(
            f"private memory of less than {amount(int(threshold('large-private')))} alone: "
            "whoever touches it uses it"
        )


def _is_pool(alike: list[Placement]) -> bool:
    """Whether it is more than what a thread holds for itself."""
    private = alike[0].mapping.kind in (Kind.ANONYMOUS, Kind.HEAP)
    return not private or total(alike) >= threshold("large-private")


def _served(found: Examination, placement: Placement) -> frozenset[int]:
    """The nodes of the GPUs that read it, as far as that is known."""
    try:
        return gpu_nodes(found, [p for p in pids_of(placement) if p in found.processes])
    except Undecided:
        return frozenset()


def _held_by(placement: Placement) -> tuple[int, ...]:
    """The nodes with a part of it that is worth a word."""
    least = threshold("off-node")
    return tuple(node for node, share in placement.by_node.items() if share.fraction > least)


def _first_touch(
    found: Examination, subject: str, near: frozenset[int], alike: list[Placement]
) -> Finding:
    pids = tuple(dict.fromkeys(pid for p in alike for pid in pids_of(p)))
    evidence = [seen(p) for p in alike[:3]]
    touching = _touching_nodes(found, pids)
    loose = [p for p in alike if p.policy is not None and p.policy.is_default]
    unread = [p for p in alike if p.policy is None and not _is_spread_finely(p)]
    if len(touching) < 2:
        return passed(
            f"{what(alike)}: whoever touches it runs on {nodes_text(touching)}",
            subject=subject,
            evidence=evidence,
        )
    if loose:
        return _left_to_luck(subject, near, loose, touching)
    if unread:
        told = spread_text(unread[0].by_node)
        return unknown(
            f"{what(unread)}: {told}; whether a policy put it there was not read",
            subject=subject,
            cause=f"Its threads run on {nodes_text(touching)}: {EXACT}.",
            evidence=evidence,
        )
    return passed(
        f"{what(alike)} does not depend on who touches it first: {_kept_by(alike[0])}",
        subject=subject,
        evidence=evidence,
    )


def _kept_by(placement: Placement) -> str:
    if placement.policy is not None:
        return f"its policy is {placement.policy.text}"
    return f"it is spread page by page ({spread_text(placement.by_node)})"


def _touching_nodes(found: Examination, pids: tuple[int, ...]) -> list[int]:
    """Host nodes on which threads of these processes may run."""
    nodes = frozenset[int]().union(
        *(found.cpu_nodes(pid) for pid in pids if pid in found.processes)
    )
    return sorted(nodes & host_nodes(found.host))


def _is_spread_finely(placement: Placement) -> bool:
    """Whether its pages alternate between nodes as first touch by large blocks never does."""
    run = placement.run_length
    return run is not None and len(placement.by_node) > 1 and run <= 4 * placement.page_size


def _left_to_luck(
    subject: str, near: frozenset[int], loose: list[Placement], touching: list[int]
) -> Finding:
    spread = spread_text(max(loose, key=lambda p: p.resident).by_node)
    evidence = [seen(p) for p in loose[:3]]
    served = f"GPUs on {nodes_text(sorted(near))} read it. " if near else ""
    message = f"{what(loose)} {are(loose)} left to first touch: {spread}"
    if (
        near
        and max(off(p.by_node, near) for p in loose) <= threshold("off-node")
        and len(near) == 1
    ):
        return info(
            f"{message}, where its GPUs are; nothing keeps it there",
            subject=subject,
            cause=f"Its threads may run on {nodes_text(touching)}: the next start may differ.",
            evidence=evidence,
        )
    return warn(
        message,
        subject=subject,
        cause=f"{served}Its threads may run on {nodes_text(touching)}, and whichever touches a "
        "page first decides: the next start may split it otherwise.",
        evidence=evidence,
        fixes=_interleave_before(sorted(near) if len(near) > 1 else touching),
    )


def _interleave_before(nodes: list[int]) -> tuple[Fix, ...]:
    return (
        Fix("lightllm", "LIGHTLLM_ENABLE_NUMA_INTERLEAVE=1", needs_restart=True),
        Fix(
            "any",
            f"# mbind(pool, MPOL_INTERLEAVE, nodes {node_list(nodes)}) before the prefault",
            needs_restart=True,
        ),
        Fix(
            "numactl",
            f"numactl --interleave={node_list(nodes)} COMMAND\n"
            "# moves every allocation of the process, its GPU buffers too",
            needs_restart=True,
        ),
    )
