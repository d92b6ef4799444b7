"""NCCL's topology file (``NCCL_TOPO_DUMP_FILE``): nodes, and the PCI devices below each."""

import re
from collections.abc import Iterable

from numadoctor.evidence.pasted import Pasted, PastedDevice, PastedNode, Refused
from numadoctor.host import parsers
from numadoctor.host.devices import device_kind
from numadoctor.host.parsers import NcclDevice, NcclLink, NcclTopology
from numadoctor.model import ParseError
from numadoctor.model.device import GpuLink

FORMAT = "NCCL topology file"
ROOT = "system"

_LINE = re.compile(r"\bline ([0-9]{1,9}), column [0-9]+|\bline ([0-9]{1,9})")
_BRIDGE = 0x06

# More than any machine has, and few enough to look at all pairs.
_MOST_GPUS = 256


def parse(text: str, line: int) -> Pasted:
    """What the document says, which begins at ``line`` of the pasted text.

    :raises Refused: it is no topology of NCCL, cut, or not to be trusted
    """
    try:
        told = parsers.parse_nccl_topology(text.encode("utf-8", "replace"))
    except ParseError as error:
        match = _LINE.search(error.reason)
        at = line + int(match[1] or match[2]) - 1 if match else line
        raise Refused(at, _LINE.sub("", error.reason).strip(" :")) from None
    return Pasted(
        format=FORMAT,
        line=line,
        nodes=_nodes(told, line),
        devices=tuple(
            _device(told, device, line) for device in told.devices if not _is_bridge(device)
        ),
        relations=_relations(told),
    )


def _relations(told: NcclTopology) -> dict[tuple[str, str], str]:
    """NVLinks and XGMI between GPUs that both ends tell, also through a switch (a bridge)."""
    found = {}
    gpus = {device.address: device.links for device in told.devices if device.is_gpu}
    if len(gpus) > _MOST_GPUS:
        return {}
    for one, mine in gpus.items():
        for other, theirs in gpus.items():
            if one == other:
                continue
            ends = ((mine, other), (theirs, one))
            if number := sum(
                min(_number(links, to, switched) for links, to in ends) for switched in (0, 1)
            ):
                found[one, other] = GpuLink("NVLink", number).label
            elif all(any(x.kind == "xgmi" and x.target == to for x in ls) for ls, to in ends):
                found[one, other] = GpuLink("XGMI").label
    return found


def _number(links: Iterable[NcclLink], target: str, switched: int) -> int:
    """How many NVLinks lead to a GPU, or to switches."""
    return sum(
        link.number
        for link in links
        if link.kind == "nvlink"
        and ((link.target_class or 0) >> 16 == _BRIDGE if switched else link.target == target)
    )


def _is_bridge(device: NcclDevice) -> bool:
    return (device.pci_class or 0) >> 16 == _BRIDGE


def _nodes(told: NcclTopology, line: int) -> tuple[PastedNode, ...]:
    found: dict[int, PastedNode] = {}
    for cpu in told.cpus:
        if cpu.node is None:
            continue
        before = found.setdefault(cpu.node, PastedNode(cpu.node, cpu.cpus))
        if before.cpus != cpu.cpus:
            raise Refused(
                line + cpu.line - 1, f"node {cpu.node} stands twice, with other CPUs: one machine?"
            )
    return tuple(found[node] for node in sorted(found))


def _device(told: NcclTopology, device: NcclDevice, line: int) -> PastedDevice:
    cpu = None if device.cpu is None else told.cpus[device.cpu]
    pci_class = device.pci_class or 0
    kind = "gpu" if device.gpu is not None else "nic" if device.nets else ""
    return PastedDevice(
        name=device.address,
        address=device.address,
        kind=kind or device_kind(pci_class, 0),
        line=line + device.line - 1,
        nodes=None if cpu is None or cpu.node is None else (cpu.node,),
        names=device.nets,
        pci_class=pci_class,
        # NCCL leaves the root bus out: one of its own for each CPU would be a guess.
        path=(),
    )
