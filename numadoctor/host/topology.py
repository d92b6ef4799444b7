"""Reads the NUMA topology of a host: nodes, CPUs, distances, tiers, devices, what is allowed.

What is odd on the way (masks that disagree, files that should be there) is kept
as a remark and never stops the reading: a broken machine is exactly the one
that has to be looked at.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from numadoctor.host import parsers
from numadoctor.host.allowed import read_allowed
from numadoctor.host.devices import gpu_memory_nodes, read_devices
from numadoctor.host.host import Host
from numadoctor.model import (
    Cpu,
    Denied,
    Initiator,
    Malformed,
    Missing,
    Node,
    NodeKind,
    Pool,
    Remark,
    Topology,
    Undecided,
)

NODES = "/sys/devices/system/node"
CPUS = "/sys/devices/system/cpu"
TIERS = "/sys/devices/virtual/memory_tiering"

_NODE_NAME = re.compile(r"node(\d{1,5})")
_CPU_NAME = re.compile(r"cpu(\d{1,6})")
_TIER_NAME = re.compile(r"memory_tier(\d{1,9})")

# Nodes of CPUs with memory beside it that is nearer than this to them, but has
# no CPUs: on-package memory (Xeon Max and Knights Landing give 13 and 14 for it, 20
# and more for anything behind a link).
_ON_PACKAGE_DISTANCE = 16

T = TypeVar("T")


def read_topology(host: Host) -> Topology:
    """The topology of ``host``.

    :raises Denied: /sys/devices/system/node may not be listed: whether there
        is NUMA at all cannot be told
    """
    remarks: list[Remark] = []
    online_cpus = _online_cpus(host, remarks)
    cpus = tuple(_read_cpu(host, cpu) for cpu in online_cpus)
    present = _quiet(host.ids, f"{CPUS}/present", remarks) or online_cpus
    node_ids = _node_ids(host, remarks)
    numa = bool(node_ids)
    tiers = _read_tiers(host, remarks)
    node_of_gpu = gpu_memory_nodes(host)
    nodes = _classify(
        [_read_node(host, node, node_ids, online_cpus, remarks) for node in node_ids],
        tiers,
        node_of_gpu,
    )
    return Topology(
        numa=numa,
        nodes=nodes,
        cpus=cpus,
        online_cpus=online_cpus,
        present_cpus=present,
        devices=read_devices(host, tuple(node_ids)),
        allowed=read_allowed(host, "/proc/self", online_cpus, tuple(node_ids)),
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
        remarks.append(Remark(path, str(error)))
        return None


def _node_ids(host: Host, remarks: list[Remark]) -> list[int]:
    """Ids of the online nodes, ascending; empty on a kernel without NUMA.

    The node directories decide: the kernel makes one for each online node and
    the ``online`` file may be missing (before Linux 2.6.24), empty or stale.
    """
    try:
        names = host.list(NODES)
    except Missing:
        return []
    ids = sorted(int(m[1]) for name in names if (m := _NODE_NAME.fullmatch(name)))
    online = _quiet(host.ids, f"{NODES}/online", remarks)
    if online and ids and set(online) != set(ids):
        text = (
            f"online says {parsers.format_list(online)}, "
            f"the node directories are {parsers.format_list(ids)}"
        )
        remarks.append(Remark(f"{NODES}/online", text))
    return ids


def _online_cpus(host: Host, remarks: list[Remark]) -> tuple[int, ...]:
    online = _quiet(host.ids, f"{CPUS}/online", remarks)
    if online:
        return online
    try:
        names = host.list(CPUS)
    except Undecided:
        return ()
    # Kernels before 2.6.24 have no such list; each CPU tells for itself, and
    # the boot CPU often has no ``online`` file because it cannot be offlined.
    ids = sorted(int(m[1]) for name in names if (m := _CPU_NAME.fullmatch(name)))
    return tuple(
        cpu for cpu in ids if _quiet(host.integer, f"{CPUS}/cpu{cpu}/online", remarks) != 0
    )


def _read_cpu(host: Host, cpu: int) -> Cpu:
    folder = f"{CPUS}/cpu{cpu}/topology"

    def number(name: str) -> int | None:
        try:
            value = host.integer(f"{folder}/{name}")
        except Undecided:
            return None
        # The kernel writes -1 for "not known" (drivers/base/topology.c users).
        return value if value >= 0 else None

    siblings: tuple[int, ...] = ()
    for name in ("core_cpus", "thread_siblings"):  # core_cpus since Linux 5.3, the old name stays
        try:
            siblings = host.parse(f"{folder}/{name}", parsers.parse_map)
            break
        except Undecided:
            continue
    return Cpu(cpu, number("physical_package_id"), number("die_id"), number("core_id"), siblings)


def _node_cpus(
    host: Host, folder: str, online: tuple[int, ...], remarks: list[Remark]
) -> tuple[int, ...]:
    """The node's online CPUs; from cpumap where cpulist says something else.

    cpumap is what the kernel computes placement with; cpulist is printed from
    it, but captured trees and old kernels cut it or keep offline CPUs in it.
    """
    by_map = _quiet(lambda path: host.parse(path, parsers.parse_map), f"{folder}/cpumap", remarks)
    by_list = _quiet(host.ids, f"{folder}/cpulist", remarks)
    if by_map is not None and by_list is not None and set(by_map) != set(by_list):
        text = (
            f"cpulist says {parsers.format_list(by_list) or 'none'}, "
            f"cpumap {parsers.format_list(by_map) or 'none'}; cpumap is used"
        )
        remarks.append(Remark(f"{folder}/cpulist", text))
    cpus = by_map if by_map is not None else by_list
    if cpus is None:
        remarks.append(Remark(folder, "has neither a readable cpumap nor a cpulist"))
        return ()
    if not online:
        return cpus
    known = set(online)
    return tuple(cpu for cpu in cpus if cpu in known)


def _read_node(
    host: Host, node: int, ids: list[int], online: tuple[int, ...], remarks: list[Remark]
) -> Node:
    folder = f"{NODES}/node{node}"
    meminfo = _quiet(
        lambda path: host.parse(path, parsers.parse_meminfo), f"{folder}/meminfo", remarks
    )
    if meminfo is None:
        remarks.append(Remark(f"{folder}/meminfo", "cannot be read: the node's memory is unknown"))
        meminfo = {}
    return Node(
        id=node,
        kind=NodeKind.UNKNOWN,
        cpus=_node_cpus(host, folder, online, remarks),
        memory_bytes=meminfo.get("MemTotal"),
        free_bytes=meminfo.get("MemFree"),
        file_bytes=meminfo.get("FilePages"),
        distances=_distances(host, folder, ids, remarks),
        pools=read_pools(host, f"{folder}/hugepages"),
        initiators=_initiators(host, folder),
    )


def _distances(host: Host, folder: str, ids: list[int], remarks: list[Remark]) -> Mapping[int, int]:
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
                tuple(sorted(int(m[1]) for n in names if (m := _NODE_NAME.fullmatch(n)))),
                figure("read_bandwidth"),
                figure("write_bandwidth"),
                figure("read_latency"),
                figure("write_latency"),
            )
        )
    return tuple(found)


def _read_tiers(host: Host, remarks: list[Remark]) -> Mapping[int, tuple[int, ...]]:
    """Tier id to nodes (Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers, Linux 6.1)."""
    try:
        names = host.list(TIERS)
    except (Missing, Denied, Malformed):
        return {}
    tiers = {}
    for name in names:
        if match := _TIER_NAME.fullmatch(name):
            nodes = _quiet(host.ids, f"{TIERS}/{name}/nodelist", remarks)
            if nodes:
                tiers[int(match[1])] = nodes
    return dict(sorted(tiers.items()))


def _classify(
    nodes: list[Node], tiers: Mapping[int, tuple[int, ...]], node_of_gpu: Mapping[int, str]
) -> tuple[Node, ...]:
    from dataclasses import replace

    tier_of = {node: tier for tier, members in tiers.items() for node in members}
    cpu_tiers = [tier_of[node.id] for node in nodes if node.cpus and node.id in tier_of]
    classified = []
    for node in nodes:
        kind, because = _kind(node, nodes, tier_of, cpu_tiers, node_of_gpu)
        classified.append(replace(node, kind=kind, because=because, tier=tier_of.get(node.id)))
    return tuple(classified)


def _kind(
    node: Node,
    nodes: Iterable[Node],
    tier_of: Mapping[int, int],
    cpu_tiers: list[int],
    node_of_gpu: Mapping[int, str],
) -> tuple[NodeKind, str]:
    """What the node is made of, and why that is thought.

    Certain things come first: the GPU driver names its nodes; a tier is what
    the kernel itself demotes by. Distances and bandwidth come last.
    """
    if node.memory_bytes is None:
        return NodeKind.UNKNOWN, "its meminfo cannot be read"
    if node.id in node_of_gpu:
        return NodeKind.GPU, f"the driver names it as memory of GPU {node_of_gpu[node.id]}"
    if node.cpus:
        return (NodeKind.HOST if node.memory_bytes else NodeKind.CPU_ONLY), ""
    if not node.memory_bytes:
        return NodeKind.EMPTY, ""
    tier = tier_of.get(node.id)
    if tier is not None and cpu_tiers:
        if tier > max(cpu_tiers):
            return NodeKind.CXL, f"memory tier {tier} is slower than that of the CPU nodes"
        if tier < min(cpu_tiers):
            return NodeKind.HBM, f"memory tier {tier} is faster than that of the CPU nodes"
    return _kind_by_figures(node, [other for other in nodes if other.cpus and other.memory_bytes])


def _kind_by_figures(node: Node, host_nodes: list[Node]) -> tuple[NodeKind, str]:
    bandwidth = _local_bandwidth(node)
    initiator = next((i for i in node.initiators if i.nodes), None)
    if bandwidth and initiator:
        near = next((other for other in host_nodes if other.id in initiator.nodes), None)
        base = _local_bandwidth(near) if near else None
        if near and base and bandwidth != base:
            faster = bandwidth > base
            kind = NodeKind.HBM if faster else NodeKind.CXL
            word = "more" if faster else "less"
            return (
                kind,
                f"{bandwidth} MiB/s read bandwidth, {word} than the {base} of node {near.id}",
            )
    distances = [d for other in host_nodes if (d := other.distances.get(node.id)) is not None]
    nearest = min(distances, default=None)
    if nearest is not None and 10 < nearest < _ON_PACKAGE_DISTANCE:
        return NodeKind.HBM, f"at distance {nearest} it is as near as memory on the package"
    return NodeKind.MEMORY_ONLY, "memory without CPUs; nothing tells of what kind"


def _local_bandwidth(node: Node) -> int | None:
    return next((i.read_bandwidth for i in node.initiators if i.read_bandwidth), None)
