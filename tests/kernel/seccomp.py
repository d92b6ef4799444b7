"""Real seccomp filters for tests: classic BPF assembled by hand and installed in this process.

No root is needed: a process that sets no_new_privs may filter itself. Install
in a forked child (tests.kernel.child), for a filter cannot be taken off.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping
from typing import Final

from numadoctor.kernel.abi import CALLS, current_abi

ALLOW: Final = 0x7FFF0000
KILL_PROCESS: Final = 0x80000000
KILL_THREAD: Final = 0x00000000
TRAP: Final = 0x00030000
USER_NOTIF: Final = 0x7FC00000

_LOAD_NUMBER = 0x20  # BPF_LD | BPF_W | BPF_ABS, of seccomp_data.nr at offset 0
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_NEW_LISTENER = 8

PLAIN: Final = ("mbind", "set_mempolicy", "get_mempolicy")
OTHERS: Final = ("set_mempolicy_home_node", "move_pages", "migrate_pages")

_libc = ctypes.CDLL(None, use_errno=True)


def refuse(number: int) -> int:
    """The action that answers a call with this errno."""
    return 0x00050000 | number


def actions(calls: Iterable[str], action: int) -> dict[str, int]:
    """The same action for several calls."""
    return dict.fromkeys(calls, action)


def _program(rules: Mapping[str, int]) -> bytes:
    numbers = current_abi().numbers
    code = [(_LOAD_NUMBER, 0, 0, 0)]
    for name, action in rules.items():
        number = numbers[name]
        assert number is not None
        code += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]
    code.append((_RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(rules: Mapping[str, int]) -> None:
    """Filters this process for good: an action by call name, all else allowed."""
    install_code(_program(rules))


def install_code(code: bytes) -> None:
    """Filters this process for good with a program: instructions of struct sock_filter.

    :raises OSError: the kernel does not take it
    """
    program = _Program(len(code) // 8, code)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, None),
        (_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program)),
    ):
        if _libc.prctl(*arguments, 0, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def install_silent(calls: Iterable[str]) -> int:
    """A filter whose calls wait for a supervisor that never answers; returns its descriptor."""
    code = _program(actions(calls, USER_NOTIF))
    program = _Program(len(code) // 8, code)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    number = {"x86_64": 317, "i386": 354, "aarch64": 277, "riscv64": 277}[current_abi().name]
    listener = int(
        _libc.syscall(
            ctypes.c_long(number), ctypes.c_ulong(1), ctypes.c_ulong(_NEW_LISTENER),
            ctypes.byref(program),
        )
    )  # fmt: skip
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return listener


# What real launchers install, reduced to the six calls (the profiles' own text is
# in docs of moby, containers/common and systemd).
DOCKER: Final = actions(CALLS, refuse(errno.EPERM))
DOCKER_SYS_NICE: Final = actions(("move_pages", "migrate_pages"), refuse(errno.EPERM))
PODMAN: Final = {**DOCKER_SYS_NICE, "set_mempolicy_home_node": refuse(errno.ENOSYS)}
SYSTEMD: Final = actions([name for name in CALLS if name != "get_mempolicy"], refuse(errno.EPERM))
DEFAULT_ENOSYS: Final = actions(CALLS, refuse(errno.ENOSYS))
