"""Which of several rules for one call counts, as libseccomp has it (src/db.c).

The first rule without conditions ends all others. Rules with conditions stand
side by side, and a call that none of them fits gets the default action.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from numadoctor.kernel.abi import Abi
from numadoctor.kernel.seccomp.actions import Action, Verdict
from numadoctor.kernel.seccomp.arguments import argument_bits, argument_name
from numadoctor.kernel.seccomp.profile import Condition, path_text
from numadoctor.kernel.seccomp.tristate import invert

_SIGNS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


class Candidate(NamedTuple):
    """A rule that names the call, or the default action, and what it would do.

    :ivar data: what a tracer is told; no answer depends on it, but for libseccomp two actions
        with different data are two
    """

    verdict: Verdict
    conditions: tuple[Condition, ...] = ()
    data: int = 0

    def acts_as(self, other: "Candidate") -> bool:
        """Whether libseccomp takes both for the same action."""
        return self.data == other.data and self.verdict.same_as(other.verdict)


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
    if doubtful := _not_held_together(split):
        reason = f"{_place(doubtful)} is one of several with conditions: libseccomp may lose one"
        return Verdict(None, None, reason, doubtful.verdict.rule)
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
    closed = all(outcome.refused for outcome in outcomes)
    doubtful = next(one for one, fit in fits if fit is None)
    told = f"{_place(doubtful)} asks for {_text(call, doubtful.conditions)}"
    words = ", ".join(dict.fromkeys(outcome.answer for outcome in outcomes))
    reason = f"depends on the arguments ({words}): {told}"
    return Verdict(None, None, reason, doubtful.verdict.rule, closed)


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


def clash(candidates: Sequence[Candidate], width: int) -> Verdict | None:
    """What libseccomp says to rules for one call that it cannot hold together, or None.

    Rules with the same conditions, or where those of the later are the first
    of the earlier's, must have the same action.

    :param width: bits of an argument in the smallest ABI of the profile
    """
    taken = _conditional(candidates, width)
    if all(one.acts_as(taken[0]) for one in taken):
        return None
    doubtful = _not_held_together(taken)
    for place, one in enumerate(taken if len(taken) == 2 or not doubtful else ()):
        for other in taken[:place]:
            earlier, later = _key(other.conditions, width), _key(one.conditions, width)
            if later == earlier[: len(later)] and not one.acts_as(other):
                reason = (
                    f"{_place(other)} and {_place(one)} have the same conditions and different "
                    "actions: libseccomp refuses the second (EEXIST)"
                )
                return Verdict(Action.NO_START, None, reason, one.verdict.rule)
    if doubtful:
        reason = f"libseccomp takes {_place(doubtful)} beside the other rules, or refuses it"
        return Verdict(None, None, reason, doubtful.verdict.rule)
    return None


def _conditional(candidates: Sequence[Candidate], width: int) -> list[Candidate]:
    """The rules with conditions, up to one without, after which libseccomp takes no others."""
    taken: list[Candidate] = []
    for one in (part for candidate in candidates for part in _split(candidate, width)):
        if not one.conditions:
            break
        taken.append(one)
    return taken


def _not_held_together(taken: Sequence[Candidate]) -> Candidate | None:
    """The rule that makes several more than libseccomp can be trusted with.

    It puts them into one tree, and where they compare by order or by NE their
    branches get in each other's way (seen with 2.5.4): then a rule can be lost.
    """
    if len(taken) < 2:
        return None
    return next(
        (
            one
            for one in taken
            if any(condition.operator not in ("EQ", "MASKED_EQ") for condition in one.conditions)
        ),
        None,
    )


def _key(conditions: Sequence[Condition], width: int) -> list[tuple[int, str, int, int]]:
    """The conditions by argument, as libseccomp chains them."""
    mask = (1 << width) - 1
    return sorted(
        (
            c.index,
            c.operator,
            c.value & mask,
            c.value_two & c.value & mask if c.operator == "MASKED_EQ" else 0,
        )
        for c in conditions
    )


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
