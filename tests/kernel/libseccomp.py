"""libseccomp as the OCI runtimes use it: filters made by the library itself, for comparison."""

import ctypes
import ctypes.util
import errno
import os
import tempfile
from typing import Any, Final

from numadoctor.kernel.seccomp.actions import Action
from numadoctor.kernel.seccomp.bpf import Program, decode
from numadoctor.kernel.seccomp.profile import Condition, Profile

_ACTIONS: Final = {
    Action.KILL_PROCESS: 0x80000000,
    Action.KILL_THREAD: 0x00000000,
    Action.TRAP: 0x00030000,
    Action.ERRNO: 0x00050000,
    Action.TRACE: 0x7FF00000,
    Action.LOG: 0x7FFC0000,
    Action.ALLOW: 0x7FFF0000,
}
_OPERATORS: Final = ("", "NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ")
_ARCHITECTURES: Final = {"X86_64": 0xC000003E, "X86": 0x40000003, "X32": 0x4000003E}


class Refused(Exception):
    """The library does not take a rule: a runtime would not start the container."""


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def load() -> ctypes.CDLL | None:
    """The library, or None where there is none."""
    name = ctypes.util.find_library("seccomp")
    if name is None:
        return None
    library = ctypes.CDLL(name)
    library.seccomp_init.restype = ctypes.c_void_p
    return library


def crun(library: ctypes.CDLL, profile: Profile) -> Program:
    """The filter that crun makes of a profile in the runtime's form.

    :raises Refused: it would refuse the profile
    """
    default = _action(profile.default, profile.default_errno)
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(default)))
    if not context:
        raise Refused("default action")
    try:
        for name in profile.architectures:
            token = _ARCHITECTURES[name.removeprefix("SCMP_ARCH_")]
            answer = library.seccomp_arch_add(context, ctypes.c_uint32(token))
            if answer not in (0, -errno.EEXIST):
                raise Refused(name)
        for rule in profile.rules:
            action = _action(rule.action, rule.errno)
            if action == default:
                continue
            for call in rule.names:
                _add(library, context, action, call, rule.conditions)
        return _exported(library, context)
    finally:
        library.seccomp_release(context)


def _action(action: Action | None, number: int | None) -> int:
    assert action is not None
    if number is not None and action not in (Action.ERRNO, Action.TRACE):
        raise Refused("errno for an action that has none")
    data = (errno.EPERM if number is None else number) & 0xFFFF
    return _ACTIONS[action] | (data if action in (Action.ERRNO, Action.TRACE) else 0)


def _add(
    library: ctypes.CDLL,
    context: Any,
    action: int,
    call: str,
    conditions: tuple[Condition, ...],
) -> None:
    number = library.seccomp_syscall_resolve_name(call.encode())
    if number == -1:
        return
    indexes = [condition.index for condition in conditions]
    groups = [conditions]
    if len(indexes) > len(set(indexes)):
        groups = [(condition,) for condition in conditions]
    for group in groups:
        made = (_Comparison * len(group))(
            *(
                _Comparison(c.index, _OPERATORS.index(c.operator), c.value, c.value_two)
                for c in group
            )
        )
        answer = library.seccomp_rule_add_array(
            context, ctypes.c_uint32(action), number, len(group), made
        )
        if answer:
            raise Refused(f"{call}: {os.strerror(-answer)}")


def _exported(library: ctypes.CDLL, context: Any) -> Program:
    with tempfile.TemporaryFile() as file:
        if library.seccomp_export_bpf(context, file.fileno()):
            raise Refused("export")
        file.seek(0)
        return decode(file.read())
