"""Starts instances with the command lines of a plan, and asks whether they are as planned.

Runs inside a guest.
"""

import json
import mmap
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.lab.guest_facts import numadoctor
from tests.lab.guest_huge import _reserved

_POOL = 48 << 20

_HUGE = 2 << 20
_HUGE_POOL = 20 * _HUGE

# An engine in small: a pool that it shares with children, touched, and helper threads.
_ENGINE = """
import mmap, sys, threading, time
pool = mmap.mmap(-1, int(sys.argv[1]), int(sys.argv[2]))
for at in range(0, len(pool), mmap.PAGESIZE):
    pool[at] = 1
for _ in range(2):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""
# mmap(2): MAP_HUGETLB is the same on x86 and ARM.
_HUGETLB = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000


def _engine(size: int, flags: int) -> str:
    """The command that starts an engine with such a pool."""
    file = Path("/tmp/plan/engine.py")
    file.parent.mkdir(exist_ok=True)
    file.write_text(_ENGINE)
    return f"python3 {file} {size} {flags}"


def as_planned(
    instances: int, mode: str, launcher: str, *, disobey: bool = False
) -> dict[str, Any]:
    """What ``check --expect`` says before the start and of the started instances.

    :param disobey: start the engine without the words of the plan
    """
    command, file = _engine(_POOL, mmap.MAP_SHARED), Path("/tmp/plan/plan.json")
    planned = numadoctor(
        "plan", "--instances", str(instances), "--gpus-per-instance", "0", "--mode", mode,
        "--pool-size", str(_POOL), "--backing", "shared", "--command", command,
        "-o", f"json={file}",
    )  # fmt: skip
    if planned["exit_code"]:
        return {"planned": planned}
    plan = json.loads(file.read_text())
    lines = [
        next(c["text"] for c in instance["commands"] if c["launcher"] == launcher)
        for instance in plan["instances"]
    ]
    before = _check("--expect", str(file))["findings"]
    started = [_start(command if disobey else line) for line in lines]
    try:
        pids = [word for one in started for word in ("--pid", str(one.pid))]
        running = _check("--expect", str(file), *pids, "--exact")["findings"]
    finally:
        for one in started:
            one.send_signal(signal.SIGKILL)
            one.wait()
    return {"planned": planned, "lines": lines, "before": before, "running": running}


def _start(line: str) -> "subprocess.Popen[str]":
    """Started by a shell, as a person would; ``exec`` keeps the pid."""
    started = subprocess.Popen(["sh", "-c", f"exec {line}"], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n", line
    return started


def too_few_huge_pages(have: dict[str, int]) -> dict[str, Any]:
    """A plan for ten huge pages on each of two nodes, and what is said before the start.

    :param have: node to the pages that it has; then the plan's own commands are run
    """
    file = Path("/tmp/plan/huge.json")
    command = _engine(_HUGE_POOL, _HUGETLB)
    with _reserved({int(node): pages for node, pages in have.items()}):
        planned = numadoctor(
            "plan", "--gpus-per-instance", "0", "--mode", "interleave", "--page-size", "2MiB",
            "--pool-size", str(_HUGE_POOL), "--command", command, "-o", f"json={file}",
        )  # fmt: skip
        plan = json.loads(file.read_text())
        before = _check("--expect", str(file))
        for part in plan["prepare"]:
            subprocess.run(["sh", "-c", part["text"]], check=True)
        prepared = _check("--expect", str(file))
        line = next(
            c["text"] for c in plan["instances"][0]["commands"] if c["launcher"] == "numactl"
        )
        running = _of_started(line, str(file))
    return {"planned": planned, "before": before, "prepared": prepared, "running": running}


def bound_to(node: int, planned: int) -> dict[str, Any]:
    """An engine whose ten huge pages are bound to one node, by a plan that a person wrote.

    :param planned: the node that they are to be on
    """
    file = Path("/tmp/plan/bound.json")
    command = _engine(_HUGE_POOL // 2, _HUGETLB)
    engine = {"name": "engine", "nodes": planned, "pool_size": "20MiB", "policy": "bind"}
    engine |= {"backing": "hugetlb", "page_size": "2MiB"}
    file.write_text(json.dumps({"instances": [engine]}))
    with _reserved({node: 10, planned: 10}):
        before = _check("--expect", str(file))
        running = _of_started(f"numactl --membind={node} {command}", str(file))
    return {"before": before, "running": running}


def _of_started(line: str, plan: str) -> dict[str, Any]:
    """What is said of an engine that a command line starts."""
    started = _start(line)
    try:
        return _check("--expect", plan, "--pid", str(started.pid), "--exact")
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait()


def _check(*arguments: str) -> dict[str, Any]:
    """The exit code, and the findings about the plan."""
    done = numadoctor("check", "--select", ",".join(_CHECKS), *arguments, "-o", "json")
    if not done["stdout"]:
        raise AssertionError(done["stderr"])
    found = json.loads(done["stdout"])["findings"]
    findings = [{key: f[key] for key in ("id", "status", "subject", "message")} for f in found]
    return {"exit_code": done["exit_code"], "findings": findings}


_CHECKS = ("P050", "P051", "P052", "P053", "P054", "P055", "P060", "P061", "P062", "P063")
