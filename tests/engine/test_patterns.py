import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from numadoctor.engine import patterns
from numadoctor.engine.patterns import LONGEST, NamePattern
from numadoctor.model import ParseError

T = TypeVar("T")

# Parts of which patterns are made that take forever, and others.
ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "(a|a)", "(a|ab|b)", "$", "^", "", "(?=a)", "(?<!b)"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "*?", "{2,9}", "{30}"])),
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("({})\\\\1*".format, inner),
    ),
    max_leaves=8,
)
# What anybody may call himself.
NAMES = st.builds(
    lambda part, times, end: part * times + end,
    st.sampled_from(["a", "ab", "aab", "b"]),
    st.integers(0, 3 * LONGEST),
    st.sampled_from(["", "!", "a", "c"]),
)


def told(ask: Callable[[], T]) -> T | str:
    """What ``ask`` gives, or the words of its error."""
    try:
        return ask()
    except ParseError as error:
        return str(error)


@settings(deadline=None, max_examples=60)
@given(PATTERNS, st.lists(NAMES, max_size=3))
@example("(a+)+$", ["a" * 100 + "!"])
@example("(a|a)*b", ["a" * 100])
@example("(.*a){25}$", ["a" * LONGEST + "!"])
def test_no_pattern_takes_longer_than_it_may(pattern: str, names: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "SECONDS", 0.05)
        begin = time.process_time()
        found = told(lambda: NamePattern(pattern).select({1: names}))
        assert time.process_time() - begin < 1
    assert found in ([], [1]) or "matching takes more than 0.05 s" in str(found)


@given(st.text(max_size=30) | PATTERNS)
def test_what_is_no_pattern_is_an_error_in_words(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = told(lambda: NamePattern(text))
    assert isinstance(found, NamePattern) or found.startswith("bad name pattern ")


def test_the_bound_leaves_nothing_behind() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    assert NamePattern("a").select({1: ["a"], 2: ["b", "ba"], 3: []}) == [1, 2]
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert signal.getsignal(signal.SIGVTALRM) is before


def test_only_the_beginning_of_a_name_counts() -> None:
    names = {1: ["x" * (LONGEST - 1) + "y"], 2: ["x" * LONGEST + "y"]}
    assert NamePattern("y").select(names) == [1]


def test_other_threads_match_as_well() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(NamePattern("a").select({7: ["a"]})))
    thread.start()
    thread.join()
    assert found == [7]
