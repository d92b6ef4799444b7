"""Memory that may not be pinned where it lies: the movable zones of nodes."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Node,
    NodeKind,
    Target,
    Undecided,
    info,
    passed,
    unknown,
    warn,
)
from numadoctor.model.units import amount

from ._kernel import page_size
from ._topology import COMMAND_LINE, boot_fix

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.parsers import Zone
    from numadoctor.model import Fix

_ZONEINFO = "/proc/zoneinfo"
_MOVABLE = "Movable"
# Options that make movable zones at boot, and the one for what is added later.
_OPTIONS = ("movable_node", "movablecore", "kernelcore")
_LATER = "memhp_default_state"
# With that much of a node, a pool of the size that is usual there no longer fits beside it.
_MUCH = 0.5


@check(
    "K017",
    name="movable-memory",
    needs=(_ZONEINFO, COMMAND_LINE),
    requires=Requires.SEVERAL_NODES,
)
def movable_memory(host: "Host", target: Target) -> Iterator[Finding]:
    """Memory of a node is kept movable: pages that are pinned there go to another node.

    Why it matters
        Memory in the zone Movable can be unplugged, so nothing may hold a page of it
        in place. A page that a driver pins for long (memory registered with CUDA or
        ROCm, with an RDMA NIC, with VFIO or io_uring) is therefore first moved out of
        that zone: to other memory of its node while there is some, and then to the
        next node. The memory policy is not asked. A pool that was bound with mbind,
        filled and verified is on the wrong node after cudaHostRegister. In the lab, of
        600 MiB bound to a node with 380 MiB that are not movable, 274 MiB went to the
        other node the moment they were pinned; Linux 6.12, MPOL_BIND.

    When it is harmless
        On a node from which no pinned memory is wanted: memory behind CXL that is a
        tier below, a GPU's own memory. Before Linux 5.13, which pins pages where they
        are.

    Fix
        Memory that is movable since boot: take movable_node, movablecore= and
        kernelcore= from the kernel's command line. Memory that is added later: boot
        with memhp_default_state=online_kernel, or add it with

            daxctl reconfigure-device --mode=system-ram --no-movable DEVICE

    Source
        migrate_longterm_unpinnable_folios() in mm/gup.c and commit d1e153fea2a8;
        Documentation/admin-guide/mm/memory-hotplug.rst, ZONE_MOVABLE;
        find_zone_movable_pfns_for_nodes() in mm/mm_init.c
    """
    by_node: dict[int, list[Zone]] = defaultdict(list)
    for zone in host.parse(_ZONEINFO, parsers.parse_zoneinfo):
        by_node[zone.node].append(zone)
    size = page_size(host)
    found = False
    for node in host.topology.memory_nodes:
        if node.kind is NodeKind.GPU:
            continue
        finding = _judged(host, node, by_node[node.id], size)
        found = found or finding is not None
        if finding is not None:
            yield finding
    if not found:
        yield passed("pinned memory stays on its node", evidence=(_told(by_node),))


def _judged(host: "Host", node: Node, zones: "list[Zone]", size: int) -> Finding | None:
    """What is to be said of a node; None where all of it may be pinned."""
    subject = f"node {node.id}"
    if not zones or any(zone.managed is None and zone.present != 0 for zone in zones):
        return unknown(
            f"{_ZONEINFO} does not tell how much of node {node.id} is in which zone",
            subject=subject,
            evidence=(Evidence(_ZONEINFO, "no line for this node that can be understood"),),
        )
    movable = sum(zone.managed or 0 for zone in zones if zone.name == _MOVABLE) * size
    whole = sum(zone.managed or 0 for zone in zones) * size
    if not movable:
        return None
    rest = whole - movable
    if rest:
        message = f"{amount(movable)} of the {amount(whole)} of node {node.id} are movable: memory "
        message += f"that is pinned there beyond {amount(rest)} goes to another node"
    else:
        message = (
            f"all memory of node {node.id} ({amount(whole)}) is movable: what is pinned there "
        )
        message += "goes to another node"
    evidence = (_told({node.id: zones}), *_options(host))
    # What has no CPUs is memory for what is rarely used, and movable by default.
    if node.kind is not NodeKind.HOST or movable < _MUCH * whole:
        return info(message, subject=subject, evidence=evidence)
    return warn(
        message,
        subject=subject,
        cause="A driver that pins pages (CUDA, RDMA, VFIO) has them moved out of this zone first, "
        "and the memory policy is not asked where to.",
        evidence=evidence,
        fixes=_fixes(host),
    )


def _told(zones: "dict[int, list[Zone]]") -> Evidence:
    parts = (
        f"Node {zone.node}, zone {zone.name}: managed {zone.managed}"
        for found in zones.values()
        for zone in found
        if zone.managed
    )
    return Evidence(_ZONEINFO, "; ".join(parts) or "no zone with pages")


def _set(host: "Host") -> list[str]:
    """The boot options that make memory movable, as they are written.

    :raises Undecided: the command line cannot be read
    """
    options = host.parse(COMMAND_LINE, parsers.parse_command_line)
    return [
        name if value is None else f"{name}={value}"
        for name, value in options
        if name in _OPTIONS or (name == _LATER and value == "online_movable")
    ]


def _options(host: "Host") -> tuple[Evidence, ...]:
    try:
        return (Evidence(COMMAND_LINE, " ".join(found)),) if (found := _set(host)) else ()
    except Undecided as error:
        return (Evidence(COMMAND_LINE, error.reason),)


def _fixes(host: "Host") -> "tuple[Fix, ...]":
    later = boot_fix(f"{_LATER}=online_kernel")
    try:
        found = _set(host)
    except Undecided:
        return boot_fix(f"remove {', '.join(_OPTIONS)} from the kernel's command line"), later
    if found:
        return (boot_fix(f"remove {' '.join(found)} from the kernel's command line"),)
    return (later,)
