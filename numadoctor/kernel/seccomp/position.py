"""Where in a JSON text a value stands; the standard reader does not say."""

import json
import re
from typing import Final

Step = str | int
"""A key of an object, or the place in a list."""

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


def position(text: str, steps: tuple[Step, ...]) -> tuple[int, int]:
    """Line and column, from 1, of the value that ``steps`` lead to in valid JSON.

    As far as they lead: a missing key gives the place of its object.
    """
    offset = _skip(text, 1 if text.startswith("\ufeff") else 0)
    for step in steps:
        found = _inside(text, offset, step)
        if found is None:
            break
        offset = found
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _skip(text: str, offset: int) -> int:
    blanks = _BLANKS.match(text, offset)
    return blanks.end() if blanks else offset


def _inside(text: str, offset: int, step: Step) -> int | None:
    """Where the value of that key or place begins; of a key given twice the last counts."""
    opening = text[offset : offset + 1]
    if opening != ("[" if isinstance(step, int) else "{"):
        return None
    found, place = None, 0
    offset = _skip(text, offset + 1)
    while text[offset : offset + 1] not in ("]", "}", ""):
        key: Step = place
        if opening == "{":
            key, offset = _DECODER.raw_decode(text, offset)
            offset = _skip(text, _skip(text, offset) + 1)
        if key == step:
            found = offset
        _, offset = _DECODER.raw_decode(text, offset)
        offset, place = _skip(text, offset), place + 1
        if text[offset : offset + 1] == ",":
            offset = _skip(text, offset + 1)
    return found
