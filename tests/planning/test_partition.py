"""The division of GPUs into groups: against brute force, and on cases with one right answer."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from numadoctor.planning import partition
from numadoctor.planning.partition import (
    Cost,
    Counts,
    Division,
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
        links=draw(links(len(classes))),
    )


@st.composite
def links(draw: st.DrawFn, classes: int) -> dict[tuple[int, int], int]:
    """How much weaker than the strongest the links are, of some pairs of classes."""
    found = {}
    for at, to in itertools.combinations_with_replacement(range(classes), 2):
        weaker = draw(st.none() | st.integers(0, 2))
        if weaker is not None:
            found[at, to] = found[to, at] = weaker
    return found


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


def bridged(*pairs: tuple[int, int]) -> Problem:
    """Pairs of GPUs on these nodes, each pair joined by a bridge, and by nothing else."""
    places = [(node, at) for at, pair in enumerate(pairs) for node in pair]
    classes = tuple(GpuClass(node, "", 1, (node,)) for node, _ in places)
    joined = {
        (one, other): 0
        for one, (_, mine) in enumerate(places)
        for other, (_, theirs) in enumerate(places)
        if mine == theirs and one != other
    }
    distances = {(0, 1): 21, (1, 0): 21}
    return Problem(classes, 2, 2, distances, 21, {0: 100, 1: 100}, links=joined)


@pytest.mark.parametrize("find", [divide, greedy])
def test_joined_gpus_stay_together_even_over_nodes(find: Callable[[Problem], Division]) -> None:
    found = find(bridged((0, 1), (0, 1)))
    assert found is not None
    assert set(found.groups) == {(1, 1, 0, 0), (0, 0, 1, 1)}
    assert (found.cost.unjoined, found.cost.spans) == (0, 2)


@pytest.mark.parametrize("find", [divide, greedy])
def test_groups_larger_than_what_is_joined_keep_to_a_node(
    find: Callable[[Problem], Division],
) -> None:
    found = find(bridged((0, 0), (1, 1), (0, 0), (1, 1))._replace(size=4))
    assert found is not None
    assert set(found.groups) == {(1, 1, 0, 0, 1, 1, 0, 0), (0, 0, 1, 1, 0, 0, 1, 1)}
    assert (found.cost.unjoined, found.cost.spans) == (8, 0)


def test_of_joined_gpus_those_with_the_strongest_link() -> None:
    """A ring of four: strong links on two sides, weak ones on the others."""
    classes = tuple(GpuClass(0, "", 1, (0,)) for _ in range(4))
    ring = {(0, 1): 1, (1, 2): 0, (2, 3): 1, (0, 3): 0}
    ring |= {(b, a): weaker for (a, b), weaker in ring.items()}
    found = divide(Problem(classes, 2, 2, {}, 21, {0: 100}, links=ring))
    assert found is not None
    assert set(found.groups) == {(1, 0, 0, 1), (0, 1, 1, 0)}


def cube_mesh(first: int) -> dict[tuple[int, int], int]:
    """Eight GPUs as in a DGX-1: two quads, in which some links are double, and four double ones."""
    single = {(0, 1), (0, 2), (1, 3), (2, 3), (4, 5), (4, 6), (5, 7), (6, 7)}
    double = {(0, 3), (1, 2), (4, 7), (5, 6), (0, 4), (1, 5), (2, 6), (3, 7)}
    found = {(a + first, b + first): int((a, b) in single) for a, b in single | double}
    return found | {(b, a): weaker for (a, b), weaker in found.items()}


def meshes(number: int, size: int) -> Problem:
    """Cube meshes, each with a quad on each of two nodes."""
    classes = tuple(GpuClass(at // 4 % 2, "", 1, (at // 4 % 2,)) for at in range(8 * number))
    links = {pair: w for at in range(number) for pair, w in cube_mesh(8 * at).items()}
    distances = {(0, 1): 21, (1, 0): 21}
    room = {0: 100, 1: 100}
    return Problem(classes, 8 * number // size, size, distances, 21, room, links=links)


@pytest.mark.parametrize(
    ("size", "groups"),
    [
        (2, {(0, 3), (1, 2), (4, 7), (5, 6)}),
        (4, {(0, 1, 2, 3), (4, 5, 6, 7)}),
    ],
)
def test_a_cube_mesh(size: int, groups: set[tuple[int, ...]]) -> None:
    found = divide(meshes(1, size))
    assert found is not None
    assert {tuple(at for at, n in enumerate(group) if n) for group in found.groups} == groups
    assert found.cost.unjoined == 0


@pytest.mark.parametrize("size", [2, 4, 8])
def test_sixteen_gpus_of_two_meshes_are_searched_to_the_end(size: int) -> None:
    found = divide(meshes(2, size))
    assert found is not None
    assert found.proven
    assert found.cost.unjoined == (24 if size == 8 else 0)


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
    assert found.cost == Cost(0, 0, 0, 0, 0, 0, 144, 60, 0)


def test_a_group_that_no_node_holds_takes_from_the_nearest() -> None:
    classes = tuple(GpuClass(node, "", 6, (node,)) for node in range(3))
    distances = {(0, 1): 30, (0, 2): 12, (1, 2): 20}
    distances |= {(b, a): d for (a, b), d in distances.items()}
    assert greedy(Problem(classes, 1, 8, distances, 40, {})).groups == ((6, 0, 2),)
