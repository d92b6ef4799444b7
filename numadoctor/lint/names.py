"""What the variables of a shell script hold, as far as its text tells.

A variable that is given one plain value, and never another, is put in; so are the
words of an array. What a loop, ``read`` or a second assignment may change is not known.
"""

import re
from collections.abc import Iterable

from numadoctor.lint.arithmetic import expanded
from numadoctor.lint.nodes import Refused, Word

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_ALL = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Builtins that give values to the names behind them.
_GIVING = frozenset(("read", "mapfile", "readarray", "getopts", "unset", "let"))
_LOOPS = ("for", "select")
_MOST_EXPORTED, _LONGEST, _MOST_MADE = 64, 1_000, 200_000


class Names:
    """The variables and arrays of a script, up to the line that is read.

    :ivar exported: what commands are given as their environment
    """

    def __init__(self) -> None:
        self._values: dict[str, Word | None] = {}
        self._arrays: dict[str, list[Word]] = {}
        self.exported: dict[str, Word] = {}
        self._round: dict[str, str] = {}
        self._made = 0

    def in_round(self, values: dict[str, str]) -> None:
        """Give the variables of loops the values of one round."""
        self._round = values

    def _text(self, name: str) -> str | None:
        """What a variable holds, or None where that is not known."""
        if name in self._round:
            return self._round[name]
        found = self._values.get(name)
        return None if found is None or found.open else found.text

    def give(self, name: str, value: Word, *, more: bool = False, export: bool = False) -> None:
        """An assignment; ``more`` is ``+=``."""
        # A second value may come from another branch: then neither is certain.
        self._values[name] = None if more or name in self._values else value
        if export and len(self.exported) < _MOST_EXPORTED:
            self.exported[name] = value

    def give_array(self, name: str, words: Iterable[Word], at: Word, *, more: bool) -> None:
        """``NAME=(…)``, or with ``more`` ``NAME+=(…)``, which may stand in a branch."""
        known = [one for word in words for one in self.filled(word)]
        if more or name in self._arrays:
            open_end = Word(at.file, at.line, at.column, f"${{{name}[@]}}", "'")
            known = [*self._arrays.get(name, []), *known, open_end]
        self._arrays[name] = known[:_LONGEST]

    def lose(self, words: list[Word]) -> None:
        """Forget what a command that gives values to names may have changed."""
        texts = [word.text for word in words]
        lost = texts[1:2] if texts[0] in _LOOPS else texts[1:] if texts[0] in _GIVING else []
        for text in lost:
            if match := _NAME.match(text):
                self.forget(match[0])

    def forget(self, name: str) -> None:
        """Know no more what a variable holds."""
        self._values[name] = None

    def filled(self, word: Word) -> list[Word]:
        """A word with what is known put in: several where the shell would divide it.

        :raises Refused: the script makes more of its values than any does
        """
        if "$" not in word.text:
            return [word]
        found = self._filled(word)
        self._count(len(found), word)
        return found

    def _count(self, made: int, at: Word) -> None:
        self._made += made
        if self._made > _MOST_MADE:
            raise Refused("variables that multiply what they hold", at.line, at.column)

    def _filled(self, word: Word) -> list[Word]:
        if (match := _ALL.fullmatch(word.text)) and match[1] in self._arrays:
            return self._arrays[match[1]]
        whole = _REFERENCE.fullmatch(word.text)

        def value(match: "re.Match[str]") -> str:
            known = self._text(match[1] or match[2])
            text = match[0] if known is None else known
            self._count(len(text) >> 6, word)
            return text

        text = _REFERENCE.sub(value, expanded(word.text, self._text))
        if whole and not word.style and text != word.text:
            # Unquoted: divided at blanks, and nothing where it is empty.
            return [Word(word.file, word.line, word.column, part, "'") for part in text.split()]
        return [Word(word.file, word.line, word.column, text, word.style)]
