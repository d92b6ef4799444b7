"""Finds the processes that are to be examined. Vanishing and EACCES are normal here."""

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from numadoctor.engine.patterns import NamePattern
from numadoctor.host import parsers
from numadoctor.host.living import living_thread, own_pid, process_of, unseen
from numadoctor.model import Missing, OfKernel, ParseError, Target, Undecided, Vanished

if TYPE_CHECKING:
    from numadoctor.host import Host

# docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope, /docker/ID
# (containers are named by at least so many digits of their id: docker ps shows 12).
_CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}")


def find_targets(
    host: "Host",
    pids: Iterable[int],
    *,
    name: str | None = None,
    cgroup: str | None = None,
    container: str | None = None,
    unit: str | None = None,
    tree: bool = False,
) -> tuple[list[Target], list[str]]:
    """A target for each process that is there, and a line for each that cannot be examined.

    A thread stands for its process. Threads of the kernel, and processes that have ended and
    wait for their parents, are none; who names the pid of one is told so.

    :param pids: these processes
    :param name: and those whose command name or command line this regular expression matches
    :param cgroup: and those in this control group or below it: ``/system.slice/x.service``
    :param container: and those of the container with this id, or the first 12 digits of it
    :param unit: and those of this systemd unit; ``.service`` may be left out
    :param tree: and all their descendants
    :raises ParseError: ``name`` is no regular expression, or takes too long; ``container`` is no id
    """
    processes = _Processes(host)
    found: dict[int, None] = {}
    lines: list[str] = []
    for pid in dict.fromkeys(pids):
        try:
            found[process_of(host, pid)] = None
        except Undecided as error:
            lines.append(_not_examined(pid, error))
    for what, wanted, chosen in _ways(processes, name, cgroup, container, unit):
        some = False
        for pid in chosen:
            try:
                found[process_of(host, pid)] = None
                some = True
            except (OfKernel, Missing, Vanished):
                continue
            except Undecided as error:
                lines.append(_not_examined(pid, error))
                some = True
        if not some:
            but = ", but what has ended or is of the kernel" if chosen else ""
            why = unseen(host)
            hidden = f"; not all are seen: {why}" if why else ""
            lines.append(f"no process {what} {wanted}{but}{hidden}")
    targets: list[Target] = []
    own = own_pid(host) if host.live else None
    for pid in processes.with_descendants(found) if tree else found:
        descendant = pid not in found
        if descendant and pid == own:
            continue  # whoever examines the shell it was started from does not mean it
        try:
            process_of(host, pid)
            thread = living_thread(host, pid)
            name = host.status(f"/proc/{thread}").name or str(pid)
            targets.append(Target(thread, name, descendant))
        except (OfKernel, Missing, Vanished) as error:
            if not descendant:
                lines.append(_not_examined(pid, error))
        except Undecided as error:
            lines.append(_not_examined(pid, error))
    return targets, lines


def _not_examined(pid: int, error: Undecided) -> str:
    plain = isinstance(error, (OfKernel, Missing, Vanished))
    return f"pid {pid}: {error.reason if plain else error}"


def _ways(
    processes: "_Processes",
    name: str | None,
    cgroup: str | None,
    container: str | None,
    unit: str | None,
) -> Iterable[tuple[str, str, list[int]]]:
    """In words, what was wanted, and the pids that are it, for each way that was given."""
    if name is not None:
        pattern = NamePattern(name)
        hidden = processes.lineage(own_pid(processes.host)) if processes.host.live else set[int]()
        names = {pid: processes.names(pid) for pid in processes.pids if pid not in hidden}
        yield "matches", name, pattern.select(names)
    if cgroup is not None:
        group = "/" + cgroup.removeprefix("/sys/fs/cgroup").strip("/")
        below = f"{group.rstrip('/')}/"
        yield (
            "is in control group",
            group,
            processes.by_group(lambda path: f"{path.rstrip('/')}/".startswith(below)),
        )
    if container is not None:
        if not _CONTAINER_ID.fullmatch(container):
            raise ParseError("container id", container, "12 to 64 hexadecimal digits are expected")
        yield (
            "is of container",
            container,
            processes.by_group(
                lambda path: any(id.startswith(container) for id in _CONTAINER_ID.findall(path))
            ),
        )
    if unit is not None:
        full = unit if re.search(r"\.(service|scope|slice)$", unit) else f"{unit}.service"
        yield "is of unit", full, processes.by_group(lambda path: full in path.split("/"))


class _Processes:
    """All processes of a host, looked at when they are asked for."""

    def __init__(self, host: "Host") -> None:
        self.host = host
        self._parents: dict[int, tuple[int, int]] | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        try:
            return parsers.numbered(self.host.list("/proc"), "")
        except Undecided:
            return ()

    def names(self, pid: int) -> tuple[str, ...]:
        """What a process calls itself, and its command line."""
        names = []
        try:
            names.append(self.host.parse(f"/proc/{pid}/stat", parsers.parse_stat).name)
            names.append(" ".join(self.host.parse(f"/proc/{pid}/cmdline", parsers.parse_argv)))
        except Undecided:
            pass
        return tuple(names)

    def by_group(self, matches: Callable[[str], bool]) -> list[int]:
        """Those of which the path of a control group matches."""
        return [pid for pid in self.pids if any(map(matches, self._groups(pid)))]

    def _groups(self, pid: int) -> tuple[str, ...]:
        """The paths of its control groups."""
        try:
            entries = self.host.parse(f"/proc/{pid}/cgroup", parsers.parse_proc_cgroup)
        except Undecided:
            return ()
        return tuple(entry.path for entry in entries)

    @property
    def parents(self) -> dict[int, tuple[int, int]]:
        """Pid to parent and start time."""
        if self._parents is None:
            self._parents = {}
            for pid in self.pids:
                try:
                    stat = self.host.parse(f"/proc/{pid}/stat", parsers.parse_stat)
                except Undecided:
                    continue
                self._parents[pid] = stat.parent, stat.start_ticks
        return self._parents

    def lineage(self, pid: int) -> set[int]:
        """A process and its ancestors: who asks for a name has it in its own command line."""
        found: set[int] = set()
        while pid not in found and pid in self.parents:
            found.add(pid)
            pid = self.parents[pid][0]
        return found

    def with_descendants(self, pids: Iterable[int]) -> dict[int, None]:
        """Each process and behind it its descendants, parents before children."""
        found: dict[int, None] = {}
        pending = list(pids)[::-1]
        while pending:
            pid = pending.pop()
            if pid not in found:
                found[pid] = None
                pending += sorted(self._children(pid), reverse=True)
        return found

    def _children(self, pid: int) -> Iterable[int]:
        """The children of a process, from the kernel's own lists or else by all parents."""
        try:
            return self._listed_children(pid)
        except Undecided:
            return self._by_parent.get(pid, ())

    def _listed_children(self, pid: int) -> set[int]:
        """A thread has its own children (CONFIG_PROC_CHILDREN, Linux 4.2).

        :raises Undecided: a list is not there
        """
        folder = f"/proc/{pid}/task"
        children: set[int] = set()
        for tid in parsers.numbered(self.host.list(folder), ""):
            words = self.host.parse(f"{folder}/{tid}/children", parsers.parse_words)
            children |= set(map(int, filter(str.isdecimal, words)))
        return children

    @cached_property
    def _by_parent(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for pid, (parent, start) in self.parents.items():
            # A parent that is younger than its child has the pid of one that ended.
            if parent in self.parents and self.parents[parent][1] <= start:
                children.setdefault(parent, []).append(pid)
        return children
