import ctypes
import itertools
import mmap
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numadoctor.kernel.nodemask import (
    BYTEORDER,
    GET_BITS,
    GET_MAXNODE,
    MAX_NODE_ID,
    WORD_SIZE,
    decode,
    encode,
    maxnode_for,
    read_buffer,
)
from numadoctor.model import ParseError
from tests.kernel.kernel_model import Fault, Invalid, get_nodes

LAYOUTS: list[tuple[int, Any]] = [(4, "little"), (4, "big"), (8, "little"), (8, "big")]
layouts = st.sampled_from(LAYOUTS)
node_sets = st.one_of(
    st.sets(st.integers(0, 1023), max_size=40),
    st.sets(st.integers(0, MAX_NODE_ID), max_size=5),
    st.sampled_from([{0}, {31}, {32}, {63}, {64}, {0, 8, *range(250, 256)}, set(range(128))]),
)

GOLDEN = [
    ({0}, "01000000", "00000001", "0100000000000000", "0000000000000001"),
    (
        {32},
        "0000000001000000",
        "0000000000000001",
        "0000000001000000",
        "0000000100000000",
    ),
    ({31}, "00000080", "80000000", "0000008000000000", "0000000080000000"),
    ({63}, "0000000000000080", "0000000080000000", "0000000000000080", "8000000000000000"),
    (
        {64},
        "000000000000000001000000",
        "000000000000000000000001",
        "00000000000000000100000000000000",
        "00000000000000000000000000000001",
    ),
    ({0, 1, 8}, "03010000", "00000103", "0301000000000000", "0000000000000103"),
    (set(), "", "", "", ""),
]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: str(sorted(golden[0])))
def test_golden_vectors(golden: tuple[set[int], str, str, str, str]) -> None:
    nodes, *expected = golden
    for (word_size, byteorder), text in zip(LAYOUTS, expected, strict=True):
        assert encode(nodes, word_size, byteorder).hex() == text
        assert decode(bytes.fromhex(text), word_size, byteorder) == tuple(sorted(nodes))


@given(node_sets, layouts)
def test_round_trip(nodes: set[int], layout: tuple[int, Any]) -> None:
    assert decode(encode(nodes, *layout), *layout) == tuple(sorted(nodes))


@given(st.binary(max_size=200), layouts)
def test_decode_then_encode_loses_only_trailing_zeros(data: bytes, layout: tuple[int, Any]) -> None:
    word_size = layout[0]
    mask = data[: len(data) // word_size * word_size]
    again = encode(decode(mask, *layout), *layout)
    assert mask[: len(again)] == again
    assert not any(mask[len(again) :])


@given(node_sets, layouts)
@example({63}, (8, "little"))
def test_the_kernel_takes_exactly_the_nodes_that_were_meant(
    nodes: set[int], layout: tuple[int, Any]
) -> None:
    mask = encode(nodes, *layout)
    if any(node >= 1024 for node in nodes):
        with pytest.raises(Invalid):
            get_nodes(mask, maxnode_for(mask), *layout)
    else:
        assert get_nodes(mask, maxnode_for(mask), *layout) == nodes


@given(st.sets(st.integers(0, 1023), min_size=1, max_size=40), layouts)
def test_one_bit_more_reads_past_the_mask(nodes: set[int], layout: tuple[int, Any]) -> None:
    mask = encode(nodes, *layout)
    with pytest.raises(Fault):
        get_nodes(mask, maxnode_for(mask) + 1, *layout)


@pytest.mark.parametrize(("word_size", "byteorder"), LAYOUTS)
def test_the_plain_number_of_bits_loses_the_last_node(word_size: int, byteorder: Any) -> None:
    last = 8 * word_size - 1
    mask = encode({0, last}, word_size, byteorder)
    assert get_nodes(mask, 8 * word_size, word_size, byteorder) == {0}
    assert get_nodes(mask, 8 * word_size + 1, word_size, byteorder) == {0, last}
    # Node 0 with maxnode 1 ("one node, one bit") is no node at all.
    assert get_nodes(encode({0}, word_size, byteorder), 1, word_size, byteorder) == set()


def test_the_limit_is_the_one_of_the_kernel() -> None:
    mask = encode({MAX_NODE_ID})
    assert maxnode_for(mask) - 1 == 8 * 4096
    with pytest.raises(Invalid):
        get_nodes(mask + bytes(WORD_SIZE), maxnode_for(mask) + 8 * WORD_SIZE, WORD_SIZE, BYTEORDER)


def test_the_empty_mask_needs_no_memory() -> None:
    assert encode(()) == b""
    assert maxnode_for(b"") == 1
    assert get_nodes(b"", 1, WORD_SIZE, BYTEORDER) == set()


@given(node_sets)
def test_native_layout_is_that_of_c(nodes: set[int]) -> None:
    mask = encode(nodes)
    words = (ctypes.c_ulong * (len(mask) // WORD_SIZE)).from_buffer_copy(mask)
    width = 8 * ctypes.sizeof(ctypes.c_ulong)
    found = {
        index * width + shift
        for index, shift in itertools.product(range(len(words)), range(width))
        if words[index] >> shift & 1
    }
    assert found == nodes


@given(node_sets, layouts)
def test_layout_is_that_of_numpy(nodes: set[int], layout: tuple[int, Any]) -> None:
    numpy = pytest.importorskip("numpy")
    word_size, byteorder = layout
    kind = f"{'<' if byteorder == 'little' else '>'}u{word_size}"
    width = 8 * word_size
    words = numpy.zeros((max(nodes, default=-1) // width) + 1, kind)
    for node in nodes:
        words[node // width] |= words.dtype.type(1 << node % width)
    assert encode((numpy.int64(node) for node in nodes), *layout) == words.tobytes()


class _Lies:
    def __index__(self) -> int:
        return -7


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (-1, "negative"),
        (_Lies(), "negative"),
        (True, "not an integer"),
        (False, "not an integer"),
        (1.0, "not an integer"),
        ("0", "not an integer"),
        (b"0", "not an integer"),
        (None, "not an integer"),
        (MAX_NODE_ID + 1, "above 32767"),
        (1 << 10000, "above 32767"),
        ("\x1b[31m" * 100, "not an integer"),
    ],
)
def test_hostile_ids_are_refused(hostile: Any, why: str) -> None:
    with pytest.raises(ParseError, match=f"^bad node id .*: {why}") as caught:
        encode([0, hostile])
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 150


@given(st.one_of(st.integers(), st.booleans(), st.floats(), st.text(), st.none()))
def test_an_id_is_encoded_or_refused(node: Any) -> None:
    try:
        mask = encode([node])
    except ParseError:
        assert type(node) is not int or not 0 <= node <= MAX_NODE_ID
    else:
        assert decode(mask) == (node,)


@pytest.mark.parametrize("length", [1, 3, 5, 9, 12])
def test_part_of_a_word_is_no_mask(length: int) -> None:
    with pytest.raises(ParseError, match="not a whole number of 8-byte words"):
        decode(bytes(length), 8)


@pytest.mark.parametrize("word_size", [0, 1, 2, 16, -8])
def test_odd_word_sizes_are_refused(word_size: int) -> None:
    with pytest.raises(ValueError, match="bad word size"):
        encode([0], word_size)
    with pytest.raises(ValueError, match="bad word size"):
        decode(b"", word_size)


def test_odd_byte_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="bad byte order"):
        encode([0], 8, "middle")  # type: ignore[arg-type]


def test_read_buffers_hold_every_node_a_kernel_can_have() -> None:
    buffer = read_buffer()
    assert len(buffer) * 8 == GET_BITS == GET_MAXNODE - 1 >= 1024
    assert len(buffer) <= mmap.PAGESIZE  # copy_nodes_to_user() refuses more
    assert not any(bytes(buffer))


def test_native_constants_are_those_of_this_interpreter() -> None:
    assert ctypes.sizeof(ctypes.c_ulong) == WORD_SIZE
    assert sys.byteorder == BYTEORDER
