"""What stands before the NUMA calls of a running process, seen from outside.

Best are its filters themselves (numadoctor.kernel.seccomp.tracing), next what
its runtime was told (config.json), last what /proc/PID/status shows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from numadoctor.kernel.abi import CALLS, Abi, UnknownAbi, by_name, current_abi, of_elf
from numadoctor.kernel.facts import Runtime
from numadoctor.kernel.outlook import Host, headline, kernel_has_numa
from numadoctor.kernel.seccomp.actions import Action, Verdict
from numadoctor.kernel.seccomp.architectures import siblings
from numadoctor.kernel.seccomp.containers import Config
from numadoctor.kernel.seccomp.evaluate import Circumstances, Way, answer, bounding_set
from numadoctor.kernel.seccomp.outlook import call_verdicts, differing
from numadoctor.kernel.seccomp.profile import Profile
from numadoctor.kernel.seccomp.stack import judge
from numadoctor.kernel.seccomp.tracing import Reading
from numadoctor.kernel.verdict import judge as judge_probe
from numadoctor.model import Evidence, Fix, Status
from numadoctor.model.calls import CallVerdict, Outlook

_SHOWN: Final = ("Seccomp", "Seccomp_filters", "NoNewPrivs", "CapBnd", "Mems_allowed_list")
_STRICT, _FILTERED = 1, 2


class ProcStatus(Protocol):
    """What is needed of /proc/PID/status; None for what it does not say."""

    @property
    def tgid(self) -> int | None: ...
    @property
    def seccomp(self) -> int | None: ...
    @property
    def seccomp_filters(self) -> int | None: ...
    @property
    def cap_bnd(self) -> int | None: ...


@dataclass(frozen=True)
class Running:
    """A process, and what could be found out about what stands before its calls.

    :ivar pid: its id, or that of one of its threads: each has filters of its own
    :ivar abi: how it calls the kernel
    :ivar status: of /proc/PID/status
    :ivar reading: its filters, where they were read
    :ivar config: what its runtime was told, where that was found
    :ivar profile: the profile in it
    :ivar unread: why there is no reading, in words
    :ivar runtimes: what it was started by or runs inside of
    """

    pid: int
    abi: Abi
    status: ProcStatus
    reading: Reading | None = None
    config: Config | None = None
    profile: Profile | None = None
    unread: str = ""
    runtimes: tuple[Runtime, ...] = ()

    @property
    def told(self) -> str:
        """What it is, for a sentence."""
        process = self.status.tgid
        if process in (None, self.pid):
            return f"process {self.pid}"
        return f"thread {self.pid} of process {process}"


def abi_of(pid: int) -> Abi:
    """The ABI of a live process, by its program; that of this one where it may not be read."""
    try:
        with open(f"/proc/{pid}/exe", "rb") as program:
            return of_elf(program.read(64))
    except (OSError, UnknownAbi):
        return current_abi()


def examine(
    host: Host,
    process: Running,
    fitting: Callable[[Iterable[Fix]], tuple[Fix, ...]] = tuple,
) -> Outlook:
    """The outlook of the process.

    :param fitting: picks the fixes that can be applied to a process so started
    """
    source, verdicts = _verdicts(process, process.abi)
    numa = kernel_has_numa(host)
    proc = f"/proc/{process.pid}"
    seen = (host.evidence(f"{proc}/status", *_SHOWN), *_evidence(process, source))
    fixes = _fixes(process, verdicts, numa)
    calls = call_verdicts(
        verdicts, process.abi, lambda call: fitting(fixes.get(call, ())), lambda _: seen
    )
    if numa is False:
        calls = tuple(call._replace(status=Status.SKIP, fixes=()) for call in calls)
    others = {}
    if source in ("filters", "config"):
        others = {
            name: _verdicts(process, by_name(name))[1] for name in siblings(process.abi.name)[1:]
        }
    stopped = process.reading.seconds if process.reading else None
    return Outlook(
        *headline(calls, numa, f"In {process.told}"),
        numa,
        process.abi.name,
        calls,
        seen,
        source=source,
        others=differing(verdicts, others),
        stopped=stopped,
    )


def _evidence(process: Running, source: str) -> tuple[Evidence, ...]:
    if source == "filters" and process.reading:
        count = len(process.reading.filters)
        sizes = ", ".join(str(len(program)) for program in process.reading.filters)
        what = (
            "instructions of its one filter" if count == 1 else f"instructions of {count} filters"
        )
        milliseconds = f"{1000 * process.reading.seconds:.2f}"
        return (
            Evidence(
                f"PTRACE_SECCOMP_GET_FILTER of thread {process.pid}",
                f"{sizes} {what}; it stood still for {milliseconds} ms",
            ),
        )
    told = []
    if process.unread:
        told.append(Evidence("its filters", f"not read: {process.unread}"))
    if source == "config" and process.config:
        maker = process.config.runtime or "the runtime"
        told.append(Evidence(process.config.path, f"the profile that {maker} was given"))
    return tuple(told)


def _verdicts(process: Running, abi: Abi) -> tuple[str, dict[str, Verdict]]:
    """Where the answers come from, and the answers."""
    status = process.status
    if process.reading is not None:
        filters = process.reading.filters
        return "filters", {call: judge(filters, call, abi) for call in CALLS}
    if status.seccomp == 0:
        return "status", _all(Action.ALLOW, "no seccomp filter is in force in the process")
    if status.seccomp == _STRICT:
        reason = "strict mode ends the process at any call but read, write and exit"
        return "status", _all(Action.KILL_THREAD, reason)
    if process.profile is not None and status.seccomp == _FILTERED:
        return "config", {call: _by_config(process, call, abi) for call in CALLS}
    if status.seccomp is None:
        return "status", _all(None, "whether a filter is in force could not be read")
    count = status.seccomp_filters
    filters_told = "a filter is" if count in (None, 1) else f"{count} filters are"
    reason = (
        f"{filters_told} in force, and what it does to the call is not to be seen from here: "
        "--stop-thread reads it (root of the host)"
    )
    return "status", _all(None, reason)


def _all(action: Action | None, reason: str) -> dict[str, Verdict]:
    return {call: Verdict(action, None, reason) for call in CALLS}


def _by_config(process: Running, call: str, abi: Abi) -> Verdict:
    """What the container's own profile does, and what further filters may add."""
    profile, config = process.profile, process.config
    assert profile is not None
    assert config is not None
    makers = (config.runtime,) if config.runtime else ("crun", "runc")
    verdicts = []
    for maker in makers:
        way = Way("oci", maker)
        found = Circumstances(bounding_set(way, (), (), profile.capabilities), abi, None, None)
        verdicts.append(answer(profile, call, way, found))
    verdict = verdicts[0]
    for other in verdicts[1:]:
        if not verdict.same_as(other):
            reason = f"{verdict.answer} if crun made the filter, {other.answer} if runc did"
            verdict = Verdict(None, None, reason)
    count = process.status.seccomp_filters or 1  # the mode says that there is one
    if verdict.open and count > (0 if profile.empty else 1):
        reason = f"the runtime's profile lets it pass, and the process has filters ({count})"
        return Verdict(None, None, f"{reason} of its own: --stop-thread reads them")
    return verdict


def _fixes(
    process: Running, verdicts: dict[str, Verdict], numa: bool | None
) -> dict[str, tuple[Fix, ...]]:
    """What helps against these answers, as if the process had asked itself."""
    records = [_record(process.abi, call, verdict) for call, verdict in verdicts.items()]
    calls: tuple[CallVerdict, ...] = judge_probe(
        {"abi": process.abi.name, "calls": records},
        process.status,
        numa=numa,
        # The answer is a filter's: the kernel need not be asked whether it has the call.
        features={"MADV_COLLAPSE": {"available": True}},
        runtimes=process.runtimes,
    )
    return {call.name: call.fixes for call in calls if not verdicts[call.name].open}


def _record(abi: Abi, call: str, verdict: Verdict) -> dict[str, Any]:
    record: dict[str, Any] = {"name": call, "number": abi.numbers[call]}
    if verdict.unknown or verdict.action is Action.NOTIFY:
        return {**record, "unprobed": verdict.reason}
    if verdict.open:
        return {**record, "returned": 0, "errno": 0}
    if verdict.action in (Action.ERRNO, Action.TRACE):
        # Success without a call needs what a refusal needs.
        return {**record, "returned": -1, "errno": verdict.errno or 1}
    return {**record, "returned": -1, "signal": 31}
