"""The policy of a shared segment, read without a look into the processes that attach it.

tmpfs, System V and memfd segments keep their policy with the segment, not with
the mapping: so it shows in any mapping of it, also in one of our own, into
which no page is ever faulted (shmem_get_policy() in mm/shmem.c).
"""

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from numadoctor.host.parsers import parse_policy
from numadoctor.model.placement import Kind, Mapping, Policy

SHARED_POLICY_KINDS = (Kind.SHARED_ANONYMOUS, Kind.SYSV, Kind.POSIX, Kind.MEMFD)
"""Kinds whose policy is the segment's. That of hugetlb pages is each attacher's own."""

# A policy may have been set on a part of a segment only.
_PLACES = 16

_PROT_NONE, _MAP_SHARED = 0, 1
_libc = ctypes.CDLL(None, use_errno=True)
# off_t has 64 bits in mmap64() everywhere; a C library without it has them in mmap().
_mmap = getattr(_libc, "mmap64", _libc.mmap)
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def shared_policy(mapping: Mapping, page_size: int) -> Policy | None:
    """The policy of the segment behind ``mapping``; None when it cannot be read, or is mixed.

    ``default`` means that the segment has none: that of the task that touches a page acts.
    """
    descriptor = _open(mapping)
    if descriptor is None or mapping.length is None:
        return None
    try:
        policies = set(_policies(descriptor, mapping.offset, mapping.length, page_size))
    finally:
        os.close(descriptor)
    only = policies.pop() if len(policies) == 1 else None
    return parse_policy(only) if only is not None else None


def _policies(descriptor: int, offset: int, length: int, page_size: int) -> Iterator[str | None]:
    """What is in force at a few places of the segment; None for one that cannot be read."""
    from numadoctor.kernel.policy import PolicyError, policy_of

    last = length // page_size - 1
    for place in range(min(_PLACES, last + 1)):
        start = offset + place * last // max(1, min(_PLACES - 1, last)) * page_size
        address = _mmap(None, page_size, _PROT_NONE, _MAP_SHARED, descriptor, start)
        if address == _FAILED:
            yield None
            return
        try:
            yield str(policy_of(address))
        except PolicyError:
            yield None
        finally:
            _libc.munmap(address, page_size)


def _open(mapping: Mapping) -> int | None:
    """A descriptor of the very file that is mapped, or None."""
    for path in _paths(mapping):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            if _is_mapped(descriptor, mapping):
                return descriptor
            os.close(descriptor)
    return None


def _is_mapped(descriptor: int, mapping: Mapping) -> bool:
    found = os.fstat(descriptor)
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_ino == mapping.inode
        and (os.major(found.st_dev), os.minor(found.st_dev)) == mapping.device
    )


def _paths(mapping: Mapping) -> Iterator[str]:
    proc = f"/proc/{mapping.pid}"
    if mapping.kind is Kind.POSIX and not mapping.name.endswith(" (deleted)"):
        path = f"{proc}/root{mapping.name}"
        # A link, a pipe or a device of that name is somebody's trap.
        with suppress(OSError):
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield path
    # Needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
    if mapping.end is not None:
        yield f"{proc}/map_files/{mapping.start:x}-{mapping.end:x}"
    if mapping.kind is Kind.MEMFD:
        yield from _descriptors(proc, mapping.name)


def _descriptors(proc: str, name: str) -> Iterator[str]:
    """The open files of a process that have that name."""
    with suppress(OSError):
        for number in os.listdir(f"{proc}/fd"):
            with suppress(OSError):
                if os.readlink(f"{proc}/fd/{number}") == name:
                    yield f"{proc}/fd/{number}"
