from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.placement.asker import ABSENT
from numadoctor.placement.population import Piece, Population, draw
from tests.placement.layouts import PAGE, Layout


@given(st.integers(0, 10**6), st.integers(1, 2000), st.integers())
def test_a_draw_is_of_pages_there_are(pages: int, wanted: int, seed: int) -> None:
    drawn = draw(pages, wanted, Random(seed))
    assert len(drawn) == min(pages, wanted)
    assert drawn == sorted(drawn)
    assert all(0 <= page < pages for page in drawn)


@given(st.integers(0, 500), st.integers(0, 500), st.integers())
def test_all_pages_are_drawn_when_there_are_no_more(pages: int, more: int, seed: int) -> None:
    assert draw(pages, pages + more, Random(seed)) == list(range(pages))


@pytest.mark.parametrize(("pages", "wanted"), [(50, 7), (500, 10), (1003, 10), (5000, 10)])
def test_every_page_is_equally_likely(pages: int, wanted: int) -> None:
    draws = 4000
    seen = Counter(page for seed in range(draws) for page in draw(pages, wanted, Random(seed)))
    # In sixteen parts, so that a draw that favours the ends of its parts would show.
    parts = Counter[int]()
    for page, count in seen.items():
        parts[page * 16 // pages] += count
    sizes = Counter(page * 16 // pages for page in range(pages))
    for part, size in sizes.items():
        expected = draws * wanted * size / pages
        assert abs(parts[part] - expected) < 5 * expected**0.5 + 1


@pytest.mark.parametrize("period", [2, 3, 4, 5, 6, 8, 12, 16])
def test_what_alternates_comes_out_even(period: int) -> None:
    drawn = draw(1 << 22, 960, Random(period))
    remainders = Counter(page % period for page in drawn)
    assert set(remainders.values()) == {960 // period}


def test_the_sample_is_spread_over_all_parts() -> None:
    drawn = draw(1 << 22, 1000, Random(1))
    assert set(Counter(page * 100 >> 22 for page in drawn).values()) <= {9, 10, 11}


def test_the_seed_decides() -> None:
    assert draw(10**6, 100, Random(5)) == draw(10**6, 100, Random(5))
    assert draw(10**6, 100, Random(5)) != draw(10**6, 100, Random(6))


def test_a_page_is_asked_of_whoever_has_it() -> None:
    both = Population(
        PAGE,
        100,
        {7: (Piece(0, 50, 0x10000),), 8: (Piece(20, 30, 0x900000), Piece(60, 40, 0xA00000))},
    )
    first = Layout(lambda page: 0 if page < 30 else ABSENT, 0x10000)
    second = Layout(lambda page: 1 if page < 40 else ABSENT, 0x900000)
    askers = {7: first, 8: second}
    assert both.ask([0, 29, 30, 49, 55], askers) == [0, 0, 1, 1, ABSENT]
    # The second was asked only about what it maps and the first did not have.
    assert second.asked == [10, 29]


def test_a_process_that_cannot_be_asked_is_left_out() -> None:
    both = Population(PAGE, 10, {7: (Piece(0, 10, 0),), 8: (Piece(0, 10, 0x5000),)})
    assert both.ask([3, 4], {8: Layout(lambda page: page, 0x5000)}) == [3, 4]
    assert both.ask([3], {}) == [ABSENT]
    assert both.bytes == 10 * PAGE
