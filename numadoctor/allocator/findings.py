"""What is told of a pool that could not be had as it was asked for, with what helps."""

import errno
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from numadoctor.allocator.backing import NAME_PREFIX, SHM
from numadoctor.allocator.handle import Handle
from numadoctor.allocator.nodes import WEIGHTS, NodeSet
from numadoctor.allocator.prefault import PrefaultError
from numadoctor.host import Host
from numadoctor.kernel.nodemask import to_text
from numadoctor.model import Evidence, Finding, Fix, fail, info, warn
from numadoctor.model.binding import cpuset
from numadoctor.model.units import amount, page_size_folder

if TYPE_CHECKING:
    from numadoctor.allocator.pool import Pool

CPUSET_FIXES = cpuset(nodes="NODES")

FILTER_FIXES = (Fix("any", "numadoctor syscalls names the filter and the line to change"),)


def no_numa(host: Host) -> Finding:
    """The kernel has no nodes to choose from."""
    return info(
        "this kernel has no NUMA support: the pool lies in the one memory there is",
        subject="pool",
        evidence=[host.evidence("/sys/devices/system/node")],
    )


def left_out(host: Host, chosen: NodeSet) -> Finding:
    """Nodes that were asked for cannot be had."""
    told = "; ".join(f"node {node}: {why}" for node, why in chosen.left_out.items())
    return warn(
        f"the pool is placed on node {to_text(chosen.nodes)} only: {told}",
        subject="pool",
        cause="The kernel drops such nodes from a policy without a word.",
        evidence=[host.evidence("/proc/self/status", "Mems_allowed_list")],
        fixes=CPUSET_FIXES,
    )


def narrowed(host: Host, because: str) -> Finding:
    """The kernel has dropped nodes of the policy."""
    return warn(
        f"the kernel narrowed the pool's nodes: {because}",
        subject="pool",
        evidence=[host.evidence("/proc/self/status", "Mems_allowed_list")],
        fixes=CPUSET_FIXES,
    )


def fell_back(host: Host, mode: str, why: str, fixes: tuple[Fix, ...], *seen: Evidence) -> Finding:
    """The mode could not be set."""
    return warn(
        f"{mode} could not be set, the pool is left to first touch: {why}",
        subject="pool",
        cause="Each page lands on the node of the thread that touches it first.",
        evidence=[*seen, host.evidence("/proc/self/status", "Seccomp", "Mems_allowed_l")],
        fixes=fixes,
    )


def taken_away(lost: Iterable[int], allowed: Iterable[int]) -> Finding:
    """The cpuset has lost nodes of the pool since it was made."""
    return warn(
        f"node {to_text(lost)} has been taken from the pool since it was made: "
        f"Mems_allowed_list is {to_text(allowed)}",
        subject="pool",
        cause="Whoever narrowed the cpuset has changed the policy, and may have moved the pages.",
        evidence=[Evidence("get_mempolicy MPOL_F_MEMS_ALLOWED", to_text(allowed))],
        fixes=CPUSET_FIXES,
    )


def other_weights(host: Host, weights: Mapping[int, int], wanted: Mapping[int, int]) -> Finding:
    """Others are wanted than those in force."""
    told = ", ".join(f"node {n}: {weights[n]} instead of {w}" for n, w in wanted.items())
    return warn(
        f"the kernel's weights are not those wanted: {told}",
        subject="pool",
        cause="They belong to the machine, not to a pool or a process.",
        evidence=[host.evidence(f"{WEIGHTS}/node{node}") for node in wanted],
        fixes=tuple(
            Fix("sysfs", f"echo {weight} > {WEIGHTS}/node{node}", needs_root=True)
            for node, weight in wanted.items()
        ),
    )


def not_prefaulted(pool: "Pool", error: PrefaultError) -> Finding:
    """Pages could not be brought in."""
    done = f"{amount(error.done)} of {amount(pool.length)} are in"
    if error.errno == errno.EFAULT:
        kind = f"huge page of {amount(pool.page_size)}" if pool.backing.is_hugetlb else "page"
        message = f"no {kind} is left on node {to_text(pool.effective_nodes)}: {done}"
        cause = "A process that touched the rest would get SIGBUS."
    else:
        message = f"the pool could not be brought in: {os.strerror(error.errno or 0)}: {done}"
        cause = "The machine, its cgroup or the nodes of the policy have no memory left."
    return fail(
        message,
        subject="pool",
        cause=cause,
        evidence=[Evidence("madvise MADV_POPULATE_WRITE", os.strerror(error.errno or 0))],
        fixes=hugepage_fixes(pool.effective_nodes, pool.page_size, pool.length)
        if pool.backing.is_hugetlb
        else (Fix("any", "a smaller pool, or one over more nodes"),),
    )


def hugepage_fixes(nodes: Iterable[int], page_size: int, length: int) -> tuple[Fix, ...]:
    """The commands that give each of ``nodes`` its part of the huge pages of a pool."""
    nodes = tuple(nodes) or (0,)
    each = -(-length // page_size // len(nodes))
    folder = f"hugepages/{page_size_folder(page_size)}/nr_hugepages"
    return tuple(
        Fix("sysfs", f"echo {each} > /sys/devices/system/node/node{n}/{folder}", needs_root=True)
        for n in nodes
    )


def gone(handle: Handle, error: OSError) -> Finding:
    """There is nothing to attach to."""
    return fail(
        f"the pool at {handle.where} cannot be attached: {error.strerror}",
        subject="pool",
        cause="Its owner has closed it or ended, or it belongs to another user.",
        evidence=[Evidence(handle.where, error.strerror or "")],
        fixes=(Fix("any", "start its owner first, as the same user"),),
    )


def not_allocated(pool: "Pool", name: str, error: OSError) -> Finding:
    """The kernel refused the memory, or its name is taken."""
    what = f"{amount(pool.length)} of {pool.backing.value} memory"
    fixes: tuple[Fix, ...] = (Fix("any", "a smaller pool, or another backing"),)
    cause = ""
    if error.errno == errno.EEXIST:
        return _taken(name)
    if pool.backing.is_hugetlb and error.errno in (errno.ENOMEM, errno.ENOSPC):
        cause = f"The pools of {amount(pool.page_size)} pages have too few that are not promised."
        fixes = hugepage_fixes(pool.nodes, pool.page_size, pool.length)
    elif pool.backing.is_hugetlb and error.errno == errno.EPERM:
        cause = (
            "SysV segments of huge pages are for the group vm.hugetlb_shm_group, or CAP_IPC_LOCK."
        )
        fixes = (Fix("any", "backing hugetlb-memfd, which needs no right"),)
    return fail(
        f"{what} cannot be had: {error.strerror}",
        subject="pool",
        cause=cause,
        evidence=[Evidence(f"allocation of {pool.backing.value} memory", error.strerror or "")],
        fixes=fixes,
    )


def _taken(name: str) -> Finding:
    from numadoctor.allocator.leftovers import in_use

    path = f"{SHM}/{NAME_PREFIX}{name}"
    if in_use(path):
        return fail(
            f"the name {name} is taken by a pool that is in use",
            subject="pool",
            evidence=[Evidence(path, "exists, and a process holds its lock")],
            fixes=(Fix("any", "another name, or attach to it"),),
        )
    return fail(
        f"an earlier run left its pool behind: {path}",
        subject="pool",
        cause="It takes memory until somebody removes it; no process has it open.",
        evidence=[Evidence(path, "exists, and no process holds its lock")],
        fixes=(Fix("any", f"rm {path}"),),
    )
