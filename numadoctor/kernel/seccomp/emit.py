"""The smallest change to a profile that opens the NUMA calls: one rule, put first.

The text of the file stays as it is around it, so that a comparison of the two
shows the change and nothing else.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from numadoctor.kernel.remedy import profile_rule
from numadoctor.kernel.seccomp.position import Step, offset_of, spelled

_INDENT: Final = 2


def with_rule(text: str, calls: Sequence[str], steps: tuple[Step, ...] = ()) -> str:
    """The profile with a rule that lets the calls pass, before all others.

    Of several rules for a call the first without conditions counts, and one
    without conditions counts above those that have some (libseccomp).

    :param text: a valid profile
    :param steps: the way to the profile in the text; () if it is the whole
    """
    if not calls:
        return text
    return _with_member(text, steps, "syscalls", profile_rule(calls))


def with_architecture(text: str, name: str, native: str, steps: tuple[Step, ...] = ()) -> str:
    """The profile with one more architecture, in the list that it keeps.

    :param name: ``SCMP_ARCH_X86``
    :param native: that of the machine, with whose entry of ``archMap`` it comes
    """
    maps = spelled(text, (*steps, "archMap"))
    if maps is None:
        return _with_member(text, steps, "architectures", f'"{name}"')
    for place, entry in enumerate(_value(text, maps) or ()):
        if native in (value for key, value in entry.items() if key.lower() == "architecture"):
            return _with_member(text, (*maps, place), "subArchitectures", f'"{name}"')
    new = {"architecture": native, "subArchitectures": [name]}
    return _with_member(text, steps, "archMap", json.dumps(new))


def section(text: str, steps: tuple[Step, ...]) -> str:
    """The value that the steps lead to, laid out on lines of its own."""
    return json.dumps(_value(text, spelled(text, steps) or ()), indent=_INDENT) + "\n"


def _value(text: str, steps: tuple[Step, ...]) -> Any:
    start = offset_of(text, steps)
    return None if start is None else json.JSONDecoder().raw_decode(text, start)[0]


def _with_member(text: str, steps: tuple[Step, ...], wanted: str, new: str) -> str:
    """With ``new`` first in the list at that key of an object."""
    way = spelled(text, (*steps, wanted))
    opening = offset_of(text, way) if way else None
    if opening is None:
        return _insert(text, offset_of(text, steps) or 0, f'"{wanted}": [{new}]')
    if text[opening] == "[":
        return _insert(text, opening, new)
    # null: Go reads it as no list.
    return f"{text[:opening]}[{new}]{text[opening + len('null') :]}"


def _insert(text: str, opening: int, new: str) -> str:
    """``new`` as the first member of the list or object that opens there."""
    rest = text[opening + 1 :]
    blanks = re.match(r"\s*", rest)
    gap = blanks[0] if blanks else ""
    if rest[len(gap) :][:1] in ("]", "}"):
        return f"{text[: opening + 1]}{new}{rest[len(gap) :]}"
    comma = "," if gap else ", "
    return f"{text[: opening + 1]}{gap}{new}{comma}{rest}"
