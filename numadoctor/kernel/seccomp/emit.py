"""The smallest change to a profile that opens the NUMA calls.

Where calls are refused unless listed that is one rule, put first; where they are
allowed unless listed, their names are taken out of the rules. The text of the
file stays as it is around it, so that a comparison shows the change alone.
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


def without_names(
    text: str, calls: Sequence[str], places: Sequence[int], steps: tuple[Step, ...] = ()
) -> str:
    """The profile without the calls' names in those of its rules.

    A rule that names nothing else goes as a whole.
    """
    for place in sorted(places, reverse=True):
        rule = spelled(text, (*steps, "syscalls", place)) or ()
        names = _value(text, spelled(text, (*rule, "names")) or ()) if rule else None
        listed = names if isinstance(names, list) else []
        if not set(listed) - set(calls):
            text = _remove(text, rule)
            continue
        way = spelled(text, (*rule, "names")) or ()
        for at in reversed(range(len(listed))):
            if listed[at] in calls:
                text = _remove(text, (*way, at))
    return text


def _remove(text: str, steps: tuple[Step, ...]) -> str:
    """The text without that member of a list, its comma and the blanks before it."""
    start = offset_of(text, steps)
    if start is None:
        return text
    end = json.JSONDecoder().raw_decode(text, start)[1]
    before, after = text[:start].rstrip(), text[end:].lstrip()
    if before.endswith(","):
        return f"{before[:-1]}{text[end:]}"
    return f"{text[:start]}{after[1:].lstrip()}" if after.startswith(",") else before + after


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
