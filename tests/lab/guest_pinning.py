"""Pins memory for devices, as CUDA and RDMA drivers do, and tells where it was. Runs in a guest.

A registered buffer of io_uring is pinned for long (FOLL_LONGTERM), like memory that is registered
with a GPU or an RDMA NIC, and needs no device (io_sqe_buffer_register() in io_uring/rsrc.c).
"""

import ctypes
import os
import struct
from collections import Counter
from pathlib import Path

from numadoctor.kernel.policy import Mode
from numadoctor.placement.asker import Account
from numadoctor.placement.move_pages import PageAsker
from tests.lab.guest_victims import MIB, PAGE, private

# The same on every architecture that has them (Linux 5.1).
_IO_URING_SETUP, _IO_URING_REGISTER = 425, 427
_REGISTER_BUFFERS = 0
_PARAMS_BYTES = 120
# io_uring takes at most 1 GiB in one buffer.
_BUFFER = 16 * MIB

_libc = ctypes.CDLL(None, use_errno=True)


def pin(start: int, length: int) -> int:
    """Pin memory until the descriptor that this returns is closed.

    :raises OSError: the kernel refuses
    """
    ring: int = _libc.syscall(_IO_URING_SETUP, 1, ctypes.create_string_buffer(_PARAMS_BYTES))
    if ring < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup")
    offsets = range(0, length, _BUFFER)
    vectors = b"".join(
        struct.pack("NN", start + offset, min(_BUFFER, length - offset)) for offset in offsets
    )
    if _libc.syscall(_IO_URING_REGISTER, ring, _REGISTER_BUFFERS, vectors, len(offsets)):
        number = ctypes.get_errno()
        os.close(ring)
        raise OSError(number, "IORING_REGISTER_BUFFERS")
    return ring


def nodes_of(start: int, length: int) -> dict[str, int]:
    """Node to the number of its pages; a negative errno for those that have none."""
    asked = PageAsker(os.getpid(), Account()).ask(range(start, start + length, PAGE))
    return {str(node): pages for node, pages in sorted(Counter(asked).items())}


def pinned(node: int, length: int) -> dict[str, dict[str, int]]:
    """Where the pages of bound memory are before and after they are pinned."""
    memory = private(length).bind(Mode.BIND, [node]).touch()
    before = nodes_of(memory.start, length)
    ring = pin(memory.start, length)
    after = nodes_of(memory.start, length)
    os.close(ring)
    return {"before": before, "after": after}


def zones() -> str:
    """What the kernel says of its zones."""
    return Path("/proc/zoneinfo").read_text()
