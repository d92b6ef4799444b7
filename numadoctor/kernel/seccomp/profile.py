"""Seccomp profiles as files: Docker's form, the OCI runtime's form, and a whole config.json.

Go's readers of these files take keys in any case and ignore those they do not
know; so does this one.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from numadoctor.kernel.seccomp.actions import Action
from numadoctor.kernel.seccomp.position import Step, position

LONGEST: Final = 4 << 20
"""Bytes of a file that is read; Docker's profile has 13 KiB, a config.json less than 100."""

_MOST_DIGITS: Final = 20  # of a number below 2^64

_ACTIONS: Final = {
    "SCMP_ACT_ALLOW": Action.ALLOW,
    "SCMP_ACT_ERRNO": Action.ERRNO,
    "SCMP_ACT_KILL": Action.KILL_THREAD,
    "SCMP_ACT_KILL_PROCESS": Action.KILL_PROCESS,
    "SCMP_ACT_KILL_THREAD": Action.KILL_THREAD,
    "SCMP_ACT_LOG": Action.LOG,
    "SCMP_ACT_NOTIFY": Action.NOTIFY,
    "SCMP_ACT_TRACE": Action.TRACE,
    "SCMP_ACT_TRAP": Action.TRAP,
}

OPERATORS: Final = ("EQ", "NE", "LT", "LE", "GT", "GE", "MASKED_EQ")


class ProfileError(ValueError):
    """A profile that no container engine would take.

    :ivar steps: the way to the faulty value, empty for the whole file
    :ivar line: of the faulty value, from 1; 0 where the text is not known
    :ivar column: from 1
    """

    def __init__(self, reason: str, steps: tuple[Step, ...] = (), text: str = "") -> None:
        self.reason, self.steps = reason, steps
        self.line, self.column = position(text, steps) if text else (0, 0)
        super().__init__(reason)

    def __str__(self) -> str:
        where = f"line {self.line} column {self.column}: " if self.line else ""
        return f"{where}{path_text(self.steps)}{': ' if self.steps else ''}{self.reason}"


@dataclass(frozen=True)
class Condition:
    """What an argument must be for a rule to apply.

    :ivar index: of the argument, from 0
    :ivar operator: one of ``OPERATORS``
    :ivar value: what it is compared with; the mask of MASKED_EQ
    :ivar value_two: what the masked argument is compared with
    """

    index: int
    operator: str
    value: int
    value_two: int = 0


@dataclass(frozen=True)
class Filter:
    """When a rule of Docker's form counts: ``includes`` or ``excludes``."""

    capabilities: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    min_kernel: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Rule:
    """One entry of ``syscalls``.

    :ivar place: in the list, from 0
    :ivar names: of ``names``; ``name`` of the old form stands in ``old_name``
    :ivar errno: ``errnoRet``; None where there is none
    :ivar errno_name: ``errno`` of podman's form
    """

    place: int
    names: tuple[str, ...]
    old_name: str
    action: Action
    errno: int | None
    errno_name: str
    conditions: tuple[Condition, ...]
    includes: Filter
    excludes: Filter


@dataclass(frozen=True)
class Profile:
    """A profile as it is written, whatever is made of it.

    :ivar default: ``defaultAction``; None where there is none
    :ivar default_errno: ``defaultErrnoRet``
    :ivar default_errno_name: ``defaultErrno`` of podman's form
    :ivar architectures: ``architectures``
    :ivar arch_map: ``archMap``: architecture, and those that come with it
    :ivar listener: ``listenerPath``, who is asked about NOTIFY
    :ivar capabilities: of a config.json the bounding set, else None
    :ivar steps: the way to the profile in the file; () unless that is a config.json
    """

    default: Action | None
    default_errno: int | None
    default_errno_name: str
    architectures: tuple[str, ...]
    arch_map: tuple[tuple[str, tuple[str, ...]], ...]
    rules: tuple[Rule, ...]
    listener: str = ""
    capabilities: tuple[str, ...] | None = None
    steps: tuple[Step, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether it asks for no filter at all."""
        return self.default is None and not self.rules


def path_text(steps: tuple[Step, ...]) -> str:
    """The way to a value as people write it: ``syscalls[3].action``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.lstrip(".")


def parse_profile(content: bytes) -> Profile:
    """The profile in a file.

    :raises ProfileError: with the position of what is wrong
    """
    if len(content) > LONGEST:
        raise ProfileError(f"larger than {LONGEST >> 20} MiB: no seccomp profile")
    try:
        text = content.decode("utf-8-sig")
        data = json.loads(text, parse_int=_integer, parse_constant=_constant)
    except UnicodeDecodeError as error:
        raise ProfileError(f"byte {error.start}: not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _syntax(error) from None
    except RecursionError:
        raise ProfileError("nested too deeply") from None
    except ValueError as error:
        raise ProfileError(str(error)) from None
    try:
        return profile_of(data)
    except ProfileError as error:
        raise ProfileError(error.reason, error.steps, text) from None


def _syntax(error: json.JSONDecodeError) -> ProfileError:
    told = ProfileError(f"not JSON: {error.msg}")
    told.line, told.column = error.lineno, error.colno
    return told


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS + 1:  # and a sign
        raise ValueError(f"not JSON of a profile: a number of {len(digits)} digits")
    return int(digits)


def _constant(name: str) -> float:
    raise ValueError(f"not JSON: {name}")


def profile_of(data: Any) -> Profile:
    """The profile in what a JSON (or YAML) reader returned.

    :raises ProfileError: with the way to what is wrong
    """
    top = _Reader(data, ())
    seccomp, capabilities = top, None
    if top.has("linux") and not top.has("defaultAction"):
        seccomp = top.object("linux").object("seccomp")
        bounding = top.object("process").object("capabilities")
        if bounding.has("bounding"):
            capabilities = bounding.strings("bounding")
        if not seccomp.fields:
            nothing = Profile(None, None, "", (), (), (), capabilities=capabilities)
            return replace(nothing, steps=seccomp.steps)
    elif not any(map(top.has, ("defaultAction", "syscalls", "architectures", "archMap"))):
        raise ProfileError("no seccomp profile: neither defaultAction nor syscalls")
    rules = tuple(_rule(place, reader) for place, reader in enumerate(seccomp.objects("syscalls")))
    arch_map = tuple(
        (entry.string("architecture"), entry.strings("subArchitectures"))
        for entry in seccomp.objects("archMap")
    )
    if seccomp.strings("architectures") and arch_map:
        raise ProfileError("'architectures' and 'archMap' exclude each other", seccomp.steps)
    return Profile(
        default=seccomp.action("defaultAction") if seccomp.string("defaultAction") else None,
        default_errno=seccomp.unsigned("defaultErrnoRet"),
        default_errno_name=seccomp.string("defaultErrno"),
        architectures=seccomp.strings("architectures"),
        arch_map=arch_map,
        rules=rules,
        listener=seccomp.string("listenerPath"),
        capabilities=capabilities,
        steps=seccomp.steps,
    )


def _rule(place: int, reader: "_Reader") -> Rule:
    names, old_name = reader.strings("names"), reader.string("name")
    if names and old_name:
        raise ProfileError("'name' and 'names' exclude each other", reader.steps)
    return Rule(
        place=place,
        names=names,
        old_name=old_name,
        action=reader.action("action"),
        errno=reader.unsigned("errnoRet"),
        errno_name=reader.string("errno"),
        conditions=tuple(_condition(one) for one in reader.objects("args")),
        includes=_filter(reader.object("includes")),
        excludes=_filter(reader.object("excludes")),
    )


def _condition(reader: "_Reader") -> Condition:
    index = reader.unsigned("index") or 0
    if index > 5:
        raise ProfileError(f"argument {index}: calls have 6 at most", (*reader.steps, "index"))
    operator = reader.string("op")
    if operator.removeprefix("SCMP_CMP_") not in OPERATORS or not operator.startswith("SCMP_CMP_"):
        known = ", ".join(f"SCMP_CMP_{name}" for name in OPERATORS)
        raise ProfileError(
            f"unknown operator {operator[:40]!r} (known: {known})", (*reader.steps, "op")
        )
    return Condition(
        index,
        operator.removeprefix("SCMP_CMP_"),
        reader.unsigned("value") or 0,
        reader.unsigned("valueTwo") or 0,
    )


def _filter(reader: "_Reader") -> Filter:
    version = reader.string("minKernel")
    parts = version.partition("-")[0].split(".") if version else []
    if not all(part.isascii() and part.isdigit() and len(part) < 7 for part in parts):
        raise ProfileError(f"bad kernel version {version[:40]!r}", (*reader.steps, "minKernel"))
    return Filter(
        reader.strings("caps"), reader.strings("arches"), tuple(map(int, parts)) if parts else None
    )


class _Reader:
    """An object of the file, its fields by their names in lower case."""

    def __init__(self, data: Any, steps: tuple[Step, ...]) -> None:
        if not isinstance(data, Mapping | None):
            raise ProfileError(f"is {_kind(data)}, not an object", steps)
        self.steps = steps
        self.fields = {str(key).lower(): (str(key), value) for key, value in (data or {}).items()}

    def has(self, name: str) -> bool:
        return self._value(name) is not None

    def _value(self, name: str) -> Any:
        return self.fields.get(name.lower(), (name, None))[1]

    def _steps(self, name: str) -> tuple[Step, ...]:
        return (*self.steps, self.fields.get(name.lower(), (name, None))[0])

    def _wrong(self, name: str, wanted: str) -> ProfileError:
        return ProfileError(f"is {_kind(self._value(name))}, not {wanted}", self._steps(name))

    def string(self, name: str) -> str:
        value = self._value(name)
        if not isinstance(value, str | None):
            raise self._wrong(name, "a string")
        return value or ""

    def strings(self, name: str) -> tuple[str, ...]:
        value = self._value(name)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(one, str) for one in value)
        ):
            raise self._wrong(name, "a list of strings")
        return tuple(value or ())

    def unsigned(self, name: str) -> int | None:
        value = self._value(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
            raise self._wrong(name, "a number from 0 to 2^64 - 1")
        return value

    def action(self, name: str) -> Action:
        value = self.string(name)
        if value not in _ACTIONS:
            known = ", ".join(_ACTIONS)
            raise ProfileError(f"unknown action {value[:40]!r} (known: {known})", self._steps(name))
        return _ACTIONS[value]

    def object(self, name: str) -> "_Reader":
        return _Reader(self._value(name), self._steps(name))

    def objects(self, name: str) -> Iterator["_Reader"]:
        value = self._value(name)
        if not isinstance(value, list | None):
            raise self._wrong(name, "a list")
        for place, one in enumerate(value or ()):
            yield _Reader(one, (*self._steps(name), place))


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    for kind, name in ((Mapping, "an object"), (list, "a list"), (str, "a string")):
        if isinstance(value, kind):
            return name
    return f"{value}"[:30]
