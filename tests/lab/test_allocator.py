"""The reference allocator on real kernels: exact splits over every backing, each way to fail."""

import errno
from functools import partial
from typing import Any

import pytest

from tests.lab import guest_allocator as inside
from tests.lab import guests
from tests.lab.guests import Guest

SEVERAL = ("x86_64-[248]n-*", "aarch64-[248]n-*", "ppc64le-[248]n-*")
TWO = ("x86_64-2n-*", "aarch64-2n-*", "ppc64le-2n-*")
MODERN = ("x86_64-[248]n-6.12", "aarch64-[248]n-6.12")
MIB = 1 << 20

# What a pool promises is proven on every platform and number of nodes every time, the
# ways to fail on one machine; `make lab-full` does all on all.
QUICK = ("x86_64-2n-6.12",)
on = partial(guests.on, quick=QUICK)
everywhere = partial(
    guests.on,
    quick=(*QUICK, "x86_64-4n-6.1", "x86_64-8n-6.12", "aarch64-2n-6.12", "ppc64le-2n-6.1"),
)


def nodes_of(guest: Guest) -> list[int]:
    """Nodes with CPUs and memory."""
    return [n for n, node in enumerate(guest.machine.nodes) if node.cpus and node.memory]


def memory_nodes(guest: Guest) -> list[int]:
    return [n for n, node in enumerate(guest.machine.nodes) if node.memory]


def sets_of_nodes(guest: Guest) -> list[tuple[list[int] | None, list[int]]]:
    """What to ask for, and the nodes that should come of it."""
    chosen, every = nodes_of(guest), memory_nodes(guest)
    return [(None, chosen), *([(every, every)] if every != chosen else [])]


def assert_even(pages: dict[str, int], nodes: list[int], slack: int = 1) -> None:
    """Counts differ by at most one page, and no other node has any."""
    assert sorted(map(int, pages)) == nodes
    assert max(pages.values()) - min(pages.values()) <= slack


NOTHING = {"sysv": 0, "posix": [], "huge": 0, "leftovers": []}


def statuses(findings: list[dict[str, Any]]) -> list[str]:
    return [finding["status"] for finding in findings]


@everywhere(*SEVERAL)
@pytest.mark.parametrize("backing", ["private", "shared", "posix", "sysv", "memfd"])
def test_interleaved_pool_is_split_exactly(guest: Guest, backing: str) -> None:
    # Not a multiple of the nodes: a page more on some is all that may differ.
    length = 24 * MIB + 3 * 65536
    for asked, nodes in sets_of_nodes(guest):
        found = guest.run(inside.split, backing, "interleave", asked, length)
        owner = found["owner"]
        assert_even(owner["pages"], nodes)
        assert sum(owner["pages"].values()) * owner["page_size"] == length
        assert owner["run"] == owner["page_size"]
        assert owner["policy"].startswith("interleave:")
        assert statuses(found["findings"]) == ["pass"]
        assert found["content"] is True
        if backing in ("posix", "sysv", "memfd"):
            attached = found["attached"]
            assert attached["pages"] == owner["pages"]
            assert attached["content"] is True
            assert statuses(attached["findings"]) == ["pass"]
        elif backing == "shared":
            assert found["child"] is True


@everywhere(*SEVERAL)
@pytest.mark.parametrize("backing", ["hugetlb", "hugetlb-memfd", "hugetlb-sysv"])
def test_interleaved_huge_pages_are_split_exactly(guest: Guest, backing: str) -> None:
    for asked, nodes in sets_of_nodes(guest):
        found = guest.run(inside.hugetlb, backing, "interleave", asked, {str(n): 6 for n in nodes})
        assert found["pages"] == 6 * len(nodes)
        assert_even(found["owner"]["pages"], nodes, 0)
        assert statuses(found["findings"]) == ["pass"]
        if backing != "hugetlb":
            # The policy of huge pages is not shared: the attacher has set its own.
            assert found["attached"]["policy"].startswith("interleave:")
            assert found["attached"]["pages"] == found["owner"]["pages"]
            assert found["attached"]["content"] is True


@on(*TWO)
def test_huge_pages_of_each_size(guest: Guest) -> None:
    nodes = nodes_of(guest)
    sizes = [size for size in guest.run(inside.huge_page_sizes) if size <= 64 * MIB]
    assert sizes
    for size in sizes:
        each = {str(node): 3 for node in nodes}
        found = guest.run(inside.hugetlb, "hugetlb-memfd", "interleave", nodes, each, size)
        assert found["owner"]["page_size"] == found["owner"]["run"] == size
        assert found["owner"]["pages"] == each
        assert found["attached"]["pages"] == each


@guests.on(*TWO, quick=())
@pytest.mark.parametrize("backing", ["posix", "sysv", "memfd"])
def test_a_program_attaches_by_the_handle_alone(guest: Guest, backing: str) -> None:
    found = guest.run(inside.attached_by_a_program, backing, 4 * MIB)
    assert found["content"] is True
    assert_even(found["pages"], nodes_of(guest))
    assert statuses(found["findings"]) == ["pass"]


@everywhere(*SEVERAL)
def test_first_touch_lands_on_the_node_of_its_threads(guest: Guest) -> None:
    for node in nodes_of(guest):
        found = guest.run(inside.first_touch, node, 8 * MIB)
        assert list(found["owner"]["pages"]) == [str(node)]
        assert statuses(found["findings"]) == ["info"]


@everywhere(*SEVERAL)
def test_bound_pool_is_on_its_node(guest: Guest) -> None:
    for node in memory_nodes(guest):
        found = guest.run(inside.split, "memfd", "bind", [node], 8 * MIB)
        assert list(found["owner"]["pages"]) == [str(node)]
        assert statuses(found["findings"]) == ["pass"]


@everywhere(*MODERN)
def test_weighted_pool_follows_the_weights(guest: Guest) -> None:
    for asked, nodes in sets_of_nodes(guest):
        weights = {str(node): 2 * position + 1 for position, node in enumerate(nodes)}
        found = guest.run(inside.weighted, weights, asked, 63 * MIB)
        # Of whole rounds each node has exactly its weight, wherever the first begins.
        rounds, rest = divmod(sum(found["owner"]["pages"].values()), sum(weights.values()))
        assert rest == 0
        assert found["owner"]["pages"] == {n: rounds * weight for n, weight in weights.items()}
        assert statuses(found["findings"]) == ["pass"]
        (other,) = found["others wanted"]
        assert other["status"] == "warn"
        assert "node 0: 1 instead of 2" in other["message"]
        assert "echo 2 > /sys/kernel/mm/mempolicy/weighted_interleave/node0" in other["fixes"]


@on("x86_64-[248]n-6.1", "ppc64le-*")
def test_weighted_pool_on_an_older_kernel_is_left_to_first_touch(guest: Guest) -> None:
    found = guest.run(inside.split, "private", "weighted-interleave", None, MIB)
    assert statuses(found["findings"])[0] == "warn"
    assert "left to first touch" in found["findings"][0]["message"]
    assert "6.9" in str(found["findings"][0])


@on(*TWO)
def test_full_node_is_named(guest: Guest) -> None:
    found = guest.run(inside.full_node, 1, 96 * MIB)
    (uneven,) = [f for f in found["interleave"] if f["status"] == "warn"]
    assert "uneven" in uneven["message"]
    assert "Node 1 had no free page left" in uneven["cause"]
    # Bound, the kernel would have killed: the pool is refused before it is touched.
    (refused,) = found["bind"]
    assert refused["status"] == "fail"
    assert "bound to node 1" in refused["message"]
    assert found["left"] == NOTHING


@on(*TWO)
def test_cpuset_that_takes_a_node_away(guest: Guest) -> None:
    found = guest.run(inside.cpuset_narrows, "0", 8 * MIB)
    assert statuses(found["before"]) == ["pass"]
    assert "warn" in statuses(found["after"])
    assert "Mems_allowed_list is 0" in str(found["after"])
    assert "Mems_allowed_list" in str(found["made then"])
    assert found["left"] == NOTHING


@on(*TWO)
@pytest.mark.parametrize("backing", ["hugetlb", "hugetlb-memfd"])
def test_huge_pages_of_an_empty_node(guest: Guest, backing: str) -> None:
    found = guest.run(inside.hugetlb_of_an_empty_node, backing)
    (refused,) = found["refused"]
    assert refused["status"] == "fail"
    assert "node 1 has 0" in refused["message"]
    assert "SIGBUS" in refused["cause"]
    assert any("node1/hugepages" in fix for fix in refused["fixes"])
    (prefault,) = found["prefault"]
    assert prefault["status"] == "fail"
    assert "node 1" in prefault["message"]
    assert found["left"] == NOTHING


@on(*TWO)
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_filtered_mbind_leaves_the_pool_to_first_touch(guest: Guest, number: int) -> None:
    found = guest.run(inside.filtered, ["mbind"], number)
    assert found["mode"] == "first-touch"
    first = found["findings"][0]
    assert first["status"] == "warn"
    assert "left to first touch" in first["message"]
    assert first["fixes"]
    assert found["left"] == NOTHING


@on(*TWO)
def test_placement_is_told_where_move_pages_is_filtered(guest: Guest) -> None:
    found = guest.run(inside.filtered, ["move_pages"], errno.EPERM)
    assert statuses(found["findings"]) == ["pass"]


@on(*TWO)
@pytest.mark.parametrize("backing", ["private", "posix", "sysv", "memfd", "hugetlb-sysv"])
def test_nothing_is_left_by_a_killed_process(guest: Guest, backing: str) -> None:
    found = guest.run(inside.killed, backing)
    assert found["killed"] is True
    assert found["left"] == NOTHING


@on(*TWO)
def test_a_named_pool_left_behind_is_found_and_named(guest: Guest) -> None:
    found = guest.run(inside.killed, "posix", "pool")
    assert found["left"] == {
        **NOTHING,
        "posix": ["numadoctor-pool"],
        "leftovers": ["/dev/shm/numadoctor-pool"],
    }
    (again,) = found["again"]
    assert "left its pool behind: /dev/shm/numadoctor-pool" in again["message"]
    assert again["fixes"] == ["rm /dev/shm/numadoctor-pool"]


@guests.on("x86_64-tiers-*", "x86_64-uneven-*")
def test_pool_avoids_what_is_no_ordinary_memory(guest: Guest) -> None:
    for asked, nodes in sets_of_nodes(guest):
        found = guest.run(inside.split, "posix", "interleave", asked, 12 * MIB)
        assert_even(found["owner"]["pages"], nodes)
        assert statuses(found["findings"]) == ["pass"]
        assert found["attached"]["pages"] == found["owner"]["pages"]


@guests.on("x86_64-uneven-*")
def test_pool_on_a_node_without_memory_says_so(guest: Guest) -> None:
    found = guest.run(inside.split, "memfd", "interleave", [0, 1, 2], 12 * MIB)
    assert_even(found["owner"]["pages"], [0, 2])
    told, judged = found["findings"]
    assert told["status"] == "warn"
    assert "node 1: it has no memory" in told["message"]
    assert judged["status"] == "pass"


@guests.on("s390x-none-*")
def test_kernel_without_numa_falls_back(guest: Guest) -> None:
    found = guest.run(inside.split, "memfd", "interleave", None, 4 * MIB)
    for seen in (found, found["attached"]):
        assert seen["content"] is True
        (told,) = seen["findings"]
        assert told["status"] == "info"
        assert "no NUMA support" in told["message"]


@guests.on("x86_64-2n-6.12", "s390x-*", "x86_64-1n-*")
def test_interleave_command(guest: Guest) -> None:
    found = guest.run(inside.command, "--size", "16M", "--threads", "2")
    assert found["exit"] == 0, found
    modes = [pool["mode"] for pool in found["answer"]["pools"]]
    assert modes == ["first-touch", "interleave"]
    if len(nodes_of(guest)) > 1:
        first, placed = found["answer"]["pools"]
        assert placed["bytes_by_node"] == {"0": 8 * MIB, "1": 8 * MIB}
        assert first["policy"] == "default"
