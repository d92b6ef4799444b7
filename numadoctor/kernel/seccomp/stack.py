"""The filters that stand before a process, all together: the most severe answer counts."""

from collections.abc import Sequence

from numadoctor.kernel.abi import Abi
from numadoctor.kernel.seccomp.actions import Action, Verdict, of_return_value, precedence
from numadoctor.kernel.seccomp.architectures import audit_number
from numadoctor.kernel.seccomp.arguments import argument_bits
from numadoctor.kernel.seccomp.bpf import Program, TooManyPaths, outcomes, seccomp_data

_ARGUMENTS = 6


def judge(
    filters: Sequence[Program], call: str, abi: Abi, arguments: Sequence[int] | None = None
) -> Verdict:
    """What the filters do to a call that a process of that ABI makes.

    :param filters: in the order in which they were installed
    :param arguments: those of one call, or None for whatever a program may pass
    """
    number = abi.numbers[call]
    if number is None:
        return Verdict(None, None, f"{abi.name} has no such call")
    width = (1 << 8 * abi.word_size) - 1
    known = [argument_bits(call, index, arguments) & width for index in range(_ARGUMENTS)]
    data = seccomp_data(number, audit_number(abi), known, abi.byteorder)
    try:
        found = [outcomes(program, data) for program in filters]
    except TooManyPaths as error:
        return Verdict(None, None, f"the filters are not followed to their ends: {error}")
    total = {_LET_THROUGH}
    for values in reversed(found):  # the newest is asked first, and stays where others say as much
        total = {min(one, other, key=precedence) for one in total for other in values}
    verdicts = {of_return_value(value) for value in total}
    if len(verdicts) > 1:
        words = sorted(Verdict(*verdict, "").answer for verdict in verdicts)
        reason = f"depends on the arguments of the call: {', '.join(words)}"
        return Verdict(None, None, reason)
    (verdict,) = verdicts
    return Verdict(*verdict, _told(len(filters), *verdict))


_LET_THROUGH = 0x7FFF0000


def _told(count: int, action: Action, errno: int | None) -> str:
    word = Verdict(action, errno, "").answer
    if count == 1:
        return f"the process's seccomp filter answers {word}"
    return f"the most severe of the process's {count} seccomp filters answers {word}"
