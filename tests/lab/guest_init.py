"""The first process of a guest: it runs the functions that the host names, one at a time.

The serial line carries one JSON object a line. A request is
``{"call": "module:function", "arguments": [...], "keywords": {...}, "limit": seconds}``;
the answer, behind ``MARK``, is ``{"value": ...}`` or ``{"error": text}``, and
``{"ready": {...}}`` when the guest is up. Each function runs in a child of its own,
and whatever the child leaves running is killed.
"""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import termios
import time
import traceback
from pathlib import Path
from typing import IO, Any

MARK = "@numadoctor-lab "

_MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/tmp"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("debugfs", "/sys/kernel/debug"),
    ("hugetlbfs", "/dev/hugepages"),  # s390x has none without large pages of its own
)
_POWER_OFF = 0x4321FEDC


def main() -> None:
    """Bring the guest up, answer requests until the line closes, and power off."""
    if os.getpid() != 1:
        sys.exit("this is the first process of a guest: it kills all others")
    libc = ctypes.CDLL(None, use_errno=True)
    mounted = [path for kind, path in _MOUNTS if _mount(libc, kind, path)]
    os.chdir("/tmp")
    socket.sethostname("guest")
    quiet()
    answer({"ready": {"kernel": os.uname().release, "mounted": mounted}})
    for line in sys.stdin:
        request = json.loads(line)
        answer(call(request["call"], request["arguments"], request["keywords"], request["limit"]))
    libc.reboot(_POWER_OFF)


def _mount(libc: ctypes.CDLL, kind: str, path: str) -> bool:
    with contextlib.suppress(OSError):  # sysfs makes no folder for what the kernel lacks
        Path(path).mkdir(exist_ok=True)
    return bool(libc.mount(kind.encode(), path.encode(), kind.encode(), 0, None) == 0)


def quiet() -> None:
    settings = termios.tcgetattr(0)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, settings)


def answer(content: dict[str, Any]) -> None:
    print(f"{MARK}{json.dumps(content)}", flush=True)


def call(name: str, arguments: list[Any], keywords: dict[str, Any], limit: float) -> Any:
    with contextlib.suppress(Exception):  # the child meets it again, and reports it
        # Imported here, a module costs its time once and not in each child.
        importlib.import_module(name.partition(":")[0])
    with tempfile.TemporaryFile("w+") as result, tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            _run(name, arguments, keywords, result)
        status = _wait(child, limit)
        _kill_the_rest()
        result.seek(0)
        printed.seek(0)
        reason = result.read()
        if status == 0:
            with contextlib.suppress(ValueError):
                return json.loads(reason)
        elif status is None:
            reason = f"took more than {limit:g} s"
        elif status < 0:
            reason = f"ended by {signal.Signals(-status).name}"
        return {"error": f"{name}: {reason}\n{printed.read()[-2000:]}"}


def _run(name: str, arguments: list[Any], keywords: dict[str, Any], result: IO[str]) -> None:
    status, own = 1, os.getpid()
    try:
        module, function = name.split(":")
        value = getattr(importlib.import_module(module), function)(*arguments, **keywords)
        result.write(json.dumps({"value": value}))
        status = 0
    except BaseException:
        if os.getpid() != own:  # a process that the function forked: it has no say
            traceback.print_exc()
            os._exit(1)
        result.write(traceback.format_exc())
    finally:
        result.flush()
        sys.stdout.flush()
        os._exit(status)


def _wait(child: int, limit: float) -> int | None:
    end = time.monotonic() + limit
    pause = 0.001
    while time.monotonic() < end:
        pid, status = os.waitpid(-1, os.WNOHANG)  # orphans come to the first process
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if pid == 0:
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
    return None


def _kill_the_rest() -> None:
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all but the first process itself
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main()
