"""Starts instances with the command lines of a plan, and asks whether they are as planned.

Runs inside a guest.
"""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.lab.guest_facts import numadoctor

_POOL = 48 << 20

# An engine in small: a pool that it shares with children, touched, and helper threads.
_ENGINE = f"""
import mmap, threading, time
pool = mmap.mmap(-1, {_POOL})
for at in range(0, len(pool), mmap.PAGESIZE):
    pool[at] = 1
for _ in range(2):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


def as_planned(
    instances: int, mode: str, launcher: str, *, disobey: bool = False
) -> dict[str, Any]:
    """What ``check --expect`` says before the start and of the started instances.

    :param disobey: start the engine without the words of the plan
    """
    folder = Path("/tmp/plan")
    folder.mkdir(exist_ok=True)
    engine, file = folder / "engine.py", folder / "plan.json"
    engine.write_text(_ENGINE)
    command = f"python3 {engine}"
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
    before = _findings("--expect", str(file))
    started = [_start(command if disobey else line) for line in lines]
    try:
        pids = [word for one in started for word in ("--pid", str(one.pid))]
        running = _findings("--expect", str(file), *pids, "--exact")
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


def _findings(*arguments: str) -> list[dict[str, Any]]:
    """The findings about the plan."""
    done = numadoctor("check", "--select", ",".join(_CHECKS), *arguments, "-o", "json")
    if not done["stdout"]:
        raise AssertionError(done["stderr"])
    found = json.loads(done["stdout"])["findings"]
    return [{key: f[key] for key in ("id", "status", "subject", "message")} for f in found]


_CHECKS = ("P050", "P051", "P052", "P053", "P054", "P055", "P060", "P061", "P062", "P063")
