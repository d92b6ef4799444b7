"""What a workload is bound to: CPUs and nodes, by whom, and where that stands in the file."""

from collections.abc import Iterator
from dataclasses import dataclass

from numadoctor.lint.nodes import Word
from numadoctor.lint.shell import Command
from numadoctor.lint.units import Unit
from numadoctor.lint.workloads import Workload

CPUS, CPU_NODES, NODES = "CPUs", "nodes for CPUs", "memory nodes"


@dataclass(frozen=True)
class Binding:
    """One list that binds.

    :ivar by: the option or setting: ``--cpuset-cpus``, ``numactl --membind``
    :ivar what: CPUS, CPU_NODES (nodes whose CPUs are meant) or NODES
    :ivar word: the list
    :ivar outer: whether what is inside cannot leave it: a cpuset
    :ivar soft: whether memory may go elsewhere: preferred, interleave over what is there
    """

    by: str
    what: str
    word: Word
    outer: bool = False
    soft: bool = False


_NUMACTL = {
    "--physcpubind": CPUS, "-C": CPUS,
    "--cpunodebind": CPU_NODES, "-N": CPU_NODES, "--cpubind": CPU_NODES, "-c": CPU_NODES,
    "--membind": NODES, "-m": NODES, "--interleave": NODES, "-i": NODES,
    "--weighted-interleave": NODES, "-w": NODES, "--preferred": NODES, "-p": NODES,
    "--preferred-many": NODES, "-P": NODES,
}  # fmt: skip
_SOFT = ("--preferred", "-p", "--preferred-many", "-P")
_LOCAL = ("--localalloc", "-l")
_TASKSET_LIST = ("-c", "--cpu-list")

# Options of engines that take nodes or CPUs.
_ENGINE = {"--numa-bind-nodes": NODES, "--numa-bind-cpus": CPUS, "--numa-node": NODES}


def bindings(workload: Workload) -> list[Binding]:
    """All that binds a workload, outermost first."""
    found = []
    if workload.cpus:
        found.append(Binding("cpuset", CPUS, workload.cpus, outer=True))
    if workload.mems:
        found.append(Binding("cpuset mems", NODES, workload.mems, outer=True))
    for command in workload.commands:
        found += _of_command(command)
    return found


def binds_memory(workload: Workload) -> bool:
    """Whether something in a workload sets the memory policy of the process.

    :raises Unsettled: nothing that is known does, and options that are not known may
    """
    if workload.mems:
        return True
    # Of several processes in one workload each that has its CPUs bound needs a policy.
    narrowed = [c for c in workload.commands if any(b.what != NODES for b in _of_command(c))]
    if narrowed and all(map(_sets_policy, narrowed)):
        return True
    if not narrowed and any(map(_sets_policy, workload.commands)):
        return True
    if workload.more:
        workload.more.settled()
    # vLLM leaves a process alone whose CPUs it finds narrowed, unless it is told the nodes.
    words = [word.text for command in workload.commands for word in command.words]
    return "--numa-bind" in words and not bindings(workload)


def _sets_policy(command: Command) -> bool:
    """Whether a command sets the memory policy of the process that it starts."""
    words = [word.text for word in command.words]
    local = any(map(_is_numactl, words)) and any(word in _LOCAL for word in words)
    return local or any(binding.what == NODES for binding in _of_command(command))


def places_pool(workload: Workload) -> bool:
    """Whether the engine spreads its pool by itself, and leaves the rest of its memory alone."""
    return workload.environ().get("LIGHTLLM_ENABLE_NUMA_INTERLEAVE", "0") not in ("", "0")


def _is_numactl(text: str) -> bool:
    return _program(text) == "numactl"


def _program(text: str) -> str:
    return text.rpartition("/")[2]


def _of_command(command: Command) -> Iterator[Binding]:
    words = command.words
    for position, word in enumerate(words):
        if _is_numactl(word.text) and command.starts(position):
            yield from _of_numactl(words[position + 1 :])
        elif _program(word.text) == "taskset" and command.starts(position):
            yield from _of_taskset(words[position + 1 :])
        name, equals, value = word.text.partition("=")
        if name in _ENGINE:
            if equals:
                yield Binding(name, _ENGINE[name], _part(word, len(name) + 1, value))
                continue
            for after in words[position + 1 :]:
                if not after.text[:1].isdigit():
                    break
                yield Binding(name, _ENGINE[name], after)


def _of_numactl(words: tuple[Word, ...]) -> Iterator[Binding]:
    position = 0
    while position < len(words) and words[position].text.startswith("-"):
        word = words[position]
        position += 1
        name, equals, value = word.text.partition("=")
        if name not in _NUMACTL and not name.startswith("--") and name[:2] in _NUMACTL:
            name, equals, value = name[:2], "", word.text[2:]
            found: Word | None = _part(word, 2, value)
        elif equals:
            found = _part(word, len(name) + 1, value)
        elif name in _NUMACTL and position < len(words):
            found = words[position]
            position += 1
        else:
            found = None
        if found and name in _NUMACTL:
            yield Binding(f"numactl {name}", _NUMACTL[name], found, soft=name in _SOFT)


def _of_taskset(words: tuple[Word, ...]) -> Iterator[Binding]:
    lists = False
    for word in words:
        text = word.text
        if text.startswith("--cpu-list="):
            yield Binding("taskset", CPUS, _part(word, 11, text[11:]))
            return
        if text.startswith("-"):
            lists = lists or text in _TASKSET_LIST or (text[1:2] != "-" and "c" in text)
            continue
        if lists:
            yield Binding("taskset", CPUS, word)
        return


def _part(word: Word, at: int, text: str) -> Word:
    return Word(word.file, word.line, word.column + at, text, word.style or "'")


_UNIT = {
    "CPUAffinity": (CPUS, False), "NUMAMask": (NODES, False),
    "AllowedCPUs": (CPUS, True), "AllowedMemoryNodes": (NODES, True),
}  # fmt: skip


def of_unit(unit: Unit) -> list[Binding]:
    """The lists that a systemd unit gives; several lines of one setting are one list."""
    found = []
    for name, (what, outer) in _UNIT.items():
        settings = unit.values(name)
        if settings:
            value = settings[-1].value
            text = " ".join(setting.value.text for setting in settings)
            found.append(
                Binding(name, what, Word(value.file, value.line, value.column, text), outer)
            )
    # The cpuset of a slice is around the unit's own; its CPUs are told with the slice itself.
    for one in unit.slices if found else ():
        found += [binding for binding in of_unit(one) if binding.what == NODES]
    return sorted(found, key=lambda binding: not binding.outer)
