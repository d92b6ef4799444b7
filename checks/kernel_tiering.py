"""Memory of several speeds: demotion to slower nodes, tiers, interleave weights."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Missing,
    Node,
    NodeKind,
    Target,
    info,
    passed,
    skip,
    warn,
)
from numadoctor.model.words import listed, nodes_text

from ._kernel import MM, absent, names, shows, sysfs_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host

_DEMOTION = f"{MM}/numa/demotion_enabled"
_BALANCING = "/proc/sys/kernel/numa_balancing"
_BALANCING_TIERING = 2
_WEIGHTS = f"{MM}/mempolicy/weighted_interleave"
_TIERS = "/sys/devices/virtual/memory_tiering"
_KINDS = {
    NodeKind.GPU: "GPU memory",
    NodeKind.HBM: "on-package memory",
    NodeKind.CXL: "slower memory",
    NodeKind.MEMORY_ONLY: "memory without CPUs",
}
# The documented name, and what Linux 6.16 calls it where a macro of that name
# got into the way.
_AUTO = ("auto", "__auto_type")


@check(
    "K004",
    name="demotion",
    needs=(_DEMOTION, _BALANCING, f"{_TIERS}/memory_tier*/nodelist"),
    requires=Requires.SEVERAL_NODES,
)
def demotion(host: "Host", target: Target) -> Iterator[Finding]:
    """Reclaim may move cold pages to a slower node instead of freeing page cache.

    Why it matters
        With demotion on, a node that runs short moves its coldest pages to the next
        lower memory tier: CXL or persistent memory, on some machines the memory of a
        GPU. Reclaim looks at physical pages, not at the memory policy of their owner,
        so that a pool which was bound to fast memory may end in slow memory. Nothing
        brings pages back unless NUMA balancing runs in tiering mode
        (kernel.numa_balancing = 2).

    When it is harmless
        On a machine whose memory is all of one tier: there is nowhere to go. And on
        one that was set up for tiering, with promotion on as well.

    Fix
        Switch it off, or switch promotion on as well:

            echo 0 > /sys/kernel/mm/numa/demotion_enabled
            sysctl -w kernel.numa_balancing=2

    Source
        Documentation/ABI/testing/sysfs-kernel-mm-numa, which advises against it where
        cpusets must hold strictly; demote_folio_list() in mm/vmscan.c
    """
    try:
        enabled = host.parse(_DEMOTION, parsers.parse_flag)
    except Missing as error:
        yield absent(host, error, "this kernel does not demote pages to slower memory", MM)
        return
    evidence = [host.evidence(_DEMOTION)]
    if not enabled:
        yield passed("reclaim does not demote pages to slower memory", evidence=evidence)
        return
    targets = _demotion_targets(host)
    if not targets:
        yield info("demotion is on, and there is no lower tier to demote to", evidence=evidence)
        return
    where = listed(map(_described, targets))
    if _promotes(host):
        yield info(
            f"tiering is on: reclaim demotes cold pages to {where}, and hot ones are promoted",
            cause="Reclaim does not ask for the memory policy of a page's owner.",
            evidence=[*evidence, host.evidence(_BALANCING)],
        )
        return
    yield warn(
        f"reclaim demotes cold pages to {where}, and nothing brings them back",
        cause="A pool that was bound to a node loses pages to the lower tier when that node runs "
        "short; reclaim does not ask for the policy.",
        evidence=[*evidence, host.evidence(_BALANCING)],
        fixes=sysfs_fixes(_DEMOTION, 0),
    )


def _promotes(host: "Host") -> bool:
    """Whether hot pages are moved back up.

    :raises Missing: that cannot be told
    """
    try:
        return bool(host.integer(_BALANCING) & _BALANCING_TIERING)
    except Missing as error:
        absent(host, error, "")  # a kernel without balancing promotes nothing
        return False


def _lower_tiers(host: "Host") -> list[Node] | None:
    """The nodes in a lower tier than that of the CPUs; None where the kernel shows no tiers."""
    topology = host.topology
    fast = min((n.tier for n in topology.host_nodes if n.tier is not None), default=None)
    if fast is None:
        return None
    return [n for n in topology.memory_nodes if n.tier is not None and n.tier > fast]


def _demotion_targets(host: "Host") -> list[Node]:
    """Where reclaim may demote to: before Linux 6.1, with no tiers shown, memory without CPUs."""
    lower = _lower_tiers(host)
    if lower is not None:
        return lower
    nodes = host.topology.memory_nodes
    return [n for n in nodes if not n.cpus and n.kind is not NodeKind.HBM]


def _described(node: Node) -> str:
    return f"node {node.id}" + (f" ({_KINDS[node.kind]})" if node.kind in _KINDS else "")


@check(
    "K005",
    name="tiers-and-weights",
    needs=(
        f"{_TIERS}/memory_tier*/nodelist",
        f"{_WEIGHTS}/node*",
        f"{_WEIGHTS}/auto",
        "/sys/kernel/mm/mempolicy/weighted_interleave/__auto_type",
    ),
    requires=Requires.SEVERAL_NODES,
)
def tiers_and_weights(host: "Host", target: Target) -> Iterator[Finding]:
    """Memory tiers, and the weights that weighted interleave gives to each node.

    Why it matters
        A process with the policy MPOL_WEIGHTED_INTERLEAVE (Linux 6.9, numactl
        --weighted-interleave) gets pages from each node in proportion to its weight, 1
        to 255. The weights belong to the machine. Sockets with unequal weights load one
        memory controller more than the other; slower memory with the weight of fast
        memory gets as many pages and sets the pace for all. A weight cannot be 0: GPU
        memory or CXL is kept out of the interleave by the nodemask, not by its weight.

        Since Linux 6.16 the kernel computes the weights from the bandwidth that
        firmware reports, as long as `auto` is true; writing one weight ends that.

    When it is harmless
        For processes that bind, or interleave without weights (MPOL_INTERLEAVE): they
        do not look at the weights.

    Fix
        Give sockets with equal memory the same weight, and others the ratio of their
        bandwidths:

            echo 1 > /sys/kernel/mm/mempolicy/weighted_interleave/node1

    Source
        Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave;
        Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers;
        Documentation/admin-guide/mm/numaperf.rst
    """
    if len(host.topology.tiers) > 1:
        yield _tiers(host)
    yield from _weight_findings(host)


def _tiers(host: "Host") -> Finding:
    tiers = host.topology.tiers
    parts = [
        f"tier {tier} holds {nodes_text(nodes)}" + (" (fastest)" if tier == min(tiers) else "")
        for tier, nodes in tiers.items()
    ]
    return info(
        f"memory has {len(tiers)} tiers: {'; '.join(parts)}",
        subject="tiers",
        cause="An interleave over all nodes mixes them: name the nodes of one tier.",
        evidence=[host.evidence(f"{_TIERS}/memory_tier{tier}/nodelist") for tier in tiers],
    )


def _weight_findings(host: "Host") -> Iterator[Finding]:
    files = names(host, _WEIGHTS)
    weights = {
        node: host.parse(f"{_WEIGHTS}/node{node}", parsers.parse_weight)
        for node in parsers.numbered(files, "node")
    }
    if not weights:
        if not shows(host, MM):
            raise Missing(_WEIGHTS)
        yield skip("this kernel has no weighted interleave", subject="weights")
        return
    auto = next((name for name in _AUTO if name in files), None)
    automatic = auto is not None and host.parse(f"{_WEIGHTS}/{auto}", parsers.parse_flag)
    evidence = [host.evidence(f"{_WEIGHTS}/node{node}") for node in weights]
    if auto is not None:
        evidence.append(host.evidence(f"{_WEIGHTS}/{auto}"))
    yield _weights(host, weights, automatic, evidence)


def _weights(
    host: "Host", weights: dict[int, int], automatic: bool, evidence: list[Evidence]
) -> Finding:
    hosts = {n.id: weights[n.id] for n in host.topology.host_nodes if n.id in weights}
    shown = ", ".join(f"node {node} {weight}" for node, weight in weights.items())
    if len(set(hosts.values())) > 1:
        finding = info if automatic else warn
        return finding(
            f"weighted interleave spreads pages unevenly over the sockets: {shown}"
            + (" (computed from their bandwidths)" if automatic else ""),
            subject="weights",
            cause="One memory controller gets more of the pages and of the accesses.",
            evidence=evidence,
            fixes=tuple(
                fix
                for node, weight in hosts.items()
                if weight != min(hosts.values())
                for fix in sysfs_fixes(f"{_WEIGHTS}/node{node}", min(hosts.values()))
            ),
        )
    heavy = _heavy(host, weights, hosts)
    if heavy:
        share = sum(weights[n.id] for n in heavy) / sum(weights.values())
        kinds = listed(dict.fromkeys(_KINDS[n.kind] for n in heavy if n.kind in _KINDS))
        return info(
            f"weighted interleave over all nodes puts {share:.0%} of the pages on "
            f"{nodes_text(n.id for n in heavy)} ({kinds or 'a lower tier'})",
            subject="weights",
            cause="Each of them weighs as much as a node with CPUs. Name the nodes of the "
            "interleave, or raise the weights of the others.",
            evidence=evidence,
        )
    return passed(
        f"interleave weights: {shown}" + (" (computed by the kernel)" if automatic else ""),
        subject="weights",
        evidence=evidence,
    )


def _heavy(host: "Host", weights: dict[int, int], hosts: dict[int, int]) -> list[Node]:
    """The nodes of other memory than the CPUs' that weigh as much as those."""
    lower = {n.id for n in _lower_tiers(host) or ()}
    return [
        node
        for node in host.topology.memory_nodes
        if (node.id in lower or node.kind in (NodeKind.CXL, NodeKind.GPU))
        and weights.get(node.id, 0) >= max(hosts.values(), default=1)
    ]
