"""`numadoctor syscalls` in real containers: every verdict, its cause, and a fix that works.

What each profile does is told in the profiles themselves, and the expectations
here are written down from them; the fixes are applied, in another container.
"""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab import containers
from tests.lab.containers import UNCONFINED, Container

pytestmark = pytest.mark.lab

POLICY = ("mbind", "set_mempolicy", "get_mempolicy")
HOME = "set_mempolicy_home_node"
MOVE = ("move_pages", "migrate_pages")
CALLS = (*POLICY, HOME, *MOVE)
# What the kernel itself answers to the forms without side effects.
KERNEL = {
    "mbind": None,
    "set_mempolicy": "EINVAL",
    "get_mempolicy": None,
    HOME: "EINVAL",
    "move_pages": None,
    "migrate_pages": "EINVAL",
}


def diagnose(container: Container) -> dict[str, Any]:
    """The answer of `numadoctor syscalls` in the container, its calls by name."""
    done = container.run("python3", "-m", "numadoctor", "syscalls", "-o", "json")
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["exit_code"] == done.returncode
    answer["calls"] = {call["name"]: call for call in answer["calls"]}
    assert set(answer["calls"]) == set(CALLS)
    return answer


def assert_reached(answer: dict[str, Any], *names: str) -> None:
    for name in names:
        call = answer["calls"][name]
        assert (call["verdict"], call["errno"]) == ("reached", KERNEL[name]), name
        assert (call["blocked_by"], call["fixes"]) == (None, []), name


def assert_filtered(answer: dict[str, Any], *names: str, errno: str = "EPERM") -> None:
    for name in names:
        call = answer["calls"][name]
        assert (call["verdict"], call["errno"]) == ("filtered", errno), name
        assert "seccomp" in call["blocked_by"], name
        assert fix_texts(call, "podman"), name
        for text in fix_texts(call):
            assert "privileged" not in text, name
            assert "root" not in text, name


def fix_texts(call: dict[str, Any], *launchers: str) -> list[str]:
    """What to do about a call, for those launchers or for all, in the order told."""
    return [fix["text"] for fix in call["fixes"] if not launchers or fix["launcher"] in launchers]


def with_profile_fix(
    container: Container, profile: Path, answer: dict[str, Any], to: Path
) -> Container:
    """The container with the rule that numadoctor words added to its profile."""
    rules = {
        text.splitlines()[-1]
        for call in answer["calls"].values()
        for text in fix_texts(call, "podman")
        if "seccomp=numa.json" in text.splitlines()[0]
    }
    fixed = json.loads(profile.read_text())
    fixed["syscalls"] = [*map(json.loads, rules), *fixed["syscalls"]]
    (to / "numa.json").write_text(json.dumps(fixed))
    return replace(container, seccomp=to / "numa.json")


def test_docker_profile(tmp_path: Path) -> None:
    profile = containers.docker_profile()
    container = Container(profile)
    answer = diagnose(container)
    assert_filtered(answer, *CALLS)
    assert (answer["works"], answer["exit_code"]) == (False, 1)

    for name in POLICY:
        options = [
            shlex.split(text.splitlines()[0]) for text in fix_texts(answer["calls"][name], "podman")
        ]
        assert ["--cap-add", "SYS_NICE"] in options, name
    for name in MOVE:  # the profile opens them for no capability
        assert not any("SYS_NICE" in text for text in fix_texts(answer["calls"][name])), name

    assert_reached(diagnose(replace(container, options=("--cap-add", "SYS_NICE"))), *POLICY)
    assert_reached(diagnose(with_profile_fix(container, profile, answer, tmp_path)), *CALLS)


def test_docker_profile_with_sys_nice(tmp_path: Path) -> None:
    profile = containers.docker_profile()
    container = Container(profile, options=("--cap-add=SYS_NICE",))
    answer = diagnose(container)
    assert_reached(answer, *POLICY)
    assert_filtered(answer, HOME, *MOVE)
    assert (answer["works"], answer["exit_code"]) == (True, 0)

    for name in MOVE:  # a process that starts bound has no pages to move
        texts = fix_texts(answer["calls"][name])
        assert "SYS_NICE" not in " ".join(texts), name
        assert "numactl --membind" in texts[0], name
    assert_reached(diagnose(with_profile_fix(container, profile, answer, tmp_path)), *CALLS)


def test_podman_profile(tmp_path: Path) -> None:
    container = Container()
    answer = diagnose(container)
    assert_reached(answer, *POLICY)
    assert_filtered(answer, *MOVE)
    assert (answer["works"], answer["exit_code"]) == (True, 0)

    # ENOSYS is also what a kernel before 5.17 says; both answers are honest, "absent" is not.
    home = answer["calls"][HOME]
    assert home["errno"] == "ENOSYS"
    assert home["verdict"] in ("filtered", "undecided")
    fixed = with_profile_fix(container, containers.podman_profile(), answer, tmp_path)
    assert_reached(diagnose(fixed), *CALLS)


def test_no_filter() -> None:
    answer = diagnose(Container(UNCONFINED))
    assert_reached(answer, *CALLS)
    assert (answer["works"], answer["exit_code"]) == (True, 0)


def test_no_capability() -> None:
    """The kernel asks for none: what Docker grants for one is its profile's own rule."""
    powerless = Container(UNCONFINED, options=("--cap-drop=ALL",), user=65534)
    assert_reached(diagnose(powerless), *CALLS)

    filtered = diagnose(replace(powerless, seccomp=containers.docker_profile()))
    assert_filtered(filtered, *CALLS)
    assert_reached(diagnose(replace(powerless, seccomp=None)), *POLICY)


def running(mark: str) -> list[list[str]]:
    """The command lines of all processes that have the mark in one of their words."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = process.read_bytes().decode(errors="replace").split("\0")
            if any(mark in word for word in words):
                found.append(words)
    return found


def until(condition: Callable[[], bool]) -> bool:
    for _ in range(6000):
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("end", ["time-out", "kill"])
def test_nothing_is_left_behind(tmp_path: Path, end: str) -> None:
    """However a container's test ends: its mounts and processes end with it."""
    mark = f"{tmp_path}/{end}"
    # The limit is reached when the test says so: whenever the container is up.
    program = (
        "import signal, subprocess\n"
        "from tests.lab import containers\n"
        "def time_out(*_): raise subprocess.TimeoutExpired('podman', 1)\n"
        "signal.signal(signal.SIGUSR1, time_out)\n"
        f"command = 'import time; time.sleep(600)  # {mark}'\n"
        "containers.Container().run('python3', '-c', command)\n"
    )
    session = subprocess.Popen(
        [sys.executable, "-"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert session.stdin is not None
    assert session.stderr is not None
    session.stdin.write(program)
    session.stdin.close()
    assert until(lambda: any(words[0] == "python3" for words in running(mark)))
    (storage,) = {
        word.removeprefix("--root=").removesuffix("/root")
        for words in running(mark)
        for word in words
        if word.startswith("--root=")
    }
    session.send_signal(signal.SIGKILL if end == "kill" else signal.SIGUSR1)
    complaint = session.stderr.read()
    session.wait()
    assert ("TimeoutExpired" in complaint) == (end == "time-out")
    assert until(lambda: running(mark) == running(storage) == [])
    assert storage not in Path("/proc/self/mountinfo").read_text()
    if end == "time-out":
        assert not Path(storage).exists()
    else:  # nobody was left to remove it
        shutil.rmtree(storage)
