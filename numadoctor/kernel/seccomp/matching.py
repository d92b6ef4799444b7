"""Which of several rules for one call counts, as libseccomp has it (src/db.c).

The first rule without conditions ends all others. Rules with conditions stand
side by side, and a call that none of them fits gets the default action.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from numadoctor.kernel.abi import Abi
from numadoctor.kernel.seccomp.actions import Action, Verdict
from numadoctor.kernel.seccomp.arguments import argument_bits, argument_name
from numadoctor.kernel.seccomp.profile import Condition, path_text
from numadoctor.kernel.seccomp.tristate import invert

_SIGNS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


class Candidate(NamedTuple):
    """A rule that names the call, and what it would do."""

    verdict: Verdict
    conditions: tuple[Condition, ...]


def decide(
    call: str,
    abi: Abi,
    candidates: Sequence[Candidate],
    default: Verdict,
    arguments: Sequence[int] | None,
) -> Verdict:
    """What the rules come to, in the order of the profile.

    :param arguments: those of one call, or None for whatever a program may pass
    """
    width = 8 * abi.word_size
    split = [part for one in candidates for part in _split(one, width)]
    for one in split:
        if not one.conditions:
            return one.verdict
    if clash := _clash(split):
        return clash
    fits = [(one, _fits(call, one.conditions, arguments, width)) for one in split]
    possible = [one for one, fit in fits if fit is not False]
    certain = [one for one, fit in fits if fit]
    outcomes = [one.verdict for one in possible]
    if not certain:
        outcomes.append(default)
    if all(outcomes[0].same_as(other) for other in outcomes):
        return _told(outcomes[0], possible, default)
    if len({(one.verdict.action, one.verdict.errno) for one in certain}) > 1:
        places = " and ".join(_place(one) for one in certain)
        reason = f"{places} fit the same call and differ: libseccomp's order is not decided here"
        return Verdict(None, None, reason, certain[0].verdict.rule)
    doubtful = next(one for one, fit in fits if fit is None)
    told = f"{_place(doubtful)} asks for {_text(call, doubtful.conditions)}"
    words = ", ".join(dict.fromkeys(outcome.answer for outcome in outcomes))
    return Verdict(None, None, f"depends on the arguments ({words}): {told}", doubtful.verdict.rule)


def _told(verdict: Verdict, possible: list[Candidate], default: Verdict) -> Verdict:
    if verdict is default and not possible:
        return replace(default, reason="the call fits no rule of the profile: its default action")
    return replace(verdict, reason=f"{verdict.reason}, and its conditions hold")


def _place(one: Candidate) -> str:
    return path_text(("syscalls", one.verdict.rule or 0))


def _split(one: Candidate, width: int) -> list[Candidate]:
    """The rules that the runtime makes of one: where an argument is named twice, each alone.

    A mask of nothing is no condition.
    """
    mask = (1 << width) - 1
    conditions = [
        condition
        for condition in one.conditions
        if condition.operator != "MASKED_EQ" or condition.value & mask
    ]
    indexes = [condition.index for condition in one.conditions]
    if len(indexes) > len(set(indexes)):
        if len(conditions) < len(one.conditions):
            return [one._replace(conditions=())]
        return [one._replace(conditions=(condition,)) for condition in conditions]
    return [one._replace(conditions=tuple(conditions))]


def _clash(candidates: Sequence[Candidate]) -> Verdict | None:
    for one, other in combinations(candidates, 2):
        same = sorted(_key(one.conditions)) == sorted(_key(other.conditions))
        if same and not one.verdict.same_as(other.verdict):
            reason = (
                f"{_place(one)} and {_place(other)} have the same conditions and different "
                "actions: libseccomp refuses the second (EEXIST)"
            )
            return Verdict(Action.NO_START, None, reason, other.verdict.rule)
    return None


def _key(conditions: Sequence[Condition]) -> list[tuple[int, str, int, int]]:
    return [(c.index, c.operator, c.value, c.value_two) for c in conditions]


def _fits(
    call: str, conditions: Sequence[Condition], arguments: Sequence[int] | None, width: int
) -> bool | None:
    answers = [_holds(call, condition, arguments, width) for condition in conditions]
    if False in answers:
        return False
    return None if None in answers else True


def _holds(
    call: str, condition: Condition, arguments: Sequence[int] | None, width: int
) -> bool | None:
    mask = (1 << width) - 1
    bits = argument_bits(call, condition.index, arguments) & mask
    value = condition.value & mask
    if condition.operator == "MASKED_EQ":
        # The kernel compares with the masked number (libseccomp, _db_node_mask_fixup).
        return (bits & value).equals(condition.value_two & value)
    answers = {
        "EQ": bits.equals(value),
        "NE": invert(bits.equals(value)),
        "GT": bits.greater(value),
        "GE": bits.at_least(value),
        "LT": invert(bits.at_least(value)),
        "LE": invert(bits.greater(value)),
    }
    return answers[condition.operator]


def _text(call: str, conditions: Sequence[Condition]) -> str:
    return " and ".join(_condition_text(call, condition) for condition in conditions)


def _condition_text(call: str, condition: Condition) -> str:
    name = argument_name(call, condition.index)
    if condition.operator == "MASKED_EQ":
        return f"{name} & {condition.value:#x} == {condition.value_two:#x}"
    return f"{name} {_SIGNS[condition.operator]} {condition.value:#x}"
