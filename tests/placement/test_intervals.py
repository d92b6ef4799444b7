import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model.placement import Share
from numadoctor.placement.intervals import counted, proportion, sampled, total


def chance(hits: int, asked: int, p: float) -> float:
    """The binomial distribution."""
    if p in (0.0, 1.0):
        return float(hits == asked * p)
    logarithm = math.lgamma(asked + 1) - math.lgamma(hits + 1) - math.lgamma(asked - hits + 1)
    return math.exp(logarithm + hits * math.log(p) + (asked - hits) * math.log1p(-p))


@pytest.mark.parametrize("asked", [16, 64, 100, 400])
def test_the_interval_holds_the_truth_in_95_of_100_samples_whatever_it_is(asked: int) -> None:
    intervals = [proportion(hits, asked) for hits in range(asked + 1)]
    near_zero = [10 ** (-exponent / 8) / asked for exponent in range(40)]
    truths = [*near_zero, *(1 - p for p in near_zero), *(step / 97 for step in range(98))]
    for truth in truths:
        covered = sum(
            chance(hits, asked, truth)
            for hits, (low, high) in enumerate(intervals)
            if low <= truth <= high
        )
        assert covered > 0.949, truth


def test_the_interval_is_not_needlessly_wide() -> None:
    low, high = proportion(5000, 10_000)
    assert 0.4901 < low < 0.4903
    assert 0.5097 < high < 0.5099
    # What the "rule of three" gives is 0.0003.
    assert proportion(0, 10_000)[1] < 0.0005


@given(st.integers(0, 10_000), st.integers(1, 10_000))
def test_the_interval_is_symmetric_and_holds_the_estimate(hits: int, asked: int) -> None:
    hits = min(hits, asked)
    low, high = proportion(hits, asked)
    assert 0 <= low <= hits / asked <= high <= 1
    other = proportion(asked - hits, asked)
    assert (1 - other[1], 1 - other[0]) == pytest.approx((low, high), abs=1e-12)


@given(st.integers(1, 2000))
def test_more_hits_move_the_interval_up(asked: int) -> None:
    ends = [proportion(hits, asked) for hits in range(asked + 1)]
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(ends))


def test_nothing_asked_is_nothing_known() -> None:
    assert proportion(0, 0) == (0.0, 1.0)


def test_what_was_counted_has_no_width() -> None:
    assert counted({8: 30, 0: 10, 3: 0}) == {
        0: Share(10, 10, 10, 0.25, 0.25, 0.25),
        8: Share(30, 30, 30, 0.75, 0.75, 0.75),
    }
    assert counted({}) == {}


def test_what_was_sampled_has_both_intervals() -> None:
    shares = sampled({0: 50, 8: 30}, asked=100, population=1000, most=1000)
    assert [shares[0].bytes, shares[8].bytes] == [500, 300]
    low, high = proportion(50, 100, together=2)
    assert (shares[0].low, shares[0].high) == (round(1000 * low), round(1000 * high))
    assert shares[0].fraction == 50 / 80
    assert (shares[0].fraction_low, shares[0].fraction_high) == proportion(50, 80, together=2)


@pytest.mark.parametrize(("together", "z"), [(1, 1.959964), (2, 2.241403), (4, 2.497705)])
def test_several_shares_hold_together(together: int, z: float) -> None:
    # In the middle of a large sample the interval is that of the normal distribution.
    low, high = proportion(500_000, 1_000_000, together)
    assert (high - low) / 2 == pytest.approx(z * 0.0005, rel=0.002)


def test_no_more_than_can_be_resident() -> None:
    (share,) = sampled({0: 1}, asked=100, population=1 << 40, most=1 << 20).values()
    assert share.bytes == share.high == 1 << 20
    assert share.low <= share.bytes
    (share,) = sampled({0: 1}, asked=100, population=1 << 40, most=1 << 35).values()
    assert share.high == 1 << 35


def test_counts_add_up_without_width() -> None:
    added = total([counted({0: 10, 1: 30}), counted({1: 20, 8: 40})])
    assert {node: share[:3] for node, share in added.items()} == {
        0: (10, 10, 10),
        1: (50, 50, 50),
        8: (40, 40, 40),
    }
    assert added[1].fraction == added[1].fraction_low == added[1].fraction_high == 0.5
    assert total([]) == {}


def test_widths_add_up_by_their_squares() -> None:
    part = {0: Share(100, 97, 104, 1.0, 1.0, 1.0)}
    added = total([part, {0: Share(100, 96, 103, 1.0, 1.0, 1.0)}])
    assert added[0][:3] == (200, 195, 205)


def test_a_share_of_the_total_is_between_the_extremes() -> None:
    added = total(
        [
            {0: Share(60, 50, 70, 0.6, 0.5, 0.7), 1: Share(40, 30, 50, 0.4, 0.3, 0.5)},
            counted({0: 0}),
        ]
    )
    assert added[0].fraction == 0.6
    assert added[0].fraction_low == 50 / 100
    assert added[0].fraction_high == 70 / 100
