"""What all parsers share: bytes to lines, words and numbers, and how an error quotes its input."""

import re
from collections.abc import Iterator

from numadoctor.model.errors import ParseError

# Captured sysfs files may end in NUL: it counts as a blank everywhere but in cmdline and environ.
BLANK = b" \t\r\n\v\f\0"

# No kernel file holds a number above 64 bits, and the bound keeps hostile ones cheap.
_INTEGER = re.compile(rb"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})")
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def decode(data: bytes) -> str:
    r"""UTF-8, with what is not UTF-8 shown as ``\xNN``."""
    return data.decode("utf-8", "backslashreplace")


def quoted(data: bytes) -> str:
    """A part of the input for an error message: short, printable and in double quotes."""
    shown = ascii(decode(data[:40]))[1:-1]
    return f'"{shown}..."' if len(data) > 40 else f'"{shown}"'


def error(what: str, data: bytes, reason: str) -> ParseError:
    """The error for ``data``, of which the first part is kept."""
    return ParseError(what, decode(data.strip(BLANK)[:200]), reason)


def words(data: bytes) -> list[bytes]:
    """The words between blanks and NULs."""
    return data.replace(b"\0", b" ").split()


def lines(data: bytes) -> Iterator[bytes]:
    """The lines that are not blank, without the blanks around them."""
    for line in data.split(b"\n"):
        stripped = line.strip(BLANK)
        if stripped:
            yield stripped


def count(word: bytes) -> int | None:
    """An unsigned decimal number, or None when it is not one."""
    return int(word) if word.isdigit() and len(word) <= 20 else None


def integer(what: str, data: bytes) -> int:
    """A signed number, decimal or with 0x, of at most 64 bits; else ParseError."""
    word = data.strip(BLANK)
    if not _INTEGER.fullmatch(word):
        raise error(what, data, f"{quoted(word)} is not a number")
    return int(word, 16 if b"x" in word.lower() else 10)


def kilobytes(value: bytes) -> int | None:
    """``123 kB`` in bytes, ``123`` as it is, None for anything else."""
    parts = value.split()
    number = count(parts[0]) if parts else None
    if number is None or parts[1:] not in ([], [b"kB"]):
        return None
    return number * 1024 if parts[1:] else number


def unescape(data: bytes) -> str:
    r"""Undo the octal escapes (``\040``) that the kernel puts into names in tables."""
    return decode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), data))


def refuse_if_lost(what: str, data: bytes, found: bool) -> None:
    """Raise ParseError when there was text and no line of it could be understood.

    Single lines that cannot be understood are left out: kernels add lines, and
    one new line must not hide the others.
    """
    if not found and data.strip(BLANK):
        raise error(what, data, "no line of it can be understood")
