"""Verdicts of filters as an outlook: will NUMA placement work where this profile is in force?"""

import errno
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from numadoctor.kernel import remedy
from numadoctor.kernel.abi import CALLS, Abi, by_name
from numadoctor.kernel.facts import MOVING, PLACING
from numadoctor.kernel.outlook import headline
from numadoctor.kernel.seccomp.actions import Action, Verdict
from numadoctor.kernel.seccomp.architectures import NATIVE, scmp_name, siblings
from numadoctor.kernel.seccomp.emit import with_architecture, with_rule, without_names
from numadoctor.kernel.seccomp.evaluate import Way, evaluate
from numadoctor.kernel.seccomp.profile import Profile, ProfileError, parse_profile
from numadoctor.kernel.verdict import SECCOMP
from numadoctor.model import Evidence, Fix, Status
from numadoctor.model.calls import CallVerdict, Outlook
from numadoctor.model.calls import Verdict as CallOutcome

_LAUNCHERS: Final = {
    "docker": ("docker", "compose"),
    "containerd": ("docker", "compose"),  # nerdctl takes Docker's options
    "podman": ("podman",),
    "crio": ("kubernetes",),
    "kubernetes": ("kubernetes",),
}


@dataclass(frozen=True)
class Case:
    """A profile and where it is to be used.

    :ivar name: the profile, as people know it: the file's path
    :ivar capabilities: added to the runtime's own
    :ivar dropped: taken from them
    :ivar kernel: the release it is to run on; this machine's if None
    :ivar evidence: what a rule's text is: from its place in ``syscalls``, None for the default
    """

    profile: Profile
    name: str
    runtime: str | Way
    arch: str
    capabilities: tuple[str, ...]
    dropped: tuple[str, ...]
    kernel: str | None
    evidence: Callable[[int | None], Evidence]

    @property
    def engine(self) -> str:
        """Who runs the container, in a word."""
        return self.runtime if isinstance(self.runtime, str) else "containerd"

    def verdict(self, call: str, arch: str | None = None, *more: str) -> Verdict:
        """What becomes of the call, with ``more`` capabilities."""
        return evaluate(
            self.profile,
            call,
            (*self.capabilities, *more),
            self.runtime,
            arch or self.arch,
            dropped=self.dropped,
            kernel=self.kernel,
        )


def of_profile(case: Case) -> Outlook:
    """What the profile comes to, for all six calls."""
    verdicts = {call: case.verdict(call) for call in CALLS}
    fixes = _profile_fixes(case, verdicts)
    calls = call_verdicts(
        verdicts,
        by_name(case.arch),
        lambda call: fixes if call in _closed(verdicts) else (),
        lambda verdict: (case.evidence(verdict.rule),),
    )
    start = f"With {case.name} under {case.engine}"
    first = verdicts[CALLS[0]]
    if first.action is Action.NO_START:
        text = f"{start} no container starts: {first.reason}."
        found: tuple[str, Status, bool | None] = (text, Status.FAIL, False)
    else:
        found = headline(calls, True, start)
    others = {name: {call: case.verdict(call, name) for call in CALLS} for name in _others(case)}
    return Outlook(
        *found,
        None,
        case.arch,
        calls,
        (),
        source="profile",
        others=differing(verdicts, others),
    )


def _others(case: Case) -> tuple[str, ...]:
    return siblings(case.arch)[1:]


def differing(
    own: Mapping[str, Verdict], others: Mapping[str, Mapping[str, Verdict]]
) -> dict[str, dict[str, str]]:
    """The answers for those ABIs that are not answered as the first one is."""
    words = {
        name: {call: verdict.answer for call, verdict in verdicts.items()}
        for name, verdicts in others.items()
    }
    first = {call: verdict.answer for call, verdict in own.items()}
    return {name: answers for name, answers in words.items() if answers != first}


def call_verdicts(
    verdicts: Mapping[str, Verdict],
    abi: Abi,
    fixes: Callable[[str], tuple[Fix, ...]],
    evidence: Callable[[Verdict], tuple[Evidence, ...]],
) -> tuple[CallVerdict, ...]:
    """The filters' verdicts as those on calls.

    :param fixes: by call
    :param evidence: what a verdict was drawn from
    """
    calls = []
    for call, verdict in verdicts.items():
        outcome = _outcome(verdict)
        number = verdict.errno if verdict.action is Action.ERRNO else None
        if verdict.action is Action.TRACE:
            number = errno.ENOSYS
        calls.append(
            CallVerdict(
                name=call,
                number=abi.numbers[call],
                verdict=outcome,
                status=_status(call, outcome),
                answer=verdict.answer,
                errno=errno.errorcode.get(number, str(number)) if number else None,
                blocked_by=None
                if outcome in (CallOutcome.REACHED, CallOutcome.UNDECIDED)
                else SECCOMP,
                because=_because(verdict, outcome),
                evidence=evidence(verdict),
                fixes=fixes(call),
            )
        )
    return tuple(calls)


def _outcome(verdict: Verdict) -> CallOutcome:
    if verdict.unknown or verdict.action is Action.NOTIFY:
        return CallOutcome.UNDECIDED
    if verdict.open:
        return CallOutcome.REACHED
    if verdict.action is Action.ERRNO and verdict.errno == 0:
        return CallOutcome.NO_EFFECT
    return CallOutcome.FILTERED


def _status(call: str, outcome: CallOutcome) -> Status:
    if outcome is CallOutcome.FILTERED:
        # As for calls that were made: pages placed rightly need not be moved.
        return Status.FAIL if call in PLACING else Status.INFO
    return {
        CallOutcome.REACHED: Status.PASS,
        CallOutcome.NO_EFFECT: Status.WARN,
    }.get(outcome, Status.UNKNOWN)


def _because(verdict: Verdict, outcome: CallOutcome) -> str:
    text = f"{verdict.reason[:1].upper()}{verdict.reason[1:]}."
    if outcome is CallOutcome.NO_EFFECT:
        return f"{text} Errno 0 is success without a call."
    if verdict.action is Action.TRACE:
        return f"{text} A tracer decides; without one the answer is ENOSYS."
    if verdict.action is Action.NOTIFY:
        return f"{text} A supervisor in user space decides."
    return text


def _closed(verdicts: Mapping[str, Verdict]) -> list[str]:
    return [call for call, verdict in verdicts.items() if not verdict.open]


def _profile_fixes(case: Case, verdicts: Mapping[str, Verdict]) -> tuple[Fix, ...]:
    """A capability where the profile has a rule for it, and the rule that opens what is shut."""
    shut = _closed(verdicts)
    if not shut:
        return ()
    fixes: list[Fix] = []
    if any(call in MOVING for call in shut):
        fixes += remedy.start_bound(policy_works=verdicts["set_mempolicy"].open)
    fixes.append(
        Fix(
            "any",
            f"numadoctor syscalls --seccomp-profile {_options(case)} --emit-profile\n"
            f"{_how_opened(case, shut)}",
            needs_restart=True,
            persists=True,
        )
    )
    if any(case.verdict(call, None, "SYS_NICE").open for call in shut):
        fixes += remedy.capability()
    launchers = ("any", "numactl", *_LAUNCHERS[case.engine])
    return tuple(fix for fix in fixes if fix.launcher in launchers)


def _options(case: Case) -> str:
    words = [case.name]
    words += ["--runtime", case.engine] if case.engine != "docker" else []
    words += [word for name in case.capabilities for word in ("--cap", name)]
    words += [word for name in case.dropped for word in ("--cap-drop", name)]
    return shlex.join(words)


def _how_opened(case: Case, shut: list[str]) -> str:
    if case.profile.default is Action.ALLOW:
        return f"# prints it without {', '.join(shut)} in the rules that refuse them"
    return f'# prints it with this first in "syscalls":\n{remedy.profile_rule(shut)}'


def shut_calls(case: Case) -> list[str]:
    """The calls that do not surely reach the kernel."""
    return [call for call in CALLS if not case.verdict(call).open]


def opened(text: str, case: Case) -> str:
    """The profile's text with the smallest change after which all six calls pass.

    :param text: what ``case.profile`` was read from
    :raises ProfileError: no change to the list of calls opens them
    """
    shut, steps = shut_calls(case), case.profile.steps
    changed = with_rule(text, shut, steps)
    if case.profile.default is Action.ALLOW:
        # A rule that says what the default action says counts for nothing.
        closing = [
            rule.place
            for rule in case.profile.rules
            if rule.action is not Action.ALLOW and {*rule.names, rule.old_name} & set(shut)
        ]
        changed = without_names(text, shut, closing, steps)
    left = shut_calls(replace(case, profile=parse_profile(changed.encode())))
    if left:
        own, native = (scmp_name(by_name(name)) for name in (case.arch, NATIVE[case.arch]))
        changed = with_architecture(changed, own, native, steps)
        left = shut_calls(replace(case, profile=parse_profile(changed.encode())))
    if left:
        reason = case.verdict(left[0]).reason
        raise ProfileError(f"no rule opens {', '.join(left)}: {reason}")
    return changed
