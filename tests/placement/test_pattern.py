from random import Random

import pytest

from numadoctor.model.placement import Cell
from numadoctor.placement.asker import ABSENT, ZERO
from numadoctor.placement.pattern import run_length, strip
from numadoctor.placement.population import draw
from tests.placement.layouts import LAYOUTS, PAGE, PAGES, Layout, population


def measured(name: str, seed: int, wanted: int = 2000) -> float | None:
    """Run length in pages."""
    layout = Layout(LAYOUTS[name])
    whole = population()
    pages = draw(PAGES, wanted, Random(seed))
    length = run_length(whole, pages, layout.ask([p * PAGE for p in pages]), {1: layout})
    # The neighbours that are asked about are not many more than the sample.
    assert len(layout.asked) < 3 * wanted
    return None if length is None else length / PAGE


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("interleaved over 2", 1),
        ("interleaved over 4", 1),
        ("a quarter present", 1),
        ("two halves", PAGES // 2),
        ("1 GiB in turn", 1 << 18),
        ("on one node", PAGES),
    ],
)
def test_run_length_of_what_is_regular(name: str, expected: int) -> None:
    assert {measured(name, seed) for seed in range(5)} == {expected}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Runs of 3 and of 1.
        ("weighted 3 to 1", 2),
        # A page is on another node than the one before it with probability 2 × 0.33 × 0.67.
        ("scattered", 2.26),
        ("64 KiB in turn", 16),
        ("huge pages in turn", 512),
    ],
)
def test_run_length_as_estimated(name: str, expected: float) -> None:
    lengths = sorted(measured(name, seed) or 0 for seed in range(21))
    assert lengths[10] == pytest.approx(expected, rel=0.15)
    assert expected / 2 < lengths[0]
    assert lengths[-1] < expected * 2


def test_the_pages_of_a_small_mapping_are_simply_counted() -> None:
    nodes = [0, 0, ABSENT, 0, 1, 1, ABSENT, 0]
    length = run_length(population(8), range(8), nodes, {})
    # Six pages in three runs; what is not present ends none.
    assert length == 2 * PAGE


def test_nothing_present_has_no_run_length() -> None:
    assert run_length(population(3), range(3), [ABSENT, ZERO, ABSENT], {}) is None


def test_a_strip_has_a_cell_for_each_part() -> None:
    cells = strip([0, 1, 50, 51, 98, 99], [0, 0, 1, 0, ABSENT, 8], 100)
    assert len(cells) == 48
    assert cells[0] == Cell({0: 2})
    assert cells[24] == Cell({0: 1, 1: 1})
    assert cells[47] == Cell({8: 1}, absent=1)
    assert cells[1] == Cell({})


def test_a_strip_of_few_pages_has_a_cell_for_each() -> None:
    assert strip([0, 1, 2], [0, ABSENT, 1], 3) == (Cell({0: 1}), Cell({}, 1), Cell({1: 1}))
    assert strip([], [], 0) == ()
