"""Finds deployment files and reads them, within bounds and without following links out."""

import codecs
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from numadoctor.lint.nodes import Refused

# No manifest that a person or a chart writes comes near this; the object store of a
# Kubernetes cluster takes 1.5 MiB.
LIMIT = 8 << 20

# Folders in which others keep copies, histories and programs.
_IGNORED = frozenset(
    (".git", ".hg", ".svn", ".bzr", ".tox", ".nox", ".venv", "venv", "node_modules")
) | {"__pycache__", ".terraform", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}

_ENDINGS = frozenset(
    (".yaml", ".yml", ".json", ".xml", ".sh", ".bash", ".conf", ".service", ".scope", ".slice")
) | {".socket", ".container", ".cfg", ".cmdline", ".sbatch", ".slurm", ".env"}

_OPENED = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")

_UNIT_FOLDERS = (".service.d", ".scope.d", ".slice.d", ".container.d")

_NAMES = frozenset(("grub", "cmdline"))

# Folders of /etc that hold environment files of units.
_ENVIRONMENTS = ("default", "sysconfig")


@dataclass(frozen=True)
class Source:
    """A file that was read, or could not be.

    :ivar path: as it was given, or below the folder that was given
    :ivar asked: whether it was given itself
    """

    path: str
    data: bytes = b""
    asked: bool = True
    refused: Refused | None = None

    @property
    def text(self) -> str:
        """What it holds.

        :raises Refused: it could not be read, is binary, or is not UTF-8
        """
        if self.refused:
            raise self.refused
        return decode(self.data)


def decode(data: bytes) -> str:
    """UTF-8, or UTF-16 with a byte order mark, without the mark.

    :raises Refused: it is neither; the place is that of the first wrong byte
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in data:
        raise Refused("a binary file")
    else:
        encoding = "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        byte = data[error.start : error.start + 1].hex()
        raise Refused(f"not UTF-8: byte 0x{byte}", line, column) from None


def read_files(paths: Iterable[str]) -> Iterator[Source]:
    """The files that are given, those below folders that are given, and ``-`` for standard input.

    Each once, and with a unit its drop-ins. Below folders links are not followed; those to
    /dev/null that mask drop-ins are empty files to systemd, and so they are here. Only files
    are read whose names or first lines say that they may be of a known kind.
    """
    seen: set[str] = set()
    for path in paths:
        if path == "-":
            yield _read_standard_input()
            continue
        for found, asked in _below(path) if os.path.isdir(path) else _with_drop_ins(path):
            real = os.path.abspath(found) if _masks(found) else os.path.realpath(found)
            if real not in seen:
                seen.add(real)
                yield read_file(found, asked)


def _with_drop_ins(path: str) -> Iterator[tuple[str, bool]]:
    """A file, with the drop-ins that systemd would read with a unit, and the unit of a drop-in."""
    folder = os.path.dirname(path)
    unit = folder.removesuffix(".d") if folder.endswith(_UNIT_FOLDERS) else path
    folder = f"{unit}.d" if f"{unit}.d".endswith(_UNIT_FOLDERS) else ""
    yield path, True
    if unit != path and os.path.isfile(unit):
        yield unit, True
    if folder and os.path.isdir(folder):
        names = sorted(name for name in os.listdir(folder) if name.endswith(".conf"))
        yield from ((os.path.join(folder, name), True) for name in names)


def _masks(path: str) -> bool:
    """Whether it is a link that takes a drop-in of its name out of force (systemd.unit(5))."""
    # `service.d` is the folder of all services.
    folder = f".{os.path.basename(os.path.dirname(path))}"
    if not (path.endswith(".conf") and folder.endswith(_UNIT_FOLDERS)):
        return False
    return os.path.islink(path) and os.readlink(path) == os.devnull


def read_file(path: str, asked: bool = True) -> Source:
    """One file, however it ends."""
    if _masks(path):
        return Source(path, b"", asked)
    try:
        # A FIFO would block, and a device may act on being opened; what is open already
        # (`<(helm template …)`) is meant to be read.
        if not os.path.isfile(path) and not (asked and path.startswith(_OPENED)):
            raise Refused("not a regular file" if os.path.lexists(path) else "no such file")
        with open(path, "rb") as stream:
            data = stream.read(LIMIT + 1) if os.fstat(stream.fileno()).st_size <= LIMIT else None
    except OSError as error:
        return Source(path, b"", asked, Refused(error.strerror or "cannot be read"))
    except Refused as error:
        return Source(path, b"", asked, error)
    if data is None or len(data) > LIMIT:
        return Source(path, b"", asked, _too_large())
    return Source(path, data, asked)


def _too_large() -> Refused:
    return Refused(f"larger than {LIMIT >> 20} MiB, which no deployment file is")


def _read_standard_input() -> Source:
    data = sys.stdin.buffer.read(LIMIT + 1)
    return Source("-", data) if len(data) <= LIMIT else Source("-", refused=_too_large())


def _below(folder: str) -> Iterator[tuple[str, bool]]:
    pending = [folder]
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            # Whoever asked for the folder is told; others are as if not there.
            if current == folder:
                raise Refused(f"cannot list {folder}: {error.strerror}") from None
            continue
        folders = []
        for entry in found:
            if entry.is_symlink():
                if _masks(entry.path):
                    yield entry.path, False
                continue
            if entry.is_dir(follow_symlinks=False):
                folders += [entry.path] if entry.name not in _IGNORED else []
            elif entry.is_file(follow_symlinks=False) and _may_be_known(entry):
                yield entry.path, False
        pending += reversed(folders)


def _may_be_known(entry: "os.DirEntry[str]") -> bool:
    ending = os.path.splitext(entry.name)[1].lower()
    if ending:
        return ending in _ENDINGS
    folder = os.path.basename(os.path.dirname(entry.path))
    return entry.name in _NAMES or folder in _ENVIRONMENTS or _starts_a_shell(entry.path)


def _starts_a_shell(path: str) -> bool:
    try:
        with open(path, "rb") as stream:
            first = stream.readline(128)
    except OSError:
        return False
    return is_shell(first)


def is_shell(first: bytes) -> bool:
    """Whether a first line names a shell as the program for the file."""
    return first.startswith(b"#!") and any(
        word.rpartition(b"/")[2] in (b"sh", b"bash", b"dash", b"ksh", b"zsh")
        for word in first[2:].split()[:3]
    )
