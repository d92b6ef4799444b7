"""What the terminal can show: width, colour, characters; and nothing hostile gets to it."""

import contextlib
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property

# C0 and C1 controls, DEL, and what reorders or hides text (bidirectional
# controls, zero-width characters, line separators): names come from others.
_HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)

_ASCII = str.maketrans(
    {"█": "#", "▌": "=", "·": ".", "–": "-", "—": "-", "…": "...", "×": "x", "≥": ">=", "≤": "<=",
     "±": "+/-", "→": "->", "•": "*", "✓": "ok", "│": "|", "─": "-", "’": "'", "∩": "&"}
)  # fmt: skip

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}


def sanitise(text: str) -> str:
    """``text`` with everything that could act on a terminal made visible."""
    return _HOSTILE.sub(lambda match: f"\\x{ord(match[0]):02x}", text).replace("\t", " ")


@dataclass(frozen=True)
class Terminal:
    """How text is to be laid out.

    :ivar width: columns
    :ivar colour: whether colour may be used
    :ivar unicode: whether more than ASCII can be shown
    """

    width: int = 80
    colour: bool = False
    unicode: bool = True

    @classmethod
    def of_stdout(cls, *, colour: bool | None = None) -> "Terminal":
        """That of standard output. Colour only on a terminal, and never under NO_COLOR."""
        on_terminal = sys.stdout.isatty()
        width = 80
        if on_terminal:
            # COLUMNS first, as the shell sets it; then what the terminal says.
            columns = os.environ.get("COLUMNS", "")
            with contextlib.suppress(OSError):
                width = int(columns) if columns.isdigit() else os.get_terminal_size(1).columns
        if colour is None:
            colour = on_terminal and not os.environ.get("NO_COLOR")
        encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
        return cls(max(40, width or 80), colour, encoding in ("utf8", "utf8mb4"))

    def text(self, text: str) -> str:
        """``text`` fit to be printed: nothing hostile, no character the terminal lacks."""
        text = sanitise(text)
        if self.unicode:
            return text
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()

    def paint(self, text: str, colour: str, *, bold: bool = False) -> str:
        """``text`` in colour where there is colour."""
        if not self.colour:
            return text
        return f"\x1b[{'1;' if bold else ''}{_COLOURS[colour]}m{text}\x1b[0m"

    @cached_property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    def cut(self, text: str, width: int | None = None) -> str:
        """``text`` cut to ``width`` columns (the terminal's), marked as cut."""
        width = width or self.width
        return text if len(text) <= width else text[: width - len(self.ellipsis)] + self.ellipsis

    def wrap(self, text: str, indent: int = 0, first: int | None = None) -> list[str]:
        """``text`` as lines of at most the terminal's width, each indented by ``indent``.

        :param first: the indent of the first line, if another
        """
        import textwrap

        lines: list[str] = []
        for number, paragraph in enumerate(text.splitlines() or [""]):
            start = first if first is not None and number == 0 else indent
            lines += textwrap.wrap(
                paragraph,
                self.width,
                initial_indent=" " * start,
                subsequent_indent=" " * indent,
                break_on_hyphens=False,
            ) or [""]
        return lines


def human_bytes(count: int) -> str:
    """A count of bytes with a binary unit, three figures at most: ``71.3 GiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")
