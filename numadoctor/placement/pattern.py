"""How the pages of a mapping alternate between nodes along it: run length, and a strip of cells.

A pool that is split evenly in total but lies in two solid halves sends each
block of it to one memory controller; the share alone does not show that.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from numadoctor.model.placement import Cell
from numadoctor.placement.asker import Asker
from numadoctor.placement.population import Population

STRIP_CELLS = 48

# Places in a mapping at which neighbours are asked about too.
_ANCHORS = 256

# Fewer changes than that tell a length only roughly.
_ENOUGH_CHANGES = 64


def strip(pages: Sequence[int], nodes: Sequence[int], total: int) -> tuple[Cell, ...]:
    """Equal parts of ``total`` pages, with what the sample saw in each.

    :param pages: their numbers
    :param nodes: what was answered for each: a node, or a negative errno
    """
    count = min(STRIP_CELLS, total)
    seen: list[dict[int, int]] = [{} for _ in range(count)]
    absent = [0] * count
    for page, node in zip(pages, nodes, strict=True):
        cell = page * count // total
        if node >= 0:
            seen[cell][node] = seen[cell].get(node, 0) + 1
        else:
            absent[cell] += 1
    return tuple(Cell(*cell) for cell in zip(seen, absent, strict=True))


def run_length(
    population: Population,
    pages: Sequence[int],
    nodes: Sequence[int],
    askers: Mapping[int, Asker],
) -> int | None:
    """Bytes that stay on one node, on average; None when nothing is present.

    The sample itself tells runs that are longer than its spacing. For shorter
    ones the neighbours of some of its pages are asked about, 1, 2, 4, ... pages
    away: with runs of R pages on average, two pages d apart (d < R) lie on
    different nodes once in R / d times.

    :param pages: numbers of the sampled pages, ascending
    :param nodes: what was answered for each
    """
    present = [pair for pair in zip(pages, nodes, strict=True) if pair[1] >= 0]
    if not present:
        return None
    if len(pages) == population.pages:
        runs = 1 + _changes([node for _, node in present])
        return len(present) * population.page_size // runs
    short = _short_runs(population, present, len(pages), askers)
    if short is not None:
        return max(population.page_size, round(short * population.page_size))
    resident = len(present) * population.bytes // len(pages)
    return resident // (1 + _changes([node for _, node in present]))


def _changes(nodes: Sequence[int]) -> int:
    return sum(a != b for a, b in pairwise(nodes))


def _short_runs(
    population: Population,
    present: Sequence[tuple[int, int]],
    asked: int,
    askers: Mapping[int, Asker],
) -> float | None:
    """The average run in pages when it is shorter than the spacing of the sample."""
    spacing = population.pages // asked
    step = -(-len(present) // _ANCHORS)
    anchors = present[step // 2 :: step]
    pairs = changes = 0
    distance = 1
    while distance < spacing:
        inside = [(page, node) for page, node in anchors if page + distance < population.pages]
        answers = population.ask([page + distance for page, _ in inside], askers)
        both = [(node, other) for (_, node), other in zip(inside, answers, strict=True)]
        both = [pair for pair in both if pair[1] >= 0]
        pairs += distance * len(both)
        changes += sum(node != other for node, other in both)
        if changes >= _ENOUGH_CHANGES:
            return pairs / changes
        distance *= 2
    return None
