"""What this process finds out about itself without a NUMA call: libc, prctl and /proc/self."""

import ctypes
import os
import re
from contextlib import suppress
from typing import Final, NamedTuple

PR_SET_PDEATHSIG: Final = 1
PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4
OTHER_IDS: Final = (
    "/proc shows the ids of another pid namespace: mount it anew (unshare --mount-proc)"
)
"""Why a process is not asked about by its id where ``has_ids_of_proc`` is False."""
_PR_GET_SECCOMP: Final = 21
_SECCOMP_MODE_FILTER: Final = 2

libc = ctypes.CDLL(None, use_errno=True)


class MemsAllowed(NamedTuple):
    """``Mems_allowed`` of /proc/self/status.

    :ivar nodes: the nodes that the cpuset allows
    :ivar bits: width of the kernel's own nodemask: four for each digit
    """

    nodes: tuple[int, ...]
    bits: int


def mems_allowed() -> MemsAllowed | None:
    """What the cpuset of this process allows; None where /proc does not say."""
    with suppress(OSError), open("/proc/self/status", "rb") as status:
        match = re.search(rb"^Mems_allowed:\s*([0-9a-fA-F,]+)$", status.read(), re.MULTILINE)
        if match:
            digits = match[1].replace(b",", b"")
            mask = int(digits, 16)
            nodes = tuple(node for node in range(mask.bit_length()) if mask >> node & 1)
            return MemsAllowed(nodes, 4 * len(digits))
    return None


def prctl(option: int, value: int = 0) -> int:
    """``prctl(2)`` with one argument; -1 when it failed."""
    return int(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def has_ids_of_proc() -> bool:
    """Whether a pid that /proc shows names the same process in a call of this one.

    It does not in a pid namespace whose /proc is still that of the outer one (``unshare --pid``
    without ``--mount-proc``): the call would find another process, or none.
    """
    with suppress(OSError):
        return os.readlink("/proc/self") == str(os.getpid())
    return False


def has_seccomp_filter() -> bool:
    """Whether a seccomp filter is in force in this process."""
    return prctl(_PR_GET_SECCOMP) == _SECCOMP_MODE_FILTER
