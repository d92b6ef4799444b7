"""Reads files of a process in the background: the kernel walks its page tables meanwhile.

Imports nothing of ours, so that the reading can begin before the rest is loaded.
"""

import os
import threading
import time
from collections.abc import Iterable, Sequence

# Many reads in one call, each with the lock taken anew. Each must be filled for the next to
# follow (do_loop_readv_writev() in fs/read_write.c), so it has to be shorter than the kernel's
# buffer for one read, a page.
_PART, _PARTS = 2048, 256

LIMIT = 64 << 20
"""Bytes of a file that are read; the same as host.root.READ_LIMIT, which is not loaded here."""


class Parts:
    """Reads a file of /proc/PID part by part."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = memoryview(bytearray(_PART * _PARTS))
        self._parts = [self._buffer[at : at + _PART] for at in range(0, len(self._buffer), _PART)]

    def next(self) -> bytes:
        """Up to half a mebibyte; empty at the end of the file."""
        return bytes(self._buffer[: os.readv(self._descriptor, self._parts)])


class Ahead:
    """Files that are being read, one after the other.

    :ivar calls: seconds that each call took
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.calls: list[float] = []
        self._answers: dict[str, bytes | Exception] = {}
        self._done = {path: threading.Event() for path in paths}
        try:
            threading.Thread(target=self._work, daemon=True).start()
        except RuntimeError:
            # As many tasks as a control group or a limit allows: then now, not in the background.
            self._work()

    @classmethod
    def of_process(cls, pid: int) -> "Ahead":
        """Begin to count the pages of a process, however long that holds it up.

        maps comes second: what it tells is needed when numa_maps has been taken apart. What
        ``begin`` began is taken over, once.
        """
        begun = _begun.pop(pid, None)
        return begun or cls((f"/proc/{pid}/numa_maps", f"/proc/{pid}/maps"))

    def _work(self) -> None:
        for path, done in self._done.items():
            try:
                self._answers[path] = self._read(path)
            # Also that there is no memory: whoever waits for the file has to be told.
            except Exception as error:
                self._answers[path] = error
            done.set()

    def _read(self, path: str) -> bytes:
        parts: list[bytes] = []
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            read = Parts(descriptor).next
            while sum(map(len, parts)) <= LIMIT:
                begin = time.perf_counter()
                part = read()
                self.calls.append(time.perf_counter() - begin)
                if not part:
                    break
                parts.append(part)
        finally:
            os.close(descriptor)
        return b"".join(parts)

    def __contains__(self, path: str) -> bool:
        return path in self._done

    def take(self, path: str) -> bytes:
        """The content of a file, of one that is too large more than LIMIT bytes; waits for it.

        :raises OSError: it cannot be read
        :raises MemoryError: there is no room for it
        """
        self._done[path].wait()
        answer = self._answers[path]
        if isinstance(answer, Exception):
            raise answer
        return answer


_begun: dict[int, Ahead] = {}


def begin(arguments: Sequence[str]) -> None:
    """Begin to count the pages of the process that ``numadoctor maps`` is asked about, if certain.

    Called before the command line is understood: that takes as long as the kernel takes to walk
    the page tables of 40,000 mappings. So it must be a command line that cannot be refused, and
    the process the one that it asks to be counted.

    :param arguments: of the command
    """
    if "--exact" not in arguments:
        return
    named = [word for word in arguments if word != "--exact"]
    # Python takes other digits than those of ASCII, and any number of them, for a number, too.
    if len(named) == 1 and named[0].isascii() and named[0].isdecimal() and len(named[0]) < 10:
        pid = int(named[0])
        if pid > 0:
            _begun[pid] = Ahead.of_process(pid)
