"""Filters read from a running process: what comes out, and that the process runs on."""

import ctypes
import errno
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from numadoctor.kernel.abi import CALLS, current_abi
from numadoctor.kernel.seccomp import tracing
from numadoctor.kernel.seccomp.stack import judge
from numadoctor.kernel.seccomp.tracing import NotRead, read_filters
from tests.kernel import seccomp
from tests.kernel.child import in_child


def _capable() -> bool:
    """Whether this process may read filters: root of the first user namespace, unfiltered."""
    try:
        with victim() as (pid, _):
            read_filters(pid)
    except NotRead:
        return False
    return True


@contextmanager
def victim(
    prepare: Callable[[], object] = lambda: seccomp.install(seccomp.DOCKER),
    live: Callable[[], object] = lambda: time.sleep(600),
) -> Iterator[tuple[int, int]]:
    """A child that prepares itself, says so and lives on; its id and the pipe it wrote to."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            os.write(write_end, b".")
            live()
        finally:
            os._exit(0)
    os.close(write_end)
    try:
        assert os.read(read_end, 1) == b"."
        yield pid, read_end
    finally:
        os.close(read_end)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def settles(pid: int, wanted: str) -> bool:
    """Whether the process comes to that state and nobody traces it."""
    deadline = time.monotonic() + 20
    while state(pid) != ("0", wanted) and time.monotonic() < deadline:
        time.sleep(0.01)
    return state(pid) == ("0", wanted)


def state(pid: int) -> tuple[str, str]:
    text = Path(f"/proc/{pid}/status").read_text()
    found = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return found["TracerPid"], found["State"][0]


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not _capable(),
    reason="needs CAP_SYS_ADMIN and a kernel that shows filters",
)


@needs_root
def test_the_filters_come_in_the_order_of_their_installation() -> None:
    def prepare() -> None:
        seccomp.install(seccomp.PODMAN)
        seccomp.install({"mbind": seccomp.refuse(errno.EACCES)})
        seccomp.install({"mbind": seccomp.refuse(errno.EXDEV), "move_pages": seccomp.ALLOW})

    with victim(prepare) as (pid, _):
        reading = read_filters(pid)
        assert settles(pid, "S")
    assert [len(program) for program in reading.filters] == [2 + 2 * 3, 4, 6]
    assert 0 < reading.seconds < 1
    answers = {call: judge(reading.filters, call, current_abi()).answer for call in CALLS}
    assert answers == {
        "mbind": "EXDEV",
        "set_mempolicy": "allow",
        "get_mempolicy": "allow",
        "set_mempolicy_home_node": "ENOSYS",
        "move_pages": "EPERM",
        "migrate_pages": "EPERM",
    }


@needs_root
def test_the_thread_runs_on_and_loses_no_signal() -> None:
    def live() -> None:
        signal.signal(signal.SIGUSR1, lambda *_: os.write(write_end, b"+"))
        os.write(write_end, b"!")
        while True:
            time.sleep(600)

    read_end, write_end = os.pipe()
    with victim(live=live) as (pid, _):
        assert os.read(read_end, 1) == b"!"
        for _ in range(20):
            sender = threading.Timer(0.0005, os.kill, (pid, signal.SIGUSR1))
            sender.start()
            read_filters(pid)
            assert select.select([read_end], [], [], 20)[0]
            assert os.read(read_end, 9) == b"+"
            sender.join()
    os.close(read_end)
    os.close(write_end)


@needs_root
def test_a_stopped_process_stays_stopped() -> None:
    with victim() as (pid, _):
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        assert len(read_filters(pid).filters) == 1
        assert settles(pid, "T")


@needs_root
@pytest.mark.parametrize("how", ["error", "kill", "silence"])
def test_however_the_tracer_ends_the_thread_runs_on(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disturb(_thread: int) -> list[bytes]:
        if how == "error":
            raise RuntimeError("in the middle of it")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
        return []

    monkeypatch.setattr(tracing, "_programs", disturb)
    with victim() as (pid, _):
        with pytest.raises(NotRead):
            read_filters(pid, time_limit=0.3)
        assert settles(pid, "S")


@needs_root
def test_what_cannot_be_read_is_told() -> None:
    with pytest.raises(NotRead, match="there is no thread"):
        read_filters(0x3FFFFF)
    with victim(prepare=lambda: None) as (pid, _), pytest.raises(NotRead, match="no filter"):
        read_filters(pid)


@needs_root
def test_a_process_that_another_tracer_has() -> None:
    def other(pid: int) -> list[str]:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.ptrace(0x4206, pid, None, None) == 0

        def read() -> str:
            try:
                read_filters(pid)
            except NotRead as error:
                return str(error)
            return "read"

        return [read()]

    with victim() as (pid, _):
        (told,) = in_child(lambda: other(pid))
    assert "another tracer has it" in told


def test_nothing_is_stopped_where_it_would_be_in_vain() -> None:
    def filtered() -> str:
        seccomp.install({"move_pages": seccomp.refuse(1)})
        try:
            read_filters(os.getppid())
        except NotRead as error:
            return str(error)
        return "read"

    assert "filters to nobody who has one" in in_child(filtered)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_without_the_capability_nobody_is_stopped() -> None:
    def powerless() -> str:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            read_filters(os.getppid())
        except NotRead as error:
            return str(error)
        return "read"

    assert "needs CAP_SYS_ADMIN" in in_child(powerless)
