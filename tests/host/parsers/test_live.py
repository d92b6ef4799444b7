"""The parsers meet every process of the machine the tests run on, not only made-up text."""

import os
from collections.abc import Callable, Iterator

import pytest

from numadoctor.host import parsers


def texts(name: str) -> Iterator[tuple[str, bytes]]:
    """The files of that name of all processes, those that may be read and are not empty."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        path = f"/proc/{pid}/{name}"
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            # Another user's, or gone by now.
            continue
        if data:
            yield path, data


@pytest.mark.skipif(
    not os.path.exists("/proc/self/numa_maps"), reason="this kernel has no NUMA support"
)
def test_numa_maps_of_every_process_holds_no_unknown_word() -> None:
    seen = 0
    for path, data in texts("numa_maps"):
        read = parsers.parse_numa_maps(data)
        policies = {parsers.parse_policy(pages.policy) for pages in read.pages}
        assert (path, read.unknown) == (path, ())
        assert (path, [p.text for p in policies if not p.understood]) == (path, [])
        assert len(read.starts) == data.count(b"\n")
        seen += 1
    assert seen  # this process at least


@pytest.mark.parametrize("name", ["maps", "smaps"])
def test_mappings_of_every_process_are_understood(name: str) -> None:
    parse: Callable[[bytes], parsers.Maps | parsers.Smaps] = getattr(parsers, f"parse_{name}")
    told = {path: parse(data).unknown for path, data in texts(name)}
    assert told
    assert {path: unknown for path, unknown in told.items() if unknown} == {}


def test_stat_of_every_process_and_of_this_one() -> None:
    stats = [parsers.parse_stat(data) for _, data in texts("stat")]
    (own,) = (stat for stat in stats if stat.pid == os.getpid())
    assert own.parent == os.getppid()
    assert own.last_cpu in os.sched_getaffinity(0)


def test_segments_of_this_machine() -> None:
    with open("/proc/sysvipc/shm", "rb") as file:
        data = file.read()
    assert len(parsers.parse_sysvipc_shm(data)) == data.count(b"\n") - 1
