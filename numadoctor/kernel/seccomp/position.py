"""Where in a JSON text a value stands; the standard reader does not say."""

import json
import re
from typing import Any, Final

Step = str | int
"""A key of an object, or the place in a list."""

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


def position(text: str, steps: tuple[Step, ...]) -> tuple[int, int]:
    """Line and column, from 1, of the value that ``steps`` lead to in valid JSON.

    As far as they lead: a missing key gives the place of its object.
    """
    offset = None
    while offset is None:
        offset = offset_of(text, steps)
        steps = steps[:-1]
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def offset_of(text: str, steps: tuple[Step, ...]) -> int | None:
    """Where in valid JSON the value begins that ``steps`` lead to; None where there is none."""
    offset: int | None = _skip(text, 1 if text.startswith("\ufeff") else 0)
    for step in steps:
        if offset is None:
            break
        offset = _inside(text, offset, step)
    return offset


def spelled(text: str, steps: tuple[Step, ...]) -> tuple[Step, ...] | None:
    """The steps with each key as the text has it: Go takes any case, and the last of several.

    None where they lead nowhere.
    """
    value: Any = json.loads(text)
    found: list[Step] = []
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            keys = [key for key in value if key.lower() == step.lower()]
            step = keys[-1] if keys else step
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
        found.append(step)
    return tuple(found)


def value_at(text: str, steps: tuple[Step, ...]) -> tuple[int, str]:
    """The line (from 1) of the value that the steps lead to, and the value on one line."""
    way = spelled(text, steps)
    start = offset_of(text, way) if way is not None else None
    if start is None:
        return position(text, steps)[0], "none"
    value = _DECODER.raw_decode(text, start)[0]
    return text[:start].count("\n") + 1, json.dumps(value)


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
