"""Distances between nodes: whether they say anything, and whether it can be true."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.checks.topology_nodes import same_place
from numadoctor.engine import Requires, check
from numadoctor.engine.runner import undecided
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Node,
    Target,
    Topology,
    Undecided,
    passed,
    unknown,
    warn,
)
from numadoctor.model.words import count, nodes_text

from ._topology import COMMAND_LINE, NODES, boot_fix, cpu_text, platform_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host

_LOCAL = 10


@check(
    "T005",
    name="distances",
    needs=(f"{NODES}/node*/distance", f"{NODES}/node*/cpumap", COMMAND_LINE),
    requires=Requires.SEVERAL_NODES,
)
def distances(host: "Host", target: Target) -> Iterator[Finding]:
    """The distances between nodes are missing, impossible, or say that all is one place.

    Why it matters
        The kernel orders each node's fallback list by distance: it decides where pages
        go when a node is full, how the scheduler groups CPUs, and which memory counts
        as local. 10 means local; another node is always farther. A node whose distance
        to another is 10 is not another place: nodes that are all 10 apart come from
        numa=fake or from broken firmware tables, and there is nothing to gain from
        placing anything on one of them.

    When it is harmless
        The numbers themselves are relative: 11, 12 or 16 within a package, 20, 21 or 32
        between sockets (32 is usual between two AMD EPYC), 40 or 80 to the memory of a
        GPU. None of them is a fault.

    Fix
        Remove numa=fake from the kernel's command line; update the firmware (ACPI SLIT).
        A virtual machine: give its nodes distances.

            <cell id='0' ...><distances><sibling id='1' value='21'/></distances></cell>

    Source
        ACPI 6.5, 5.2.17 (SLIT); slit_valid() in drivers/acpi/numa/srat.c refuses a table
        whose own node is not 10, or another one not above; node_read_distance() in
        drivers/base/node.c
    """
    topology = host.topology
    unread = [node for node in topology.nodes if not node.distances]
    for node in unread:
        yield _without_distances(host, node)
    if same_place(topology):
        yield _nothing_to_gain(host, topology)
        return
    faults = list(_faults(topology))
    for subject, text, nodes in faults:
        yield warn(
            text,
            subject=subject,
            cause="The order in which the kernel falls back to other nodes, and what it takes for "
            "local, come from this table.",
            evidence=[_distance_of(host, node) for node in nodes],
            fixes=_fixes(host),
        )
    if not faults and not unread:
        remote = {d for n in topology.nodes for other, d in n.distances.items() if other != n.id}
        yield passed(
            f"distances are 10 within a node and {parsers.format_list(remote)} between nodes",
            evidence=[_distance_of(host, node.id) for node in topology.nodes[:2]],
        )


def _distance_of(host: "Host", node: int) -> Evidence:
    return host.evidence(f"{NODES}/node{node}/distance")


def _without_distances(host: "Host", node: Node) -> Finding:
    path = f"{NODES}/node{node.id}/distance"
    subject = f"node {node.id}"
    try:
        columns = host.parse(path, parsers.parse_distance)
    except Undecided as error:
        return undecided(error, subject)
    return unknown(
        f"the distances of node {node.id}: {count(len(columns), 'column')} for "
        f"{count(len(host.topology.nodes), 'online node')}, which is whose cannot be told",
        subject=subject,
        evidence=[host.evidence(path), host.evidence(f"{NODES}/online")],
    )


def _nothing_to_gain(host: "Host", topology: Topology) -> Finding:
    nodes = topology.nodes
    alike = len({node.cpus for node in nodes}) == 1 and bool(nodes[0].cpus)
    with_cpus = f", and all hold the same {cpu_text(nodes[0].cpus)}" if alike else ""
    return warn(
        f"{nodes_text(n.id for n in nodes)} are all at distance 10 from one another{with_cpus}: "
        "fake or broken NUMA, nothing to gain from placement",
        cause="10 is the distance of a node to itself. Either the kernel was told to split its "
        "memory into pretended nodes (numa=fake), or the firmware's tables are wrong.",
        evidence=[
            *(_distance_of(host, node.id) for node in nodes[:2]),
            host.evidence(f"{NODES}/node{nodes[0].id}/cpulist"),
            *((host.evidence(COMMAND_LINE),) if _fakes(host) else ()),
        ],
        fixes=_fixes(host),
    )


def _faults(topology: Topology) -> Iterator[tuple[str, str, list[int]]]:
    """Subject, sentence and nodes for each distance that cannot be."""
    for node in topology.nodes:
        for other, distance in node.distances.items():
            pair = f"nodes {min(node.id, other)} and {max(node.id, other)}"
            if other == node.id:
                if distance != _LOCAL:
                    text = f"node {node.id} is at distance {distance} from itself, not 10"
                    yield f"node {node.id}", text, [node.id]
                continue
            back = _distance(topology, other, node.id)
            if distance <= _LOCAL:
                what = "no farther than a node from itself" if distance == _LOCAL else "below 10"
                text = f"node {node.id} gives node {other} the distance {distance}: {what}"
                yield pair, text, [node.id]
            elif back is not None and back < distance and back > _LOCAL:
                text = (
                    f"node {node.id} is at distance {distance} from node {other}, which is at "
                    f"{back} from node {node.id}"
                )
                yield pair, text, [node.id, other]


def _distance(topology: Topology, node: int, other: int) -> int | None:
    found = topology.node(node)
    return found.distances.get(other) if found else None


def _fakes(host: "Host") -> list[str]:
    """The options on the command line that make the kernel pretend nodes."""
    try:
        options = host.parse(COMMAND_LINE, parsers.parse_command_line)
    except Undecided:
        return []
    return [f"{k}={v}" for k, v in options if k == "numa" and (v or "").startswith("fake")]


def _fixes(host: "Host") -> list[Fix]:
    if fakes := _fakes(host):
        return [boot_fix(f"remove {' '.join(fakes)} from the kernel's command line")]
    sibling = "<cell id='0' ...><distances><sibling id='1' value='21'/></distances></cell>"
    text = "update the firmware: its table of distances (ACPI SLIT) is wrong"
    return list(platform_fixes(host, [text], {"libvirt": sibling}))
