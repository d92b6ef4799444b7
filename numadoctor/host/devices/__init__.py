"""PCI devices that matter for placement: GPUs, accelerators, NICs, drives, and their nodes.

Everything works from files of the kernel. What a vendor's library adds is
asked for only where those leave the node of a device open, and by the check
that compares both.
"""

from collections.abc import Sequence

from numadoctor.host.devices.locality import device_node
from numadoctor.host.devices.nvidia import (
    NVIDIA_GPUS,
    Information,
    folders,
    gpu_memory_nodes,
    information,
)
from numadoctor.host.devices.pci import (
    ADDRESS,
    PCI,
    hexadecimal,
    iommu_group,
    link_name,
    names_in,
    path_of,
    read_link,
)
from numadoctor.host.devices.vendors import NVIDIA, device_kind, vendor_name
from numadoctor.host.host import Host
from numadoctor.model import Device, Node

__all__ = ["NVIDIA_GPUS", "PCI", "device_kind", "device_node", "gpu_memory_nodes", "read_devices"]

_DISPLAY_BASE = 0x03

# Folders that name what the system calls a device.
_NAMES = ("net", "nvme", "drm", "infiniband", "accel")


def read_devices(host: Host, nodes: Sequence[Node]) -> tuple[Device, ...]:
    """The GPUs, accelerators, NICs and drives on the PCI bus, by address, and display chips.

    Bridges and other parts of the platform are left out. A device whose class
    cannot be read is left out as well: nothing can be said of it.

    :raises Denied: the bus may not be listed
    """
    names = host.optional(host.list, PCI) or ()
    nvidia = folders(host)
    memory = gpu_memory_nodes(host)
    found = (
        _read_device(host, name, nodes, nvidia, memory) for name in names if ADDRESS.fullmatch(name)
    )
    return tuple(device for device in found if device)


def _names(host: Host, address: str) -> dict[str, tuple[str, ...]]:
    """By folder, what the system calls the device, or the virtio device that it carries."""
    entries = set(names_in(host, address, ""))
    carried = sorted(entry for entry in entries if entry.startswith("virtio"))
    return {
        folder: tuple(
            name
            for place in (folder, *(f"{entry}/{folder}" for entry in carried))
            if place.partition("/")[0] in entries
            for name in names_in(host, address, place)
        )
        for folder in _NAMES
    }


def _read_device(
    host: Host,
    address: str,
    nodes: Sequence[Node],
    nvidia: dict[str, str],
    memory: dict[int, str],
) -> Device | None:
    pci_class = hexadecimal(host, address, "class")
    if pci_class is None:
        return None
    vendor = hexadecimal(host, address, "vendor") or 0
    device = hexadecimal(host, address, "device") or 0
    kind = device_kind(pci_class, vendor, device)
    if kind == "other" and pci_class >> 16 != _DISPLAY_BASE:
        return None
    place = device_node(host, address, nodes, vendor)
    path = path_of(host, address)
    names = _names(host, address)
    of_driver = Information()
    if vendor == NVIDIA and address in nvidia:
        of_driver = information(host, nvidia[address])
    return Device(
        address=address,
        pci_class=pci_class,
        vendor=vendor,
        device=device,
        kind=kind,
        node=place.node,
        node_source=place.source,
        vendor_name=vendor_name(vendor),
        names=tuple(name for folder in _NAMES for name in names[folder]),
        step=place.step,
        path=path,
        link=read_link(host, address, path),
        driver=link_name(host, address, "driver"),
        iommu_group=iommu_group(host, address),
        physical_function=link_name(host, address, "physfn"),
        interfaces=names["net"],
        rdma=names["infiniband"],
        model=of_driver.model,
        uuid=of_driver.uuid,
        minor=of_driver.minor,
        memory_nodes=tuple(sorted(node for node, owner in memory.items() if owner == address)),
    )
