"""Every kind of pid that a person may name: a thread, a zombie, a thread of the kernel, pid 1."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from numadoctor.host.parsers import parse_stat
from numadoctor.kernel.seccomp import tracing
from tests.cli.programs import numadoctor
from tests.lab.guest_victims import MIB, private, victim
from tests.placement.test_live import WHY_NOT

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

COMMANDS = [
    ("syscalls", "--pid"),
    ("syscalls", "--stop-thread", "--pid"),
    ("syscalls", "--emit-profile", "--pid"),
    ("maps",),
    ("maps", "--exact"),
    ("check", "--select", "P,E", "--pid"),
]
by_command = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)

# The first thread ends and leaves another.
_LEADERLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def refused(command: tuple[str, ...], pid: int) -> str:
    """The one line that a command says of a pid of which there is nothing to examine."""
    done = numadoctor(*command, pid)
    assert done.code == 3
    if command[0] == "syscalls":
        assert done.out == ""
        (line,) = done.err.splitlines()
        return line
    assert done.err == ""
    words = " ".join(done.out.split())
    assert words.count("not examined:") == 1
    assert f"not examined: pid {pid}: " in words
    if command[0] == "maps":
        assert len(words) < 200
    return words


def kernel_thread() -> int | None:
    """One that is seen from here."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if parse_stat(Path(f"/proc/{name}/stat").read_bytes()).of_kernel:
                return int(name)
        except OSError:
            continue
    return None


@by_command
def test_a_thread_of_the_kernel_makes_no_calls(command: tuple[str, ...]) -> None:
    pid = kernel_thread()
    if pid is None:
        pytest.skip("no thread of the kernel is seen in this pid namespace")
    told = "a thread of the kernel, which makes no system calls and has no memory"
    assert told in refused(command, pid)


@by_command
def test_a_zombie_has_ended(command: tuple[str, ...]) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert "it has ended, and waits for its parent (zombie)" in refused(command, pid)
    finally:
        os.waitpid(pid, 0)


@by_command
def test_a_pid_of_nobody(command: tuple[str, ...]) -> None:
    assert "no such process" in refused(command, 1 << 40)


@pytest.fixture
def thread() -> Iterator[int]:
    """A thread of this process."""
    end = threading.Event()
    started = threading.Thread(target=end.wait)
    started.start()
    assert started.native_id is not None
    yield started.native_id
    end.set()
    started.join()


def test_a_thread_is_asked_for_its_filter_and_its_process_for_memory(thread: int) -> None:
    done = numadoctor("syscalls", "--pid", thread, "-o", "json")
    headline = json.loads(done.out)["headline"]
    assert headline.startswith(f"In thread {thread} of process {os.getpid()} ")
    for pids in ((thread,), (thread, os.getpid()), (os.getpid(),)):
        done = numadoctor("maps", *pids, "--no-tree", "-o", "json")
        assert (done.code, done.err) == (0, "")
        assert [p["pid"] for p in json.loads(done.out)["processes"]] == [os.getpid()]
    done = numadoctor("check", "--pid", thread, "--no-tree", "--select", "P")
    assert f"pid {os.getpid()} " in done.out
    assert "not examined" not in done.out


def test_a_process_whose_first_thread_has_ended_is_examined_through_another() -> None:
    with subprocess.Popen([sys.executable, "-c", _LEADERLESS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            status = Path(f"/proc/{process.pid}/status")
            while "State:\tZ" not in status.read_text():
                pass
            done = numadoctor("maps", process.pid, "-o", "json")
            assert (done.code, done.err) == (0, "")
            found = json.loads(done.out)
            assert found["incomplete"] == []
            assert found["resident_bytes"] > 1 << 20
            done = numadoctor("syscalls", "--pid", process.pid, "-o", "json")
            assert f" of process {process.pid} " in json.loads(done.out)["headline"]
        finally:
            process.kill()


def test_pid_1_is_a_process_like_others() -> None:
    done = numadoctor("syscalls", "--pid", 1)
    assert done.err == ""
    assert done.out.startswith("In process 1 ")
    done = numadoctor("check", "--pid", 1, "--no-tree", "--select", "P")
    assert done.code in (0, 1, 3)
    assert "pid 1 " in done.out
    # Whose memory may not be read is told, and is no pass.
    assert (done.code == 3) >= ("not examined" in done.out)


@pytest.fixture
def foreign() -> list[str]:
    """Runs a command in a pid namespace, with the /proc of the outer one."""
    # Without a user namespace, from which nobody outside may be looked into.
    command = ["unshare", "--pid", "--fork"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a pid namespace of one's own needs root")
    return [*command, sys.executable, "-m", "numadoctor"]


def test_calls_of_another_pid_namespace_are_not_made(foreign: list[str]) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*foreign, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with victim(lambda: private(4 * MIB).touch().start) as (pid, _):
        # The pages of who has that pid in the new namespace are somebody else's.
        done = run("maps", pid, "--sampled", "-o", "json")
        assert done.returncode == 3
        (line,) = json.loads(done.stdout)["incomplete"]
        assert "move_pages finds other processes: /proc shows the ids of another" in line
        done = run("maps", pid, "-o", "json")
        found = json.loads(done.stdout)
        assert (done.returncode, found["method"]) == (0, "exact")
        assert found["resident_bytes"] >= 4 * MIB
        assert "another pid namespace" in found["because"]


def test_no_thread_of_another_pid_namespace_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "has_ids_of_proc", lambda: False)
    monkeypatch.setattr(tracing, "run_steps", lambda *_: pytest.fail("it was stopped"))
    with pytest.raises(tracing.NotRead, match="another pid namespace"):
        tracing.read_filters(os.getppid())
