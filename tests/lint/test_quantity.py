"""Sizes in deployment files: Kubernetes' own grammar, and that of everybody else."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.checks._deployment import quantity, size
from numadoctor.lint.nodes import Unsettled, Word
from numadoctor.lint.quantity import parse_quantity
from numadoctor.model import ParseError

DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # From the documentation of Kubernetes: resource management for pods and containers.
        ("500m", Fraction(1, 2)), ("0.5", Fraction(1, 2)), ("16", 16), ("128974848", 128974848),
        ("129e6", 129 * 10**6), ("129M", 129 * 10**6), ("128974848000m", 128974848),
        ("123Mi", 123 << 20), ("400m", Fraction(2, 5)),
        ("64Gi", 64 << 30), ("64G", 64 * 10**9), ("1k", 1000), ("1Ki", 1024), ("12E", 12 * 10**18),
        ("1E3", 1000), ("1e-3", Fraction(1, 1000)), ("+1.5Gi", 3 << 29), (".5", Fraction(1, 2)),
        ("5.", 5), ("-1", -1), ("100n", Fraction(1, 10**7)), (" 1Ei ", 1 << 60),
    ],
)  # fmt: skip
def test_quantities(text: str, expected: Fraction | int) -> None:
    assert parse_quantity(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", "1Q", "1K", "1g", "1GB", "1GiB", "1 Gi", "1ki", "1mi", "nan", "inf", "1e400", "1e",
     ".", "1.2.3", "1_0", "\u0661", "--1", "50%", "9" * 41],
)  # fmt: skip
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ParseError, match="bad quantity"):
        parse_quantity(text)


@given(st.integers(0, 10**12), st.sampled_from(DECIMAL + BINARY))
def test_every_suffix_is_the_factor_that_kubernetes_has_for_it(number: int, suffix: str) -> None:
    factor: Fraction | int = (
        1 << 10 * (BINARY.index(suffix) + 1)
        if suffix in BINARY
        else Fraction(10) ** (3 * (DECIMAL.index(suffix) - DECIMAL.index("")))
    )
    assert parse_quantity(f"{number}{suffix}") == number * factor
    assert parse_quantity(f"{number}.25{suffix}") == (number + Fraction(1, 4)) * factor


@given(st.text(max_size=10) | st.from_regex(r"[-+]?[0-9.]{1,9}[numkMGTPEie0-9]{0,3}"))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    try:
        parse_quantity(text)
    except ParseError:
        return


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64m", 64 << 20), ("16gb", 16 << 30), ("10.5g", 21 << 29), ("1GiB", 1 << 30), ("5", 5),
     ("18446744073709551615", (1 << 64) - 1)],
)  # fmt: skip
def test_sizes_of_docker_and_systemd(text: str, expected: int) -> None:
    assert size(Word("f", 1, 1, text, "'")) == expected


@pytest.mark.parametrize("read", [size, quantity])
@pytest.mark.parametrize("text", ["x", "", "1e400", "nan", "inf", "${SIZE}"])
def test_what_tells_nothing_is_undecided_at_its_place(
    read: Callable[[Word], object], text: str
) -> None:
    with pytest.raises(Unsettled) as caught:
        read(Word("f", 3, 7, text, "'"))
    assert str(caught.value.location) == "f:3:7"
    assert "\n" not in caught.value.reason
