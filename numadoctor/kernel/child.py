"""Runs steps in a forked child, because a filter may kill whoever makes a call.

A step that ends the child costs only its own answer: the next one runs in a
fresh child. Nothing is left behind, neither a zombie nor a descriptor nor a
core file, and the parent never waits longer than it was told to.
"""

import errno
import marshal
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from numadoctor.kernel.process import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, prctl

TIME_LIMIT = 5.0
"""Seconds that one step may take; far more than any call of ours needs."""

_FRAME = 4  # bytes of the length before each answer


class NoAnswer(Exception):
    """Raised by a step that cannot find out, with the reason in words."""


class Outcome(NamedTuple):
    """How a step ended; exactly one of the three is set.

    :ivar value: what it returned
    :ivar signal: the number of the signal that ended the child during it
    :ivar unprobed: why it gave no answer, in words
    """

    value: Any = None
    signal: int | None = None
    unprobed: str | None = None


def run_steps(
    steps: Sequence[Callable[[], Any]], time_limit: float = TIME_LIMIT
) -> tuple[Outcome, ...]:
    """The outcome of each step, in order.

    Steps share a child as long as it lives, so each must set up what it needs.

    :param steps: functions that return None, numbers, text, or tuples, lists and
        dictionaries of these
    :param time_limit: seconds for one step, after which the child is killed
    """
    outcomes: list[Outcome] = []
    with _children_are_waited_for():
        while len(outcomes) < len(steps):
            outcomes += _run_in_one_child(steps[len(outcomes) :], time_limit)
    return tuple(outcomes)


@contextmanager
def _children_are_waited_for() -> Iterator[None]:
    """Undoes an ignored SIGCHLD for a while: the kernel would drop the exit status."""
    ignored = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    )
    if ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def _run_in_one_child(steps: Sequence[Callable[[], Any]], time_limit: float) -> list[Outcome]:
    """The outcomes of as many steps as one child lives for, at least one."""
    try:
        read_end, write_end = os.pipe()
    except OSError as error:
        return [_not_probed("cannot make a pipe", error)] * len(steps)
    try:
        pid = _fork()
    except OSError as error:
        os.close(read_end)
        os.close(write_end)
        return [_not_probed("cannot fork", error)] * len(steps)
    if pid == 0:
        _be_the_child(steps, write_end)
    os.close(write_end)
    timed_out = True
    try:
        outcomes, timed_out = _answers(read_end, len(steps), time_limit)
    finally:
        os.close(read_end)
        if timed_out:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        status = _reap(pid)
    if len(outcomes) < len(steps):
        outcomes.append(_last_words(status, time_limit if timed_out else None))
    return outcomes


def _fork() -> int:
    with warnings.catch_warnings():
        # Since Python 3.12 a fork beside other threads warns. The child takes no
        # lock of theirs: it makes its calls, writes to a pipe and leaves.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _be_the_child(steps: Sequence[Callable[[], Any]], write_end: int) -> None:
    code = 1
    answer: tuple[Any, str | None]
    try:
        with suppress(ValueError):  # raised in a subinterpreter
            signal.signal(signal.SIGSYS, signal.SIG_DFL)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # SIGSYS writes a core file, which would hold the parent's memory.
        prctl(PR_SET_DUMPABLE, 0)
        for step in steps:
            try:
                answer = (step(), None)
            except NoAnswer as error:
                answer = (None, str(error))
            except Exception as error:
                answer = (None, f"{type(error).__name__}: {error}")
            data = marshal.dumps(answer)
            data = len(data).to_bytes(_FRAME, "little") + data
            while data:
                data = data[os.write(write_end, data) :]
        code = 0
    finally:
        os._exit(code)


def _answers(read_end: int, count: int, time_limit: float) -> tuple[list[Outcome], bool]:
    """Up to ``count`` outcomes as they come in, and whether the child fell silent."""
    outcomes: list[Outcome] = []
    waiting = select.poll()
    waiting.register(read_end, select.POLLIN)
    pending = b""
    deadline = time.monotonic() + time_limit
    while len(outcomes) < count:
        if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return outcomes, True
        data = os.read(read_end, 1 << 16)
        if not data:
            break
        pending += data
        while len(pending) >= _FRAME:
            end = _FRAME + int.from_bytes(pending[:_FRAME], "little")
            if len(pending) < end:
                break
            value, unprobed = marshal.loads(pending[_FRAME:end])
            outcomes.append(Outcome(value, None, unprobed))
            pending = pending[end:]
            deadline = time.monotonic() + time_limit
    return outcomes, False


def _reap(pid: int) -> int | None:
    """The wait status; None when somebody else's handler took it."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return None


def _last_words(status: int | None, time_limit: float | None) -> Outcome:
    if time_limit is not None:
        return Outcome(unprobed=f"no answer within {time_limit:g} s; the probe was ended")
    if status is None:
        return Outcome(unprobed="the probe ended without an answer and its exit status was lost")
    if os.WIFSIGNALED(status):
        return Outcome(signal=os.WTERMSIG(status))
    return Outcome(unprobed=f"the probe ended without an answer ({os.WEXITSTATUS(status)})")


def _not_probed(what: str, error: OSError) -> Outcome:
    return Outcome(unprobed=f"{what}: {errno.errorcode.get(error.errno or 0, error.errno)}")
