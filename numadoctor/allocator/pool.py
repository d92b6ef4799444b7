"""The reference pool: one arena, one policy before the first touch, verified page by page.

This is how a KV-cache pool is placed properly, end to end, written to be read
and copied into an engine. What cannot be had (the call is filtered, the node
set is narrowed) becomes a finding and the pool is there all the same, left to
first touch: serving goes on, and somebody is told.
"""

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from numadoctor.allocator.backing import NAME_PREFIX, SHM, Backing, Region, allocate, attach
from numadoctor.allocator.nodes import WEIGHTS, NodeSet, choose_nodes, kernel_weights
from numadoctor.allocator.prefault import Prefaulted, PrefaultError, Progress, prefault
from numadoctor.host import Host
from numadoctor.kernel.nodemask import to_text
from numadoctor.kernel.policy import Applied, Mode, mbind, mems_allowed
from numadoctor.kernel.refusal import PolicyError
from numadoctor.model import Denied, Evidence, Finding, Fix, Undecided, fail, info, warn
from numadoctor.model.units import amount

if TYPE_CHECKING:
    from numadoctor.model.placement import Placement

FIRST_TOUCH = "first-touch"
MODES: Mapping[str, Mode] = {
    FIRST_TOUCH: Mode.DEFAULT,
    "interleave": Mode.INTERLEAVE,
    "weighted-interleave": Mode.WEIGHTED_INTERLEAVE,
    "bind": Mode.BIND,
    "preferred-many": Mode.PREFERRED_MANY,
}


class PoolError(Exception):
    """A pool could not be had; the finding says why and what helps."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


@dataclass(frozen=True)
class Handle:
    """What another process needs to attach to a pool. Plain data: pass it as JSON.

    :ivar where: a path or a System V id, good for as long as a process has the pool
    """

    backing: str
    where: str
    length: int
    page_size: int
    mode: str
    nodes: tuple[int, ...]

    def data(self) -> dict[str, Any]:
        """As JSON data."""
        return {**asdict(self), "nodes": list(self.nodes)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Handle":
        """From JSON data.

        :raises ValueError: it is no handle
        """
        try:
            return cls(
                Backing(data["backing"]).value,
                str(data["where"]),
                int(data["length"]),
                int(data["page_size"]),
                str(data["mode"]),
                tuple(int(node) for node in data["nodes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"bad pool handle: {error}") from None


class Pool:
    """Memory for a cache, mapped in one piece under one memory policy.

    ::

        with Pool(64 << 30, backing="posix", mode="interleave") as pool:
            pool.prefault(threads=16)
            for finding in pool.verify():
                log(finding.message)
            cache = pool.numpy("float16")

    The policy is set by one ``mbind`` over the whole arena before anything is
    touched: pages that are there already would stay where they are, and one
    call for each block would split the mapping, of which a process may have
    65,530 (vm.max_map_count).

    :param size: in bytes; rounded up to whole pages (``length``)
    :param backing: a ``Backing`` or its value
    :param mode: one of ``MODES``
    :param nodes: node ids, or None for all nodes with CPUs and memory that this
        process may use: never memory of GPUs or of slower tiers
    :param weights: for weighted-interleave, node id to pages per round. The
        kernel goes by its own, one set for the whole machine: where those differ
        from what is wanted, a finding gives the commands that set them
    :param huge_page_size: in bytes, for hugetlb backings; None for the default size
    :param name: of a POSIX segment that others find by its name; without one
        nothing can be left behind, and others attach by ``handle``
    :param host: where the topology is read; the live machine if None
    :raises PoolError: the memory cannot be had
    :raises ValueError: an argument makes no sense
    """

    def __init__(
        self,
        size: int,
        *,
        backing: str | Backing = Backing.POSIX,
        mode: str = "interleave",
        nodes: Iterable[int] | None = None,
        weights: Mapping[int, int] | None = None,
        huge_page_size: int | None = None,
        name: str = "",
        host: Host | None = None,
    ) -> None:
        self.backing = Backing(backing)
        self.mode = _checked_mode(mode)
        self._host = host or Host()
        self._check_arguments(size, name)
        self.page_size = self._page_size(huge_page_size)
        self.length = -(-size // self.page_size) * self.page_size
        self.findings: list[Finding] = []
        self.prefaulted: Prefaulted | None = None
        self.applied: Applied | None = None
        self._locked = self._registered = False
        self._name = name
        chosen = choose_nodes(self._host.topology, nodes)
        self.nodes = chosen.nodes
        self._tell_left_out(chosen, explicit=nodes is not None)
        self.weights = self._settle_weights(weights)
        self._check_room()
        self._region = self._allocate()
        try:
            self._apply_policy()
        except BaseException:
            self.close()
            raise

    @classmethod
    def attach(cls, handle: Handle, *, host: Host | None = None) -> "Pool":
        """Attach to the pool of another process, and set its policy here too.

        Shared memory keeps its policy with the segment, but a hugetlb segment
        does not: there the policy belongs to each mapping, and an attacher
        without one would place what it touches first by first touch.

        :raises PoolError: the pool is gone, or belongs to somebody else
        """
        pool = cls.__new__(cls)
        pool.backing, pool.mode = Backing(handle.backing), _checked_mode(handle.mode)
        pool.page_size, pool.length, pool.nodes = handle.page_size, handle.length, handle.nodes
        pool._host, pool.findings = host or Host(), []
        pool.prefaulted, pool.applied, pool._name = None, None, ""
        pool.weights = pool._settle_weights(None)
        pool._locked = pool._registered = False
        try:
            pool._region = attach(pool.backing, handle.where, handle.length)
        except OSError as error:
            raise PoolError(_gone(handle, error)) from None
        try:
            pool._apply_policy()
        except BaseException:
            pool.close()
            raise
        return pool

    @property
    def address(self) -> int:
        """Of the first byte."""
        return self._region.address

    @property
    def effective_mode(self) -> str:
        """The mode in force: ``first-touch`` where the one asked for could not be had."""
        return self.mode if self.applied is not None or self.mode == FIRST_TOUCH else FIRST_TOUCH

    @property
    def effective_nodes(self) -> tuple[int, ...]:
        """The nodes that pages come from, as far as the kernel told."""
        if self.applied is not None and self.applied.nodes is not None:
            return self.applied.nodes
        return self.nodes

    @property
    def handle(self) -> Handle:
        """What another process attaches by.

        :raises ValueError: memory of this kind cannot be attached to
        """
        if not self.backing.attachable:
            raise ValueError(f"a {self.backing.value} pool cannot be attached to from outside")
        where = f"{SHM}/{NAME_PREFIX}{self._name}" if self._name else self._region.where
        return Handle(self.backing.value, where, self.length, self.page_size, self.mode, self.nodes)

    @property
    def buffer(self) -> memoryview:
        """The memory, writable, as bytes. Release it before the pool is closed."""
        return self._region.view()

    def __buffer__(self, flags: int) -> memoryview:
        # PEP 688: from Python 3.12 on, memoryview(pool) works as well.
        return self._region.view()

    def numpy(self, dtype: Any = "uint8") -> Any:
        """The memory as a numpy array of ``dtype``, without a copy."""
        import numpy

        return numpy.frombuffer(self.buffer, dtype)

    def torch(self, dtype: Any = None) -> Any:
        """The memory as a torch tensor of ``dtype`` (uint8 if None), without a copy."""
        import torch

        return torch.frombuffer(self.buffer, dtype=dtype or torch.uint8)

    def prefault(self, threads: int = 0, progress: Progress | None = None) -> Prefaulted:
        """Bring all pages in. Content is kept where others have written already.

        :param threads: 0 for one a CPU, at most eight
        :raises PoolError: the kernel has no page where the policy allows one
        """
        try:
            self.prefaulted = prefault(
                self.address,
                self.length,
                self.page_size,
                threads=threads,
                progress=progress,
                shared=self.backing not in (Backing.PRIVATE, Backing.HUGETLB),
            )
        except PrefaultError as error:
            finding = self._not_prefaulted(error)
            self.findings.append(finding)
            raise PoolError(finding) from error
        return self.prefaulted

    def placement(self) -> "Placement":
        """Where each page is. Touches none.

        :raises Undecided: move_pages is refused and numa_maps cannot be read
        """
        from numadoctor.allocator.verify import KINDS
        from numadoctor.placement.buffers import place_buffer

        if deadly := {"move_pages", "get_mempolicy"} & deadly_calls():
            call = ", ".join(sorted(deadly))
            raise Denied(call, None, "a system-call filter kills who calls it")
        return place_buffer(
            self.address, self.length, page_size=self.page_size, kind=KINDS[self.backing]
        )

    def verify(self) -> list[Finding]:
        """Look at every page and judge; findings of its making come first."""
        from numadoctor.allocator.verify import judge

        taken = self._taken_away()
        try:
            judged = [*taken, *judge(self, self.placement())]
        except Undecided as error:
            from numadoctor.model import unknown

            told = f"where the pool is cannot be told: {error}"
            judged = [*taken, unknown(told, subject="pool")]
        return [*self.findings, *judged]

    def _taken_away(self) -> list[Finding]:
        """A finding if the cpuset has lost nodes of the pool since it was made."""
        if self.applied is None:
            return []
        try:
            allowed = mems_allowed()
        except PolicyError:
            return []
        lost = [node for node in self.effective_nodes if node not in allowed]
        if not lost:
            return []
        return [
            warn(
                f"node {to_text(lost)} has been taken from the pool since it was made: "
                f"Mems_allowed_list is {to_text(allowed)}",
                subject="pool",
                cause="Whoever narrowed the cpuset has changed the policy, and may have moved "
                "the pages.",
                evidence=[Evidence("get_mempolicy MPOL_F_MEMS_ALLOWED", to_text(allowed))],
                fixes=_CPUSET_FIXES,
            )
        ]

    def lock(self) -> bool:
        """Keep the pool from being swapped (mlock); False, with a finding, where refused."""
        from numadoctor.allocator.pinning import lock

        finding = lock(self.address, self.length)
        self._locked = finding is None
        self.findings += [finding] if finding else []
        return self._locked

    def register_with_cuda(self) -> bool:
        """Pin the pool for the GPU's DMA (cudaHostRegister), through libcudart if it is there.

        False, with a finding, where it is not. Not tried on hardware by this
        project.
        """
        from numadoctor.allocator.pinning import register

        finding = register(self.address, self.length)
        self._registered = finding is None
        self.findings += [finding] if finding else []
        return self._registered

    def close(self) -> None:
        """Unmap the pool; the last process that closes it frees the memory.

        :raises BufferError: a view of it (numpy, torch) is still in use
        """
        if self._registered:
            from numadoctor.allocator.pinning import unregister

            unregister(self.address)
            self._registered = False
        self._region.close()
        if self._name:
            with suppress(FileNotFoundError):
                os.unlink(f"{SHM}/{NAME_PREFIX}{self._name}")
            self._name = ""

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_arguments(self, size: int, name: str) -> None:
        if size <= 0:
            raise ValueError(f"a pool of {size} bytes makes no sense")
        if name and self.backing is not Backing.POSIX:
            raise ValueError(f"only a posix pool has a name, not {self.backing.value}")
        if name and ("/" in name or name in (".", "..") or "\0" in name or len(name) > 200):
            raise ValueError(f"bad pool name {name!r}: a file name of at most 200 characters")

    def _page_size(self, huge_page_size: int | None) -> int:
        if not self.backing.is_hugetlb:
            return os.sysconf("SC_PAGE_SIZE")
        sizes = huge_page_sizes(self._host)
        if huge_page_size is None:
            return default_huge_page_size(self._host)
        if huge_page_size not in sizes:
            have = ", ".join(map(amount, sizes)) or "none"
            raise ValueError(f"no huge pages of {amount(huge_page_size)}: this kernel has {have}")
        return huge_page_size

    def _tell_left_out(self, chosen: NodeSet, *, explicit: bool) -> None:
        if not self._host.topology.numa:
            self.findings.append(
                info(
                    "this kernel has no NUMA support: the pool lies in the one memory there is",
                    subject="pool",
                    evidence=[self._host.evidence("/sys/devices/system/node")],
                )
            )
        elif self.mode == FIRST_TOUCH:
            return
        elif explicit and chosen.left_out:
            told = "; ".join(f"node {node}: {why}" for node, why in chosen.left_out.items())
            self.findings.append(
                warn(
                    f"the pool is placed on node {to_text(chosen.nodes)} only: {told}",
                    subject="pool",
                    cause="The kernel drops such nodes from a policy without a word.",
                    evidence=[self._host.evidence("/proc/self/status", "Mems_allowed_list")],
                    fixes=_CPUSET_FIXES,
                )
            )

    def _settle_weights(self, wanted: Mapping[int, int] | None) -> dict[int, int]:
        """The weights in force, node id to pages per round; a finding where others are wanted."""
        if self.mode != "weighted-interleave":
            return {}
        try:
            weights = kernel_weights(self._host, self.nodes)
        except Undecided:
            # mbind will say that the kernel has no such policy.
            return {}
        wanted = {n: w for n, w in (wanted or weights).items() if n in weights}
        if wrong := {n: w for n, w in wanted.items() if weights[n] != w}:
            self.findings.append(_other_weights(self._host, weights, wrong))
        return weights

    def _check_room(self) -> None:
        """Refuse what would get this process, or another, killed when it is touched.

        :raises PoolError: there is no room
        """
        from numadoctor.allocator.room import no_room

        nodes = self.nodes if self.mode == "bind" else None
        finding = no_room(self._host, self.backing, self.length, self.page_size, nodes)
        if finding:
            raise PoolError(finding)

    def _allocate(self) -> Region:
        try:
            return allocate(self.backing, self.length, self.page_size, self._name)
        except OSError as error:
            raise PoolError(_not_allocated(self, error)) from None

    def _apply_policy(self) -> None:
        if self.mode == FIRST_TOUCH or not self._host.topology.numa:
            return
        if not self.nodes:
            self._fall_back("no node is left to place it on", _CPUSET_FIXES)
            return
        if deadly := {"mbind", "get_mempolicy"} & deadly_calls():
            call = Evidence(", ".join(sorted(deadly)), "SIGSYS in a forked child")
            self._fall_back("a system-call filter kills who calls mbind", _FILTER_FIXES, call)
            return
        try:
            self.applied = mbind(self.address, self.length, MODES[self.mode], self.nodes)
        except PolicyError as error:
            call = Evidence(error.call, f"{errno.errorcode.get(error.errno or 0, error.errno)}")
            self._fall_back(error.cause, (Fix("any", error.fix),), call)
            return
        if self.applied.narrowed:
            self.findings.append(
                warn(
                    f"the kernel narrowed the pool's nodes: {self.applied.because}",
                    subject="pool",
                    evidence=[self._host.evidence("/proc/self/status", "Mems_allowed_list")],
                    fixes=_CPUSET_FIXES,
                )
            )

    def _fall_back(self, why: str, fixes: tuple[Fix, ...], *seen: Evidence) -> None:
        self.findings.append(
            warn(
                f"{self.mode} could not be set, the pool is left to first touch: {why}",
                subject="pool",
                cause="Each page lands on the node of the thread that touches it first.",
                evidence=[
                    *seen,
                    self._host.evidence("/proc/self/status", "Seccomp", "Mems_allowed_l"),
                ],
                fixes=fixes,
            )
        )

    def _not_prefaulted(self, error: PrefaultError) -> Finding:
        done = f"{amount(error.done)} of {amount(self.length)} are in"
        if error.errno == errno.EFAULT:
            kind = f"huge page of {amount(self.page_size)}" if self.backing.is_hugetlb else "page"
            message = f"no {kind} is left on node {to_text(self.effective_nodes)}: {done}"
            cause = "A process that touched the rest would get SIGBUS."
        else:
            message = f"the pool could not be brought in: {os.strerror(error.errno or 0)}: {done}"
            cause = "The machine, its cgroup or the nodes of the policy have no memory left."
        return fail(
            message,
            subject="pool",
            cause=cause,
            evidence=[Evidence("madvise MADV_POPULATE_WRITE", os.strerror(error.errno or 0))],
            fixes=hugepage_fixes(self.effective_nodes, self.page_size, self.length)
            if self.backing.is_hugetlb
            else (Fix("any", "a smaller pool, or one over more nodes"),),
        )


_CPUSET_FIXES = (
    Fix("docker", "--cpuset-mems=NODES", needs_restart=True),
    Fix("systemd", "AllowedMemoryNodes=NODES", needs_root=True, needs_restart=True, persists=True),
)


_FILTER_FIXES = (Fix("any", "numadoctor syscalls names the filter and the line to change"),)


@lru_cache(maxsize=1)
def deadly_calls() -> frozenset[str]:
    """The NUMA calls that a filter answers by killing the caller, found out in a forked child."""
    from numadoctor.kernel.probe import probe_calls

    return frozenset(call["name"] for call in probe_calls()["calls"] if call["signal"])


def _checked_mode(mode: str) -> str:
    if mode not in MODES:
        raise ValueError(f"bad mode {mode!r}: one of {', '.join(MODES)}")
    return mode


def _other_weights(host: Host, weights: Mapping[int, int], wanted: Mapping[int, int]) -> Finding:
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


def huge_page_sizes(host: Host) -> tuple[int, ...]:
    """The sizes of huge pages this kernel has, in bytes, ascending."""
    from numadoctor.host.topology import read_pools

    return tuple(pool.page_size for pool in read_pools(host, "/sys/kernel/mm/hugepages"))


def default_huge_page_size(host: Host) -> int:
    """``Hugepagesize`` of /proc/meminfo, in bytes.

    :raises ValueError: this kernel has none
    """
    from numadoctor.host.parsers import parse_meminfo

    size = host.parse("/proc/meminfo", parse_meminfo).get("Hugepagesize")
    if not size:
        raise ValueError("this kernel has no huge page pools (no Hugepagesize in /proc/meminfo)")
    return size


def hugepage_fixes(nodes: Iterable[int], page_size: int, length: int) -> tuple[Fix, ...]:
    """The commands that give each of ``nodes`` its part of the huge pages of a pool."""
    nodes = tuple(nodes) or (0,)
    each = -(-length // page_size // len(nodes))
    folder = f"hugepages/hugepages-{page_size >> 10}kB/nr_hugepages"
    return tuple(
        Fix("sysfs", f"echo {each} > /sys/devices/system/node/node{n}/{folder}", needs_root=True)
        for n in nodes
    )


def _gone(handle: Handle, error: OSError) -> Finding:
    return fail(
        f"the pool at {handle.where} cannot be attached: {error.strerror}",
        subject="pool",
        cause="Its owner has closed it or ended, or it belongs to another user.",
        evidence=[Evidence(handle.where, error.strerror or "")],
        fixes=(Fix("any", "start its owner first, as the same user"),),
    )


def _not_allocated(pool: Pool, error: OSError) -> Finding:
    what = f"{amount(pool.length)} of {pool.backing.value} memory"
    fixes: tuple[Fix, ...] = (Fix("any", "a smaller pool, or another backing"),)
    cause = ""
    if error.errno == errno.EEXIST:
        return _leftover(pool)
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


def _leftover(pool: Pool) -> Finding:
    from numadoctor.allocator.leftovers import in_use

    path = f"{SHM}/{NAME_PREFIX}{pool._name}"
    if in_use(path):
        return fail(
            f"the name {pool._name} is taken by a pool that is in use",
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


__all__ = ["FIRST_TOUCH", "MODES", "Handle", "Pool", "PoolError"]
