"""Brings the pages of a region in, with several threads, at the speed of the kernel.

MADV_POPULATE_WRITE (Linux 5.14, "mm/madvise: introduce
MADV_POPULATE_(READ|WRITE) to prefault page tables") faults a range in without
going back to the program for each page, and answers with an errno where a
touch would raise SIGBUS. Where it is not there, each page is touched.
"""

import ctypes
import errno
import os
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from numadoctor.kernel.process import libc

_POPULATE_READ: Final = 22
_POPULATE_WRITE: Final = 23

libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

# One call for so much: long enough that the calls do not count (3 ms and
# more), short enough for progress to move and for an interrupt to be heard.
_CHUNK: Final = 64 << 20

Progress = Callable[[int, int], None]
"""Called with the bytes that are in and the bytes there are, from the calling thread."""


class Prefaulted(NamedTuple):
    """What a prefault did.

    :ivar length: in bytes
    :ivar seconds: wall time
    :ivar threads: how many worked
    :ivar method: MADV_POPULATE_WRITE, or touch
    """

    length: int
    seconds: float
    threads: int
    method: str

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.length / self.seconds if self.seconds else 0.0


class PrefaultError(OSError):
    """Pages could not be brought in. ``errno`` is that of madvise(2).

    EFAULT: no page of the pool's kind is left where its policy allows (a touch
    would have raised SIGBUS); ENOMEM: no memory, or a limit; EHWPOISON.

    :ivar done: bytes that are in
    """

    def __init__(self, number: int, done: int) -> None:
        super().__init__(number, os.strerror(number))
        self.done = done


def prefault(
    address: int,
    length: int,
    page_size: int,
    *,
    threads: int = 0,
    progress: Progress | None = None,
    write: bool = True,
    shared: bool = False,
) -> Prefaulted:
    """Bring every page of the range in.

    :param address: of the first page
    :param length: in bytes
    :param page_size: in bytes
    :param threads: how many; 0 for one a CPU that may be used, eight at most
    :param write: as if each page was written; False maps shared pages for reading
    :param shared: other processes may write meanwhile: where pages have to be
        touched they are only read, which brings a shared page in as well
    :raises PrefaultError: the kernel refuses
    """
    chunk = max(_CHUNK // page_size, 1) * page_size
    workers = min(threads or min(len(os.sched_getaffinity(0)), 8), -(-length // chunk) or 1)
    advice = _POPULATE_WRITE if write else _POPULATE_READ
    populate = _can_populate(advice)
    by_writing = write and not shared
    state = _State(address, length, chunk)

    def work() -> None:
        while (part := state.take()) is not None:
            number = _populate(*part, advice) if populate else _touch(*part, page_size, by_writing)
            state.finish(part[1], number)

    start = time.perf_counter()
    # With progress to tell, this thread has no part in the work.
    count = workers - (progress is None)
    helpers = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for helper in helpers:
        helper.start()
    try:
        if progress is None:
            work()
        else:
            _tell(helpers, state, progress)
    except BaseException:
        state.stop()
        raise
    finally:
        for helper in helpers:
            helper.join()
    seconds = time.perf_counter() - start
    if state.errno:
        raise PrefaultError(state.errno, state.done)
    return Prefaulted(length, seconds, workers, "MADV_POPULATE_WRITE" if populate else "touch")


class _State:
    """What is left to do, shared by the threads."""

    def __init__(self, address: int, length: int, chunk: int) -> None:
        self._lock = threading.Lock()
        self._address, self._end, self._chunk = address, address + length, chunk
        self.length, self.done, self.errno = length, 0, 0
        self.changed = threading.Event()

    def take(self) -> tuple[int, int] | None:
        with self._lock:
            if self.errno or self._address >= self._end:
                return None
            part = self._address, min(self._chunk, self._end - self._address)
            self._address += part[1]
            return part

    def finish(self, length: int, number: int) -> None:
        with self._lock:
            if number:
                self.errno = self.errno or number
            else:
                self.done += length
        self.changed.set()

    def stop(self) -> None:
        with self._lock:
            self._address = self._end
        self.changed.set()


def _tell(helpers: list[threading.Thread], state: _State, progress: Progress) -> None:
    """Call ``progress`` while the helpers work, and once when all have ended."""
    while any(helper.is_alive() for helper in helpers):
        state.changed.wait(0.1)
        state.changed.clear()
        progress(state.done, state.length)
    progress(state.done, state.length)


def _can_populate(advice: int) -> bool:
    # An empty range is refused only where the advice is not known
    # (madvise_behavior_valid() in mm/madvise.c comes first).
    return bool(libc.madvise(None, 0, advice) == 0)


def _populate(address: int, length: int, advice: int) -> int:
    while libc.madvise(address, length, advice) != 0:
        number = ctypes.get_errno()
        # EINTR and EAGAIN are answered after part of the range is in; what is
        # in already costs the next call next to nothing.
        if number not in (errno.EINTR, errno.EAGAIN):
            return number
    return 0


def _touch(address: int, length: int, page_size: int, write: bool) -> int:
    # One byte of each page, in two loops of C: what is in the pages stays.
    pages = memoryview((ctypes.c_char * length).from_address(address)).cast("B")[::page_size]
    content = bytes(pages)
    if write:
        pages[:] = content
    return 0
