"""Files that a person names on the command line: opened without waiting for anybody."""

import os
from io import BufferedReader


def open_given(file: str) -> BufferedReader:
    """``file``, which may be a pipe (``<(…)``), to read.

    A FIFO that nobody writes to is at its end, as an empty file is; opened in the usual way
    it would block for ever. One that somebody writes to is waited for.

    :raises OSError: it cannot be opened
    :raises ValueError: no file can have this name
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        # Of this descriptor alone: what the path names is opened anew, /dev/fd/N too.
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
