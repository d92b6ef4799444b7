"""Files of memory: what lies in /dev/shm and on hugetlbfs, and whether a process still uses it."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from numadoctor.host import parsers
from numadoctor.model import ParseError

SHM = "/dev/shm"

# Smaller files are semaphores and locks.
_LEAST = 1 << 20

# More than any machine has; a folder of millions of files is somebody's mistake.
_MOST = 10_000

Identity = tuple[int, int, int]


def shared_files() -> dict[str, Any]:
    """The files of at least 1 MiB, as JSON data.

    ``files`` is a list of path, bytes, uid and whether a process has it mapped or
    open; ``unread`` is the number of processes that could not be looked into, so
    that "unused" is certain only when it is 0. No mapping is walked.
    """
    found = list(_files())
    used, unread = _used({identity for _, identity, _ in found}) if found else (set(), 0)
    return {
        "files": [
            {"path": path, "bytes": size[0], "uid": size[1], "used": identity in used}
            for path, identity, size in found
        ],
        "unread": unread,
    }


def _files() -> Iterator[tuple[str, Identity, tuple[int, int]]]:
    """Path, identity, and bytes and owner of each file."""
    count = 0
    for folder in _folders():
        for where, _, names in os.walk(folder):
            for name in sorted(names):
                count += 1
                if count > _MOST:
                    return
                path = os.path.join(where, name)
                with suppress(OSError):
                    info = os.lstat(path)
                    if stat.S_ISREG(info.st_mode) and info.st_size >= _LEAST:
                        yield path, _identity(info), (info.st_size, info.st_uid)


def _identity(info: os.stat_result) -> Identity:
    return os.major(info.st_dev), os.minor(info.st_dev), info.st_ino


def _folders() -> list[str]:
    """/dev/shm and the mounts of hugetlbfs."""
    folders = [SHM]
    with suppress(OSError, ParseError), open("/proc/self/mounts", "rb") as stream:
        for mount in parsers.parse_mounts(stream.read()):
            if mount.fstype == "hugetlbfs" and mount.point not in folders:
                folders.append(mount.point)
    return folders


def _used(wanted: set[Identity]) -> tuple[set[Identity], int]:
    """Which of the files a process has mapped or open, and how many could not be looked into."""
    used: set[Identity] = set()
    unread = 0
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            used |= wanted.intersection(_mapped(f"/proc/{name}"))
            used |= wanted.intersection(_opened(f"/proc/{name}"))
        except PermissionError:
            unread += 1
        except OSError:
            continue  # it ended meanwhile
    return used, unread


def _mapped(proc: str) -> Iterator[Identity]:
    with open(f"{proc}/maps", "rb") as stream:
        data = stream.read()
    with suppress(ParseError):
        for backing in parsers.parse_maps(data).meanings.values():
            if backing.inode:
                yield (*backing.device, backing.inode)


def _opened(proc: str) -> Iterator[Identity]:
    for number in os.listdir(f"{proc}/fd"):
        with suppress(FileNotFoundError):
            yield _identity(os.stat(f"{proc}/fd/{number}"))
