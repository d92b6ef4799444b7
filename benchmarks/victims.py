"""Processes to be looked at by the benchmarks, and programs that look, timed."""

import ctypes
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NUMADOCTOR = str(Path(sys.executable).parent / "numadoctor")
PAGE = mmap.PAGESIZE
GIB = 1 << 30

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE
_PRIVATE_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def touch(address: int, length: int) -> None:
    """Bring all pages in."""
    if _libc.madvise(address, length, _POPULATE_WRITE):
        raise OSError(ctypes.get_errno(), "MADV_POPULATE_WRITE (Linux 5.14) is needed")


def shared_pages(length: int) -> None:
    """Shared memory in pages of the usual size."""
    memory = mmap.mmap(-1, length)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _libc.madvise(address, length, mmap.MADV_NOHUGEPAGE)
    touch(address, length)
    _kept.append(memory)


def mappings(count: int) -> None:
    """So many mappings of a page each: every other page of a range may not be written."""
    address = _libc.mmap(None, count * PAGE, 3, _PRIVATE_ANONYMOUS, -1, 0)
    _libc.madvise(address, count * PAGE, mmap.MADV_NOHUGEPAGE)
    touch(address, count * PAGE)
    for page in range(0, count, 2):
        if _libc.mprotect(address + page * PAGE, PAGE, mmap.PROT_READ):
            raise OSError(ctypes.get_errno(), f"{count} mappings: see vm.max_map_count")


_kept: list[mmap.mmap] = []


class Stalls:
    """The longest that a process waited for an mmap of one page, which it does all the time."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, PAGE)

    def loop(self) -> None:
        """Map and unmap until killed.

        What took long because somebody else had the CPU is no stall: then the
        process was switched away from without having asked for it.
        """
        clock, usage, thread = time.perf_counter_ns, resource.getrusage, resource.RUSAGE_THREAD
        before = usage(thread)
        rounds = 0
        while True:
            begin = clock()
            address = _libc.mmap(None, PAGE, 3, _PRIVATE_ANONYMOUS, -1, 0)
            _libc.munmap(address, PAGE)
            took = clock() - begin
            rounds += 1
            struct.pack_into("q", self._shared, 8, rounds)
            if took > self._longest():
                after = usage(thread)
                preempted = after.ru_nivcsw > before.ru_nivcsw
                if after.ru_nvcsw > before.ru_nvcsw or not preempted:
                    self._set(took)
                before = after
            elif took > 20_000:
                before = usage(thread)

    def _longest(self) -> int:
        found: int = struct.unpack_from("q", self._shared)[0]
        return found

    def _set(self, nanoseconds: int) -> None:
        struct.pack_into("q", self._shared, 0, nanoseconds)

    def during(self, look: Callable[[], object]) -> float:
        """Seconds of the longest stall while ``look`` runs."""
        self._set(0)
        look()
        # Who waited to the end has yet to wake up and to say how long it was.
        told = self._rounds()
        while self._rounds() < told + 3:
            time.sleep(0.001)
        return self._longest() / 1e9

    def _rounds(self) -> int:
        found: int = struct.unpack_from("q", self._shared, 8)[0]
        return found


@contextmanager
def process(build: Callable[[], object], then: Callable[[], object]) -> Iterator[int]:
    """A process that calls ``build`` and, when that is done, ``then``; its pid."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        build()
        os.write(write, b"1")
        os.close(write)
        then()
        os._exit(0)
    os.close(write)
    try:
        if not os.read(read, 1):
            raise RuntimeError("the process that was to be looked at failed")
        yield pid
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def pause() -> None:
    while True:
        signal.pause()


def run(command: Sequence[str]) -> tuple[float, int]:
    """Wall seconds and largest resident KiB of a command; its output is thrown away."""
    # Nobody compiles a program each time it is run.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    null = subprocess.DEVNULL
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=null, stderr=null, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}")
    return time.perf_counter() - begin, usage.ru_maxrss
