"""What operators of the field ran into, built in guests: each is diagnosed for what it is."""

from functools import partial
from typing import Any

import pytest

from tests.lab import guest_cases as inside
from tests.lab import guest_gpus, guest_huge, guests
from tests.lab.guests import Guest

MIB = 1 << 20

on = partial(guests.on, quick=("x86_64-2n-6.12",))
PLACES = ("x86_64-2n-6.12", "x86_64-4n-6.1")

Told = list[dict[str, Any]]


def nodes_of(guest: Guest) -> list[int]:
    return [number for number, node in enumerate(guest.machine.nodes) if node.memory]


def of(findings: Told, id: str) -> Told:
    """The findings of a check, of which none went wrong."""
    assert [f for f in findings if f["status"] == "error"] == []
    return [f for f in findings if f["id"] == id]


def the(findings: Told, id: str, status: str) -> dict[str, Any]:
    """The one finding of a check, which has that status."""
    found = of(findings, id)
    assert [f["status"] for f in found] == [status], found
    return found[0]


@on(*PLACES)
def test_page_cache_of_a_library_is_no_broken_binding(guest: Guest) -> None:
    found = guest.run(inside.cached, nodes_of(guest), "libnumadoctor-case.so.1")
    the(found, "P009", "pass")
    told = the(found, "P005", "info")
    assert told["subject"] == "shared page cache"
    assert f"though the processes are bound to node {nodes_of(guest)[-1]}" in told["message"]
    the(found, "P003", "skip")


@on(*PLACES)
def test_weights_that_were_cached_elsewhere_stay_there(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = guest.run(inside.cached, nodes, "numadoctor-case.safetensors")
    told = the(found, "P003", "warn")
    assert f"node 0 100 %, and the policy is bind:{nodes[-1]}" in told["message"]
    assert "a policy does not move what is in the page cache" in told["cause"]
    assert "iflag=nocache" in told["fixes"][0]
    the(found, "P009", "pass")


@on(*PLACES)
def test_what_was_touched_before_the_binding_is_told_by_its_size(guest: Guest) -> None:
    nodes = nodes_of(guest)
    little = of(guest.run(inside.bound_late, nodes, 4), "P009")
    assert {f["status"] for f in little} == {"info", "pass"}, little
    much = of(guest.run(inside.bound_late, nodes, 32), "P009")
    (told,) = (f for f in much if f["status"] == "warn")
    assert f"the policy is bind:{nodes[-1]}, the pages are on node 0" in told["message"]


@on(*PLACES)
def test_shared_and_huge_memory_is_what_it_is(guest: Guest) -> None:
    found = guest.run(guest_huge.kinds, nodes_of(guest))
    assert found["memory"] == {
        "sysv": ["sysv", 32 * MIB],
        "shared": ["shared-anonymous", 32 * MIB],
        "huge": ["hugetlb", 20 * MIB],
        "file": ["hugetlb", 20 * MIB],
    }
    the(found["findings"], "P009", "pass")
    assert found["resident"] - found["rss"] == pytest.approx(40 * MIB, abs=MIB)


@on(*PLACES)
def test_huge_pages_are_resident_though_rss_leaves_them_out(guest: Guest) -> None:
    found = guest.run(guest_huge.huge_pages_alone, nodes_of(guest))
    assert found["beyond_rss"] == 20 * MIB


@on(*PLACES)
def test_a_preferred_node_without_huge_pages(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = guest.run(guest_huge.preferred_without_pages, nodes)
    told = the(found["exact"], "P009", "warn")
    assert f"the policy is prefer:{nodes[-1]}, the pages are on node 0 100 %" in told["message"]
    assert f"node {nodes[-1]} has no free huge page of 2 MiB" in told["cause"]
    # The policy of huge pages shows in a walk of page tables alone.
    the(found["sampled"], "P009", "unknown")


@on(*PLACES)
@pytest.mark.parametrize("layout", ["uneven", "halves"])
def test_a_pool_left_to_first_touch(guest: Guest, layout: str) -> None:
    found = guest.call(inside.laid_out, [nodes_of(guest), layout])
    for method in ("exact", "sampled"):
        told = the(found[method], "P004", "warn")
        assert "left to first touch" in told["message"]
        assert "the next start may split it otherwise" in told["cause"]
        assert "before the prefault" in told["fixes"][1]


@on(*PLACES)
def test_an_even_total_is_no_interleaving(guest: Guest) -> None:
    found = guest.call(inside.laid_out, [nodes_of(guest), "halves"], {"late_policy": True})
    for method in ("exact", "sampled"):
        told = the(found[method], "P011", "warn")
        assert "on end stay on one node" in told["message"]
        assert "Blocks are not spread" in told["cause"]
        the(found[method], "P010", "pass")
        the(found[method], "P004", "pass")


@on(*PLACES)
def test_an_interleaved_pool_passes(guest: Guest) -> None:
    found = guest.call(inside.laid_out, [nodes_of(guest), "interleaved"])
    for method in ("exact", "sampled"):
        assert {f["status"] for f in found[method]} == {"pass"}


@on(*PLACES)
def test_the_policy_of_huge_pages_is_not_shared(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = guest.run(guest_huge.attacher_without_policy, nodes)
    told = the(found["exact"], "P012", "warn")
    assert f"is interleave:{nodes[0]}-{nodes[-1]} in" in told["message"]
    assert f"but default in pid {found['other']}" in told["message"]
    the(found["sampled"], "P012", "unknown")


@on(*PLACES)
def test_threads_that_were_there_before_the_main_thread_was_bound(guest: Guest) -> None:
    nodes = nodes_of(guest)
    told = the(guest.run(inside.main_thread_bound, nodes, 40), "P014", "warn")
    assert (
        "the main thread of 41 threads is held to node 0, 40 others may run on" in (told["message"])
    )


@on(*PLACES)
def test_asked_to_bind_and_not_bound(guest: Guest) -> None:
    told = the(guest.run(inside.asked_to_bind), "P007", "warn")
    assert "--numa-bind was asked for and is not in force: the policy is default" in told["message"]
    assert "numactl is missing" in told["cause"]
    the(guest.run(inside.asked_to_bind, "numactl", "--membind=1"), "P007", "pass")


@on(*PLACES)
def test_slabs_use_up_the_mappings(guest: Guest) -> None:
    told = the(guest.run(inside.slabs, 2000), "P017", "fail")
    assert "mappings of 2,000" in told["message"]
    assert "One mbind for each slab splits mappings" in told["cause"]


@on(*PLACES)
def test_room_is_that_of_the_bound_node(guest: Guest) -> None:
    found = guest.run(inside.room, nodes_of(guest), 40_000)
    assert found["back"] > 16 * MIB
    the(found["fits"], "P016", "pass")
    told = the(found["fits without cache"], "P016", "warn")
    assert "other nodes do not help, whatever MemAvailable says" in told["cause"]
    the(found["does not fit"], "P016", "fail")


@on(*PLACES)
def test_what_is_left_behind_is_named(guest: Guest) -> None:
    found = guest.run(inside.left_behind)
    the(found["used"], "P023", "pass")
    segment, file = sorted(of(found["left"], "P023"), key=lambda f: f["subject"])
    assert (segment["status"], file["status"]) == ("warn", "warn")
    assert segment["fixes"] == [f"ipcrm -m {found['number']}"]
    assert file["fixes"] == ["rm -- '/dev/shm/numadoctor left'"]


@on(*PLACES)
def test_huge_pages_of_the_other_node_do_not_count(guest: Guest) -> None:
    nodes = nodes_of(guest)
    found = of(guest.run(guest_huge.planned_huge_pages, nodes), "P052")
    statuses = {f["subject"]: f["status"] for f in found}
    last = nodes[-1]
    assert statuses == {"node 0: 2MB pages": "pass", f"node {last}: 2MB pages": "fail"}
    (failed,) = (f for f in found if f["status"] == "fail")
    pool = f"/sys/devices/system/node/node{last}/hugepages/hugepages-2048kB/nr_hugepages"
    assert failed["fixes"] == [f"echo 10 > {pool}"]


@on(*PLACES)
def test_a_cgroup_allows_fewer_huge_pages(guest: Guest) -> None:
    found = guest.run(guest_huge.limited_huge_pages, nodes_of(guest))
    assert found["ended_by"] == "SIGBUS"
    told = [f for f in of(found["before"], "E007") if f["status"] == "fail"]
    assert "a larger pool ends in SIGBUS" in told[0]["message"]
    told = [f for f in of(found["planned"], "P053") if f["status"] == "fail"]
    assert "its pool is 20 MiB, and hugetlb.2MB.max allows 8 MiB" in told[0]["message"]
    assert "SIGBUS" in told[0]["cause"]


@on(*PLACES)
def test_blocks_are_judged_each_against_all_its_gpus(guest: Guest) -> None:
    nodes = nodes_of(guest)
    first, last = nodes[0], nodes[-1]
    told = the(guest.run(guest_gpus.pinned_blocks, nodes, [first] * 6), "P001", "warn")
    assert told["subject"].endswith(f"GPUs of node {last}")
    assert "2 GPUs (0000:45:00.0, 0000:46:00.0" in told["message"]
    assert "have no memory near" in told["message"]
    found = guest.run(guest_gpus.pinned_blocks, nodes, [first] * 4 + [last] * 2)
    the(found, "P001", "pass")


@on(*PLACES)
def test_interleaving_everything_takes_the_buffers_too(guest: Guest) -> None:
    nodes = nodes_of(guest)
    told = the(guest.run(guest_gpus.interleaved_buffers, nodes), "P013", "warn")
    assert "interleaves all its memory" in told["message"]
    assert "the pinned buffers of GPU 0000:41:00.0" in told["message"]
