"""What the nodes of GPUs have to offer: memory and CPUs, and alike on all of them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.model import (
    Device,
    Finding,
    Node,
    Severity,
    Target,
    fail,
    info,
    passed,
    skip,
    warn,
)
from numadoctor.model.binding import bind
from numadoctor.model.units import amount
from numadoctor.model.words import count, listed, nodes_text

from ._devices import PCI, gpus, named, nearest_cpu_nodes, node_evidence, unknown_places
from ._topology import NODES, memory_evidence, platform_fixes, unread_nodes

if TYPE_CHECKING:
    from numadoctor.host import Host

# DIMMs of different sizes differ by this much at least.
_UNEVEN = 0.6


@check(
    "G007",
    name="nodes-of-gpus-alike",
    needs=(
        f"{PCI}/*/numa_node",
        f"{NODES}/online",
        f"{NODES}/node*/cpumap",
        f"{NODES}/node*/meminfo",
    ),
    requires=Requires.SEVERAL_NODES,
    severity=Severity.HIGH,
)
def nodes_of_gpus(host: "Host", target: Target) -> Iterator[Finding]:
    """A node with GPUs has no memory or no CPUs, or much less memory than other nodes with GPUs.

    Why it matters
        Host buffers of a GPU belong on its node: NCCL puts them there by sysfs, engines
        bind a worker there. On a node without memory every buffer is remote; on one that
        has half of what the others have, the KV cache in host memory and the buffers of
        as many GPUs run full first, and the group waits for its slowest member.

    When it is harmless
        On machines whose firmware splits a socket into nodes and leaves CPUs out of
        some of them, the nearest node serves nearly as well: that is told as a warning
        for CPUs, never as a failure. GPU memory nodes are not counted.

    Fix
        Memory: fill the slots of both sockets alike; look for DIMMs that the BIOS left
        out. CPUs: a BIOS option that switches cores off, or isolates a socket.

    Source
        NCCL, "Troubleshooting", System memory; Documentation/admin-guide/mm/
        numa_memory_policy.rst; numactl(8), --hardware
    """
    mine = [device for device in gpus(host) if device.node is not None]
    if not gpus(host):
        yield skip("no GPU or accelerator on a PCI bus")
        return
    if not mine:
        yield unknown_places(gpus(host), host, "gpus")
        return
    lost = unread_nodes(host, "whether a GPU has what it needs on", "meminfo", "cpumap")
    yield from lost
    unread = {finding.subject for finding in lost}
    online = {node.id: node for node in host.topology.nodes if f"node {node.id}" not in unread}
    by_node: dict[int, list[Device]] = {}
    for device in mine:
        if device.node in online:
            by_node.setdefault(device.node or 0, []).append(device)
    findings = list(_judge(host, online, by_node))
    yield from findings
    if not findings and by_node:
        yield passed(
            f"{nodes_text(sorted(by_node))} with {count(len(mine), 'GPU')} "
            f"{'has' if len(by_node) == 1 else 'have'} CPUs and memory alike",
            evidence=[memory_evidence(host, online[node]) for node in sorted(by_node)[:4]],
        )


def _judge(
    host: "Host", online: dict[int, Node], by_node: dict[int, list[Device]]
) -> Iterator[Finding]:
    empty = [node for node in by_node if not online[node].has_memory]
    for node in empty:
        yield _without_memory(host, online[node], by_node[node])
    for node, devices in by_node.items():
        if not online[node].cpus:
            yield _without_cpus(host, online[node], devices)
    sizes = {node: online[node].memory_bytes or 0 for node in by_node if node not in empty}
    if sizes and min(sizes.values()) < _UNEVEN * max(sizes.values()):
        yield _uneven(host, online, by_node, sizes)


def _without_memory(host: "Host", node: Node, devices: Sequence[Device]) -> Finding:
    near = sorted(
        (far, other.id)
        for other in host.topology.host_nodes
        if (far := node.distances.get(other.id)) is not None
    )
    where = f"; the nearest memory is on node {near[0][1]}" if near else ""
    return fail(
        f"{named(devices)} {'is' if len(devices) == 1 else 'are'} on node {node.id}, which has no "
        f"memory{where}",
        subject=f"node {node.id}",
        cause="Each host buffer of these GPUs, wherever it is put, is across the link between "
        "nodes.",
        evidence=[memory_evidence(host, node), *(node_evidence(host, d) for d in devices[:3])],
        fixes=platform_fixes(
            host,
            [
                f"put DIMMs into the slots of the socket of node {node.id}; if they are there, "
                "look for interleaving across sockets and for failed DIMMs"
            ],
            {"libvirt": f"<numa> gives <cell id='{node.id}'> no memory: give it its share"},
        ),
    )


def _without_cpus(host: "Host", node: Node, devices: Sequence[Device]) -> Finding:
    near = [n for n in nearest_cpu_nodes(host.topology, node.id) if n != node.id]
    where = f"; the nearest are on {nodes_text(near)}" if near else ""
    return warn(
        f"{named(devices)} {'is' if len(devices) == 1 else 'are'} on node {node.id}, which has no "
        f"CPUs{where}",
        subject=f"node {node.id} CPUs",
        cause="No thread that feeds these GPUs can be local; bind it to the nearest CPUs by "
        "distance, not by index.",
        evidence=[
            host.evidence(f"{NODES}/node{node.id}/cpumap"),
            *(node_evidence(host, device) for device in devices[:3]),
        ],
        fixes=(
            *platform_fixes(
                host,
                ["look for cores that the BIOS switches off, or for an empty socket"],
                {"libvirt": f"<numa> gives <cell id='{node.id}'> no CPUs: give it its share"},
            ),
            *(bind(cpu_nodes=near, by=("numactl",)) if near else ()),
        ),
    )  # fmt: skip


def _uneven(
    host: "Host",
    online: dict[int, Node],
    by_node: dict[int, list[Device]],
    sizes: dict[int, int],
) -> Finding:
    told = [f"node {node}: {amount(size)} for {count(len(by_node[node]), 'GPU')}"
            for node, size in sorted(sizes.items())]  # fmt: skip
    least = [node for node, size in sizes.items() if size < _UNEVEN * max(sizes.values())]
    verdict = warn if len(least) < len(sizes) else info
    return verdict(
        f"the nodes of GPUs differ in memory: {listed(told[:8])}",
        subject="memory of the nodes of GPUs",
        cause=f"What all instances need alike has to fit into {nodes_text(sorted(least))}.",
        evidence=[memory_evidence(host, online[node]) for node in sorted(sizes)[:4]],
        fixes=platform_fixes(
            host,
            ["fill the memory slots of all sockets alike; look for DIMMs that the BIOS left out"],
            {"libvirt": "give the <cell>s of <numa> equal memory"},
        ),
    )
