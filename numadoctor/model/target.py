"""Whom an examination is about."""

from typing import NamedTuple


class Target(NamedTuple):
    """The process that process-scoped checks look at.

    :ivar pid: its id as the examined machine's /proc names it, or None for the
        calling process (whose children inherit all that is examined here)
    :ivar name: its command name
    :ivar descendant: it was not asked for itself, but for an ancestor: that it ends is no news
    :ivar together: for checks that look at all processes at once (``Scope.PROCESSES``),
        each of them; such a target is no process itself
    """

    pid: int | None = None
    name: str = ""
    descendant: bool = False
    together: tuple["Target", ...] = ()

    @property
    def proc(self) -> str:
        """Its directory in /proc."""
        return f"/proc/{'self' if self.pid is None else self.pid}"

    @property
    def subject(self) -> str:
        """A name for findings that stays the same between runs."""
        return f"process {self.name}" if self.name else "process"
