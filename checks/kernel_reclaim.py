"""What the kernel does when a node runs short: node reclaim, swap, watermarks."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Missing,
    NodeKind,
    Severity,
    Target,
    Undecided,
    info,
    passed,
    unknown,
    warn,
)
from numadoctor.model.units import amount
from numadoctor.model.words import listed

from ._kernel import absent, interleave, meminfo, page_size, sysctl_fixes, total_memory

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.parsers import Swap, Zone

_RECLAIM_MODE = "/proc/sys/vm/zone_reclaim_mode"
_SWAPS = "/proc/swaps"
_SWAPPINESS = "/proc/sys/vm/swappiness"
_ZSWAP = "/sys/module/zswap/parameters/enabled"
_ZONEINFO = "/proc/zoneinfo"
_MIN_FREE = "/proc/sys/vm/min_free_kbytes"
_SCALE = "/proc/sys/vm/watermark_scale_factor"

# Daemons that have not run for weeks leave some pages in swap on any machine
# that has it; a pool or weights in swap are more than this share of memory.
_SWAP_SHARE = 0.01
# By default the high watermark is about 0.2 % of a node (vm.watermark_scale_factor
# = 10, twice) or min_free_kbytes, if that is more. At 5 % somebody has set it, and
# a 1 TiB node keeps 51 GiB back.
_RESERVE_SHARE = 0.05
# Zones that ordinary allocations use last: the kernel holds them back for devices
# that cannot address more (vm.lowmem_reserve_ratio).
_LOW_ZONES = ("DMA", "DMA32")


@check(
    "K002",
    name="zone-reclaim-mode",
    needs=(_RECLAIM_MODE,),
    requires=Requires.SEVERAL_NODES,
)
def zone_reclaim_mode(host: "Host", target: Target) -> Iterator[Finding]:
    """A full node frees its own page cache before memory of another node is used.

    Why it matters
        With vm.zone_reclaim_mode set, an allocation that finds its node short reclaims
        there first, in the faulting thread, instead of taking a page of the next node.
        On a machine that has read model files the short node is full of their page
        cache: threads stall in reclaim while other nodes have free memory, and weights
        that the next start would map from memory are dropped. The bits: 1 on; 2 writes
        dirty pages out; 4 swaps. Kernels before 3.16 set it by themselves where nodes
        are further apart than 30.

    When it is harmless
        Where each process fits into one node, is meant to stay there, and page cache
        does not matter.

    Fix
        Switch it off, and bind with numactl or mbind what must stay local:

            sysctl -w vm.zone_reclaim_mode=0

    Source
        Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode; node_reclaim() in
        mm/vmscan.c
    """
    try:
        value = host.integer(_RECLAIM_MODE)
    except Missing as error:
        yield absent(host, error, "this kernel has no node reclaim")
        return
    evidence = (host.evidence(_RECLAIM_MODE),)
    if not value:
        yield passed("a full node does not reclaim before it uses another node", evidence=evidence)
        return
    bits = {2: "writes dirty pages out", 4: "swaps"}
    extra = [what for bit, what in bits.items() if value & bit]
    yield warn(
        f"a full node reclaims its own memory first (vm.zone_reclaim_mode = {value})"
        + (f", and {listed(extra)}" if extra else ""),
        cause="A thread that needs a page stalls to free page cache (model files) while other "
        "nodes have free memory.",
        evidence=evidence,
        fixes=sysctl_fixes("vm.zone_reclaim_mode", 0),
    )


@check(
    "K010",
    name="swap",
    needs=(_SWAPS, "/proc/meminfo", _SWAPPINESS, _ZSWAP),
    requires=Requires.SEVERAL_NODES,
)
def swap(host: "Host", target: Target) -> Iterator[Finding]:
    """Swap is in use: pages come back on whatever node asks for them.

    Why it matters
        A page that was swapped out is allocated anew when it is touched, by the policy
        that is in force then and together with its neighbours in swap: memory that was
        placed by first touch comes back on the node of the thread that asks, and any
        page costs a read from disk in the middle of a request. zram and zswap keep
        swapped pages in memory, compressed: they cost CPU time, and memory of the node
        where they are stored.

    When it is harmless
        A few MiB of daemons that sleep: below 1 % of memory numadoctor says so as
        information. Swap that is configured and empty passes.

    Fix
        Keep the engine out of swap (MemorySwapMax=0 in its unit, --memory-swap equal to
        --memory in Docker), let the kernel prefer page cache as victim, and bring back
        what is out:

            sysctl -w vm.swappiness=1
            swapoff -a && swapon -a

        The last needs as much available memory as is in swap.

    Source
        Documentation/admin-guide/sysctl/vm.rst, swappiness; do_swap_page() in
        mm/memory.c; Documentation/admin-guide/mm/zswap.rst
    """
    swaps = host.parse(_SWAPS, parsers.parse_swaps)
    evidence = [host.evidence(_SWAPS)]
    used = sum(area.used for area in swaps)
    if not swaps:
        yield passed("no swap is configured", evidence=evidence)
        return
    size, kind = sum(area.size for area in swaps), _kind(host, swaps)
    if not used:
        yield passed(f"swap ({amount(size)}{kind}) is empty", evidence=evidence)
        return
    memory = total_memory(host)
    share = "less than 0.1%" if used < memory / 1000 else f"{used / memory:.1%}"
    message = f"{amount(used)} are in swap ({share} of memory; it has {amount(size)}{kind})"
    evidence.append(host.evidence(_SWAPPINESS))
    if used < memory * _SWAP_SHARE:
        yield info(message, evidence=evidence)
        return
    yield warn(
        message,
        cause="What was placed by first touch comes back on the node that happens to ask, and "
        "every page stalls the thread that needs it.",
        evidence=evidence,
        fixes=(
            Fix("systemd", "MemorySwapMax=0", needs_root=True, needs_restart=True, persists=True),
            Fix("docker", "--memory SIZE --memory-swap SIZE", needs_restart=True),
            *sysctl_fixes("vm.swappiness", 1),
            *_bring_back(host, used),
        ),
    )


def _kind(host: "Host", swaps: tuple["Swap", ...]) -> str:
    """What to add to the size of swap that is kept in memory, compressed."""
    if all(area.path.startswith("/dev/zram") for area in swaps):
        return ", compressed in memory by zram"
    try:
        if host.parse(_ZSWAP, parsers.parse_flag):
            return ", behind zswap"
    except Undecided:
        pass
    return ""


def _bring_back(host: "Host", used: int) -> tuple[Fix, ...]:
    # Without enough available memory swapoff ends in the out-of-memory killer.
    if meminfo(host).get("MemAvailable", 0) < 2 * used:
        return ()
    return (Fix("any", "swapoff -a && swapon -a", needs_root=True),)


@check(
    "K011",
    name="watermarks",
    needs=(_ZONEINFO, _MIN_FREE, _SCALE),
    requires=Requires.SEVERAL_NODES,
    severity=Severity.HIGH,
)
def watermarks(host: "Host", target: Target) -> Iterator[Finding]:
    """A node is below its low watermark: new pages go to another node.

    Why it matters
        The page allocator first looks for a zone above its low watermark. A node below
        it is passed over, and memory that was asked for with the default policy or
        with MPOL_PREFERRED lands on the next node, silently. Under MPOL_BIND the
        thread waits for reclaim instead, and if there is nothing to reclaim something
        is killed. This is how an engine whose node is full of page cache (model files
        that were read there) gets its pool on the wrong socket, on a machine with
        hundreds of GiB "available". Between low and high the kernel's thread kswapd
        frees page cache in the background until the high watermark is reached.

        The watermarks follow from vm.min_free_kbytes and vm.watermark_scale_factor
        (0.1 % of the node between two of them by default). Memory below them is not
        to be had, so very high ones waste it.

    When it is harmless
        Between low and high: a machine that has read many files is always there, and
        numadoctor tells it as information. Right after a burst a node is below low
        for some milliseconds: look again.

    Fix
        Drop page cache before the engine starts:

            sync; sysctl -w vm.drop_caches=1

        and let what reads the weights do so with numactl --interleave, or with O_DIRECT.
        A somewhat larger vm.watermark_scale_factor makes kswapd start earlier.

    Source
        Documentation/admin-guide/sysctl/vm.rst, min_free_kbytes and
        watermark_scale_factor; get_page_from_freelist() in mm/page_alloc.c
    """
    zones = host.parse(_ZONEINFO, parsers.parse_zoneinfo)
    size = page_size(host)
    by_node: dict[int, list[Zone]] = defaultdict(list)
    for zone in zones:
        if zone.managed or (zone.managed is None and zone.present):
            by_node[zone.node].append(zone)
    for node in host.topology.memory_nodes:
        # The driver hands out a GPU's memory, not the page allocator alone.
        if node.kind is not NodeKind.GPU:
            yield from _node_watermarks(host, node.id, _ordinary(by_node[node.id]), size)


def _ordinary(zones: list["Zone"]) -> list["Zone"]:
    """The zones that ordinary memory comes from: all but the low ones, if there are others."""
    return [zone for zone in zones if zone.name not in _LOW_ZONES] or zones


def _node_watermarks(host: "Host", node: int, zones: list["Zone"], size: int) -> Iterator[Finding]:
    def total(values: list[int | None]) -> int | None:
        known = [value * size for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None

    free, low = total([z.free for z in zones]), total([z.low for z in zones])
    high, managed = total([z.high for z in zones]), total([z.managed for z in zones])
    if free is None or low is None or high is None:
        yield unknown(
            f"{_ZONEINFO} does not tell the free pages and watermarks of node {node}",
            subject=f"node {node}",
            evidence=(Evidence(_ZONEINFO, "no line for this node that can be understood"),),
        )
        return
    names = "+".join(zone.name for zone in zones)
    text = f"Node {node}, zone {names}: pages free {free // size}, low {low // size}, "
    text += f"high {high // size}"
    evidence = (Evidence(_ZONEINFO, text),)
    yield _level(host, node, (free, low, high), evidence)
    if managed and high > managed * _RESERVE_SHARE:
        yield _reserve(host, node, high, managed, evidence)


def _level(
    host: "Host", node: int, levels: tuple[int, int, int], evidence: tuple[Evidence, ...]
) -> Finding:
    free, low, high = levels
    subject = f"node {node}"
    if free >= high:
        return passed(
            f"node {node} has {amount(free)} free, above its high watermark of {amount(high)}",
            subject=subject,
            evidence=evidence,
        )
    cache = _page_cache(host, node)
    if free >= low:
        return info(
            f"node {node} has {amount(free)} free, below its high watermark of {amount(high)}: "
            f"the kernel is freeing page cache there{cache}",
            subject=subject,
            evidence=evidence,
        )
    return warn(
        f"node {node} has {amount(free)} free, below its low watermark of {amount(low)}: "
        f"new pages go to other nodes{cache}",
        subject=subject,
        cause="Only a policy that binds keeps memory on this node, and then every new page waits "
        "for another to be freed.",
        evidence=evidence,
        fixes=(
            Fix("any", "sync; sysctl -w vm.drop_caches=1", needs_root=True),
            interleave(host, "cat MODEL_FILES >/dev/null")._replace(needs_restart=False),
        ),
    )


def _page_cache(host: "Host", node: int) -> str:
    found = host.topology.node(node)
    if found is None or not found.file_bytes:
        return ""
    return f"; page cache holds {amount(found.file_bytes)} of the node"


def _reserve(
    host: "Host", node: int, high: int, managed: int, evidence: tuple[Evidence, ...]
) -> Finding:
    return warn(
        f"node {node} keeps {amount(high)} free, {high / managed:.0%} of its memory",
        subject=f"node {node} reserve",
        cause="Page cache and idle memory are reclaimed until that much is free, and a process "
        "bound to the node cannot have it.",
        evidence=(*evidence, host.evidence(_MIN_FREE), host.evidence(_SCALE)),
        fixes=sysctl_fixes(*_what_raises(host, managed)),
    )


def _what_raises(host: "Host", managed: int) -> tuple[str, int]:
    """The setting that makes the watermarks so high, and its default."""
    try:
        scale = host.integer(_SCALE)
    except Undecided:
        scale = 0
    # In fractions of 10,000 of the node, once from min to low, once to high.
    if 2 * scale / 10_000 > _RESERVE_SHARE / 2:
        return "vm.watermark_scale_factor", 10
    # The largest that the kernel chooses by itself (init_per_zone_wmark_min()).
    return "vm.min_free_kbytes", 262_144
