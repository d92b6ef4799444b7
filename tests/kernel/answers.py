"""Probes, statuses and runtimes written down for tests, without a kernel."""

import errno
from dataclasses import dataclass
from typing import Any

from numadoctor.kernel.abi import CALLS, by_name

SYS_NICE = 1 << 23
DOCKER_CAPS = 0xA80425FB

REACHED = {
    "mbind": (0, 0),
    "set_mempolicy": (-1, errno.EINVAL),
    "get_mempolicy": (0, 0),
    "set_mempolicy_home_node": (-1, errno.EINVAL),
    "move_pages": (0, 0),
    "migrate_pages": (-1, errno.EINVAL),
}


@dataclass(frozen=True)
class Status:
    seccomp: int | None = 0
    cap_bnd: int | None = DOCKER_CAPS


@dataclass(frozen=True)
class Runtime:
    name: str
    kind: str


def probe(**refused: int | str) -> dict[str, Any]:
    """A probe in which the named calls fail with an errno, or a signal (``"SIGSYS"``).

    ``every`` stands for all six.
    """
    import signal

    numbers = by_name("x86_64").numbers
    calls = []
    for name in CALLS:
        returned, failed = REACHED[name]
        record: dict[str, Any] = {
            "name": name,
            "number": numbers[name],
            "returned": returned,
            "errno": failed,
            "signal": None,
            "unprobed": None,
        }
        answer = refused.get(name, refused.get("every"))
        if isinstance(answer, int):
            record |= {"returned": -1, "errno": answer}
        elif answer is not None:
            record |= {"returned": None, "errno": None, "signal": int(signal.Signals[answer])}
        calls.append(record)
    return {"abi": "x86_64", "unprobed": None, "calls": calls}


def page(call: str, node: int, observed: int | None, failed: int | None = None) -> dict[str, Any]:
    """One page of an effect probe."""
    return {
        "call": call,
        "node": node,
        "observed": observed,
        "method": None if observed is None else "move_pages",
        "errno": failed,
        "signal": None,
        "unprobed": None,
    }


def effect(*pages: dict[str, Any]) -> dict[str, Any]:
    return {"unprobed": None, "pages": list(pages)}


def features(**available: bool | None) -> dict[str, Any]:
    return {
        name: {"available": known, "errno": None, "reason": None}
        for name, known in available.items()
    }
