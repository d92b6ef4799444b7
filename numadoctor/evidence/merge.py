"""One topology of what several pasted outputs say, beside that of a host or without one.

The host's files win over anything pasted, and what was given first over what
came later; every disagreement is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from numadoctor.evidence.devices import Devices
from numadoctor.evidence.pasted import Pasted, PastedNode
from numadoctor.evidence.recognise import Refusal
from numadoctor.host.topology import classify
from numadoctor.model import Allowed, Node, NodeKind, Remark, Source, Status, Topology
from numadoctor.model.device import is_link
from numadoctor.model.units import amount, id_list

# A kubelet writes one for every subset of the nodes.
_MOST_HINTS = 16

# numactl cuts to whole MiB.
_PRECISION = 1 << 20


class Given(NamedTuple):
    """What was recognised in one file.

    :ivar file: its name, as it was given
    """

    file: str
    pasted: tuple[Pasted, ...]
    refused: tuple[Refusal, ...] = ()


def merge(given: Sequence[Given], host: Topology | None = None) -> Topology:
    """The topology that the outputs tell together.

    :param host: what a host's files tell
    """
    parts = [(source.file, pasted) for source in given for pasted in source.pasted]
    nodes = _Nodes(host)
    devices = Devices(host)
    for file, pasted in parts:
        for node in pasted.nodes:
            nodes.take(file, pasted, node)
    # Those with PCI addresses first: the others are looked up among them.
    for file, pasted in sorted(parts, key=lambda part: not any(d.address for d in part[1].devices)):
        devices.take(file, pasted)
    devices.drop_contradicted()
    nodes.add_of_devices(devices)
    told = nodes.result()
    found = devices.result(told)
    remarks = [
        *(host.remarks if host else ()),
        *(_refusal(source.file, refusal) for source in given for refusal in source.refused),
        *(Remark(f"{f}:{n}", t, Status.INFO) for f, p in parts for n, t in p.notes),
        *nodes.remarks,
        *devices.remarks,
        *_hint_remarks(parts, told),
    ]
    sources = tuple(Source(file, pasted.line, pasted.format) for file, pasted in parts)
    if host is not None:
        return host._replace(
            nodes=told,
            devices=found,
            relations=devices.relations,
            remarks=tuple(remarks),
            sources=sources,
            unknown_links=_still_unknown(host, devices),
        )
    cpus = {cpu for node in told for cpu in node.cpus}
    online = next((pasted.online for _, pasted in parts if pasted.online), tuple(sorted(cpus)))
    return Topology(
        numa=bool(told),
        nodes=told,
        cpus=(),
        online_cpus=online,
        present_cpus=online,
        devices=found,
        allowed=_allowed(parts),
        remarks=tuple(remarks),
        relations=devices.relations,
        sources=sources,
    )


def _refusal(file: str, refusal: Refusal) -> Remark:
    text = f"{refusal.format} is not believed: {refusal.reason}"
    return Remark(f"{file}:{refusal.line}", text, Status.UNKNOWN)


def _still_unknown(host: Topology, devices: Devices) -> dict[str, str]:
    """Kinds of links that the host does not tell, and no pasted output has either."""
    words = {relation for relation in devices.relations.values() if is_link(relation)}
    told = {"XGMI" if word == "XGMI" else "NVLink" for word in words}
    return {kind: why for kind, why in host.unknown_links.items() if kind not in told}


def _hint_remarks(parts: Iterable[tuple[str, Pasted]], nodes: Sequence[Node]) -> list[Remark]:
    """What the masks of hints mean, and which of their nodes have no CPUs to give."""
    without = {node.id for node in nodes if not node.cpus and node.kind is not NodeKind.UNKNOWN}
    remarks = []
    for file, pasted in parts:
        for hint in pasted.hints[:_MOST_HINTS]:
            text = f"hint for {hint.resource}: mask {hint.mask} is nodes {id_list(hint.nodes)}"
            text += "" if hint.preferred else ", not preferred"
            lacking = without.intersection(hint.nodes)
            if lacking:
                text += f"; {id_list(lacking)} of them have no CPUs"
            status = Status.WARN if lacking else Status.INFO
            remarks.append(Remark(f"{file}:{hint.line}", text, status))
        if (more := len(pasted.hints) - _MOST_HINTS) > 0:
            text = f"{more} other hints are left out"
            remarks.append(Remark(f"{file}:{pasted.line}", text, Status.INFO))
    return remarks


def _allowed(parts: Iterable[tuple[str, Pasted]]) -> Allowed:
    for file, pasted in parts:
        if pasted.allowed:
            return Allowed(*pasted.allowed, f"{pasted.format}, {file}:{pasted.line}")
    return Allowed(None, None, "pasted text does not tell")


class _Nodes:
    """Gathers what is said of nodes."""

    def __init__(self, host: Topology | None) -> None:
        self.host = host
        self.found: dict[int, PastedNode] = {}
        self.remarks: list[Remark] = []
        self.origin: dict[tuple[int, str], str] = {}
        for node in host.nodes if host else ():
            self._take_of_host(node)

    def _take_of_host(self, node: Node) -> None:
        unread = node.kind is NodeKind.UNKNOWN and not node.cpus
        self.found[node.id] = PastedNode(
            node.id,
            None if unread else node.cpus,
            node.memory_bytes,
            node.free_bytes,
            node.distances,
        )

    def take(self, file: str, pasted: Pasted, node: PastedNode) -> None:
        """Add what ``pasted`` says of ``node``, and tell where it contradicts what is known."""
        where = f"{file}:{pasted.line}"
        if self.host is not None and self.host.node(node.id) is None:
            text = f"{pasted.format} tells of node {node.id}, which sysfs does not have: left out"
            self.remarks.append(Remark(where, text))
            return
        known = self.found.setdefault(node.id, PastedNode(node.id))
        for name in ("cpus", "memory_bytes", "free_bytes", "distances", "of_gpu"):
            mine, theirs = getattr(known, name), getattr(node, name)
            if theirs in (None, {}, ""):
                continue
            if mine in (None, {}, ""):
                known = known._replace(**{name: theirs})
                self.origin[node.id, name] = f"{pasted.format} ({where})"
            elif told := _difference(name, mine, theirs):
                self._disagree(where, pasted.format, node.id, name, told)
        self.found[node.id] = known

    def _disagree(
        self, where: str, format_: str, node: int, name: str, told: tuple[str, str, str]
    ) -> None:
        what, mine, theirs = told
        other = self.origin.get((node, name), "sysfs")
        text = f"{format_} says that node {node} {what} {theirs}; {other} says {mine}, and is used"
        self.remarks.append(Remark(where, text))

    def add_of_devices(self, devices: Devices) -> None:
        """Add the nodes that are known through devices alone, with the CPUs near those."""
        if self.host is not None:
            return
        for node, cpus in devices.nodes().items():
            if node not in self.found:
                self.found[node] = PastedNode(node, cpus)

    def result(self) -> tuple[Node, ...]:
        if self.host is not None:
            return tuple(_filled(node, self.found[node.id]) for node in self.host.nodes)
        nodes = [_node(self.found[node]) for node in sorted(self.found)]
        of_gpu = {n.id: n.of_gpu for n in self.found.values() if n.of_gpu}
        told = classify(nodes, {}, {}, {})
        return tuple(
            n._replace(kind=NodeKind.GPU, because=of_gpu[n.id]) if n.id in of_gpu else n
            for n in told
        )


def _filled(node: Node, found: PastedNode) -> Node:
    """A node of the host, with what its own files do not tell."""
    return node._replace(
        cpus=node.cpus or found.cpus or (),
        memory_bytes=found.memory_bytes,
        free_bytes=found.free_bytes,
        distances=found.distances,
    )


def _node(found: PastedNode) -> Node:
    missing = [
        name
        for name, value in (("CPUs", found.cpus), ("memory", found.memory_bytes))
        if value is None
    ]
    return Node(
        id=found.id,
        kind=NodeKind.UNKNOWN,
        cpus=found.cpus or (),
        memory_bytes=found.memory_bytes,
        free_bytes=found.free_bytes,
        distances=found.distances,
        because=f"its {' and '.join(missing)} are not told" if missing else "",
    )


def _difference(name: str, mine: object, theirs: object) -> tuple[str, str, str] | None:
    """What differs, and both values, in words; None where they agree."""
    if name == "cpus" and isinstance(mine, tuple) and isinstance(theirs, tuple):
        if set(mine) == set(theirs):
            return None
        return "has CPUs", id_list(mine) or "none", id_list(theirs) or "none"
    if name == "memory_bytes" and isinstance(mine, int) and isinstance(theirs, int):
        if abs(mine - theirs) < _PRECISION:
            return None
        return "has", amount(mine), amount(theirs)
    if name == "distances" and isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        other = [to for to in theirs if to in mine and mine[to] != theirs[to]]
        if not other:
            return None
        to = other[0]
        return f"is at distance (to node {to})", str(mine[to]), str(theirs[to])
    # Free memory changes from one command to the next.
    return None
