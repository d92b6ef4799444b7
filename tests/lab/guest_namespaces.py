"""Processes like those of two containers: what has a number in each is not the same thing.

Runs in a guest, and wherever namespaces may be made.
"""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from numadoctor.host import Host
from numadoctor.kernel.policy import Mode
from numadoctor.model import Target
from numadoctor.model.placement import Method
from numadoctor.placement import place
from tests.lab import guest_victims as victims
from tests.lab.guest_victims import MIB, victim

_NEW_MOUNTS, _NEW_IPC, _NEW_USER = 0x00020000, 0x08000000, 0x10000000  # of unshare(2)
_PRIVATE = 0x4000 | 0x40000  # MS_REC and MS_PRIVATE of mount(2)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """Namespaces of one's own, as a container has them, with an empty /dev/shm.

    :raises OSError: they are refused
    """
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEW_MOUNTS | _NEW_IPC | (_NEW_USER if user else 0)):
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        # Who is nobody there may make no file.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    if _libc.mount(None, b"/", None, _PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount /")
    if _libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount /dev/shm")


def _second() -> int:
    """A process that has all that this one has mapped, and ends with it."""
    pid = os.fork()
    if pid == 0:
        _libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        os.closerange(3, 1024)  # the pipe of whoever waits for the answer, too
        while True:
            signal.pause()
    return pid


def _container(length: int, mode: Mode, nodes: list[int]) -> dict[str, Any]:
    """The first segments of new namespaces, mapped by two processes."""
    enter()
    number = victims.new_segment(length)
    parts = {
        "sysv": victims.attach(number, length),
        "posix": victims.posix("kv", length),
        "memfd": victims.memfd("kv", length),
    }
    for part in parts.values():
        part.bind(mode, nodes).touch()
    return {"number": number, "inode": os.stat("/dev/shm/kv").st_ino, "second": _second()}


@contextmanager
def _containers(length: int, nodes: list[int]) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    policies = (Mode.INTERLEAVE, nodes), (Mode.BIND, nodes[-1:])
    with ExitStack() as stack:
        yield [
            stack.enter_context(victim(partial(_container, length, mode, chosen)))
            for mode, chosen in policies
        ]


def alike(nodes: list[int]) -> dict[str, Any]:
    """What is found of two containers of two processes, whose segments have the same numbers.

    The first interleaves over the nodes, the second binds to the last one.
    """
    with _containers(4 * MIB, nodes) as made:
        pids = [sorted((pid, told["second"])) for pid, told in made]
        found: dict[str, Any] = {
            "pids": pids,
            "numbers": [told["number"] for _, told in made],
            "inodes": [told["inode"] for _, told in made],
        }
        for method in (Method.EXACT, Method.SAMPLED):
            placement = place(
                Host(), [Target(pid) for pair in pids for pid in pair], method=method, seed=1
            )
            found[method.value] = {
                kind: [
                    {
                        "pids": sorted({attacher.pid for attacher in p.attachers}),
                        "resident": p.resident,
                        "by_node": {str(node): s.bytes for node, s in p.by_node.items()},
                    }
                    for p in placement.mappings
                    if p.mapping.kind.value == kind
                ]
                for kind in ("sysv", "posix", "memfd")
            }
            found["remarks"] = list(placement.remarks)
        return found


def why_not() -> str:
    """Why no such processes can be made or looked at here, or nothing."""
    try:
        with victim(enter) as (pid, _), open(f"/proc/{pid}/maps"):
            os.readlink(f"/proc/{pid}/ns/ipc")
        return ""
    except (OSError, RuntimeError) as error:
        return f"no namespaces like those of containers here: {error}"
