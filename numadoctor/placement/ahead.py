"""Reads numa_maps of a process beforehand: its page tables are walked while modules are loaded.

Another process does it, since what waits for the interpreter's lock is no faster for being a
thread, and takes the file apart as well. Imports nothing of ours, so that the reading can begin
before the rest is loaded.
"""

import marshal
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

# Many reads in one call, each with the lock taken anew. Each must be filled for the next to
# follow (do_loop_readv_writev() in fs/read_write.c), so it has to be shorter than the kernel's
# buffer for one read, a page.
_PART, _PARTS = 2048, 256

LIMIT = 64 << 20
"""Bytes of a file that are read; the same as host.root.READ_LIMIT, which is not loaded here."""

_HEXADECIMAL = b"0123456789abcdef"
_LONGEST_ADDRESS = 16

Grouped = list[tuple[bytes, int, bytes]]
"""What lines say, how many say it, and their addresses with blanks between; as they come first."""


class Parts:
    """Reads a file of /proc/PID part by part."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = memoryview(bytearray(_PART * _PARTS))
        self._parts = [self._buffer[at : at + _PART] for at in range(0, len(self._buffer), _PART)]

    def next(self) -> bytes:
        """Up to half a mebibyte; empty at the end of the file."""
        return bytes(self._buffer[: os.readv(self._descriptor, self._parts)])


def read_file(path: str, calls: list[float]) -> bytes:
    """A file of /proc/PID, of one that is too large more than LIMIT bytes.

    :param calls: takes the seconds of each call
    :raises OSError: it cannot be read
    """
    parts: list[bytes] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read = Parts(descriptor).next
        while sum(map(len, parts)) <= LIMIT:
            begin = time.perf_counter()
            part = read()
            calls.append(time.perf_counter() - begin)
            if not part:
                break
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def group(data: bytes) -> Grouped | None:
    """The lines of numa_maps put together by what they say; None if any is not the kernel's own."""
    lines = data.split(b"\n")
    if lines.pop() or not lines or b"\0" in data:
        return None
    heads: dict[bytes, list[bytes]] = {}
    for line in lines:
        address, _, text = line.partition(b" ")
        if text in heads:
            heads[text].append(address)
        else:
            heads[text] = [address]
    grouped = [(text, len(found), b" ".join(found)) for text, found in heads.items()]
    for (text, number, addresses), found in zip(grouped, heads.values(), strict=True):
        digits = addresses.translate(None, _HEXADECIMAL)
        whole = digits == b" " * (number - 1) and all(found)
        if not whole or max(map(len, found)) > _LONGEST_ADDRESS or text[:1] in (b"", b" "):
            return None
    return grouped


class Ahead:
    """The numa_maps file of a process while it is being read.

    :ivar path: of the file
    :ivar calls: seconds that each call took; known when the file was taken
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: list[float] = []
        self._answer: int | bytes | Grouped | None = None
        self._reader = 0
        try:
            self._memory = os.memfd_create("numadoctor")
            self._reader = os.fork()
        except OSError:
            # As many processes as a control group or a limit allows: then when it is asked for.
            return
        if not self._reader:
            self._work()

    @classmethod
    def of_process(cls, pid: int) -> "Ahead":
        """Begin to count the pages of a process, however long that holds it up.

        What ``begin`` began is taken over, once.
        """
        return _begun.pop(pid, None) or cls(f"/proc/{pid}/numa_maps")

    def _work(self) -> NoReturn:
        """What the other process does: nothing of it, no error either, is to be seen outside."""
        try:
            found = memoryview(marshal.dumps(self._read()))
            while found:
                found = found[os.write(self._memory, found) :]
        finally:
            os._exit(0)

    def _read(self) -> tuple[list[float], Any]:
        """How long the calls took; the error number, the content, or the grouped lines."""
        calls: list[float] = []
        try:
            data = read_file(self.path, calls)
        except OSError as error:
            return calls, error.errno or 0
        return calls, group(data) or data

    def take(self) -> bytes | Grouped:
        """The content of the file, if too large more than LIMIT bytes of it; waits for it.

        :raises OSError: it cannot be read
        """
        if self._answer is None:
            self.calls, self._answer = self._received() or self._read()
        if isinstance(self._answer, int):
            raise OSError(self._answer, os.strerror(self._answer))
        return self._answer

    def _received(self) -> tuple[list[float], Any] | None:
        """What the other process found; None where it did not come to its end."""
        if not self._reader:
            return None
        # Whoever started us may ignore SIGCHLD: then nobody is left to be waited for at the end.
        with suppress(ChildProcessError):
            os.waitpid(self._reader, 0)
        try:
            os.lseek(self._memory, 0, os.SEEK_SET)
            with open(self._memory, "rb") as file:
                calls, answer = marshal.load(file)
        except (EOFError, ValueError, TypeError):
            return None
        return calls, answer


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
