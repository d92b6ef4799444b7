"""Files of memory: what lies in /dev/shm and on hugetlbfs, and whether a process still uses it."""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from numadoctor.host import parsers
from numadoctor.host.living import hidden_by
from numadoctor.model import ParseError

SHM = "/dev/shm"

# PROC_PID_INIT_INO of include/linux/proc_ns.h: the namespace in which all processes are seen.
_FIRST_PIDS = "pid:[4026531836]"

# Smaller files are semaphores and locks.
_LEAST = 1 << 20

# More than any machine has; a folder of millions of files is somebody's mistake.
_MOST = 10_000

Identity = tuple[int, int, int]


def shared_files() -> dict[str, Any]:
    """The files of at least 1 MiB, as JSON data.

    ``files`` is a list of path, bytes, uid and whether a process has it mapped or
    open; ``unread`` is the number of processes that could not be looked into, and
    ``hidden`` says why there may be others that are not even listed, so that "unused"
    is certain only when it is 0 and there is no such reason. No mapping is walked.
    """
    mounts = _mounts()
    found = list(_files(_folders(mounts)))
    used, unread = _used({identity for _, identity, _ in found}) if found else (set(), 0)
    hidden = _hidden(mounts)
    return {
        **({"hidden": hidden} if hidden else {}),
        "files": [
            {"path": path, "bytes": size[0], "uid": size[1], "used": identity in used}
            for path, identity, size in found
        ],
        "unread": unread,
    }


def _files(folders: Iterable[str]) -> Iterator[tuple[str, Identity, tuple[int, int]]]:
    """Path, identity, and bytes and owner of each file."""
    count = 0
    for folder in folders:
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


def _mounts() -> Sequence[parsers.Mount]:
    with suppress(OSError, ParseError), open("/proc/self/mounts", "rb") as stream:
        return parsers.parse_mounts(stream.read())
    return ()


def _folders(mounts: Iterable[parsers.Mount]) -> list[str]:
    """/dev/shm, where it is memory, and the mounts of hugetlbfs."""
    fstypes = {mount.point: mount.fstype for mount in mounts}
    huge = [point for point, fstype in fstypes.items() if fstype == "hugetlbfs"]
    below = next((fstypes[point] for point in (SHM, "/dev", "/") if point in fstypes), None)
    # A file of a disk takes no memory, and maps may name its device otherwise than stat (btrfs).
    return [SHM, *huge] if below in (None, "tmpfs", "ramfs", "devtmpfs") else huge


def _hidden(mounts: Iterable[parsers.Mount]) -> str:
    """Why there may be processes that /proc does not list, or nothing."""
    with suppress(OSError):
        if os.readlink("/proc/self/ns/pid") != _FIRST_PIDS:
            return "numadoctor runs in a pid namespace, from which processes outside are not seen"
    return hidden_by(mounts)


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
