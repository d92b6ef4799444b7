"""Which NUMA calls the files leave open to what they start, and who closes the others."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.kernel import remedy
from numadoctor.kernel.seccomp import Verdict, default_profile_answer, evaluate
from numadoctor.lint.documents import Document
from numadoctor.lint.engines import Need, needs
from numadoctor.lint.filters import KERNEL, Filter, filter_of
from numadoctor.lint.nodes import Word
from numadoctor.lint.workloads import Workload
from numadoctor.model import (
    Finding,
    Fix,
    Severity,
    Undecided,
    fail,
    info,
    passed,
    unknown,
    warn,
)
from numadoctor.model.words import listed

from ._deployment import (
    CONTAINERS,
    add_capability,
    answered,
    edit,
    for_each,
    in_file,
    seen,
    undecided,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

_PLACING = ("mbind", "set_mempolicy", "get_mempolicy")
_MOVING = ("move_pages", "migrate_pages")
_SANDBOXES = ("gvisor", "runsc")


@check(
    "D002",
    name="calls-of-the-engine",
    needs=CONTAINERS,
    scope=Scope.FILE,
    severity=Severity.HIGH,
)
def calls_of_the_engine(host: "Host | None", document: Document) -> Iterator[Finding]:
    """An option needs NUMA calls that the container's seccomp profile refuses.

    Why it matters
        numactl, vLLM's --numa-bind, SGLang's --numa-node and LightLLM's interleaved pool call
        set_mempolicy or mbind. Docker's and containerd's default profiles answer EPERM to
        them unless the container has CAP_SYS_NICE, and older ones always; podman's and
        CRI-O's let them pass; Kubernetes applies no profile unless asked. The kernel itself
        never refuses them. numactl then ends with "No NUMA support available", engines go on
        without a policy, or stop.

    When it is harmless
        Where the option is a leftover: without it the calls are not needed. move_pages and
        migrate_pages stay closed in every default profile; a process that is started bound
        needs neither.

    Fix
        The smallest is a profile of one's own that lists the calls and grants no capability;
        or CAP_SYS_NICE, where the default profile lists the calls for it (Docker 18.09,
        containerd 1.6.16 and later). Name the runtime with --runtime docker=20.10 to be
        judged by its version.

    Source
        profiles/seccomp/default.json of moby, contrib/seccomp/seccomp_default.go of
        containerd, pkg/seccomp/seccomp.json of containers/common; per option: the table in
        numadoctor/lint/engines.py
    """

    def judge(workload: Workload) -> Iterator[Finding]:
        wanted = needs(workload)
        if workload.container and wanted:
            yield from _judge(workload, wanted, document)

    yield from for_each(document, judge)


def _judge(workload: Workload, wanted: list[Need], document: Document) -> Iterator[Finding]:
    first = wanted[0].word
    runtime = workload.runtime
    if runtime and any(name in runtime.text.lower() for name in _SANDBOXES):
        yield warn(
            f"{_options(wanted)}: gVisor accepts memory policies and does nothing",
            subject=workload.name,
            cause="Its kernel shows one node; where pages are is decided outside of the sandbox.",
            evidence=seen(runtime, *(need.word for need in wanted)),
            fixes=[f for f in remedy.shared_kernel() if f.launcher in (workload.launcher, "any")]
            or [edit(workload, "# a runtime whose containers share the machine's kernel")],
            location=runtime.location,
        )
        return
    filter = filter_of(workload, document.files)
    calls = list(dict.fromkeys(call for need in wanted for call in need.trigger.calls))
    answers = {call: filter.answer(workload, call) for call in calls}
    refused = {call: answer for call, answer in answers.items() if answer.refused}
    open_ended = {call: answer for call, answer in answers.items() if not answer.open}
    if refused:
        yield _told(workload, wanted, filter, refused)
    elif open_ended:
        call, answer = next(iter(open_ended.items()))
        yield unknown(
            f"{_options_need(wanted)} {call}, and {filter.name} may refuse it",
            subject=workload.name,
            cause=f"{answer.reason[0].upper()}{answer.reason[1:]}.",
            evidence=seen(filter.at, first),
            fixes=_fixes(workload, filter, list(open_ended), document),
            location=first.location,
        )
    else:
        yield passed(
            f"{_options_need(wanted)} {listed(calls)}: open ({filter.name})",
            subject=workload.name,
            cause=_closed_all_the_same(workload, filter),
            evidence=seen(first, filter.at),
            location=first.location,
        )


def _closed_all_the_same(workload: Workload, filter: Filter) -> str:
    closed = [call for call in _MOVING if filter.answer(workload, call).refused]
    if not closed:
        return ""
    verb = "stay" if closed[1:] else "stays"
    return f"{listed(closed)} {verb} closed; a process that is started bound needs none of it."


def _options(wanted: list[Need]) -> str:
    return listed([need.text for need in wanted])


def _options_need(wanted: list[Need]) -> str:
    return f"{_options(wanted)} need{'' if wanted[1:] else 's'}"


def _told(
    workload: Workload, wanted: list[Need], filter: Filter, refused: dict[str, Verdict]
) -> Finding:
    first = wanted[0]
    answer = next(iter(refused.values()))
    starts = first.trigger.kind == "program"
    what = (
        "the container does not start" if starts else f"{first.trigger.who} goes without, or ends"
    )
    told = fail if starts else warn
    looks = ""
    if answer.answer == "ENOSYS":
        looks = " ENOSYS looks like a kernel without NUMA and is the filter's word."
    return told(
        f"{_options_need(wanted)} {listed(refused)}, which will be {answered(answer)} "
        f"by {filter.name}: {what}",
        subject=workload.name,
        cause=f"{answer.reason[0].upper()}{answer.reason[1:]}.{looks} The kernel itself refuses "
        "these calls to nobody.",
        evidence=seen(*(need.word for need in wanted), filter.at if filter.chosen else None),
        fixes=_fixes(workload, filter, list(refused)),
        location=first.word.location,
    )


def _fixes(
    workload: Workload, filter: Filter, calls: list[str], document: Document | None = None
) -> list[Fix]:
    """A profile that opens the calls; a capability where that alone does; a newer engine."""
    names = {"quadlet": "podman"}
    launcher = names.get(workload.launcher, workload.launcher)
    rule = remedy.profile_rule(calls)
    if filter.profile is not None:
        fixes = [in_file(filter.at, f"{rule}", f'first in "syscalls" of {filter.name}')]
    else:
        fixes = [fix for fix in remedy.profile(calls) if fix.launcher == launcher]
    if _opened_by_nice(filter, calls):
        fixes.append(add_capability(workload))
    elif filter.profile is None and workload.has("SYS_NICE") and set(calls) <= set(_PLACING):
        fixes.append(remedy.newer_engine())
    return fixes


def _opened_by_nice(filter: Filter, calls: list[str]) -> bool:
    if filter.profile is None:
        answers = [
            default_profile_answer(filter.runtime, filter.version, call, ["SYS_NICE"])
            for call in calls
        ]
    else:
        answers = [
            evaluate(filter.profile, call, ["SYS_NICE"], filter.runtime, kernel=KERNEL)
            for call in calls
        ]
    return all(answer.open for answer in answers)


# Groups of systemd-analyze syscall-filter that hold one of the six calls.
_RESOURCES = frozenset(
    ("mbind", "set_mempolicy", "set_mempolicy_home_node", "move_pages", "migrate_pages")
)
_ALL_SIX = _RESOURCES | {"get_mempolicy"}
_GROUPS = {
    "@resources": _RESOURCES,
    "@system-service": _ALL_SIX,
    "@known": _ALL_SIX,
}


# Whose processes come from the unit's own by fork: podman has no daemon, Docker has.
_INHERITING = ("systemd", "podman", "quadlet")


@check(
    "D003",
    name="unit-call-filter",
    needs=("kind systemd",),
    scope=Scope.FILE,
    severity=Severity.HIGH,
)
def unit_call_filter(host: "Host | None", document: Document) -> Iterator[Finding]:
    """A unit's SystemCallFilter= closes NUMA calls to the process.

    Why it matters
        `SystemCallFilter=~@resources` is part of many hardening guides. The group holds
        mbind, set_mempolicy, set_mempolicy_home_node, move_pages and migrate_pages, and not
        get_mempolicy: a program that tries get_mempolicy first (numactl and libnuma do)
        believes that NUMA works, and is refused later. Without SystemCallErrorNumber= the
        process is killed by SIGSYS.

    When it is harmless
        NUMAPolicy= and NUMAMask= are applied by systemd before the filter: a process that
        sets no policy of its own needs none of the calls. Containers that docker run starts
        are children of Docker's daemon, and not under the filter; podman's are.

    Fix
        Allow the calls again, below what is there:

            [Service]
            SystemCallFilter=mbind set_mempolicy get_mempolicy

    Source
        systemd.exec(5), SystemCallFilter= and NUMAPolicy=; src/shared/seccomp-util.c of
        systemd (groups)
    """
    lines = document.content.values("SystemCallFilter")
    if not lines:
        return
    subject = f"unit {document.content.name}"
    number = document.content.last("SystemCallErrorNumber")
    try:
        answers = _of_unit([line.value for line in lines], number.value if number else None)
    except Undecided as error:
        yield undecided(error, subject, lines[-1].value.location)
        return
    closed = {call: said for call, said in answers.items() if said}
    wanted = [n for w in document.workloads if w.launcher in _INHERITING for n in needs(w)]
    evidence = seen(*(line.value for line in lines), *(need.word for need in wanted))
    missed = [c for need in wanted for c in need.trigger.calls if c in closed]
    if not closed:
        yield passed(
            "the unit's filter leaves all six NUMA calls open",
            subject=subject,
            evidence=evidence,
            location=lines[-1].value.location,
        )
        return
    closing = [call for call in _PLACING if call in closed]
    opened = [call for call in _PLACING if call not in closed]
    but = f"; {listed(opened)} still work{'s' if len(opened) == 1 else ''}" if opened else ""
    if not closing:
        yield passed(
            f"mbind, set_mempolicy and get_mempolicy are open; {listed(closed)} closed",
            subject=subject,
            evidence=evidence,
            location=lines[-1].value.location,
        )
        return
    said = next(iter(closed.values()))
    message = f"{listed(closed)} will be {said} by the unit's SystemCallFilter{but}"
    calls = list(dict.fromkeys(missed)) or closing
    told = fail if missed else info
    yield told(
        message,
        subject=subject,
        cause=f"{_options_need(wanted)} {listed(dict.fromkeys(missed))}."
        if missed
        else "Nothing in the unit needs them that is known here; NUMAPolicy= works all the same.",
        evidence=evidence,
        fixes=[
            Fix(
                "systemd",
                f"[Service]\nSystemCallFilter={' '.join(calls)}\n"
                f"# below line {lines[-1].value.line}",
                needs_root=True,
                needs_restart=True,
                persists=True,
            )
        ],
        location=lines[-1].value.location,
    )


def _of_unit(lines: list[Word], number: Word | None) -> dict[str, str]:
    """Each of the six calls, and what it is answered; empty for those that pass.

    The first line says whether the list allows or denies; the others add to it or
    take from it (systemd.exec(5)).
    """
    refusal = number.settled().strip() if number else "SIGSYS"
    if refusal.lower() == "kill":
        refusal = "SIGSYS"
    denies = lines[0].settled().startswith("~")
    listed_calls: dict[str, str] = {}
    for line in lines:
        text = line.settled()
        removes = text.startswith("~") != denies
        for call, said in _named(text.removeprefix("~").split(), refusal):
            if removes:
                listed_calls.pop(call, None)
            else:
                listed_calls[call] = said
    if denies:
        return {call: listed_calls.get(call, "") for call in sorted(_ALL_SIX)}
    return {call: "" if call in listed_calls else refusal for call in sorted(_ALL_SIX)}


def _named(words: Iterable[str], refusal: str) -> Iterator[tuple[str, str]]:
    for word in words:
        name, _, said = word.partition(":")
        for call in _GROUPS.get(name, frozenset((name,)) & _ALL_SIX):
            yield call, (said or refusal).upper() if said != "kill" else "SIGSYS"
