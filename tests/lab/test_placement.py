"""Where pages are found to be on several nodes, by every method, beside what was built there."""

from functools import partial
from typing import Any

import pytest

from tests.lab import guest_namespaces, guests
from tests.lab import guest_placement as inside
from tests.lab.guests import Guest

MIB = 1 << 20

# Each takes minutes: `make lab-full` runs them.
on = partial(guests.on, quick=())
PLACES = ("x86_64-2n-6.12", "x86_64-4n-6.1", "aarch64-2n-6.12", "ppc64le-2n-6.1")


def nodes_of(guest: Guest) -> list[int]:
    return [number for number, node in enumerate(guest.machine.nodes) if node.memory]


def by_node(found: dict[str, Any]) -> dict[str, int]:
    return {node: share[0] for node, share in found["by_node"].items()}


@on(*PLACES)
def test_memory_of_every_kind_is_found_where_it_is(guest: Guest) -> None:
    nodes = nodes_of(guest)
    last = nodes[-1]
    spread = {str(node): 16 * MIB // len(nodes) for node in nodes}
    listed = f"{nodes[0]}-{last}"
    expected = {
        "private": ("private-anonymous", f"bind:{last}", {str(last): 16 * MIB}),
        "huge": ("private-anonymous", f"bind:{last}", {str(last): 16 * MIB}),
        "shared": ("shared-anonymous", f"interleave:{listed}", spread),
        "sysv": ("sysv", f"interleave:{listed}", spread),
        "posix": ("posix", f"bind:{last}", {str(last): 16 * MIB}),
        "memfd": ("memfd", f"interleave:{listed}", spread),
        "half": ("private-anonymous", f"bind:{last}", {str(last): 8 * MIB}),
    }
    found = guest.call(inside.kinds, [nodes], limit=300)
    for name, (kind, policy, counts) in expected.items():
        exact, sampled = found[name]["exact"], found[name]["sampled"]
        assert (exact["kind"], exact["policy"], by_node(exact)) == (kind, policy, counts), name
        assert sampled["kind"] == kind, name
        for node, count in counts.items():
            _, low, high = sampled["by_node"][node]
            assert low <= count <= high, (name, node)
        # A segment's policy shows without a walk of anybody's page tables.
        if name in ("shared", "sysv", "posix", "memfd"):
            assert sampled["policy"] == policy, name
    page = found["shared"]["exact"]["page_size"]
    assert found["shared"]["exact"]["run_length"] == page
    assert found["private"]["exact"]["run_length"] == pytest.approx(16 * MIB, rel=0.02)
    assert found["file"]["exact"]["kind"] == "model-file"
    assert sum(by_node(found["file"]["exact"]).values()) == 16 * MIB


@on("x86_64-2n-6.12", "x86_64-4n-6.1")
@pytest.mark.parametrize("layout", list(inside.LAYOUTS))
def test_samples_agree_with_the_count_in_94_of_100_seeds(guest: Guest, layout: str) -> None:
    nodes = nodes_of(guest)
    found = guest.call(inside.agreement, [layout, nodes, 96, 1000, 100], limit=600)
    counts = by_node(found["exact"])
    assert set(counts) == set(map(str, nodes[-1:] if layout == "one node" else nodes))
    assert min(found["held"].values()) >= 94, found["held"]
    lengths = sorted(found["run_lengths"])
    page = found["exact"]["page_size"]
    typical = lengths[50]
    if layout in ("interleaved", "sparse"):
        assert set(lengths) == {page}
    elif layout == "halves":
        assert typical == pytest.approx(96 * MIB / len(nodes), rel=0.05)
    elif layout == "one node":
        assert typical == pytest.approx(96 * MIB, rel=0.05)
    elif layout == "uneven":
        assert MIB <= typical <= 4 * MIB
    else:
        assert page <= typical <= 3 * page


@on("x86_64-2n-6.12", "x86_64-4n-6.1")
def test_the_strip_shows_what_the_total_does_not(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = guest.call(inside.agreement, ["halves", nodes, 96, 1000, 1], limit=300)
    strip = found["sampled"]["strip"]
    clear = [next(iter(cell)) for cell in strip if len(cell) == 1]
    # Each node once, in order, whatever the total says.
    assert list(dict.fromkeys(clear)) == list(map(str, nodes))
    assert len(clear) >= len(strip) - len(nodes)


@on(*PLACES)
@pytest.mark.parametrize("apart", [False, True])
def test_shared_memory_of_three_counts_once(guest: Guest, apart: bool) -> None:
    nodes = nodes_of(guest)
    found = guest.call(inside.attached, [nodes], {"apart": apart}, limit=300)
    for method in ("exact", "sampled"):
        (segment,) = found[method]
        assert segment["attachers"] == found["pids"]
        for node in nodes:
            estimate, low, high = segment["by_node"][str(node)]
            assert low <= 24 * MIB // len(nodes) <= high, (method, node)
            assert estimate == pytest.approx(24 * MIB / len(nodes), rel=0.1)


@guests.on(*PLACES, quick=("x86_64-2n-6.12",))
def test_segments_of_two_containers_with_the_same_numbers_are_two(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = guest.call(guest_namespaces.alike, [nodes], limit=300)
    assert len(set(found["numbers"])) == len(set(found["inodes"])) == 1
    spread = {str(node): 4 * MIB // len(nodes) for node in nodes}
    expected = sorted(zip(found["pids"], (spread, {str(nodes[-1]): 4 * MIB}), strict=True))
    # A sample of a part of the pages tells shares about.
    for method, within in (("exact", 0), ("sampled", 0.05)):
        for kind, segments in found[method].items():
            told = sorted((segment["pids"], segment["by_node"]) for segment in segments)
            assert [pids for pids, _ in told] == [pids for pids, _ in expected], (method, kind)
            for (_, by_node), (_, wanted) in zip(told, expected, strict=True):
                assert by_node == pytest.approx(wanted, rel=within), (method, kind)
    assert found["remarks"] == []


@on("x86_64-2n-6.12", "x86_64-4n-6.1")
def test_huge_pages_count_in_their_size_and_each_attacher_has_its_policy(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = guest.call(inside.huge_pages, [nodes, 8], limit=300)
    for method in ("exact", "sampled"):
        segment = found[method]
        assert segment["page_size"] == found["size"] == 2 * MIB
        assert by_node(segment) == {str(node): 8 * 2 * MIB for node in nodes}, method
        assert segment["run_length"] == 2 * MIB, method
        assert segment["attachers"] == sorted((found["creator"], found["other"]))
    assert sorted(found["exact"]["policies"]) == ["default", f"interleave:{nodes[0]}-{nodes[-1]}"]


@on("x86_64-2n-6.12", "x86_64-4n-6.1")
def test_what_moved_between_two_looks_is_told(guest: Guest) -> None:
    found = guest.run(inside.moved, nodes_of(guest))
    (change,) = found["changes"]
    assert change["kind"] == "private-anonymous"
    assert change["by_node"] == {"0": -16 * MIB, "1": 16 * MIB}
    assert (change["moved"], change["grown"]) == (16 * MIB, 0)


@on("x86_64-2n-6.12", "aarch64-2n-6.12")
def test_a_large_process_is_sampled(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = guest.call(inside.chosen, [nodes, 192], limit=300)
    assert found["method"] == "sampled"
    assert found["pool"]["policy"] == f"interleave:{nodes[0]}-{nodes[-1]}"
    assert found["own"]["policy"] is None
    assert by_node(found["pool"]).keys() == set(map(str, nodes))
    assert by_node(found["own"]) == {str(nodes[0]): pytest.approx(192 * MIB, rel=0.02)}


@on(*PLACES)
def test_who_may_not_ask_counts_and_says_so(guest: Guest) -> None:
    found = guest.call(inside.filtered, [64], limit=300)
    assert found["chosen"]["method"] == "exact"
    assert "filter" in found["chosen"]["because"]
    assert found["chosen"]["resident"] >= 64 * MIB
    assert found["sampled"]["mappings"] == []
    assert "filter" in found["sampled"]["incomplete"][0]


@on(*PLACES)
def test_another_user_is_told_what_is_missing(guest: Guest) -> None:
    found = guest.run(inside.maps, [], 65534)
    assert found["exit_code"] == 3
    lines = [line for line in found["stdout"].splitlines() if line.startswith("not examined:")]
    assert len(lines) == 1
    told = " ".join(found["stdout"].split())
    assert f"pid {found['pid']}" in told
    assert "process of uid 0" in told
    assert "run as the same user or with CAP_SYS_PTRACE" in told


@on(*PLACES, "i386-2n-6.12")
def test_the_command_writes_what_it_promises(guest: Guest) -> None:
    found = guest.run(inside.maps, ["--exact", "-o", "json"])
    assert found["exit_code"] == 0
    answer = found["json"]
    assert answer["pid"] == found["pid"]
    assert sum(share["bytes"] for share in answer["nodes"].values()) == answer["resident_bytes"]
    (pool,) = (m for m in answer["mappings"] if m["start"] == found["start"])
    assert pool["kind"] == "shared-anonymous"
    assert sum(pool["bytes_by_node"].values()) == 64 * MIB
    assert pool["attachers"] == [found["pid"]]


@on(*PLACES)
def test_a_buffer_of_ones_own_page_by_page(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = guest.call(inside.own_buffer, [nodes, 16], limit=300)
    each = 12 * MIB // len(nodes)
    for method in ("per-page", "exact"):
        assert by_node(found[method]) == {str(node): each for node in nodes}, method
        assert found[method]["run_length"] == found[method]["page_size"], method


@on("x86_64-2n-6.12")
def test_each_thread_has_its_policy(guest: Guest) -> None:
    nodes = nodes_of(guest)
    threads = guest.run(inside.thread_policies, nodes)["threads"]
    (bound,) = (thread for thread in threads if thread["policy"] == f"bind:{nodes[-1]}")
    assert bound["cpus"] == guest.machine.cpus(nodes[0])
    assert bound["last_cpu"] in bound["cpus"]
    assert [t["policy"] for t in threads if t is not bound] == ["default"] * 3


@on("s390x-none-6.1")
def test_a_kernel_without_nodes_is_no_empty_process(guest: Guest) -> None:
    found = guest.run(inside.maps, [])
    assert found["exit_code"] == 3
    assert "this kernel has no NUMA support" in " ".join(found["stdout"].split())
