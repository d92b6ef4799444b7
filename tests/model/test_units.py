"""Amounts of memory in words."""

import re
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numadoctor.model.units import amount

UNITS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2 << 20, "2 MiB"),
        (20 << 20, "20 MiB"),
        (1 << 30, "1 GiB"),
        (76_557_918_208, "71.3 GiB"),
        ((1 << 30) - 1, "1 GiB"),
        (4096 << 40, "4096 TiB"),
        (-(2 << 20), "-2 MiB"),
    ],
)
def test_known_amounts(count: int, text: str) -> None:
    assert amount(count) == text


@given(st.integers(-(1 << 64), 1 << 64))
@example((1 << 20) - 1)
def test_tells_the_count_to_a_tenth_of_its_unit(count: int) -> None:
    match = re.fullmatch(r"(-?\d+(?:\.[1-9])?) ([KMGT]?i?B)", amount(count))
    assert match, amount(count)
    unit = Fraction(1024) ** UNITS[match[2]]
    assert abs(Fraction(match[1]) * unit - count) <= unit / 20
    assert abs(Fraction(match[1])) < 1024 or match[2] == "TiB"
    assert match[2] == "B" or abs(Fraction(match[1])) >= 1
