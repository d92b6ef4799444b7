"""One picture of a process that a file starts, whoever starts it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from numadoctor.lint.nodes import Node, Refused, Word
from numadoctor.lint.shell import Command, expanded, parse_word

# How capabilities are written: with and without their prefix, in any case.
_PREFIX = "CAP_"


@dataclass(frozen=True)
class Workload:
    """A container, a unit's process or a command line, as a file declares it.

    :ivar name: what it is, in words that stay the same between runs
    :ivar launcher: docker, podman, quadlet, compose, kubernetes, systemd or shell
    :ivar at: where it begins
    :ivar commands: what it runs, as far as the file tells
    :ivar privileged: the word that makes it so
    :ivar added: capabilities, as written; dropped likewise
    :ivar seccomp: the profile: a path, ``unconfined``, ``RuntimeDefault`` or ``Localhost``
    :ivar profile: the path of a ``Localhost`` profile
    :ivar near: the file beside which relative paths begin, where not beside their own
    :ivar cpus: the list of CPUs that its cpuset holds; mems the nodes
    :ivar shm: the size of /dev/shm; ipc the namespace that holds it
    :ivar memlock: how much memory may be locked
    :ivar requests: resources by name; limits likewise (Kubernetes)
    :ivar gpus: what asks for GPUs
    :ivar runtime: the class or name of the container runtime
    :ivar devices: device files of the machine that it is given
    :ivar more: a word that stands for options which are not known
    :ivar detached: whether it runs beside the others of its file
    :ivar refused: why it could not be understood; then nothing else is told of it
    """

    name: str
    launcher: str
    at: Node
    commands: tuple[Command, ...] = ()
    environment: Mapping[str, Word] = field(default_factory=dict)
    image: Word | None = None
    privileged: Word | None = None
    added: tuple[Word, ...] = ()
    dropped: tuple[Word, ...] = ()
    seccomp: Word | None = None
    profile: Word | None = None
    near: str = ""
    cpus: Word | None = None
    mems: Word | None = None
    shm: Word | None = None
    ipc: Word | None = None
    memlock: Word | None = None
    requests: Mapping[str, Word] = field(default_factory=dict)
    limits: Mapping[str, Word] = field(default_factory=dict)
    gpus: Word | None = None
    runtime: Word | None = None
    devices: tuple[Word, ...] = ()
    more: Word | None = None
    detached: bool = True
    refused: Refused | None = None

    def __post_init__(self) -> None:
        # It stands in lines that are copied into files and shells: a name with several lines of
        # its own must not add one to them.
        object.__setattr__(self, "name", " ".join(self.name.split()))

    @property
    def container(self) -> bool:
        """Whether a container engine starts it."""
        return self.launcher in ("docker", "podman", "quadlet", "compose", "kubernetes")

    def has(self, name: str) -> bool:
        """Whether a capability outside of the default set is in its bounding set.

        :raises Undecided: what is added is filled in later
        """
        dropped = {capability(word.settled()) for word in self.dropped}
        added = {capability(word.settled()) for word in self.added}
        return name in added or ("ALL" in added and name not in dropped)

    def environ(self) -> dict[str, str]:
        """Variable to value, of the workload and of its last command; open ones left out."""
        merged = dict(self.environment)
        for command in self.commands:
            merged.update(command.environment)
        return {name: word.text for name, word in merged.items() if not word.open}


def understood(name: str, launcher: str, at: Node, make: Callable[[], Workload]) -> Workload:
    """What ``make`` gives, or a workload of that name that says why it could not be."""
    try:
        return make()
    except Refused as error:
        told = Refused(f"the command: {error.reason}", error.line, error.column, error.hint)
        return Workload(name, launcher, at, refused=told)


def capability(text: str) -> str:
    """A capability as the kernel names it, without its prefix."""
    return text.strip().upper().removeprefix(_PREFIX)


def commands_of(words: Iterable[Word]) -> tuple[Command, ...]:
    """The commands of an argument vector, those of a ``sh -c`` in it.

    :raises Refused: a quote in a script does not end
    """
    vector = tuple(words)
    return tuple(expanded(Command(vector))) if vector else ()


def commands_in(word: Word) -> tuple[Command, ...]:
    """The commands of a command line that stands in one value.

    :raises Refused: a quote in it does not end
    """
    return tuple(one for command in parse_word(word) for one in expanded(command))
