"""Small live processes of known placement on whatever machine the tests run on.

What needs several nodes is in tests/lab/test_placement.py, with the same victims.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from numadoctor.host import Host
from numadoctor.model import Target
from numadoctor.model.placement import Kind, Method
from numadoctor.placement import place
from numadoctor.placement.ahead import Ahead
from numadoctor.placement.difference import difference
from numadoctor.placement.move_pages import PageAsker
from tests.lab import guest_placement, guest_victims
from tests.lab.guest_victims import MIB, victim

NODES = [0]


def _why_not() -> str:
    if not Path("/proc/self/numa_maps").exists():
        return "this kernel has no NUMA support"
    if not Path("/sys/devices/system/node/node0/meminfo").exists():
        return "this machine has no node 0"
    with victim(lambda: 0) as (pid, _):
        refusal = PageAsker(pid).can_ask()
    return f"the tests may not look at their own children: {refusal}" if refusal else ""


WHY_NOT = _why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

EXPECTED = {
    "private": ("private-anonymous", "bind:0"),
    "huge": ("private-anonymous", "bind:0"),
    "shared": ("shared-anonymous", "interleave:0"),
    "sysv": ("sysv", "interleave:0"),
    "posix": ("posix", "bind:0"),
    "memfd": ("memfd", "interleave:0"),
    "file": ("model-file", "default"),
    "half": ("private-anonymous", "bind:0"),
}


@pytest.fixture(scope="module")
def kinds() -> Any:
    return guest_placement.kinds(NODES)


@pytest.mark.parametrize("name", EXPECTED)
def test_each_kind_is_counted(kinds: Any, name: str) -> None:
    found = kinds[name]["exact"]
    assert (found["kind"], found["policy"]) == EXPECTED[name]
    assert found["method"] == "exact"
    assert found["resident"] == (8 if name == "half" else 16) * MIB
    assert found["by_node"] == {"0": [found["resident"]] * 3}
    assert found["run_length"] == pytest.approx(found["resident"], rel=0.2)


@pytest.mark.parametrize("name", EXPECTED)
def test_each_kind_is_sampled_within_its_interval(kinds: Any, name: str) -> None:
    found = kinds[name]["sampled"]
    assert found["kind"] == EXPECTED[name][0]
    assert found["method"] in ("sampled", "per-page")
    estimate, low, high = found["by_node"]["0"]
    assert low <= kinds[name]["exact"]["resident"] <= high
    assert low <= estimate <= high
    # The process is a copy of the one that tests: all that has taken has its share of the sample.
    assert found["samples"] >= 30


@pytest.mark.parametrize("name", ["shared", "sysv", "posix", "memfd"])
def test_a_segment_tells_its_policy_without_a_walk(kinds: Any, name: str) -> None:
    # Shared anonymous and System V memory can be opened with CAP_CHECKPOINT_RESTORE alone.
    found = kinds[name]["sampled"]
    if found["policy"] is None:
        assert os.geteuid() != 0
        assert "--exact" in found["policy_unknown"]
    else:
        assert found["policy"] == EXPECTED[name][1]


def test_policies_that_only_a_walk_tells_are_unknown(kinds: Any) -> None:
    found = kinds["private"]["sampled"]
    assert found["policy"] is None
    assert "numa_maps" in found["policy_unknown"]


def test_transparent_huge_pages_are_told(kinds: Any) -> None:
    size = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not size.exists() or "[never]" in size.read_text():
        pytest.skip("this kernel gives no transparent huge pages")
    found = kinds["huge"]["sampled"]
    if found["thp"] is None:
        pytest.skip("this kernel does not tell huge pages apart (PAGEMAP_SCAN, Linux 6.7)")
    assert found["thp"] == pytest.approx(16 * MIB, rel=0.2)
    assert kinds["private"]["sampled"]["thp"] == 0


@pytest.mark.parametrize("apart", [False, True])
def test_a_segment_of_three_counts_once(apart: bool) -> None:
    found = guest_placement.attached(NODES, apart=apart)
    for method in ("exact", "sampled"):
        (segment,) = found[method]
        assert segment["attachers"] == found["pids"]
        assert segment["resident"] == pytest.approx(24 * MIB, rel=0.01)
        assert segment["length"] == 24 * MIB
    assert found["exact"][0]["policies"] == ["interleave:0"] * 3


def test_a_large_process_is_sampled_and_a_small_one_counted() -> None:
    large = guest_placement.chosen(NODES, 128)
    assert large["method"] == "sampled"
    assert "hold" in large["because"]
    assert large["pool"]["resident"] == pytest.approx(128 * MIB, rel=0.02)
    with victim(lambda: guest_victims.private(MIB).touch().start) as (pid, start):
        small = place(Host(), Target(pid), hold=1)
    assert small.method is Method.EXACT
    assert small.because == "small enough to count all pages"
    (own,) = (p for p in small.mappings if p.mapping.start <= start < (p.mapping.end or 0))
    assert own.resident >= MIB


def test_the_same_seed_asks_about_the_same_pages() -> None:
    with victim(lambda: guest_victims.shared(64 * MIB).part(0, 1, 3).touch().start) as (pid, _):
        looks = [
            place(Host(), Target(pid), method=Method.SAMPLED, seed=seed, min_size=MIB).nodes
            for seed in (5, 5, 6)
        ]
    assert looks[0] == looks[1]
    assert looks[0] != looks[2]


def test_a_filter_is_told_and_numa_maps_taken() -> None:
    found = guest_placement.filtered(64)
    chosen = found["chosen"]
    assert chosen["method"] == "exact"
    assert chosen["because"] == "a system-call filter refuses move_pages"
    assert chosen["incomplete"] == []
    assert chosen["resident"] >= 64 * MIB
    # Who asked for a sample does not get the process held up instead.
    sampled = found["sampled"]
    assert sampled["mappings"] == []
    (line,) = sampled["incomplete"]
    assert "filter" in line
    assert "--exact" in line


def test_a_process_that_ends_is_incomplete_not_empty() -> None:
    found = guest_placement.ended()
    assert found["mappings"] == []
    (line,) = found["incomplete"]
    assert "ended" in line


def test_own_buffers_page_by_page_and_counted() -> None:
    found = guest_placement.own_buffer(NODES, 16)
    for method in ("per-page", "exact"):
        assert found[method]["resident"] == 12 * MIB
        assert found[method]["method"] == method
        assert found[method]["run_length"] == pytest.approx(12 * MIB, rel=0.05)
        assert found[method]["strip"][0].keys() == {"0"}
        assert found[method]["strip"][-1] == {}


def test_threads_with_their_policies() -> None:
    threads = guest_placement.thread_policies(NODES)["threads"]
    assert len(threads) == 4
    assert [thread["main"] for thread in threads] == [True, False, False, False]
    assert sorted(thread["policy"] for thread in threads) == [
        "bind:0",
        "default",
        "default",
        "default",
    ]
    assert all(thread["last_cpu"] in thread["cpus"] for thread in threads)


def test_this_process_knows_itself() -> None:
    found = place(Host(), Target(), method=Method.EXACT)
    assert found.pid == os.getpid()
    assert {p.mapping.kind for p in found.mappings} >= {Kind.LIBRARY, Kind.STACK}
    resident = found.processes[0].resident
    assert resident is not None
    # RSS is counted loosely, and grew meanwhile.
    assert found.resident == pytest.approx(resident, rel=0.2)


def test_what_is_read_ahead_gives_the_same() -> None:
    with victim(lambda: guest_victims.shared(8 * MIB).touch().start) as (pid, _):
        plain = place(Host(), Target(pid), method=Method.EXACT, seed=1)
        ahead = Ahead.of_process(pid)
        early = place(Host(), Target(pid), method=Method.EXACT, seed=1, ahead=ahead)
    assert early.nodes == plain.nodes
    assert [m.mapping for m in early.mappings] == [m.mapping for m in plain.mappings]
    assert early.cost.calls > 0


def test_a_pid_that_is_not_there_is_a_line() -> None:
    found = place(Host(), Target(2**22 + 1, "gone"))
    assert found.nodes == {}
    assert found.incomplete == (
        f"pid {2**22 + 1} gone: no such process, or it ended while it was examined",
    )


def test_where_nothing_changed_nothing_is_told() -> None:
    with victim(lambda: guest_victims.private(8 * MIB).touch().start) as (pid, _):
        change = difference(
            *(place(Host(), Target(pid), method=Method.EXACT) for _ in range(2)),
        )
    assert change.changes == ()
    assert (change.started, change.ended) == ((), ())
    assert change.minor_faults == 0
