"""The roots a host can be examined through: the live machine, or a captured folder.

A root answers three questions about absolute paths as the examined machine
names them (read, list, link) and raises the errors of ``numadoctor.model``.
It knows nothing of what the files mean.
"""

import errno
import json
import os
import stat
from typing import Protocol, TypeVar

from numadoctor.model import (
    Denied,
    Malformed,
    Missing,
    TooLarge,
    Undecided,
    Unreadable,
    Vanished,
)

T = TypeVar("T", int, str)

# No genuine file of /proc or /sys that numadoctor reads comes near this; a
# larger one is somebody's mistake or malice, and would only eat memory.
READ_LIMIT = 64 << 20

# Linux follows at most 40 links in one lookup (include/linux/namei.h, MAXSYMLINKS).
_MAX_LINKS = 40

# Where a captured folder keeps what is not a file: facts by name, the error
# numbers of paths that could not be read when it was taken, and symbolic links
# where they cannot be stored as such (a wheel holds none).
FACTS = "/.numadoctor/facts"
ERRORS = "/.numadoctor/errors.json"
LINKS = "/.numadoctor/links.json"


class Root(Protocol):
    """What ``Host`` needs of a root. Paths are absolute, in the examined machine's terms."""

    live: bool
    label: str

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes: ...
    def list(self, path: str) -> tuple[str, ...]: ...
    def link(self, path: str) -> str: ...


def error_from(path: str, number: int) -> Undecided:
    """The error of ours that an errno about ``path`` stands for."""
    if number in (errno.EACCES, errno.EPERM):
        return Denied(path, number)
    if number == errno.ESRCH:
        return Vanished(path, number)
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ENAMETOOLONG):
        return Missing(path, number)
    return Unreadable(path, number)


def _read_descriptor(descriptor: int, path: str, limit: int) -> bytes:
    # A FIFO would block for ever and a device may act on being read: a file
    # of a sysroot that is not a regular one is refused.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise Unreadable(path, None, "not a regular file")
    chunks, size = [], 0
    while chunk := os.read(descriptor, min(1 << 17, limit + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise TooLarge(path, None, f"larger than {limit >> 20} MiB")
        # Files of /proc and /sys have no size to go by; a short answer does
        # not mean the end, an empty one does.
    return b"".join(chunks)


def _open_and_read(real: str, path: str, limit: int, flags: int = 0) -> bytes:
    descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | flags)
    try:
        return _read_descriptor(descriptor, path, limit)
    finally:
        os.close(descriptor)


class LiveRoot:
    """The machine numadoctor runs on."""

    live = True
    label = ""

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes:
        try:
            return _open_and_read(path, path, limit)
        except (OSError, ValueError) as error:
            raise _translate(path, error) from None

    def list(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(path)))
        except (OSError, ValueError) as error:
            raise _translate(path, error) from None

    def link(self, path: str) -> str:
        try:
            return os.readlink(path)
        except (OSError, ValueError) as error:
            raise _translate(path, error) from None


def _translate(path: str, error: OSError | ValueError) -> Undecided:
    # ValueError: a NUL byte in the path, which no file can have.
    return error_from(path, (error.errno or 0) if isinstance(error, OSError) else errno.ENOENT)


class FolderRoot:
    """A captured tree, or another machine's root mounted at a folder.

    Symbolic links are resolved inside the folder, absolute and ``..`` ones
    too, one component at a time as chroot(2) would: none leads out of it.
    (openat2(2) with RESOLVE_IN_ROOT does the same in the kernel, from Linux
    5.6 on; many machines that are examined, and gVisor, do not have it.)

    :raises Missing: ``folder`` does not exist
    :raises Unreadable: ``folder`` is not a directory, or is empty
    :raises Denied: ``folder`` may not be listed
    """

    live = False

    def __init__(self, folder: str, label: str = "") -> None:
        self.label = label or os.path.basename(os.path.abspath(folder))
        # The folder itself may be reached through links: it is the user's own word.
        self._folder = os.path.realpath(folder)
        self._targets: dict[str, str] = {}
        self._linked: dict[str, set[str]] = {}
        try:
            if not os.listdir(self._folder):
                raise Unreadable(folder, None, "the folder is empty")
        except OSError as error:
            raise error_from(folder, error.errno or 0) from None
        self._errors = self._load(ERRORS, int)
        self._add_links(self._load(LINKS, str))

    def _load(self, path: str, kind: type[T]) -> dict[str, T]:
        """The object of path to ``kind`` in one of our own files; empty where there is none."""
        try:
            loaded = json.loads(self._read(path, READ_LIMIT))
        except (OSError, Undecided):
            return {}
        except (ValueError, RecursionError) as error:
            raise Malformed(path, None, f"not JSON: {error}") from None
        if not isinstance(loaded, dict) or any(
            type(value) is not kind for value in loaded.values()
        ):
            raise Malformed(path, None, f"must be an object of path to {kind.__name__}")
        return loaded

    def _add_links(self, links: dict[str, str]) -> None:
        for path, target in links.items():
            parts = _steps(path)
            self._targets["/".join(parts)] = target
            for depth, name in enumerate(parts):
                self._linked.setdefault("/".join(parts[:depth]), set()).add(name)

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes:
        self._recorded(path)
        try:
            return self._read(path, limit)
        except (OSError, ValueError) as error:
            raise _translate(path, error) from None

    def list(self, path: str) -> tuple[str, ...]:
        self._recorded(path)
        try:
            inside = self._resolve(path)
            linked = self._linked.get(inside, set())
            try:
                names = os.listdir(self._real(inside))
            except FileNotFoundError:
                if not linked:
                    raise
                names = []
        except (OSError, ValueError) as error:
            raise _translate(path, error) from None
        return tuple(sorted(linked.union(names)))

    def link(self, path: str) -> str:
        self._recorded(path)
        try:
            directory, name = os.path.split(path)
            inside = "/".join(filter(None, (self._resolve(directory), name)))
            return self._targets.get(inside) or os.readlink(self._real(inside))
        except (OSError, ValueError) as error:
            raise _translate(path, error) from None

    def _recorded(self, path: str) -> None:
        if number := self._errors.get(path):
            raise error_from(path, number)

    def _read(self, path: str, limit: int) -> bytes:
        # O_NOFOLLOW: the last component was resolved; one that became a link
        # since then is somebody's race against us.
        return _open_and_read(self._real(self._resolve(path)), path, limit, os.O_NOFOLLOW)

    def _real(self, inside: str) -> str:
        return os.path.join(self._folder, inside)

    def _resolve(self, path: str) -> str:
        """``path`` after following links inside the folder, without a leading slash.

        :raises OSError: ELOOP after 40 links
        """
        pending = _steps(path)[::-1]
        inside: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                # The root is its own parent.
                del inside[-1:]
                continue
            target = self._target("/".join((*inside, part)))
            if target is None:
                inside.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                inside.clear()
            pending += _steps(target)[::-1]
        return "/".join(inside)

    def _target(self, relative: str) -> str | None:
        """Where the link at ``relative`` points, or None when it is no link."""
        # Remembered: a sysfs tree is a thousand files below the same few links.
        if relative not in self._targets:
            try:
                self._targets[relative] = os.readlink(self._real(relative))
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                    raise
                self._targets[relative] = ""
        return self._targets[relative] or None


def _steps(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def sample_folder(name: str) -> str:
    """The folder of the sample host called ``name`` (``--sysroot sample:NAME``).

    :raises Missing: there is no such sample; the message lists those there are
    """
    import numadoctor.fixtures

    base = os.path.dirname(os.path.abspath(str(numadoctor.fixtures.__file__)))
    folder = os.path.join(base, name)
    if name not in sample_names():
        known = ", ".join(sample_names())
        raise Missing(f"sample:{name}", None, f"no such sample; there are {known}")
    return os.path.join(folder, "root")


def sample_names() -> tuple[str, ...]:
    """The names of the sample hosts that come with numadoctor."""
    import numadoctor.fixtures

    base = os.path.dirname(os.path.abspath(str(numadoctor.fixtures.__file__)))
    return tuple(
        sorted(n for n in os.listdir(base) if os.path.isdir(os.path.join(base, n, "root")))
    )


def open_root(where: str | None) -> Root:
    """The root that ``--sysroot`` names: None or "/" the live machine, a folder, or sample:NAME."""
    if where is None or where == "/":
        return LiveRoot()
    if where.startswith("sample:"):
        name = where.removeprefix("sample:")
        return FolderRoot(sample_folder(name), label=name)
    return FolderRoot(where)
