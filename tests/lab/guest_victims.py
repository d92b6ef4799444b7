"""Processes to be examined: each builds memory of known kind and placement, then waits."""

import ctypes
import json
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from numadoctor.host.parsers import parse_stat
from numadoctor.kernel import policy
from numadoctor.kernel.policy import Mode

PAGE = mmap.PAGESIZE
MIB = 1 << 20

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, since Linux 5.14
_IPC_PRIVATE, _IPC_RMID, _IPC_CREAT, _SHM_HUGETLB = 0, 0, 0o1000, 0o4000
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.shmat.restype = ctypes.c_void_p
_libc.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_libc.shmget.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Memory:
    """A range of addresses of this process that stays until it ends."""

    kept: ClassVar[list[mmap.mmap]] = []

    def __init__(self, start: int, length: int) -> None:
        self.start, self.length = start, length

    @classmethod
    def of(cls, memory: mmap.mmap) -> "Memory":
        cls.kept.append(memory)
        return cls(ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory))

    def part(self, first: int, end: int, of: int) -> "Memory":
        """From the ``first`` to the ``end`` of ``of`` equal parts."""
        start, stop = (self.length // PAGE * n // of * PAGE for n in (first, end))
        return Memory(self.start + start, stop - start)

    def advise(self, advice: int) -> "Memory":
        if _libc.madvise(self.start, self.length, advice):
            raise OSError(ctypes.get_errno(), "madvise")
        return self

    def bind(self, mode: Mode, nodes: Sequence[int]) -> "Memory":
        policy.mbind(self.start, self.length, mode, nodes)
        return self

    def touch(self) -> "Memory":
        """Bring all pages in."""
        try:
            return self.advise(_POPULATE_WRITE)
        except OSError:
            for address in range(self.start, self.start + self.length, PAGE):
                ctypes.c_char.from_address(address).value = b"1"
            return self

    def touch_on(self, node: int) -> "Memory":
        """Bring all pages in from a CPU's node, whatever CPU this runs on."""
        former = policy.get_mempolicy()
        policy.set_mempolicy(Mode.BIND, [node])
        self.touch()
        policy.set_mempolicy(former.mode, former.nodes, former.flags)
        return self


def private(length: int) -> Memory:
    """Private anonymous memory in pages of the usual size."""
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return Memory.of(memory).advise(mmap.MADV_NOHUGEPAGE)


def huge_private(length: int) -> Memory:
    """Private anonymous memory in transparent huge pages, where those can be had."""
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return Memory.of(memory).advise(mmap.MADV_HUGEPAGE)


def shared(length: int) -> Memory:
    return Memory.of(mmap.mmap(-1, length))


def posix(name: str, length: int) -> Memory:
    """A segment in /dev/shm, made by who comes first."""
    descriptor = os.open(f"/dev/shm/{name}", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, length)
    return Memory.of(mmap.mmap(descriptor, length))


def memfd(name: str, length: int) -> Memory:
    descriptor = os.memfd_create(name)
    os.ftruncate(descriptor, length)
    return Memory.of(mmap.mmap(descriptor, length))


def file(path: str, length: int) -> Memory:
    """A mapped file, read-only, whose content is in the page cache."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, 0)
    for _ in range(length // MIB):
        os.write(descriptor, b"1" * MIB)
    address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    for page in range(address, address + length, PAGE):
        ctypes.string_at(page, 1)
    return Memory(address, length)


def new_segment(length: int, *, huge: bool = False) -> int:
    """The id of a new System V segment, which goes with its last attacher if marked so."""
    flags = 0o600 | _IPC_CREAT | (_SHM_HUGETLB if huge else 0)
    number: int = _libc.shmget(_IPC_PRIVATE, length, flags)
    if number < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    return number


def attach(number: int, length: int) -> Memory:
    address = _libc.shmat(number, None, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")
    return Memory(address, length)


def remove_segment(number: int) -> None:
    """At the last detach; those who have it keep it."""
    _libc.shmctl(number, _IPC_RMID, None)


def threads(count: int) -> None:
    """Idle threads."""
    for _ in range(count):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


@contextmanager
def victim(build: Callable[[], Any]) -> Iterator[tuple[int, Any]]:
    """A process that called ``build`` and waits: its pid, and what ``build`` returned.

    :raises RuntimeError: ``build`` failed in it
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            answer = {"value": build()}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        os.write(write, json.dumps(answer, default=lambda _: None).encode())
        os.close(write)
        while True:
            signal.pause()
    os.close(write)
    try:
        with os.fdopen(read, "rb") as stream:
            answer = json.loads(stream.read() or b'{"error": "it died"}')
        if "error" in answer:
            raise RuntimeError(f"the victim failed: {answer['error']}")
        _wait_until_it_sleeps(pid)
        yield pid, answer["value"]
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _wait_until_it_sleeps(pid: int) -> None:
    """On the way from its answer to its sleep a victim may touch a page or two."""
    for _ in range(1000):
        if parse_stat(Path(f"/proc/{pid}/stat").read_bytes()).state == "S":
            return
        time.sleep(0.01)
