"""What a seccomp filter can do to a call, and the verdict on one."""

import enum
import errno as _errno
from dataclasses import dataclass
from typing import Final

MAX_ERRNO: Final = 4095
"""The kernel answers no larger number (MAX_ERRNO of include/linux/err.h)."""

_ACTION, _DATA = 0xFFFF0000, 0x0000FFFF


class Action(str, enum.Enum):
    """What becomes of the call. The values are keys of the JSON output."""

    ALLOW = "allow"
    LOG = "log"  # allowed, and written to the audit log
    TRACE = "trace"  # a tracer decides; without one it is answered ENOSYS
    NOTIFY = "notify"  # a supervisor in user space decides
    ERRNO = "errno"
    TRAP = "trap"  # SIGSYS to the thread, which may handle it
    KILL_THREAD = "kill-thread"
    KILL_PROCESS = "kill-process"
    NO_START = "no-start"  # the runtime refuses the profile: there is no container


_RETURN_VALUES: Final = {
    0x80000000: Action.KILL_PROCESS,
    0x00000000: Action.KILL_THREAD,
    0x00030000: Action.TRAP,
    0x00050000: Action.ERRNO,
    0x7FC00000: Action.NOTIFY,
    0x7FF00000: Action.TRACE,
    0x7FFC0000: Action.LOG,
    0x7FFF0000: Action.ALLOW,
}

_KILLS: Final = (Action.TRAP, Action.KILL_THREAD, Action.KILL_PROCESS)


def of_return_value(value: int) -> tuple[Action, int | None]:
    """The action, and the errno of ERRNO, that a filter's return value means.

    The kernel kills the process for an action that it does not know
    (__seccomp_filter, kernel/seccomp.c).
    """
    action = _RETURN_VALUES.get(value & _ACTION, Action.KILL_PROCESS)
    return action, min(value & _DATA, MAX_ERRNO) if action is Action.ERRNO else None


def precedence(value: int) -> int:
    """Of several filters the one with the least number decides, as in seccomp_run_filters."""
    action = value & _ACTION
    return action - (1 << 32) if action & 0x80000000 else action


@dataclass(frozen=True)
class Verdict:
    """What a filter does to one call.

    :ivar action: what becomes of it; None where that is unknown
    :ivar errno: the number that ERRNO answers; 0 means success without a call
    :ivar reason: how that is known, or why not, in a sentence
    :ivar rule: which entry of the profile's ``syscalls`` decides, counted from 0; None for
        its default action and where no profile was looked at
    :ivar closed: of an unknown action: whichever of them it is, the kernel is not reached
    """

    action: Action | None
    errno: int | None
    reason: str
    rule: int | None = None
    closed: bool = False

    @property
    def unknown(self) -> bool:
        """Whether what was looked at allows more than one answer."""
        return self.action is None

    @property
    def open(self) -> bool:
        """Whether the call is known to reach the kernel."""
        return self.action in (Action.ALLOW, Action.LOG)

    @property
    def refused(self) -> bool:
        """Whether the call is known not to reach the kernel."""
        return self.closed or not (self.unknown or self.open or self.action is Action.NOTIFY)

    @property
    def answer(self) -> str:
        """In a word: ``allow``, ``EPERM``, ``SIGSYS``, ``0``, ``notify``, ``unknown``."""
        if self.action is None:
            return "unknown"
        if self.action in (Action.ERRNO, Action.TRACE):
            number = _errno.ENOSYS if self.action is Action.TRACE else self.errno or 0
            return _errno.errorcode.get(number, str(number))
        if self.action in _KILLS:
            return "SIGSYS"
        return "allow" if self.open else self.action.value

    def same_as(self, other: "Verdict") -> bool:
        """Whether both do the same to the call, for whatever reason."""
        return (self.action, self.errno) == (other.action, other.errno)
