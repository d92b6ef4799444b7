"""Processes in which one thing is wrong each, and what the checks say of them. Runs in a guest."""

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run
from numadoctor.engine.thresholds import set_thresholds
from numadoctor.host import Host, parsers
from numadoctor.kernel import policy
from numadoctor.kernel.policy import Mode
from numadoctor.model import Target
from numadoctor.model.placement import Method
from numadoctor.placement.examination import examination
from tests.lab import guest_victims as victims
from tests.lab.guest_placement import LAYOUTS
from tests.lab.guest_policy import _run_on
from tests.lab.guest_victims import MIB, PAGE, Memory, victim

POOL = 32 * MIB

# What is large in a guest is small: pools of megabytes stand for those of gigabytes.
SMALL = {
    "judged-mapping": 16 * MIB,
    "large-pool": 24 * MIB,
    "run-length": 4 * MIB,
    "leftover": 16 * MIB,
    "window": 0.05,
}
_CHECKS = discover().checks
_NODES = "/sys/devices/system/node"
_MAP_NORESERVE = 0x4000  # mmap(2), the same on x86 and ARM

Told = list[dict[str, Any]]


def told_of(host: Host, targets: list[Target], ids: tuple[str, ...]) -> Told:
    report = run(host, [_CHECKS[id] for id in ids], targets)
    return [
        {
            "id": f.id,
            "status": f.status.value,
            "subject": f.subject,
            "message": f.message,
            "cause": f.cause,
            "fixes": [fix.text for fix in f.fixes],
        }
        for f in report.findings
    ]


def diagnosed(*pids: int, ids: tuple[str, ...], method: Method = Method.EXACT) -> Told:
    """What these checks say of the processes."""
    set_thresholds(SMALL)
    host = Host()
    targets = [Target(pid, "engine") for pid in pids]
    examination(host, targets, method)
    return told_of(host, targets, ids)


def both(*pids: int, ids: tuple[str, ...]) -> dict[str, Told]:
    methods = (Method.EXACT, Method.SAMPLED)
    return {method.value: diagnosed(*pids, ids=ids, method=method) for method in methods}


# An engine in small: maps a file, fills a pool, and waits.
_ENGINE = """
import mmap, signal, sys
if sys.argv[1] != "-":
    with open(sys.argv[1], "rb") as file:
        model = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    sum(model[::mmap.PAGESIZE])
pool = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(pool), mmap.PAGESIZE):
    pool[at] = 1
print(flush=True)
signal.pause()
"""


def _engine(
    *wrapper: str, ids: tuple[str, ...], file: str = "-", options: tuple[str, ...] = ()
) -> Told:
    """What is said of the engine, started with ``wrapper`` in front of it."""
    command = [*wrapper, sys.executable, "-I", "-S", "-c", _ENGINE, file, *options]
    started = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert started.stdout is not None
        if started.stdout.readline() != b"\n":
            raise RuntimeError(f"{command[:2]} did not start")
        return diagnosed(started.pid, ids=ids)
    finally:
        started.kill()
        started.wait()


def cached(nodes: list[int], name: str) -> Told:
    """An engine is bound to the last node; a file it maps is in the page cache of the first."""
    path = f"/tmp/{name}"

    def build() -> None:
        policy.set_mempolicy(Mode.BIND, nodes[:1])
        victims.file(path, POOL)

    try:
        with victim(build):
            pass
        bind = ("numactl", f"--membind={nodes[-1]}")
        return _engine(*bind, ids=("P003", "P005", "P009"), file=path)
    finally:
        os.unlink(path)


def bound_late(nodes: list[int], mib: int) -> Told:
    """Bound to the last node when it has so much on the first one; its pool came later."""

    def build() -> None:
        victims.private(mib * MIB).touch_on(nodes[0])
        policy.set_mempolicy(Mode.BIND, nodes[-1:])
        victims.shared(POOL).bind(Mode.BIND, nodes[-1:]).touch()

    with victim(build) as (pid, _):
        return diagnosed(pid, ids=("P009",))


def laid_out(nodes: list[int], layout: str, *, late_policy: bool = False) -> dict[str, Told]:
    """A pool without a policy, touched in parts by threads that may run everywhere.

    :param late_policy: interleave it once it is touched
    """

    def build() -> int:
        pool = victims.shared(POOL)
        LAYOUTS[layout](pool, nodes)
        if late_policy:
            pool.bind(Mode.INTERLEAVE, nodes)
        victims.threads(3)
        return pool.start

    with victim(build) as (pid, _):
        return both(pid, ids=("P004", "P010", "P011"))


def main_thread_bound(nodes: list[int], count: int) -> Told:
    """The main thread is held to a node after so many others were started."""

    def build() -> None:
        victims.threads(count)
        _run_on(nodes[0])

    with victim(build) as (pid, _):
        return diagnosed(pid, ids=("P014",))


def asked_to_bind(*wrapper: str) -> Told:
    """An engine that was told to bind itself, and does not."""
    return _engine(*wrapper, ids=("P007",), options=("serve", "--numa-bind"))


def slabs(limit: int) -> Told:
    """One mbind for each slab of a pool, up to nearly as many mappings as may be."""
    setting = Path("/proc/sys/vm/max_map_count")
    former = setting.read_text()

    def build() -> int:
        pool = victims.private(POOL)
        mapped = Path("/proc/self/maps").read_bytes().count(b"\n")
        for number in range((limit - 20 - mapped) // 2):
            part = Memory(pool.start + (2 * number + 1) * PAGE, PAGE)
            part.bind(Mode.PREFERRED, [0])
        return pool.start

    try:
        setting.write_text(str(limit))
        with victim(build) as (pid, _):
            return diagnosed(pid, ids=("P017",))
    finally:
        setting.write_text(former)


def room(nodes: list[int], names: int) -> dict[str, Any]:
    """Memory bound to the last node is still to come: more than is free there, or than is had.

    Long names that are not in sysfs fill the node with what the kernel gives back when asked.
    """

    def look_up() -> None:
        policy.set_mempolicy(Mode.BIND, nodes[-1:])
        for number in range(names):
            os.path.lexists(f"/sys/numadoctor-{number:0240}")

    with victim(look_up):
        pass
    values = Host().parse(f"{_NODES}/node{nodes[-1]}/meminfo", parsers.parse_meminfo)
    free = values["MemFree"]
    back = sum(values[name] for name in ("Active(file)", "Inactive(file)", "SReclaimable"))
    return {
        "back": back,
        "fits": _to_come(nodes, free // 2),
        "fits without cache": _to_come(nodes, free + back // 2),
        "does not fit": _to_come(nodes, free + back + 64 * MIB),
    }


def _to_come(nodes: list[int], length: int) -> Told:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE

    def build() -> int:
        memory = Memory.of(mmap.mmap(-1, length // PAGE * PAGE, flags))
        return memory.bind(Mode.BIND, nodes[-1:]).start

    with victim(build) as (pid, _):
        return diagnosed(pid, ids=("P016",))


def left_behind() -> dict[str, Any]:
    """A segment and a file of shared memory whose processes are gone."""
    number = victims.new_segment(POOL)
    path = "/dev/shm/numadoctor left"

    def build() -> None:
        victims.attach(number, POOL).touch()
        victims.posix(path.removeprefix("/dev/shm/"), POOL).touch()

    try:
        with victim(build):
            used = diagnosed(ids=("P023",))
        return {"number": number, "used": used, "left": diagnosed(ids=("P023",))}
    finally:
        victims.remove_segment(number)
        os.unlink(path)
