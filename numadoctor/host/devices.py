"""PCI devices that matter for placement: GPUs, accelerators, NICs, drives, and their nodes."""

import posixpath
import re
from collections.abc import Sequence

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import Device, Missing, Node, ParseError, Undecided

PCI = "/sys/bus/pci/devices"
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"

# PCI vendor ids: https://pci-ids.ucw.cz
VENDORS = {
    0x1002: "AMD",
    0x1013: "Cirrus Logic",
    0x102B: "Matrox",
    0x1077: "QLogic",
    0x10DE: "NVIDIA",
    0x10EE: "Xilinx",
    0x1234: "QEMU",
    0x1414: "Microsoft",
    0x1425: "Chelsio",
    0x144D: "Samsung",
    0x14E4: "Broadcom",
    0x15AD: "VMware",
    0x15B3: "Mellanox",
    0x19E5: "Huawei",
    0x1A03: "ASPEED",
    0x1AE0: "Google",
    0x1AF4: "Red Hat (virtio)",
    0x1B36: "Red Hat (QEMU)",
    0x1BCF: "NEC",
    0x1D0F: "Amazon",
    0x1D94: "Hygon",
    0x1D95: "Graphcore",
    0x1DA3: "Habana",
    0x1DE0: "Groq",
    0x1E36: "Enflame",
    0x1E52: "Tenstorrent",
    0x1ED2: "FuriosaAI",
    0x1ED5: "Moore Threads",
    0x8086: "Intel",
    0x80EE: "VirtualBox",
    0xCABC: "Cambricon",
}

# Class 0x0300 is also the small display chip of a server's management controller
# and the emulated one of a virtual machine, which nobody computes with.
_DISPLAY_ONLY = {0x1013, 0x102B, 0x1234, 0x1414, 0x15AD, 0x1A03, 0x1AF4, 0x1B36, 0x80EE}
_DISPLAY_BASE, _VGA = 0x03, 0x0300

# PCI Code and ID Assignment Specification: base class and sub-class to the kind.
# 0x0b40 (co-processor) is what vector engines and QuickAssist carry.
_KINDS_BY_SUBCLASS = {_VGA: "gpu", 0x0302: "gpu", 0x0380: "gpu", 0x0B40: "accelerator"}
_KINDS_BY_BASE = {0x12: "accelerator", 0x02: "nic", 0x01: "storage"}

# AMD's Instinct GPUs since MI300 are processing accelerators by class.
_AMD, _ACCELERATOR = 0x1002, 0x1200

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def device_kind(pci_class: int, vendor: int) -> str:
    """gpu, accelerator, nic, storage or other, from the 24-bit class code."""
    code = pci_class >> 8
    if code == _VGA and vendor in _DISPLAY_ONLY:
        return "other"
    if code == _ACCELERATOR and vendor == _AMD:
        return "gpu"
    return _KINDS_BY_SUBCLASS.get(code) or _KINDS_BY_BASE.get(code >> 8, "other")


def read_devices(host: Host, nodes: Sequence[Node]) -> tuple[Device, ...]:
    """The GPUs, accelerators, NICs and drives on the PCI bus, by address, and display chips.

    Bridges and other parts of the platform are left out. A device whose class
    cannot be read is left out as well: nothing can be said of it.

    :raises Denied: the bus may not be listed
    """
    names = host.optional(host.list, PCI) or ()
    found = (_read_device(host, name, nodes) for name in names if _ADDRESS.fullmatch(name))
    return tuple(device for device in found if device)


def _read_device(host: Host, address: str, nodes: Sequence[Node]) -> Device | None:
    pci_class = _hex(host, address, "class")
    vendor = _hex(host, address, "vendor") or 0
    if pci_class is None:
        return None
    kind = device_kind(pci_class, vendor)
    if kind == "other" and pci_class >> 16 != _DISPLAY_BASE:
        return None
    node, source = device_node(host, address, nodes)
    return Device(
        address=address,
        pci_class=pci_class,
        vendor=vendor,
        device=_hex(host, address, "device") or 0,
        kind=kind,
        node=node,
        node_source=source,
        vendor_name=VENDORS.get(vendor, ""),
        names=_names(host, address),
    )


def device_node(host: Host, address: str, nodes: Sequence[Node]) -> tuple[int | None, str]:
    """The node a PCI device is attached to and how that is known, or None and why not.

    ``numa_node`` is -1 where the firmware told nothing (no _PXM in ACPI): that
    is not node 0. A bridge above the device may know it, or its CPUs tell.
    """
    if not nodes:
        return None, "the kernel has no NUMA"
    try:
        node = host.integer(f"{PCI}/{address}/numa_node")
        reason = "numa_node is -1, as it is for the bridges above"
    except Missing as error:
        node, reason = -1, f"numa_node: {error.reason}"
    except Undecided as error:
        return None, f"numa_node: {error.reason}"
    if node >= 0:
        return node, "sysfs"
    for bridge in _bridges(host, address):
        above = _quiet_integer(host, f"{PCI}/{bridge}/numa_node")
        if above is not None and above >= 0:
            return above, f"parent bridge {bridge}"
    if len(nodes) == 1:
        return nodes[0].id, "only node"
    by_cpus = _node_of_its_cpus(host, address, nodes)
    return (None, reason) if by_cpus is None else by_cpus


def _quiet_integer(host: Host, path: str) -> int | None:
    try:
        return host.integer(path)
    except Undecided:
        return None


def _node_of_its_cpus(host: Host, address: str, nodes: Sequence[Node]) -> tuple[int, str] | None:
    """The one node that has all CPUs the device calls local; None where they are of several."""
    for name, parser in (("local_cpus", parsers.parse_map), ("local_cpulist", parsers.parse_list)):
        try:
            local = set(host.parse(f"{PCI}/{address}/{name}", parser))
        except Undecided:
            continue
        near = [node.id for node in nodes if local and local <= set(node.cpus)]
        return (near[0], name) if len(near) == 1 else None
    return None


def _bridges(host: Host, address: str) -> list[str]:
    """The addresses of the bridges above the device, nearest first."""
    try:
        target = host.link(f"{PCI}/{address}")
    except Undecided:
        return []
    parts = posixpath.normpath(target).split("/")[:-1]
    return [part for part in reversed(parts) if _ADDRESS.fullmatch(part)]


def _hex(host: Host, address: str, name: str) -> int | None:
    try:
        return host.parse(f"{PCI}/{address}/{name}", parsers.parse_hex)
    except Undecided:
        return None


def _names(host: Host, address: str) -> tuple[str, ...]:
    """What the system calls the device: its network interfaces, nvme controllers, DRM nodes."""
    names: list[str] = []
    for folder in ("net", "nvme", "drm", "infiniband", "accel"):
        try:
            names += host.list(f"{PCI}/{address}/{folder}")
        except Undecided:
            continue
    return tuple(names)


def gpu_memory_nodes(host: Host) -> dict[int, str]:
    """Node id to the address of the GPU whose memory it is.

    From the ``numa_status`` files of NVIDIA's driver (kernel module,
    nv-procfs.c), which it writes on machines where GPU memory is coherent.
    """
    try:
        addresses = host.list(NVIDIA_GPUS)
    except Undecided:
        return {}
    nodes = {}
    for name in addresses:
        path = f"{NVIDIA_GPUS}/{name}/numa_status"
        try:
            values = host.parse(path, parsers.parse_key_values)
            nodes[int(values["Node"])] = parsers.parse_bus_id(name)
        except (Undecided, ParseError, KeyError, ValueError):
            continue
    return nodes
