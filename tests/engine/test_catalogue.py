"""Checks that are loaded when they may be wanted: whoever asks is answered as if all were."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.engine import Check, Scope, check
from numadoctor.engine.catalogue import Catalogue, Problem
from numadoctor.engine.discovery import discover
from numadoctor.engine.registry import FAMILIES
from numadoctor.engine.runner import MACHINE_SCOPES, UnknownSelection, select
from numadoctor.model import Finding, Target, passed

BUILT_IN = tuple(discover())
FILES = [Scope.FILE]


class Lazy(Catalogue):
    """The built-in checks as ``discover`` has them, and which families were loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        super().__init__({family: partial(self._of_family, family) for family in FAMILIES})

    def _of_family(self, family: str) -> list[Check]:
        self.loaded.append(family)
        return [check for check in BUILT_IN if check.family == family]


def eager() -> Catalogue:
    catalogue = Catalogue()
    catalogue.add(BUILT_IN)
    return catalogue


def body(host: Any, target: Target) -> Iterator[Finding]:
    yield passed("right")


def declare(id: str, name: str = "site-rule", scope: Scope = Scope.MACHINE) -> Check:
    return check(id, name=name, needs=("/proc/x",), scope=scope)(body)


# What is loaded.


@pytest.mark.parametrize(
    ("chosen", "ignored", "scopes", "loaded"),
    [
        ([], [], MACHINE_SCOPES, "TGKEP"),
        ([], [], FILES, "D"),
        ([], [], tuple(Scope), "TGKEPD"),
        (["K001"], [], MACHINE_SCOPES, "K"),
        (["p050", "E"], [], MACHINE_SCOPES, "EP"),
        (["K001"], [], tuple(Scope), "K"),
        (["numa-balancing"], [], MACHINE_SCOPES, "TGKEP"),
        (["K", "numa-balancing"], [], MACHINE_SCOPES, "TGKEP"),
        (["K"], ["K001", "k"], MACHINE_SCOPES, "K"),
        ([], ["K001"], FILES, "DK"),
        ([], ["D001"], MACHINE_SCOPES, "TGKEPD"),
        ([], ["numa-balancing"], FILES, "DTGKEP"),
    ],
)
def test_a_family_is_loaded_when_one_of_it_may_be_wanted(
    chosen: list[str], ignored: list[str], scopes: tuple[Scope, ...], loaded: str
) -> None:
    catalogue = Lazy()
    select(catalogue, chosen, ignored, scopes=scopes)
    assert "".join(catalogue.loaded) == loaded


def test_whoever_asks_for_all_gets_all_of_them_once() -> None:
    catalogue = Lazy()
    assert catalogue.of([Scope.MACHINE], ["T010"])
    assert catalogue.loaded == ["T"]
    assert tuple(catalogue) == BUILT_IN
    assert tuple(catalogue) == BUILT_IN
    assert catalogue.checks == {check.id: check for check in BUILT_IN}
    assert sorted(catalogue.loaded) == sorted(FAMILIES)


def test_an_id_is_taken_by_a_built_in_check_that_is_not_loaded() -> None:
    for owner in BUILT_IN:
        catalogue = Lazy()
        catalogue.add([declare(owner.id, "mine"), declare("X001", "other")])
        taken = f"check id {owner.id} is taken by {owner.name} of {owner.origin}"
        assert catalogue.problems == [Problem(__name__, taken)]
        assert catalogue.loaded == [owner.family]
        assert catalogue.checks[owner.id] is owner


def test_a_check_of_a_built_in_family_stands_beside_it() -> None:
    catalogue = Lazy()
    mine = declare("D999", "mine")
    catalogue.add([mine])
    assert mine in select(catalogue)
    assert {check.scope for check in select(catalogue)} == set(MACHINE_SCOPES)
    assert catalogue.problems == []
    assert select(catalogue, ["MINE"]) == [mine]


def test_a_name_that_two_checks_have_stands_for_both() -> None:
    catalogue = Lazy()
    mine, built_in = declare("X001", "numa-balancing"), eager().checks["K001"]
    catalogue.add([mine])
    assert select(catalogue, ["numa-balancing"]) == [built_in, mine]
    assert select(catalogue, ["X001", "K"], ["numa-balancing"]) == [
        check for check in BUILT_IN if check.family == "K" and check is not built_in
    ]


# Nobody can tell which were loaded.

WORDS = st.lists(
    st.sampled_from(
        [word for check in BUILT_IN for word in (check.id, check.name, check.id.lower())]
        + [*FAMILIES, *map(str.lower, FAMILIES), "X", "X001", "site-rule"]
    ).flatmap(lambda word: st.sampled_from([word, word, word.upper(), word[:-1], word + "x"]))
    | st.text(max_size=4),
    max_size=3,
)
SCOPES = st.sampled_from([MACHINE_SCOPES, (Scope.FILE,), tuple(Scope)]) | st.lists(
    st.sampled_from(Scope), min_size=1
).map(tuple)
PLUGINS = st.lists(
    st.builds(
        declare,
        st.sampled_from([check.id for check in BUILT_IN])
        | st.from_regex("[A-Z][0-9]{3}", fullmatch=True),
        st.sampled_from([check.name for check in BUILT_IN] + ["k", "d001", "site-rule"]),
        st.sampled_from(Scope),
    ),
    max_size=3,
)


def answer(
    catalogue: Catalogue,
    plugins: list[Check],
    chosen: list[str],
    ignored: list[str],
    scopes: tuple[Scope, ...],
) -> tuple[object, list[Problem]]:
    catalogue.add(plugins)
    try:
        return select(catalogue, chosen, ignored, scopes=scopes), catalogue.problems
    except UnknownSelection as error:
        return str(error), catalogue.problems


@given(plugins=PLUGINS, chosen=WORDS, ignored=WORDS, scopes=SCOPES)
def test_a_selection_is_the_same_as_of_all(
    plugins: list[Check], chosen: list[str], ignored: list[str], scopes: tuple[Scope, ...]
) -> None:
    asked = plugins, chosen, ignored, scopes
    assert answer(Lazy(), *asked) == answer(eager(), *asked)


@given(words=WORDS)
def test_a_word_is_found_where_any_check_has_it(words: list[str]) -> None:
    for word in words:
        found = Lazy().find(word)
        meant = [check for check in BUILT_IN if check.answers_to(word)]
        assert set(found) <= set(meant)
        assert bool(found) == bool(meant)
        assert any(c.is_called(word) for c in found) == any(c.is_called(word) for c in BUILT_IN)
