"""What the checks of a plan share: the plan, its machine, which process is which instance."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from numadoctor.host import parsers
from numadoctor.model import (
    Device,
    Evidence,
    Finding,
    Fix,
    Malformed,
    Missing,
    ParseError,
    Undecided,
    skip,
    unknown,
)
from numadoctor.model.binding import docker_options
from numadoctor.model.plan import Instance, Plan, PoolBacking
from numadoctor.placement.examination import Examination

from ._devices import USAGE
from ._placement import GPUS, PLACEMENT, THREADS, process_text

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.planning.machine import Machine

PLAN = "fact plan"

NEEDS = tuple(dict.fromkeys((PLAN, *PLACEMENT, *THREADS, *GPUS, *USAGE)))
"""What is read where processes are compared with the plan."""

_NO_PLAN = "no plan was given (--expect)"


def before_a_start(host: "Host") -> Plan | Finding:
    """The plan, if it is to be compared with the machine; else why it is not.

    :raises Malformed: what was given is no plan
    """
    data = _given(host)
    if data is None:
        return skip(_NO_PLAN)
    if isinstance(data, dict) and data.get("running"):
        return skip("processes were named: the plan is compared with them (P060 to P063)")
    return _plan(data)


def in_force(host: "Host") -> Plan | Finding:
    """The plan, if there is one; else that there is none.

    :raises Malformed: what was given is no plan
    """
    data = _given(host)
    return skip(_NO_PLAN) if data is None else _plan(data)


def _given(host: "Host") -> object:
    """What was given with --expect, or None."""
    try:
        return host.fact("plan")
    except Missing:
        return None


def _plan(data: object) -> Plan:
    from numadoctor.planning.badplan import BadPlan
    from numadoctor.planning.intent import plan_of

    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key != "running"}
    try:
        return plan_of(data)
    except BadPlan as error:
        raise Malformed("plan", None, str(error)) from None


def machine(host: "Host") -> "Machine":
    """What the machine has to hand out, gathered once."""
    from numadoctor.planning.machine import Machine

    return host.derive("plan machine", lambda: Machine(host))


def stated(plan: Plan, instance: Instance, *names: str) -> Evidence:
    """What the plan says of an instance, under these names."""
    data = instance.data
    parts = []
    for name in names:
        value = data[name]
        if name in ("nodes", "cpus") and value is not None:
            value = parsers.format_list(value) or "none"
        elif isinstance(value, list):
            value = ", ".join(value)
        if value is not None:
            parts.append(f"{name}: {value}")
    return Evidence(plan.source[:100], f"{instance.name}: {'; '.join(parts)}"[:300])


def gpus_of(host: "Host", instance: Instance) -> tuple[list[Device], list[str]]:
    """The GPUs that an instance is to have, and the names that no GPU of the machine has."""
    found, missing = [], []
    for word in instance.gpus or ():
        try:
            found.append(machine(host).gpu(word))
        except ParseError:
            missing.append(word)
    return found, missing


def huge_page_size(host: "Host", instance: Instance) -> int | None:
    """The size of the huge pages that the pool is to be made of; None for ordinary memory.

    :raises Undecided: the plan leaves the size to the machine, which does not tell its default
    """
    if instance.backing is None:
        return instance.page_size if instance.page_size and instance.page_size > 1 << 16 else None
    if instance.backing is not PoolBacking.HUGETLB:
        return None
    if instance.page_size:
        return instance.page_size
    default = host.parse("/proc/meminfo", parsers.parse_meminfo).get("Hugepagesize")
    if default is None:
        raise Malformed("/proc/meminfo", None, "it has no Hugepagesize: no default size is known")
    return default


def start_fixes(instance: Instance) -> tuple[Fix, ...]:
    """How to start it with the CPUs and the policy of the plan."""
    from numadoctor.planning.starting import numactl_options

    fixes = []
    if options := numactl_options(instance):
        fixes.append(Fix("numactl", _broken(options), needs_restart=True))
    if words := docker_options(instance.cpus or (), instance.nodes or ()):
        fixes.append(Fix("docker", " \\\n".join(words), needs_restart=True))
    return tuple(fixes) or (Fix("any", "start it anew as the plan says", needs_restart=True),)


_LONG = 70


def _broken(options: str) -> str:
    """The command, on several lines where it is long: a list of CPUs may be."""
    line = f"numactl {options} COMMAND"
    if len(line) <= _LONG:
        return line
    return " \\\n".join(["numactl", *options.split(" "), "COMMAND"])


def named(instance: Instance, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings whose messages begin with the name of the instance."""
    for finding in findings:
        yield replace(finding, message=f"{instance.name}: {finding.message}")


def subject(instance: Instance) -> str:
    """What a finding about an instance is about."""
    return f"instance {instance.name}"


class Assignment:
    """Which process is of which instance.

    :ivar pids: name of the instance to its processes
    :ivar unassigned: pid to why it cannot be told
    """

    def __init__(self, host: "Host", plan: Plan, found: Examination) -> None:
        self.host, self.plan, self.found = host, plan, found
        self.pids: dict[str, list[int]] = {one.name: [] for one in plan.instances}
        self.unassigned: dict[int, str] = {}
        known: dict[int, str] = {}
        waiting = list(found.processes)
        # What a process opens or runs on says more than whose child it is.
        for pid in list(waiting):
            if name := self._by_itself(pid):
                known[pid] = name
                waiting.remove(pid)
        # A server seldom has a GPU open itself: its workers have.
        above: dict[int, set[str]] = {}
        for pid, name in known.items():
            for ancestor in self._ancestors(pid):
                above.setdefault(ancestor, set()).add(name)
        for pid in waiting:
            name = _only(above.get(pid)) or self._by_parent(pid, known) or self._by_cpus(pid)
            if name:
                known[pid] = name
            else:
                self.unassigned[pid] = self._reason(pid)
        for pid, name in known.items():
            self.pids[name].append(pid)

    def findings(self) -> Iterator[Finding]:
        """A finding for each process whose instance cannot be told."""
        for pid, reason in self.unassigned.items():
            process = self.found.processes[pid]
            yield unknown(
                f"{process_text(self.found, pid)}: which instance of the plan it is cannot be "
                f"told: {reason}",
                subject=f"process {process.name}" if process.name else "process",
                cause="In the plan, match: TEXT names an instance's processes by what their "
                "command line holds.",
                evidence=[Evidence(self.plan.source[:100], ", ".join(self.pids)[:200])],
            )

    def _by_itself(self, pid: int) -> str | None:
        instances = self.plan.instances
        if len(instances) == 1:
            return instances[0].name
        line = self._line(pid)
        matching = [one.name for one in instances if one.match and one.match in line]
        if len(matching) == 1:
            return matching[0]
        try:
            opened = {device.address for device in self.found.gpus(pid).devices}
        except Undecided:
            return None
        for one in instances:
            gpus = {device.address for device in gpus_of(self.host, one)[0]}
            if opened and opened <= gpus:
                return one.name
        return None

    def _by_parent(self, pid: int, known: Mapping[int, str]) -> str | None:
        return next((known[above] for above in self._ancestors(pid) if above in known), None)

    def _ancestors(self, pid: int) -> Iterator[int]:
        """Its parent, the parent of that, and so on, as far as they can be read."""
        seen: set[int] = set()
        while pid not in seen:
            seen.add(pid)
            try:
                pid = self.host.parse(f"/proc/{pid}/stat", parsers.parse_stat).parent
            except Undecided:
                return
            yield pid

    def _by_cpus(self, pid: int) -> str | None:
        try:
            cpus = self.found.cpus(pid)
        except Undecided:
            return None
        fitting = [o.name for o in self.plan.instances if o.cpus and cpus and cpus <= set(o.cpus)]
        return fitting[0] if len(fitting) == 1 else None

    def _line(self, pid: int) -> str:
        try:
            return " ".join(self.host.parse(f"/proc/{pid}/cmdline", parsers.parse_argv))
        except Undecided:
            return ""

    def _reason(self, pid: int) -> str:
        try:
            count = len(self.found.gpus(pid).devices)
        except Undecided:
            return "its open files cannot be read, and its CPUs fit no single instance"
        if count:
            return "it has GPUs of several instances open, or of none"
        return "it has no GPU open, and its CPUs fit no single instance"


def _only(names: set[str] | None) -> str | None:
    """The one name there is."""
    return next(iter(names)) if names and len(names) == 1 else None


def assignment(host: "Host", plan: Plan, found: Examination) -> Assignment:
    """The same for all checks of one examination."""
    key = ("plan assignment", tuple(found.processes), plan.source)
    return host.derive(key, lambda: Assignment(host, plan, found))
