"""Where the pages of a segment are: from the kernel's count, or from a sample of its pages."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.host.parsers import parse_policy
from numadoctor.model import Undecided
from numadoctor.model.placement import (
    Attacher,
    Kind,
    Method,
    Placement,
    Policy,
    Remainder,
    Share,
)
from numadoctor.placement import intervals
from numadoctor.placement.asker import ABSENT, ZERO, Asker
from numadoctor.placement.population import Piece, Population, draw
from numadoctor.placement.segments import Area, Crumbs, Segment

if TYPE_CHECKING:
    from random import Random

# Pages of a sample whose state (swapped out, huge) is looked at one by one.
_STATES = 256


class Sample(NamedTuple):
    """Pages of a population and where they were found.

    :ivar pages: their numbers, ascending
    :ivar nodes: a node for each, or a negative errno
    """

    population: Population
    pages: Sequence[int]
    nodes: Sequence[int]

    @property
    def complete(self) -> bool:
        """Every page was asked about."""
        return len(self.pages) == self.population.pages

    @property
    def method(self) -> Method:
        return Method.PER_PAGE if self.complete else Method.SAMPLED

    def bytes_of(self, count: int) -> int:
        """What ``count`` of the asked pages stand for."""
        return self.population.bytes * count // max(1, len(self.pages))

    def shares(self, most: int | None) -> dict[int, Share]:
        """Node id to its share; ``most`` is what can be resident at most, if known."""
        hits: dict[int, int] = {}
        for node in self.nodes:
            if node >= 0:
                hits[node] = hits.get(node, 0) + 1
        if self.complete:
            size = self.population.page_size
            return intervals.counted({node: count * size for node, count in hits.items()})
        limit = self.population.bytes if most is None else min(most, self.population.bytes)
        return intervals.sampled(hits, len(self.pages), self.population.bytes, limit)


def take(
    population: Population, wanted: int, random: "Random", askers: Mapping[int, Asker]
) -> Sample:
    """A sample of about ``wanted`` pages; of all pages where they are not many more."""
    if population.pages <= 2 * wanted:
        wanted = population.pages
    pages = draw(population.pages, wanted, random)
    return Sample(population, pages, population.ask(pages, askers))


def from_sample(
    segment: Segment, sample: Sample, askers: Mapping[int, Asker], most: int | None = None
) -> Placement:
    """The placement of a segment of which pages were asked about.

    :param most: bytes that can be resident at most
    """
    area = segment.widest
    shares = sample.shares(most)
    attached = [Attacher(a.pid, a.start) for a in segment.areas if a.is_shared]
    placement = Placement(
        mapping=area.mapping,
        method=sample.method,
        page_size=area.page_size,
        by_node=shares,
        resident=sum(share.bytes for share in shares.values()),
        attachers=tuple(attached),
    )
    return with_pattern(placement, sample, askers)


def with_pattern(placement: Placement, sample: Sample, askers: Mapping[int, Asker]) -> Placement:
    """Adds what only a sample tells: how the nodes alternate along the mapping, and zero pages."""
    from numadoctor.placement.pattern import run_length, strip

    return placement._replace(
        samples=len(sample.pages),
        run_length=run_length(sample.population, sample.pages, sample.nodes, askers),
        strip=strip(sample.pages, sample.nodes, sample.population.pages),
        zero_bytes=sample.bytes_of(sum(node == ZERO for node in sample.nodes)),
    )


def with_states(placement: Placement, sample: Sample) -> Placement:
    """Adds what the process that maps it has swapped out, and what in transparent huge pages."""
    from numadoctor.placement.pagemap import Pagemap

    pid = placement.mapping.pid
    nodes = sample.nodes
    present = [page for page, node in zip(sample.pages, nodes, strict=True) if node >= 0]
    absent = [page for page, node in zip(sample.pages, nodes, strict=True) if node == ABSENT]
    try:
        with Pagemap(pid, placement.page_size) as pagemap:
            shown = sample.population.locate(pid, _some(present))[1]
            hidden = sample.population.locate(pid, _some(absent))[1]
            huge, swapped = pagemap.count(shown).huge, pagemap.count(hidden).swapped
    except Undecided:
        return placement
    missing = sample.bytes_of(len(absent))
    return placement._replace(
        thp_bytes=None if huge is None else placement.resident * huge // max(1, len(shown)),
        swapped_bytes=None if swapped is None else missing * swapped // max(1, len(hidden)),
    )


def _some(pages: list[int]) -> list[int]:
    return pages[:: -(-len(pages) // _STATES) or 1]


def counted(segment: Segment) -> Placement:
    """The placement of a segment from the lines of numa_maps of all who map it.

    What several processes have in their page tables cannot be added up: the
    one with most of it speaks for all.
    """
    area = segment.widest
    by_pid = {pid: _bytes_of(segment, pid) for pid in segment.pids}
    fullest = max(by_pid.values(), key=lambda nodes: sum(nodes.values()))
    attached = [
        Attacher(a.pid, a.start, _policy(a), a.bytes_by_node) for a in segment.areas if a.is_shared
    ]
    return Placement(
        mapping=area.mapping,
        method=Method.EXACT,
        page_size=area.page_size,
        by_node=intervals.counted(fullest),
        resident=sum(fullest.values()),
        policy=_policy(area),
        attachers=tuple(attached),
    )


def is_told_apart(segment: Segment) -> bool:
    """Whether the process with most of a segment may lack pages that another has."""
    if len(segment.areas) == 1:
        return False
    resident = {pid: sum(_bytes_of(segment, pid).values()) for pid in segment.pids}
    most = max(resident.values())
    return most < segment.length and sum(resident.values()) > most


def _policy(area: Area) -> Policy | None:
    return _parsed(area.pages.policy) if area.pages else None


# A process may have 65,000 mappings, and few policies.
_parsed = lru_cache(maxsize=256)(parse_policy)


def _bytes_of(segment: Segment, pid: int) -> dict[int, int]:
    """What one process has of a segment; of areas that show the same pages, the fullest."""
    areas = [area for area in segment.areas if area.pid == pid]
    sums: dict[int, int] = {}
    for area in areas:
        for node, count in area.bytes_by_node.items():
            sums[node] = sums.get(node, 0) + count
    if len(areas) > 1 and sum(sums.values()) > segment.length:
        return max((a.bytes_by_node for a in areas), key=lambda nodes: sum(nodes.values()))
    return sums


def counted_crumbs(crumbs: Crumbs) -> dict[int, int]:
    """Bytes by node of small areas, from numa_maps."""
    nodes = crumbs.like.bytes_by_node
    return {node: count * crumbs.mappings for node, count in nodes.items()}


def crumbs_population(crumbs: Crumbs) -> Population:
    """The pages of small areas as one population."""
    like = crumbs.like
    pieces: list[Piece] = []
    first = 0
    for start, end in crumbs.ranges:
        pieces.append(Piece(first, (end - start) // like.page_size, start))
        first += pieces[-1].pages
    return Population(like.page_size, first, {like.pid: tuple(pieces)})


def pooled(populations: Sequence[Population]) -> Population:
    """Populations of one page size as one, the pages of the first first."""
    layers: dict[int, list[Piece]] = {}
    first = 0
    for population in populations:
        for pid, pieces in population.layers.items():
            moved = [piece._replace(first=piece.first + first) for piece in pieces]
            layers.setdefault(pid, []).extend(moved)
        first += population.pages
    size = populations[0].page_size
    return Population(size, first, {pid: tuple(pieces) for pid, pieces in layers.items()})


class Remainders:
    """Adds up, by kind, what is too small to be told one by one."""

    def __init__(self) -> None:
        self._parts: dict[Kind, list[tuple[int, Method, Mapping[int, Share], int]]] = {}

    def add(
        self, kind: Kind, mappings: int, method: Method, shares: Mapping[int, Share], samples: int
    ) -> None:
        self._parts.setdefault(kind, []).append((mappings, method, shares, samples))

    def add_placement(self, placement: Placement) -> None:
        p = placement
        self.add(p.mapping.kind, max(1, len(p.attachers)), p.method, p.by_node, p.samples)

    def result(self) -> tuple[Remainder, ...]:
        """By resident bytes, most first."""
        found = []
        for kind, parts in self._parts.items():
            shares = intervals.total(part[2] for part in parts)
            methods = {part[1] for part in parts}
            found.append(
                Remainder(
                    kind,
                    sum(part[0] for part in parts),
                    # What was asked page by page is as certain as what the kernel counted.
                    Method.SAMPLED if Method.SAMPLED in methods else parts[0][1],
                    shares,
                    sum(share.bytes for share in shares.values()),
                    sum(part[3] for part in parts),
                )
            )
        return tuple(sorted(found, key=lambda r: (-r.resident, r.kind.value)))
