"""Which file systems hold huge pages, so that maps alone tells which mappings are of such."""

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from numadoctor.host import parsers
from numadoctor.model import ParseError, Undecided

if TYPE_CHECKING:
    from numadoctor.host import Host

_POOLS = "/sys/kernel/mm/hugepages"
# memfd_create(2): the size is log2 of the page size, shifted by 26 (since Linux 4.14).
_MFD_HUGETLB, _SIZE_SHIFT = 4, 26


def huge_page_devices(host: "Host", pid: int) -> dict[tuple[int, int], int]:
    """(major, minor) of the file systems of huge pages, to their page size in bytes.

    Those mounted where ``pid`` lives, and the kernel's own: MAP_HUGETLB,
    SHM_HUGETLB and MFD_HUGETLB memory of one page size is all on one such file
    system (hugetlb_file_setup() in fs/hugetlbfs/inode.c), whose device number
    an empty memfd of that size shows. No page is taken from any pool.
    """
    devices = {}
    with suppress(Undecided):
        for mount in host.parse(f"/proc/{pid}/mountinfo", parsers.parse_mountinfo):
            size = mount.super_options.get("pagesize")
            if mount.fstype == "hugetlbfs" and size:
                with suppress(ParseError, ValueError):
                    major, _, minor = mount.number.partition(":")
                    devices[int(major), int(minor)] = parsers.parse_size(size.encode())
    if host.live:
        devices.update(filter(None, map(_own_device, _page_sizes(host))))
    return devices


def _page_sizes(host: "Host") -> list[int]:
    sizes = []
    with suppress(Undecided):
        for name in host.list(_POOLS):
            with suppress(ParseError):
                sizes.append(parsers.parse_page_size_dir(name))
    return sizes


def _own_device(size: int) -> tuple[tuple[int, int], int] | None:
    flags = os.MFD_CLOEXEC | _MFD_HUGETLB | (size.bit_length() - 1) << _SIZE_SHIFT
    try:
        descriptor = os.memfd_create("numadoctor", flags)
    except OSError:
        # Refused by a filter, or a kernel without.
        return None
    try:
        device = os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
    return (os.major(device), os.minor(device)), size
