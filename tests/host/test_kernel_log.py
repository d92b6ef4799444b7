import errno
import os

import pytest

from numadoctor.host import kernel_log
from numadoctor.model import Denied, Undecided

KILL = b"oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=/,mems_allowed=0"


class Records:
    """A /dev/kmsg that answers what is in ``answers``, and then that there is no more."""

    def __init__(self, *answers: bytes | int) -> None:
        self.answers = list(answers)

    def read(self, _descriptor: int, _size: int) -> bytes:
        answer = self.answers.pop(0) if self.answers else errno.EAGAIN
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        return answer


def ask(monkeypatch: pytest.MonkeyPatch, *answers: bytes | int) -> dict[str, object]:
    monkeypatch.setattr(kernel_log, "DEVICE", "/dev/null")
    monkeypatch.setattr(os, "read", Records(*answers).read)
    return kernel_log.oom_lines()


def test_lines_of_killings_alone_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask(
        monkeypatch,
        b"6,1,0,-;Linux version 6.12\n",
        b"4,2,0,-;" + KILL + b"\n SUBSYSTEM=x\n",
        errno.EPIPE,
        b"4,3,0,-;Out of memory: Killed process 77\n",
    )
    assert found == {"visible": True, "lines": [KILL.decode()], "records": 3}


def test_an_empty_log_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch) == {"visible": True, "lines": [], "records": 0}


def test_a_refusal_while_reading_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Denied):
        ask(monkeypatch, errno.EPERM)


def test_without_the_device_it_is_not_to_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "DEVICE", "/nonexistent/kmsg")
    assert kernel_log.oom_lines() == {"visible": False, "lines": [], "records": 0}


def test_live_it_answers_or_says_why_not() -> None:
    try:
        found = kernel_log.oom_lines()
    except Undecided as error:
        pytest.skip(str(error))
    assert set(found) == {"visible", "lines", "records"}
