"""Pasted bytes as lines, without what terminals, clipboards and issue trackers put around them."""

import re
from typing import NamedTuple

# Far above any real output (lstopo's of 128 CPUs is 200 KiB), and quickly read.
LIMIT, MOST_LINES = 4 << 20, 100_000

# ECMA-48: control sequences, and the strings that some terminals put into titles.
# The escape character itself is lost in many a paste, or shown as ^[ or \x1b.
_ESCAPE = r"(?:\x1b|\^\[|\\x1b|\\e|\\033|\u241b|\ufffd)"
_CONTROL = re.compile(rf"{_ESCAPE}\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_LOST_ESCAPE = re.compile(r"\[[0-9;]{1,8}m")
_INVISIBLE = dict.fromkeys([0, 0xAD, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2060, 0xFEFF])
_BLANKS = dict.fromkeys((160, 8194, 8195, 8199, 8201, 8239, 12288), " ")
_QUOTE = re.compile(r"^ {0,3}(?:> ?)+")


class Line(NamedTuple):
    """One line.

    :ivar number: from 1, in the text as it was given
    :ivar open: it is the last one and no line end follows: it may be cut anywhere
    """

    number: int
    text: str
    open: bool = False

    @property
    def words(self) -> list[str]:
        return self.text.split()


def decode(data: bytes) -> str:
    """The bytes as text, by their byte order mark; UTF-8 without one."""
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data[2:].decode(encoding, "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def read_lines(data: bytes) -> list[Line]:
    """The lines, without colours, quote marks (``> ``) and invisible characters."""
    text = decode(data).replace("\r\n", "\n").replace("\r", "\n")
    whole = text.endswith("\n")
    raw = text.split("\n")
    if whole:
        raw.pop()
    return [
        Line(number, _clean(line), not whole and number == len(raw))
        for number, line in enumerate(raw, 1)
    ]


def _clean(line: str) -> str:
    line = line.translate(_INVISIBLE).translate(_BLANKS)
    return _QUOTE.sub("", _LOST_ESCAPE.sub("", _CONTROL.sub("", line)))


def is_fence(line: Line) -> bool:
    """Whether the line begins or ends a block of code."""
    return line.text.lstrip().startswith(("```", "~~~"))
