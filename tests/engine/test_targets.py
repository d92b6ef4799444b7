import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from numadoctor.engine.targets import find_targets
from numadoctor.host import Host
from numadoctor.model import Denied, ParseError, Target
from tests.memory import MemoryRoot
from tests.placement.captured import host, stat


def test_each_pid_is_a_target_or_a_line() -> None:
    host = Host(
        MemoryRoot(
            {
                "/proc/7/status": "Name:\tvllm\n",
                "/proc/8/status": "Name:\t\n",
                "/proc/9/status": Denied("/proc/9/status", errno.EACCES),
            }
        )
    )
    targets, lines = find_targets(host, [7, 8, 9, 10, 7])
    assert targets == [Target(7, "vllm"), Target(8, "8")]
    assert lines == [
        "pid 9: cannot read /proc/9/status: Permission denied (EACCES)",
        "pid 10: no such process",
    ]


def test_no_pid_is_no_target() -> None:
    assert find_targets(Host(MemoryRoot()), []) == ([], [])


def found(**how: Any) -> list[int]:
    """The pids of the captured engine's machine that are chosen."""
    targets, lines = find_targets(host(), [], **how)
    assert lines == []
    return [target.pid or 0 for target in targets]


def test_by_name_and_command_line() -> None:
    assert found(name="^other$") == [20]
    assert found(name="--port 1[01]") == [10, 11]
    assert found(name="engine") == [10, 11, 12]


def test_by_control_group() -> None:
    assert found(cgroup="/system.slice") == [1, 10, 11, 12]
    assert found(cgroup="/sys/fs/cgroup/system.slice/engine.service/") == [1, 10, 11, 12]
    assert found(cgroup="/docker") == [20]
    assert found(cgroup="/") == [1, 10, 11, 12, 20]
    # A name that another begins with is not that other.
    assert find_targets(host(), [], cgroup="/system") == (
        [],
        ["no process is in control group /system"],
    )


def test_by_unit() -> None:
    assert found(unit="engine") == found(unit="engine.service") == [1, 10, 11, 12]
    assert found(unit="system.slice") == [1, 10, 11, 12]


def test_by_container() -> None:
    assert found(container="0123456789ab") == [20]
    assert found(container="0123456789abcdef" * 4) == [20]
    assert find_targets(host(), [], container="f" * 12)[0] == []


@pytest.mark.parametrize(
    "path",
    [
        "/system.slice/docker-{id}.scope",
        "/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope",
        "/machine.slice/libpod-{id}.scope/container",
        "/kubepods/besteffort/pod1/crio-{id}",
    ],
)
def test_containers_of_every_engine(path: str) -> None:
    files = {"/proc/20/cgroup": f"0::{path.format(id='abcdef012345' + '0' * 52)}\n"}
    targets, _ = find_targets(host(files), [], container="abcdef012345")
    assert [target.pid for target in targets] == [20]


def test_the_tree_has_parents_before_children() -> None:
    targets, _ = find_targets(host(), [10], tree=True)
    assert [(t.pid, t.descendant) for t in targets] == [(10, False), (11, True), (12, True)]
    targets, _ = find_targets(host(), [12, 10], tree=True)
    assert [(t.pid, t.descendant) for t in targets] == [(12, False), (10, False), (11, True)]
    assert len(find_targets(host(), [1], tree=True)[0]) == 5


def test_a_child_is_younger_than_its_parent() -> None:
    # Pid 10 ended and was given again: 11 is not the child of the new one.
    files = {"/proc/10/stat": stat("engine", 10, 1, start=500)}
    targets, _ = find_targets(host(files), [10], tree=True)
    assert [target.pid for target in targets] == [10]


def test_a_circle_of_parents_ends() -> None:
    files = {"/proc/10/stat": stat("engine", 10, 12)}
    targets, _ = find_targets(host(files), [10], tree=True)
    assert [target.pid for target in targets] == [10, 11, 12]


def test_descendants_that_are_gone_are_no_line() -> None:
    targets, lines = find_targets(host({"/proc/12/status": None}), [10], tree=True)
    assert [target.pid for target in targets] == [10, 11]
    assert lines == []


def test_what_matches_nothing_is_a_line() -> None:
    assert find_targets(host(), [], name="nobody") == ([], ["no process matches nobody"])
    assert find_targets(Host(MemoryRoot()), [], unit="x")[1] == ["no process is of unit x.service"]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"name": "("}, "bad name pattern"),
        ({"name": "a{99999999999999999999}"}, "it is too large"),
        ({"name": "(" * 5000 + ")" * 5000}, "it is too large"),
        ({"container": "web"}, "bad container id"),
        ({"container": "ABCDEF012345"}, "bad container id"),
    ],
)
def test_what_is_no_pattern_or_id_is_refused(how: dict[str, str], told: str) -> None:
    with pytest.raises(ParseError, match=told):
        find_targets(host(), [], **how)  # type: ignore[arg-type]


KERNEL = {
    "/proc/20/stat": stat("kworker/0:1", 20, 2, flags=0x208040, state="I"),
    "/proc/20/cmdline": "",
}
ZOMBIE = {
    "/proc/20/stat": stat("other", 20, 1, state="Z"),
    "/proc/20/status": "Name:\tother\nState:\tZ (zombie)\nTgid:\t20\nThreads:\t1\n",
}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (KERNEL, "a thread of the kernel, which makes no system calls and has no memory"),
        (ZOMBIE, "it has ended, and waits for its parent (zombie)"),
    ],
)
def test_who_has_nothing_to_examine_is_told_where_its_pid_was_named(
    files: dict[str, str], told: str
) -> None:
    machine = host(files)
    assert find_targets(machine, [20]) == ([], [f"pid 20: {told}"])
    # Others match the pattern as well: no word of it.
    targets, lines = find_targets(machine, [], name="engine|kworker|other")
    assert ([target.pid for target in targets], lines) == ([10, 11, 12], [])
    targets, lines = find_targets(machine, [], container="0123456789ab")
    assert targets == []
    assert lines == [
        "no process is of container 0123456789ab, but what has ended or is of the kernel"
    ]
    # As descendants they are no news.
    files = {**files, "/proc/20/stat": files["/proc/20/stat"].replace(" 2 4242", " 1 4242")}
    targets, lines = find_targets(host(files), [1], tree=True)
    assert ([target.pid for target in targets], lines) == ([1, 10, 11, 12], [])


def test_a_thread_stands_for_its_process_which_is_examined_once() -> None:
    thread = {"/proc/13/status": "Name:\tworker\nState:\tS (sleeping)\nTgid:\t10\nThreads:\t3\n"}
    assert find_targets(host(thread), [13, 10]) == ([Target(10, "engine")], [])


def test_a_process_whose_first_thread_has_ended_is_examined_through_another() -> None:
    ended = "Name:\tengine\nState:\tZ (zombie)\nTgid:\t10\nThreads:\t2\n"
    files = {
        "/proc/10/status": ended,
        "/proc/10/task": "10 13 14",
        "/proc/13/status": ended,
        "/proc/14/status": "Name:\tworker\nState:\tS (sleeping)\nTgid:\t10\nThreads:\t2\n",
    }
    assert find_targets(host(files), [10]) == ([Target(14, "worker")], [])
    assert find_targets(host(files), [14, 10]) == ([Target(14, "worker")], [])


def test_who_asks_for_a_name_does_not_find_itself() -> None:
    name = " ".join(Path("/proc/self/cmdline").read_text().split("\0"))[:40]
    targets, _ = find_targets(Host(), [], name=re.escape(name.strip()))
    assert os.getpid() not in [target.pid for target in targets]


_HIDDEN = "/proc is mounted with hidepid"


@pytest.mark.parametrize(
    ("mounts", "live", "user", "why"),
    [
        ("proc /proc proc rw,hidepid=invisible 0 0\n", True, 1000, _HIDDEN),
        ("proc /proc proc rw,hidepid=2 0 0\n", True, 0, ""),
        ("proc /proc proc rw 0 0\n", True, 1000, ""),
        ("proc /proc proc rw,hidepid=2 0 0\n", False, 1000, ""),
        (None, True, 0, "there is no procfs here"),
        (None, False, 0, ""),
        (Denied("/proc/self/mounts", errno.EACCES), True, 0, ""),
    ],
)
def test_what_is_not_seen_may_be_there_all_the_same(
    mounts: str | Denied | None, live: bool, user: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    root = MemoryRoot({} if mounts is None else {"/proc/self/mounts": mounts})
    root.live = live
    _, (pid, name) = find_targets(Host(root), [4242], name="vllm")
    assert pid == "pid 4242: no such process" + (f", or it is not seen: {why}" if why else "")
    assert name == "no process matches vllm" + (f"; not all are seen: {why}" if why else "")
