"""Amounts of memory in words, and back."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numadoctor.host import parsers
from numadoctor.lint.quantity import parse_quantity
from numadoctor.model import ParseError
from numadoctor.model.units import (
    MOST_BYTES,
    amount,
    page_size_folder,
    page_size_text,
    parse_amount,
)

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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("4096", 4096), ("68719476736", 64 << 30), ("0b", 0), ("12 B", 12),
        # Docker and podman: their documentation has b, k, m, g; go-units takes all of these.
        ("32", 32), ("32b", 32), ("32k", 32 << 10), ("32kb", 32 << 10), ("32Kib", 32 << 10),
        ("32Mb", 32 << 20), ("32.5kB", 33280), ("32.5 kB", 33280), ("64g", 64 << 30),
        ("0.3K", 307), ("10.24gb", 10995116277), ("32Pb", 32 << 50),
        # Compose, systemd, numactl, Slurm.
        ("65gb", 65 << 30), ("1500M", 1500 << 20), ("2g", 2 << 30), ("1E", 1 << 60),
        # What Kubernetes calls binary, and what this program prints.
        ("64Gi", 64 << 30), ("512Ki", 512 << 10), ("71.3 GiB", 76557792051), ("1.5T", 3 << 39),
        ("  2 MiB\n", 2 << 20), ("0.5KiB", 512), ("1P", 1 << 50),
    ],
)  # fmt: skip
def test_sizes_that_people_write(text: str, size: int) -> None:
    assert parse_amount(text) == size


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "write it as 64GiB") for text in (
            "", " ", "G", "much", ".5G", "5.G", "1,5G", "1_000", "+1G", "1e9", "0x10", "inf",
            "nan", "1ib", "64 GiB GiB", "64GG", "5Z", "50%", "64Gbit", "500m5", "1 2",
            "1\u0661G", "5\u212a", "5\u017f", "\ud800", "9" * 41,
        )),
        *((text, "below 0") for text in ("-1G", " -0", "-inf")),
        *((text, "a part of a byte") for text in ("1.5", "1.0", "2.5B", "0.0001K")),
        *((text, "more than any machine has") for text in ("1.1E", "9999999999T", "9" * 40)),
    ],
)  # fmt: skip
def test_what_is_no_size(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason) as caught:
        parse_amount(text)
    assert caught.value.what == "size"


@given(st.integers(0, 1023), st.sampled_from(sorted(UNITS)))
def test_whole_amounts_are_read_back(number: int, unit: str) -> None:
    count = number * 1024 ** UNITS[unit]
    assert parse_amount(amount(count)) == count == parse_amount(str(count))


@given(st.integers(0, MOST_BYTES))
def test_what_is_printed_is_read_back_to_a_tenth_of_its_unit(count: int) -> None:
    unit = 1024 ** UNITS[amount(count).split()[1]]
    assert abs(parse_amount(amount(count)) - count) <= unit // 20 + 1


@given(
    st.decimals(0, 10**6, places=3), st.sampled_from("KMGT"), st.sampled_from(("", "i", "b", "iB")),
    st.sampled_from(("", " ", "  ")),
)  # fmt: skip
def test_every_way_of_writing_a_unit_means_the_same(
    number: Decimal, prefix: str, rest: str, blank: str
) -> None:
    exact = Fraction(number) * 1024 ** ("KMGT".index(prefix) + 1)
    for text in (f"{number}{blank}{prefix}{rest}", f"{number}{blank}{prefix}{rest}".lower()):
        if 0 < exact < 1:
            with pytest.raises(ParseError, match="a part of a byte"):
                parse_amount(text)
        else:
            assert parse_amount(text) == math.floor(exact)


@given(st.text(max_size=12) | st.from_regex(r"[-+]?[0-9.]{1,9} ?[bkmgtpei]{0,3}", fullmatch=True))
def test_any_text_is_a_size_that_makes_sense_or_refused(text: str) -> None:
    try:
        size = parse_amount(text)
    except ParseError:
        return
    assert 0 <= size <= MOST_BYTES


@pytest.mark.parametrize(
    ("size", "text"),
    [(4096, "4K"), (64 << 10, "64K"), (2 << 20, "2M"), (512 << 20, "512M"), (1 << 30, "1G"),
     (16 << 30, "16G"), (1536 << 10, "1536K"), (100, "100")],
)  # fmt: skip
def test_sizes_of_pages(size: int, text: str) -> None:
    assert page_size_text(size) == text


@given(st.integers(1, 1 << 40))
def test_sizes_of_pages_are_exact_whoever_reads_them(count: int) -> None:
    size = count << 10
    text = page_size_text(size)
    assert parsers.parse_size(f"{text}B".encode()) == size
    assert parse_amount(text) == parse_quantity(f"{text}i") == size
    assert parsers.parse_page_size_dir(page_size_folder(size)) == size
