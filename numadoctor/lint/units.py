"""systemd units with their drop-ins, and Quadlet's containers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from numadoctor.lint.compose import environment, security_option
from numadoctor.lint.lines import Setting
from numadoctor.lint.nodes import Sequence, Word
from numadoctor.lint.shell import Command, expanded
from numadoctor.lint.variables import filled, split_words
from numadoctor.lint.workloads import Workload, commands_of, understood

# Characters before a command that change how it is run (systemd.service(5)).
_COMMAND_PREFIXES = "@-:+!|"

# What stands alone between commands of one line, and is put behind the last.
_END = Word("", 0, 0, ";")


@dataclass(frozen=True)
class Unit:
    """A unit's settings, those of its drop-ins behind its own.

    :ivar name: ``vllm.service``
    :ivar variables: those of its environment files that are at hand
    :ivar slices: those that it is in, as far as they are at hand: what they allow holds for it
    """

    name: str
    settings: tuple[Setting, ...]
    variables: Mapping[str, Word] = field(default_factory=dict)
    slices: "tuple[Unit, ...]" = ()

    def values(self, name: str) -> list[Setting]:
        """The assignments to a setting since the last empty one, which starts a list anew."""
        found: list[Setting] = []
        for setting in self.settings:
            if setting.name.text == name:
                found = [*found, setting] if setting.value.text else []
        return found

    def last(self, name: str) -> Setting | None:
        """The assignment that counts where one counts."""
        found = self.values(name)
        return found[-1] if found else None

    def has(self, section: str) -> bool:
        """Whether it has a section with settings."""
        return any(setting.section == section for setting in self.settings)


def commands_of_unit(unit: Unit) -> Iterator[Command]:
    """The commands of ``ExecStart=``, variables whose values are known put in.

    :raises Refused: a quote in one does not end
    """
    variables = environment_of(unit)
    for setting in unit.values("ExecStart"):
        place = setting.value
        raw = setting.raw.lstrip(_COMMAND_PREFIXES)
        column = place.column + len(setting.raw) - len(raw)
        words = [*split_words(raw, place.file, place.line, column), _END]
        while words:
            end = next(n for n, word in enumerate(words) if word.text == ";" and not word.style)
            if command := tuple(_as_instance(unit, filled(words[:end], variables))):
                yield from expanded(Command(command))
            words = words[end + 1 :]


def _as_instance(unit: Unit, words: Iterable[Word]) -> Iterator[Word]:
    for word in words:
        text = as_instance(unit.name, word.text)
        yield Word(word.file, word.line, word.column, text, word.style)


def as_instance(name: str, text: str) -> str:
    """A text with the instance's name where ``%i`` stands; a template has none."""
    instance = name.rpartition(".")[0].partition("@")[2]
    if not instance:
        return text
    return text.replace("%i", instance).replace("%I", instance.replace("-", "/"))


def environment_of(unit: Unit) -> dict[str, Word]:
    """The variables of a unit; those of environment files hold (systemd.exec(5)).

    :raises Refused: a quote in one does not end
    """
    return {**_environment(unit.values("Environment")), **unit.variables}


def _environment(settings: Iterable[Setting]) -> dict[str, Word]:
    words = []
    for setting in settings:
        words += _split(setting)
    return environment(Sequence("", 0, 0, list(words)))


def _split(setting: Setting) -> list[Word]:
    place = setting.value
    return split_words(setting.raw, place.file, place.line, place.column)


def workloads(unit: Unit) -> list[Workload]:
    """What a unit starts: its process, or its container."""
    name = f"unit {unit.name}"
    start = unit.last("ExecStart")
    if unit.has("Container"):
        return [understood(name, "quadlet", unit.settings[0].name, partial(_container, unit))]
    if start is None and not unit.has("Service"):
        return []
    at = start.value if start else unit.settings[0].name
    return [understood(name, "systemd", at, partial(_process, unit, at))]


def _process(unit: Unit, at: Word) -> Workload:
    limit = unit.last("LimitMEMLOCK")
    memlock = None
    if limit:
        place, soft = limit.value, limit.value.text.partition(":")[0]
        memlock = Word(place.file, place.line, place.column, soft)
    return Workload(
        name=f"unit {unit.name}",
        launcher="systemd",
        at=at,
        commands=tuple(commands_of_unit(unit)),
        environment=environment_of(unit),
        memlock=memlock,
    )


def _container(unit: Unit) -> Workload:
    def word(name: str) -> Word | None:
        setting = unit.last(name)
        return setting.value if setting else None

    options = [word for setting in unit.values("PodmanArgs") for word in _split(setting)]
    command = unit.last("Exec")
    seccomp = word("SeccompProfile")
    return Workload(
        name=f"unit {unit.name}",
        launcher="quadlet",
        at=word("Image") or unit.settings[0].name,
        commands=commands_of(_split(command)) if command else (),
        environment=environment_of(unit),
        image=word("Image"),
        privileged=_option(options, "--privileged"),
        added=_words(unit.values("AddCapability")),
        dropped=_words(unit.values("DropCapability")),
        seccomp=seccomp or security_option(_all(options, "--security-opt")),
        cpus=_option(options, "--cpuset-cpus"),
        mems=_option(options, "--cpuset-mems"),
        shm=word("ShmSize") or _option(options, "--shm-size"),
        ipc=_option(options, "--ipc"),
        memlock=_memlock(unit.values("Ulimit")),
        devices=_words(unit.values("AddDevice")),
        gpus=next((d for d in _words(unit.values("AddDevice")) if "nvidia.com" in d.text), None),
    )


def _words(settings: Iterable[Setting]) -> tuple[Word, ...]:
    return tuple(
        Word(setting.value.file, setting.value.line, setting.value.column, text)
        for setting in settings
        for text in setting.value.text.split()
    )


def _all(options: list[Word], name: str) -> list[Word]:
    found = [
        Word(word.file, word.line, word.column, word.text.partition("=")[2], "'")
        for word in options
        if word.text.startswith(f"{name}=")
    ]
    return found + [after for word, after in pairwise(options) if word.text == name]


def _option(options: list[Word], name: str) -> Word | None:
    if name == "--privileged":
        return next((word for word in options if word.text in (name, f"{name}=true")), None)
    found = _all(options, name)
    return found[-1] if found else None


def _memlock(settings: Iterable[Setting]) -> Word | None:
    for setting in settings:
        name, _, value = setting.value.text.partition("=")
        if name == "memlock":
            place = setting.value
            return Word(place.file, place.line, place.column, value.partition(":")[0])
    return None
