"""Memory policies on real kernels: pages lie where the calls say, and refusals name their cause."""

import errno
from typing import Any

from tests.lab import guest_facts, guest_policy
from tests.lab.guests import Guest, on

SEVERAL = ("x86_64-[248]n-*", "aarch64-*", "ppc64le-*", "i386-2n-*")
TWO_OR_FOUR = ("x86_64-[24]n-*", "aarch64-[24]n-*", "ppc64le-[24]n-*", "i386-2n-*")
ONE = ("x86_64-1n-*", "s390x-1n-*")
BEYOND_A_WORD = ("i386-40n-*", "x86_64-80n-*")


def release(guest: Guest) -> tuple[int, ...]:
    return tuple(map(int, guest.machine.kernel.partition("-")[0].split(".")))


@on("x86_64-*", "aarch64-*", "ppc64le-*", "i386-*", "s390x-1n-*")
def test_maxnode(guest: Guest) -> None:
    found = guest.run(guest_policy.prove)
    bits = found["word_bits"]
    assert set(found["word"]) == {"set_mempolicy", "mbind", "migrate_pages"}
    for call, answers in found["word"].items():
        assert (answers["1"], answers[str(bits + 1)], answers[str(bits + 2)]) == (
            "EINVAL",
            "ok",
            "EFAULT",
        ), call
    first, last = found["last_bit"]["mask"]
    # The plain number of bits loses the last one; one more keeps it.
    assert found["last_bit"]["taken"][str(last + 1)] == [first]
    if last == bits - 1:
        assert found["last_bit"]["taken"][str(last + 2)] == [first, last]
    for maxnode, size in found["read"]["written"].items():
        assert size == (int(maxnode) + 62) // 64 * 8


@on(*SEVERAL, "s390x-1n-*")
def test_pages_lie_where_they_were_bound(guest: Guest) -> None:
    for node in range(len(guest.machine.nodes)):
        found = guest.run(guest_policy.placed, "BIND", [node], 64)
        assert found["range"] == found["thread"] == {str(node): 64}
        assert found["applied"]["nodes"] == [node]
        assert found["applied"]["narrowed"] is False


@on(*SEVERAL)
def test_interleaved_pages_are_split_evenly(guest: Guest) -> None:
    nodes = list(range(len(guest.machine.nodes)))
    found = guest.run(guest_policy.placed, "INTERLEAVE", nodes, 64 * len(nodes))
    even = {str(node): 64 for node in nodes}
    assert found["range"] == even
    # The thread's own turn also serves what Python allocates meanwhile.
    assert sum(found["thread"].values()) == 64 * len(nodes)
    assert all(abs(count - 64) <= 8 for count in found["thread"].values())
    assert set(found["thread"]) == set(even)


@on("x86_64-2n-6.12", "aarch64-2n-6.12")
def test_weighted_pages_follow_their_weights(guest: Guest) -> None:
    found = guest.run(guest_policy.weighted, {"0": 3, "1": 1}, 64)
    assert found == {"0": 48, "1": 16}


@on("x86_64-2n-*", "aarch64-2n-*", "ppc64le-2n-*", "i386-2n-*")
def test_first_touch_takes_the_node_of_the_cpu(guest: Guest) -> None:
    for node in (0, 1):
        assert guest.run(guest_policy.first_touch, node) == {str(node): 64}


@on(*TWO_OR_FOUR)
def test_the_number_of_nodes_as_maxnode_loses_node_1(guest: Guest) -> None:
    found = guest.run(guest_policy.short_maxnode)
    assert found == {"errno": 0, "policy": "interleave:0", "places": {"0": 64}}


@on(*ONE)
def test_a_mask_in_the_other_byte_order_is_refused(guest: Guest) -> None:
    found = guest.run(guest_policy.byte_orders)
    own = guest.run(guest_facts.process)["byteorder"]
    other = {"little": "big", "big": "little"}[own]
    assert found == {own: 0, other: errno.EINVAL}


@on(*BEYOND_A_WORD)
def test_nodes_beyond_the_first_word(guest: Guest) -> None:
    last = len(guest.machine.nodes) - 1
    for node in (31, 32, 39, 63, 64, last):
        if node <= last:
            found = guest.run(guest_policy.placed, "BIND", [node], 16)
            assert found["range"] == found["thread"] == {str(node): 16}


@on("x86_64-2n-*", "ppc64le-2n-*")
def test_a_cpuset_narrows_a_policy(guest: Guest) -> None:
    found = guest.run(guest_policy.narrowed, "0", [0, 1])
    assert found["nodes"] == [0]
    assert found["narrowed"] is True
    assert found["dropped"] == [1]
    assert found["because"].startswith("asked for node 0-1, Mems_allowed_list is 0:")
    found = guest.run(guest_policy.shut_out, "0", [1])
    assert (found["kind"], found["errno"]) == ("EmptyNodeSet", errno.EINVAL)
    assert found["cause"].startswith("Asked for node 1; Mems_allowed_list is 0:")


@on("x86_64-4n-*")
def test_relative_nodes_are_positions_in_the_cpuset(guest: Guest) -> None:
    found = guest.run(guest_policy.relative, "1,3", [0, 3])
    assert found["nodes"] == [1, 3]
    assert set(found["places"]) == {"1", "3"}
    assert guest.run(guest_policy.relative, "2-3", [0, 2])["nodes"] == [2]


@on(*TWO_OR_FOUR)
def test_pages_are_moved_and_strict_binding_is_refused(guest: Guest) -> None:
    found: dict[str, Any] = guest.run(guest_policy.moved, 0, 1)
    assert found["touched"] == {"0": 64}
    assert (found["strict"]["kind"], found["strict"]["errno"]) == ("Misplaced", errno.EIO)
    assert found["mbind"] == {"1": 64}
    assert found["move_pages"] == {"0": 64}
    # Pages that the kernel holds for a moment stay; those of ours have no such excuse.
    assert found["migrate_pages"] == {"1": 64}


@on("x86_64-2n-*", "aarch64-2n-*")
def test_a_home_node_is_filled_first(guest: Guest) -> None:
    found = guest.run(guest_policy.home_node, [0, 1], 1, 0)
    assert found == {"refused": {"kind": None}, "places": {"1": 64}}
    assert guest.run(guest_policy.home_node, [0, 1], 0, 1)["places"] == {"0": 64}


@on("x86_64-uneven-*")
def test_a_node_without_memory_is_dropped(guest: Guest) -> None:
    assert guest.run(guest_policy.allowed) == [0, 2]
    found = guest.run(guest_policy.refused, [1])
    assert (found["kind"], found["errno"]) == ("EmptyNodeSet", errno.EINVAL)
    assert "Asked for node 1; Mems_allowed_list is 0,2" in found["cause"]
    assert guest.run(guest_policy.placed, "INTERLEAVE", [0, 1, 2], 64)["range"] == {
        "0": 32,
        "2": 32,
    }


@on(*SEVERAL, "s390x-1n-*")
def test_the_effect_probe_sees_every_node(guest: Guest) -> None:
    pages = guest.run(guest_policy.effect)["pages"]
    nodes = range(len(guest.machine.nodes))
    assert [(page["node"], page["observed"]) for page in pages] == [
        (node, node) for node in nodes for _ in ("mbind", "set_mempolicy")
    ]


@on("x86_64-[12]n-*", "aarch64-2n-6.*", "ppc64le-2n-*", "i386-2n-*", "s390x-1n-*")
def test_features_are_those_of_the_release(guest: Guest) -> None:
    found = guest.run(guest_policy.features)
    known = {name: feature["available"] for name, feature in found.items()}
    assert known["MPOL_PREFERRED_MANY"] is True
    assert known["MPOL_F_NUMA_BALANCING"] is True
    assert known["MADV_POPULATE_WRITE"] is True
    assert known["set_mempolicy_home_node"] is True
    assert known["MPOL_WEIGHTED_INTERLEAVE"] is (release(guest) >= (6, 9))
