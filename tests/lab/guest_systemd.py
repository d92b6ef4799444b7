"""Services under a real systemd, and what numadoctor says of them. Runs in a guest."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_UNITS = Path("/run/systemd/system")


def start(name: str, unit: str) -> int:
    """Start a service with that unit file and return the id of its main process."""
    (_UNITS / f"{name}.service").write_text(unit)
    _systemctl("daemon-reload")
    _systemctl("start", f"{name}.service")
    shown = _systemctl("show", "--property=MainPID", "--value", f"{name}.service")
    pid = int(shown)
    deadline = time.monotonic() + 20
    # The filter stands once the service's own program runs.
    while "sleep" not in _words(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return pid


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def stop(name: str) -> None:
    """Stop the service and forget its unit."""
    _systemctl("stop", f"{name}.service")
    (_UNITS / f"{name}.service").unlink()


def calls(pid: int, *options: str) -> dict[str, Any]:
    """The answer of ``syscalls --pid``: source, time held, verdicts and fixes by call."""
    told = _numadoctor("syscalls", f"--pid={pid}", *options, "-o", "json")
    return {
        "source": told["source"],
        "stopped_ms": told["stopped_ms"],
        "works": told["works"],
        "calls": {call["name"]: [call["verdict"], call["answer"]] for call in told["calls"]},
        "fixes": sorted(
            {fix["text"] for call in told["calls"] for fix in call["fixes"]
             if fix["launcher"] == "systemd"}
        ),
    }  # fmt: skip


def checked(pid: int, *ids: str) -> list[dict[str, Any]]:
    """The findings of those checks about the process."""
    select = ",".join(ids)
    told = _numadoctor(
        "check", f"--pid={pid}", f"--select={select}", "--fail-on=never", "-o", "json"
    )
    keys = ("id", "status", "subject", "message")
    return [{key: finding[key] for key in keys} for finding in told["findings"]]


def _numadoctor(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "numadoctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"{arguments} gave {done.stdout!r} {done.stderr!r}")
    return json.loads(done.stdout)


def _systemctl(*arguments: str) -> str:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"systemctl {arguments}: {done.stdout}{done.stderr}")
    return done.stdout.strip()
