"""Reads the NUMA topology of a host: nodes, CPUs, distances, tiers, devices, what is allowed.

What is odd on the way (masks that disagree, files that should be there) is kept
as a remark and never stops the reading: a broken machine is exactly the one
that has to be looked at.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from numadoctor.host import parsers
from numadoctor.host.allowed import read_allowed
from numadoctor.host.devices import PCI, gpu_memory_nodes, read_devices
from numadoctor.host.host import Host
from numadoctor.model import (
    Cpu,
    Initiator,
    Malformed,
    Missing,
    Node,
    NodeKind,
    Pool,
    Remark,
    Status,
    Topology,
    Undecided,
)

NODES = "/sys/devices/system/node"
CPUS = "/sys/devices/system/cpu"
TIERS = "/sys/devices/virtual/memory_tiering"

_TIER_NAME = re.compile(r"memory_tier(\d{1,9})")

# Memory without CPUs that is at least this near to a node with CPUs is on its
# package: Xeon Max gives 13 for it, firmware gives 14 and more for CXL memory.
_ON_PACKAGE_DISTANCE = 13

# Bandwidths that differ by less come from the same kind of memory, with other DIMMs.
_OTHER_KIND = 1.5

T = TypeVar("T")


def read_topology(host: Host) -> Topology:
    """The topology of ``host``.

    :raises Denied: /sys/devices/system/node may not be listed: whether there
        is NUMA at all cannot be told
    :raises Missing: there is no sysfs, so the lack of nodes says nothing
    :raises Malformed: the folder of the nodes holds none
    """
    remarks: list[Remark] = []
    cpu_folders = parsers.numbered(_quiet(host.list, CPUS, remarks) or (), "cpu")
    online_cpus = _online_cpus(host, cpu_folders, remarks)
    node_ids = _node_ids(host, remarks)
    tiers = _read_tiers(host, remarks)
    folders = set(cpu_folders)
    nodes = [
        _read_node(host, node, node_ids or (), online_cpus, remarks) for node in node_ids or ()
    ]
    return Topology(
        numa=node_ids is not None,
        nodes=classify(nodes, tiers, gpu_memory_nodes(host), _sleeping(host, nodes)),
        cpus=tuple(_read_cpu(host, cpu, folders) for cpu in online_cpus),
        online_cpus=online_cpus,
        present_cpus=_quiet(host.ids, f"{CPUS}/present", remarks) or cpu_folders or online_cpus,
        devices=_quiet(lambda _: read_devices(host, nodes), PCI, remarks) or (),
        allowed=read_allowed(host, "/proc/self", online_cpus, node_ids or ()),
        possible_nodes=_quiet(host.ids, f"{NODES}/possible", remarks),
        tiers=tiers,
        remarks=tuple(remarks),
    )


def _quiet(ask: Callable[[str], T], path: str, remarks: list[Remark]) -> T | None:
    """``ask(path)``; None where it cannot be had, with a remark unless it is simply not there."""
    try:
        return ask(path)
    except Missing:
        return None
    except Undecided as error:
        remarks.append(Remark(path, str(error), Status.UNKNOWN))
        return None


def _node_ids(host: Host, remarks: list[Remark]) -> tuple[int, ...] | None:
    """Ids of the online nodes, ascending; None on a kernel without NUMA.

    The node directories decide: the kernel makes one for each online node, and
    the ``online`` file may be missing, empty or stale.
    """
    try:
        names = host.list(NODES)
    except Missing:
        if host.has(CPUS):
            return None
        raise Missing(NODES, None, "there is no sysfs here", "mount it, or capture it") from None
    ids = parsers.numbered(names, "node")
    online = _quiet(host.ids, f"{NODES}/online", remarks)
    if not ids and not online:
        raise Malformed(NODES, None, "it holds no node")
    if online and set(online) != set(ids):
        text = (
            f"online says {parsers.format_list(online)}, "
            f"the node directories are {parsers.format_list(ids) or 'none'}"
        )
        remarks.append(Remark(f"{NODES}/online", text))
    return ids or online


def _online_cpus(host: Host, folders: tuple[int, ...], remarks: list[Remark]) -> tuple[int, ...]:
    online = _quiet(host.ids, f"{CPUS}/online", remarks)
    if online:
        return online
    # Without the list each CPU tells for itself. Those that cannot be taken
    # offline (the boot CPU) have no ``online`` file.
    offline, unread = set(), []
    for cpu in folders:
        try:
            if host.integer(f"{CPUS}/cpu{cpu}/online") == 0:
                offline.add(cpu)
        except Missing:
            continue
        except Undecided:
            unread.append(cpu)
    if unread:
        text = f"whether CPUs {parsers.format_list(unread)} are online cannot be read: taken as so"
        remarks.append(Remark(f"{CPUS}/online", text, Status.UNKNOWN))
    return tuple(cpu for cpu in folders if cpu not in offline)


def _read_cpu(host: Host, cpu: int, folders: set[int]) -> Cpu:
    if cpu not in folders:
        return Cpu(cpu, None)
    folder = f"{CPUS}/cpu{cpu}/topology"

    def number(name: str) -> int | None:
        try:
            value = host.integer(f"{folder}/{name}")
        except Undecided:
            return None
        # The kernel prints -1 where the platform does not say (include/linux/topology.h).
        return value if value >= 0 else None

    siblings: tuple[int, ...] = ()
    for name in ("core_cpus", "thread_siblings"):  # core_cpus since Linux 5.3; the old name stays
        try:
            siblings = host.parse(f"{folder}/{name}", parsers.parse_map)
            break
        except Undecided:
            continue
    return Cpu(cpu, number("physical_package_id"), number("die_id"), number("core_id"), siblings)


def _node_cpus(
    host: Host, folder: str, online: tuple[int, ...], remarks: list[Remark]
) -> tuple[int, ...] | None:
    """The node's online CPUs; from cpumap where cpulist says something else.

    cpumap is what the kernel computes placement with; cpulist is printed from
    it, but captured trees and old kernels cut it or keep offline CPUs in it.
    """
    by_map = _quiet(lambda path: host.parse(path, parsers.parse_map), f"{folder}/cpumap", remarks)
    by_list = _quiet(host.ids, f"{folder}/cpulist", remarks)
    if by_map is not None and by_list is not None and set(by_map) != set(by_list):
        remarks.append(_of_lists(f"{folder}/cpulist", by_list, by_map, online))
    cpus = by_map if by_map is not None else by_list
    if cpus is None:
        text = "neither its cpumap nor its cpulist can be read: its CPUs are unknown"
        remarks.append(Remark(f"{folder}/cpumap", text, Status.UNKNOWN))
        return None
    if not online:
        return cpus
    return tuple(sorted(set(cpus).intersection(online)))


def _of_lists(
    path: str, by_list: Iterable[int], by_map: Iterable[int], online: Iterable[int]
) -> Remark:
    text = (
        f"cpulist says {parsers.format_list(by_list) or 'none'}, "
        f"cpumap {parsers.format_list(by_map) or 'none'}; cpumap is used"
    )
    surplus = set(by_list).difference(by_map)
    if surplus.isdisjoint(online) and not set(by_map).difference(by_list):
        return Remark(path, f"{text} (the others are offline)", Status.INFO)
    return Remark(path, text)


def _read_node(
    host: Host, node: int, ids: tuple[int, ...], online: tuple[int, ...], remarks: list[Remark]
) -> Node:
    folder = f"{NODES}/node{node}"
    unread = []
    cpus = _node_cpus(host, folder, online, remarks)
    if cpus is None:
        unread.append("cpumap")
    try:
        meminfo = host.parse(f"{folder}/meminfo", parsers.parse_meminfo)
    except Undecided as error:
        text = f"the node's memory is unknown: {error}"
        remarks.append(Remark(f"{folder}/meminfo", text, Status.UNKNOWN))
        meminfo = {}
    if "MemTotal" not in meminfo:
        unread.append("meminfo")
    return Node(
        id=node,
        kind=NodeKind.UNKNOWN,
        cpus=cpus or (),
        memory_bytes=meminfo.get("MemTotal"),
        free_bytes=meminfo.get("MemFree"),
        file_bytes=meminfo.get("FilePages"),
        distances=_distances(host, folder, ids, remarks),
        pools=read_pools(host, f"{folder}/hugepages"),
        initiators=_initiators(host, folder),
        because=f"its {' and '.join(unread)} cannot be read" if unread else "",
    )


def _distances(
    host: Host, folder: str, ids: tuple[int, ...], remarks: list[Remark]
) -> Mapping[int, int]:
    """Node id to distance. The columns follow the online nodes (drivers/base/node.c,
    node_read_distance), in some captured trees the possible ones.
    """
    path = f"{folder}/distance"
    columns = _quiet(lambda p: host.parse(p, parsers.parse_distance), path, remarks)
    if columns is None:
        return {}
    if len(columns) == len(ids):
        return dict(zip(ids, columns, strict=True))
    possible = _quiet(host.ids, f"{NODES}/possible", remarks) or ()
    if len(columns) == len(possible):
        return dict(zip(possible, columns, strict=True))
    text = f"{len(columns)} columns for {len(ids)} online nodes: which is whose cannot be told"
    remarks.append(Remark(path, text))
    return {}


def read_pools(host: Host, folder: str) -> tuple[Pool, ...]:
    """The huge page pools below ``folder``, by ascending page size.

    The files are those of Documentation/admin-guide/mm/hugetlbpage.rst. A pool
    that cannot be read whole is left out.
    """
    try:
        names = host.list(folder)
    except Undecided:
        return ()
    pools = []
    for name in names:
        base = f"{folder}/{name}"
        try:
            size = parsers.parse_page_size_dir(name)
            total, free = (
                host.integer(f"{base}/nr_hugepages"),
                host.integer(f"{base}/free_hugepages"),
            )
            surplus = host.optional(host.integer, f"{base}/surplus_hugepages") or 0
        except (Undecided, parsers.ParseError):
            continue
        pools.append(Pool(size, total, free, surplus))
    return tuple(sorted(pools, key=lambda pool: pool.page_size))


def _initiators(host: Host, folder: str) -> tuple[Initiator, ...]:
    """access0 and access1: the best initiators of any kind, and the best CPUs."""
    found = []
    for access_class in (0, 1):
        base = f"{folder}/access{access_class}/initiators"
        try:
            names = host.list(base)
        except Undecided:
            continue

        def figure(name: str, base: str = base) -> int | None:
            try:
                # The kernel prints 0 for what firmware left out.
                return host.integer(f"{base}/{name}") or None
            except Undecided:
                return None

        found.append(
            Initiator(
                access_class,
                parsers.numbered(names, "node"),
                figure("read_bandwidth"),
                figure("write_bandwidth"),
                figure("read_latency"),
                figure("write_latency"),
            )
        )
    return tuple(found)


def _read_tiers(host: Host, remarks: list[Remark]) -> Mapping[int, tuple[int, ...]]:
    """Tier id to nodes (Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers, Linux 6.1)."""
    tiers = {}
    for name in _quiet(host.list, TIERS, remarks) or ():
        if match := _TIER_NAME.fullmatch(name):
            nodes = _quiet(host.ids, f"{TIERS}/{name}/nodelist", remarks)
            if nodes:
                tiers[int(match[1])] = nodes
    return dict(sorted(tiers.items()))


def _sleeping(host: Host, nodes: Iterable[Node]) -> dict[int, tuple[int, ...]]:
    """The CPUs of nodes that have memory and whose CPUs are all offline.

    cpumap names online CPUs only; the links to the others stay in the folder
    (register_cpu_under_node() in drivers/base/node.c).
    """
    found = {}
    for node in nodes:
        if node.memory_bytes and not node.cpus:
            names = host.optional(host.list, f"{NODES}/node{node.id}") or ()
            found[node.id] = parsers.numbered(names, "cpu")
    return found


def classify(
    nodes: Iterable[Node],
    tiers: Mapping[int, tuple[int, ...]],
    of_gpu: Mapping[int, str],
    sleeping: Mapping[int, tuple[int, ...]],
) -> tuple[Node, ...]:
    """The nodes with their kinds and tiers; a node that says ``because`` stays unknown.

    :param of_gpu: node id to the GPU whose driver names the node as its memory
    :param sleeping: node id to its CPUs, where all of them are offline
    """
    classifier = _Classifier(tuple(nodes), tiers, of_gpu, sleeping)
    return tuple(map(classifier.classified, classifier.nodes))


class _Classifier(NamedTuple):
    """Says what the nodes are made of."""

    nodes: tuple[Node, ...]
    tiers: Mapping[int, tuple[int, ...]]
    of_gpu: Mapping[int, str]
    sleeping: Mapping[int, tuple[int, ...]]

    def classified(self, node: Node) -> Node:
        """``node`` with its kind, why that is thought, and its tier."""
        tier = self._tier(node)
        kind, because = self._kind(node, tier)
        return node._replace(kind=kind, because=because, tier=tier)

    def _tier(self, node: Node) -> int | None:
        return next((tier for tier, members in self.tiers.items() if node.id in members), None)

    def _kind(self, node: Node, tier: int | None) -> tuple[NodeKind, str]:
        # Certain things come first: the GPU's driver names its nodes, and the
        # tier is what the kernel itself demotes by. Figures come last.
        if node.because:
            return NodeKind.UNKNOWN, node.because
        if node.id in self.of_gpu:
            return NodeKind.GPU, f"the driver names it as memory of GPU {self.of_gpu[node.id]}"
        if node.cpus:
            return (NodeKind.HOST if node.memory_bytes else NodeKind.CPU_ONLY), ""
        if not node.memory_bytes:
            return NodeKind.EMPTY, ""
        if cpus := self.sleeping.get(node.id):
            return NodeKind.MEMORY_ONLY, f"its CPUs {parsers.format_list(cpus)} are all offline"
        return (
            self._by_tier(tier)
            or self._by_bandwidth(node)
            or self._by_distance(node)
            or (NodeKind.MEMORY_ONLY, "nothing tells what kind of memory it is")
        )

    def _by_tier(self, tier: int | None) -> tuple[NodeKind, str] | None:
        of_cpus = [t for node in self.nodes if node.cpus and (t := self._tier(node)) is not None]
        if tier is None or not of_cpus:
            return None
        if tier > max(of_cpus):
            return NodeKind.CXL, f"memory tier {tier} is slower than that of the nodes with CPUs"
        if tier < min(of_cpus):
            return NodeKind.HBM, f"memory tier {tier} is faster than that of the nodes with CPUs"
        return None

    def _by_bandwidth(self, node: Node) -> tuple[NodeKind, str] | None:
        own = _read_bandwidth(node)
        initiators = {i for initiator in node.initiators for i in initiator.nodes}
        for near in self._host_nodes():
            base = _read_bandwidth(near)
            if near.id not in initiators or not own or not base:
                continue
            text = f"{own} MiB/s read bandwidth, {{}} than the {base} of node {near.id}"
            if own >= base * _OTHER_KIND:
                return NodeKind.HBM, text.format("more")
            if own * _OTHER_KIND <= base:
                return NodeKind.CXL, text.format("less")
        return None

    def _by_distance(self, node: Node) -> tuple[NodeKind, str] | None:
        near = min((other.distances.get(node.id, 255) for other in self._host_nodes()), default=255)
        if 10 < near <= _ON_PACKAGE_DISTANCE:
            return NodeKind.HBM, f"at distance {near}, as near as memory on the package"
        return None

    def _host_nodes(self) -> Iterable[Node]:
        return (node for node in self.nodes if node.cpus and node.memory_bytes)


def _read_bandwidth(node: Node) -> int | None:
    return next((i.read_bandwidth for i in node.initiators if i.read_bandwidth), None)
