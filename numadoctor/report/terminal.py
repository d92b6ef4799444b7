"""What the terminal can show: width, colour, characters; and nothing hostile gets to it."""

import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property

_ASCII = str.maketrans(
    {"█": "#", "▌": "=", "·": ".", "–": "-", "—": "-", "…": "...", "×": "x", "≥": ">=", "≤": "<=",
     "±": "+/-", "→": "->", "•": "*", "✓": "ok", "│": "|", "─": "-", "’": "'", "∩": "&"}
)  # fmt: skip

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}

# Below this nothing is legible; above it a line is as long as somebody's joke in COLUMNS.
_NARROWEST, _WIDEST = 40, 500

# However deep it stands, text gets this many columns.
_LEAST_ROOM = 12

_WORD = re.compile(" *[^ ]+")


def sanitise(text: str) -> str:
    r"""``text`` on one line, with everything that could act on a terminal made visible.

    Names come from others. Shown as ``\xNN`` is what Unicode does not call
    printable: control characters, what reorders or hides text (bidirectional
    controls, zero-width characters), lone surrogates, code points of no meaning.
    Line ends and tabs become blanks.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _shown(c) for c in text)


def _shown(character: str) -> str:
    return " " if character in "\n\t" else f"\\x{ord(character):02x}"


def columns(text: str) -> int:
    """How many columns of a terminal printable ``text`` takes."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in "WF" else 1 for c in text
    )


def _split(text: str, width: int) -> tuple[str, str]:
    """The start of ``text`` that fits ``width`` columns, one character at least; and the rest."""
    used = 0
    for position, character in enumerate(text):
        used += columns(character)
        if used > width and position:
            return text[:position], text[position:]
    return text, ""


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
        """That of standard output.

        :param colour: None: only on a terminal that has it, and never under NO_COLOR
            (https://no-color.org)
        """
        stdout, environment = sys.stdout, os.environ
        on_terminal = stdout is not None and stdout.isatty()
        if colour is None:
            dumb = environment.get("TERM") == "dumb"
            colour = on_terminal and not dumb and not environment.get("NO_COLOR")
        encoding = ((stdout and stdout.encoding) or "ascii").lower().replace("-", "")
        width = min(max(_stdout_width(on_terminal), _NARROWEST), _WIDEST)
        return cls(width, colour, encoding in ("utf8", "utf8mb4"))

    def text(self, text: str) -> str:
        """``text`` fit to be printed: one line, nothing hostile, only what can be shown."""
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
        if columns(text) <= width:
            return text
        return _split(text, width - len(self.ellipsis))[0] + self.ellipsis

    def wrap(self, text: str, indent: int = 0, first: int | None = None) -> list[str]:
        """``text`` as lines of at most the terminal's width, each indented by ``indent``.

        :param first: the indent of the first line, if another
        """
        deepest = self.width - _LEAST_ROOM
        indent, first = min(indent, deepest), min(indent if first is None else first, deepest)
        line = " " * first
        lines, empty = [], True
        for word in _WORD.findall(text):
            if not empty and columns(line + word) > self.width:
                lines.append(line)
                line, empty = " " * indent, True
            if empty and lines:
                word = word.lstrip()
            while columns(line + word) > self.width:
                # Longer than a line: a path, say. It is broken anywhere.
                part, word = _split(word, self.width - columns(line))
                lines.append(line + part)
                line = " " * indent
            line, empty = line + word, False
        return [*lines, line]


def _stdout_width(on_terminal: bool) -> int:
    # COLUMNS first: whoever sets it wants it.
    told = os.environ.get("COLUMNS", "")
    if re.fullmatch("0*[1-9][0-9]{0,4}", told):
        return int(told)
    try:
        # A terminal that does not know its width says 0.
        return (on_terminal and os.get_terminal_size(1).columns) or 80
    except OSError:
        return 80
