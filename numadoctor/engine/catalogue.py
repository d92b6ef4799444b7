"""All checks there are; those built in are loaded by family, when one of it may be wanted."""

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from numadoctor.engine.registry import FAMILIES, FILE_FAMILY, Check, Scope

_LETTER_OR_ID = re.compile(r"[A-Z]([0-9]{3})?")


class Problem(NamedTuple):
    """A source of checks that could not be used: where, and why, in one line."""

    origin: str
    reason: str


class Catalogue:
    """All checks, and what went wrong while they were gathered.

    :param built_in: letter of a family to what loads its built-in checks
    :ivar problems: in the order in which they were met
    """

    def __init__(
        self,
        built_in: Mapping[str, Callable[[], Iterable[Check]]] | None = None,
        problems: Iterable[Problem] = (),
    ) -> None:
        self.problems = list(problems)
        self._waiting = dict(built_in or {})
        self._checks: dict[str, Check] = {}

    def add(self, checks: Iterable[Check]) -> None:
        """Take over ``checks``; an id that is taken stays with its owner."""
        for check in checks:
            # The older right to an id is that of a built-in check, loaded or not.
            self._load(check.family)
            owner = self._checks.setdefault(check.id, check)
            if owner is not check and owner.function is not check.function:
                reason = f"check id {check.id} is taken by {owner.name} of {owner.origin}"
                self.problems.append(Problem(check.origin, reason))

    @property
    def checks(self) -> Mapping[str, Check]:
        """All of them by id."""
        self._load(*self._waiting)
        return self._checks

    def __iter__(self) -> Iterator[Check]:
        return iter(_by_id(self.checks.values()))

    def of(self, scopes: Container[Scope], words: Collection[str] = ()) -> list[Check]:
        """The checks of these scopes, in the order of their ids.

        :param words: ids, families and names of those that are wanted; all, if empty
        """
        families = _families_of_scopes(scopes)
        letters = [_family_of(word) for word in words]
        if words and all(letters):
            families = [family for family in families if family in letters]
        self._load(*families)
        return _by_id(
            check
            for check in self._checks.values()
            if check.scope in scopes and (not words or any(map(check.answers_to, words)))
        )

    def find(self, word: str) -> list[Check]:
        """Checks whose id, family or name ``word`` is: at least one, if there are any."""
        self._load(_family_of(word) or "")
        found = [check for check in self._checks.values() if check.answers_to(word)]
        return found or [check for check in self if check.answers_to(word)]

    def _load(self, *families: str) -> None:
        for family in families:
            if load := self._waiting.pop(family, None):
                self.add(load())


def _by_id(checks: Iterable[Check]) -> list[Check]:
    return sorted(checks, key=lambda check: check.id)


def _families_of_scopes(scopes: Container[Scope]) -> list[str]:
    """The families whose built-in checks may have one of these scopes."""
    others = any(scope in scopes for scope in Scope if scope is not Scope.FILE)
    return [f for f in FAMILIES if (Scope.FILE in scopes if f == FILE_FAMILY else others)]


def _family_of(word: str) -> str | None:
    """The family that an id or a letter tells; None for what must be a name, of any family."""
    return word[0].upper() if _LETTER_OR_ID.fullmatch(word.upper()) else None
