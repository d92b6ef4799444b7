"""``lstopo --of xml``: the whole machine, in the formats of hwloc 1 and 2.

hwloc gives a node without CPUs the CPUs near it, so that two nodes may have the
same ones; a device has the nodes of the object it hangs below.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from numadoctor.evidence.pasted import Pasted, PastedDevice, PastedNode, Refused
from numadoctor.evidence.xml import Element, read_xml
from numadoctor.host import parsers
from numadoctor.host.devices import device_kind
from numadoctor.model import ParseError

FORMAT = "lstopo --of xml"
ROOT = "topology"

# Subtypes of memory that hangs beside the node with the CPUs (hwloc, linux backend).
_WITHOUT_CPUS = {"HBM", "MCDRAM", "NVM", "NVMDRAM", "GPUMemory", "SPM", "CXL-DRAM", "CXL-NVM"}
_PCI_TYPE = re.compile(r"([0-9a-fA-F]{4})(?: \[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\].*)?")
_BRIDGE_BUSES = re.compile(r"([0-9a-fA-F]{4,8}):\[([0-9a-fA-F]{2})-[0-9a-fA-F]{2}\]")
_SET_WORD = re.compile(r"(?:0x)?([0-9a-fA-F]{1,8})?")
_LATENCY = 4  # HWLOC_DISTANCES_KIND_MEANS_LATENCY (hwloc/distances.h)


def parse(text: str, line: int) -> Pasted:
    """What the document says, which begins at ``line`` of the pasted text.

    :raises Refused: it is no topology, cut, or not to be trusted
    """
    root = read_xml(text, line)
    machine = next((o for o in root.all("object") if o.get("type") in ("Machine", "System")), None)
    if root.tag != ROOT or machine is None:
        raise Refused(root.line, "it holds no machine")
    objects = list(_walk(machine))
    nodes = [element for element, _ in objects if element.get("type") in ("NUMANode", "Node")]
    distances = _distances(root, machine, nodes)
    online = tuple(sorted(_number(e, "os_index") for e, _ in objects if e.get("type") == "PU"))
    allowed = [_set(machine, f"allowed_{kind}") for kind in ("cpuset", "nodeset")]
    told, notes = _nodes(nodes, distances, online)
    return Pasted(
        format=FORMAT,
        line=machine.line,
        nodes=told,
        devices=tuple(_devices(machine, (), None)),
        online=online or None,
        allowed=None if None in allowed else (allowed[0] or (), allowed[1] or ()),
        notes=tuple(notes),
    )


def _walk(element: Element, depth: int = 0) -> Iterator[tuple[Element, int]]:
    yield element, depth
    for child in element.all("object"):
        yield from _walk(child, depth + 1)


def _number(element: Element, name: str) -> int:
    text = element.get(name)
    if not re.fullmatch("[0-9]{1,5}", text):
        raise Refused(element.line, f'{name} "{text[:20]}" is no number')
    return int(text)


def _set(element: Element, name: str) -> tuple[int, ...] | None:
    """The ids in a set of hwloc: words of 32 bits, the highest first, empty ones left out."""
    text = element.get(name)
    if not text or text.startswith("0xf...f"):
        return None
    words = [_SET_WORD.fullmatch(word) for word in text.split(",")]
    if len(words) > parsers.MAX_ID // 32 or None in words:
        raise Refused(element.line, f'{name} "{text[:20]}" is no set')
    digits = "".join((word[1] or "").rjust(8, "0") for word in words if word)
    return parsers.parse_map(digits.encode())


def _info(element: Element, name: str) -> str:
    return next((i.get("value") for i in element.all("info") if i.get("name") == name), "")


def _nodes(
    elements: Sequence[Element], distances: Mapping[int, Mapping[int, int]], online: Sequence[int]
) -> tuple[tuple[PastedNode, ...], list[tuple[int, str]]]:
    found: dict[int, PastedNode] = {}
    special: set[int] = set()
    for element in elements:
        node = _number(element, "os_index")
        if node in found:
            raise Refused(element.line, f"node {node} stands twice")
        cpus, memory = _set(element, "cpuset"), element.get("local_memory")
        subtype = element.get("subtype") or _info(element, "MemoryTier") or _info(element, "Type")
        special |= {node} if subtype in _WITHOUT_CPUS else set()
        found[node] = PastedNode(
            id=node,
            cpus=None if cpus is None else tuple(sorted(set(cpus).intersection(online))),
            memory_bytes=int(memory) if re.fullmatch("[0-9]{1,18}", memory) else None,
            distances=distances.get(node, {}),
            of_gpu=f"hwloc calls it {subtype}" if subtype == "GPUMemory" else "",
        )
    for owners in _shared(found):
        # Where all are of special memory, one of them may have the CPUs all the same.
        for node in special.intersection(owners) if set(owners) - special else ():
            found[node] = found[node]._replace(cpus=())
    notes = []
    if shared := {node for owners in _shared(found) for node in owners}:
        found |= {node: found[node]._replace(cpus=None) for node in shared}
        text = f"nodes {parsers.format_list(shared)} are near the same CPUs: whose they are"
        notes.append((elements[0].line, f"{text} is not told"))
    return tuple(found[node] for node in sorted(found)), notes


def _shared(nodes: Mapping[int, PastedNode]) -> set[tuple[int, ...]]:
    """The groups of nodes that have a CPU in common."""
    owners: dict[int, list[int]] = {}
    for node in nodes.values():
        for cpu in node.cpus or ():
            owners.setdefault(cpu, []).append(node.id)
    return {tuple(ids) for ids in owners.values() if len(ids) > 1}


def _distances(
    root: Element, machine: Element, nodes: Sequence[Element]
) -> dict[int, dict[int, int]]:
    for element in root.all("distances2"):
        kind = element.get("kind")
        latency = element.get("name") == "NUMALatency" or (
            not element.get("name") and kind.isdigit() and int(kind) & _LATENCY
        )
        if element.get("type") == "NUMANode" and latency and element.get("indexing") == "os":
            ids = _figures(element, "indexes")
            return _square(element, ids, _figures(element, "u64values"))
    for element in machine.all("distances"):  # hwloc 1: objects in their order
        if element.get("nbobjs") == str(len(nodes)):
            base = _decimal(element, "latency_base")
            values = [round(_decimal(e, "value") * base) for e in element.all("latency")]
            return _square(element, [_number(node, "os_index") for node in nodes], values)
    return {}


def _decimal(element: Element, name: str) -> float:
    text = element.get(name)
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text):
        raise Refused(element.line, f'{name} "{text[:20]}" is no number')
    return float(text)


def _figures(element: Element, tag: str) -> list[int]:
    words = " ".join(child.text for child in element.all(tag)).split()
    if not all(re.fullmatch("[0-9]{1,9}", word) for word in words):
        raise Refused(element.line, f"the {tag} of the distances are no numbers")
    return [int(word) for word in words]


def _square(
    element: Element, ids: Sequence[int], values: Sequence[int]
) -> dict[int, dict[int, int]]:
    size = len(ids)
    if len(values) != size * size or len(set(ids)) != size:
        raise Refused(element.line, f"{len(values)} distances between {size} nodes")
    return {
        node: dict(zip(ids, values[at * size : (at + 1) * size], strict=True))
        for at, node in enumerate(ids)
    }


def _devices(
    element: Element, path: tuple[str, ...], nodes: tuple[int, ...] | None
) -> Iterator[PastedDevice]:
    """The PCI devices below ``element``.

    :param path: the bridges above it
    :param nodes: those of the nearest object above that has some
    """
    kind = element.get("type")
    if kind == "Bridge":
        path = (*path, _bridge(element))
    elif kind == "PCIDev":
        yield _device(element, path, nodes)
    elif kind not in ("OSDev", "Misc"):
        nodes = _set(element, "nodeset") or nodes
    for child in element.all("object"):
        yield from _devices(child, path, nodes)


def _bridge(element: Element) -> str:
    """The root bus (``pci0000:c0``) or the address of a bridge between buses."""
    if address := element.get("pci_busid"):
        return _address(element, address)
    buses = _BRIDGE_BUSES.fullmatch(element.get("bridge_pci"))
    return f"pci{buses[1]}:{buses[2]}".lower() if buses else "pci?"


def _address(element: Element, text: str) -> str:
    try:
        return parsers.parse_bus_id(text)
    except ParseError as error:
        raise Refused(element.line, str(error)) from None


def _device(element: Element, path: tuple[str, ...], nodes: tuple[int, ...] | None) -> PastedDevice:
    address = _address(element, element.get("pci_busid"))
    ids = _PCI_TYPE.fullmatch(element.get("pci_type"))
    pci_class, vendor, device = (int(part or "0", 16) for part in (ids.groups() if ids else "000"))
    names = [o.get("name") for o, _ in _walk(element) if o.get("type") == "OSDev"]
    return PastedDevice(
        name=address,
        address=address,
        kind=device_kind(pci_class << 8, vendor),
        line=element.line,
        nodes=nodes,
        names=tuple(name for name in names if name),
        pci_class=pci_class << 8,
        vendor=vendor,
        device=device,
        path=path if "pci?" not in path else (),
    )
