"""Huge pages: transparent ones, reserved pools, and whether memory is too fragmented for them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.engine import check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Missing,
    Node,
    NodeKind,
    ParseError,
    Target,
    Undecided,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.units import amount, page_size_folder, page_size_text
from numadoctor.model.words import count, listed, nodes_text

from ._kernel import MM, absent, field, meminfo, names, page_size, shows, sysctl_fixes, sysfs_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.parsers import Choice

_THP = f"{MM}/transparent_hugepage"
_POOLS = f"{MM}/hugepages"
_NODES = "/sys/devices/system/node"
_MEMINFO = "/proc/meminfo"
_BUDDYINFO = "/proc/buddyinfo"
_PROACTIVENESS = "/proc/sys/vm/compaction_proactiveness"

# The kernel hands a pool's pages out over the nodes in turn, so that an odd
# count leaves one more somewhere; a difference of a tenth is no rounding.
_UNEVEN = 0.1
# The huge page of x86 and of Arm with 4 KiB pages; every larger one needs more.
_HUGE = 2 << 20
# Any machine that has compiled or copied much is below half, and compaction puts
# blocks together as they are asked for; below a tenth it has to move nearly every
# page, and a pool that is touched now gets base pages or waits.
_HALF, _TENTH = 0.5, 0.1
# With less free than this share of a node, what is free says little: page cache
# has to be reclaimed first, and is compacted on the way.
_PLENTY = 0.05


@check(
    "K003",
    name="transparent-huge-pages",
    needs=(
        f"{_THP}/enabled",
        f"{_THP}/defrag",
        f"{_THP}/shmem_enabled",
        f"{_THP}/hugepages-*/enabled",
        "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
    ),
)
def transparent_huge_pages(host: "Host", target: Target) -> Iterator[Finding]:
    """Transparent huge pages: off, or on in a way that makes page faults wait.

    Why it matters
        With enabled = always every private mapping that is large enough gets huge
        pages. If defrag = always too, the page fault that finds none free reclaims and
        compacts memory before it returns: a stall of milliseconds, in any thread, once
        memory is full of page cache. With enabled = never a pool of 64 GiB is 16.8
        million pages of 4 KiB: it takes far longer to touch, and its accesses miss the
        TLB.

        For placement: a huge page lies on one node as a whole, so an interleave has a
        grain of 2 MiB instead of 4 KiB, and the thread that collapses base pages
        (khugepaged) puts the huge page on the node that held most of them.

        Pools in shared memory (SysV, memfd, MAP_SHARED) follow shmem_enabled, which is
        never by default; files in /dev/shm the mount option huge=.

    When it is harmless
        enabled = always with any defrag but always; a process can opt out with
        prctl(PR_SET_THP_DISABLE). Programs that ask for stalls by madvise, with
        enabled = madvise, know what they want.

    Fix
        The files are no sysctl: vm.transparent_hugepage.enabled in /etc/sysctl.d is
        ignored, with an error in the log. Write sysfs, and make it last with
        tmpfiles.d or, for `enabled` alone, the kernel command line:

            echo madvise > /sys/kernel/mm/transparent_hugepage/defrag
            w /sys/kernel/mm/transparent_hugepage/defrag - - - - madvise
            transparent_hugepage=madvise

        A change acts on later faults: restart processes to give them huge pages.

    Source
        Documentation/admin-guide/mm/transhuge.rst; mm/khugepaged.c
    """
    try:
        enabled = host.choice(f"{_THP}/enabled")
    except Missing as error:
        yield absent(host, error, "this kernel has no transparent huge pages", MM)
        return
    yield _private_memory(host, enabled)
    try:
        shared = host.choice(f"{_THP}/shmem_enabled")
    except Missing:
        return
    yield _shared_memory(host, shared)


def _private_memory(host: "Host", enabled: "Choice") -> Finding:
    mode, path = _mode_of_huge_size(host, enabled)
    defrag = host.choice(f"{_THP}/defrag").selected
    others = _other_sizes(host, enabled, path)
    evidence = [host.evidence(f"{_THP}/enabled"), host.evidence(f"{_THP}/defrag")]
    if path:
        evidence.insert(1, host.evidence(path))
    subject = "private memory"
    setting = f"transparent huge pages: {mode}, defrag {defrag}{others}"
    if mode == "always" and defrag == "always":
        return warn(
            f"{setting}: page faults of every process wait for compaction",
            subject=subject,
            cause="When no huge page is free, the thread that faults reclaims and compacts memory "
            "itself before it goes on.",
            evidence=evidence,
            fixes=sysfs_fixes(f"{_THP}/defrag", "madvise"),
        )
    if mode == "never":
        return info(
            f"{setting}: private memory has base pages only",
            subject=subject,
            cause="A large pool takes longer to touch and its accesses miss the TLB more often; "
            "pages of hugetlbfs are not affected.",
            evidence=evidence,
            fixes=(
                *sysfs_fixes(path or f"{_THP}/enabled", "madvise"),
                # The boot option sets the common file alone.
                *(() if path else (Fix("grub", "transparent_hugepage=madvise", True, True, True),)),
            ),
        )
    if mode not in ("always", "madvise"):
        return unknown(
            f"{setting}: the word {mode!r} is not known", subject=subject, evidence=evidence
        )
    return passed(setting, subject=subject, evidence=evidence)


def _mode_of_huge_size(host: "Host", enabled: "Choice") -> tuple[str, str]:
    """The mode that holds for the size one page table entry maps, and the file of its own, if any.

    Since Linux 6.8 each size has a file; "inherit" there means the common one.
    """
    try:
        size = host.integer(f"{_THP}/hpage_pmd_size")
        path = f"{_THP}/{page_size_folder(size)}/enabled"
        own = host.choice(path).selected
    except Missing:
        return enabled.selected, ""
    return (enabled.selected, "") if own == "inherit" else (own, path)


def _other_sizes(host: "Host", enabled: "Choice", huge: str) -> str:
    """What to add for smaller sizes that are on."""
    active = []
    for name in names(host, _THP):
        path = f"{_THP}/{name}/enabled"
        if not name.startswith("hugepages-") or path == huge:
            continue
        try:
            mode = host.choice(path).selected
            size = parsers.parse_page_size_dir(name)
        except (Missing, ParseError):
            continue
        if mode in ("always", "madvise"):
            active.append((size, f"{amount(size)} {mode}"))
    return "".join(f", {text}" for _, text in sorted(active))


def _shared_memory(host: "Host", shared: "Choice") -> Finding:
    evidence = [host.evidence(f"{_THP}/shmem_enabled")]
    subject, mode = "shared memory", shared.selected
    if mode in ("deny", "force"):
        what = "no file system of shared memory" if mode == "deny" else "all shared memory"
        return info(
            f"huge pages of shared memory: {mode}, which gives {what} huge pages whatever its "
            "mount says",
            subject=subject,
            cause="These two values are meant for emergencies and for testing.",
            evidence=evidence,
            fixes=sysfs_fixes(f"{_THP}/shmem_enabled", "advise"),
        )
    return passed(f"huge pages of shared memory: {mode}", subject=subject, evidence=evidence)


# Made when the module is loaded, which every run does: a dataclass takes ten times as long.
class _Pool(NamedTuple):
    """The huge pages of one size. Counts of pages; None where the kernel does not show them.

    :ivar by_node: total and free by node, nodes without any included
    """

    size: int
    total: int | None
    reserved: int | None
    overcommit: int | None
    by_node: dict[int, tuple[int, int]]

    @property
    def pages(self) -> int:
        """Pages of the pool, on all nodes together."""
        return sum(total for total, _ in self.by_node.values()) if self.by_node else self.total or 0


@check(
    "K008",
    name="huge-page-pools",
    needs=(
        f"{_POOLS}/hugepages-*/nr_hugepages",
        f"{_POOLS}/hugepages-*/resv_hugepages",
        f"{_POOLS}/hugepages-*/nr_overcommit_hugepages",
        f"{_NODES}/node*/hugepages/hugepages-*/nr_hugepages",
        f"{_NODES}/node*/hugepages/hugepages-*/free_hugepages",
        _MEMINFO,
        "/sys/kernel/mm/hugepages",
    ),
)
def huge_page_pools(host: "Host", target: Target) -> Iterator[Finding]:
    """Reserved huge pages: how many on each node, and whether a node has less than others.

    Why it matters
        A huge page belongs to the node it was taken from. A process bound to a node
        whose pool is empty gets ENOMEM from mmap or, if it binds after mmap, SIGBUS
        when it touches its memory; under MPOL_PREFERRED it silently gets a page of
        another node. Writing nr_hugepages spreads a pool over all nodes
        with memory, also over those of GPUs and CXL, and passes over nodes where
        memory is too fragmented: 20 pages can be 20 on node 0. Reserved pages are
        promised to mappings that exist, and not free for others. Surplus pages (up to
        nr_overcommit_hugepages) are taken at fault time and may not be had.

        Each size has a pool. MAP_HUGETLB without a size, shmget(SHM_HUGETLB) and the
        HugePages_ lines of /proc/meminfo mean the default size alone; 10 pages are
        20 MiB or 10 GiB, by their size.

    When it is harmless
        When the pool is meant for one node, such as that of a virtual machine or of a
        network card's driver.

    Fix
        Set each node's pool by itself; at boot, before memory is fragmented, for 1 GiB
        pages (the node format since Linux 5.16):

            echo 10 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
            hugepagesz=1G hugepages=0:10,1:10

    Source
        Documentation/admin-guide/mm/hugetlbpage.rst; mmap(2), MAP_HUGETLB
    """
    pools = _read_pools(host)
    if not pools:
        if not names(host, _POOLS) and not shows(host, MM):
            raise Missing(_POOLS)
        yield skip("this kernel has no huge page pools", evidence=(host.evidence(_POOLS),))
        return
    used = [pool for pool in pools if pool.pages or pool.overcommit]
    for pool in used:
        yield _pool_finding(host, pool)
        yield from _foreign_pages(host, pool)
    if not used:
        sizes = listed(amount(pool.size) for pool in pools)
        yield skip(
            f"no huge pages are reserved (sizes: {sizes})", evidence=_total_evidence(host, pools)
        )
        return
    yield from _default_size(host, pools)


def _read_pools(host: "Host") -> list[_Pool]:
    """The pools by size, from the machine's folder and those of the nodes: one may be missing."""
    nodes = host.topology.nodes
    sizes = {pool.page_size for node in nodes for pool in node.pools}
    for name in names(host, _POOLS):
        try:
            sizes.add(parsers.parse_page_size_dir(name))
        except ParseError:
            continue
    return [_read_pool(host, size, nodes) for size in sorted(sizes)]


def _read_pool(host: "Host", size: int, nodes: tuple[Node, ...]) -> _Pool:
    folder = f"{_POOLS}/{page_size_folder(size)}"

    def number(name: str) -> int | None:
        return host.optional(host.integer, f"{folder}/{name}")

    return _Pool(
        size,
        number("nr_hugepages"),
        number("resv_hugepages"),
        number("nr_overcommit_hugepages"),
        {
            node.id: (pool.total, pool.free)
            for node in nodes
            for pool in node.pools
            if pool.page_size == size
        },
    )


def _node_file(node: int, size: int) -> str:
    return f"{_NODES}/node{node}/hugepages/{page_size_folder(size)}/nr_hugepages"


def _total_evidence(host: "Host", pools: list[_Pool]) -> list[Evidence]:
    return [host.evidence(f"{_POOLS}/{page_size_folder(pool.size)}/nr_hugepages") for pool in pools]


def _pool_finding(host: "Host", pool: _Pool) -> Finding:
    """The verdict about one size: how its pages lie on the nodes with CPUs."""
    subject = f"{amount(pool.size)} pages"
    ids = [node.id for node in host.topology.host_nodes if node.id in pool.by_node]
    counts = {node: pool.by_node[node][0] for node in ids}
    evidence = [host.evidence(_node_file(node, pool.size)) for node in ids]
    message = _shares(pool, counts)
    most, least = max(counts.values(), default=0), min(counts.values(), default=0)
    if most - least <= max(1, _UNEVEN * most):
        finding = info if pool.overcommit or not pool.pages else passed
        return finding(
            message + _extras(pool), subject=subject, evidence=evidence or _pool_total(host, pool)
        )
    short = {node: most for node, pages in counts.items() if pages < most}
    empty = [node for node in short if not counts[node]]
    cause = "A process bound to a node gets only the pages of that node."
    if empty:
        cause = (
            f"A process bound to {nodes_text(empty)} gets none: mmap fails with "
            "ENOMEM, or the first touch with SIGBUS; without a strict binding it gets pages of "
            "another node."
        )
    return warn(
        message + _extras(pool),
        subject=subject,
        cause=cause,
        evidence=evidence,
        fixes=_even_out(pool.size, counts, short),
    )


def _shares(pool: _Pool, counts: dict[int, int]) -> str:
    size, total = amount(pool.size), amount(pool.pages * pool.size)
    if not pool.pages:
        return f"no {size} pages are reserved"
    if not counts:
        return f"{pool.pages:,} pages of {size} are reserved ({total})"
    shares = ", ".join(
        f"{n:,} on node {node} ({amount(n * pool.size)}, {pool.by_node[node][1]:,} free)"
        if n
        else f"none on node {node}"
        for node, n in counts.items()
    )
    return f"{size} pages: {shares}"


def _extras(pool: _Pool) -> str:
    text = ""
    if pool.reserved:
        text += f"; {pool.reserved:,} of the free ones are promised to mappings"
    if pool.overcommit:
        text += f"; up to {pool.overcommit:,} more are taken when touched, if there are any then"
    return text


def _pool_total(host: "Host", pool: _Pool) -> list[Evidence]:
    folder = f"{_POOLS}/{page_size_folder(pool.size)}"
    return [host.evidence(f"{folder}/{n}") for n in ("nr_hugepages", "nr_overcommit_hugepages")]


def _even_out(size: int, counts: dict[int, int], short: dict[int, int]) -> tuple[Fix, ...]:
    """Commands for each node that has less, and the boot option that sets all of them."""
    now = [
        Fix("sysfs", f"echo {most} > {_node_file(node, size)}", needs_root=True)
        for node, most in short.items()
    ]
    wanted = ",".join(f"{node}:{short.get(node, n)}" for node, n in counts.items())
    boot = f"hugepagesz={page_size_text(size)} hugepages={wanted}"
    return (*now, Fix("grub", boot, needs_root=True, needs_restart=True, persists=True))


def _foreign_pages(host: "Host", pool: _Pool) -> Iterator[Finding]:
    """Pages on nodes without CPUs: those of GPUs are taken from the GPU's memory."""
    for node_id, (total, _) in pool.by_node.items():
        node = host.topology.node(node_id)
        if not total or node is None or node.cpus:
            continue
        on_gpu = node.kind is NodeKind.GPU
        kind = "GPU memory" if on_gpu else "a node without CPUs"
        finding = warn if on_gpu else info
        yield finding(
            f"{count(total, 'page')} of {amount(pool.size)} ({amount(total * pool.size)}) are "
            f"taken from node {node_id}, {kind}",
            subject=f"node {node_id}, {amount(pool.size)} pages",
            cause="Writing the machine's nr_hugepages spreads the pool over all nodes with memory.",
            evidence=(host.evidence(_node_file(node_id, pool.size)),),
            fixes=(Fix("sysfs", f"echo 0 > {_node_file(node_id, pool.size)}", needs_root=True),),
        )


def _default_size(host: "Host", pools: list[_Pool]) -> Iterator[Finding]:
    try:
        default = field(meminfo(host), "Hugepagesize")
    except Undecided:
        return
    own = next((pool for pool in pools if pool.size == default), None)
    others = [pool for pool in pools if pool.size != default and pool.pages]
    if not others or (own is not None and (own.pages or own.overcommit)):
        return
    reserved = listed(
        f"{amount(pool.pages * pool.size)} in {amount(pool.size)} pages" for pool in others
    )
    first = amount(others[0].size)
    yield info(
        f"the default huge page size is {amount(default)} and has no pool; {reserved} are reserved",
        subject="default size",
        cause=f"Programs that ask for huge pages without a size get none; those in {first} pages "
        "have to be asked for by size (MAP_HUGE_SHIFT of mmap, pagesize= of the mount).",
        evidence=(
            host.evidence(_MEMINFO, "HugePages_", "Hugepagesize"),
            *_total_evidence(host, others),
        ),
        fixes=(
            Fix("grub", f"default_hugepagesz={page_size_text(others[0].size)}", True, True, True),
        ),
    )


@check(
    "K009",
    name="fragmentation",
    needs=(
        _BUDDYINFO,
        f"{_NODES}/node*/meminfo",
        _PROACTIVENESS,
        "/proc/meminfo",
        "/proc/zoneinfo",
    ),
)
def fragmentation(host: "Host", target: Target) -> Iterator[Finding]:
    """How much of each node's free memory is in blocks that hold a huge page.

    Why it matters
        A huge page, transparent or reserved, needs 2 MiB in one piece. A node that has
        run for weeks may have 100 GiB free in pieces of 4 KiB to 1 MiB: a pool touched
        there gets base pages, or its faults wait for compaction, and nr_hugepages stays
        below what was written to it. The other node may be fine, so that two equal
        instances run at different speeds. Blocks of 1 GiB are rarer still: reserve
        those at boot.

    When it is harmless
        Above a tenth compaction (kcompactd in the background, or the thread that needs
        a page) can put blocks together: from a tenth to a half is information, less
        than a tenth a warning. When little is free anyway (below 5 % of the node) page
        cache is reclaimed first: information, too. And where huge pages do not matter.

    Fix
        Compact the node before the engine starts, which takes seconds of one CPU, and
        let the kernel do more of it in the background:

            echo 1 > /sys/devices/system/node/node0/compact
            sysctl -w vm.compaction_proactiveness=50

    Source
        proc_buddyinfo(5); Documentation/admin-guide/sysctl/vm.rst,
        compaction_proactiveness; Documentation/ABI/stable/sysfs-devices-node, compact
    """
    try:
        rows = host.parse(_BUDDYINFO, parsers.parse_buddyinfo)
    except Missing as error:
        yield absent(host, error, "this kernel does not show its free blocks")
        return
    size = page_size(host)
    free: dict[int, list[int]] = {}
    for row in rows:
        # Bytes that are free, and those in large blocks.
        sums = free.setdefault(row.node, [0, 0])
        for order, blocks in enumerate(row.counts):
            sums[0] += blocks * (size << order)
            sums[1] += blocks * (size << order) * ((size << order) >= _HUGE)
    for node, (total, large) in free.items():
        found = host.topology.node(node)
        if total and (found is None or found.kind is not NodeKind.GPU):
            yield _fragmented(host, node, total, large, found)


def _fragmented(host: "Host", node: int, total: int, large: int, found: Node | None) -> Finding:
    evidence = (host.evidence(_BUDDYINFO, f"Node {node},"),)
    message = (
        f"node {node}: {large / total:.0%} of its free memory ({amount(large)} of "
        f"{amount(total)}) is in blocks of 2 MiB or more"
    )
    subject = f"node {node}"
    if large >= total * _HALF:
        return passed(message, subject=subject, evidence=evidence)
    if found and found.memory_bytes and total < found.memory_bytes * _PLENTY:
        return info(
            f"{message}, and little is free at all",
            subject=subject,
            cause="Page cache is reclaimed before memory for a huge page can be put together.",
            evidence=evidence,
        )
    fixes = (
        Fix("sysfs", f"echo 1 > {_NODES}/node{node}/compact", needs_root=True),
        *sysctl_fixes("vm.compaction_proactiveness", 50),
    )
    if large >= total * _TENTH:
        return info(
            message,
            subject=subject,
            cause="More can be put together by compaction, while a pool is touched or before.",
            evidence=evidence,
            fixes=fixes,
        )
    return warn(
        message,
        subject=subject,
        cause="A pool that is touched there gets base pages or waits for compaction, and reserved "
        "huge pages may not be had.",
        evidence=evidence,
        fixes=fixes,
    )
