"""Runs numadoctor as its users do: in a process of its own, or on a terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "numadoctor"]
PAINT = re.compile("\x1b\\[[0-9;]*m")

# What would change the output from outside.
_CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("COLUMNS", "NO_COLOR", "NUMADOCTOR_DEBUG", "PYTHONIOENCODING", "LC_ALL")
}


@dataclass(frozen=True)
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    return {**_CLEAN, "LC_ALL": "C.UTF-8", **more}


def numadoctor(
    *arguments: str | int | Path,
    env: dict[str, str] | None = None,
    encoding: str = "utf-8",
    **more: Any,
) -> Done:
    """Run it to its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        stdin=subprocess.DEVNULL,
        env=environment(**(env or {})),
        check=False,
    )
    out, err = ((stream or b"").decode(encoding) for stream in (done.stdout, done.stderr))
    return Done(done.returncode, out, err)


def on_terminal(*arguments: str, columns: int, env: dict[str, str] | None = None) -> str:
    """What it writes to a terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=slave, stderr=slave, env=environment(**(env or {}))
    )
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 1 << 16):
            written += chunk
    except OSError:  # EIO: the other end is closed
        pass
    os.close(master)
    process.wait()
    return written.decode().replace("\r\n", "\n")


def in_process(capsys: Any, main: Callable[[list[str]], object], *arguments: str | Path) -> Done:
    """Run it in this process: quick, for what needs no process of its own."""
    code: object = None
    try:
        main(list(map(str, arguments)))
    except SystemExit as end:
        code = end.code
    captured = capsys.readouterr()
    assert isinstance(code, int), code
    return Done(int(code), captured.out, captured.err)
