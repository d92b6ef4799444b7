"""The reference allocator at work on a machine with several nodes. Runs inside a guest."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numadoctor.allocator import Backing, Handle, Pool, PoolError, room
from numadoctor.allocator.leftovers import find_leftovers
from numadoctor.allocator.nodes import WEIGHTS
from numadoctor.allocator.prefault import prefault
from numadoctor.host import Host
from numadoctor.kernel.policy import Mode, mbind
from numadoctor.model import Finding
from tests.kernel import seccomp
from tests.lab.guest_policy import _enter_cpuset, _run_on, without_balancing

_NODES = Path("/sys/devices/system/node")
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_PATTERN = bytes(range(1, 252))


def split(
    backing: str, mode: str, nodes: list[int] | None, length: int, huge: int | None = None
) -> dict[str, Any]:
    """A pool, what its placement is, and what a second process that attaches sees of it."""
    _pages_alone()
    with Pool(length, backing=backing, mode=mode, nodes=nodes, huge_page_size=huge) as pool:
        pool.prefault(threads=3)
        pool.buffer[: len(_PATTERN)] = _PATTERN
        pool.buffer[-len(_PATTERN) :] = _PATTERN
        answer: dict[str, Any] = {"findings": _told(pool.verify())}
        if Host().topology.numa:
            answer["owner"] = _seen(pool)
        if pool.backing.attachable:
            answer["attached"] = _in_another_process(pool.handle)
        elif pool.backing is not Backing.PRIVATE and pool.backing is not Backing.HUGETLB:
            answer["child"] = _in_a_child(lambda: _content(pool))
        answer["content"] = _content(pool)
    return answer


def huge_page_sizes() -> list[int]:
    """Those of the kernel, in bytes."""
    return list(room.huge_page_sizes(Host()))


def hugetlb(
    backing: str,
    mode: str,
    nodes: list[int] | None,
    per_node: dict[str, int],
    size: int | None = None,
) -> dict[str, Any]:
    """The same from huge pages of a size, or the default one, of which each node has so many."""
    size = size or room.default_huge_page_size(Host())
    pages = sum(per_node.values())
    with _reserved(size, {int(node): count for node, count in per_node.items()}):
        return {**split(backing, mode, nodes, pages * size, size), "pages": pages}


def hugetlb_of_an_empty_node(backing: str) -> dict[str, Any]:
    """A pool bound to a node that has no huge pages, while another has enough for it."""
    size = room.default_huge_page_size(Host())
    answer: dict[str, Any] = {"refused": [], "prefault": []}
    with _reserved(size, {0: 4}):
        try:
            Pool(2 * size, backing=backing, mode="bind", nodes=[1]).close()
        except PoolError as error:
            answer["refused"] = _told([error.finding])
        # What the kernel answers when nobody asked before: prefault must not end in SIGBUS.
        with Pool(2 * size, backing=backing, mode="first-touch") as pool:
            pool.applied = mbind(pool.address, pool.length, Mode.BIND, [1])
            try:
                pool.prefault()
            except PoolError as error:
                answer["prefault"] = _told([error.finding])
        return {**answer, "left": _left_behind()}


@without_balancing()
def first_touch(node: int, length: int) -> dict[str, Any]:
    """A pool that threads on one node bring in."""
    _pages_alone()
    _run_on(node)
    with Pool(length, backing="posix", mode="first-touch") as pool:
        pool.prefault(threads=2)
        return {"owner": _seen(pool), "findings": _told(pool.verify())}


def weighted(weights: dict[str, int], nodes: list[int] | None, length: int) -> dict[str, Any]:
    """A weighted pool under the weights given, and one that wants others."""
    _pages_alone()
    for node, weight in weights.items():
        Path(f"{WEIGHTS}/node{node}").write_text(str(weight))
    try:
        answer = split("private", "weighted-interleave", nodes, length)
        wanted = {int(node): weight + 1 for node, weight in weights.items()}
        with Pool(1 << 20, mode="weighted-interleave", nodes=nodes, weights=wanted) as pool:
            answer["others wanted"] = _told(pool.findings)
        return answer
    finally:
        for node in weights:
            Path(f"{WEIGHTS}/node{node}").write_text("0")


def full_node(node: int, leave: int) -> dict[str, Any]:
    """Pools over all nodes while a node has little more than ``leave`` bytes left."""
    _pages_alone()
    with _Filled(node, leave):
        length = 2 * leave * len(Host().topology.memory_nodes)
        answer: dict[str, Any] = {}
        with Pool(length, backing="memfd", mode="interleave") as pool:
            pool.prefault(threads=2)
            answer["interleave"] = _told(pool.verify())
        try:
            Pool(2 * leave, backing="memfd", mode="bind", nodes=[node]).close()
            answer["bind"] = []
        except PoolError as error:
            answer["bind"] = _told([error.finding])
    return {**answer, "left": _left_behind()}


def cpuset_narrows(kept: str, length: int) -> dict[str, Any]:
    """A pool over all nodes whose cpuset then loses all but ``kept``."""
    _pages_alone()
    nodes = ",".join(str(node.id) for node in Host().topology.memory_nodes)
    _enter_cpuset(nodes)
    group = Path(f"/sys/fs/cgroup/policy-{os.getpid()}")
    with Pool(length, backing="private", mode="interleave") as pool:
        pool.prefault()
        before = _told(pool.verify())
        (group / "cpuset.mems").write_text(kept)
        deadline = time.monotonic() + 60
        after = _told(pool.verify())
        while time.monotonic() < deadline and after == before:
            time.sleep(0.2)
            after = _told(pool.verify())
    with Pool(length, backing="private", mode="interleave", nodes=_ids(nodes)) as pool:
        told = _told(pool.findings)
    return {"before": before, "after": after, "made then": told, "left": _left_behind()}


def filtered(calls: list[str], number: int) -> dict[str, Any]:
    """A pool under a filter that refuses calls."""
    seccomp.install(seccomp.actions(calls, seccomp.refuse(number)))
    with Pool(4 << 20, backing="memfd", mode="interleave") as pool:
        pool.prefault()
        answer = {"mode": pool.effective_mode, "findings": _told(pool.verify())}
    return {**answer, "left": _left_behind()}


def killed(backing: str, name: str = "") -> dict[str, Any]:
    """What a process that is killed while it brings its pool in leaves behind."""
    huge = backing.startswith("hugetlb")
    size = room.default_huge_page_size(Host()) if huge else 0
    # More than is brought in between two calls of the progress.
    length = 3 * max(64 << 20, size)
    nodes = [node.id for node in Host().topology.memory_nodes]
    each = -(-length // size // len(nodes)) if huge else 0
    with _reserved(size, dict.fromkeys(nodes if huge else (), each)):
        child = os.fork()
        if child == 0:
            with Pool(length, backing=backing, mode="interleave", name=name) as pool:
                pool.prefault(threads=1, progress=_die)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        answer: dict[str, Any] = {
            "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
            "left": _left_behind(),
        }
    if name:
        try:
            Pool(1 << 20, backing=backing, name=name).close()
        except PoolError as error:
            answer["again"] = _told([error.finding])
        for leftover in find_leftovers():
            os.unlink(leftover.path)
    return answer


def _left_behind() -> dict[str, Any]:
    """Memory that no process has any more and that is not free either."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(meminfo.get(f"HugePages_{name}", "0")) for name in ("Total", "Free"))
    return {
        "sysv": len(Path("/proc/sysvipc/shm").read_text().splitlines()) - 1,
        "posix": os.listdir("/dev/shm"),
        "huge": total - free,
        "leftovers": [leftover.path for leftover in find_leftovers()],
    }


def _die(done: int, _length: int) -> None:
    if done:
        os.kill(os.getpid(), signal.SIGKILL)


def command(*arguments: str) -> dict[str, Any]:
    """``numadoctor interleave`` with its answer as JSON."""
    line = [sys.executable, "-m", "numadoctor", "interleave", "-o", "json", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return {
        "exit": done.returncode,
        "answer": json.loads(done.stdout or "null"),
        "err": done.stderr,
    }


def _seen(pool: Pool) -> dict[str, Any]:
    placement = pool.placement()
    return {
        "pages": {str(n): b // pool.page_size for n, b in sorted(placement.bytes_by_node.items())},
        "run": placement.run_length,
        "policy": placement.policy.text if placement.policy else None,
        "method": placement.method.value,
        "page_size": pool.page_size,
    }


def _told(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "status": finding.status.value,
            "message": finding.message,
            "cause": finding.cause,
            "fixes": [fix.text for fix in finding.fixes],
        }
        for finding in findings
    ]


def _content(pool: Pool) -> bool:
    size = len(_PATTERN)
    view = pool.buffer
    return bytes(view[:size]) == bytes(view[-size:]) == _PATTERN


def _in_another_process(handle: Handle) -> dict[str, Any]:
    """What a process sees that opens the pool by its handle alone."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(theirs, "w") as out:
            json.dump(attached(handle.data()), out)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        seen: dict[str, Any] = json.load(answer)
    os.waitpid(child, 0)
    return seen


def attached(data: dict[str, Any]) -> dict[str, Any]:
    """Attach, bring the pages into this process's page tables, look."""
    with Pool.attach(Handle.of(data)) as pool:
        content = _content(pool)
        prefault(pool.address, pool.length, pool.page_size, write=False)
        seen = _seen(pool) if Host().topology.numa else {}
        return {**seen, "content": content, "findings": _told(pool.verify())}


def attached_by_a_program(backing: str, length: int) -> dict[str, Any]:
    """The same by a program that was started afresh."""
    _pages_alone()
    code = (
        "import json, sys; from tests.lab.guest_allocator import attached; "
        "print(json.dumps(attached(json.loads(sys.argv[1]))))"
    )
    with Pool(length, backing=backing, mode="interleave") as pool:
        pool.prefault()
        pool.buffer[: len(_PATTERN)] = _PATTERN
        pool.buffer[-len(_PATTERN) :] = _PATTERN
        handle = json.dumps(pool.handle.data())
        done = subprocess.run(
            [sys.executable, "-c", code, handle], capture_output=True, text=True, check=True
        )
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def _in_a_child(look: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if look() else 1)
    return os.waitpid(child, 0)[1] == 0


def _pages_alone() -> None:
    """No transparent huge pages: a count is then exact to the page."""
    with suppress(OSError):
        _THP.write_text("never")


@contextmanager
def _reserved(size: int, per_node: dict[int, int]) -> Iterator[None]:
    """So many huge pages on each node."""
    try:
        for node, count in per_node.items():
            _reserve(node, size, count)
        yield
    finally:
        for node in per_node:
            _reserve(node, size, 0)


def _reserve(node: int, size: int, count: int) -> None:
    path = _NODES / f"node{node}/hugepages/hugepages-{size >> 10}kB/nr_hugepages"
    path.write_text(str(count))
    if (given := int(path.read_text())) != count:
        raise RuntimeError(f"node {node} gives {given} huge pages, not {count}")


class _Filled:
    """A child that holds most of a node's memory."""

    def __init__(self, node: int, leave: int) -> None:
        self._node, self._leave = node, leave

    def __enter__(self) -> None:
        ready, tell = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            pools = []
            # More becomes free meanwhile: what processes had that have just ended.
            while (length := self._too_much()) > 1 << 20:
                pool = Pool(length, backing="private", mode="bind", nodes=[self._node])
                pool.prefault()
                pools.append(pool)
            os.write(tell, b"x")
            signal.pause()
        os.close(tell)
        if os.read(ready, 1) != b"x":
            raise RuntimeError("the node could not be filled")

    def _too_much(self) -> int:
        node = Host().topology.node(self._node)
        return (node.free_bytes or 0) - self._leave if node else 0

    def __exit__(self, *_error: object) -> None:
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)


def _ids(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
