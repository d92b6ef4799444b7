"""The six verdicts in one sentence: will NUMA placement work here?"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from numadoctor.kernel.facts import (
    PLACING,
    ProcStatus,
    Runtime,
    has_sys_nice,
    home_node_is_missing,
)
from numadoctor.kernel.verdict import OLD_KERNEL, SECCOMP, judge
from numadoctor.model import Evidence, Fix, Status, Undecided
from numadoctor.model.calls import CallVerdict, Outlook, Verdict

_NODES = "/sys/devices/system/node"
_PROC = "/proc/self"
_YES_OR_NO = {True: "yes", False: "no", None: "not known"}
_SHOWN = ("Seccomp", "NoNewPrivs", "CapBnd", "Mems_allowed_list")


class Host(Protocol):
    """What is needed of numadoctor.host.Host."""

    def fact(self, name: str) -> Any: ...
    def has(self, path: str) -> bool: ...
    def list(self, path: str) -> tuple[str, ...]: ...
    def text(self, path: str) -> str: ...
    def status(self, proc: str) -> ProcStatus: ...
    def evidence(self, path: str, *containing: str) -> Evidence: ...


def examine(
    host: Host,
    runtimes: Iterable[Runtime] = (),
    fitting: Callable[[Iterable[Fix]], tuple[Fix, ...]] = tuple,
) -> Outlook:
    """The outlook of the process that probed: this one, or the one of a recording.

    :param runtimes: what it runs inside of (numadoctor.host.runtime)
    :param fitting: picks the fixes that can be applied to a process so started
    :raises Missing: a captured folder holds no probe of the calls
    """
    probe = host.fact("syscalls")
    runtimes = tuple(runtimes)
    numa = kernel_has_numa(host)
    if numa is False and any(runtime.kind == "sandbox" for runtime in runtimes):
        # gVisor's /sys has no node directory: that says nothing of the machine.
        numa = None
    try:
        status: ProcStatus | None = host.status(_PROC)
    except Undecided:
        status = None
    evidence = (
        host.evidence(f"{_PROC}/status", *_SHOWN),
        Evidence("CAP_SYS_NICE in the bounding set", _YES_OR_NO[has_sys_nice(status)]),
        _node_evidence(host, numa),
    )
    calls = judge(
        probe,
        status,
        numa=numa,
        banner=_text(host, "/proc/version"),
        effect=_fact(host, "effect"),
        features=_fact(host, "features") if home_node_is_missing(probe) else None,
        runtimes=runtimes,
        evidence=evidence,
    )
    calls = tuple(call._replace(fixes=fitting(call.fixes)) for call in calls)
    abi = probe.get("abi") if isinstance(probe, dict) else None
    contained = any(runtime.kind == "container" for runtime in runtimes)
    return Outlook(
        *headline(calls, numa, "In this container" if contained else "Here"),
        numa,
        abi if isinstance(abi, str) else None,
        calls,
        evidence,
    )


def kernel_has_numa(host: Host) -> bool | None:
    """Whether the kernel is built with CONFIG_NUMA; None where that cannot be told.

    A container may hide the node directory; numa_maps in /proc/PID is there
    with CONFIG_NUMA only (fs/proc/base.c).
    """
    try:
        if host.has(_NODES) or "numa_maps" in host.list(_PROC):
            return True
        return False if host.has("/sys/devices/system") else None
    except Undecided:
        return None


def _node_evidence(host: Host, numa: bool | None) -> Evidence:
    try:
        if host.has(_NODES):
            return Evidence(_NODES, "present")
    except Undecided as error:
        return Evidence(_NODES, error.reason)
    if numa:
        return Evidence(f"{_PROC}/numa_maps", f"present, while {_NODES} is hidden")
    return Evidence(_NODES, "not present")


def _fact(host: Host, name: str) -> Any:
    try:
        return host.fact(name)
    except Undecided:
        return None


def _text(host: Host, path: str) -> str:
    try:
        return host.text(path)
    except Undecided:
        return ""


def headline(
    calls: tuple[CallVerdict, ...], numa: bool | None, start: str
) -> tuple[str, Status, bool | None]:
    """One sentence, the status it has, and whether placement works.

    :param start: where the calls are made: ``Here``
    """
    setting = [call for call in calls if call.name in ("mbind", "set_mempolicy")]
    placing = [call for call in calls if call.name in PLACING]
    shut = [call for call in calls if call.verdict in (Verdict.FILTERED, Verdict.ABSENT)]
    undecided = [call for call in calls if call.verdict is Verdict.UNDECIDED]
    if numa is False:
        return "This kernel has no NUMA support: there is nothing to place.", Status.SKIP, None
    if any(call.status is Status.FAIL for call in placing):
        works = not all(call.status is Status.FAIL for call in setting)
        how = "works in part only" if works else "does not work"
        text = f"{start} NUMA placement {how}: {_refusers(shut)} {len(shut)} of {len(calls)} calls."
        return text, Status.FAIL, False
    if idle := [call for call in placing if call.verdict is Verdict.NO_EFFECT]:
        text = f"{start} NUMA placement has no effect: a {idle[0].blocked_by} accepts the calls"
        return f"{text} and places nothing.", Status.WARN, False
    if any(call in undecided for call in placing):
        where = start[0].lower() + start[1:]
        text = f"Whether NUMA placement works {where} is not decided: {_names(undecided)}."
        return text, Status.UNKNOWN, None
    if not shut and not undecided:
        text = f"{start} NUMA placement works: all six calls reach the kernel."
        return text, Status.PASS, True
    rest = [
        f"{_refuses(by)} {_names(call for call in shut if call.blocked_by == by)}"
        for by in dict.fromkeys(call.blocked_by for call in shut)
    ]
    rest += [f"not decided: {_names(undecided)}"] if undecided else []
    status = Status.UNKNOWN if undecided else Status.INFO
    return f"{start} NUMA placement works; {'; '.join(rest)}.", status, True


def _refusers(shut: list[CallVerdict]) -> str:
    who = list(dict.fromkeys(call.blocked_by for call in shut))
    return _refuses(who[0]) if len(who) == 1 else "refused or missing are"


def _refuses(blocked_by: str | None) -> str:
    if blocked_by == SECCOMP:
        return "seccomp refuses"
    if blocked_by == OLD_KERNEL:
        return "the kernel lacks"
    if blocked_by and blocked_by.startswith("emulation"):
        return "user-mode emulation lacks"
    return f"a {blocked_by} refuses"


def _names(calls: Iterable[CallVerdict]) -> str:
    return ", ".join(call.name for call in calls)
