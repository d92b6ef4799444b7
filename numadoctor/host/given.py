"""Files that a person names on the command line: read with a bound, and waiting for nobody."""

import errno
import os
import sys
from io import BufferedReader


def read_given(file: str, most: int, *, dash: bool = False) -> bytes:
    """All that ``file`` holds, which may be a pipe (``<(…)``).

    A FIFO that nobody writes to is empty; opened in the usual way it would block for ever.
    One that somebody writes to is waited for.

    :param most: in bytes
    :param dash: ``-`` is standard input
    :raises OSError: it cannot be read, or holds more; ``strerror`` tells what is wrong
    """
    try:
        if dash and file == "-":
            # None where it is closed.
            data = sys.stdin.buffer.read(most + 1) if sys.stdin else b""
        else:
            with _open(file) as stream:
                data = stream.read(most + 1)
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name") from None
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB")
    return data


def _open(file: str) -> BufferedReader:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        # Of this descriptor alone: what the path names is opened anew, /dev/fd/N too.
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
