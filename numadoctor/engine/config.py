"""Settings of a site: numadoctor.toml, or the table [tool.numadoctor] of a pyproject.toml."""

import os
from collections.abc import Callable, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from numadoctor.engine.exitcodes import FAIL_ON
from numadoctor.engine.files import BadFile, read_text
from numadoctor.engine.thresholds import set_thresholds
from numadoctor.engine.waivers import Waiver
from numadoctor.model import ParseError, Severity

T = TypeVar("T")

NAMES = ("numadoctor.toml", ".numadoctor.toml", "pyproject.toml")
_PYPROJECT = "pyproject.toml"


class Config(NamedTuple):
    """The settings of one file; those that it does not name are the defaults.

    :ivar file: where they were read, or empty
    :ivar fail_on: one of FAIL_ON, or empty where the file does not say
    :ivar severities: id or name of a check to the severity that it has here
    :ivar thresholds: what ``numadoctor.engine.thresholds`` is to use instead of its own figures
    """

    file: str = ""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = ""
    strict: bool = False
    severities: Mapping[str, Severity] = MappingProxyType({})
    thresholds: Mapping[str, float] = MappingProxyType({})
    waivers: tuple[Waiver, ...] = ()


def find_config() -> str | None:
    """The file of settings that is nearest to the current folder, there or above.

    The search ends at the top of a repository: what lies above is another project.
    """
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        return None
    while True:
        for name in NAMES:
            file = os.path.join(folder, name)
            if os.path.isfile(file) and (name != _PYPROJECT or _mentions_us(file)):
                return os.path.relpath(file)
        above = os.path.dirname(folder)
        if above == folder or os.path.exists(os.path.join(folder, ".git")):
            return None
        folder = above


def _mentions_us(file: str) -> bool:
    # Somebody else's file: that it is broken is not for numadoctor to tell.
    try:
        text = read_text(file)
        return "numadoctor" in text and "numadoctor" in _parse(file, text).get("tool", {})
    except (BadFile, TypeError):
        return False


def read_config(file: str) -> Config:
    """The settings in ``file``.

    :raises BadFile: it cannot be read, or holds what makes no sense; names the key
    """
    data = _parse(file, read_text(file))
    if os.path.basename(file) != _PYPROJECT:
        return _Reader(file).config(data, "")
    tools = data.get("tool")
    if not isinstance(tools, dict) or "numadoctor" not in tools:
        raise BadFile(file, "has no table [tool.numadoctor]")
    return _Reader(file).config(tools["numadoctor"], "tool.numadoctor")


def _parse(file: str, text: str) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data: dict[str, Any] = tomllib.loads(text)
        return data
    except (ValueError, RecursionError) as error:
        raise BadFile(file, f"not TOML: {error}") from None


class _Reader:
    """Takes tables apart; what is wrong is told with its key."""

    def __init__(self, file: str) -> None:
        self.file = file

    def config(self, data: object, place: str) -> Config:
        read: dict[str, Callable[[object, str], Any]] = {
            "select": self.words,
            "ignore": self.words,
            "fail-on": self.fail_on,
            "strict": self.flag,
            "severities": self.severities,
            "thresholds": self.thresholds,
            "waivers": self.waivers,
        }
        table = self.table(data, place, read)
        return Config(self.file, **{key.replace("-", "_"): value for key, value in table.items()})

    def wrong(self, place: str, expected: str, found: object = None) -> BadFile:
        shown = "" if found is None else f", not {_shown(found)}"
        return BadFile(self.file, f"{place or 'settings'}: {expected}{shown}")

    def table(
        self, data: object, place: str, read: Mapping[str, Callable[[object, str], T]]
    ) -> dict[str, T]:
        """What ``read`` makes of each key's value; a key that it lacks is wrong."""
        values = {}
        for key, value in self.pairs(data, place).items():
            inside = f"{place}.{key}" if place else key
            if key not in read:
                raise self.wrong(_shown_key(inside), _no_such_key(key, read))
            values[key] = read[key](value, inside)
        return values

    def pairs(self, data: object, place: str) -> dict[str, object]:
        if not isinstance(data, dict):
            raise self.wrong(place, "a table is expected", data)
        return data

    def text(self, value: object, place: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(place, "text is expected", value)
        return value

    def flag(self, value: object, place: str) -> bool:
        if not isinstance(value, bool):
            raise self.wrong(place, "true or false is expected", value)
        return value

    def words(self, value: object, place: str) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.wrong(place, "a list of ids, family letters or names is expected", value)
        return tuple(self.text(word, f"{place}[{n}]") for n, word in enumerate(value))

    def fail_on(self, value: object, place: str) -> str:
        if value not in FAIL_ON:
            raise self.wrong(place, f"one of {', '.join(FAIL_ON)} is expected", value)
        return str(value)

    def severities(self, value: object, place: str) -> Mapping[str, Severity]:
        return MappingProxyType(
            {
                check: self.severity(word, _shown_key(f"{place}.{check}"))
                for check, word in self.pairs(value, place).items()
            }
        )

    def severity(self, value: object, place: str) -> Severity:
        try:
            return Severity(value)
        except ValueError:
            known = ", ".join(severity.value for severity in Severity)
            raise self.wrong(place, f"one of {known} is expected", value) from None

    def thresholds(self, value: object, place: str) -> Mapping[str, float]:
        try:
            return set_thresholds(self.pairs(value, place))
        except ParseError as error:
            raise self.wrong(place, str(error)) from None

    def waivers(self, value: object, place: str) -> tuple[Waiver, ...]:
        if not isinstance(value, list):
            raise self.wrong(place, "tables [[waivers]] are expected", value)
        return tuple(self.waiver(entry, f"{place}[{n}]") for n, entry in enumerate(value))

    def waiver(self, data: object, place: str) -> Waiver:
        read: dict[str, Callable[[object, str], Any]] = {
            "id": self.text,
            "subject": self.text,
            "host": self.text,
            "reason": self.text,
            "expires": self.day,
        }
        values = self.table(data, place, read)
        for key, why in (("id", "a check"), ("reason", "why it is accepted")):
            if key not in values:
                raise self.wrong(f"{place}.{key}", f"is missing: {why} is expected")
        return Waiver(**values)

    def day(self, value: object, place: str) -> date:
        # A time of day is a date to Python as well.
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        try:
            return date.fromisoformat(value if isinstance(value, str) else "")
        except ValueError:
            raise self.wrong(place, "a day is expected (2027-01-31)", value) from None


def _no_such_key(key: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, known, 1)
    return f"no such key: did you mean {near[0]}?" if near else f"no such key; {', '.join(known)}"


def _shown_key(key: str) -> str:
    return key if key.isprintable() and len(key) < 100 else repr(key[:100])


def _shown(value: object) -> str:
    text = value.isoformat() if isinstance(value, date) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
