"""Devices on the PCI bus as frozen data, and how far two of them are from each other."""

import enum
from collections.abc import Sequence
from typing import NamedTuple


class Step(str, enum.Enum):
    """What told the node of a device, in the order in which it is asked."""

    SYSFS = "sysfs"  # its own numa_node
    BRIDGE = "bridge"  # numa_node of a bridge above it
    ONLY_NODE = "only node"  # the machine has no other
    CPUS = "cpus"  # its local CPUs are all of one node
    DRIVER = "driver"  # what its driver or vendor's library says
    PASTED = "pasted"  # the pasted output of a program
    UNKNOWN = "unknown"  # nothing


class Distance(enum.IntEnum):
    """How far two devices are apart, in the terms of ``nvidia-smi topo -m``; nearest first.

    Source: nvidia-smi(1), topo; nvmlGpuTopologyLevel_t in nvml.h.
    """

    SELF = 0  # the same device
    PIX = 1  # at most one PCIe switch between them
    PXB = 2  # several PCIe switches, no host bridge
    PHB = 3  # one host bridge
    NODE = 4  # host bridges of one node
    SYS = 5  # the link between nodes

    @property
    def label(self) -> str:
        """As nvidia-smi prints it: ``X``, ``PIX``, ``PXB``, ``PHB``, ``NODE``, ``SYS``."""
        return "X" if self is Distance.SELF else self.name


class PcieLink(NamedTuple):
    """The PCI Express link between a device and the port above it. None where it is not told.

    :ivar speed: now, in GT/s; drivers lower it while a device is idle
    :ivar width: lanes in use
    :ivar max_speed: the most the device can, in GT/s
    :ivar max_width: the most lanes the device can use
    :ivar port_speed: the most the port above it can, in GT/s
    :ivar port_width: the most lanes of the port above it
    """

    speed: float | None = None
    width: int | None = None
    max_speed: float | None = None
    max_width: int | None = None
    port_speed: float | None = None
    port_width: int | None = None


class GpuLink(NamedTuple):
    """What joins two GPUs beside PCI Express.

    :ivar kind: ``NVLink`` or ``XGMI``
    :ivar number: NVLinks between the two; None for XGMI, whose links no file counts
    :ivar hops: links in a row on the way; more than 1 only with XGMI
    """

    kind: str
    number: int | None = None
    hops: int = 1

    @property
    def label(self) -> str:
        """As ``nvidia-smi topo -m`` and ``rocm-smi --showtopo`` print it: ``NV18``, ``XGMI``."""
        return self.kind if self.number is None else f"NV{self.number}"


def is_link(relation: str) -> bool:
    """Whether a word for how two GPUs are connected (``GpuLink.label``) is beside PCI Express."""
    return relation == "XGMI" or (relation.startswith("NV") and relation[2:].isdigit())


class Device(NamedTuple):
    """A PCI device that matters for placement.

    :ivar address: sysfs form, ``0000:c1:00.0``; a tool's name for it (``GPU0``) where pasted
        text tells none
    :ivar pci_class: 24-bit class code
    :ivar kind: gpu, accelerator, nic, storage or other
    :ivar node: the node it is attached to, or None when unknown
    :ivar node_source: how ``node`` was found, in words: "sysfs", "parent bridge
        ADDRESS", "only node", "local_cpulist", or why it is unknown
    :ivar names: what the system calls it: eth0, mlx5_0, nvme0, card1, renderD128
    :ivar step: what told its node, as one word
    :ivar path: the root bus and the bridges above it, from the root:
        ``("pci0000:c0", "0000:c0:01.0")``; empty when unknown
    :ivar link: its PCI Express link, or None where sysfs tells nothing of one
    :ivar driver: the bound kernel driver, or ""
    :ivar iommu_group: or None: no IOMMU, or unknown
    :ivar physical_function: the address of the device it is a virtual function of, or ""
    :ivar interfaces: its network interfaces in the network namespace of the reader
    :ivar rdma: its RDMA devices (verbs): mlx5_0
    :ivar model: what its driver calls it, or ""
    :ivar uuid: ``GPU-...`` as the driver tells it, or ""
    :ivar minor: N of /dev/nvidiaN, or None
    :ivar memory_nodes: nodes whose memory is this device's own
    """

    address: str
    pci_class: int
    vendor: int
    device: int
    kind: str
    node: int | None
    node_source: str
    vendor_name: str = ""
    names: tuple[str, ...] = ()
    step: Step = Step.UNKNOWN
    path: tuple[str, ...] = ()
    link: PcieLink | None = None
    driver: str = ""
    iommu_group: int | None = None
    physical_function: str = ""
    interfaces: tuple[str, ...] = ()
    rdma: tuple[str, ...] = ()
    model: str = ""
    uuid: str = ""
    minor: int | None = None
    memory_nodes: tuple[int, ...] = ()


class Interface(NamedTuple):
    """A network interface as one network namespace has it.

    :ivar device: PCI address of the device it belongs to, or "" (veth, bridge, unknown)
    :ivar state: operational state: "up", "down", "unknown", ...
    :ivar kind: kind of a virtual interface ("veth", "bond"), or ""
    :ivar lower: names of the interfaces it is made of: members of a bond, the parent of a VLAN
    :ivar speed: Mbit/s, or None where the driver does not tell
    """

    name: str
    device: str = ""
    state: str = "unknown"
    kind: str = ""
    lower: tuple[str, ...] = ()
    speed: int | None = None


def distance(one: Device, other: Device) -> Distance | None:
    """How far two devices are apart, from the bridges above them and their nodes.

    None where that cannot be told: no bridge or host bridge is shared, and the
    node of one is unknown.
    """
    if one.address == other.address:
        return Distance.SELF
    shared = _shared(one.path, other.path)
    if shared > 1:
        # Behind a switch's upstream port each device has one downstream port at most.
        rest = max(len(one.path), len(other.path)) - shared
        return Distance.PIX if rest <= 1 else Distance.PXB
    if shared == 1:
        return Distance.PHB
    if one.node is None or other.node is None:
        return None
    return Distance.NODE if one.node == other.node else Distance.SYS


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many steps two paths have in common, from the root."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
