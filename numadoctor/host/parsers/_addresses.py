"""Tables of mappings: lines that begin with one or two addresses. A process may have 65,000.

One pass of a regular expression takes the whole file apart, several times as
fast as a look at each line; a text that follows many addresses is understood
once; and what nobody asks for is not converted.
"""

import re
from collections.abc import Callable
from functools import cached_property
from itertools import compress, repeat
from typing import ClassVar, Generic, TypeVar

from numadoctor.host.parsers._text import quoted, refuse_if_lost

T = TypeVar("T")

# Kernels write at most 64 bits; the bound keeps hostile numbers cheap.
ADDRESS = rb"([0-9a-f]{1,16})"


def lines_of(*addresses: bytes) -> "re.Pattern[bytes]":
    """The pattern of a line: addresses joined by ``-``, a blank and a text."""
    return re.compile(rb"(?m)^" + b"-".join(addresses) + rb" (.+)\n?")


class Table(Generic[T]):
    """Lines with their addresses, in the file's order, which is that of the addresses.

    Nothing but the first line is looked at before it is asked for.
    """

    pattern: ClassVar["re.Pattern[bytes]"] = lines_of(ADDRESS)

    def __init__(self, what: str, data: bytes, understand: Callable[[bytes], T | None]) -> None:
        """:raises ParseError: there is text and no line of it can be understood"""
        # No name holds a NUL; a captured file may end in one.
        self.data = data.replace(b"\0", b"")
        self.understand = understand
        first = self.pattern.match(self.data)
        if not first or understand(first[self.pattern.groups]) is None:
            refuse_if_lost(what, data, bool(self.texts))

    @cached_property
    def _columns(self) -> tuple[list[list[bytes]], list[bytes], dict[bytes, T], tuple[str, ...]]:
        found = self.pattern.split(self.data)
        width = self.pattern.groups + 1
        columns = [found[column::width] for column in range(1, width)]
        understood = {text: self.understand(text) for text in set(columns[-1])}
        lost = [line for gap in set(found[::width]) for line in gap.split(b"\n")]
        if None in understood.values():
            fits = [understood[text] is not None for text in columns[-1]]
            lines = zip(fits, *columns, strict=True)
            lost += [b"-".join(line[1:-1]) + b" " + line[-1] for line in lines if not line[0]]
            columns = [list(compress(column, fits)) for column in columns]
        meanings = {text: value for text, value in understood.items() if value is not None}
        told = dict.fromkeys(quoted(line) for line in lost if line.strip())
        return columns[:-1], columns[-1], meanings, tuple(told)

    @property
    def heads(self) -> list[list[bytes]]:
        """The addresses of all lines as text: those that come first, and the second ones."""
        return self._columns[0]

    @property
    def texts(self) -> list[bytes]:
        """What follows the addresses in each line."""
        return self._columns[1]

    @property
    def meanings(self) -> dict[bytes, T]:
        """What each different text means."""
        return self._columns[2]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Lines that were not understood, quoted, each once."""
        return self._columns[3]

    @cached_property
    def number(self) -> int:
        """The number of lines, those that were not understood, too."""
        text = self.data.strip(b"\n")
        return text.count(b"\n") + 1 if text else 0

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first address of each mapping."""
        return tuple(map(int, self.heads[0], repeat(16)))

    @cached_property
    def values(self) -> tuple[T, ...]:
        """What each line says after its addresses; lines that say the same share one."""
        return tuple(map(self.meanings.__getitem__, self.texts))
