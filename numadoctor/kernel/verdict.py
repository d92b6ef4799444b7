"""What the answers of the six NUMA calls mean: who stands in the way of which, and what helps.

Pure: nothing here makes a call. The reasoning rests on what the kernel can
answer (mm/mempolicy.c, mm/migrate.c): to the forms that are probed it answers
0, EINVAL or EFAULT, and never EPERM, whatever the capabilities of the caller.
"""

import errno
import signal
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from numadoctor.kernel import remedy
from numadoctor.kernel.abi import CALLS
from numadoctor.kernel.facts import (
    ANY_EMULATOR,
    HOME_NODE,
    MOVING,
    PLACING,
    REFUSED,
    Answer,
    Facts,
    ProcStatus,
    Runtime,
    gather,
)
from numadoctor.kernel.nodemask import to_text
from numadoctor.model import Evidence, Fix, Status
from numadoctor.model.calls import CallVerdict, Verdict

SECCOMP: Final = "seccomp filter"
SECURITY_MODULE: Final = "security module or sandbox"
NO_NUMA: Final = "kernel without NUMA"
OLD_KERNEL: Final = "kernel without this call"


def judge(
    probe: Any,
    status: ProcStatus | None,
    *,
    numa: bool | None,
    banner: str = "",
    effect: Any = None,
    features: Any = None,
    runtimes: Iterable[Runtime] = (),
    evidence: Iterable[Evidence] = (),
) -> tuple[CallVerdict, ...]:
    """A verdict on each of the six calls, in the order of ``CALLS``.

    :param probe: what ``probe_calls`` gave; like ``effect`` and ``features`` it
        may come from a recording, and what is malformed in it counts as not known
    :param status: of the process that probed; None where it could not be read
    :param numa: whether the kernel has NUMA at all; None where that is not known
    :param banner: the text of /proc/version
    :param effect: what ``probe_effect`` gave, or None
    :param features: what ``probe_features`` gave, or None
    :param runtimes: what the process runs inside of
    :param evidence: what was read to get these; cited with each verdict
    """
    facts = gather(probe, status, numa, banner, effect, features, runtimes)
    common = tuple(evidence)
    return tuple(_judge_one(facts, facts.answers[name], common) for name in CALLS)


class _Ruling(NamedTuple):
    """The part of a verdict that the rules decide."""

    verdict: Verdict
    because: str
    blocked_by: str | None = None
    fixes: tuple[Fix, ...] = ()
    evidence: tuple[Evidence, ...] = ()


def _judge_one(facts: Facts, answer: Answer, common: tuple[Evidence, ...]) -> CallVerdict:
    ruling = _rule(facts, answer)
    status = _status(facts, answer.name, ruling.verdict)
    number = "" if answer.number is None else f" ({answer.number})"
    seen = Evidence(f"system call {answer.name}{number}", f"answers {answer.word}")
    return CallVerdict(
        name=answer.name,
        number=answer.number,
        verdict=ruling.verdict,
        status=status,
        answer=answer.word,
        errno=answer.errno_name,
        blocked_by=ruling.blocked_by,
        because=ruling.because,
        evidence=(seen, *ruling.evidence, *common),
        # Where there is nothing to place, there is nothing to mend.
        fixes=() if status is Status.SKIP else ruling.fixes,
    )


def _status(facts: Facts, name: str, verdict: Verdict) -> Status:
    if verdict is Verdict.REACHED:
        return Status.PASS
    if verdict is Verdict.UNDECIDED:
        return Status.UNKNOWN
    if facts.numa is False:
        return Status.SKIP
    if verdict is Verdict.NO_EFFECT:
        return Status.WARN
    # Pages that are placed rightly from the start need neither moving nor a home
    # node, and every default container profile closes these three.
    return Status.FAIL if name in PLACING else Status.INFO


def _rule(facts: Facts, answer: Answer) -> _Ruling:
    if answer.unprobed is not None:
        return _Ruling(Verdict.UNDECIDED, f"It could not be asked: {answer.unprobed}.")
    if answer.signal is not None:
        return _rule_killed(facts, answer)
    if answer.reached:
        return _rule_reached(facts, answer)
    if answer.errno == errno.ENOSYS:
        return _rule_missing(facts, answer)
    if answer.errno in REFUSED:
        return _rule_refused(facts, answer)
    return _rule_odd(facts, answer)


def _rule_killed(facts: Facts, answer: Answer) -> _Ruling:
    if answer.signal != signal.SIGSYS:
        return _Ruling(Verdict.UNDECIDED, f"The process that asked was ended by {answer.word}.")
    because = "The call ends the process with SIGSYS, as a seccomp filter does and no kernel."
    return _Ruling(Verdict.FILTERED, because, SECCOMP, _open_filter(facts, answer.name))


def _rule_reached(facts: Facts, answer: Answer) -> _Ruling:
    landed = facts.landed.get(answer.name, ())
    astray = [(asked, found) for asked, found in landed if asked != found]
    seen = tuple(
        Evidence("effect probe", f"{answer.name}: asked for node {asked}, page on node {found}")
        for asked, found in astray[:1]
    )
    if facts.sandbox:
        return _Ruling(
            Verdict.NO_EFFECT,
            f"{facts.sandbox} answers this call itself and places nothing: its memory comes from "
            "wherever the host takes it.",
            f"sandbox ({facts.sandbox})",
            remedy.shared_kernel(),
            seen,
        )
    if astray:
        asked, found = astray[0]
        return _Ruling(
            Verdict.NO_EFFECT,
            f"The call was accepted, but a page asked for on node {asked} is on node {found}: "
            "something before the kernel takes the call and does nothing.",
            "sandbox or emulation",
            evidence=seen,
        )
    if answer.name in facts.refused_in_use:
        return _rule_refused_in_use(facts, answer)
    if landed:
        nodes = to_text(asked for asked, _ in landed)
        because = f"The kernel answered, and pages asked for on node {nodes} are there."
        return _Ruling(Verdict.REACHED, because)
    because = "The kernel itself answered."
    if answer.errno:
        because = f"The kernel itself answered: {answer.errno_name} is right for what was asked."
    return _Ruling(Verdict.REACHED, because)


def _rule_refused_in_use(facts: Facts, answer: Answer) -> _Ruling:
    number = facts.refused_in_use[answer.name]
    word = errno.errorcode[number] if number else "SIGSYS"
    return _Ruling(
        Verdict.FILTERED,
        f"An empty call is answered, but a real one (MPOL_BIND) gives {word}: a filter looks at "
        "the arguments.",
        SECURITY_MODULE if facts.seccomp == 0 else SECCOMP,
        _open_filter(facts, answer.name),
        (Evidence("effect probe", f"{answer.name} with MPOL_BIND answers {word}"),),
    )


def _rule_missing(facts: Facts, answer: Answer) -> _Ruling:
    """ENOSYS: no such call, but in whom?"""
    if facts.sandbox:
        because = f"{facts.sandbox} does not implement this call."
        by = f"sandbox ({facts.sandbox})"
        return _Ruling(Verdict.ABSENT, because, by, remedy.shared_kernel())
    if facts.emulator:
        because = f"{facts.emulator} passes none of the six calls on to the kernel."
        if facts.emulator == ANY_EMULATOR:
            because = (
                "The kernel has NUMA nodes, no filter is in force, and yet all six calls answer "
                "ENOSYS, as under user-mode emulation (qemu-user)."
            )
        return _Ruling(
            Verdict.ABSENT, because, f"emulation ({facts.emulator})", (remedy.native_program(),)
        )
    if facts.numa is False:
        because = "This kernel is built without NUMA: it has neither nodes nor this call."
        return _Ruling(Verdict.ABSENT, because, NO_NUMA)
    if facts.numa is None or facts.seccomp is None:
        unread = "whether it has NUMA" if facts.numa is None else "whether a filter is in force"
        because = f"A kernel without the call answers ENOSYS, or a filter: {unread} is not known."
        return _Ruling(Verdict.UNDECIDED, because)
    if answer.name == HOME_NODE and not facts.all_missing:
        return _rule_home_node(facts)
    if facts.filtered:
        because = (
            "A kernel with NUMA has this call: ENOSYS is what the seccomp filter answers to calls "
            "that its profile does not list."
        )
        return _Ruling(Verdict.FILTERED, because, SECCOMP, _open_filter(facts, answer.name))
    if answer.name in MOVING:
        because = "No filter is in force: this kernel is built without page migration."
        return _Ruling(Verdict.ABSENT, because, OLD_KERNEL)
    because = "A kernel with NUMA has this call, and no filter is in force: who answers is unknown."
    return _Ruling(Verdict.UNDECIDED, because)


def _rule_home_node(facts: Facts) -> _Ruling:
    """ENOSYS from set_mempolicy_home_node alone: a kernel before 5.17, or a filter."""
    old = (OLD_KERNEL, (remedy.newer_kernel(),))
    if not facts.filtered or facts.home_node_missing:
        because = "The call came with Linux 5.17, and this kernel does not have it."
        return _Ruling(Verdict.ABSENT, because, *old)
    if facts.older:
        because = f"This kernel lacks {facts.older}, which came before the call (Linux 5.17)."
        return _Ruling(Verdict.ABSENT, because, *old)
    fixes = _open_filter(facts, HOME_NODE)
    if facts.newer:
        because = (
            f"This kernel has {facts.newer}, which came after the call (Linux 5.17): ENOSYS is "
            "what the seccomp filter answers to calls that its profile does not list."
        )
        return _Ruling(Verdict.FILTERED, because, SECCOMP, fixes)
    because = (
        "Either the kernel is older than 5.17, or the seccomp filter answers ENOSYS to calls that "
        "its profile does not list. Binding and interleaving do not need this call."
    )
    return _Ruling(Verdict.UNDECIDED, because, None, (*fixes, remedy.newer_kernel()))


def _rule_refused(facts: Facts, answer: Answer) -> _Ruling:
    """EPERM or EACCES, which the kernel answers to none of the forms that are probed."""
    fixes = _open_filter(facts, answer.name)
    if facts.sandbox:
        because = f"{facts.sandbox} refuses this call; the machine's kernel never sees it."
        by = f"sandbox ({facts.sandbox})"
        return _Ruling(Verdict.FILTERED, because, by, remedy.shared_kernel())
    start = f"No kernel answers {answer.errno_name} to what was asked, whatever the capabilities"
    if facts.seccomp == 0:
        because = f"{start}, and no seccomp filter is in force: another guard refuses it."
        fixes = (remedy.security_module(),)
        return _Ruling(Verdict.FILTERED, because, SECURITY_MODULE, fixes)
    if facts.seccomp is None:
        because = f"{start}: a filter does, of which kind is not known (Seccomp could not be read)."
        return _Ruling(Verdict.FILTERED, because, "seccomp filter or security module", fixes)
    because = f"{start}: the seccomp filter does. {_which_profile(facts, answer.name)}".rstrip()
    return _Ruling(Verdict.FILTERED, because, SECCOMP, fixes)


def _which_profile(facts: Facts, name: str) -> str:
    if facts.looks_like_a_unit:
        return "get_mempolicy passes, as under systemd's SystemCallFilter=~@resources."
    if name in MOVING:
        return "Default container profiles open it for no capability."
    if name == HOME_NODE:
        return "Profiles older than the call (Linux 5.17) do not list it."
    if facts.sys_nice:
        return "CAP_SYS_NICE is in the bounding set: the profile does not list the call for it."
    if facts.sys_nice is False:
        return (
            "Docker's and containerd's default profiles open it for containers with CAP_SYS_NICE, "
            "which the bounding set lacks."
        )
    return ""


def _rule_odd(facts: Facts, answer: Answer) -> _Ruling:
    if answer.errno == 0:
        because = f"It returned {answer.returned}, as no kernel does."
        return _Ruling(Verdict.UNDECIDED, because)
    start = f"No kernel answers {answer.errno_name} to what was asked"
    if facts.filtered:
        fixes = _open_filter(facts, answer.name)
        return _Ruling(Verdict.FILTERED, f"{start}: the seccomp filter does.", SECCOMP, fixes)
    return _Ruling(Verdict.UNDECIDED, f"{start}; who does is not known.")


def _open_filter(facts: Facts, name: str) -> tuple[Fix, ...]:
    """What opens the call ``name`` and, by the same step, the others that are shut."""
    shut = [call for call in CALLS if facts.shut(call)]
    fixes: list[Fix] = []
    if facts.looks_like_a_unit:
        return (*((remedy.unit_bound(),) if name in MOVING else ()), remedy.unit(shut))
    if name in MOVING:
        fixes += remedy.start_bound(policy_works=not facts.shut("set_mempolicy"))
    fixes += remedy.profile(shut)
    if name in PLACING:
        if facts.answers[name].errno in REFUSED:
            fixes += (remedy.newer_engine(),) if facts.sys_nice else remedy.capability()
        fixes.append(remedy.unit(shut))
    return tuple(fixes)
