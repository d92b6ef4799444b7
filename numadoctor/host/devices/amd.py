"""What AMD's compute driver (KFD) tells of GPUs below /sys/class/kfd.

Source: drivers/gpu/drm/amd/amdkfd/kfd_topology.c (node_show, iolink_show) and
kfd_crat.c, which makes a KFD node for each online NUMA node with CPUs, in
order, and one for each GPU, whose link to a CPU node is to that of its socket.
Between GPUs of one hive there are XGMI links, in both directions
(kfd_fill_gpu_xgmi_link_to_gpu). What is below p2p_links is PCI Express through
the host, of GPUs that share no hive (kfd_dev_create_p2p_links).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.devices.pci import attempt
from numadoctor.host.host import Host
from numadoctor.model import Node

KFD = "/sys/class/kfd/kfd/topology/nodes"

# HSA_IOLINKTYPE_PCIEXPRESS and HSA_IOLINKTYPE_XGMI (include/uapi and hsakmttypes.h): on an
# MI300A and on a board with coherent links the way to the CPU is XGMI.
_XGMI = 11
_TO_CPU = (2, _XGMI)

# KFD_CRAT_XGMI_WEIGHT: the weight of one hop. Partitions of GPUs have other weights, that
# of one hop among them (KFD_CRAT_INTRA_SOCKET_WEIGHT).
_HOP = 15


class KfdNode(NamedTuple):
    """A node of KFD's own topology, which is no NUMA node.

    :ivar cpus: CPUs of it; 0 for a GPU
    :ivar address: PCI address of a GPU, or ""
    :ivar render_minor: N of /dev/dri/renderDN, or None
    :ivar unique_id: 16 hexadecimal digits, as in ``GPU-...`` of ROCR_VISIBLE_DEVICES, or ""
    :ivar near: the KFD nodes its links lead to
    :ivar xgmi: KFD nodes that XGMI leads to, with the hops to each; CPUs may be among them
    :ivar unread: there are links that cannot be read
    """

    id: int
    cpus: int
    address: str
    render_minor: int | None
    unique_id: str
    near: tuple[int, ...]
    xgmi: tuple[tuple[int, int], ...] = ()
    unread: bool = False


def kfd_nodes(host: Host) -> tuple[KfdNode, ...]:
    """The nodes of KFD's topology by their number; empty without the driver."""
    ids = parsers.numbered(attempt(host.list, KFD) or (), "")
    found = (_node(host, number) for number in ids)
    return tuple(node for node in found if node)


def _node(host: Host, number: int) -> KfdNode | None:
    # Nodes that this process may not use (a container's device cgroup) read as empty.
    values = _numbers(host, f"{KFD}/{number}/properties")
    if not values:
        return None
    folder = attempt(lambda path: host.optional(host.list, path) or (), f"{KFD}/{number}/io_links")
    links = parsers.numbered(folder or (), "")
    ways = [_numbers(host, f"{KFD}/{number}/io_links/{link}/properties") for link in links]
    minor = values.get("drm_render_minor", 0)
    unique = values.get("unique_id", 0)
    return KfdNode(
        id=number,
        cpus=values.get("cpu_cores_count", 0),
        address=_address(values) if values.get("simd_count") else "",
        render_minor=minor if minor > 0 else None,
        unique_id=f"{unique:016x}" if unique else "",
        near=tuple(
            way["node_to"] for way in ways if "node_to" in way and way.get("type") in _TO_CPU
        ),
        xgmi=tuple(
            (way["node_to"], _hops(way.get("weight", 0)))
            for way in ways
            if "node_to" in way and way.get("type") == _XGMI
        ),
        unread=folder is None or not all("node_to" in way and "type" in way for way in ways),
    )


def _hops(weight: int) -> int:
    hops, rest = divmod(weight, _HOP)
    return hops if hops and not rest else 1


def _numbers(host: Host, path: str) -> dict[str, int]:
    return attempt(host.parse, path, parsers.parse_kfd_properties) or {}


def _address(values: Mapping[str, int]) -> str:
    """``location_id`` is bus and function as the PCI header has them."""
    place = values.get("location_id", 0)
    bus, function = place >> 8 & 0xFF, place & 0xFF
    return f"{values.get('domain', 0):04x}:{bus:02x}:{function >> 3:02x}.{function & 7}"


def node_of(host: Host, address: str, nodes: Sequence[Node]) -> int | None:
    """The NUMA node that KFD links the GPU to, or None.

    None too where KFD has another number of CPU nodes than the kernel has
    nodes with CPUs: then nothing says which is which.
    """
    known = kfd_nodes(host)
    cpu_nodes = [node.id for node in known if node.cpus]
    with_cpus = [node.id for node in nodes if node.cpus]
    if len(cpu_nodes) != len(with_cpus):
        return None
    numa = dict(zip(cpu_nodes, with_cpus, strict=True))
    gpu = next((node for node in known if node.address == address), None)
    near = {numa[other] for other in gpu.near if other in numa} if gpu else set()
    return near.pop() if len(near) == 1 else None
