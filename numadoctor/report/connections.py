"""How devices are connected, as words: what the text and the picture of a topology share."""

from numadoctor.model import Device, Distance, Topology, distance
from numadoctor.model.device import is_link

# Nearest first.
WORDS = {
    "X": "itself",
    "NV#": "that many NVLinks",
    "XGMI": "AMD's Infinity Fabric",
    "PIX": "one PCIe switch at most",
    "PXB": "several switches",
    "PHB": "one host bridge",
    "NODE": "one node",
    "PCIE": "PCIe",
    "SYS": "across nodes",
    "?": "unknown",
}

COMPUTING = ("gpu", "accelerator")


def connection(topology: Topology, one: Device, other: Device) -> str:
    """What a vendor's tool calls it, else the distance on the PCI tree; ``?`` where unknown."""
    if one.address == other.address:
        return Distance.SELF.label
    told = topology.relations.get((one.address, other.address))
    apart = None if told else distance(one, other)
    return told or (apart.label if apart is not None else "?")


def word(relation: str) -> str:
    """The key of WORDS that explains ``relation``: NV18 is ``NV#``."""
    return "NV#" if relation != "XGMI" and is_link(relation) else relation


def unknown_links(topology: Topology) -> list[str]:
    """A sentence for each kind of link of which it is unknown what it joins."""
    return [f"{kind}: unknown ({reason})" for kind, reason in topology.unknown_links.items()]


def short_name(device: Device) -> str:
    """What people call the device: mlx5_0, eth0, nvme0; its address where it has no name."""
    return next(iter((*device.rdma, *device.interfaces, *device.names)), device.address)


def by_kind(topology: Topology, *kinds: str) -> list[Device]:
    """The devices of these kinds, without the virtual functions of others."""
    return [d for d in topology.devices if d.kind in kinds and not d.physical_function]
