"""What a machine has to hand out: GPUs in bus order, whole cores, room for pools on each node."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.host import parsers
from numadoctor.host.devices.links import Links, read_links
from numadoctor.model import Cpu, Device, Node, NodeKind, ParseError, Topology, Undecided
from numadoctor.model.units import id_list

if TYPE_CHECKING:
    from numadoctor.host import Host

NODES = "/sys/devices/system/node"

# Of each node this share stays free: the kernel's watermarks are below it on all
# but tiny machines (min_free_kbytes, watermark_scale_factor of 0.1 %), and page
# tables and buffers of the processes themselves need some.
_KEPT = 1 / 64

# Nodes whose memory a pool never goes to unless somebody asks for it by hand.
_FOREIGN = {
    NodeKind.GPU: "memory of a GPU",
    NodeKind.CXL: "a slower tier",
    NodeKind.HBM: "fast memory on the package",
    NodeKind.UNKNOWN: "its memory or its CPUs cannot be read",
}

_NVIDIA, _AMD = 0x10DE, 0x1002
_3D_CONTROLLER = 0x0302


class Core(NamedTuple):
    """The hardware threads of a core: all of them, where the node has any such core."""

    cpus: tuple[int, ...]


class Machine:
    """The resources of a host, as far as the calling process may use them."""

    def __init__(self, host: "Host") -> None:
        self.host = host
        self.topology: Topology = host.topology

    @cached_property
    def gpus(self) -> tuple[Device, ...]:
        """The GPUs that are alike and compute, in bus order: the place of each is its index."""
        return _chosen_gpus(self.topology.devices)

    @cached_property
    def other_gpus(self) -> tuple[Device, ...]:
        """GPUs that are not among ``gpus``: integrated ones, and those of another model."""
        chosen = set(self.gpus)
        return tuple(d for d in self.topology.devices if d.kind == "gpu" and d not in chosen)

    @cached_property
    def links(self) -> Links:
        """What joins the GPUs beside PCI Express."""
        return read_links(self.host)

    def gpu(self, word: str) -> Device:
        """The GPU that a person means: its index, bus id in any form, UUID or DRM node.

        :raises ParseError: there is no such GPU
        """
        if word.isascii() and word.isdecimal() and len(word) < 6:
            if int(word) < len(self.gpus):
                return self.gpus[int(word)]
            raise ParseError("GPU", word, f"the machine has {_indices(len(self.gpus))}")
        devices = (*self.gpus, *self.other_gpus)
        for device in devices:
            if word and word in (device.uuid, *device.names):
                return device
        try:
            address = parsers.parse_bus_id(word)
        except ParseError:
            address = word
        for device in devices:
            if device.address == address:
                return device
        raise ParseError("GPU", word, f"the machine has {_indices(len(self.gpus))}")

    @cached_property
    def nics(self) -> tuple[Device, ...]:
        """The NICs that serve models: those with RDMA where there are any, else all."""
        nics = [device for device in self.topology.devices if device.kind == "nic"]
        return tuple([nic for nic in nics if nic.rdma] or nics)

    @cached_property
    def left_out(self) -> Mapping[int, str]:
        """Node id to why no pool goes there."""
        allowed = self.topology.allowed.nodes
        reasons = {}
        for node in self.topology.nodes:
            if node.memory_bytes == 0:
                reasons[node.id] = "it has no memory"
            elif node.kind in _FOREIGN:
                reasons[node.id] = _FOREIGN[node.kind]
            elif allowed is not None and node.id not in allowed:
                reasons[node.id] = f"only memory of node {id_list(allowed) or 'none'} is allowed"
        if any(n.kind is NodeKind.HOST and n.id not in reasons for n in self.topology.nodes):
            for node in self.topology.nodes:
                if node.kind is NodeKind.MEMORY_ONLY:
                    reasons.setdefault(node.id, "it has no CPUs")
        return reasons

    @cached_property
    def memory_nodes(self) -> tuple[Node, ...]:
        """The nodes that pools go to."""
        return tuple(node for node in self.topology.nodes if node.id not in self.left_out)

    @cached_property
    def room(self) -> dict[int, int | None]:
        """Node id to bytes that a pool can have there; None where it cannot be read."""
        return {node.id: free_and_reclaimable(self.host, node) for node in self.memory_nodes}

    def pool(self, node_id: int, page_size: int | None) -> tuple[int, int]:
        """Huge pages of that size on a node: in all, and free."""
        node = self.topology.node(node_id)
        pools = node.pools if node else ()
        return next(((p.total, p.free) for p in pools if p.page_size == page_size), (0, 0))

    def room_for(self, page_size: int | None, unknown: int) -> dict[int, int]:
        """Memory node to bytes that pools of such pages can have there.

        Free huge pages count beside the memory that more of them can be made of.

        :param page_size: of huge pages, in bytes; None for ordinary pages
        :param unknown: bytes to count where it cannot be read
        """
        unit = page_size or 1
        found = {}
        for node, room in self.room.items():
            free = self.pool(node, page_size)[1] * (page_size or 0)
            found[node] = ((unknown if room is None else room) + free) // unit * unit
        return found

    @cached_property
    def cores(self) -> dict[int, tuple[Core, ...]]:
        """Node id to its cores that may be used, in the order of their first CPU.

        Whole ones; parts of them on a node that has no whole one (``cut_nodes``).
        """
        return {n: whole or parts for n, (whole, parts) in self._cores.items() if whole or parts}

    @cached_property
    def cut_nodes(self) -> tuple[int, ...]:
        """Nodes without a whole core: siblings are on another node, or may not be used."""
        return tuple(n for n, (whole, parts) in self._cores.items() if parts and not whole)

    @cached_property
    def _cores(self) -> dict[int, tuple[tuple[Core, ...], tuple[Core, ...]]]:
        """Node id to its whole cores, and to parts of cores."""
        by_id = {cpu.id: cpu for cpu in self.topology.cpus}
        online, left, found = set(self.topology.online_cpus), set(self._usable), {}
        for node in self.topology.nodes:
            found[node.id] = _cores_of(node, by_id, left, online)
            # With fake NUMA several nodes hold the same CPUs: the first gets them.
            left -= set(node.cpus)
        return found

    @cached_property
    def _usable(self) -> set[int]:
        allowed = self.topology.allowed.cpus
        return set(self.topology.online_cpus if allowed is None else allowed)

    @cached_property
    def broken_cores(self) -> tuple[int, ...]:
        """CPUs that may be used and are left out, since a sibling may not or is on another node."""
        taken = {cpu for cores in self.cores.values() for core in cores for cpu in core.cpus}
        return tuple(sorted(self._usable - taken))

    def distance(self, one: int, other: int) -> int:
        """Of two nodes, 10 being local; the farthest there is where the firmware tells none."""
        node = self.topology.node(one)
        known = node.distances.get(other) if node else None
        return (10 if one == other else self.far) if known is None else known

    @cached_property
    def far(self) -> int:
        """The greatest distance between two nodes."""
        told = [d for node in self.topology.nodes for d in node.distances.values()]
        return max(told, default=20)

    def nearest(self, node: int, among: Iterable[int]) -> tuple[int, ...]:
        """Those of ``among`` that are nearest to ``node``: itself, if it is one of them."""
        ids = sorted(set(among))
        if node in ids:
            return (node,)
        least = min((self.distance(node, other) for other in ids), default=0)
        return tuple(other for other in ids if self.distance(node, other) == least)


def free_and_reclaimable(host: "Host", node: Node) -> int | None:
    """Bytes of a node that a new process can have: free, and caches that can be dropped.

    Shared memory is in FilePages and cannot be dropped; what is on the lists of file
    pages can. Less what is kept for the kernel. None where it cannot be read.
    """
    try:
        meminfo = host.parse(f"{NODES}/node{node.id}/meminfo", parsers.parse_meminfo)
    except Undecided:
        return None
    free, total = meminfo.get("MemFree"), meminfo.get("MemTotal")
    if free is None or total is None:
        return None
    if "Active(file)" in meminfo:
        cache = meminfo["Active(file)"] + meminfo.get("Inactive(file)", 0)
    else:
        cache = max(0, meminfo.get("FilePages", 0) - meminfo.get("Shmem", 0))
    # KReclaimable (Linux 4.20) counts what SReclaimable does and more.
    slab = meminfo.get("KReclaimable", meminfo.get("SReclaimable", 0))
    return max(0, free + cache + slab - int(total * _KEPT))


def _indices(count: int) -> str:
    return f"GPUs 0-{count - 1} in bus order" if count > 1 else ("GPU 0" if count else "no GPU")


def _chosen_gpus(devices: Iterable[Device]) -> tuple[Device, ...]:
    """The most numerous model; of equals the one that is made to compute."""
    # Virtual functions are handed to guests by their physical one.
    gpus = [device for device in devices if device.kind == "gpu"]
    if not gpus:
        # Only where nothing else computes: on other machines an accelerator is a helper.
        gpus = [device for device in devices if device.kind == "accelerator"]
    models = Counter((gpu.vendor, gpu.device) for gpu in gpus)

    def rank(gpu: Device) -> tuple[int, bool, bool]:
        maker = gpu.vendor in (_NVIDIA, _AMD)
        return models[gpu.vendor, gpu.device], gpu.pci_class >> 8 == _3D_CONTROLLER, maker

    if not gpus:
        return ()
    best = max(gpus, key=rank)
    return tuple(
        sorted(
            (g for g in gpus if (g.vendor, g.device) == (best.vendor, best.device)),
            key=lambda gpu: _bus_order(gpu.address),
        )
    )


def _bus_order(address: str) -> tuple[int, ...]:
    # Domains have four digits or more: text would put 10000 before 0008.
    domain, bus, rest = address.split(":")
    device, _, function = rest.partition(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def _cores_of(
    node: Node, by_id: Mapping[int, Cpu], usable: set[int], online: set[int]
) -> tuple[tuple[Core, ...], tuple[Core, ...]]:
    """The whole cores of a node, and what may be used of the others."""
    members, seen = set(node.cpus) & usable, set[int]()
    whole: list[Core] = []
    parts: list[Core] = []
    for cpu in sorted(members):
        if cpu in seen:
            continue
        known = by_id.get(cpu)
        # An offline sibling takes no part in anything.
        siblings = {cpu, *(known.siblings if known else ())} & online | {cpu}
        seen |= siblings
        core = Core(tuple(sorted(siblings & members)))
        (whole if siblings <= members else parts).append(core)
    return tuple(whole), tuple(parts)
