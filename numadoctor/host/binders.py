"""Who was told to bind a process to CPUs or nodes: launchers, wrappers, runtimes, engines.

Read from the environment of a process and from the command lines of its
parents. Only what was asked for is told here; what is in force stands in the
process's status and numa_maps.

Sources of the settings: srun(1) and src/common/env.c of Slurm; numactl(8);
taskset(1); the libgomp manual; runtime/src/kmp_settings.cpp of LLVM's OpenMP;
the NCCL user guide; "CPU Affinity configuration in TensorRT LLM"; SGLang's
srt/utils/numa_utils.py and srt/environ.py; vLLM's utils/numa_utils.py and
v1/worker/cpu_worker.py; LightLLM's utils/envs_utils.py.
"""

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import ParseError, Undecided

# A chain of parents longer than this is a forged one.
_MOST_PARENTS = 64

# The words with which these programs take a switch to be on.
_ON = frozenset(("1", "true", "yes", "on", "y", "t"))

Ids = tuple[int, ...]


class Role(enum.Enum):
    """How a binder acts on CPUs, in the order in which they act."""

    LAUNCH = "sets the mask before the program starts"
    REWRITE = "sets the mask anew after the start"
    CLEAR = "undoes the mask after the start"
    YIELD = "does nothing where the mask is already narrowed"
    THREADS = "spreads threads inside the mask"
    HELPERS = "leaves the mask with its own helper threads"
    NONE = "does not act on CPUs"


class Binder(NamedTuple):
    """One setting that binds.

    :ivar name: who acts on it: ``Slurm``, ``numactl``
    :ivar setting: the variable or option as it was found
    :ivar source: the file it was found in
    :ivar role: how it acts on CPUs
    :ivar memory: whether it sets the memory policy of the process
    :ivar pool: whether it sets the policy of single mappings only
    :ivar cpus: the CPUs it names, or None where it names none that can be told
    :ivar cpu_nodes: the nodes it names to mean their CPUs, or None
    :ivar nodes: the memory nodes it names, or None
    :ivar off: how it is turned off: launcher and text of a fix
    """

    name: str
    setting: str
    source: str
    role: Role = Role.NONE
    memory: bool = False
    pool: bool = False
    cpus: Ids | None = None
    cpu_nodes: Ids | None = None
    nodes: Ids | None = None
    off: tuple[str, str] = ("any", "")


def read_binders(host: Host, proc: str = "/proc/self") -> tuple[Binder, ...]:
    """The binders of the process at ``proc``, in the order in which they act.

    :raises Denied: its environment may not be read
    """
    environment = host.environ(proc)
    argv = _argv(host, proc)
    found: list[Binder] = []
    for parent in reversed(parents(host, proc)):
        found += from_argv(_argv(host, parent), f"{parent}/cmdline")
    found += from_engine(argv, environment, f"{proc}/cmdline")
    found += from_environment(environment, f"{proc}/environ")
    # A command line often stands in the argv of several parents, each starting the next.
    once = {(binder.name, binder.setting): binder for binder in found}
    order = list(Role)
    return tuple(sorted(once.values(), key=lambda binder: order.index(binder.role)))


def parents(host: Host, proc: str = "/proc/self") -> tuple[str, ...]:
    """The /proc directories of the processes above ``proc``, nearest first, as far as seen."""
    found: list[str] = []
    while len(found) < _MOST_PARENTS:
        try:
            fields = host.parse(f"{proc}/status", parsers.parse_key_values)
            number = int(fields.get("PPid", "0"))
        except (Undecided, ValueError):
            break
        proc = f"/proc/{number}"
        if number <= 0 or proc in found:
            break
        found.append(proc)
    return tuple(found)


def _argv(host: Host, proc: str) -> tuple[str, ...]:
    try:
        return host.parse(f"{proc}/cmdline", parsers.parse_argv)
    except Undecided:
        return ()


def _ids(text: str) -> Ids | None:
    """The ids in a list, or None for a word that has no fixed meaning (``all``, ``!0``)."""
    try:
        return parsers.parse_list(text.encode()) or None
    except ParseError:
        return None


def _is_on(value: str | None) -> bool:
    return value is not None and value.strip().lower() in _ON


def from_environment(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    """The binders that variables name."""
    for read in (_slurm, _open_mpi, _openmp, _tensorrt_llm, _sglang, _vllm, _lightllm, _nccl):
        yield from read(environment, source)


def _shown(environment: Mapping[str, str], *names: str) -> str:
    return " ".join(f"{name}={environment[name]}" for name in names if name in environment)


def _slurm(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    kind = environment.get("SLURM_CPU_BIND_TYPE", "").rstrip(":")
    if kind not in ("", "none"):
        yield Binder(
            "Slurm",
            _shown(environment, "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST"),
            source,
            Role.LAUNCH,
            cpus=_of_task(environment, kind, "SLURM_CPU_BIND_LIST"),
            off=("slurm", "srun --cpu-bind=none …"),
        )
    kind = environment.get("SLURM_MEM_BIND_TYPE", "").rstrip(":")
    if kind not in ("", "none"):
        yield Binder(
            "Slurm",
            _shown(environment, "SLURM_MEM_BIND_TYPE", "SLURM_MEM_BIND_LIST"),
            source,
            memory=True,
            nodes=_of_task(environment, kind, "SLURM_MEM_BIND_LIST"),
            off=("slurm", "srun --mem-bind=none …"),
        )


def _of_task(environment: Mapping[str, str], kind: str, name: str) -> Ids | None:
    """What a map or mask list holds for this task: lists go round by local task number."""
    entries = [entry for entry in environment.get(name, "").split(",") if entry]
    try:
        entry = entries[int(environment.get("SLURM_LOCALID", "0")) % len(entries)]
        if kind.startswith("mask"):
            return parsers.parse_map(entry.encode())
        return (abs(int(entry, 0)),) if kind.startswith("map") else None
    except (ValueError, ZeroDivisionError, ParseError):
        return None


def _open_mpi(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    name = "OMPI_MCA_hwloc_base_binding_policy"
    if environment.get(name, "none") not in ("", "none"):
        yield Binder(
            "Open MPI",
            _shown(environment, name),
            source,
            Role.LAUNCH,
            off=("any", "mpirun --bind-to none …"),
        )


# An affinity type in KMP_AFFINITY; without one the variable only sets modifiers.
_KMP_TYPES = ("compact", "scatter", "balanced", "explicit", "physical", "logical")
_PROCLIST = re.compile(r"proclist=\[([^\]]*)\]")


def _openmp(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    value = environment.get("KMP_AFFINITY", "").lower()
    if any(kind in value for kind in _KMP_TYPES):
        proclist = _PROCLIST.search(value)
        yield Binder(
            "Intel/LLVM OpenMP",
            _shown(environment, "KMP_AFFINITY"),
            source,
            Role.THREADS,
            cpus=_ids(proclist[1].translate(_BRACES)) if proclist else None,
            off=("any", "unset KMP_AFFINITY"),
        )
    if value := environment.get("GOMP_CPU_AFFINITY", ""):
        yield Binder(
            "GNU OpenMP",
            _shown(environment, "GOMP_CPU_AFFINITY"),
            source,
            Role.THREADS,
            cpus=parse_strided(value),
            off=("any", "unset GOMP_CPU_AFFINITY"),
        )
    bind, places = environment.get("OMP_PROC_BIND", ""), environment.get("OMP_PLACES", "")
    if bind.lower() != "false" and (bind or places):
        yield Binder(
            "OpenMP",
            _shown(environment, "OMP_PROC_BIND", "OMP_PLACES"),
            source,
            Role.THREADS,
            cpus=parse_places(places),
            off=("any", "unset OMP_PROC_BIND OMP_PLACES"),
        )


_BRACES = str.maketrans("{}", "  ")
_STRIDED = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?")


def parse_strided(text: str) -> Ids | None:
    """The CPUs of GOMP_CPU_AFFINITY: ``0-14:2 16`` takes every second from 0 to 14, then 16.

    None where a part is not of that form.
    """
    found: set[int] = set()
    for part in text.replace(",", " ").split():
        match = _STRIDED.fullmatch(part)
        if not match:
            return None
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if step == 0 or last > parsers.MAX_ID:
            return None
        found.update(range(first, last + 1, step))
    return tuple(sorted(found)) or None


_INTERVAL = re.compile(r"(\d{1,6})(?::(\d{1,6})(?::(\d{1,6}))?)?")
_PLACES = re.compile(r"\{([^{}]*)\}(?::(\d{1,6})(?::(\d{1,6}))?)?")


def parse_places(text: str) -> Ids | None:
    """All CPUs of an explicit OMP_PLACES: ``{0:4}:2:8`` is 0-3 and 8-11.

    None for the abstract names (cores, sockets, numa_domains), for exclusions and
    for what is not of that form. Source: OpenMP 5.2, section 21.1.6.
    """
    found: set[int] = set()
    rest = text.replace(" ", "")
    while rest:
        match = _PLACES.match(rest)
        if not match:
            return None
        place = _place(match[1])
        if place is None:
            return None
        # Without a stride the places follow one another.
        count, step = int(match[2] or 1), int(match[3] or len(place))
        if count > parsers.MAX_ID or count * len(place) > parsers.MAX_ID:
            return None
        found.update(cpu + step * number for number in range(count) for cpu in place)
        rest = rest[match.end() :]
        if rest and not rest.startswith(","):
            return None
        rest = rest[1:]
    return tuple(sorted(found)) or None


def _place(text: str) -> set[int] | None:
    """The CPUs between the braces of one place."""
    found: set[int] = set()
    for part in text.split(","):
        match = _INTERVAL.fullmatch(part)
        if not match or int(match[2] or 1) > parsers.MAX_ID:
            return None
        first, count, step = int(match[1]), int(match[2] or 1), int(match[3] or 1)
        found.update(first + step * number for number in range(count))
    return found


def _tensorrt_llm(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    name = "TLLM_NUMA_AWARE_WORKER_AFFINITY"
    # Any other value than 1 leaves the mask as it is; unset: see from_engine.
    if environment.get(name) == "1":
        yield Binder(
            "TensorRT-LLM",
            _shown(environment, name),
            source,
            Role.REWRITE,
            off=("any", f"export {name}=0"),
        )


def _sglang(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    name = "SGLANG_SET_CPU_AFFINITY"
    if _is_on(environment.get(name)):
        yield Binder(
            "SGLang", _shown(environment, name), source, Role.REWRITE, off=("any", f"unset {name}")
        )


def _vllm(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    name = "VLLM_CPU_OMP_THREADS_BIND"
    value = environment.get(name, "nobind")
    # all and nobind leave the threads alone; auto picks by node.
    if value not in ("", "all", "nobind"):
        yield Binder(
            "vLLM (CPU)",
            _shown(environment, name),
            source,
            Role.REWRITE,
            cpus=_ids(value.replace("|", ",")),
            off=("any", f"export {name}=nobind"),
        )


def _lightllm(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    name = "LIGHTLLM_ENABLE_NUMA_INTERLEAVE"
    if _is_on(environment.get(name)):
        yield Binder(
            "LightLLM", _shown(environment, name), source, pool=True, off=("any", f"unset {name}")
        )


def _nccl(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    name = "NCCL_IGNORE_CPU_AFFINITY"
    if environment.get(name, "0") not in ("", "0"):
        yield Binder(
            "NCCL", _shown(environment, name), source, Role.HELPERS, off=("any", f"unset {name}")
        )


# Long and short options of numactl that take a list: CPUs, nodes whose CPUs are
# meant, memory nodes.
_NUMACTL_CPUS = ("--physcpubind", "-C")
_NUMACTL_CPU_NODES = ("--cpunodebind", "-N", "--cpubind", "-c")
_NUMACTL_NODES = (
    *("--membind", "-m", "--interleave", "-i", "--weighted-interleave", "-w"),
    *("--preferred", "-p", "--preferred-many", "-P"),
)
_NUMACTL_LOCAL = ("--localalloc", "-l")
_NUMACTL_OTHERS = (
    *("--offset", "-o", "--length", "-L", "--shm", "-S", "--shmmode", "-M"),
    *("--shmid", "-I", "--file", "-f"),
)
_NUMACTL_VALUES = frozenset(
    (*_NUMACTL_CPUS, *_NUMACTL_CPU_NODES, *_NUMACTL_NODES, *_NUMACTL_OTHERS)
)


def from_argv(argv: Sequence[str], source: str) -> Iterator[Binder]:
    """The wrappers in a command line, those inside a ``sh -c`` text too."""
    words = [word.strip("'\"") for argument in argv for word in argument.split()]
    for position, word in enumerate(words):
        program = word.rpartition("/")[2]
        if program in _WRAPPERS:
            yield from _WRAPPERS[program](words[position + 1 :], source)


def _numactl_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options and their values up to the command that is wrapped."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 1
        name, equals, value = word.partition("=")
        if not equals and not word.startswith("--") and len(word) > 2:
            name, value = word[:2], word[2:]
        elif not equals and name in _NUMACTL_VALUES and position < len(words):
            value = words[position]
            position += 1
        yield name, value


def _numactl(words: Sequence[str], source: str) -> Iterator[Binder]:
    for name, value in _numactl_options(words):
        option = f"{name}{'=' if name.startswith('--') else ' '}{value}" if value else name
        setting = f"numactl {option}"
        if name in (*_NUMACTL_CPUS, *_NUMACTL_CPU_NODES):
            yield Binder(
                "numactl",
                setting,
                source,
                Role.LAUNCH,
                cpus=_ids(value) if name in _NUMACTL_CPUS else None,
                cpu_nodes=_ids(value) if name in _NUMACTL_CPU_NODES else None,
                off=("numactl", f"leave out {option}"),
            )
        if name in (*_NUMACTL_NODES, *_NUMACTL_LOCAL):
            yield Binder(
                "numactl",
                setting,
                source,
                memory=True,
                nodes=_ids(value) if name in _NUMACTL_NODES else None,
                off=("numactl", f"leave out {option}"),
            )


def _taskset(words: Sequence[str], source: str) -> Iterator[Binder]:
    lists = False
    for word in words:
        if word.startswith("-"):
            lists = lists or word == "--cpu-list" or (word[1:2] != "-" and "c" in word)
            continue
        try:
            cpus = parsers.parse_list(word.encode()) if lists else parsers.parse_map(word.encode())
        except ParseError:
            return
        yield Binder(
            "taskset",
            f"taskset {'-c ' if lists else ''}{word}",
            source,
            Role.LAUNCH,
            cpus=cpus,
            off=("any", "leave taskset out"),
        )
        return


_WRAPPERS: dict[str, Callable[[Sequence[str], str], Iterator[Binder]]] = {
    "numactl": _numactl,
    "taskset": _taskset,
}


def from_engine(
    argv: Sequence[str], environment: Mapping[str, str], source: str
) -> Iterator[Binder]:
    """What the engine whose command line this is does of itself, or is told by its options."""
    line = " ".join(argv)
    if "trtllm" in line or "tensorrt_llm" in line:
        yield from _engine_tensorrt_llm(environment, source)
    if "sglang" in line:
        yield from _engine_sglang(argv, environment, source)
    if "--numa-bind" in argv:
        yield from _engine_vllm(argv, source)
    for program, option in (("torch", "--numa-binding"), ("llama", "--numa")):
        if program in line and (values := _values(argv, option)):
            yield from _engine_other(option, values[0], source)


def _values(argv: Sequence[str], option: str) -> list[str]:
    """The values after ``option``, or behind its ``=``, up to the next option."""
    for position, word in enumerate(argv):
        if word.startswith(f"{option}="):
            return [word.partition("=")[2]]
        if word == option:
            following = [*argv[position + 1 :], "-"]
            end = next(i for i, value in enumerate(following) if value.startswith("-"))
            return following[:end]
    return []


def _engine_tensorrt_llm(environment: Mapping[str, str], source: str) -> Iterator[Binder]:
    name = "TLLM_NUMA_AWARE_WORKER_AFFINITY"
    if name not in environment:
        yield Binder(
            "TensorRT-LLM",
            f"{name} is not set",
            source,
            Role.CLEAR,
            off=("any", f"export {name}=0"),
        )


def _engine_sglang(
    argv: Sequence[str], environment: Mapping[str, str], source: str
) -> Iterator[Binder]:
    if nodes := _values(argv, "--numa-node"):
        yield Binder(
            "SGLang",
            f"--numa-node {' '.join(nodes)}",
            source,
            Role.REWRITE,
            memory=True,
            cpu_nodes=_ids(" ".join(nodes)),
            nodes=_ids(" ".join(nodes)),
            off=("sglang", "leave out --numa-node"),
        )
    elif _is_on(environment.get("SGLANG_AUTO_NUMA_BIND", "1")):
        yield Binder(
            "SGLang",
            "binds each worker by its GPU (SGLANG_AUTO_NUMA_BIND)",
            source,
            Role.YIELD,
            off=("sglang", "SGLANG_AUTO_NUMA_BIND=0"),
        )


def _engine_vllm(argv: Sequence[str], source: str) -> Iterator[Binder]:
    nodes = _ids(" ".join(_values(argv, "--numa-bind-nodes")))
    cpus = _ids(" ".join(_values(argv, "--numa-bind-cpus")))
    words = ["--numa-bind"]
    for option in ("--numa-bind-nodes", "--numa-bind-cpus"):
        if values := _values(argv, option):
            words += [option, *values]
    yield Binder(
        "vLLM",
        " ".join(words),
        source,
        Role.REWRITE if nodes or cpus else Role.YIELD,
        memory=bool(nodes or cpus),
        cpus=cpus,
        cpu_nodes=None if cpus else nodes,
        nodes=nodes,
        off=("vllm", "leave out --numa-bind"),
    )


def _engine_other(option: str, value: str, source: str) -> Iterator[Binder]:
    # torchrun --numa-binding=node|socket|exclusive|core-complex; llama.cpp
    # --numa distribute|isolate (numactl there means: leave it to numactl).
    name = "torchrun" if option == "--numa-binding" else "llama.cpp"
    if value not in ("numactl", "none"):
        yield Binder(
            name,
            f"{option} {value}",
            source,
            Role.REWRITE,
            off=("any", f"leave out {option} {value}"),
        )
