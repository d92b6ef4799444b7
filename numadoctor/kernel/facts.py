"""What is known about the six calls, gathered and checked before it is judged.

Probes may come from a recording, which others wrote: whatever is missing or
malformed in one counts as not known.
"""

import errno
import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from numadoctor.kernel.abi import CALLS

PLACING: Final = ("mbind", "set_mempolicy", "get_mempolicy")
"""The calls without which memory cannot be placed, or numactl does not start."""

MOVING: Final = ("move_pages", "migrate_pages")
HOME_NODE: Final = "set_mempolicy_home_node"

REFUSED: Final = (errno.EPERM, errno.EACCES)
_REACHED: Final = (0, errno.EINVAL, errno.EFAULT)
_CAP_SYS_NICE: Final = 23
# gVisor's own build date, which /proc/version shows whatever release it claims.
_GVISOR: Final = re.compile(r"gvisor|Sun Jan 10 15:06:54 PST 2016", re.IGNORECASE)
_NEWER_THAN_HOME_NODE: Final = ("MPOL_WEIGHTED_INTERLEAVE", "MADV_COLLAPSE")  # 6.9, 6.1
_OLDER_THAN_HOME_NODE: Final = ("MPOL_PREFERRED_MANY", "MADV_POPULATE_WRITE")  # 5.15, 5.14

ANY_EMULATOR: Final = "user-mode emulation"
"""The emulator's name where its answers alone give it away."""


class ProcStatus(Protocol):
    """What is needed of /proc/PID/status; None for what it does not say."""

    @property
    def seccomp(self) -> int | None: ...
    @property
    def cap_bnd(self) -> int | None: ...


class Runtime(Protocol):
    """Something that the process was started by or runs inside of."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


class Answer(NamedTuple):
    """What one call gave.

    :ivar number: its system-call number, or None
    :ivar returned: its result, None when there was none
    :ivar errno: 0 for success, None when there was no answer
    :ivar signal: the signal that the call ended the caller with, or None
    :ivar unprobed: why it could not be asked, or None
    """

    name: str
    number: int | None = None
    returned: int | None = None
    errno: int | None = None
    signal: int | None = None
    unprobed: str | None = None

    @property
    def errno_name(self) -> str | None:
        """``EPERM``; None for success and where there was no answer."""
        return errno.errorcode.get(self.errno, str(self.errno)) if self.errno else None

    @property
    def word(self) -> str:
        """The whole answer in a word: ``0``, ``EPERM``, ``SIGSYS``, ``none``."""
        if self.signal is not None:
            return _signal_name(self.signal)
        if self.unprobed is not None:
            return "none"
        return self.errno_name or str(self.returned)

    @property
    def reached(self) -> bool:
        """Whether the kernel, or something that speaks for it, took the call."""
        return self.errno in _REACHED and self.returned in (0, -1)


class Facts(NamedTuple):
    """All that a verdict on one call is drawn from.

    :ivar seccomp: 0 no filter, 1 strict, 2 filter, None unknown
    :ivar sys_nice: whether CAP_SYS_NICE is in the bounding set
    :ivar numa: whether the kernel has NUMA at all
    :ivar sandbox: the name of a kernel in user space that answers, or empty
    :ivar emulator: the name of an emulator that answers, or empty
    :ivar landed: by call, pairs of the node asked for and the node of the page
    :ivar refused_in_use: calls that pass when empty and are refused when meant,
        with the errno (0 for SIGSYS)
    :ivar newer: a feature this kernel has that came after set_mempolicy_home_node
    :ivar older: a feature it lacks that came before
    :ivar home_node_missing: the kernel said so without a filter in between
    """

    answers: Mapping[str, Answer]
    seccomp: int | None
    sys_nice: bool | None
    numa: bool | None
    sandbox: str
    emulator: str
    landed: Mapping[str, tuple[tuple[int, int], ...]]
    refused_in_use: Mapping[str, int]
    newer: str
    older: str
    home_node_missing: bool

    @property
    def filtered(self) -> bool:
        """Whether a seccomp filter is in force."""
        return self.seccomp in (1, 2)

    @property
    def all_missing(self) -> bool:
        """Whether all six are answered ENOSYS."""
        return _all_missing(self.answers)

    def shut(self, name: str) -> bool:
        """Whether something refuses (or may refuse) that call."""
        answer = self.answers[name]
        return not answer.unprobed and (not answer.reached or name in self.refused_in_use)

    @property
    def looks_like_a_unit(self) -> bool:
        """As under systemd's ``~@resources``: set and mbind are in that group, get is not."""
        return not self.shut("get_mempolicy") and self.shut("mbind") and self.shut("set_mempolicy")


def gather(
    probe: Any,
    status: ProcStatus | None,
    numa: bool | None,
    banner: str,
    effect: Any,
    features: Any,
    runtimes: Iterable[Runtime],
) -> Facts:
    """The facts; parameters as in numadoctor.kernel.verdict.judge."""
    answers = _answers(probe)
    seccomp = status.seccomp if status else None
    names = {runtime.kind: runtime.name for runtime in runtimes}
    sandbox = names.get("sandbox", "gVisor" if _GVISOR.search(banner) else "")
    emulator = names.get("emulation", "")
    if numa and seccomp == 0 and _all_missing(answers) and not sandbox and not emulator:
        # A kernel with NUMA has five of the six at least, and nothing filters them.
        emulator = ANY_EMULATOR
    if numa is None and not sandbox and any(answers[name].reached for name in PLACING):
        numa = True
    return Facts(
        answers=answers,
        seccomp=seccomp,
        sys_nice=has_sys_nice(status),
        numa=numa,
        sandbox=sandbox,
        emulator=emulator,
        landed=_landed(effect),
        refused_in_use=_refused_in_use(effect),
        newer=_first(features, _NEWER_THAN_HOME_NODE, True),
        older=_first(features, _OLDER_THAN_HOME_NODE, False),
        home_node_missing=bool(_first(features, (HOME_NODE,), False)),
    )


def home_node_is_missing(probe: Any) -> bool:
    """Whether set_mempolicy_home_node is answered ENOSYS: what the kernel has else decides why."""
    return _answers(probe)[HOME_NODE].errno == errno.ENOSYS


def has_sys_nice(status: ProcStatus | None) -> bool | None:
    """Whether CAP_SYS_NICE is in the bounding set; None where that is not known."""
    if status is None or status.cap_bnd is None:
        return None
    return bool(status.cap_bnd >> _CAP_SYS_NICE & 1)


def _all_missing(answers: Mapping[str, Answer]) -> bool:
    return {answer.errno for answer in answers.values()} == {errno.ENOSYS}


def _answers(probe: Any) -> dict[str, Answer]:
    answers = {
        name: Answer(name, unprobed="the recorded probe does not hold this call") for name in CALLS
    }
    for record in _records(probe, "calls"):
        # CALLS is searched, not a dictionary: the name may be unhashable.
        if record.get("name") in CALLS:
            answers[record["name"]] = _answer(record)
    return answers


def _records(data: Any, key: str) -> list[dict[str, Any]]:
    records = data.get(key) if isinstance(data, dict) else None
    return [r for r in records if isinstance(r, dict)] if isinstance(records, list) else []


def _answer(record: dict[str, Any]) -> Answer:
    number, returned, failed, ended = (
        _integer(record.get(key)) for key in ("number", "returned", "errno", "signal")
    )
    unprobed = record.get("unprobed")
    if unprobed is not None:
        unprobed = str(unprobed)[:200]
    elif ended is None and (failed is None or returned is None):
        unprobed = "the recorded answer is not understood"
    return Answer(record["name"], number, returned, failed, ended, unprobed)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _landed(effect: Any) -> dict[str, tuple[tuple[int, int], ...]]:
    landed: dict[str, tuple[tuple[int, int], ...]] = {}
    for page in _records(effect, "pages"):
        call, asked, found = page.get("call"), _integer(page.get("node")), page.get("observed")
        if call in PLACING and asked is not None and (found := _integer(found)) is not None:
            landed[call] = (*landed.get(call, ()), (asked, found))
    return landed


def _refused_in_use(effect: Any) -> dict[str, int]:
    """Calls that every real request was refused by something other than the kernel."""
    requests: dict[str, list[int | None]] = {}
    for page in _records(effect, "pages"):
        if page.get("call") in PLACING:
            killed = page.get("signal") == signal.SIGSYS
            number = 0 if killed else _integer(page.get("errno"))
            requests.setdefault(page["call"], []).append(number)
    foreign = (0, errno.ENOSYS, *REFUSED)
    return {
        call: numbers[0]
        for call, numbers in requests.items()
        if numbers[0] is not None and all(number in foreign for number in numbers)
    }


def _first(features: Any, names: Iterable[str], available: bool) -> str:
    """The first of the features whose availability is known to be that; empty if none."""
    for name in names:
        feature = features.get(name) if isinstance(features, dict) else None
        if isinstance(feature, dict) and feature.get("available") is available:
            return name
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
