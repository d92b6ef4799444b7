"""Tells why an instance is planned as it is, what was given up, and what was assumed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from numadoctor.kernel.nodemask import to_text
from numadoctor.model import Device, distance
from numadoctor.model.device import Distance, GpuLink, Step
from numadoctor.model.plan import Instance, PoolPolicy
from numadoctor.model.units import amount
from numadoctor.model.words import cpus_text, nodes_text
from numadoctor.planning.machine import Machine


class Story(NamedTuple):
    """An instance, and what it was chosen from.

    :ivar pool_size: that was asked for, in bytes
    :ivar homes: the memory nodes near to its GPUs
    :ivar nics: those it gets
    :ivar given: its GPUs were asked for
    """

    machine: Machine
    pool_size: int
    instance: Instance
    gpus: tuple[Device, ...]
    homes: tuple[int, ...]
    nics: tuple[Device, ...]
    given: bool

    @property
    def nodes(self) -> tuple[int, ...]:
        return self.instance.nodes or ()

    @property
    def gpu_nodes(self) -> list[int]:
        return sorted({gpu.node for gpu in self.gpus if gpu.node is not None})

    @property
    def unknown(self) -> list[Device]:
        return [gpu for gpu in self.gpus if gpu.node is None]


def why(story: Story) -> Iterator[str]:
    """A sentence for each choice."""
    if story.gpus:
        yield _gpus(story)
        yield from _derived(story)
    yield _memory(story)
    yield _cpus(story)
    if story.nics:
        yield _nics(story)


def _indices(story: Story, gpus: Iterable[Device]) -> str:
    places = [story.machine.gpus.index(gpu) for gpu in gpus if gpu in story.machine.gpus]
    return f"GPU{'' if len(places) == 1 else 's'} {to_text(places)}"


def _gpus(story: Story) -> str:
    what = ", asked for" if story.given else ""
    where = ", ".join(
        f"{_indices(story, [g for g in story.gpus if g.node == node])} on node {node}"
        for node in story.gpu_nodes
    )
    if story.unknown:
        lost = f"{_indices(story, story.unknown)} on an unknown node"
        where = f"{where}, {lost}" if where else lost
    reason = ""
    if len(story.gpus) > 1 and not story.unknown and len(story.gpu_nodes) == 1:
        reason = ": all on one node"
        if _worst(story.gpus) in (Distance.PIX, Distance.PXB, Distance.PHB):
            reason += ", behind one host bridge"
    joined, apart = _linked(story)
    if joined and not apart:
        words = sorted({link.label for _, _, link in joined})
        reason += f"{',' if reason else ':'} each joined to each other ({', '.join(words)})"
    return f"{where}{what}{reason}"


def _linked(
    story: Story,
) -> tuple[list[tuple[Device, Device, GpuLink]], list[tuple[Device, Device]]]:
    """Pairs of its GPUs that a link beside PCI Express joins, and pairs that none joins."""
    joined, apart = [], []
    for at, one in enumerate(story.gpus):
        for other in story.gpus[at + 1 :]:
            if link := story.machine.links.between(one, other):
                joined.append((one, other, link))
            else:
                apart.append((one, other))
    return joined, apart


def _derived(story: Story) -> Iterator[str]:
    """Nodes that the GPUs themselves do not tell, and how they are known."""
    certain = (Step.SYSFS, Step.ONLY_NODE)
    derived: dict[str, list[Device]] = {}
    for gpu in story.gpus:
        if gpu.node is not None and gpu.step not in certain:
            derived.setdefault(gpu.node_source, []).append(gpu)
    for source, gpus in derived.items():
        yield f"the node of {_indices(story, gpus)} is derived: {source}"


def _worst(gpus: Sequence[Device]) -> Distance | None:
    pairs = [distance(a, b) for at, a in enumerate(gpus) for b in gpus[at + 1 :]]
    return None if None in pairs else max((d for d in pairs if d is not None), default=None)


def _memory(story: Story) -> str:
    policy, nodes = story.instance.policy, nodes_text(story.nodes)
    size = f"{amount(story.pool_size)} of pool" if story.pool_size else "memory"
    if policy is PoolPolicy.BIND:
        near = story.gpu_nodes and set(story.gpu_nodes) <= set(story.nodes) and not story.unknown
        reason = ", and its GPUs read it without crossing a link" if near else ""
        return f"{size} bound to {nodes}: it fits there{reason}"
    if policy is PoolPolicy.INTERLEAVE:
        if len(story.nodes) == 1:
            return f"{size} interleaved over {nodes} alone: there are its GPUs, and it fits"
        return f"{size} interleaved over {nodes}: each gives its bandwidth"
    if policy is PoolPolicy.WEIGHTED:
        return f"{size} interleaved over {nodes} by the kernel's weights"
    if policy is PoolPolicy.PREFERRED:
        return f"{size} preferred on {nodes}; when it is full the rest goes elsewhere"
    return f"{size} left to first touch: on {nodes} as long as its CPUs touch it first"


def _cpus(story: Story) -> str:
    cpus = story.instance.cpus or ()
    by_node = {
        node: sum(set(core.cpus) <= set(cpus) for core in cores)
        for node, cores in story.machine.cores.items()
    }
    by_node = {node: count for node, count in by_node.items() if count}
    parts = ", ".join(f"{count} of node {node}" for node, count in by_node.items())
    if len(by_node) > 2 and len(set(by_node.values())) == 1:
        parts = f"{next(iter(by_node.values()))} of each of {nodes_text(by_node)}"
    threads = any(len(core.cpus) > 1 for cores in story.machine.cores.values() for core in cores)
    cut = set(story.machine.cut_nodes).intersection(by_node)
    whole = "whole cores with their siblings" if threads and not cut else "cores"
    return f"{cpus_text(cpus)}: {whole} ({parts})"


def _nics(story: Story) -> str:
    names = ", ".join(story.instance.nics or ())
    one = len(story.nics) == 1
    return (
        f"{names}: the nearest NIC{'' if one else 's'} on the node{'' if one else 's'} of its GPUs"
    )


def given_up(story: Story) -> Iterator[str]:
    """What is less than ideal."""
    yield from _unjoined(story)
    yield from _spanning(story)
    yield from _remote_memory(story)
    yield from _far_cpus(story)
    yield from _without_nic(story)
    yield from _left_memory(story)


def _unjoined(story: Story) -> Iterator[str]:
    """Pairs without a link, on a machine where others have one."""
    joined, apart = _linked(story)
    elsewhere = _linked(story._replace(gpus=story.machine.gpus))[0]
    if not elsewhere or not apart:
        return
    one, other, link = (joined or elsewhere)[0]
    example = f"{_indices(story, (one, other))} are ({link.label})"
    pairs = len(apart) + len(joined)
    if pairs == 1:
        told = f"{_indices(story, story.gpus)} are not joined by {link.kind}"
    else:
        told = f"{len(apart)} of {pairs} pairs of its GPUs are not joined by {link.kind}"
    yield f"{told}, as {example}: what they exchange goes over PCI Express"


def _spanning(story: Story) -> Iterator[str]:
    counts = Counter(gpu.node for gpu in story.gpus if gpu.node is not None)
    if len(counts) < 2:
        return
    nodes = sorted(counts)
    far = max(story.machine.distance(a, b) for a in nodes for b in nodes)
    if len(set(counts.values())) == 1:
        split = f"{counts[nodes[0]]} on each of {nodes_text(nodes)}"
    else:
        split = " and ".join(f"{counts[node]} on node {node}" for node in nodes)
    per_node = Counter(gpu.node for gpu in story.machine.gpus if gpu.node is not None)
    most = max(per_node.values())
    because = "as asked" if story.given else (
        f"no node has {len(story.gpus)} GPUs" if most < len(story.gpus)
        else "the other instances need the rest"
    )  # fmt: skip
    joined, apart = _linked(story)
    effect = (
        "their host memory, CPUs and NICs are apart, though what they exchange is not"
        if joined and not apart
        else "what they exchange without NVLink or xGMI goes over the link between nodes"
    )
    yield f"its GPUs are {split} (distance {far}; {because}): {effect}"


def _remote_memory(story: Story) -> Iterator[str]:
    homes, nodes = set(story.homes), set(story.nodes)
    if story.pool_size and (away := sorted(nodes - homes)):
        needs = story.instance.needs
        part = sum(needs.get(node, 0) for node in away)
        told = f"{100 * part / story.pool_size:.0f} % of the pool is on {nodes_text(away)}"
        room = ", ".join(
            f"node {node} has {amount(have)}"
            for node in sorted(homes)
            if (have := story.machine.room.get(node)) is not None
        )
        yield f"{told}, away from its GPUs: {room} for pools"
    if story.pool_size and (lost := sorted(homes - nodes)) and homes & nodes:
        yield f"the pool leaves out {nodes_text(lost)}, which has no room for its share"
    for node in story.gpu_nodes:
        if node in story.machine.left_out:
            near = story.machine.nearest(node, story.homes)
            far = story.machine.distance(node, near[0]) if near else 0
            yield (
                f"no pool goes to node {node}, where its GPUs are ({story.machine.left_out[node]}):"
                f" the nearest memory is on {nodes_text(near)} (distance {far})"
            )


def _far_cpus(story: Story) -> Iterator[str]:
    for node in story.gpu_nodes:
        if node not in story.machine.cores:
            near = story.machine.nearest(node, story.machine.cores)
            yield (
                f"node {node} of its GPUs has no CPU that may be used: CPUs of "
                f"{nodes_text(near)} serve them"
            )


def _without_nic(story: Story) -> Iterator[str]:
    if not story.machine.nics:
        return
    lost = [
        gpu
        for gpu in story.gpus
        if gpu.node is not None
        and not any(
            (d := distance(gpu, nic)) is not None and d <= Distance.NODE
            for nic in story.machine.nics
        )
    ]
    if lost:
        yield (
            f"no NIC is on the node of {_indices(story, lost)}: its traffic to other machines "
            "crosses the link between nodes"
        )


def _left_memory(story: Story) -> Iterator[str]:
    if not story.pool_size:
        return
    for node in story.machine.topology.nodes:
        if node.kind.value == "hbm" and node.id in story.machine.left_out:
            near = story.machine.nearest(node.id, story.nodes)
            if near and story.machine.distance(node.id, near[0]) < story.machine.far:
                yield (
                    f"node {node.id} ({amount(node.memory_bytes or 0)} on the package of "
                    f"{nodes_text(near)}) is left out: name it in a plan of your own to use it"
                )


def assumed(story: Story) -> Iterator[str]:
    """What is not known and was taken for something."""
    by_reason: dict[str, list[Device]] = {}
    for gpu in story.unknown:
        by_reason.setdefault(gpu.node_source, []).append(gpu)
    for reason, gpus in by_reason.items():
        yield (
            f"the node of {_indices(story, gpus)} is unknown ({reason}): it may be any, so memory "
            "and CPUs are of all nodes, in equal parts"
        )
