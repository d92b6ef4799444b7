"""What happened to processes within a short time: faults, migrations. Counters of files alone."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from numadoctor.host import parsers
from numadoctor.model import ParseError, Undecided

if TYPE_CHECKING:
    from collections.abc import Callable

    from numadoctor.host import Host

T = TypeVar("T")

RECORDED = "/.numadoctor/window.json"
"""Where a captured folder keeps what was counted when it was taken."""

_WHAT = "counters of a window"

_VMSTAT = ("numa_pages_migrated", "numa_hint_faults", "pswpin", "pswpout")


class Counts(NamedTuple):
    """Counters of a process, or what was added to them. None where the kernel does not tell.

    :ivar minor_faults: page faults that needed no reading
    :ivar major_faults: page faults that needed reading
    :ivar migrated_pages: moved by automatic NUMA balancing
    :ivar hinting_faults: NUMA hinting faults: how often balancing stopped a thread to learn
        where it runs
    """

    minor_faults: int | None = None
    major_faults: int | None = None
    migrated_pages: int | None = None
    hinting_faults: int | None = None

    def since(self, before: "Counts") -> "Counts":
        """What was added since ``before``."""
        pairs = zip(self, before, strict=True)
        return Counts(*(None if a is None or b is None else max(0, a - b) for a, b in pairs))


class Window(NamedTuple):
    """What was added to the counters of processes.

    :ivar seconds: how long it was watched
    :ivar processes: pid to its counts, for those that were there all the time
    :ivar machine: of all processes, by the names of /proc/vmstat; those that the kernel has
    """

    seconds: float
    processes: Mapping[int, Counts]
    machine: Mapping[str, int] = {}

    def rate(self, count: int) -> float:
        """Per second."""
        return count / self.seconds if self.seconds else 0.0


class Beginning(NamedTuple):
    """A first reading: its time, the counters of each process and those of the machine."""

    time: float
    processes: Mapping[int, Counts]
    machine: Mapping[str, int]


def read_counts(host: "Host", pid: int) -> Counts:
    """The counters of a process now, not as they were when somebody asked before.

    Neither file takes a lock that the process waits for.
    """
    stat = _now(host, f"/proc/{pid}/stat", parsers.parse_stat)
    sched = _now(host, f"/proc/{pid}/sched", parsers.parse_sched)
    values = sched.values if sched else {}
    migrated, hinting = values.get("numa_pages_migrated"), values.get("total_numa_faults")
    return Counts(
        stat.minor_faults if stat else None,
        stat.major_faults if stat else None,
        None if migrated is None else int(migrated),
        None if hinting is None else int(hinting),
    )


def _now(host: "Host", path: str, parse: "Callable[[bytes], T]") -> T | None:
    try:
        return parse(host.root.read(path))
    except (Undecided, ParseError):
        return None


def _machine(host: "Host") -> dict[str, int]:
    """Counters of all processes together; those that the kernel has."""
    values = _now(host, "/proc/vmstat", parsers.parse_counters) or {}
    return {name: values[name] for name in _VMSTAT if name in values}


def begin(host: "Host", pids: Iterable[int]) -> Beginning:
    """A first reading of a live machine."""
    machine = _machine(host)
    return Beginning(time.monotonic(), {pid: read_counts(host, pid) for pid in pids}, machine)


def end(host: "Host", beginning: Beginning, seconds: float) -> Window:
    """A second reading, ``seconds`` after the first, or later if that time is over."""
    time.sleep(max(0.0, beginning.time + seconds - time.monotonic()))
    after = {pid: read_counts(host, pid) for pid in beginning.processes}
    took = time.monotonic() - beginning.time
    before, now = beginning.machine, _machine(host)
    machine = {name: max(0, now[name] - before[name]) for name in before if name in now}
    counts = {pid: after[pid].since(before) for pid, before in beginning.processes.items()}
    seen = {pid: count for pid, count in counts.items() if count != Counts()}
    return Window(took, seen, machine)


def dump_window(window: Window) -> str:
    """The window as ``load_window`` reads it."""
    processes = {str(pid): counts._asdict() for pid, counts in window.processes.items()}
    document = {"seconds": window.seconds, "processes": processes, "machine": window.machine}
    return json.dumps(document) + "\n"


def load_window(data: bytes) -> Window:
    """What a captured folder keeps in ``RECORDED``.

    :raises ParseError: it is no such window
    """
    try:
        document = json.loads(data)
        processes = {int(pid): _counts(of) for pid, of in document["processes"].items()}
        seconds = float(document["seconds"])
        machine = {n: int(v) for n, v in (document.get("machine") or {}).items() if n in _VMSTAT}
    except RecursionError:
        raise ParseError(_WHAT, data[:40], "it is nested too deep") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ParseError(_WHAT, data[:40], f"{type(error).__name__}: {error}") from None
    if not 0 < seconds < float("inf"):
        raise ParseError(_WHAT, seconds, "it must have taken some time")
    if any(value < 0 for value in machine.values()):
        raise ParseError(_WHAT, data[:40], "a counter is below 0")
    return Window(seconds, processes, machine)


def _counts(document: Mapping[str, Any]) -> Counts:
    values = {name: document.get(name) for name in Counts._fields}
    counts = Counts(**{n: None if v is None else int(v) for n, v in values.items()})
    if any(value is not None and value < 0 for value in counts):
        raise ValueError("a counter is below 0")
    return counts
