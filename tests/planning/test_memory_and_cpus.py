"""Pools fit where they are put, cores are whole and belong to one instance."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model.plan import PoolPolicy
from numadoctor.planning.cpus import TooFewCores, divide_cores
from numadoctor.planning.memory import Wish, filled, place_pools, spread

NODES = (0, 1, 8)
DISTANCES = {(0, 1): 21, (0, 8): 32, (1, 8): 12}

rooms = st.fixed_dictionaries({node: st.integers(0, 100) for node in NODES})
policies = st.sampled_from((None, *PoolPolicy))
wishes = st.lists(
    st.builds(
        Wish,
        st.sets(st.sampled_from(NODES), min_size=1).map(lambda nodes: tuple(sorted(nodes))),
        st.integers(0, 150),
        policies,
    ),
    min_size=1,
    max_size=3,
)


def distance(one: int, other: int) -> int:
    return 10 if one == other else DISTANCES[min(one, other), max(one, other)]


@given(wishes, rooms)
def test_what_is_placed_fits(wanted: list[Wish], room: dict[int, int]) -> None:
    placed = place_pools(wanted, room, distance, {0: 2, 1: 1, 8: 1})
    if placed is None:
        return
    for node in NODES:
        assert sum(one.shares.get(node, 0) for one in placed) <= room[node]
    for wish, one in zip(wanted, placed, strict=True):
        assert sum(one.shares.values()) == wish.size
        assert one.nodes
        if wish.policy is PoolPolicy.BIND:
            assert set(one.nodes) <= set(wish.homes)
        assert one.policy is (wish.policy or one.policy)


@given(st.sets(st.sampled_from(NODES), min_size=1), st.integers(0, 400), rooms)
def test_a_pool_that_is_refused_fits_nowhere(
    homes: set[int], size: int, room: dict[int, int]
) -> None:
    own = tuple(sorted(homes))
    for policy in (None, PoolPolicy.PREFERRED, PoolPolicy.LOCAL, PoolPolicy.INTERLEAVE):
        placed = place_pools([Wish(own, size, policy)], room, distance, {})
        if policy in (PoolPolicy.PREFERRED, PoolPolicy.LOCAL):
            assert (placed is None) == (size > sum(room.values()))
        else:
            widest = max(
                min(have, 1000) * count
                for count, have in enumerate(sorted(room.values(), reverse=True), 1)
            )
            # The first nodes of an uneven spread hold a byte more.
            assert placed is not None or size > widest - len(room)
    bound = place_pools([Wish(own, size, PoolPolicy.BIND)], room, distance, {})
    assert (bound is None) == (size > sum(room[node] for node in own))


def test_a_pool_stays_at_home_if_it_fits() -> None:
    placed = place_pools([Wish((1,), 80)], {0: 100, 1: 100}, distance, {})
    assert placed is not None
    assert placed[0] == (PoolPolicy.BIND, {1: 80})


def test_a_pool_that_does_not_fit_takes_the_nearest_node_too() -> None:
    placed = place_pools([Wish((1,), 150)], {0: 100, 1: 100, 8: 100}, distance, {})
    assert placed is not None
    assert placed[0] == (PoolPolicy.INTERLEAVE, {1: 75, 8: 75})


def test_a_full_node_is_left_out() -> None:
    placed = place_pools([Wish((0, 1), 90)], {0: 1, 1: 100}, distance, {})
    assert placed is not None
    assert placed[0].shares == {1: 90}


def test_the_first_gives_way_where_the_last_would_find_no_room() -> None:
    flexible, strict = Wish((0,), 80), Wish((0,), 80, PoolPolicy.BIND)
    placed = place_pools([flexible, strict], {0: 100, 1: 100}, distance, {})
    assert placed is not None
    assert [one.shares for one in placed] == [{1: 80}, {0: 80}]


def test_weights() -> None:
    assert spread(100, (0, 1), {0: 3, 1: 1}) == {0: 75, 1: 25}
    placed = place_pools(
        [Wish((0, 1), 100, PoolPolicy.WEIGHTED)], {0: 80, 1: 80}, distance, {0: 3, 1: 1}
    )
    assert placed is not None
    assert placed[0].shares == {0: 75, 1: 25}


@given(st.integers(0, 1000), st.sets(st.sampled_from(NODES), min_size=1))
def test_an_even_spread_differs_by_one_byte_at_most(size: int, nodes: set[int]) -> None:
    shares = spread(size, sorted(nodes), {})
    assert sum(shares.values()) == size
    assert max(shares.values()) - min(shares.values()) <= 1


def test_the_rest_of_a_filled_pool_goes_elsewhere() -> None:
    room = {0: 10, 1: 100, 8: 100}
    assert filled(60, (0, 1), (), room) == {0: 10, 1: 50}
    assert filled(150, (0, 1), (8,), room) == {0: 10, 1: 100, 8: 40}
    assert filled(300, (0, 1), (8,), room) is None


def cores(count: int, first: int = 0, threads: int = 2) -> list[tuple[int, ...]]:
    return [tuple(first + n + 100 * t for t in range(threads)) for n in range(count)]


@given(
    st.dictionaries(st.sampled_from(NODES), st.integers(1, 40), min_size=1),
    st.lists(
        st.dictionaries(st.sampled_from(NODES), st.integers(1, 4).map(Fraction)),
        min_size=1,
        max_size=4,
    ),
    st.none() | st.integers(0, 5),
)
def test_cores_are_whole_and_of_one_instance(
    counts: dict[int, int], claims: list[dict[int, Fraction]], keep: int | None
) -> None:
    here = {node: cores(count, 1000 * node) for node, count in counts.items()}
    if any(sum(node in claim for claim in claims) > count for node, count in counts.items()):
        with pytest.raises(TooFewCores):
            divide_cores(here, claims, keep)
        return
    divided = divide_cores(here, claims, keep)
    owners = [*divided.instances, *divided.reserved.values()]
    every = [cpu for cpus in owners for cpu in cpus]
    assert len(every) == len(set(every))
    for cpus in owners:
        for node in here:
            assert all(set(core) <= set(cpus) or not set(core) & set(cpus) for core in here[node])
    for claim, cpus in zip(claims, divided.instances, strict=True):
        for node in here:
            mine = {cpu for core in here[node] for cpu in core} & set(cpus)
            assert bool(mine) == (node in claim)


def test_equal_claims_get_equal_parts_and_the_first_core_is_kept() -> None:
    one, other = {0: Fraction(2)}, {0: Fraction(2)}
    divided = divide_cores({0: cores(9)}, [one, other], None)
    assert divided.reserved == {0: (0, 100)}
    assert divided.instances == (
        (1, 2, 3, 4, 101, 102, 103, 104),
        (5, 6, 7, 8, 105, 106, 107, 108),
    )


def test_claims_by_gpus() -> None:
    divided = divide_cores({0: cores(9, threads=1)}, [{0: Fraction(3)}, {0: Fraction(1)}], None)
    assert [len(cpus) for cpus in divided.instances] == [6, 2]


def test_nothing_can_be_kept() -> None:
    divided = divide_cores({0: cores(2)}, [{0: Fraction(1)}, {0: Fraction(1)}], None)
    assert divided.short == (0,)
    assert divided.reserved == {0: ()}


def test_too_few() -> None:
    with pytest.raises(TooFewCores):
        divide_cores({0: cores(1)}, [{0: Fraction(1)}, {0: Fraction(1)}], None)
