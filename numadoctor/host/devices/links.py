"""Which GPUs are joined beside PCI Express: by NVLink, as NVML tells, or XGMI, as KFD does.

Not part of the topology that every check reads: NVML has to be asked for it,
and takes its time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from numadoctor.host.devices.amd import KfdNode, kfd_nodes
from numadoctor.host.devices.vendors import AMD, NVIDIA
from numadoctor.host.host import Host
from numadoctor.model import Device, Topology, Undecided
from numadoctor.model.device import GpuLink

NVLINK, XGMI = "NVLink", "XGMI"

Pair = tuple[str, str]


class Links(NamedTuple):
    """What is known of links between GPUs.

    :ivar joined: addresses of two GPUs to what joins them, both ways
    :ivar unknown: ``NVLink`` or ``XGMI`` to why it is unknown which GPUs it joins
    """

    joined: Mapping[Pair, GpuLink] = {}
    unknown: Mapping[str, str] = {}

    def between(self, one: Device, other: Device) -> GpuLink | None:
        """What joins two GPUs, or None: nothing, or unknown."""
        return self.joined.get((one.address, other.address))


def read_links(host: Host) -> Links:
    """The links between the GPUs of ``host``; read once for all who ask."""
    return host.derive("gpu links", lambda: _read(host))


def with_links(host: Host) -> Topology:
    """The topology of ``host`` with the links between its GPUs among the relations."""
    links = read_links(host)
    told = {pair: link.label for pair, link in links.joined.items()}
    return host.topology._replace(relations=told, unknown_links=links.unknown)


def several(devices: Iterable[Device], vendor: int) -> list[Device]:
    """The GPUs of a vendor that may be joined: there is another one of their model."""
    gpus = [d for d in devices if _may_be_joined(d) and d.vendor == vendor]
    models = Counter(gpu.device for gpu in gpus)
    return [gpu for gpu in gpus if models[gpu.device] > 1]


def _may_be_joined(device: Device) -> bool:
    return device.kind == "gpu" and not device.physical_function


def _read(host: Host) -> Links:
    joined: dict[Pair, GpuLink] = {}
    unknown: dict[str, str] = {}
    for kind, vendor, read in ((NVLINK, NVIDIA, _nvlinks), (XGMI, AMD, _xgmi)):
        gpus = [gpu.address for gpu in several(host.topology.devices, vendor)]
        if not gpus:
            continue
        try:
            found, reason = read(host, gpus)
        except Undecided as error:
            found, reason = {}, error.reason
        joined |= found
        if reason:
            unknown[kind] = reason
    return Links(joined, unknown)


def _nvlinks(host: Host, gpus: Sequence[str]) -> tuple[dict[Pair, GpuLink], str]:
    """NVLinks between two GPUs, or, through a switch, as many as both have to it."""
    from numadoctor.host.devices.nvml import read_nvml

    known = read_nvml(host)
    ends = {gpu: mine for gpu in gpus if gpu in known and (mine := known[gpu].nvlinks) is not None}
    found = {}
    for one, other in _pairs(tuple(ends)):
        direct = min(ends[one].count(f"gpu {other}"), ends[other].count(f"gpu {one}"))
        switched = min(ends[one].count("switch"), ends[other].count("switch"))
        if number := direct + switched:
            found[one, other] = GpuLink(NVLINK, number)
    lost = [gpu for gpu in gpus if gpu not in ends]
    return found, f"NVML does not tell those of {lost[0]}" if lost else ""


def _xgmi(host: Host, gpus: Sequence[str]) -> tuple[dict[Pair, GpuLink], str]:
    """Pairs that both call a peer."""
    hops, lost = xgmi_hops(host, gpus)
    found = {
        (one, other): GpuLink(XGMI, hops=max(hops[one, other], hops[other, one]))
        for one, other in _pairs(gpus)
        if (one, other) in hops and (other, one) in hops
    }
    return found, f"KFD does not tell those of {lost[0]}" if lost else ""


def xgmi_hops(host: Host, gpus: Sequence[str]) -> tuple[dict[Pair, int], list[str]]:
    """Address of a GPU and of one that XGMI leads to from it, to the hops; and who is not told of.

    A peer that this process may not see has the name of its KFD node in place of an
    address. Partitions of a GPU share its address: the nearest of them counts.
    """
    nodes = kfd_nodes(host)
    by_id = {node.id: node for node in nodes}
    mine = [node for node in nodes if node.address in gpus]
    told = {node.address for node in mine} - {node.address for node in mine if node.unread}
    found: dict[Pair, int] = {}
    for node in mine:
        for peer, hops in _peers(node, by_id):
            pair = node.address, peer
            found[pair] = min(hops, found.get(pair, hops))
    return found, [gpu for gpu in gpus if gpu not in told]


def _peers(node: KfdNode, by_id: Mapping[int, KfdNode]) -> Iterator[tuple[str, int]]:
    for number, hops in node.xgmi:
        peer = by_id.get(number)
        name = f"KFD node {number}" if peer is None else peer.address
        # CPUs have no address: on some boards the way to them is XGMI too.
        if name not in ("", node.address):
            yield name, hops


def _pairs(gpus: Sequence[str]) -> Iterator[Pair]:
    return ((one, other) for one in gpus for other in gpus if one != other)
