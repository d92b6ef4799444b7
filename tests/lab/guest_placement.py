"""Where the pages of processes are found to be, whose placement is known. Runs inside a guest."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from numadoctor.host import Host
from numadoctor.kernel import policy
from numadoctor.kernel.policy import Mode
from numadoctor.model import Target
from numadoctor.model.placement import Method, Placement, ProcessPlacement
from numadoctor.placement import place
from numadoctor.placement.buffers import place_buffer
from numadoctor.placement.difference import difference
from numadoctor.placement.measure import from_sample, take
from numadoctor.placement.sampling import sample, survey
from numadoctor.placement.study import Study
from numadoctor.placement.threads import read_threads
from tests.kernel import seccomp
from tests.lab import guest_victims as victims
from tests.lab.guest_policy import _run_on
from tests.lab.guest_victims import MIB, PAGE, Memory, victim


def _told(placement: Placement) -> dict[str, Any]:
    """What of a placement travels."""
    return {
        "kind": placement.mapping.kind.value,
        "name": placement.mapping.name,
        "start": placement.mapping.start,
        "length": placement.mapping.length,
        "policy": placement.policy.text if placement.policy else None,
        "policy_unknown": placement.policy_unknown,
        "page_size": placement.page_size,
        "resident": placement.resident,
        "by_node": {
            str(node): [share.bytes, share.low, share.high]
            for node, share in placement.by_node.items()
        },
        "method": placement.method.value,
        "samples": placement.samples,
        "run_length": placement.run_length,
        "strip": [{str(n): c for n, c in cell.nodes.items()} for cell in placement.strip],
        "attachers": sorted({attacher.pid for attacher in placement.attachers}),
        "policies": [a.policy.text if a.policy else None for a in placement.attachers],
        "thp": placement.thp_bytes,
        "zero": placement.zero_bytes,
        "remarks": list(placement.remarks),
    }


def _all(placement: ProcessPlacement) -> dict[str, Any]:
    return {
        "method": placement.method.value,
        "because": placement.because,
        "mappings": [_told(one) for one in placement.mappings],
        "nodes": {str(node): share.bytes for node, share in placement.nodes.items()},
        "resident": placement.resident,
        "incomplete": list(placement.incomplete),
        "processes": [
            {"pid": p.pid, "policy": p.policy.text if p.policy else None}
            for p in placement.processes
        ],
    }


def _look(*pids: int, **how: Any) -> ProcessPlacement:
    return place(Host(), [Target(pid) for pid in pids], **how)


def _at(placement: ProcessPlacement, start: int) -> Placement:
    """The mapping that holds an address."""
    for one in placement.mappings:
        mapping = one.mapping
        if mapping.start <= start < (mapping.end or 0):
            return one
    raise LookupError(f"no mapping holds {start:x}")


def _both(pid: int, starts: dict[str, int]) -> dict[str, dict[str, Any]]:
    """Named mappings of a process, counted and sampled."""
    exact = _look(pid, method=Method.EXACT)
    sampled = _look(pid, method=Method.SAMPLED, seed=7)
    return {
        name: {"exact": _told(_at(exact, start)), "sampled": _told(_at(sampled, start))}
        for name, start in starts.items()
    }


def kinds(nodes: list[int]) -> dict[str, Any]:
    """One process with memory of each kind, bound to the last node or interleaved over all."""
    length = 16 * MIB
    number = victims.new_segment(length)

    def build() -> dict[str, int]:
        last = nodes[-1:]
        memory = {
            "private": victims.private(length).bind(Mode.BIND, last),
            "huge": victims.huge_private(length).bind(Mode.BIND, last),
            "shared": victims.shared(length).bind(Mode.INTERLEAVE, nodes),
            "sysv": victims.attach(number, length).bind(Mode.INTERLEAVE, nodes),
            "posix": victims.posix("numadoctor-kinds", length).bind(Mode.BIND, last),
            "memfd": victims.memfd("numadoctor-pool", length).bind(Mode.INTERLEAVE, nodes),
        }
        for part in memory.values():
            part.touch()
        victims.remove_segment(number)
        memory["file"] = victims.file("/tmp/numadoctor-model.safetensors", length)
        memory["half"] = victims.private(length)
        memory["half"].part(0, 1, 2).bind(Mode.BIND, last).touch()
        victims.threads(3)
        return {name: part.start for name, part in memory.items()}

    try:
        with victim(build) as (pid, starts):
            return _both(pid, starts)
    finally:
        for name in ("/dev/shm/numadoctor-kinds", "/tmp/numadoctor-model.safetensors"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def _interleaved(memory: Memory, nodes: list[int]) -> None:
    memory.bind(Mode.INTERLEAVE, nodes).touch()


def _halves(memory: Memory, nodes: list[int]) -> None:
    for number, node in enumerate(nodes):
        memory.part(number, number + 1, len(nodes)).touch_on(node)


def _uneven(memory: Memory, nodes: list[int]) -> None:
    """As threads do it that share the work: in pieces of 1 MiB, 77 % of them on the first node."""
    random = Random(1)
    pieces = memory.length // MIB
    for piece in range(pieces):
        node = nodes[0] if random.random() < 0.77 else random.choice(nodes[1:])
        memory.part(piece, piece + 1, pieces).touch_on(node)


def _scattered(memory: Memory, nodes: list[int]) -> None:
    """Each page by chance."""
    random = Random(2)
    memory.touch_on(nodes[0])
    pages = range(memory.start, memory.start + memory.length, PAGE)
    chosen = [page for page in pages if random.random() < 0.4]
    policy.move_pages(chosen, [random.choice(nodes[1:]) for _ in chosen])


def _sparse(memory: Memory, nodes: list[int]) -> None:
    """A tenth of it present, interleaved."""
    memory.bind(Mode.INTERLEAVE, nodes).part(2, 3, 10).touch()


def _one_node(memory: Memory, nodes: list[int]) -> None:
    memory.touch_on(nodes[-1])


LAYOUTS: dict[str, Callable[[Memory, list[int]], None]] = {
    "interleaved": _interleaved,
    "halves": _halves,
    "uneven": _uneven,
    "scattered": _scattered,
    "sparse": _sparse,
    "one node": _one_node,
}


def agreement(layout: str, nodes: list[int], mib: int, samples: int, seeds: int) -> dict[str, Any]:
    """How many of so many samples hold in their interval what numa_maps counts, for each node."""

    def build() -> int:
        memory = victims.shared(mib * MIB)
        LAYOUTS[layout](memory, nodes)
        return memory.start

    with victim(build) as (pid, start):
        exact = _at(_look(pid, method=Method.EXACT), start)
        study = Study(Host(), samples=samples, seed=0, min_size=MIB, hold=0)
        study.examine([Target(pid)])
        study.find_askers()
        (segment,) = (s for s in survey(study).segments if s.widest.start == start)
        held = dict.fromkeys(exact.by_node, 0)
        lengths = []
        for seed in range(seeds):
            taken = take(segment.population(), samples, Random(seed), study.askers)
            seen = from_sample(segment, taken, study.askers)
            lengths.append(seen.run_length)
            for node, share in exact.by_node.items():
                if node in seen.by_node:
                    found = seen.by_node[node]
                    held[node] += found.low <= share.bytes <= found.high
        return {
            "exact": _told(exact),
            "sampled": _told(seen),
            "held": {str(node): count for node, count in held.items()},
            "run_lengths": lengths,
        }


@contextmanager
def _attachers(number: int, length: int, parts: Sequence[tuple[int, int, int]]) -> Iterator[Any]:
    """A process for each part of the segment, which it alone has touched."""
    with ExitStack() as stack:

        def start(part: tuple[int, int, int]) -> int:
            return stack.enter_context(
                victim(lambda: victims.attach(number, length).part(*part).touch().start)
            )[0]

        yield [start(part) for part in parts]


def attached(nodes: list[int], *, apart: bool) -> dict[str, Any]:
    """A segment of three processes, each of which has all of it in its page tables, or a third."""
    length = 24 * MIB
    number = victims.new_segment(length)
    parts = [(n, n + 1, 3) for n in range(3)] if apart else [(0, 3, 3)] * 3
    try:
        # The policy is the segment's: it stays when who set it is gone.
        with victim(lambda: victims.attach(number, length).bind(Mode.INTERLEAVE, nodes).start):
            pass
        with _attachers(number, length, parts) as pids:
            found = {}
            for method in (Method.EXACT, Method.SAMPLED):
                placement = _look(*pids, method=method, seed=3)
                segments = [p for p in placement.mappings if p.mapping.kind.value == "sysv"]
                found[method.value] = [_told(segment) for segment in segments]
            return {"pids": sorted(pids), **found}
    finally:
        victims.remove_segment(number)


def huge_pages(nodes: list[int], each: int) -> dict[str, Any]:
    """A hugetlb segment that its creator interleaves and an attacher does not."""
    size = Host().topology.nodes[0].pools[0].page_size
    pools = [
        Path(f"/sys/devices/system/node/node{node}/hugepages/hugepages-{size >> 10}kB/nr_hugepages")
        for node in nodes
    ]
    for pool in pools:
        pool.write_text(str(each))
    length = each * len(nodes) * size
    number = victims.new_segment(length, huge=True)
    try:
        with (
            victim(
                lambda: victims.attach(number, length).bind(Mode.INTERLEAVE, nodes).touch().start
            ) as (creator, _),
            victim(lambda: victims.attach(number, length).start) as (other, _),
        ):
            found: dict[str, Any] = {"size": size, "creator": creator, "other": other}
            for method in (Method.EXACT, Method.SAMPLED):
                placement = _look(creator, other, method=method, seed=3)
                (segment,) = (p for p in placement.mappings if p.mapping.kind.value == "hugetlb")
                found[method.value] = _told(segment)
            return found
    finally:
        victims.remove_segment(number)
        for pool in pools:
            pool.write_text("0")


def moved(nodes: list[int]) -> dict[str, Any]:
    """What two looks tell of pages that went from one node to another in between."""
    length = 32 * MIB

    def build() -> int:
        return victims.private(length).touch_on(nodes[0]).start

    with victim(build) as (pid, start):
        before = _look(pid, method=Method.EXACT)
        pages = range(start, start + length // 2, PAGE)
        policy.move_pages(pages, [nodes[1]] * len(pages), pid=pid)
        change = difference(before, _look(pid, method=Method.EXACT))
        return {
            "changes": [
                {"kind": c.kind.value, "by_node": {str(n): d for n, d in c.by_node.items()},
                 "moved": c.moved, "grown": c.after - c.before}
                for c in change.changes
            ],
            "nodes": {str(node): list(pair) for node, pair in change.nodes.items()},
        }  # fmt: skip


def chosen(nodes: list[int], mib: int) -> dict[str, Any]:
    """Which method is taken for a large process, and what is told of its policies."""

    def build() -> dict[str, int]:
        pool = victims.shared(mib * MIB).bind(Mode.INTERLEAVE, nodes).touch()
        own = victims.private(mib * MIB).bind(Mode.BIND, nodes[:1]).touch()
        small = victims.private(MIB).touch()
        return {"pool": pool.start, "own": own.start, "small": small.start}

    with victim(build) as (pid, starts):
        found = _look(pid, seed=5)
        return {
            **_all(found),
            "longest": found.cost.longest,
            **{name: _told(_at(found, start)) for name, start in starts.items()},
        }


def maps(arguments: list[str], uid: int = 0) -> dict[str, Any]:
    """`numadoctor maps` on a process with 64 MiB, its answer and its exit code."""

    def as_user() -> None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)

    with victim(lambda: victims.shared(64 * MIB).touch().start) as (pid, start):
        done = subprocess.run(
            [sys.executable, "-m", "numadoctor", "maps", str(pid), *arguments],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=as_user if uid else None,
        )
        found = {"pid": pid, "start": start, "exit_code": done.returncode, "stderr": done.stderr}
        if done.stdout.startswith("{"):
            return {**found, "json": json.loads(done.stdout)}
        return {**found, "stdout": done.stdout}


def filtered(mib: int) -> dict[str, Any]:
    """What is found by who may not call move_pages."""

    def look(pid: int) -> dict[str, Any]:
        seccomp.install(
            seccomp.actions(("move_pages", "migrate_pages"), seccomp.refuse(errno.EPERM))
        )
        return {
            "chosen": _all(_look(pid)),
            "sampled": _all(_look(pid, method=Method.SAMPLED)),
        }

    with (
        victim(lambda: victims.shared(mib * MIB).touch().start) as (pid, _),
        victim(lambda: look(pid)) as (_, found),
    ):
        return {"pid": pid, **found}


def ended() -> dict[str, Any]:
    """What is told of a process that ends while it is examined."""
    with victim(lambda: victims.shared(64 * MIB).touch().start) as (pid, _):
        study = Study(Host(), samples=1000, seed=1, min_size=0, hold=0)
        study.examine([Target(pid)])
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if not study.find_askers():
            sample(study, survey(study), "")
        return _all(study.result())


def own_buffer(nodes: list[int], mib: int) -> dict[str, Any]:
    """A buffer of this process, looked at page by page and counted."""
    memory = victims.shared(mib * MIB)
    memory.part(0, 3, 4).bind(Mode.INTERLEAVE, nodes).touch()
    found = {}
    for method in (Method.PER_PAGE, Method.EXACT):
        found[method.value] = _told(place_buffer(memory.start, memory.length, method=method))
    return found


def thread_policies(nodes: list[int]) -> dict[str, Any]:
    """The threads of a process of which one is bound to the last node and its CPUs."""

    def build() -> int:
        def bound() -> None:
            _run_on(nodes[0])
            policy.set_mempolicy(Mode.BIND, nodes[-1:])
            time.sleep(600)

        threading.Thread(target=bound, name="bound", daemon=True).start()
        victims.threads(2)
        time.sleep(0.5)
        return os.getpid()

    with victim(build) as (pid, _):
        return {
            "threads": [
                {
                    "main": thread.tid == pid,
                    "cpus": list(thread.cpus or ()),
                    "last_cpu": thread.last_cpu,
                    "policy": thread.policy.text if thread.policy else None,
                }
                for thread in read_threads(Host(), pid)
            ]
        }
