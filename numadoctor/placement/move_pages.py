"""Asks the kernel where single pages are, in small batches that do not hold up the process.

``move_pages`` without target nodes moves nothing. The kernel takes the mmap
lock of the process for 16 pages at a time and lets go in between, but takes it
again before a waiting ``mmap`` has woken up; so the batches are small, and a
short pause follows each (do_pages_stat() in mm/migrate.c).
"""

import ctypes
import errno
import time
from collections.abc import Sequence

from numadoctor.kernel.process import OTHER_IDS, has_ids_of_proc
from numadoctor.kernel.syscalls import Answer, move_pages
from numadoctor.model import Denied, Missing, Undecided, Unreadable, Vanished
from numadoctor.placement.asker import Account

BATCH = 128
"""Pages per call: about 30 microseconds."""

PAUSE = 0.0001
"""Seconds between calls, in which whoever waits for the lock gets it."""


class PageAsker:
    """Asks about pages of a live process, or with pid 0 of this one."""

    def __init__(
        self, pid: int, account: Account | None = None, *, batch: int = BATCH, pause: float = PAUSE
    ) -> None:
        self.pid = pid
        self.account = account or Account()
        self._batch = batch
        self._pause = pause

    def ask(self, addresses: Sequence[int]) -> list[int]:
        """See ``Asker``.

        :raises Denied: by the kernel, or by a filter
        :raises Vanished: the process ended
        :raises Missing: the kernel, or who stands before it, has no such call
        :raises Unreadable: it gave any other error
        """
        count = len(addresses)
        if addresses and max(addresses) >= 1 << 8 * ctypes.sizeof(ctypes.c_void_p):
            reason = "a 32-bit program cannot ask about a 64-bit process"
            raise Unreadable(self._what, None, reason)
        pages = (ctypes.c_void_p * count)(*addresses)
        status = (ctypes.c_int * count)()
        for first in range(0, count, self._batch):
            if first and self._pause:
                time.sleep(self._pause)
            number = min(self._batch, count - first)
            begin = time.perf_counter()
            answer = move_pages(
                self.pid,
                number,
                ctypes.addressof(pages) + first * ctypes.sizeof(ctypes.c_void_p),
                0,
                ctypes.addressof(status) + first * ctypes.sizeof(ctypes.c_int),
            )
            self.account.call(time.perf_counter() - begin, number)
            if answer.returned < 0:
                raise self.error(answer)
        return list(status)

    def can_ask(self) -> Undecided | None:
        """None when the process may be asked about, else why not. Looks at no page."""
        if self.pid and not has_ids_of_proc():
            return Unreadable(self._what, None, f"move_pages finds other processes: {OTHER_IDS}")
        answer = move_pages(self.pid, 0, 0, 0, 0)
        return self.error(answer) if answer.returned < 0 else None

    @property
    def _what(self) -> str:
        return f"move_pages of pid {self.pid}"

    def error(self, answer: Answer) -> Undecided:
        """What a failed call stands for."""
        number = answer.errno
        # EINVAL: what was a process has no memory any more (find_mm_struct() in mm/migrate.c).
        if number in (errno.ESRCH, errno.EINVAL):
            return Vanished(self._what, number)
        if number in (errno.EPERM, errno.EACCES):
            # Nobody needs a right to ask about no page of one's own.
            own = move_pages(0, 0, 0, 0, 0)
            if own.returned < 0:
                hint = "numa_maps (--exact) tells the same"
                return Denied(self._what, number, "a system-call filter refuses move_pages", hint)
            return Denied(self._what, number)
        if number == errno.ENOSYS:
            reason = "move_pages is refused by a filter, or this kernel has no NUMA support"
            return Missing(self._what, number, reason)
        return Unreadable(self._what, number)
