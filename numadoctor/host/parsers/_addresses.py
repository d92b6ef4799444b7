"""Tables of mappings: lines that begin with one or two addresses. A process may have 65,000.

They are read by columns, several times as fast as a line at a time, and a text
that follows many addresses is looked at once.
"""

from collections.abc import Callable
from itertools import repeat
from typing import Generic, NamedTuple, TypeVar

from numadoctor.host.parsers._text import quoted

T = TypeVar("T")

_DIGITS = b"0123456789abcdef"
# Kernels write at most 64 bits; the bound keeps hostile numbers cheap.
_LONGEST = 16


class Table(NamedTuple, Generic[T]):
    """The lines that were understood.

    :ivar addresses: of all lines in order, ``per_line`` of each
    :ivar values: what follows the addresses in each line
    :ivar unknown: lines that were not understood, quoted, each once
    """

    addresses: tuple[int, ...]
    values: tuple[T, ...]
    unknown: tuple[str, ...]


def read_table(data: bytes, per_line: int, understand: Callable[[bytes], T | None]) -> Table[T]:
    """Take the lines of ``data`` apart.

    :param per_line: hexadecimal addresses at the beginning of a line, joined by ``-``
    :param understand: gives the rest of a line a meaning, or None where it has none
    """
    # No name holds a NUL; a captured file may end in one.
    lines = [line for line in data.replace(b"\0", b"").split(b"\n") if line]
    parts = [line.partition(b" ") for line in lines]
    known = {text: understand(text) for text in {part[2] for part in parts}}
    unknown: list[bytes] = []
    if None in known.values() or not _are_addresses([part[0] for part in parts], per_line):
        fits = [_are_addresses([p[0]], per_line) and known[p[2]] is not None for p in parts]
        unknown = [b"".join(part) for part, fit in zip(parts, fits, strict=True) if not fit]
        parts = [part for part, fit in zip(parts, fits, strict=True) if fit]
    words = b"-".join([part[0] for part in parts]).split(b"-") if parts else []
    values = [value for part in parts if (value := known[part[2]]) is not None]
    told = dict.fromkeys(quoted(line) for line in unknown if line.strip())
    return Table(tuple(map(int, words, repeat(16))), tuple(values), tuple(told))


def _are_addresses(words: list[bytes], per_line: int) -> bool:
    """Whether each word is that many addresses."""
    joined = b"-".join(words)
    if joined.translate(None, _DIGITS + b"-") or {*map(bytes.count, words, repeat(b"-"))} - {
        per_line - 1
    }:
        return False
    lengths = {*map(len, joined.split(b"-"))} if words else {1}
    return 0 not in lengths and max(lengths) <= _LONGEST
