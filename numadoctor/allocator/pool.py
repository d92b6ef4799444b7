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
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from numadoctor.allocator import findings
from numadoctor.allocator.backing import NAME_PREFIX, SHM, Backing, Region, allocate, attach
from numadoctor.allocator.handle import Handle
from numadoctor.allocator.modes import FIRST_TOUCH, MODES, checked_mode
from numadoctor.allocator.nodes import NodeSet, choose_nodes, kernel_weights
from numadoctor.allocator.prefault import Prefaulted, PrefaultError, Progress, prefault
from numadoctor.host import Host
from numadoctor.kernel.policy import Applied, mbind, mems_allowed
from numadoctor.kernel.refusal import PolicyError
from numadoctor.model import Denied, Evidence, Finding, Fix, Undecided
from numadoctor.model.units import amount

if TYPE_CHECKING:
    from numadoctor.model.placement import Placement


class PoolError(Exception):
    """A pool could not be had; the finding says why and what helps."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


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
        self.mode = checked_mode(mode)
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
        pool.backing, pool.mode = Backing(handle.backing), checked_mode(handle.mode)
        pool.page_size, pool.length, pool.nodes = handle.page_size, handle.length, handle.nodes
        pool._host, pool.findings = host or Host(), []
        pool.prefaulted, pool.applied, pool._name = None, None, ""
        pool.weights = pool._settle_weights(None)
        pool._locked = pool._registered = False
        try:
            pool._region = attach(pool.backing, handle.where, handle.length)
        except OSError as error:
            raise PoolError(findings.gone(handle, error)) from None
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
            finding = findings.not_prefaulted(self, error)
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

        if not self._host.topology.numa:
            return list(self.findings)  # one of them says so
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
        return [findings.taken_away(lost, allowed)] if lost else []

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
        from numadoctor.allocator.room import default_huge_page_size, huge_page_sizes

        sizes = huge_page_sizes(self._host)
        if huge_page_size is None:
            return default_huge_page_size(self._host)
        if huge_page_size not in sizes:
            have = ", ".join(map(amount, sizes)) or "none"
            raise ValueError(f"no huge pages of {amount(huge_page_size)}: this kernel has {have}")
        return huge_page_size

    def _tell_left_out(self, chosen: NodeSet, *, explicit: bool) -> None:
        if explicit and chosen.left_out and self.mode != FIRST_TOUCH:
            self.findings.append(findings.left_out(self._host, chosen))

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
            self.findings.append(findings.other_weights(self._host, weights, wrong))
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
            raise PoolError(findings.not_allocated(self, self._name, error)) from None

    def _apply_policy(self) -> None:
        if not self._host.topology.numa:
            self.findings.append(findings.no_numa(self._host))
        elif self.mode != FIRST_TOUCH:
            self._set_policy()

    def _set_policy(self) -> None:
        if not self.nodes:
            self._fall_back("no node is left to place it on", findings.CPUSET_FIXES)
            return
        if deadly := {"mbind", "get_mempolicy"} & deadly_calls():
            call = Evidence(", ".join(sorted(deadly)), "SIGSYS in a forked child")
            why = "a system-call filter kills who calls mbind"
            self._fall_back(why, findings.FILTER_FIXES, call)
            return
        try:
            self.applied = mbind(self.address, self.length, MODES[self.mode], self.nodes)
        except PolicyError as error:
            call = Evidence(error.call, f"{errno.errorcode.get(error.errno or 0, error.errno)}")
            self._fall_back(error.cause, (Fix("any", error.fix),), call)
            return
        if self.applied.narrowed:
            self.findings.append(findings.narrowed(self._host, self.applied.because))

    def _fall_back(self, why: str, fixes: tuple[Fix, ...], *seen: Evidence) -> None:
        self.findings.append(findings.fell_back(self._host, self.mode, why, fixes, *seen))


@lru_cache(maxsize=1)
def deadly_calls() -> frozenset[str]:
    """The NUMA calls that a filter answers by killing the caller, found out in a forked child."""
    from numadoctor.kernel.probe import probe_calls

    return frozenset(call["name"] for call in probe_calls()["calls"] if call["signal"])


__all__ = ["Pool", "PoolError"]
