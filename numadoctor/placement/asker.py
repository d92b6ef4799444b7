"""What asking about single pages gives, and what looking costs the examined processes."""

import errno
from collections.abc import Sequence
from typing import Protocol

from numadoctor.model.placement import Cost

ABSENT = -errno.ENOENT
"""Status of a page that is not present: never touched, swapped out, or not mapped here."""

ZERO = -errno.EFAULT
"""Status of the shared page of zeros (only read so far), or of an address without a mapping."""


class Asker(Protocol):
    """Tells where pages of one process are."""

    def ask(self, addresses: Sequence[int]) -> list[int]:
        """The node of each page, or a negative errno (ABSENT, ZERO)."""
        ...


class Account:
    """Adds up what looking cost the examined processes."""

    def __init__(self) -> None:
        self.calls = 0
        self.pages = 0
        self.longest = 0.0

    def call(self, seconds: float, pages: int = 0) -> None:
        self.calls += 1
        self.pages += pages
        self.longest = max(self.longest, seconds)

    def cost(self, seconds: float) -> Cost:
        return Cost(self.calls, self.pages, self.longest, seconds)
