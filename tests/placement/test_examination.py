"""What is asked of processes that are examined together is found out once."""

import os
from pathlib import Path

import pytest

from numadoctor.host import FolderRoot, Host, LiveRoot
from numadoctor.host.parsers import parse_stat
from numadoctor.model import Denied, Missing, Target, Undecided
from numadoctor.placement import examination as module
from numadoctor.placement.examination import Examination, examination
from tests.memory import MemoryRoot
from tests.placement.captured import host, stat
from tests.placement.test_live import WHY_NOT
from tests.trees import Tree

ENGINE = (Target(10, "engine"), Target(11, "engine", True), Target(12, "engine", True))


def test_whoever_asks_gets_the_same() -> None:
    machine = host()
    assert examination(machine, ENGINE) is examination(machine, list(ENGINE))
    assert examination(machine, ENGINE[:1]) is not examination(machine, ENGINE)


def test_memory_is_measured_when_asked_for_and_once() -> None:
    found = examination(host(), ENGINE)
    before = found.measured
    first = found.placement
    assert (before, found.measured) == (False, True)
    assert found.placement is first
    pool = next(p for p in first.mappings if p.mapping.name == "/dev/shm/pool")
    assert {a.pid for a in pool.attachers} == {10, 11, 12}
    assert sum(p.mapping.name == "/dev/shm/pool" for p in first.mappings) == 1


def test_who_could_not_be_examined_is_not_among_the_processes() -> None:
    denied = Denied("/proc/11/maps", 13)
    found = examination(host({"/proc/11/maps": denied}), ENGINE)
    assert set(found.processes) == {10, 12}
    assert "CAP_SYS_PTRACE" in found.placement.incomplete[0]


def test_an_error_is_remembered_and_raised_again() -> None:
    root = MemoryRoot({"/proc/10/task": Denied("/proc/10/task", 13)})
    found = Examination(Host(root), ENGINE)
    for _ in range(2):
        with pytest.raises(Denied):
            found.threads(10)
        with pytest.raises(Denied):
            found.cpus(10)
    assert root.asked.count("/proc/10/task") == 1


def test_a_captured_folder_has_no_window_of_its_own() -> None:
    with pytest.raises(Missing):
        examination(host(), ENGINE).window(0.1)


# A sample server with eight GPUs, of which a process has some open.
STATUS = "Name:\tengine\nPid:\t77\nCpus_allowed_list:\t0-31\n"


def with_open(scratch: Path, links: dict[str, str], **files: str) -> Examination:
    texts = {f"/proc/77/{name}": text for name, text in {"status": STATUS, **files}.items()}
    tree = Tree(
        base="two-socket",
        files=texts,
        links={f"/proc/77/fd/{number}": target for number, target in links.items()},
    )
    return Examination(Host(FolderRoot(str(tree.build(scratch / "root")))), [Target(77)])


def test_gpus_by_what_is_open(scratch: Path) -> None:
    found = with_open(scratch, {"3": "/dev/nvidia4", "4": "/dev/nvidiactl", "5": "socket:[7]"})
    gpus = found.gpus(77)
    assert [device.address for device in gpus.devices] == ["0000:9a:00.0"]
    assert gpus.nodes == (1,)
    assert [seen.text for seen in gpus.evidence] == ["/dev/nvidia4"]


def test_who_has_none_open_has_none(scratch: Path) -> None:
    assert with_open(scratch, {"0": "/dev/null"}).gpus(77).devices == ()


def test_variables_narrow_what_is_open(scratch: Path) -> None:
    every = {str(n + 3): f"/dev/nvidia{n}" for n in range(8)}
    found = with_open(
        scratch, every, environ="CUDA_VISIBLE_DEVICES=4\\0CUDA_DEVICE_ORDER=PCI_BUS_ID\\0"
    )
    assert [device.address for device in found.gpus(77).devices] == ["0000:9a:00.0"]


def test_a_gpu_that_nobody_knows_leaves_it_undecided(scratch: Path) -> None:
    with pytest.raises(Undecided, match="/dev/nvidia42"):
        with_open(scratch, {"3": "/dev/nvidia42"}).gpus(77)


def test_open_files_that_may_not_be_listed_leave_it_undecided(scratch: Path) -> None:
    with pytest.raises(Undecided):
        with_open(scratch, {}).gpus(77)


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_this_process_live() -> None:
    found = examination(Host(LiveRoot()), [Target(os.getpid(), "pytest")])
    assert os.getpid() in found.processes
    assert found.cpus(os.getpid()) == frozenset(os.sched_getaffinity(0))
    assert found.cpu_nodes(os.getpid())
    window = found.window(0.01)
    assert window.seconds >= 0.01
    assert os.getpid() in window.processes
    assert found.open_gpus() is not None


def test_small_mappings_are_put_together() -> None:
    assert module.MIN_SIZE < 95 * 4096


def test_who_took_over_a_pid_is_not_taken_for_the_one_before() -> None:
    machine = host()
    machine.parse("/proc/11/stat", parse_stat)
    assert isinstance(machine.root, MemoryRoot)
    machine.root.files["/proc/11/stat"] = stat("other", 11, 1, start=999)
    found = examination(machine, ENGINE)
    assert set(found.processes) == {10, 12}
    assert found.placement.incomplete == ("pid 11: it ended, and another process has its pid",)
    assert 11 not in {p.mapping.pid for p in found.placement.mappings}
