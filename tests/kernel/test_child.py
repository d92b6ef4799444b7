import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from numadoctor.kernel import child
from numadoctor.kernel.child import NoAnswer, Outcome, run_steps


def _raise() -> None:
    raise OSError(5, "Input/output error")


def _no_answer() -> None:
    raise NoAnswer("nothing to ask")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _leave() -> None:
    os._exit(7)


def _sleep() -> None:
    time.sleep(600)


def _large() -> str:
    return "x" * 1_000_000


def _descriptors() -> list[str]:
    return os.listdir("/proc/self/fd")


def _no_children() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return True


def test_answers_come_in_order() -> None:
    steps = [lambda number=number: (number, None, "text") for number in range(300)]
    assert [outcome.value for outcome in run_steps(steps)] == [
        (n, None, "text") for n in range(300)
    ]


def test_no_steps_need_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", _raise)
    assert run_steps([]) == ()


def test_an_answer_may_be_larger_than_a_pipe() -> None:
    assert run_steps([_large])[0].value == _large()


def test_each_way_to_end_costs_one_answer_and_leaves_nothing_behind() -> None:
    before = _descriptors()
    outcomes = run_steps(
        [os.getpid, _die, os.getpid, _raise, _leave, os.getpid, _sleep, _no_answer, os.getpid],
        time_limit=0.5,
    )
    first, killed, second, raised, left, third, hung, refused, fourth = outcomes
    assert killed == Outcome(signal=signal.SIGKILL)
    assert raised == Outcome(unprobed="OSError: [Errno 5] Input/output error")
    assert left == Outcome(unprobed="the probe ended without an answer (7)")
    assert hung == Outcome(unprobed="no answer within 0.5 s; the probe was ended")
    assert refused == Outcome(unprobed="nothing to ask")
    pids = [first.value, second.value, third.value, fourth.value]
    assert len(set(pids)) == 4
    assert os.getpid() not in pids
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert _descriptors() == before
    assert _no_children()


@pytest.mark.parametrize("what", ["fork", "pipe"])
def test_without_a_child_every_step_is_told_why(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(11, "Resource temporarily unavailable")

    before = _descriptors()
    monkeypatch.setattr(os, what, refuse)
    outcomes = run_steps([os.getpid, os.getpid])
    assert [outcome.value for outcome in outcomes] == [None, None]
    assert all((outcome.unprobed or "").endswith(f"{what}: EAGAIN") for outcome in outcomes)
    assert _descriptors() == before


def test_fork_refused_by_a_limit_of_the_kernel() -> None:
    """Real EAGAIN: RLIMIT_NPROC binds any user but root."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    from tests.kernel.child import in_child

    def ask() -> Any:
        os.setgroups([])
        os.setresuid(54321, 54321, 54321)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        return [outcome.unprobed for outcome in run_steps([os.getpid])]

    assert in_child(ask) == ["cannot fork: EAGAIN"]


def test_an_interrupt_of_the_parent_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    real = child._fork

    def fork() -> int:
        pid = real()
        pids.append(pid)
        return pid

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    before = _descriptors()
    monkeypatch.setattr(child, "_fork", fork)
    monkeypatch.setattr(child, "_answers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_steps([_sleep])
    assert not os.path.exists(f"/proc/{pids[0]}")
    assert _descriptors() == before


def test_beside_other_threads_and_from_one() -> None:
    """Python 3.12 and later warn of forks beside threads; ours may not."""
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    found: list[tuple[Outcome, ...]] = []
    asking = threading.Thread(target=lambda: found.append(run_steps([_die, os.getpid])))
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            asking.start()
            asking.join(600)
            assert run_steps([_die])[0].signal == signal.SIGKILL
        assert not warned
    finally:
        stop.set()
        other.join()
    assert found[0][0].signal == signal.SIGKILL
    assert found[0][1].value not in (None, os.getpid())


def _run(program: str, **how: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        **how,
    )


def test_a_parent_that_ignores_its_children_still_learns_the_signal() -> None:
    program = """
        import os, signal
        from numadoctor.kernel.child import run_steps
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print([o.signal for o in run_steps([lambda: os.kill(os.getpid(), 31)])])
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    """
    result = _run(program)
    assert (result.stdout, result.stderr, result.returncode) == ("[31]\n", "", 0)


def test_a_parent_whose_handler_takes_the_exit_status_is_told() -> None:
    program = """
        import os, signal
        from numadoctor.kernel import child
        real = os.waitpid
        def stolen(pid, options):
            real(pid, options)
            raise ChildProcessError
        os.waitpid = stolen
        print(child.run_steps([lambda: os._exit(0)])[0].unprobed)
    """
    assert _run(program).stdout == (
        "the probe ended without an answer and its exit status was lost\n"
    )


def test_nothing_of_the_parent_is_written_or_run_in_the_child() -> None:
    """Buffered output would come out twice, and exit handlers run twice."""
    program = """
        import atexit, os, sys
        from numadoctor.kernel.child import run_steps
        atexit.register(print, "left")
        sys.stdout.write("buffered ")
        run_steps([os.getpid, lambda: os._exit(3), sys.exit])
    """
    result = _run(program)
    assert (result.stdout, result.returncode) == ("buffered left\n", 0)


def test_a_signal_that_dumps_core_writes_no_file(tmp_path: Path) -> None:
    """SIGSYS dumps core, and the core of a child holds the memory of its parent."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith(("|", "/")):
        pytest.skip(f"core files go to {pattern}")
    program = """
        import os, resource, sys
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        if sys.argv[1] == "control":
            os.kill(os.getpid(), 31)
        from numadoctor.kernel.child import run_steps
        print(run_steps([lambda: os.kill(os.getpid(), 31)])[0].signal)
    """
    code = textwrap.dedent(program)
    how: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "check": False, "timeout": 60}
    environment = {**os.environ, "PYTHONPATH": str(Path(child.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code, "control"], env=environment, **how)
    if not list(tmp_path.iterdir()):
        pytest.skip("core files are switched off here")
    for file in tmp_path.iterdir():
        file.unlink()
    result = subprocess.run([sys.executable, "-c", code, "probe"], env=environment, **how)
    assert result.stdout == b"31\n"
    assert not list(tmp_path.iterdir())
