"""The processes that are examined together: what is asked of them is found out once."""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from numadoctor.host import parsers
from numadoctor.model import Device, Evidence, ParseError, Target, Undecided
from numadoctor.model.placement import Method, Policy, Process, ProcessPlacement, Thread

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.placement.window import Beginning, Window

T = TypeVar("T")

MIN_SIZE = 256 << 10
"""Bytes; smaller mappings are put together by kind."""

MANY, MIN_SIZE_OF_MANY = 8_000, 64 << 20
"""With more mappings than that, those below so many bytes are put together, too: a pool that was
cut into slabs has 65,000 mappings that are alike."""


# The kernel's own are 15 bytes long (TASK_COMM_LEN), 64 those of its threads.
_LONGEST_NAME = 64


class Gpus(NamedTuple):
    """The GPUs and accelerators that a process has open.

    :ivar evidence: of which open file each was told
    """

    devices: tuple[Device, ...]
    evidence: tuple[Evidence, ...] = ()

    @property
    def nodes(self) -> tuple[int, ...]:
        """Their nodes, as far as known, each once."""
        return tuple(sorted({d.node for d in self.devices if d.node is not None}))


class Examination:
    """Some processes of a host. Nothing is looked at before it is asked for.

    :ivar method: of measuring, or None to choose
    """

    def __init__(
        self, host: "Host", targets: Iterable[Target], method: Method | None = None
    ) -> None:
        self.host = host
        self.targets = tuple(targets)
        self.method = method
        self._beginning: Beginning | None = None
        self._gpus: dict[int, Gpus | Undecided] = {}
        self._threads: dict[int, tuple[Thread, ...] | Undecided] = {}

    @cached_property
    def placement(self) -> ProcessPlacement:
        """Where their memory is; measured on the first call, shared segments counted once."""
        from numadoctor.placement.placing import place

        self._begin()
        least = MIN_SIZE_OF_MANY if self._mappings() > MANY else MIN_SIZE
        return self._without_others(
            place(self.host, self.targets, method=self.method, min_size=least)
        )

    def _without_others(self, found: ProcessPlacement) -> ProcessPlacement:
        """``found`` without processes that ended meanwhile and whose pid another one has now."""
        others = {p.pid for p in found.processes if not p.problem and self._is_another(p.pid)}
        if not others:
            return found
        problem = "it ended, and another process has its pid"
        lines = (f"pid {pid}: {problem}" for pid in sorted(others))
        return found._replace(
            processes=tuple(
                p._replace(problem=problem) if p.pid in others else p for p in found.processes
            ),
            mappings=tuple(p for p in found.mappings if p.mapping.pid not in others),
            incomplete=(*found.incomplete, *lines),
        )

    def _is_another(self, pid: int) -> bool:
        """Whether the process with that pid started after the one that was looked at first."""
        path = f"/proc/{pid}/stat"
        try:
            first = self.host.parse(path, parsers.parse_stat).start_ticks
            return first != parsers.parse_stat(self.host.root.read(path)).start_ticks
        except (Undecided, ParseError):
            return False  # who is gone is told by what could not be read of it

    def _mappings(self) -> int:
        """How many they have; the host keeps what is read for that."""
        number = 0
        for target in self.targets:
            try:
                number += self.host.parse(f"{target.proc}/maps", parsers.parse_maps).number
            except Undecided:
                continue
        return number

    def _begin(self) -> None:
        """Take the first reading of counters, so that the measuring is time of the window."""
        if self.host.live and self._beginning is None:
            from numadoctor.placement.window import begin

            self._beginning = begin(self.host, [t.pid for t in self.targets if t.pid])

    def window(self, seconds: float) -> "Window":
        """What was added to the counters of the processes within so many seconds or more.

        :raises Missing: a captured folder does not hold it
        """
        from numadoctor.placement import window

        if not self.host.live:
            return self.host.parse(window.RECORDED, window.load_window)
        self._begin()
        beginning = self._beginning
        assert beginning is not None
        key = "window", tuple(beginning.processes)
        return self.host.derive(key, lambda: window.end(self.host, beginning, seconds))

    @property
    def measured(self) -> bool:
        """Whether somebody has asked where their memory is."""
        return "placement" in self.__dict__

    @cached_property
    def processes(self) -> dict[int, Process]:
        """Those that could be examined, by pid; their names without control characters."""
        return {
            p.pid: p._replace(name=printable(p.name[:_LONGEST_NAME]))
            for p in self.placement.processes
            if not p.problem
        }

    def threads(self, pid: int) -> tuple[Thread, ...]:
        """Its threads, with affinity, last CPU and policy.

        :raises Undecided: they cannot be listed
        """
        from numadoctor.placement.threads import read_threads

        if pid not in self._threads:
            try:
                self._threads[pid] = read_threads(self.host, pid)
            except Undecided as error:
                self._threads[pid] = error
        return _or_raise(self._threads[pid])

    def gpus(self, pid: int) -> Gpus:
        """The GPUs it has open.

        :raises Undecided: its open files cannot be listed, or one of them is no known GPU
        """
        if pid not in self._gpus:
            try:
                self._gpus[pid] = gpus_of(self.host, pid)
            except Undecided as error:
                self._gpus[pid] = error
        return _or_raise(self._gpus[pid])

    def open_gpus(self) -> int | None:
        """How many GPUs they have open together, or None where one of them does not tell."""
        try:
            opened = {d.address for pid in self.processes for d in self.gpus(pid).devices}
        except Undecided:
            return None
        return len(opened)

    def cpus(self, pid: int) -> frozenset[int]:
        """The online CPUs that any of its threads may run on.

        :raises Undecided: no thread tells
        """
        allowed = [thread.cpus for thread in self.threads(pid) if thread.cpus is not None]
        if not allowed:
            raise Undecided(f"/proc/{pid}/task", None, "no thread tells its allowed CPUs")
        return frozenset().union(*allowed).intersection(self.host.topology.online_cpus)

    def cpu_nodes(self, pid: int) -> frozenset[int]:
        """The nodes of those CPUs.

        :raises Undecided: no thread tells
        """
        cpus = self.cpus(pid)
        return frozenset(n.id for n in self.host.topology.nodes if cpus.intersection(n.cpus))

    def policy(self, pid: int) -> Policy | None:
        """The policy of its main thread, or None when it could not be read."""
        process = self.processes.get(pid)
        return process.policy if process else None


def printable(text: str) -> str:
    """``text`` in one line: a process or a file may call itself anything."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _or_raise(found: "T | Undecided") -> "T":
    if isinstance(found, Undecided):
        raise found.with_traceback(None)
    return found


def examination(
    host: "Host", targets: Iterable[Target], method: Method | None = None
) -> Examination:
    """The examination of these processes, the same for all who ask.

    :param method: counts when it is asked for the first time
    """
    targets = tuple(targets)
    pids = tuple(target.pid for target in targets)
    return host.derive(("examination", pids), lambda: Examination(host, targets, method))


def gpus_of(host: "Host", pid: int) -> Gpus:
    """The GPUs and accelerators that a process has open and, of these, those that it uses.

    A runtime may open all that it sees: variables and the rank of a worker tell
    which of them is its own.

    :raises Undecided: its open files cannot be listed, or one is of no known GPU
    """
    from numadoctor.host.devices.usage import read_usage

    proc = f"/proc/{pid}"
    usage = read_usage(host, proc)
    if usage.opened is None:
        if host.topology.devices and any(d.kind in _KINDS for d in host.topology.devices):
            host.list(f"{proc}/fd")
            raise Undecided(f"{proc}/fd", None, "its open files could not be looked at")
        return Gpus(())
    opened = [device for device in usage.opened.devices if device.kind in _KINDS]
    if usage.opened.unmapped:
        path = usage.opened.unmapped[0]
        raise Undecided(f"{proc}/fd", None, f"which GPU {path} is cannot be told")
    if not opened:
        return Gpus(())
    evidence = {
        device.address: seen
        for device, seen in zip(usage.opened.devices, usage.opened.evidence, strict=True)
    }
    mine = tuple(device for device in usage.devices if device.address in evidence)
    return Gpus(mine, tuple(evidence[device.address] for device in mine))


_KINDS = ("gpu", "accelerator")
