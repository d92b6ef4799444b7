"""Loops of a shell script over numbers that stand in it: ``for node in 0 1; do … done``.

What stands between is read once for each number, as each of them will run. Loops
over names and files leave their variable unknown: they choose models and hosts, and
nothing of placement.
"""

import re
from collections.abc import Iterator
from itertools import product

from numadoctor.lint.nodes import Word

_NUMBERS = re.compile(r"[0-9]+(?:[-,][0-9]+)*")
_RANGE = re.compile(r"\{([0-9]{1,4})\.\.([0-9]{1,4})\}")
_SEQ = re.compile(r"\$\(seq (?:([0-9]{1,4}) )?([0-9]{1,4})\)|`seq (?:([0-9]{1,4}) )?([0-9]{1,4})`")

# A machine has fewer nodes, and a loop in another one is read at most so often.
_MOST_VALUES, _MOST_ROUNDS, _MOST_WORDS = 32, 64, 20_000


class Loops:
    """The loops that a line is in, innermost last: the variable and its values, or None."""

    def __init__(self) -> None:
        self._open: list[tuple[str, list[str]] | None] = []

    def follow(self, words: list[Word]) -> str:
        """Take over words that may begin or end a loop.

        :returns: the variable of a loop whose values are known, or empty
        """
        texts = [word.text for word in words]
        while texts and texts[0] in ("do", "then", "else", "{", "!"):
            texts = texts[1:]
        if not texts:
            return ""
        if texts[0] in ("while", "until", "select"):
            self._open.append(None)
        elif texts[0] == "for":
            values = _values(texts[3:]) if texts[2:3] == ["in"] else []
            self._open.append((texts[1], values) if values else None)
            return texts[1] if values else ""
        elif texts[0] == "done" and self._open:
            self._open.pop()
        return ""

    def rounds(self, words: list[Word]) -> Iterator[dict[str, str]]:
        """The values with which a command is run, by variable; once without any where it has none.

        Only the variables that it mentions are told apart.
        """
        mentioned = set()
        for word in words if self._open else ():
            if "$" in word.text:
                mentioned |= set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", word.text))
        loops = dict(one for one in self._open if one and one[0] in mentioned)
        count = 1
        for values in loops.values():
            count *= len(values)
        if count > _MOST_ROUNDS or count * len(words) > _MOST_WORDS:
            loops = {}
        for values_of_round in product(*loops.values()):
            yield dict(zip(loops, values_of_round, strict=True))


def _values(texts: list[str]) -> list[str]:
    """The values of a loop; none where one is no number or they are too many."""
    found: list[str] = []
    for text in texts:
        if match := _RANGE.fullmatch(text) or _SEQ.fullmatch(text):
            bounds = [int(group) for group in match.groups() if group]
            first, last = bounds if len(bounds) == 2 else (1, bounds[0])
            found += map(str, range(first, min(last, first + _MOST_VALUES) + 1))
        elif _NUMBERS.fullmatch(text):
            found.append(text)
        else:
            return []
    return found if len(found) <= _MOST_VALUES else []
