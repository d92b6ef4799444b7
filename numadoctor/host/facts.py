"""Facts about a host that are no file: answers of system calls and of programs.

Each is a function without arguments whose result is plain JSON data, so that
a recording can keep it beside the files. It runs on the live machine only and
only when a check asks for it; the modules behind it load then.
"""

from collections.abc import Callable
from typing import Any


def _syscalls() -> Any:
    from numadoctor.kernel.probe import probe_calls

    return probe_calls()


def _effect() -> Any:
    from numadoctor.kernel.probe import probe_effect

    return probe_effect()


def _features() -> Any:
    from numadoctor.kernel.probe import probe_features

    return probe_features()


def _sysconf() -> Any:
    import os

    return {"page_size": os.sysconf("SC_PAGE_SIZE"), "user": os.geteuid()}


def _numactl() -> Any:
    """Whether numactl is on the PATH, and what it calls itself."""
    import shutil
    import subprocess

    path = shutil.which("numactl")
    if path is None:
        return {"path": None, "version": None}
    try:
        # "numactl 2.0.16" on standard output; releases before 2.0.14 print
        # their usage instead and name no version.
        answer = subprocess.run(
            [path, "--version"], capture_output=True, timeout=2, check=False
        ).stdout.decode("utf-8", "backslashreplace")
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    words = answer.split()
    version = words[1] if len(words) == 2 and words[0] == "numactl" else None
    return {"path": path, "version": version}


FACTS: dict[str, Callable[[], Any]] = {
    "syscalls": _syscalls,
    "effect": _effect,
    "features": _features,
    "sysconf": _sysconf,
    "numactl": _numactl,
}
