"""A root whose files are in memory: for tests of what asks, not of what is asked."""

import errno
from collections.abc import Mapping

from numadoctor.model import Missing, Undecided


class MemoryRoot:
    """Files by path; a folder is its names, separated by blanks. Counts what is asked for."""

    live = False

    def __init__(
        self, files: Mapping[str, str | bytes | Undecided] | None = None, label: str = "memory"
    ) -> None:
        self.files = dict(files or {})
        self.label = label
        self.asked: list[str] = []

    def read(self, path: str, limit: int = 0) -> bytes:
        self.asked.append(path)
        content = self.files.get(path, Missing(path, errno.ENOENT))
        if isinstance(content, Undecided):
            raise content
        return content.encode() if isinstance(content, str) else content

    def list(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self.read(path).decode().split()))

    def link(self, path: str) -> str:
        return self.read(path).decode()
