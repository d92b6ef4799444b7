from numadoctor.model.placement import Change, Kind, Method, Process, Remainder, Share
from numadoctor.placement import intervals
from numadoctor.placement.difference import difference
from tests.placement.made import GIB, MIB, mapping, whole


def sampled(bytes_: int, width: int) -> dict[int, Share]:
    return {0: Share(bytes_, bytes_ - width, bytes_ + width, 1.0, 1.0, 1.0)}


def test_what_grew_is_told_by_name() -> None:
    before = whole(mapping(Kind.POSIX, {0: GIB}, name="/dev/shm/pool"))
    after = whole(mapping(Kind.POSIX, {0: GIB, 1: 2 * GIB}, name="/dev/shm/pool", start=1 << 40))
    found = difference(before, after)
    assert (found.before, found.after) == (GIB, 3 * GIB)
    assert found.nodes == {0: (GIB, GIB), 1: (0, 2 * GIB)}
    assert found.changes == (
        Change(Kind.POSIX, "/dev/shm/pool", GIB, 3 * GIB, {1: 2 * GIB}, "default", "default"),
    )


def test_what_moved_between_nodes_is_no_growth() -> None:
    before, after = (
        whole(mapping(nodes=nodes)) for nodes in ({0: GIB}, {0: GIB // 4, 1: 3 * GIB // 4})
    )
    (change,) = difference(before, after).changes
    assert change.before == change.after == GIB
    assert change.by_node == {0: -3 * GIB // 4, 1: 3 * GIB // 4}
    assert change.moved == 3 * GIB // 4


def test_memory_without_a_name_is_known_by_where_it_lies() -> None:
    # It grew downwards, as memory of mmap() does, and a new one stands beside it.
    before = whole(mapping(nodes={0: MIB}, start=0x200000, length=MIB))
    after = whole(
        mapping(nodes={0: 3 * MIB}, start=0x100000, length=2 * MIB),
        mapping(nodes={0: 5 * MIB}, start=0x900000, length=5 * MIB),
        mapping(nodes={0: 7 * MIB}, start=0x200000, length=7 * MIB, pid=9),
    )
    changes = {
        change.name: (change.before, change.after) for change in difference(before, after).changes
    }
    assert changes == {
        "pid 4242 200000": (MIB, 3 * MIB),
        "pid 4242 900000": (0, 5 * MIB),
        "pid 9 200000": (0, 7 * MIB),
    }


def test_a_mapping_without_an_end_is_where_it_starts() -> None:
    one = mapping(nodes={0: MIB})
    endless = one._replace(mapping=one.mapping._replace(end=None))
    assert difference(whole(endless), whole(endless)).changes == ()


def test_what_the_intervals_explain_is_no_change() -> None:
    looks = [whole(mapping(shares=sampled(size * MIB, 30 * MIB))) for size in (1000, 1040, 1050)]
    assert difference(looks[0], looks[1]).changes == ()
    (change,) = difference(looks[0], looks[2]).changes
    assert change.by_node == {0: 50 * MIB}


def test_a_policy_that_changed_is_told_and_an_unknown_one_is_not() -> None:
    looks = [whole(mapping(nodes={0: MIB}, policy=p)) for p in ("default", "interleave:0-1", None)]
    (change,) = difference(looks[0], looks[1]).changes
    assert (change.policy_before, change.policy_after) == ("default", "interleave:0-1")
    assert change.by_node == {}
    assert difference(looks[1], looks[2]).changes == ()


def test_small_mappings_are_compared_by_kind() -> None:
    looks = [
        whole(remainders=(Remainder(Kind.LIBRARY, 9, Method.EXACT, intervals.counted({0: n}), n),))
        for n in (MIB, 2 * MIB)
    ]
    (change,) = difference(*looks).changes
    assert (change.kind, change.name, change.after) == (Kind.LIBRARY, "smaller mappings", 2 * MIB)


def test_the_most_comes_first() -> None:
    names = ("a", "b", "c")
    before = whole(*(mapping(Kind.POSIX, {0: 10 * MIB}, name=name) for name in names))
    sizes = {"a": {0: 11 * MIB}, "b": {1: 10 * MIB}, "c": {0: 5 * MIB}}
    after = whole(*(mapping(Kind.POSIX, nodes, name=name) for name, nodes in sizes.items()))
    assert [change.name for change in difference(before, after).changes] == ["b", "c", "a"]


def test_processes_that_came_and_went_and_what_the_others_did() -> None:
    before = whole(
        processes=(
            Process(1, "a", minor_faults=10, major_faults=1, swapped=0, migrated_pages=5),
            Process(2, "b", minor_faults=7),
        )
    )
    after = whole(
        processes=(
            Process(1, "a", minor_faults=110, major_faults=3, swapped=4096, migrated_pages=5),
            Process(3, "c", minor_faults=1000),
        )
    )
    found = difference(before, after)
    assert (found.started, found.ended) == ((3,), (2,))
    assert (found.minor_faults, found.major_faults) == (100, 2)
    assert (found.swapped, found.migrated_pages) == (4096, 0)


def test_counters_that_either_look_lacks_are_unknown() -> None:
    found = difference(whole(), whole(processes=(Process(4242, "vllm", minor_faults=3),)))
    assert found.minor_faults is None
    assert difference(whole(processes=()), whole(processes=())).minor_faults is None
