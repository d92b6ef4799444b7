"""Whether there is room for a pool, asked before the kernel answers with SIGBUS or SIGKILL."""

import os
from collections.abc import Iterable

from numadoctor.allocator.backing import SHM, Backing
from numadoctor.allocator.findings import hugepage_fixes
from numadoctor.allocator.nodes import free_for_bind
from numadoctor.host import Host
from numadoctor.host.cgroup import read_cgroup
from numadoctor.host.parsers import parse_integer, parse_meminfo
from numadoctor.kernel.nodemask import to_text
from numadoctor.model import Evidence, Finding, Fix, Undecided, fail
from numadoctor.model.units import amount, page_size_folder, page_size_text


def no_room(
    host: Host, backing: Backing, length: int, page_size: int, bound: Iterable[int] | None
) -> Finding | None:
    """The finding that says what is too small for the pool, or None.

    :param length: of the pool, in bytes
    :param bound: the nodes of MPOL_BIND, which does not spill to others; None
        for policies that do
    """
    if backing.is_hugetlb:
        return _hugetlb(host, length, page_size, bound) or _cgroup(host, length, page_size)
    return (
        _bound_nodes(host, length, bound)
        or _machine(host, length)
        or _cgroup(host, length, 0)
        or (_shm(length) if backing is Backing.POSIX else None)
    )


def _machine(host: Host, length: int) -> Finding | None:
    try:
        available = host.parse("/proc/meminfo", parse_meminfo).get("MemAvailable")
    except Undecided:
        return None
    if available is None or length <= available:
        return None
    return fail(
        f"{amount(length)} are more than the {amount(available)} this machine has left",
        subject="pool",
        cause="Touching it would wake the OOM killer.",
        evidence=[host.evidence("/proc/meminfo", "MemAvailable")],
        fixes=(Fix("any", f"a pool of at most {amount(available)}"),),
    )


def _bound_nodes(host: Host, length: int, bound: Iterable[int] | None) -> Finding | None:
    nodes = tuple(bound or ())
    found = [node for node in host.topology.nodes if node.id in nodes]
    free = [free_for_bind(host, node) for node in found]
    if not found or None in free or length <= (room := sum(filter(None, free))):
        return None
    return fail(
        f"{amount(length)} bound to node {to_text(nodes)}, which has {amount(room)} free or in "
        "page cache that can be dropped",
        subject="pool",
        cause="MPOL_BIND does not spill to other nodes: the kernel would kill to make room.",
        evidence=[
            host.evidence(f"/sys/devices/system/node/node{node.id}/meminfo", f"Node {node.id} Mem")
            for node in found
        ],
        fixes=(Fix("any", "mode interleave or preferred-many, more nodes, or a smaller pool"),),
    )


def _hugetlb(
    host: Host, length: int, page_size: int, bound: Iterable[int] | None
) -> Finding | None:
    """A bound pool needs its pages on its own nodes; mmap checks the machine's total only."""
    nodes = tuple(bound or ())
    found = [node for node in host.topology.nodes if node.id in nodes]
    if not found:
        return None
    free = {
        node.id: next((p.free for p in node.pools if p.page_size == page_size), 0) for node in found
    }
    needed = length // page_size
    if sum(free.values()) >= needed:
        return None
    told = ", ".join(f"node {node} has {count}" for node, count in free.items())
    return fail(
        f"{needed} huge pages of {amount(page_size)} are needed on node {to_text(nodes)}: {told}",
        subject="pool",
        cause="The mapping would succeed, and the process get SIGBUS when it touches what is not "
        "there: the kernel counts the pages of all nodes when it maps.",
        evidence=[
            host.evidence(
                f"/sys/devices/system/node/node{node}/hugepages/{page_size_folder(page_size)}/"
                "free_hugepages"
            )
            for node in free
        ],
        fixes=hugepage_fixes(nodes, page_size, length),
    )


def _cgroup(host: Host, length: int, huge_page_size: int) -> Finding | None:
    cgroup = read_cgroup(host, "/proc/self")
    if huge_page_size:
        unit = f"{page_size_text(huge_page_size)}B"
        names = f"hugetlb.{unit}.max", "hugetlb", f"hugetlb.{unit}.limit_in_bytes"
        current = {"max": "current", "limit_in_bytes": "usage_in_bytes"}
        after = "the process would get SIGBUS"
    else:
        names = "memory.max", "memory", "memory.limit_in_bytes"
        current = {"max": "current", "limit_in_bytes": "usage_in_bytes"}
        after = "the kernel would kill a process of the group"
    try:
        limit = cgroup.limit(*names)
    except Undecided:
        return None
    if limit is None or length <= limit[0]:
        return None
    value, path = limit
    stem, _, word = path.rpartition(".")
    used = Evidence(f"{stem}.{current[word]}", _used(host, f"{stem}.{current[word]}"))
    return fail(
        f"{amount(length)} are more than the {amount(value)} that {path} allows",
        subject="pool",
        cause=f"The mapping would succeed; when it is touched, {after}.",
        evidence=[host.evidence(path), used],
        fixes=(
            Fix("docker", f"--memory={length >> 20}m or more", needs_restart=True),
            Fix("kubernetes", f"resources.limits.memory: {length >> 20}Mi", needs_restart=True),
        ),
    )


def _used(host: Host, path: str) -> str:
    try:
        return str(host.parse(path, parse_integer))
    except Undecided as error:
        return error.reason


def _shm(length: int) -> Finding | None:
    try:
        status = os.statvfs(SHM)
    except OSError as error:
        return fail(
            f"{SHM} cannot be used: {error.strerror}",
            subject="pool",
            evidence=[Evidence(SHM, error.strerror or "")],
            fixes=(Fix("any", "backing memfd, which needs no mount"),),
        )
    free = status.f_bavail * status.f_frsize
    # A tmpfs without a limit says 0 blocks in all.
    if not status.f_blocks or length <= free:
        return None
    return fail(
        f"{amount(length)} are more than the {amount(free)} that {SHM} has left",
        subject="pool",
        cause="The segment would be created, and the process get SIGBUS when it touches it.",
        evidence=[Evidence(f"statvfs {SHM}", f"{free} bytes available")],
        fixes=(
            Fix("any", "backing memfd, which does not count against that mount"),
            Fix("docker", f"--shm-size={(length >> 20) + 1}m", needs_restart=True),
        ),
    )


def huge_page_sizes(host: Host) -> tuple[int, ...]:
    """The sizes of huge pages this kernel has, in bytes, ascending."""
    from numadoctor.host.topology import read_pools

    return tuple(pool.page_size for pool in read_pools(host, "/sys/kernel/mm/hugepages"))


def default_huge_page_size(host: Host) -> int:
    """``Hugepagesize`` of /proc/meminfo, in bytes.

    :raises ValueError: this kernel has none
    """
    size = host.parse("/proc/meminfo", parse_meminfo).get("Hugepagesize")
    if not size:
        raise ValueError("this kernel has no huge page pools (no Hugepagesize in /proc/meminfo)")
    return size
