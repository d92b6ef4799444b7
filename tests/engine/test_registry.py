from collections.abc import Iterator
from typing import Any

import pytest

from numadoctor.engine import Check, Requires, Scope, check
from numadoctor.engine.registry import FAMILIES
from numadoctor.model import Finding, Severity, Target, passed


def body(host: Any, target: Target) -> Iterator[Finding]:
    """The summary.

    More about it.

    Why it matters
        First line
        second line.

            a block

    Source:
        mm/mempolicy.c
    """
    yield passed("right")


NEEDS = ("/proc/x",)


@pytest.mark.parametrize(
    "id",
    ["", "K1", "K01", "K0001", "k001", "001", "KK01", "K001 ", "K001\n", "Ķ001", "K٠٠١", "K-01"],
)
def test_a_bad_id_is_refused(id: str) -> None:
    with pytest.raises(ValueError, match=r"bad check id .*: a family letter and three digits"):
        check(id, name="x", needs=NEEDS)


@pytest.mark.parametrize("name", ["", "Numa", "a b", "a_b", "-a", "a-", "a--b", "a\n", "ä"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"bad check name .*: lower-case words"):
        check("K001", name=name, needs=NEEDS)


@pytest.mark.parametrize("needs", [(), "/proc/x", ("/",)])
def test_bad_needs_are_refused(needs: Any) -> None:
    with pytest.raises(ValueError, match="bad needs"):
        check("K001", name="x", needs=needs)


@pytest.mark.parametrize("family", [*FAMILIES, "X"])
def test_a_check_is_what_was_declared(family: str) -> None:
    declared = check(
        f"{family}999",
        name="two-words",
        needs=("/proc/x", "syscalls"),
        requires=Requires.NUMA,
        scope=Scope.PROCESS,
        severity=Severity.HIGH,
    )(body)
    assert isinstance(declared, Check)
    assert (declared.id, declared.name, declared.family) == (f"{family}999", "two-words", family)
    assert declared.needs == ("/proc/x", "syscalls")
    assert (declared.requires, declared.scope) == (Requires.NUMA, Scope.PROCESS)
    assert declared.severity is Severity.HIGH
    assert declared.function is body
    assert declared.origin == __name__


def test_what_is_left_out() -> None:
    declared = check("K001", name="x", needs=NEEDS)(body)
    assert (declared.requires, declared.scope) == (Requires.NOTHING, Scope.MACHINE)
    assert declared.severity is Severity.MEDIUM


def test_the_docstring_is_the_documentation() -> None:
    declared = check("K001", name="x", needs=NEEDS)(body)
    assert declared.summary == "The summary."
    assert declared.sections == {
        "More about it.": "",
        "Why it matters": "First line\nsecond line.\n\n    a block",
        "Source": "mm/mempolicy.c",
    }


def test_no_docstring_is_no_crash() -> None:
    def silent(host: Any, target: Target) -> Iterator[Finding]:
        yield passed("right")

    declared = check("K001", name="x", needs=NEEDS)(silent)
    assert (declared.summary, declared.sections) == ("", {})
