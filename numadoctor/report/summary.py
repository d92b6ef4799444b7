"""A machine in a few words: what the text and the picture of a topology begin with."""

from collections.abc import Iterable

from numadoctor.model import Device, NodeKind, Topology
from numadoctor.model.units import amount
from numadoctor.model.words import count

KINDS = {"gpu": "GPU", "accelerator": "accelerator", "nic": "NIC", "storage": "drive"}


def device_counts(devices: Iterable[Device]) -> list[str]:
    """How many devices there are of each kind that is there."""
    kinds = [device.kind for device in devices]
    return [count(n, word) for kind, word in KINDS.items() if (n := kinds.count(kind))]


def cpu_count(topology: Topology) -> str:
    """Number of online CPUs, as far as it is known."""
    unread = any(node.kind is NodeKind.UNKNOWN and not node.cpus for node in topology.nodes)
    if not topology.online_cpus:
        return "CPUs unknown"
    told = count(len(topology.online_cpus), "CPU")
    # Without a list of the CPUs that are online those of some nodes are missing.
    return f"at least {told}" if unread and topology.sources else told


def memory_total(topology: Topology) -> str:
    """Memory of all nodes, as far as it is known."""
    memory = [node.memory_bytes for node in topology.nodes]
    if memory and set(memory) == {None}:
        return "memory unknown"
    total = amount(sum(filter(None, memory)))
    return f"at least {total}" if None in memory else total
