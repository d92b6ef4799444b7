"""Facts about a host that are no file: answers of system calls and of programs.

Each is a function whose result is plain JSON data, so that a recording can
keep it beside the files: one about a process takes its pid, or nothing for the
calling one, and is kept as NAME.PID. It runs on the live machine only and
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
    """Where numactl is on the PATH, and its version; None for what cannot be told."""
    import shutil
    import subprocess

    path = shutil.which("numactl")
    if path is None:
        return {"path": None, "version": None}
    try:
        answer = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        answer = b""
    # "2.0.18" and no more (numactl.c); 2.0.16 and older know no such option and
    # print their usage to standard error.
    version = answer.decode("utf-8", "backslashreplace").strip()
    return {"path": path, "version": version if version[:1].isdigit() else None}


def _nvml() -> Any:
    from numadoctor.host.devices import nvml

    return nvml.ask()


def _links(pid: int | None = None) -> Any:
    from numadoctor.host.devices import network

    return network.ask(pid)


def _shared_files() -> Any:
    from numadoctor.host.shared_files import shared_files

    return shared_files()


def _kernel_log() -> Any:
    from numadoctor.host.kernel_log import oom_lines

    return oom_lines()


def _plan() -> Any:
    """None: there is no plan but the one that ``check --expect`` states (``Host.state``)."""
    return None


FACTS: dict[str, Callable[..., Any]] = {
    "syscalls": _syscalls,
    "effect": _effect,
    "features": _features,
    "sysconf": _sysconf,
    "numactl": _numactl,
    "plan": _plan,
    "shared_files": _shared_files,
    "kernel_log": _kernel_log,
    "nvml": _nvml,
    "links": _links,
}
