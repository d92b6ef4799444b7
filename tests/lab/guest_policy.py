"""Memory policies at work on a machine with several nodes. Runs inside a guest."""

import ctypes
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numadoctor.kernel import nodemask, policy, probe, proof
from numadoctor.kernel.abi import ByteOrder
from numadoctor.kernel.policy import MbindFlag, Mode, ModeFlag, PolicyError
from numadoctor.kernel.syscalls import set_mempolicy as raw_set_mempolicy

SIZE = mmap.PAGESIZE
_CGROUPS = Path("/sys/fs/cgroup")
_BALANCING = Path("/proc/sys/kernel/numa_balancing")


class Pages:
    """Private pages of this process, which stay until it ends."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._memory = mmap.mmap(-1, count * SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        # A huge page would come from one node as a whole.
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)

    @property
    def length(self) -> int:
        return self.count * SIZE

    def touch(self) -> "Pages":
        for page in range(self.count):
            self._memory[page * SIZE] = 1
        return self

    def places(self) -> dict[str, int]:
        """How many pages are on each node."""
        addresses = [self.start + page * SIZE for page in range(self.count)]
        return {str(node): n for node, n in sorted(Counter(policy.pages_on(addresses)).items())}


@contextmanager
def without_balancing() -> Iterator[None]:
    """Keep the kernel from marking pages of the default policy, to see who touches them.

    Before Linux 6.5 move_pages tells ENOENT of a page so marked ("mm/gup: reintroduce
    FOLL_NUMA as FOLL_HONOR_NUMA_FAULT").
    """
    former = _BALANCING.read_text() if _BALANCING.exists() else ""
    if former:
        _BALANCING.write_text("0")
    try:
        yield
    finally:
        if former:
            _BALANCING.write_text(former)


def _run_on(node: int) -> None:
    """Stay on the CPUs of a node."""
    cpus: set[int] = set()
    for part in Path(f"/sys/devices/system/node/node{node}/cpulist").read_text().split(","):
        first, _, last = part.strip().partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    os.sched_setaffinity(0, cpus)


def _enter_cpuset(nodes: str) -> None:
    """Narrow the memory nodes of this process by a cpuset of its own."""
    (_CGROUPS / "cgroup.subtree_control").write_text("+cpuset")
    group = _CGROUPS / f"policy-{os.getpid()}"
    group.mkdir()
    (group / "cpuset.mems").write_text(nodes)
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _applied(applied: policy.Applied) -> dict[str, Any]:
    return {
        "policy": str(applied.policy),
        "nodes": applied.nodes,
        "narrowed": applied.narrowed,
        "dropped": applied.dropped,
        "because": applied.because,
    }


def _refusal(ask: Callable[[], Any]) -> dict[str, Any]:
    try:
        ask()
    except PolicyError as error:
        return {"kind": type(error).__name__, "errno": error.errno, "cause": error.cause}
    return {"kind": None}


def prove() -> dict[str, Any]:
    """The proofs of maxnode on this kernel."""
    return proof.prove()


def effect() -> dict[str, Any]:
    return probe.probe_effect()


def features() -> dict[str, Any]:
    return probe.probe_features()


def allowed() -> list[int]:
    return list(policy.mems_allowed())


def placed(mode: str, nodes: Sequence[int], count: int) -> dict[str, Any]:
    """Where pages of a range under a policy are, and where they are under one of the thread."""
    ranged = Pages(count)
    applied = policy.mbind(ranged.start, ranged.length, Mode[mode], nodes)
    found = {"range": ranged.touch().places(), "applied": _applied(applied)}
    policy.set_mempolicy(Mode[mode], nodes)
    found["thread"] = Pages(count).touch().places()
    policy.set_mempolicy(Mode.DEFAULT)
    return found


def weighted(weights: dict[str, int], count: int) -> dict[str, int]:
    """Where pages are that are interleaved by these weights."""
    for node, weight in weights.items():
        Path(f"/sys/kernel/mm/mempolicy/weighted_interleave/node{node}").write_text(str(weight))
    pages = Pages(count)
    policy.mbind(pages.start, pages.length, Mode.WEIGHTED_INTERLEAVE, map(int, weights))
    return pages.touch().places()


@without_balancing()
def first_touch(node: int) -> dict[str, int]:
    """Where pages are that a CPU of the node touches first."""
    _run_on(node)
    return Pages(64).touch().places()


def short_maxnode() -> dict[str, Any]:
    """Where pages are when maxnode is the number of nodes, as it is often taken for."""
    mask = ctypes.c_ulong(0b11)
    wrong = raw_set_mempolicy(Mode.INTERLEAVE, ctypes.addressof(mask), 2)
    shown = str(policy.get_mempolicy())
    places = Pages(64).touch().places()
    policy.set_mempolicy(Mode.DEFAULT)
    return {"errno": wrong.errno, "policy": shown, "places": places}


def byte_orders() -> dict[str, int]:
    """What a policy for node 0 is answered, by the byte order of its mask: an errno, or 0."""
    found: dict[str, int] = {}
    orders: tuple[ByteOrder, ...] = ("little", "big")
    for order in orders:
        mask = nodemask.encode([0], byteorder=order)
        buffer = ctypes.create_string_buffer(mask, len(mask))
        maxnode = nodemask.maxnode_for(mask)
        answer = raw_set_mempolicy(Mode.BIND, ctypes.addressof(buffer), maxnode)
        found[order] = answer.errno
    policy.set_mempolicy(Mode.DEFAULT)
    return found


def narrowed(mems: str, nodes: Sequence[int]) -> dict[str, Any]:
    """A policy for nodes of which the cpuset allows some."""
    _enter_cpuset(mems)
    return _applied(policy.set_mempolicy(Mode.INTERLEAVE, nodes))


def shut_out(mems: str, nodes: Sequence[int]) -> dict[str, Any]:
    """A policy for nodes of which the cpuset allows none."""
    _enter_cpuset(mems)
    return _refusal(lambda: policy.set_mempolicy(Mode.BIND, nodes))


def relative(mems: str, nodes: Sequence[int]) -> dict[str, Any]:
    """What a relative set resolves to, and where its pages are."""
    _enter_cpuset(mems)
    applied = policy.set_mempolicy(Mode.INTERLEAVE, nodes, ModeFlag.RELATIVE_NODES)
    return {"nodes": applied.nodes, "places": Pages(64).touch().places()}


@without_balancing()
def moved(source: int, target: int) -> dict[str, Any]:
    """Pages of one node: strict binding to another refused, then moved there and back."""
    pages = Pages(64)
    policy.mbind(pages.start, pages.length, Mode.BIND, [source])
    found: dict[str, Any] = {"touched": pages.touch().places()}
    found["strict"] = _refusal(
        lambda: policy.mbind(pages.start, pages.length, Mode.BIND, [target], 0, MbindFlag.STRICT)
    )
    policy.mbind(pages.start, pages.length, Mode.BIND, [target], 0, MbindFlag.MOVE)
    found["mbind"] = pages.places()
    addresses = [pages.start + page * SIZE for page in range(pages.count)]
    policy.mbind(pages.start, pages.length, Mode.DEFAULT)
    policy.move_pages(addresses, [source] * pages.count)
    found["move_pages"] = pages.places()
    found["left"] = policy.migrate_pages([source], [target])
    found["migrate_pages"] = pages.places()
    return found


def home_node(nodes: Sequence[int], home: int, cpu_node: int) -> dict[str, Any]:
    """Where pages are that are bound to several nodes with one of them as home."""
    _run_on(cpu_node)
    pages = Pages(64)
    policy.mbind(pages.start, pages.length, Mode.BIND, nodes)
    refused = _refusal(lambda: policy.set_mempolicy_home_node(pages.start, pages.length, home))
    return {"refused": refused, "places": pages.touch().places()}


def refused(nodes: Sequence[int]) -> dict[str, Any]:
    """What becomes of binding to these nodes."""
    return _refusal(lambda: policy.set_mempolicy(Mode.BIND, nodes))
