"""Two binders in one file."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.host.binders import Binder, Role, from_argv, from_engine, from_environment
from numadoctor.lint.documents import Document
from numadoctor.lint.nodes import Word
from numadoctor.lint.shell import WRAPPERS
from numadoctor.lint.units import Unit
from numadoctor.lint.workloads import Workload
from numadoctor.model import Finding, Fix, Severity, passed, warn

from ._deployment import CONTAINERS, for_each, seen
from .envelope_binders import collision_cause

if TYPE_CHECKING:
    from numadoctor.host import Host

_WRAPPERS = ("numactl", "taskset")
_LAUNCHERS = ("srun", "mpirun", "mpiexec", "prterun")


@check(
    "D017",
    name="two-binders-in-a-file",
    needs=CONTAINERS,
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def two_binders_in_a_file(host: "Host | None", document: Document) -> Iterator[Finding]:
    """A file binds the same threads, or the same memory, twice by different tools.

    Why it matters
        srun, mpirun, numactl, taskset, systemd and the engines all set the CPU mask or the
        memory policy, and the last call wins: which that is is not what the file looks like.
        An engine that binds its workers undoes a launcher's mask, or finds it narrowed and
        leaves it; OpenMP takes its places before or after. See E010, which finds the same on
        a running process.

    When it is harmless
        One tool for CPUs and another for memory; a cpuset around everything, which holds
        against all.

    Fix
        Keep one binder for CPUs and one for memory, and leave the other out.

    Source
        srun(1), --cpu-bind and --mem-bind; numactl(8); taskset(1); systemd.exec(5); and for
        the engines as E010
    """

    def judge(workload: Workload) -> Iterator[Finding]:
        together = _binders(workload, document)
        found = list(dict.fromkeys(binder for group in together for binder in group))
        told: set[tuple[str, str]] = set()
        for first, second in (pair for group in together for pair in combinations(group, 2)):
            cause = collision_cause(first, second)
            settings = (first.setting, second.setting)
            if not cause or first.setting == second.setting or settings in told:
                continue
            told.add(settings)
            what = "memory" if first.memory and second.memory else "threads"
            places = [_place(workload, document, binder) for binder in (first, second)]
            yield warn(
                f"{first.name} and {second.name} both bind the {what}: {first.setting}; "
                f"{second.setting}",
                subject=f"{workload.name}: {first.name} and {second.name}",
                cause=cause,
                evidence=seen(*places),
                fixes=[
                    Fix(*binder.off, needs_restart=True)
                    for binder in (first, second)
                    if binder.off[1]
                ],
                location=(places[1] or places[0] or workload.at).location,
            )
        if found and not told:
            names = ", ".join(dict.fromkeys(binder.name for binder in found))
            yield passed(
                f"binders that do not collide: {names}",
                subject=workload.name,
                evidence=seen(*(_place(workload, document, binder) for binder in found)),
                location=workload.at.location,
            )
        for word in _open_lists(workload):
            word.settled()

    yield from for_each(document, judge)


def _open_lists(workload: Workload) -> Iterator[Word]:
    """Options of wrappers whose values are not known: what they bind is not known either."""
    for command in workload.commands:
        for position, program in enumerate(command.words):
            if program.text.rpartition("/")[2] in _WRAPPERS and command.starts(position):
                yield from _open_options(command.words[position + 1 :])


def _open_options(words: Sequence[Word]) -> Iterator[Word]:
    for number, word in enumerate(words):
        if not word.text.startswith("-"):
            if word.open and number == 0:
                yield word
            return
        if word.open:
            yield word


def _binders(workload: Workload, document: Document) -> list[list[Binder]]:
    """What binds one process, for each command: its own binders, and those around all of them."""
    environment = workload.environ()
    around = list(from_environment(environment, str(workload.at.location)))
    if document.kind == "systemd" and workload.launcher == "systemd":
        around += _of_unit(document.content)
    found = []
    for own in _of_commands(workload) or [[]]:
        once = {(binder.name, binder.setting): binder for binder in (*own, *around)}
        order = list(Role)
        found.append(sorted(once.values(), key=lambda binder: order.index(binder.role)))
    return found


def _of_commands(workload: Workload) -> list[list[Binder]]:
    """The binders of each command that starts a process; `export` and `cd` start none."""
    environment = workload.environ()
    groups = []
    for command in workload.commands:
        found: list[Binder] = []
        argv = [word.text for word in command.words]
        source = str(command.words[0].location)
        found += _of_launcher(argv, source)
        if command.program in WRAPPERS:
            found += from_argv(_own(argv), source)
        found += from_engine(argv, environment, source)
        groups.append(found)
    return groups


def _own(argv: Sequence[str]) -> list[str]:
    """The arguments without long texts, in which another program's name may stand by chance."""
    return [word if len(word.split()) < 2 else "-" for word in argv]


def _of_launcher(argv: list[str], source: str) -> Iterator[Binder]:
    """What srun and mpirun are told on their command lines."""
    program = argv[0].rpartition("/")[2]
    if program not in _LAUNCHERS:
        return
    for position, word in enumerate(argv):
        name, equals, value = word.partition("=")
        value = value if equals else (argv[position + 1] if position + 1 < len(argv) else "")
        kind = value.split(":")[0].split(",")[-1]
        if program == "srun" and name in ("--cpu-bind", "--mem-bind") and kind not in ("none", ""):
            memory = name == "--mem-bind"
            role = Role.NONE if memory else Role.LAUNCH
            setting = f"srun {name}={value}"
            yield Binder(
                "Slurm", setting, source, role, memory=memory, off=("slurm", f"srun {name}=none …")
            )
        elif program != "srun" and name in ("--bind-to", "-bind-to") and kind not in ("none", ""):
            setting = f"{program} {name} {value}"
            off = ("any", f"{program} --bind-to none …")
            yield Binder("MPI", setting, source, Role.LAUNCH, off=off)


def _of_unit(unit: Unit) -> Iterator[Binder]:
    affinity, policy = unit.last("CPUAffinity"), unit.last("NUMAPolicy")
    if affinity:
        setting = f"CPUAffinity={affinity.value.text}"
        yield Binder(
            "systemd", setting, str(affinity.value.location), Role.LAUNCH,
            off=("systemd", f"# leave out {setting}"),
        )  # fmt: skip
    if policy and policy.value.text != "default":
        setting = f"NUMAPolicy={policy.value.shown}"
        yield Binder(
            "systemd", setting, str(policy.value.location), memory=True,
            off=("systemd", f"# leave out {setting}"),
        )  # fmt: skip


def _place(workload: Workload, document: Document, binder: Binder) -> Word | None:
    """The word that a binder was read from."""
    words = [word for command in workload.commands for word in command.words]
    if document.kind == "systemd":
        words += [s.value for s in document.content.settings if s.name.text in binder.setting]
    parts = binder.setting.replace("=", " ").split()
    for environment in (workload.environment, *(c.environment for c in workload.commands)):
        if parts[0] in environment:
            return environment[parts[0]]
    for word in words:
        if word.text.partition("=")[0].rpartition("/")[2] == parts[0]:
            return word
    for word in words:
        if str(word.location) == binder.source:
            return word
    return words[0] if words else None
