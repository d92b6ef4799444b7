"""The division of GPUs into groups: against brute force, and on cases with one right answer."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from numadoctor.planning import partition
from numadoctor.planning.partition import (
    Cost,
    Counts,
    GpuClass,
    Problem,
    cost,
    divide,
    greedy,
    kinds_of_groups,
)

NODES = (0, 2, 8)


@st.composite
def problems(draw: st.DrawFn, most: int = 7) -> Problem:
    nodes = st.sampled_from((*NODES, None))
    shapes = draw(
        st.lists(
            st.tuples(nodes, st.sampled_from(("", "a", "b")), st.integers(1, 3)),
            min_size=1,
            max_size=4,
            unique_by=lambda shape: shape[:2],
        )
    )
    classes = tuple(
        GpuClass(
            node,
            bridge if node is not None else "",
            count,
            tuple(draw(st.sets(st.sampled_from(NODES), min_size=1))),
            draw(st.booleans()),
        )
        for node, bridge, count in shapes
    )
    # Those of one node are near to the same memory.
    homes = {one.node: one.homes for one in classes}
    classes = tuple(one._replace(homes=homes[one.node]) for one in classes)
    total = sum(one.number for one in classes)
    assume(total <= most)
    size = draw(st.integers(1, total))
    distances = {}
    for one, other in itertools.combinations(NODES, 2):
        distances[one, other] = distances[other, one] = draw(st.integers(11, 40))
    return Problem(
        classes,
        draw(st.integers(1, total // size)),
        size,
        distances,
        far=draw(st.integers(40, 50)),
        room={node: draw(st.integers(0, 100)) for node in NODES},
        pool=draw(st.integers(0, 120)),
        strict=draw(st.booleans()),
    )


def every_division(problem: Problem) -> Iterator[list[Counts]]:
    """All ways to form the groups out of single GPUs, each GPU told from all others."""
    gpus = [place for place, one in enumerate(problem.classes) for _ in range(one.number)]

    def fill(left: tuple[int, ...], groups: list[tuple[int, ...]]) -> Iterator[list[Counts]]:
        if len(groups) == problem.groups:
            yield [
                tuple(sum(gpus[g] == place for g in group) for place in range(len(problem.classes)))
                for group in groups
            ]
            return
        for group in itertools.combinations(left, problem.size):
            # The order of groups says nothing.
            if not groups or group > groups[-1]:
                yield from fill(tuple(g for g in left if g not in group), [*groups, group])

    yield from fill(tuple(range(len(gpus))), [])


@given(problems())
def test_it_is_as_good_as_the_best_of_all(problem: Problem) -> None:
    found = divide(problem)
    assert found is not None
    assert found.proven
    assert found.cost == cost(problem, found.groups)
    assert found.cost == min(cost(problem, groups) for groups in every_division(problem))


@given(problems())
def test_groups_are_full_and_share_no_gpu(problem: Problem) -> None:
    for found in (divide(problem), greedy(problem)):
        assert found is not None
        assert len(found.groups) == problem.groups
        assert all(sum(group) == problem.size for group in found.groups)
        for place, one in enumerate(problem.classes):
            assert sum(group[place] for group in found.groups) <= one.number


@given(problems())
def test_the_heuristic_is_never_better_than_the_search(problem: Problem) -> None:
    best = divide(problem)
    assert best is not None
    assert best.cost <= greedy(problem).cost


@given(st.lists(st.integers(0, 4), max_size=5), st.integers(0, 6))
def test_kinds_of_groups(counts: list[int], size: int) -> None:
    kinds = list(kinds_of_groups(counts, size))
    every = itertools.product(*(range(count + 1) for count in counts))
    assert sorted(kinds) == sorted(kind for kind in every if sum(kind) == size)


def two_nodes(first: int, second: int, groups: int, size: int, **more: object) -> Problem:
    classes = (GpuClass(0, "", first, (0,)), GpuClass(1, "", second, (1,)))
    distances = {(0, 1): 21, (1, 0): 21}
    problem = Problem(classes, groups, size, distances, 21, {0: 100, 1: 100})
    return problem._replace(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("problem", "groups"),
    [
        # One node each, though both would fit on the first.
        (two_nodes(4, 4, 2, 2), {(2, 0), (0, 2)}),
        (two_nodes(4, 4, 2, 4), {(4, 0), (0, 4)}),
        # Only one can be on one node: three on it, and the fourth away is better than two and two.
        (two_nodes(5, 3, 2, 4), {(4, 0), (1, 3)}),
        # The first node has no room for the pool.
        (two_nodes(4, 4, 1, 2, room={0: 10, 1: 100}, pool=50), {(0, 2)}),
        # Both pools fit on two nodes, not on one.
        (two_nodes(8, 2, 2, 2, pool=80), {(2, 0), (0, 2)}),
    ],
)
def test_cases_with_one_right_answer(problem: Problem, groups: set[Counts]) -> None:
    found = divide(problem)
    assert found is not None
    assert set(found.groups) == groups


def test_gpus_on_one_bridge_stay_together() -> None:
    classes = tuple(GpuClass(0, bridge, 2, (0,)) for bridge in "abcd")
    found = divide(Problem(classes, 4, 2, {}, 21, {0: 100}))
    assert found is not None
    assert set(found.groups) == {(2, 0, 0, 0), (0, 2, 0, 0), (0, 0, 2, 0), (0, 0, 0, 2)}


def test_a_gpu_of_unknown_node_is_no_neighbour_of_any() -> None:
    classes = (GpuClass(0, "", 2, (0,)), GpuClass(None, "", 2, (0, 1)))
    found = divide(Problem(classes, 2, 2, {}, 40, {0: 100, 1: 100}))
    assert found is not None
    assert set(found.groups) == {(2, 0), (0, 2)}
    assert found.cost.spans == 1  # the two unknown ones may be on two nodes
    assert found.cost.distance == 40


def test_too_few() -> None:
    assert divide(two_nodes(1, 1, 1, 3)) is None


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_sixteen_gpus_that_all_differ_are_searched_to_the_end(size: int) -> None:
    """The worst there is: 16 nodes of one GPU, at distances that leave nothing alike."""
    nodes = range(16)
    distances = {(a, b): 11 + (a * 7 + b * 13) % 30 for a in nodes for b in nodes if a < b}
    distances |= {(b, a): d for (a, b), d in distances.items()}
    classes = tuple(GpuClass(node, "", 1, (node,)) for node in nodes)
    problem = Problem(classes, 16 // size, size, distances, 40, dict.fromkeys(nodes, 100))
    found = divide(problem)
    assert found is not None
    assert found.proven
    assert found.cost == cost(problem, found.groups)


def test_a_search_that_is_cut_short_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "MOST_STEPS", 1)
    found = divide(two_nodes(5, 3, 2, 4))
    assert found is not None
    assert not found.proven
    assert len(found.groups) == 2


def test_more_gpus_than_can_be_searched() -> None:
    classes = tuple(GpuClass(node, "", 8, (node,)) for node in range(4))
    distances = {(a, b): 12 + abs(a - b) for a in range(4) for b in range(4) if a != b}
    found = divide(Problem(classes, 4, 6, distances, 40, {}))
    assert found is not None
    assert not found.proven
    assert sorted(map(max, found.groups)) == [6, 6, 6, 6]
    assert found.cost == Cost(0, 0, 0, 0, 144, 60, 0)


def test_a_group_that_no_node_holds_takes_from_the_nearest() -> None:
    classes = tuple(GpuClass(node, "", 6, (node,)) for node in range(3))
    distances = {(0, 1): 30, (0, 2): 12, (1, 2): 20}
    distances |= {(b, a): d for (a, b), d in distances.items()}
    assert greedy(Problem(classes, 1, 8, distances, 40, {})).groups == ((6, 0, 2),)
