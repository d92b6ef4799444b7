"""What is read of live processes beside what psutil, which reads /proc by itself, says of them."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from numadoctor.engine.targets import find_targets
from numadoctor.host import Host
from numadoctor.host.parsers import parse_maps
from numadoctor.placement.threads import read_threads

# Several threads, and a child that waits for a line.
_MIDDLE = """
import subprocess, sys, threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
below = subprocess.Popen(["sh", "-c", "read line; :"], stdin=subprocess.PIPE)
print("ready", flush=True)
sys.stdin.readline()
below.communicate(b"\\n")
"""


@pytest.fixture(scope="module")
def family() -> Iterator[psutil.Process]:
    """A process with a child, both of which wait."""
    with subprocess.Popen(
        [sys.executable, "-c", _MIDDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as middle:
        assert middle.stdout
        assert middle.stdout.readline() == b"ready\n"
        yield psutil.Process(middle.pid)
        middle.communicate(b"\n", timeout=60)


def test_the_tree_is_the_same(family: psutil.Process) -> None:
    targets, lines = find_targets(Host(), [family.pid], tree=True)
    theirs = [family, *family.children(recursive=True)]
    assert len(theirs) > 1
    assert {target.pid for target in targets} == {process.pid for process in theirs}
    assert lines == []


def test_threads_and_their_cpus_are_the_same(family: psutil.Process) -> None:
    threads = {thread.tid: thread for thread in read_threads(Host(), family.pid)}
    assert set(threads) == {thread.id for thread in family.threads()}
    assert len(threads) >= 4
    for number, thread in threads.items():
        assert list(thread.cpus or ()) == psutil.Process(number).cpu_affinity()


def test_mappings_are_the_same(family: psutil.Process) -> None:
    maps = parse_maps(Host().read(f"/proc/{family.pid}/maps"))
    theirs = {
        (mapping.addr, mapping.perms, mapping.path) for mapping in family.memory_maps(grouped=False)
    }
    ours = {
        (
            f"{line.start:08x}-{line.end:08x}",
            line.backing.permissions,
            line.backing.name or "[anon]",
        )
        for line in maps.lines
    }
    # What smaps does not list: this mapping is no memory of the process.
    assert {one for one in ours if one[2] != "[vsyscall]"} == {
        one for one in theirs if one[2] != "[vsyscall]"
    }


def test_a_process_of_this_user_is_read_whole(family: psutil.Process) -> None:
    status = Host().status(f"/proc/{family.pid}")
    assert status.name == family.name()
    assert os.getuid() == family.uids().effective
