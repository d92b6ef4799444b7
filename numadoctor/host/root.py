"""The roots a host can be examined through: the live machine, or a captured folder.

A root answers three questions about absolute paths as the examined machine
names them (read, list, link) and raises the errors of ``numadoctor.model``.
It knows nothing of what the files mean.
"""

import errno
import os
import stat
from collections.abc import Callable
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

T = TypeVar("T")

# No genuine file of /proc or /sys that numadoctor reads comes near this; a
# larger one is somebody's mistake or malice, and would only eat memory.
READ_LIMIT = 64 << 20

# The kernel's MAX_ERRNO (include/linux/err.h).
_MAX_ERRNO = 4095

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


def _refuse(found: os.stat_result, path: str, limit: int) -> None:
    # A FIFO blocks, a device may act on being opened (a watchdog starts), and
    # a socket cannot be read: of a sysroot only regular files are.
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable(path, None, "not a regular file")
    if found.st_size > limit:
        raise TooLarge(path, None, f"larger than {limit / (1 << 20):g} MiB")


def _read_descriptor(descriptor: int, path: str, limit: int) -> bytes:
    _refuse(os.fstat(descriptor), path, limit)
    chunks, size = [], 0
    while chunk := os.read(descriptor, min(1 << 17, limit + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise TooLarge(path, None, f"larger than {limit / (1 << 20):g} MiB")
        # Files of /proc and /sys have no size to go by; a short answer does
        # not mean the end, an empty one does.
    return b"".join(chunks)


def _open_and_read(real: str, path: str, limit: int, flags: int = 0) -> bytes:
    _refuse(os.stat(real, follow_symlinks=not flags & os.O_NOFOLLOW), path, limit)
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


class Tree(Protocol):
    """Where a captured tree is kept. Paths are inside it, without a leading slash, links resolved.

    Every method raises OSError as the system call of its name would.
    """

    def read(self, inside: str, path: str, limit: int) -> bytes: ...
    def listdir(self, inside: str) -> list[str]: ...
    def readlink(self, inside: str) -> str: ...
    def is_folder(self, inside: str) -> bool: ...


class DiskTree:
    """A tree that is a folder of this machine."""

    def __init__(self, folder: str) -> None:
        # The folder itself may be reached through links: it is the user's own word.
        self._folder = os.path.realpath(folder)

    def _real(self, inside: str) -> str:
        return os.path.join(self._folder, inside)

    def read(self, inside: str, path: str, limit: int) -> bytes:
        # O_NOFOLLOW: the last component was resolved; one that became a link
        # since then is somebody's race against us.
        return _open_and_read(self._real(inside), path, limit, os.O_NOFOLLOW)

    def listdir(self, inside: str) -> list[str]:
        return os.listdir(self._real(inside))

    def readlink(self, inside: str) -> str:
        return os.readlink(self._real(inside))

    def is_folder(self, inside: str) -> bool:
        return stat.S_ISDIR(os.stat(self._real(inside), follow_symlinks=False).st_mode)


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

    def __init__(self, folder: str, label: str = "", tree: Tree | None = None) -> None:
        self.label = label or os.path.basename(os.path.abspath(folder))
        self._tree = tree or DiskTree(folder)
        self._targets: dict[str, str] = {}
        self._linked: dict[str, set[str]] = {}
        try:
            if not self._tree.listdir(""):
                raise Unreadable(folder, None, "the folder is empty")
        except OSError as error:
            raise error_from(folder, error.errno or 0) from None
        self._errors = self._load(ERRORS, int)
        if not all(0 < number <= _MAX_ERRNO for number in self._errors.values()):
            raise Malformed(ERRORS, None, "holds a number that is no errno")
        self._add_links(self._load(LINKS, str))

    def _load(self, path: str, kind: type[T]) -> dict[str, T]:
        """The object of path to ``kind`` in one of our own files; empty where there is none."""
        import json

        try:
            loaded = json.loads(self._read(path, READ_LIMIT))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise error_from(path, error.errno or 0) from None
        except (ValueError, RecursionError) as error:
            raise Malformed(path, None, f"not JSON: {error}") from None
        if not isinstance(loaded, dict) or any(
            type(value) is not kind for value in loaded.values()
        ):
            raise Malformed(path, None, f"must be an object of path to {kind.__name__}")
        return loaded

    def _add_links(self, links: dict[str, str]) -> None:
        for path, target in links.items():
            before, *parts = path.split("/")
            if before or not target or not parts or {"", ".", ".."}.intersection(parts):
                raise Malformed(LINKS, None, f"{path!r} cannot be a link to {target!r}")
            self._targets["/".join(parts)] = target
            for depth, name in enumerate(parts):
                self._linked.setdefault("/".join(parts[:depth]), set()).add(name)

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes:
        return self._answer(path, lambda: self._read(path, limit))

    def list(self, path: str) -> tuple[str, ...]:
        return self._answer(path, lambda: self._list(path))

    def link(self, path: str) -> str:
        return self._answer(path, lambda: self._link(path))

    def _answer(self, path: str, ask: Callable[[], T]) -> T:
        if number := self._errors.get(path):
            raise error_from(path, number)
        try:
            return ask()
        except (OSError, ValueError) as error:
            answer = _translate(path, error)
        if isinstance(answer, Missing):
            # What could not be searched when the tree was taken may have held it.
            parts = path.split("/")
            for depth in range(len(parts) - 1, 1, -1):
                if number := self._errors.get("/".join(parts[:depth])):
                    raise error_from(path, number)
        raise answer

    def _read(self, path: str, limit: int) -> bytes:
        return self._tree.read(self._resolve(path), path, limit)

    def _list(self, path: str) -> tuple[str, ...]:
        inside = self._resolve(path)
        linked = self._linked.get(inside, set())
        try:
            names = self._tree.listdir(inside)
        except FileNotFoundError:
            if not linked:
                raise
            names = []
        return tuple(sorted(linked.union(names)))

    def _link(self, path: str) -> str:
        directory, name = os.path.split(path)
        inside = "/".join(filter(None, (self._resolve(directory), name)))
        return self._targets.get(inside) or self._tree.readlink(inside)

    def _resolve(self, path: str) -> str:
        """``path`` after following links inside the folder, without a leading slash.

        :raises OSError: ELOOP after 40 links; ENOENT or ENOTDIR where a step
            goes through what is no directory
        """
        pending = path.split("/")[::-1]
        inside: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part in ("", ".", ".."):
                self._must_be_directory("/".join(inside))
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
            pending += target.split("/")[::-1]
        return "/".join(inside)

    def _must_be_directory(self, inside: str) -> None:
        if inside and inside not in self._linked and not self._tree.is_folder(inside):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _target(self, relative: str) -> str | None:
        """Where the link at ``relative`` points, or None when it is no link."""
        # Remembered: a sysfs tree is a thousand files below the same few links.
        if relative not in self._targets:
            try:
                self._targets[relative] = self._tree.readlink(relative)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                    raise
                self._targets[relative] = ""
        return self._targets[relative] or None


def open_sample(name: str) -> FolderRoot:
    """The sample host called ``name`` (``--sysroot sample:NAME``).

    :raises Missing: there is no such sample; the message lists those there are
    """
    if archive := _samples_archive():
        from numadoctor.host.zipped import ZippedTree

        _must_be_sample(name)
        tree = ZippedTree(archive, f"numadoctor/fixtures/{name}/root")
        return FolderRoot(name, name, tree)
    return FolderRoot(sample_folder(name), label=name)


def sample_folder(name: str) -> str:
    """The folder of the sample host called ``name``, where numadoctor is installed as files.

    :raises Missing: there is no such sample
    """
    _must_be_sample(name)
    return os.path.join(_samples_folder(), name, "root")


def _must_be_sample(name: str) -> None:
    if name not in sample_names():
        known = ", ".join(sample_names())
        raise Missing(f"sample:{name}", None, f"no such sample; there are {known}")


def sample_names() -> tuple[str, ...]:
    """The names of the sample hosts that come with numadoctor."""
    if archive := _samples_archive():
        from numadoctor.host.zipped import folders

        return folders(archive, "numadoctor/fixtures", "root")
    base = _samples_folder()
    return tuple(
        sorted(n for n in os.listdir(base) if os.path.isdir(os.path.join(base, n, "root")))
    )


def _samples_folder() -> str:
    import numadoctor.fixtures

    return os.path.dirname(os.path.abspath(str(numadoctor.fixtures.__file__)))


def _samples_archive() -> str | None:
    """The zip file that numadoctor is run from (numadoctor.pyz), if it is."""
    import numadoctor.fixtures

    loader = numadoctor.fixtures.__spec__.loader
    archive: str | None = getattr(loader, "archive", None)
    return archive


def open_root(where: str | None) -> Root:
    """The root that ``--sysroot`` names: None or "/" the live machine, a folder, or sample:NAME."""
    if where is None or where == "/":
        return LiveRoot()
    if not where:
        # An unset variable in a script must not examine the current folder.
        raise Missing(where, None, "names no folder")
    if where.startswith("sample:"):
        return open_sample(where.removeprefix("sample:"))
    return FolderRoot(where)
