"""A captured tree inside a zip file: the sample hosts, where numadoctor is one file itself."""

import errno
import os
from functools import cache

from numadoctor.model import Unreadable


@cache
def _contents(archive: str) -> dict[str, set[str]]:
    """Each folder of a zip file to the names in it; files are no keys.

    Remembered: the file that a program runs from does not change below it.
    """
    import zipfile

    inside: dict[str, set[str]] = {}
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            parts = name.split("/")
            for depth, part in enumerate(parts):
                inside.setdefault("/".join(parts[:depth]), set()).add(part)
    return inside


def folders(archive: str, prefix: str, holding: str) -> tuple[str, ...]:
    """The folders below ``prefix`` in which there is a folder ``holding``, sorted."""
    contents = _contents(archive)
    names = contents.get(prefix, set())
    return tuple(sorted(name for name in names if f"{prefix}/{name}/{holding}" in contents))


class ZippedTree:
    """The tree below ``prefix`` in the zip file ``archive``, which is numadoctor's own."""

    def __init__(self, archive: str, prefix: str) -> None:
        import zipfile

        self._prefix = prefix
        self._contents = _contents(archive)
        self._opened = zipfile.ZipFile(archive)

    def _place(self, inside: str) -> str:
        """Where it is in the archive.

        :raises OSError: it is not there
        """
        place = f"{self._prefix}/{inside}".rstrip("/")
        folder, _, name = place.rpartition("/")
        if name in self._contents.get(folder, ()):
            return place
        while folder and folder not in self._contents:
            above, _, name = folder.rpartition("/")
            if name in self._contents.get(above, ()):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), inside)
            folder = above
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), inside)

    def read(self, inside: str, path: str, limit: int) -> bytes:
        """The bytes of a file; those of our own samples keep to any limit."""
        place = self._place(inside)
        if place in self._contents:
            raise Unreadable(path, None, "not a regular file")
        return self._opened.read(place)

    def listdir(self, inside: str) -> list[str]:
        """The names in a folder."""
        place = self._place(inside)
        if place not in self._contents:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), inside)
        return list(self._contents[place])

    def readlink(self, inside: str) -> str:
        """A zip file of ours holds no links."""
        self._place(inside)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), inside)

    def is_folder(self, inside: str) -> bool:
        """Whether it is a folder, and no file."""
        return self._place(inside) in self._contents
