"""Processes with huge pages, in each of which one thing is wrong, and what the checks say of them.

Runs in a guest.
"""

import ctypes
import json
import mmap
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numadoctor.engine.thresholds import set_thresholds
from numadoctor.host import Host
from numadoctor.kernel.policy import Mode
from numadoctor.model import Target
from numadoctor.model.placement import Method
from numadoctor.placement.examination import examination
from numadoctor.planning.intent import plan_data, read_plan
from tests.lab import guest_victims as victims
from tests.lab.guest_cases import POOL, SMALL, Told, both, diagnosed, told_of
from tests.lab.guest_envelope import _cgroup
from tests.lab.guest_victims import MIB, Memory, victim

_HUGE = 2 * MIB
_MAP_HUGETLB = 0x40000  # mmap(2), the same on x86 and ARM
_NODES = Path("/sys/devices/system/node")


@contextmanager
def _reserved(pages: Mapping[int, int]) -> Iterator[None]:
    """So many huge pages of 2 MiB on each node."""
    files = {
        _NODES / f"node{node}/hugepages/hugepages-2048kB/nr_hugepages": count
        for node, count in pages.items()
    }
    try:
        for file, count in files.items():
            file.write_text(str(count))
            if int(file.read_text()) != count:
                raise RuntimeError(f"{file} has {file.read_text()} of {count} pages")
        yield
    finally:
        for file in files:
            file.write_text("0")


def _huge(length: int) -> Memory:
    memory = mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_HUGETLB)
    return Memory.of(memory)


def kinds(nodes: list[int]) -> dict[str, Any]:
    """Memory that is taken for page cache, or for pages of 4 KiB, by who reads names alone."""
    number = victims.new_segment(POOL)
    file = "/dev/hugepages/numadoctor-case"

    def build() -> dict[str, int]:
        parts = {"sysv": victims.attach(number, POOL), "shared": victims.shared(POOL)}
        parts |= {"huge": _huge(10 * _HUGE)}
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, 10 * _HUGE)
        parts |= {"file": Memory.of(mmap.mmap(descriptor, 10 * _HUGE))}
        for part in parts.values():
            part.bind(Mode.BIND, nodes[:1]).touch()
        return {name: part.start for name, part in parts.items()}

    try:
        with _reserved({nodes[0]: 20}), victim(build) as (pid, starts):
            set_thresholds(SMALL)
            host, target = Host(), Target(pid, "engine")
            found = examination(host, [target], Method.EXACT)
            placed = {p.mapping.start: p for p in found.placement.mappings}
            process = found.processes[pid]
            return {
                "memory": {
                    name: [placed[start].mapping.kind.value, placed[start].resident]
                    for name, start in starts.items()
                },
                "resident": process.resident,
                "rss": _status(pid, "VmRSS"),
                "findings": told_of(host, [target], ("P005", "P009", "P022")),
            }
    finally:
        victims.remove_segment(number)
        os.unlink(file)


def _status(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) << 10


def huge_pages_alone(nodes: list[int]) -> dict[str, int]:
    """What is found resident beyond RSS in a process with 20 MiB of huge pages."""
    with (
        _reserved({nodes[0]: 10}),
        victim(lambda: _huge(10 * _HUGE).touch().start) as (pid, _),
    ):
        found = examination(Host(), [Target(pid)], Method.EXACT)
        return {"beyond_rss": (found.processes[pid].resident or 0) - _status(pid, "VmRSS")}


def preferred_without_pages(nodes: list[int]) -> dict[str, Told]:
    """Huge pages of a mapping that prefers a node without any."""
    with (
        _reserved({nodes[0]: 10, nodes[-1]: 0}),
        victim(lambda: _huge(10 * _HUGE).bind(Mode.PREFERRED, nodes[-1:]).touch().start) as (
            pid,
            _,
        ),
    ):
        return both(pid, ids=("P009",))


def attacher_without_policy(nodes: list[int]) -> dict[str, Any]:
    """A segment of huge pages that its creator interleaves and an attacher does not."""
    each = 5
    length = each * len(nodes) * _HUGE
    with _reserved(dict.fromkeys(nodes, each)):
        number = victims.new_segment(length, huge=True)
        try:
            with (
                victim(
                    lambda: (
                        victims.attach(number, length).bind(Mode.INTERLEAVE, nodes).touch().start
                    )
                ) as (creator, _),
                victim(lambda: victims.attach(number, length).start) as (other, _),
            ):
                return {"other": other, **both(creator, other, ids=("P012",))}
        finally:
            victims.remove_segment(number)


def _planned(pages: int, nodes: list[int]) -> Host:
    """A host with a plan for a pool of so many huge pages on each of some nodes."""
    file = Path("/tmp/case-plan.json")
    instance = {
        "name": "engine",
        "nodes": nodes,
        "pool_size": pages * len(nodes) * _HUGE,
        "backing": "hugetlb",
        "page_size": _HUGE,
        "policy": "interleave" if len(nodes) > 1 else "bind",
    }
    file.write_text(json.dumps({"version": 1, "instances": [instance]}))
    host = Host()
    host.state("plan", {**plan_data(read_plan(str(file))), "running": False})
    file.unlink()
    return host


def planned_huge_pages(nodes: list[int]) -> Told:
    """Ten huge pages are planned on two nodes each, of which one has ten and the other none."""
    pair = [nodes[0], nodes[-1]]
    with _reserved({pair[0]: 10, pair[1]: 0}):
        return told_of(_planned(10, pair), [Target()], ("P052",))


def limited_huge_pages(nodes: list[int]) -> dict[str, Any]:
    """A cgroup allows fewer huge pages than the pool has: what is said, and what happens."""
    folder = _cgroup()
    (folder / "hugetlb.2MB.max").write_text(str(4 * _HUGE))
    root = folder.parent / "cgroup.procs"

    def build() -> int:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        return _huge(10 * _HUGE).start

    with _reserved({nodes[0]: 10}):
        with victim(build) as (pid, _):
            before = diagnosed(pid, ids=("E007",))
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        try:
            planned = told_of(_planned(10, nodes[:1]), [Target()], ("P053",))
        finally:
            root.write_text(str(os.getpid()))
        ended_by = _touched_in(folder)
    folder.rmdir()
    return {"before": before, "planned": planned, "ended_by": ended_by}


def _touched_in(folder: Path) -> str:
    """How a process ends that touches all of its pool in a cgroup."""
    child = os.fork()
    if child == 0:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        pool = _huge(10 * _HUGE)
        ctypes.memset(pool.start, 1, pool.length)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "nothing"
