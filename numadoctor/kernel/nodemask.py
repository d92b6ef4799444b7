"""Nodemasks: sets of node ids as the kernel reads them from memory, on any architecture.

A nodemask is an array of ``unsigned long``; node n is bit n % W of word n // W,
W being the bits of a word. So its bytes depend on word size and byte order.

maxnode, in one place
---------------------
``set_mempolicy``, ``mbind`` and ``migrate_pages`` take the size of the mask in
``maxnode`` and subtract one before they use it (get_nodes() in mm/mempolicy.c).
``maxnode = N`` therefore reads N - 1 bits: 64 loses bit 63 of a one-word mask, 1
loses everything, and 65 reads exactly one word of 64 bits. ``get_mempolicy``
subtracts one too (copy_nodes_to_user()) and refuses a ``maxnode`` below
nr_node_ids. The rule for all of them: **maxnode = bits of the mask + 1**.
``python -m numadoctor.kernel.proof`` shows it on the running kernel.
"""

import ctypes
import operator
import struct
import sys
from collections.abc import Iterable
from typing import Final

from numadoctor.kernel.abi import ByteOrder
from numadoctor.model.errors import ParseError
from numadoctor.model.units import id_list

WORD_SIZE: Final = struct.calcsize("L")
"""Bytes of an ``unsigned long`` in this process."""

BYTEORDER: Final[ByteOrder] = "little" if sys.byteorder == "little" else "big"

MAX_NODE_ID: Final = 8 * 4096 - 1
"""The largest node id that every kernel lets a mask name.

get_nodes() refuses more than 8 * page size bits, and no architecture has pages
below 4 KiB. No kernel has more than 1024 nodes (NODES_SHIFT is at most 10).
"""

GET_BITS: Final = 1024
GET_MAXNODE: Final = GET_BITS + 1
"""What to read into: room for every node a kernel can have.

A buffer of nr_node_ids bits is not enough: the kernel writes in units of 64
bits, past the end of a 4-byte mask of a 32-bit process.
"""


def encode(
    nodes: Iterable[int], word_size: int = WORD_SIZE, byteorder: ByteOrder = BYTEORDER
) -> bytes:
    """The mask with the bits of ``nodes`` set, in as few words as hold them; empty for none.

    :param word_size: bytes of an ``unsigned long``: 4 or 8
    :raises ParseError: for an id that is no integer, negative, or above MAX_NODE_ID
    :raises ValueError: for any other word size or byte order
    """
    _check_layout(word_size, byteorder)
    bits = 0
    for node in nodes:
        bits |= 1 << _checked(node)
    width = 8 * word_size
    words = -(-bits.bit_length() // width)
    return b"".join(
        (bits >> index * width & (1 << width) - 1).to_bytes(word_size, byteorder)
        for index in range(words)
    )


def decode(
    mask: bytes, word_size: int = WORD_SIZE, byteorder: ByteOrder = BYTEORDER
) -> tuple[int, ...]:
    """The ids of the nodes in a mask, ascending.

    :raises ParseError: when the mask is not a whole number of words
    """
    _check_layout(word_size, byteorder)
    if len(mask) % word_size:
        raise ParseError("nodemask", mask, f"not a whole number of {word_size}-byte words")
    nodes = []
    for start in range(0, len(mask), word_size):
        word = int.from_bytes(mask[start : start + word_size], byteorder)
        while word:
            lowest = word & -word
            nodes.append(8 * start + lowest.bit_length() - 1)
            word ^= lowest
    return tuple(nodes)


def maxnode_for(mask: bytes) -> int:
    """The ``maxnode`` that makes the kernel read all of the mask: its bits + 1.

    For the empty mask that is 1, which the kernel takes as "no nodes" and does
    not touch the pointer.
    """
    return 8 * len(mask) + 1


class Mask:
    """A set of nodes in memory, for as long as the object lives; a null pointer for none.

    :ivar address: of the mask, 0 for none
    :ivar maxnode: to be passed with it
    """

    def __init__(self, nodes: Iterable[int]) -> None:
        mask = encode(nodes)
        self._buffer = ctypes.create_string_buffer(mask, len(mask)) if mask else None
        self.address = ctypes.addressof(self._buffer) if self._buffer else 0
        self.maxnode = maxnode_for(mask)


def read_buffer() -> ctypes.Array[ctypes.c_char]:
    """An empty buffer for ``get_mempolicy``; pass it with ``maxnode`` GET_MAXNODE."""
    return ctypes.create_string_buffer(GET_BITS // 8)


def to_text(nodes: Iterable[int]) -> str:
    """Node ids as the kernel lists them: ``0-3,8``; ``none`` for none."""
    return id_list(nodes) or "none"


def _checked(node: object) -> int:
    # A bool is an int to Python, and never what was meant; numpy's integers are fine.
    if isinstance(node, bool):
        raise ParseError("node id", node, "not an integer")
    try:
        number = operator.index(node)  # type: ignore[arg-type]
    except TypeError:
        raise ParseError("node id", node, "not an integer") from None
    if number < 0:
        raise ParseError("node id", node, "negative (-1 in sysfs means unknown)")
    if number > MAX_NODE_ID:
        raise ParseError("node id", node, f"above {MAX_NODE_ID}, the kernel's limit")
    return number


def _check_layout(word_size: int, byteorder: str) -> None:
    if word_size not in (4, 8):
        raise ValueError(f"bad word size {word_size!r}: 4 or 8 bytes")
    if byteorder not in ("little", "big"):
        raise ValueError(f"bad byte order {byteorder!r}: little or big")
