"""Finds pools that an earlier run left behind: named segments that no process has open."""

import os
import stat
from typing import NamedTuple

from numadoctor.allocator.backing import NAME_PREFIX, SHM


class Leftover(NamedTuple):
    """A named segment without an owner.

    :ivar length: in bytes
    """

    path: str
    length: int


def in_use(path: str) -> bool:
    """Whether a process holds the lock of the segment at ``path``; False if it is gone."""
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        # Somebody else's: whoever owns it is to judge.
        return True
    try:
        # Whoever has the pool open holds a shared lock, and the kernel lets go
        # of it when the last of them ends, however it ends.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def find_leftovers() -> list[Leftover]:
    """The named pools in /dev/shm that nobody has open, by path."""
    try:
        names = sorted(name for name in os.listdir(SHM) if name.startswith(NAME_PREFIX))
    except OSError:
        return []
    found = []
    for name in names:
        path = f"{SHM}/{name}"
        try:
            status = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and not in_use(path):
            found.append(Leftover(path, status.st_size))
    return found
