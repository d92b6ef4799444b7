"""Asks the kernel which NUMA calls work here, without side effects.

Each probe runs in a forked child and returns plain JSON data, so that a
recording can keep it. What an answer means is said in numadoctor.kernel.verdict.
"""

import ctypes
import errno
import mmap
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from numadoctor.kernel import syscalls
from numadoctor.kernel.abi import CALLS, UnknownAbi, current_abi
from numadoctor.kernel.child import TIME_LIMIT, NoAnswer, Outcome, run_steps
from numadoctor.kernel.nodemask import Mask
from numadoctor.kernel.process import (
    PR_GET_DUMPABLE,
    PR_SET_DUMPABLE,
    has_seccomp_filter,
    libc,
    mems_allowed,
    prctl,
)

_MPOL_DEFAULT, _MPOL_BIND = 0, 2
_MPOL_F_NODE_AND_ADDR: Final = 1 | 2

_MODES: Final = {
    "MPOL_PREFERRED_MANY": 5,  # since Linux 5.15
    "MPOL_WEIGHTED_INTERLEAVE": 6,  # since Linux 6.9
    "MPOL_F_NUMA_BALANCING": 1 << 13 | _MPOL_BIND,  # since Linux 5.12
}
_ADVICE: Final = {
    "MADV_POPULATE_WRITE": 23,  # since Linux 5.14
    "MADV_COLLAPSE": 25,  # since Linux 6.1
}


def probe_calls(time_limit: float = TIME_LIMIT) -> dict[str, Any]:
    """How each of the six calls answers to a form without side effects.

    ``{"abi": name, "unprobed": None, "calls": [{"name", "number", "returned",
    "errno", "signal", "unprobed"}, ...]}``. ``signal`` is set where the call
    ended the child, ``unprobed`` (a reason) where there is no answer. Where the
    ABI is unknown no call is made.

    :param time_limit: seconds for one call
    """
    try:
        abi = current_abi()
    except UnknownAbi as error:
        calls = [_call_record(name, None, Outcome(unprobed=str(error))) for name in CALLS]
        return {"abi": None, "unprobed": str(error), "calls": calls}
    outcomes = run_steps([_step(syscalls.harmless, name) for name in CALLS], time_limit)
    calls = [
        _call_record(name, abi.numbers[name], outcome)
        for name, outcome in zip(CALLS, outcomes, strict=True)
    ]
    return {"abi": abi.name, "unprobed": None, "calls": calls}


def _call_record(name: str, number: int | None, outcome: Outcome) -> dict[str, Any]:
    returned, failed = outcome.value or (None, None)
    return {
        "name": name,
        "number": number,
        "returned": returned,
        "errno": failed,
        "signal": outcome.signal,
        "unprobed": outcome.unprobed,
    }


def probe_effect(
    nodes: Iterable[int] | None = None, time_limit: float = TIME_LIMIT
) -> dict[str, Any]:
    """Whether a page really lands on the node that was asked for.

    For each node one private page is bound with ``mbind``, and one is taken
    under a ``set_mempolicy``; both are touched and then looked up.
    ``{"unprobed": None, "pages": [{"call", "node", "observed", "method", "errno",
    "signal", "unprobed"}, ...]}``; ``observed`` is None where the policy was
    refused (``errno``) or the page could not be looked up.

    :param nodes: the nodes to ask for; by default those the cpuset allows
    :param time_limit: seconds for one page
    """
    if reason := _cannot_call():
        return {"unprobed": reason, "pages": []}
    wanted = _allowed_nodes() if nodes is None else tuple(nodes)
    if not wanted:
        return {"unprobed": "the allowed nodes are not known", "pages": []}
    asked = [(call, node) for node in wanted for call in ("mbind", "set_mempolicy")]
    outcomes = run_steps([_step(_land, call, node) for call, node in asked], time_limit)
    pages = []
    for (call, node), outcome in zip(asked, outcomes, strict=True):
        observed, method, failed = outcome.value or (None, None, None)
        pages.append(
            {
                "call": call,
                "node": node,
                "observed": observed,
                "method": method,
                "errno": failed,
                "signal": outcome.signal,
                "unprobed": outcome.unprobed,
            }
        )
    return {"unprobed": None, "pages": pages}


def probe_features(time_limit: float = TIME_LIMIT) -> dict[str, Any]:
    """Which newer features of the memory policy this kernel has, by trying.

    ``{name: {"available": bool | None, "errno": int | None, "reason": str | None}}``;
    ``available`` is None, with a reason, where the call itself is refused, so that it
    cannot be told.

    :param time_limit: seconds for one feature
    """
    if reason := _cannot_call():
        names = (*_MODES, *_ADVICE, "set_mempolicy_home_node")
        return {name: {"available": None, "errno": None, "reason": reason} for name in names}
    nodes = _allowed_nodes()
    steps: dict[str, Callable[[], Any]] = {
        **{name: _step(_try_mode, mode, nodes) for name, mode in _MODES.items()},
        **{name: _step(_try_advice, advice) for name, advice in _ADVICE.items()},
        "set_mempolicy_home_node": _try_home_node,
    }
    outcomes = run_steps(list(steps.values()), time_limit)
    return {name: _feature_record(outcome) for name, outcome in zip(steps, outcomes, strict=True)}


def _feature_record(outcome: Outcome) -> dict[str, Any]:
    available, failed = outcome.value or (None, None)
    reason = outcome.unprobed
    if outcome.signal is not None:
        reason = f"trying it ended the probe with signal {outcome.signal}"
    elif available is None and failed is not None:
        reason = f"the call is answered {errno.errorcode.get(failed, failed)}"
    return {"available": available, "errno": failed, "reason": reason}


def _step(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    def run() -> Any:
        answer = function(*arguments)
        return tuple(answer) if isinstance(answer, tuple) else answer

    return run


def _cannot_call() -> str | None:
    """Why no call can be made, or None."""
    try:
        current_abi()
    except UnknownAbi as error:
        return str(error)
    return None


def _allowed_nodes() -> tuple[int, ...]:
    """The nodes of this process's cpuset, from /proc, which no filter closes; () if unknown."""
    allowed = mems_allowed()
    return allowed.nodes if allowed else ()


def _set_policy(mode: int, node: int) -> int:
    """The errno of ``set_mempolicy``, 0 for success."""
    mask = Mask([node])
    return syscalls.set_mempolicy(mode, mask.address, mask.maxnode).errno


@contextmanager
def _lonely_page() -> Iterator[tuple[mmap.mmap, int]]:
    """A private anonymous page between two unreadable ones: the index of its first byte, in a map.

    The neighbours keep the kernel from merging it into another mapping, whose
    line in numa_maps would then speak for other pages too.
    """
    size = mmap.PAGESIZE
    pages = mmap.mmap(-1, 3 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for outer in (start, start + 2 * size):
        libc.mprotect(ctypes.c_void_p(outer), ctypes.c_size_t(size), 0)
    yield pages, start + size


def _land(call: str, node: int) -> tuple[int | None, str | None, int | None]:
    """Asks for a page on a node: where it is, how that was found out, and the errno of asking."""
    _be_first_to_go()
    with _lonely_page() as (pages, address):
        if call == "mbind":
            mask = Mask([node])
            failed = syscalls.mbind(
                address, mmap.PAGESIZE, _MPOL_BIND, mask.address, mask.maxnode
            ).errno
        else:
            failed = _set_policy(_MPOL_BIND, node)
        if failed:
            return None, None, failed
        pages[mmap.PAGESIZE] = 1
        syscalls.set_mempolicy(_MPOL_DEFAULT, 0, 0)
        for method, look in _LOOKS.items():
            observed = look(address)
            if observed is not None:
                return observed, method, None
    return None, None, None


def _be_first_to_go() -> None:
    """Should the node be full, the out-of-memory killer is to take this child and nobody else."""
    with _own_proc(), suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(b"1000")


def _by_move_pages(address: int) -> int | None:
    pages, status = ctypes.c_void_p(address), ctypes.c_int(-1)
    answer = syscalls.move_pages(0, 1, ctypes.addressof(pages), 0, ctypes.addressof(status))
    return status.value if answer.returned == 0 and status.value >= 0 else None


def _by_get_mempolicy(address: int) -> int | None:
    node = ctypes.c_int(-1)
    answer = syscalls.get_mempolicy(ctypes.addressof(node), 0, 0, address, _MPOL_F_NODE_AND_ADDR)
    return node.value if answer.returned == 0 and node.value >= 0 else None


def _by_numa_maps(address: int) -> int | None:
    with _own_proc(), suppress(OSError), open("/proc/self/numa_maps", "rb") as maps:
        for line in maps:
            if int(line.split(b" ", 1)[0], 16) == address:
                found = re.findall(rb" N(\d+)=1\b", line)
                return int(found[0]) if len(found) == 1 else None
    return None


@contextmanager
def _own_proc() -> Iterator[None]:
    """The files of a process that may not be dumped belong to root: it may be for a moment."""
    before = prctl(PR_GET_DUMPABLE)
    prctl(PR_SET_DUMPABLE, 1)
    try:
        yield
    finally:
        prctl(PR_SET_DUMPABLE, before)


_LOOKS: Final[dict[str, Callable[[int], int | None]]] = {
    "move_pages": _by_move_pages,
    "get_mempolicy": _by_get_mempolicy,
    "numa_maps": _by_numa_maps,
}


def _try_mode(mode: int, nodes: tuple[int, ...]) -> tuple[bool | None, int]:
    """Whether ``set_mempolicy`` takes a mode for a node that it takes with MPOL_BIND."""
    for node in nodes:
        failed = _set_policy(_MPOL_BIND, node)
        if failed == 0:
            failed = _set_policy(mode, node)
            syscalls.set_mempolicy(_MPOL_DEFAULT, 0, 0)
            return _known(failed), failed
    if not nodes:
        raise NoAnswer("the allowed nodes are not known")
    return None, failed


def _try_advice(advice: int) -> tuple[bool | None, int]:
    # madvise() looks at the advice first and returns 0 for an empty range.
    ctypes.set_errno(0)
    failed = libc.madvise(ctypes.c_void_p(0), ctypes.c_size_t(0), advice)
    number = ctypes.get_errno() if failed else 0
    return _known(number), number


def _try_home_node() -> tuple[bool | None, int]:
    failed = syscalls.harmless("set_mempolicy_home_node").errno
    if failed == errno.EINVAL:
        return True, failed
    # Without a filter ENOSYS is the kernel's own word.
    own_word = failed == errno.ENOSYS and not has_seccomp_filter()
    return (False if own_word else None), failed


def _known(failed: int) -> bool | None:
    return {0: True, errno.EINVAL: False}.get(failed)
