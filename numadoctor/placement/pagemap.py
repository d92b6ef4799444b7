"""Tells of single pages of another process whether they are swapped out, and whether huge."""

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from numadoctor.host.root import error_from

# struct pm_scan_arg and its flags in include/uapi/linux/fs.h, since Linux 6.7
# ("fs/proc/task_mmu: implement IOCTL to get and optionally clear info about PTEs").
_PAGEMAP_SCAN = 0xC0606610
_SWAPPED, _HUGE = 1 << 4, 1 << 6
_ALL = (1 << 7) - 1
# An entry of the pagemap file: Documentation/admin-guide/mm/pagemap.rst.
_ENTRY_BYTES, _ENTRY_SWAPPED = 8, 1 << 62


class _ScanArgument(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
            "category_inverted", "category_mask", "category_anyof_mask", "return_mask",
        )
    ]  # fmt: skip


class PageStates(NamedTuple):
    """Of so many pages: how many are swapped out, how many huge; None where it cannot be told."""

    swapped: int | None
    huge: int | None


class Pagemap:
    """The pagemap of a live process. Close it, or use it in a ``with``.

    :raises Denied, Missing, Vanished: it cannot be opened
    """

    def __init__(self, pid: int, page_size: int) -> None:
        path = f"/proc/{pid}/pagemap"
        self._page_size = page_size
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise error_from(path, error.errno or 0) from None
        self._region = (ctypes.c_uint64 * 3)()
        self._argument = _ScanArgument(
            size=ctypes.sizeof(_ScanArgument),
            vec=ctypes.addressof(self._region),
            vec_len=1,
            category_anyof_mask=_ALL,
            return_mask=_ALL,
        )

    def __enter__(self) -> "Pagemap":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def count(self, addresses: Sequence[int]) -> PageStates:
        """What holds of the pages at these addresses. Each is asked about alone."""
        try:
            states = [self._scan(address) for address in addresses]
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EINVAL):
                return PageStates(None, None)
            return PageStates(self._count_swapped(addresses), None)
        return PageStates(
            sum(bool(state & _SWAPPED) for state in states),
            sum(bool(state & _HUGE) for state in states),
        )

    def _scan(self, address: int) -> int:
        """The categories of a page, 0 when it has none of them."""
        self._argument.start = address
        self._argument.end = address + self._page_size
        found = fcntl.ioctl(self._descriptor, _PAGEMAP_SCAN, self._argument)
        return int(self._region[2]) if found else 0

    def _count_swapped(self, addresses: Sequence[int]) -> int | None:
        swapped = 0
        for address in addresses:
            try:
                entry = os.pread(
                    self._descriptor, _ENTRY_BYTES, address // self._page_size * _ENTRY_BYTES
                )
            except OSError:
                return None
            if int.from_bytes(entry, sys.byteorder) & _ENTRY_SWAPPED:
                swapped += 1
        return swapped
