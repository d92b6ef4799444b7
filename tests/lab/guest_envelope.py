"""Starts numadoctor under a launcher's restrictions and tells what it found. Runs in a guest."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_CHECK = (
    sys.executable,
    "-m",
    "numadoctor",
    "check",
    "--select=E",
    "--fail-on=never",
    "-o",
    "json",
)
_CGROUPS = Path("/sys/fs/cgroup")


def check_under(*wrapper: str) -> list[dict[str, Any]]:
    """The findings about the envelope of a process started by ``wrapper``."""
    return _findings((*wrapper, *_CHECK))


def check_in_cgroup(files: dict[str, str], script: str = "true") -> list[dict[str, Any]]:
    """The same in a new cgroup with these files written."""
    folder = _cgroup()
    for name, text in files.items():
        (folder / name).write_text(text)
    enter = f"echo $$ > {folder}/cgroup.procs"
    return _findings(("sh", "-c", f'{enter}; {script}; "$@"; true', "sh", *_CHECK))


def _cgroup() -> Path:
    if not (_CGROUPS / "cgroup.controllers").exists():
        _CGROUPS.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "cgroup2", "none", str(_CGROUPS)], check=True)
    controllers = (_CGROUPS / "cgroup.controllers").read_text().split()
    wanted = [f"+{name}" for name in ("cpuset", "memory", "hugetlb") if name in controllers]
    (_CGROUPS / "cgroup.subtree_control").write_text(" ".join(wanted))
    folder = _CGROUPS / f"job{len(list(_CGROUPS.glob('job*')))}"
    folder.mkdir()
    return folder


def _findings(command: tuple[str, ...]) -> list[dict[str, Any]]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"{command} gave {done.stdout!r} {done.stderr!r}")
    # Evidence and fixes would not fit the serial line.
    return [
        {key: finding[key] for key in ("id", "status", "subject", "message")}
        for finding in json.loads(done.stdout)["findings"]
    ]


def bind_in_cgroup(files: dict[str, str], node: int) -> str:
    """What numactl says when it is asked for a node in a new cgroup with these files written."""
    folder = _cgroup()
    for name, text in files.items():
        (folder / name).write_text(text)
    script = f"echo $$ > {folder}/cgroup.procs; exec numactl --membind={node} true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    return f"{done.returncode} {done.stdout}{done.stderr}"
