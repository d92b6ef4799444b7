"""PCI devices that matter for placement: GPUs, accelerators, NICs, drives, and their nodes."""

import posixpath
import re

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import Device, ParseError, Undecided

PCI = "/sys/bus/pci/devices"
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"

# PCI vendor ids: https://pci-ids.ucw.cz
VENDORS = {
    0x10DE: "NVIDIA",
    0x1002: "AMD",
    0x8086: "Intel",
    0x1DA3: "Habana",
    0x19E5: "Huawei",
    0x15B3: "Mellanox",
    0x14E4: "Broadcom",
    0x1077: "QLogic",
    0x1D0F: "Amazon",
    0x1AE0: "Google",
    0x1AF4: "Red Hat (virtio)",
    0x15AD: "VMware",
    0x1234: "QEMU",
    0x144D: "Samsung",
    0x1BCF: "NEC",
    0x1033: "NEC",
    0x1ED5: "Moore Threads",
    0x1EE0: "Cambricon",
    0xCABC: "Cambricon",
    0x1E52: "Tenstorrent",
    0x1EAC: "Graphcore",
}

# Base class 0x03 also holds the small display chip of every server's
# management controller, which nobody computes with.
_MANAGEMENT_VENDORS = {0x1A03: "ASPEED", 0x102B: "Matrox"}

# PCI Code and ID Assignment Specification: base class, or base class and
# sub-class, to the kind. 0x0b40 (co-processor) is what vector engines and
# QuickAssist carry, 0x1200 accelerators proper.
_KINDS_BY_SUBCLASS = {0x0300: "gpu", 0x0302: "gpu", 0x0380: "gpu", 0x0B40: "accelerator"}
_KINDS_BY_BASE = {0x12: "accelerator", 0x02: "nic", 0x01: "storage"}

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def device_kind(pci_class: int, vendor: int) -> str:
    """gpu, accelerator, nic, storage or other, from the 24-bit class code."""
    if pci_class >> 16 == 0x03 and vendor in _MANAGEMENT_VENDORS:
        return "other"
    by_subclass = _KINDS_BY_SUBCLASS.get(pci_class >> 8)
    return by_subclass or _KINDS_BY_BASE.get(pci_class >> 16, "other")


def read_devices(host: Host, nodes: tuple[int, ...]) -> tuple[Device, ...]:
    """The GPUs, accelerators, NICs and drives on the PCI bus, by address.

    Bridges and other parts of the platform are left out. A device whose class
    cannot be read is left out as well: nothing can be said of it.
    """
    try:
        addresses = [name for name in host.list(PCI) if _ADDRESS.fullmatch(name)]
    except Undecided:
        return ()
    devices = []
    for address in addresses:
        try:
            pci_class = host.parse(f"{PCI}/{address}/class", parsers.parse_hex)
        except Undecided:
            continue
        vendor = _hex(host, address, "vendor")
        kind = device_kind(pci_class, vendor)
        if kind == "other" and pci_class >> 16 != 0x03:
            continue
        node, source = device_node(host, address, nodes)
        devices.append(
            Device(
                address=address,
                pci_class=pci_class,
                vendor=vendor,
                device=_hex(host, address, "device"),
                kind=kind,
                node=node,
                node_source=source,
                vendor_name=VENDORS.get(vendor) or _MANAGEMENT_VENDORS.get(vendor, ""),
                names=_names(host, address),
            )
        )
    return tuple(devices)


def device_node(host: Host, address: str, nodes: tuple[int, ...]) -> tuple[int | None, str]:
    """The node a PCI device is attached to and how that is known, or None and why not.

    ``numa_node`` is -1 where the firmware told nothing (no _PXM in ACPI): that
    is not node 0. A bridge above the device may know it.
    """
    try:
        node = host.integer(f"{PCI}/{address}/numa_node")
    except Undecided as error:
        return None, f"numa_node: {error.reason}"
    if node >= 0:
        return node, "sysfs"
    for bridge in _bridges(host, address):
        try:
            above = host.integer(f"{PCI}/{bridge}/numa_node")
        except Undecided:
            continue
        if above >= 0:
            return above, f"parent bridge {bridge}"
    if len(nodes) == 1:
        return nodes[0], "only node"
    return None, "numa_node is -1, and so are its bridges'"


def _bridges(host: Host, address: str) -> list[str]:
    """The addresses of the bridges above the device, nearest first."""
    try:
        target = host.link(f"{PCI}/{address}")
    except Undecided:
        return []
    parts = posixpath.normpath(target).split("/")[:-1]
    return [part for part in reversed(parts) if _ADDRESS.fullmatch(part)]


def _hex(host: Host, address: str, name: str) -> int:
    try:
        return host.parse(f"{PCI}/{address}/{name}", parsers.parse_hex)
    except Undecided:
        return 0


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
