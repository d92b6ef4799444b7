"""What a guest is, and what numadoctor says of it. Runs inside a guest."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def numadoctor(*arguments: str) -> dict[str, Any]:
    """The exit code and the output of a numadoctor command."""
    done = subprocess.run(
        [sys.executable, "-m", "numadoctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return {"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def process() -> dict[str, Any]:
    """The words, pages and byte order of a process here, and whether the kernel has nodes."""
    return {
        "word": ctypes.sizeof(ctypes.c_long),
        "page": os.sysconf("SC_PAGESIZE"),
        "byteorder": sys.byteorder,
        "machine": os.uname().machine,
        "kernel": os.uname().release,
        "nodes": Path("/sys/devices/system/node").exists(),
    }
