"""Which nodes a pool is spread over, and with which weights."""

from collections.abc import Iterable, Mapping
from functools import reduce
from math import gcd
from typing import NamedTuple

from numadoctor.host import Host
from numadoctor.host.parsers import parse_meminfo, parse_weight
from numadoctor.kernel.nodemask import to_text
from numadoctor.model import Missing, Node, NodeKind, Topology, Undecided

WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"


class NodeSet(NamedTuple):
    """The nodes of a pool.

    :ivar nodes: node ids, ascending; empty on a kernel without NUMA
    :ivar left_out: node id to why it is not among them, for those one might expect
    """

    nodes: tuple[int, ...]
    left_out: Mapping[int, str]


def choose_nodes(topology: Topology, asked: Iterable[int] | None = None) -> NodeSet:
    """The nodes with CPUs and memory that this process may use, or those asked for less the rest.

    Memory of GPUs and of slower tiers is never chosen unless it is asked for.

    :raises ValueError: a node that is asked for does not exist
    """
    if not topology.numa:
        return NodeSet((), {})
    known = {node.id: node for node in topology.nodes}
    wanted = sorted(set(known if asked is None else asked))
    if absent := [node for node in wanted if node not in known]:
        have = to_text(known)
        raise ValueError(f"there is no node {to_text(absent)}: this machine has {have}")
    left_out: dict[int, str] = {}
    for node in wanted:
        if reason := _unfit(known[node], topology, explicit=asked is not None):
            left_out[node] = reason
    return NodeSet(tuple(node for node in wanted if node not in left_out), left_out)


def _unfit(node: Node, topology: Topology, *, explicit: bool) -> str:
    if node.memory_bytes == 0:
        return "it has no memory"
    if topology.allowed.nodes is not None and node.id not in topology.allowed.nodes:
        return f"Mems_allowed_list is {to_text(topology.allowed.nodes)}"
    if not explicit and node.kind is not NodeKind.HOST:
        return f"it is {node.kind.value} memory without CPUs: {node.because}".rstrip(": ")
    return ""


def kernel_weights(host: Host, nodes: Iterable[int]) -> dict[int, int]:
    """The weights that MPOL_WEIGHTED_INTERLEAVE goes by now, node id to pages per round.

    :raises Missing: the kernel has no such policy (before Linux 6.9)
    """
    return {node: host.parse(f"{WEIGHTS}/node{node}", parse_weight) for node in nodes}


def bandwidth_weights(topology: Topology, nodes: Iterable[int]) -> dict[int, int]:
    """Weights in proportion to the read bandwidth that the firmware gives for each node (HMAT).

    The smallest whole numbers of at most 255 that keep the proportions within
    the rounding of a hundredth.

    :raises Missing: a node has no such figure
    """
    rates = {}
    for node_id in nodes:
        node = topology.node(node_id)
        rate = (
            next((i.read_bandwidth for i in node.initiators if i.read_bandwidth), None)
            if node
            else None
        )
        if rate is None:
            path = f"/sys/devices/system/node/node{node_id}/access0/initiators/read_bandwidth"
            raise Missing(path, None, "the firmware gives no bandwidth for this node (no HMAT)")
        rates[node_id] = rate
    return reduce_weights(rates)


def reduce_weights(rates: Mapping[int, int]) -> dict[int, int]:
    """Small whole weights in the proportion of ``rates``, each from 1 to 255."""
    # Of all scales that keep every weight in range, the smallest that is as
    # true as the finest: a round of few pages is spread more evenly than one of many.
    least, most = min(rates.values()), max(rates.values())
    scales = range(1, max(int(255 * least / most), 1) + 1)

    def error(scale: int) -> float:
        weights = _scaled(rates, least, scale)
        return max(abs(weights[n] / scale / (rates[n] / least) - 1) for n in rates)

    best = min(error(scale) for scale in scales)
    scale = next(scale for scale in scales if error(scale) <= best + 0.01)
    weights = _scaled(rates, least, scale)
    divisor = reduce(gcd, weights.values())
    return {node: weight // divisor for node, weight in weights.items()}


def _scaled(rates: Mapping[int, int], least: int, scale: int) -> dict[int, int]:
    return {node: min(max(round(rate / least * scale), 1), 255) for node, rate in rates.items()}


def free_for_bind(host: Host, node: Node) -> int | None:
    """Bytes that a bound allocation can get of a node: free, and page cache that can be dropped.

    MPOL_BIND does not spill to other nodes: when this is used up, the kernel
    reclaims, and then kills. None when it is not known.
    """
    try:
        meminfo = host.parse(f"/sys/devices/system/node/node{node.id}/meminfo", parse_meminfo)
    except Undecided:
        return None
    if "MemFree" not in meminfo:
        return None
    # FilePages counts shared memory too, which cannot be dropped.
    cache = meminfo.get("Active(file)", 0) + meminfo.get("Inactive(file)", 0)
    return meminfo["MemFree"] + cache


__all__ = [
    "WEIGHTS",
    "NodeSet",
    "bandwidth_weights",
    "choose_nodes",
    "free_for_bind",
    "kernel_weights",
    "reduce_weights",
]
