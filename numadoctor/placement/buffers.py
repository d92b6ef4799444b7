"""Where the pages of a buffer of this process are: for whoever wants an allocation verified."""

import operator
import os
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

from numadoctor.host.parsers import parse_maps, parse_numa_maps, parse_policy
from numadoctor.host.root import LiveRoot
from numadoctor.kernel.syscalls import move_pages
from numadoctor.model import ParseError, Undecided
from numadoctor.model.placement import Cell, Kind, Mapping, Method, Placement, Policy
from numadoctor.placement import intervals, measure
from numadoctor.placement.asker import ZERO
from numadoctor.placement.move_pages import PageAsker
from numadoctor.placement.pattern import STRIP_CELLS
from numadoctor.placement.population import Piece, Population
from numadoctor.placement.segments import Area, counted_areas

# Up to so many pages each is asked about, beyond that numa_maps is several times as fast.
_EACH = 1 << 16

# Pages per call. Who asks about itself need not be spared, but its other threads may want to mmap.
_BATCH = 1 << 12

_PATTERN_PAGES = 1500


def place_buffer(
    address: int,
    length: int,
    *,
    page_size: int | None = None,
    kind: Kind = Kind.ANONYMOUS,
    method: Method | None = None,
) -> Placement:
    """Where the pages of a range of addresses of this process are. No page is touched.

    Every page is asked about where there are few, or where ``method`` is
    PER_PAGE; else numa_maps counts them, and a sample tells how the nodes
    alternate. Either is taken where the other is refused.

    :param address: a multiple of the page size
    :param length: in bytes, a multiple of the page size
    :param page_size: in bytes, that of hugetlb pages for such; that of the system if None
    :param method: EXACT or PER_PAGE, to not choose
    :raises Undecided: both are refused; the error is that of the one to be preferred
    """
    size = page_size or os.sysconf("SC_PAGE_SIZE")
    mapping = Mapping(os.getpid(), address, address + length, kind)
    ways = [_per_page, _counted]
    if method is Method.EXACT or (method is None and length // size > _EACH):
        ways.reverse()
    try:
        return ways[0](mapping, size)
    except Undecided as refusal:
        if method is not None:
            raise
        try:
            return ways[1](mapping, size)
        except Undecided:
            raise refusal from None


def _counted(mapping: Mapping, page_size: int) -> Placement:
    """From numa_maps.

    :raises Undecided: it cannot be read, or the buffer is a part of a mapping only
    """
    areas = _own_areas(mapping, page_size)
    by_node: Counter[int] = Counter()
    for area in areas:
        by_node.update(area.bytes_by_node)
    policies = {area.pages.policy for area in areas if area.pages}
    placement = Placement(
        mapping=mapping,
        method=Method.EXACT,
        page_size=page_size,
        by_node=intervals.counted(by_node),
        resident=sum(by_node.values()),
        policy=parse_policy(policies.pop()) if len(policies) == 1 else None,
    )
    pages = (mapping.length or 0) // page_size
    population = Population(page_size, pages, {0: (Piece(0, pages, mapping.start),)})
    askers = {0: PageAsker(0, pause=0)}
    try:
        sample = measure.take(population, _PATTERN_PAGES, Random(mapping.start), askers)
        return measure.with_pattern(placement, sample, askers)
    except Undecided:
        return placement


def _own_areas(mapping: Mapping, page_size: int) -> list[Area]:
    root, path = LiveRoot(), "/proc/self/numa_maps"
    try:
        numa = parse_numa_maps(root.read(path)).grouped
        maps = parse_maps(root.read("/proc/self/maps"))
    except ParseError as error:
        raise Undecided(path, None, str(error)) from None
    end = mapping.end or 0
    areas, _ = counted_areas(mapping.pid, maps, numa, page_size)
    inside = [area for area in areas if area.end and area.start < end and area.end > mapping.start]
    if sum(area.length for area in inside) != end - mapping.start:
        raise Undecided(path, None, "the buffer is only a part of the mappings it lies in")
    return inside


class _Seen(NamedTuple):
    """What consecutive pages answered.

    :ivar counts: node, or negative errno, to the number of pages
    :ivar changes: how often a page was on another node than the one present before it
    :ivar ends: node of the first page that is present and of the last; empty without any
    """

    counts: dict[int, int]
    changes: int
    ends: tuple[int, ...]


def _per_page(mapping: Mapping, page_size: int) -> Placement:
    """By asking about every page.

    :raises Undecided: that is refused
    """
    pages = (mapping.length or 0) // page_size
    cells = min(STRIP_CELLS, pages)
    seen = []
    for cell in range(cells):
        first, end = cell * pages // cells, (cell + 1) * pages // cells
        seen.append(_tally(_ask(mapping.start + first * page_size, end - first, page_size)))
    counts: Counter[int] = Counter()
    for part in seen:
        counts.update(part.counts)
    ends = [part.ends for part in seen if part.ends]
    changes = sum(part.changes for part in seen)
    changes += sum(a[1] != b[0] for a, b in pairwise(ends))
    by_node = {node: count * page_size for node, count in counts.items() if node >= 0}
    resident = sum(by_node.values())
    return Placement(
        mapping=mapping,
        method=Method.PER_PAGE,
        page_size=page_size,
        by_node=intervals.counted(by_node),
        resident=resident,
        policy=_own_policy(mapping.start),
        samples=pages,
        run_length=resident // (changes + 1) if resident else None,
        strip=tuple(map(_cell, seen)),
        zero_bytes=counts[ZERO] * page_size,
    )


def _ask(address: int, pages: int, page_size: int) -> Sequence[int]:
    """The status of consecutive pages."""
    status = array("i", bytes(4 * pages))
    # What the kernel reads is an array of unsigned long.
    addresses = array("L", range(address, address + pages * page_size, page_size))
    for first in range(0, pages, _BATCH):
        answer = move_pages(
            0,
            min(_BATCH, pages - first),
            addresses.buffer_info()[0] + first * addresses.itemsize,
            0,
            status.buffer_info()[0] + first * status.itemsize,
        )
        if answer.returned < 0:
            raise PageAsker(0).error(answer)
    return status


def _tally(status: Sequence[int]) -> _Seen:
    counts = Counter(status)
    if min(counts) < 0:
        status = [node for node in status if node >= 0]
    changes = sum(map(operator.ne, status, status[1:]))
    return _Seen(counts, changes, (status[0], status[-1]) if status else ())


def _cell(seen: _Seen) -> Cell:
    nodes = {node: count for node, count in seen.counts.items() if node >= 0}
    return Cell(nodes, sum(count for node, count in seen.counts.items() if node < 0))


def _own_policy(address: int) -> Policy | None:
    from numadoctor.kernel.policy import PolicyError, policy_of

    try:
        return parse_policy(str(policy_of(address)))
    except PolicyError:
        return None
