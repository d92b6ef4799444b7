from random import Random

import pytest

from numadoctor.host.parsers import Backing, NumaMapsPages
from numadoctor.model.placement import Kind, Method, Policy
from numadoctor.placement import intervals, measure
from numadoctor.placement.asker import ABSENT, ZERO
from numadoctor.placement.population import Piece, Population
from numadoctor.placement.segments import Area, Crumbs, Segment
from tests.placement.layouts import LAYOUTS, PAGE, PAGES, Layout, population

START = 0x7F0000000000


def segment(kind: Kind = Kind.ANONYMOUS, pages: int = PAGES) -> Segment:
    return Segment((Area(1, START, START + pages * PAGE, Backing("rw-p"), kind, PAGE),))


def truth(name: str) -> dict[int, int]:
    """Bytes by node. The layouts repeat themselves after a while, but for the halves."""
    counts: dict[int, int] = {}
    step = 7 if name == "scattered" else 1
    for page in range(0, PAGES, step):
        node = LAYOUTS[name](page)
        if node >= 0:
            counts[node] = counts.get(node, 0) + step * PAGE
    return counts


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_interval_holds_the_truth_in_94_of_100_seeds(name: str) -> None:
    expected = truth(name)
    whole = population(start=START)
    held = dict.fromkeys(expected, 0)
    for seed in range(100):
        layout = Layout(LAYOUTS[name], START)
        sample = measure.take(whole, 1000, Random(seed), {1: layout})
        shares = sample.shares(None)
        for node, count in expected.items():
            share = shares.get(node)
            # A node that no page was seen on: its interval begins at 0.
            high = intervals.proportion(0, 1000)[1] * whole.bytes
            held[node] += share.low <= count <= share.high if share else count <= high
    # The scattered truth is itself an estimate.
    assert min(held.values()) >= (90 if name == "scattered" else 94), held


def test_a_sample_of_all_pages_has_no_width() -> None:
    sample = measure.take(population(150), 100, Random(1), {1: Layout(lambda page: page % 2)})
    assert sample.complete
    assert sample.method is Method.PER_PAGE
    assert {n: s[:3] for n, s in sample.shares(None).items()} == {
        0: (75 * PAGE,) * 3,
        1: (75 * PAGE,) * 3,
    }


def test_a_placement_from_a_sample() -> None:
    layout = Layout(lambda page: (0, 1, ABSENT, ZERO)[page * 4 // PAGES], START)
    one = segment()
    sample = measure.take(one.population(), 1000, Random(1), {1: layout})
    placement = measure.from_sample(one, sample, {1: layout})
    assert placement.method is Method.SAMPLED
    assert placement.mapping.start == START
    assert placement.mapping.length == PAGES * PAGE
    assert placement.samples == 1000
    quarter = pytest.approx(PAGES * PAGE // 4, rel=0.01)
    assert placement.bytes_by_node == {0: quarter, 1: quarter}
    assert placement.resident == sum(placement.bytes_by_node.values())
    assert placement.zero_bytes == quarter
    assert placement.run_length == quarter
    assert [dict(cell.nodes).keys() for cell in placement.strip[:24:12]] == [{0}, {1}]
    assert placement.attachers == ()
    assert placement.policy is None


def shared(pid: int, nodes: dict[int, int], policy: str = "default", huge: bool = False) -> Area:
    backing = Backing("rw-s", 0, (0, 1), 5, "/SYSV00000000 (deleted)")
    pages = NumaMapsPages(policy, nodes=nodes, huge=huge)
    start = START + (pid << 32)
    return Area(pid, start, start + 100 * PAGE, backing, Kind.SYSV, PAGE, pages)


def test_a_segment_counts_once_and_lists_its_attachers() -> None:
    segment = Segment(
        (shared(1, {0: 40, 1: 40}, "interleave:0-1"), shared(2, {0: 50, 1: 50}), shared(3, {}))
    )
    placement = measure.counted(segment)
    assert placement.method is Method.EXACT
    assert placement.bytes_by_node == {0: 50 * PAGE, 1: 50 * PAGE}
    assert placement.policy == Policy("interleave:0-1", "interleave", (), (0, 1))
    assert [(a.pid, a.policy and a.policy.text) for a in placement.attachers] == [
        (1, "interleave:0-1"),
        (2, "default"),
        (3, "default"),
    ]
    assert placement.attachers[0].bytes_by_node == {0: 40 * PAGE, 1: 40 * PAGE}
    # The second has all of it: there is nothing else that others could have.
    assert not measure.is_told_apart(segment)


def test_parts_touched_by_several_cannot_be_added_up() -> None:
    halves = Segment((shared(1, {0: 50}), shared(2, {1: 50})))
    assert measure.is_told_apart(halves)
    assert not measure.is_told_apart(Segment((shared(1, {0: 50}), shared(2, {}))))


def test_what_a_process_maps_twice_counts_once() -> None:
    twice = Segment((shared(1, {0: 80}), shared(1, {0: 70})))
    assert measure.counted(twice).bytes_by_node == {0: 80 * PAGE}


def test_small_areas_count_as_often_as_there_are_of_them() -> None:
    pages = NumaMapsPages("default", nodes={0: 1, 8: 2})
    like = Area(1, 0, 3 * PAGE, Backing("rw-p"), Kind.ANONYMOUS, PAGE, pages)
    crumbs = Crumbs(like, 2, [(0, 3 * PAGE), (4 * PAGE, 7 * PAGE)])
    assert measure.counted_crumbs(crumbs) == {0: 2 * PAGE, 8: 4 * PAGE}
    assert measure.crumbs_population(crumbs) == Population(
        PAGE, 6, {1: (Piece(0, 3, 0), Piece(3, 3, 4 * PAGE))}
    )


def test_populations_are_pooled_one_after_the_other() -> None:
    pooled = measure.pooled(
        [
            Population(PAGE, 10, {1: (Piece(0, 10, 0x1000),)}),
            Population(PAGE, 5, {1: (Piece(0, 5, 0x9000),), 2: (Piece(2, 3, 0xA000),)}),
        ]
    )
    assert pooled == Population(
        PAGE, 15, {1: (Piece(0, 10, 0x1000), Piece(10, 5, 0x9000)), 2: (Piece(12, 3, 0xA000),)}
    )


def test_remainders_add_up_by_kind() -> None:
    remainders = measure.Remainders()
    counted = intervals.counted
    remainders.add(Kind.STACK, 1, Method.EXACT, counted({0: 10}), 0)
    remainders.add(Kind.LIBRARY, 3, Method.EXACT, counted({0: 100, 1: 50}), 0)
    remainders.add(Kind.LIBRARY, 2, Method.SAMPLED, counted({1: 50}), 400)
    library, stack = remainders.result()
    assert (library.kind, library.mappings, library.method) == (Kind.LIBRARY, 5, Method.SAMPLED)
    assert (library.resident, library.samples) == (200, 400)
    assert {node: share.bytes for node, share in library.by_node.items()} == {0: 100, 1: 100}
    assert (stack.kind, stack.mappings, stack.method) == (Kind.STACK, 1, Method.EXACT)
