"""The seccomp filters of a running thread, read with ptrace while it stands still.

It is never stopped in vain: what would make the reading fail is looked at
first. The tracer is a child of its own, which the kernel parts from the thread
however it ends; so the thread runs on after an error, a signal or a kill.
"""

import ctypes
import errno
import os
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from numadoctor.kernel.child import NoAnswer, run_steps
from numadoctor.kernel.process import OTHER_IDS, has_ids_of_proc, has_seccomp_filter, libc
from numadoctor.kernel.seccomp.bpf import LONGEST, BadProgram, Program, decode

_SEIZE, _INTERRUPT, _DETACH, _GET_FILTER = 0x4206, 0x4207, 17, 0x420C
_EVENT_STOP: Final = 128
_WALL: Final = 0x40000000
_CAP_SYS_ADMIN: Final = 21
_MOST_FILTERS: Final = 10_000
"""More than the kernel allows: 32768 instructions in all, and 4 for each filter."""

TIME_LIMIT: Final = 2.0
"""Seconds after which a thread that does not stop (it waits for a disk, say) is left alone."""


class _Stop(NamedTuple):
    signal: int  # that it was to get, and must still get; or 0
    since: float  # when it was last seen running, as time.perf_counter has it


class NotRead(Exception):
    """The filters could not be read; the message says why and what helps."""


@dataclass(frozen=True)
class Reading:
    """The filters of a thread.

    :ivar filters: in the order in which they were installed
    :ivar seconds: for how long the thread stood still, at most
    """

    filters: tuple[Program, ...]
    seconds: float


def read_filters(thread: int, time_limit: float = TIME_LIMIT) -> Reading:
    """Stop the thread for about a millisecond and read its filters.

    :param thread: its id (of a process: the main thread)
    :param time_limit: seconds to wait for it to stop
    :raises NotRead: with the reason; the thread runs, or stands still as it did before
    """
    if reason := _in_vain():
        raise NotRead(reason)
    (outcome,) = run_steps([lambda: _trace(thread, time_limit)], time_limit + 1)
    if outcome.unprobed is not None:
        raise NotRead(outcome.unprobed)
    if outcome.value is None:
        raise NotRead(f"the tracer was ended by signal {outcome.signal}")
    programs, seconds = outcome.value
    try:
        return Reading(tuple(decode(data, sys.byteorder) for data in programs), seconds)
    except BadProgram as error:
        raise NotRead(f"what the kernel gave is no filter: {error}") from None


def _in_vain() -> str:
    """Why the kernel would not let this process read any filter, or nothing."""
    if not has_ids_of_proc():
        return OTHER_IDS
    if has_seccomp_filter():
        return "the kernel shows filters to nobody who has one: run it outside of containers"
    try:
        with open("/proc/self/status", "rb") as status:
            found = re.search(rb"^CapEff:\s*([0-9a-f]+)$", status.read(), re.MULTILINE)
    except OSError:
        found = None
    if found and not int(found[1], 16) >> _CAP_SYS_ADMIN & 1:
        return "reading the filters of a process needs CAP_SYS_ADMIN: run it as root"
    return ""


def _ptrace(request: int, thread: int, address: int = 0, data: Any = 0) -> int:
    ctypes.set_errno(0)
    return int(
        libc.ptrace(
            ctypes.c_long(request), ctypes.c_long(thread), ctypes.c_ulong(address),
            data if isinstance(data, ctypes.Array) else ctypes.c_ulong(data),
        )
    )  # fmt: skip


def _trace(thread: int, time_limit: float) -> tuple[list[bytes], float]:
    """Runs in the child: the programs, and the seconds for which the thread was held."""
    # On a busy machine the thread would wait for this child's next turn.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if _ptrace(_SEIZE, thread):
        raise NoAnswer(_why_not_seized(ctypes.get_errno(), thread))
    stop: _Stop | None = None
    try:
        if _ptrace(_INTERRUPT, thread):
            raise NoAnswer(f"thread {thread} cannot be stopped: {_error()}")
        stop = _wait(thread, time_limit)
        programs = _programs(thread)
    finally:
        # Where it does not stand still the end of this child parts them.
        if stop is not None:
            _ptrace(_DETACH, thread, 0, stop.signal)
    return programs, time.perf_counter() - stop.since


def _why_not_seized(number: int, thread: int) -> str:
    if number == errno.ESRCH:
        return f"there is no thread {thread}"
    if number == errno.EPERM:
        return (
            f"thread {thread} may not be traced: another tracer has it, it has ended, or this "
            "needs CAP_SYS_PTRACE (run it as root)"
        )
    return f"thread {thread} cannot be traced: {_error()}"


def _error() -> str:
    number = ctypes.get_errno()
    return f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"


def _wait(thread: int, time_limit: float) -> _Stop:
    """Wait until it stands still."""
    ran = time.perf_counter()
    deadline = ran + time_limit
    pause = 0.00002
    while ran < deadline:
        looked = time.perf_counter()
        stopped, status = os.waitpid(thread, os.WNOHANG | _WALL)
        if stopped and os.WIFSTOPPED(status):
            return _Stop(0 if status >> 16 == _EVENT_STOP else os.WSTOPSIG(status), ran)
        if stopped:
            raise NoAnswer(f"thread {thread} ended")
        ran = looked
        time.sleep(pause)
        pause = min(2 * pause, 0.0002)
    raise NoAnswer(f"thread {thread} does not stop: it waits for a device, it seems")


def _programs(thread: int) -> list[bytes]:
    programs: list[bytes] = []
    for index in range(_MOST_FILTERS):
        length = _ptrace(_GET_FILTER, thread, index)
        if length < 0:
            if ctypes.get_errno() == errno.ENOENT and index:
                return programs
            raise NoAnswer(_why_not_given(ctypes.get_errno()))
        room = ctypes.create_string_buffer(8 * min(length, LONGEST))
        if _ptrace(_GET_FILTER, thread, index, room) != length:
            raise NoAnswer("the filter changed while it was read")
        programs.append(room.raw)
    raise NoAnswer("more filters than the kernel allows")


def _why_not_given(number: int) -> str:
    reasons = {
        errno.EACCES: "reading the filters of a process needs CAP_SYS_ADMIN in the first user "
        "namespace: run it as root of the host",
        errno.EINVAL: "the thread has no filter, or this kernel is built without "
        "CONFIG_CHECKPOINT_RESTORE",
        errno.EMEDIUMTYPE: "the filter is no classic BPF",
        errno.EIO: "this kernel cannot show filters (CONFIG_CHECKPOINT_RESTORE)",
    }
    return reasons.get(number, f"the kernel does not show the filter: {_error()}")
