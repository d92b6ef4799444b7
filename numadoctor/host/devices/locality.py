"""On which node a PCI device is, and which step of the search told it."""

from collections.abc import Sequence
from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.devices.pci import ADDRESS, PCI, attempt, bridges_above, node_file
from numadoctor.host.host import Host
from numadoctor.model import Missing, Node, Step, Undecided


class Locality(NamedTuple):
    """The node of a device, or None; how that is known, in words; and the step that told it."""

    node: int | None
    source: str
    step: Step


def device_node(host: Host, address: str, nodes: Sequence[Node], vendor: int = 0) -> Locality:
    """The node a PCI device is attached to and how that is known, or None and why not.

    ``numa_node`` is -1 where the firmware told nothing (no _PXM in ACPI): that
    is not node 0. A bridge above the device may know it, or its CPUs tell, or
    its driver.

    :param vendor: whose driver to ask; none is asked for 0
    """
    if not nodes:
        return Locality(None, "the kernel has no NUMA", Step.UNKNOWN)
    try:
        node = host.integer(node_file(address))
        reason = "numa_node is -1, as it is for the bridges above"
    except Missing as error:
        node, reason = -1, f"numa_node: {error.reason}"
    except Undecided as error:
        return Locality(None, f"numa_node: {error.reason}", Step.UNKNOWN)
    if node >= 0:
        return Locality(node, "sysfs", Step.SYSFS)
    return (
        _by_bridge(host, address)
        or _only_node(nodes)
        or _by_cpus(host, address, nodes)
        or _by_driver(host, address, nodes, vendor)
        or Locality(None, reason, Step.UNKNOWN)
    )


def _by_bridge(host: Host, address: str) -> Locality | None:
    for bridge in bridges_above(host, address):
        above = attempt(host.integer, node_file(bridge))
        if above is not None and above >= 0:
            return Locality(above, f"parent bridge {bridge}", Step.BRIDGE)
    return None


def _only_node(nodes: Sequence[Node]) -> Locality | None:
    return Locality(nodes[0].id, "only node", Step.ONLY_NODE) if len(nodes) == 1 else None


def _by_cpus(host: Host, address: str, nodes: Sequence[Node]) -> Locality | None:
    """The one node that has all CPUs the device calls local; None where they are of several.

    All CPUs of the machine say nothing: that is what the kernel prints for a
    device of unknown node (cpumask_of_pcibus()).
    """
    every = {cpu for node in nodes for cpu in node.cpus}
    for name, parser in (("local_cpus", parsers.parse_map), ("local_cpulist", parsers.parse_list)):
        local = set(attempt(host.parse, f"{PCI}/{address}/{name}", parser) or ())
        if not local:
            continue
        near = [node.id for node in nodes if local <= set(node.cpus)]
        if len(near) == 1 and local < every:
            return Locality(near[0], name, Step.CPUS)
        return None
    return None


def _by_driver(host: Host, address: str, nodes: Sequence[Node], vendor: int) -> Locality | None:
    from numadoctor.host.devices import amd, nvml
    from numadoctor.host.devices.vendors import AMD, NVIDIA

    if not ADDRESS.fullmatch(address):
        return None
    if vendor == AMD:
        node, source = amd.node_of(host, address, nodes), "the amdgpu driver (KFD)"
    elif vendor == NVIDIA:
        node, source = nvml.node_of(host, address), "NVML"
    else:
        return None
    return None if node is None else Locality(node, source, Step.DRIVER)
