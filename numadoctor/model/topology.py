"""The machine as frozen data: nodes, CPUs, distances, tiers, devices, and what may be used."""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from numadoctor.model.device import Device
from numadoctor.model.finding import Status


class NodeKind(str, enum.Enum):
    """What a node is made of.

    The kernel says only whether a node has CPUs and whether it has memory; the
    finer kinds come from the GPU driver, the memory tiers and the distances.
    """

    HOST = "host"  # CPUs and memory
    CPU_ONLY = "cpu-only"  # CPUs, no memory
    GPU = "gpu"  # memory of a GPU, exposed as a node by its driver
    HBM = "hbm"  # high-bandwidth memory on the CPU package
    CXL = "cxl"  # slower memory: CXL, persistent memory, any lower tier
    MEMORY_ONLY = "memory-only"  # memory without CPUs that nothing identifies further
    EMPTY = "empty"  # neither CPUs nor memory
    UNKNOWN = "unknown"  # its memory could not be read


class Pool(NamedTuple):
    """Huge pages of one size on one node (or on the machine). Counts of pages.

    :ivar page_size: bytes
    """

    page_size: int
    total: int
    free: int
    surplus: int = 0


class Initiator(NamedTuple):
    """The best-case figures from one access class of a memory node (HMAT).

    Source: Documentation/admin-guide/mm/numaperf.rst. Bandwidths in MiB/s,
    latencies in nanoseconds; None where the platform reports none.
    """

    access_class: int
    nodes: tuple[int, ...]
    read_bandwidth: int | None = None
    write_bandwidth: int | None = None
    read_latency: int | None = None
    write_latency: int | None = None


class Node(NamedTuple):
    """One NUMA node.

    :ivar id: the kernel's id; a name, not an index
    :ivar cpus: online CPUs, ascending
    :ivar memory_bytes: MemTotal, or None when it could not be read
    :ivar free_bytes: MemFree, or None
    :ivar file_bytes: FilePages: page cache, most of it reclaimable, or None
    :ivar distances: node id to the SLIT value, 10 being local
    :ivar tier: the id of its memory tier (a smaller id is faster), or None
    :ivar because: why it got its kind, in words, when the kind is not obvious
    """

    id: int
    kind: NodeKind
    cpus: tuple[int, ...]
    memory_bytes: int | None
    free_bytes: int | None = None
    file_bytes: int | None = None
    distances: Mapping[int, int] = {}
    pools: tuple[Pool, ...] = ()
    initiators: tuple[Initiator, ...] = ()
    tier: int | None = None
    because: str = ""

    @property
    def has_memory(self) -> bool:
        return bool(self.memory_bytes)


class Cpu(NamedTuple):
    """One online CPU and where it sits. None where the kernel does not say.

    :ivar package: physical_package_id, the socket
    :ivar siblings: hardware threads of the same core, itself included
    """

    id: int
    package: int | None
    die: int | None = None
    core: int | None = None
    siblings: tuple[int, ...] = ()


class Allowed(NamedTuple):
    """What a process may use, and how that was found out.

    :ivar cpus: allowed CPUs (affinity and cpuset together), or None when unknown
    :ivar nodes: allowed memory nodes, or None when unknown
    :ivar source: the files it was read from
    """

    cpus: tuple[int, ...] | None
    nodes: tuple[int, ...] | None
    source: str


class Remark(NamedTuple):
    """Something odd that was met while reading the topology; T001 reports it.

    :ivar status: WARN for what contradicts something else, UNKNOWN for what
        cannot be read, INFO for what is odd and explained
    """

    path: str
    text: str
    status: Status = Status.WARN


class Source(NamedTuple):
    """A pasted output that the topology was drawn from.

    :ivar file: as it was given
    :ivar line: where the output begins in it, from 1
    :ivar format: the command that prints such
    """

    file: str
    line: int
    format: str


class Topology(NamedTuple):
    """A machine's NUMA topology.

    :ivar numa: False on a kernel that has no node directory (no CONFIG_NUMA)
    :ivar nodes: online nodes by ascending id
    :ivar possible_nodes: ids the kernel could bring online, or None
    :ivar tiers: tier id to the nodes in it, fastest (lowest id) first; empty if not exposed
    :ivar relations: addresses of two devices to how a vendor's tool or driver says that they
        are connected (``NV18``, ``XGMI``, ``PIX``), both ways
    :ivar unknown_links: ``NVLink`` or ``XGMI`` to why it is unknown which GPUs it joins
    :ivar sources: the pasted outputs it was drawn from, beside the host or without one
    """

    numa: bool
    nodes: tuple[Node, ...]
    cpus: tuple[Cpu, ...]
    online_cpus: tuple[int, ...]
    present_cpus: tuple[int, ...]
    devices: tuple[Device, ...]
    allowed: Allowed
    possible_nodes: tuple[int, ...] | None = None
    tiers: Mapping[int, tuple[int, ...]] = {}
    remarks: tuple[Remark, ...] = ()
    relations: Mapping[tuple[str, str], str] = {}
    sources: tuple[Source, ...] = ()
    unknown_links: Mapping[str, str] = {}

    def node(self, node_id: int) -> Node | None:
        """The node with that id, or None."""
        return next((node for node in self.nodes if node.id == node_id), None)

    @property
    def memory_nodes(self) -> tuple[Node, ...]:
        """Nodes with memory of their own."""
        return tuple(node for node in self.nodes if node.has_memory)

    @property
    def host_nodes(self) -> tuple[Node, ...]:
        """Nodes with CPUs and memory: where a process's ordinary memory belongs."""
        return tuple(node for node in self.nodes if node.kind is NodeKind.HOST)
