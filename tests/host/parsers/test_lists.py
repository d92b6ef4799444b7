import itertools
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import (
    MAX_ID,
    format_list,
    mask_digits,
    numbered,
    parse_isolcpus,
    parse_list,
    parse_map,
)
from numadoctor.model import ParseError

SMALL = st.sets(st.integers(0, 200), max_size=60)
ANY = st.one_of(SMALL, st.sets(st.integers(0, MAX_ID), max_size=20))


def words_of(ids: Iterable[int], digits: int) -> str:
    """A map of that many digits, written nibble by nibble from the highest."""
    wanted = set(ids)
    text = ""
    for nibble in reversed(range(digits)):
        value = sum(1 << bit for bit in range(4) if 4 * nibble + bit in wanted)
        text += "0123456789abcdef"[value]
        if nibble and nibble % 8 == 0:
            text += ","
    return text


def runs_of(ids: set[int]) -> str:
    """A list, from the runs of equal distance between an id and its rank."""
    ranked = enumerate(sorted(ids))
    runs = [[n for _, n in run] for _, run in itertools.groupby(ranked, lambda p: p[1] - p[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (b"", ()),
        (b"\n", ()),
        (b"\0", ()),
        (b"0\n", (0,)),
        (b"0-3,8\n\0", (0, 1, 2, 3, 8)),
        (b"0,8,250-255\r\n", (0, 8, 250, 251, 252, 253, 254, 255)),
        (b"8,0-1,1,8", (0, 1, 8)),
        (b"0 1\t4,,5,", (0, 1, 4, 5)),
        (b"0-7:2/4", (0, 1, 4, 5)),
        (b"1-6:1/2", (1, 3, 5)),
        (b"0-3:0/2", ()),
        (b"4-4:3/9", (4,)),
        (b"65536", (65536,)),
    ],
)
def test_lists(text: bytes, ids: tuple[int, ...]) -> None:
    assert parse_list(text) == ids


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"0-3,x", """bad list '0-3,x': "x" is not a number"""),
        (
            b"0-3,8-",
            """bad list '0-3,8-': "8-" is not a number, a range or a range with a stride""",
        ),
        (b"0,3-1", """bad list '0,3-1': "3-1" is a range in reverse"""),
        (b"65537", """bad list '65537': "65537" goes beyond 65536"""),
        (b"0-3:3/2", """bad list '0-3:3/2': "0-3:3/2" takes 3 of every 2"""),
        (b"0-3:0/0", """bad list '0-3:0/0': "0-3:0/0" takes 0 of every 0"""),
        (b"5:1/2", """bad list '5:1/2': "5:1/2" is not a number"""),
        (b"-1", """bad list '-1': "-1" is not a number, a range or a range with a stride"""),
        (b"0_1", """bad list '0_1': "0_1" is not a number"""),
        ("\u0663".encode(), """bad list '\u0663': "\\u0663" is not a number"""),
        (b"0," + b"z" * 80, f'bad list \'0,{"z" * 54}...: "{"z" * 40}..." is not a number'),
    ],
)
def test_faulty_lists_name_the_faulty_part(text: bytes, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_list(text)
    assert str(caught.value) == message


@given(ANY)
def test_a_list_survives_the_round_trip(ids: set[int]) -> None:
    text = format_list(ids)
    assert text == runs_of(ids)
    assert parse_list(text.encode()) == tuple(sorted(ids))


def test_format_list_takes_any_order_and_repetition() -> None:
    assert format_list(iter([8, 1, 0, 1, 2])) == "0-2,8"
    assert format_list(()) == ""


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 400), st.data())
def test_a_stride_takes_the_first_of_every_group(
    first: int, width: int, group: int, data: st.DataObject
) -> None:
    used = data.draw(st.integers(0, group))
    last = first + width
    expected = tuple(n for n in range(first, last + 1) if (n - first) % group < used)
    assert parse_list(f"{first}-{last}:{used}/{group}".encode()) == expected


def test_a_hostile_list_stays_cheap() -> None:
    whole = f"0-{MAX_ID}"
    assert len(parse_list(",".join([whole] * 2000).encode())) == MAX_ID + 1
    assert len(parse_list(f"{whole}:1/2,{whole}:9999999999/9999999999".encode())) == MAX_ID + 1


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (b"1-3,9", (1, 2, 3, 9)),
        (b"nohz,domain,managed_irq,1-2", (1, 2)),
        (b" newflag,0-3:1/2\n", (0, 2)),
        (b"domain,", ()),
    ],
)
def test_isolcpus_may_begin_with_flags(text: bytes, ids: tuple[int, ...]) -> None:
    assert parse_isolcpus(text) == ids


def test_isolcpus_flags_stand_in_front_only() -> None:
    with pytest.raises(ParseError, match='"domain" is not a number'):
        parse_isolcpus(b"1,domain,2")


@pytest.mark.parametrize(
    ("text", "ids", "digits"),
    [
        (b"0", (), 1),
        (b"3\n", (0, 1), 1),
        (b"00000000,00000001\n\0", (0,), 16),
        (b"1,00000000", (32,), 9),
        (b"1,0", (32,), 2),
        (b"0x3\n", (0, 1), 1),
        (b"0Xff,00000000\r\n", tuple(range(32, 40)), 10),
        (b"80000000000000000000", (79,), 20),
        (b"0" * 30_000 + b"1", (0,), 30_001),
        (b"1" + b"0" * (MAX_ID // 4), (MAX_ID,), MAX_ID // 4 + 1),
    ],
)
def test_maps(text: bytes, ids: tuple[int, ...], digits: int) -> None:
    assert parse_map(text) == ids
    assert mask_digits(text) == digits


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", '"" is not a hexadecimal number'),
        (b"\0\n", '"" is not a hexadecimal number'),
        (b"0x", '"" is not a hexadecimal number'),
        (b"0000000g", '"0000000g" is not a hexadecimal number'),
        (b"ff,", '"" is not a hexadecimal number'),
        (b"ff 00", '"ff 00" is not a hexadecimal number'),
        (b"-1", '"-1" is not a hexadecimal number'),
        (b"1,000000000", '"000000000" is longer than a word of 32 bits'),
        (b"000000001,0", '"000000001" is longer than a word of 32 bits'),
    ],
)
def test_faulty_maps(text: bytes, reason: str) -> None:
    for parse in (parse_map, mask_digits):
        with pytest.raises(ParseError, match=re.escape(reason)):
            parse(text)


def test_a_map_beyond_the_largest_id_is_refused() -> None:
    with pytest.raises(ParseError, match="it goes beyond bit 65536"):
        parse_map(b"2" + b"0" * (MAX_ID // 4))


@given(SMALL, st.integers(0, 30))
def test_a_map_of_any_width_survives_the_round_trip(ids: set[int], spare: int) -> None:
    digits = max(ids, default=0) // 4 + 1 + spare
    text = words_of(ids, digits)
    assert parse_map(text.encode()) == tuple(sorted(ids))
    assert parse_map(text.upper().encode() + b"\n") == tuple(sorted(ids))
    assert mask_digits(text.encode()) == digits
    assert parse_map(b"0x" + text.replace(",", "").encode()) == tuple(sorted(ids))


@given(SMALL)
def test_words_may_lack_leading_zeros(ids: set[int]) -> None:
    words = [word.lstrip("0") or "0" for word in words_of(ids, 56).split(",")]
    assert parse_map(",".join(words).encode()) == tuple(sorted(ids))


def test_numbered_entries() -> None:
    names = [
        "node10",
        "node2",
        "node",
        "node01",
        "node-1",
        "cpu3",
        "node2x",
        "node\u0663",
        "xnode4",
    ]
    assert numbered(names, "node") == (2, 10)
    assert numbered(["node0", "node0"], "node") == (0,)
    assert numbered(["a.b1", "axb2"], "a.b") == (1,)
