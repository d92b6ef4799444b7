"""Areas of processes and the segments they belong to: what several map is one segment."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from operator import itemgetter
from typing import NamedTuple

from numadoctor.host.parsers import (
    Backing,
    GroupedNumaMaps,
    Maps,
    MapsLine,
    NumaMapsPages,
    SameLines,
)
from numadoctor.model.placement import Kind
from numadoctor.model.placement import Mapping as ModelMapping
from numadoctor.placement.kinds import kind_of
from numadoctor.placement.population import Piece, Population

# Lines with a policy and no page that are alike, each of which is looked at; with more of them a
# pool was cut into slabs, or they are stacks of threads.
_MOST_UNTOUCHED = 1000


class Area(NamedTuple):
    """One mapping of one process.

    :ivar end: None when there was no maps file to tell it
    :ivar pages: its line of numa_maps, if that was read
    :ivar page_size: of its pages, in bytes
    """

    pid: int
    start: int
    end: int | None
    backing: Backing
    kind: Kind
    page_size: int
    pages: NumaMapsPages | None = None

    @property
    def length(self) -> int:
        """Bytes of address space, 0 when not known."""
        return 0 if self.end is None else self.end - self.start

    @property
    def bytes_by_node(self) -> dict[int, int]:
        """As numa_maps counted them; empty when it was not read."""
        nodes = self.pages.nodes if self.pages else {}
        return {node: pages * self.page_size for node, pages in nodes.items()}

    @property
    def reserved(self) -> bool:
        """Address space that nobody may touch: it holds no pages."""
        return self.backing.permissions.startswith("---") and not self.backing.identity

    @property
    def is_shared(self) -> bool:
        """Its pages are those of a file or a segment, which others may map too.

        A private mapping that may be written gets pages of its own; so does one
        that was written before it became read-only (relocated data of a library).
        """
        if not self.backing.identity or self.end is None:
            return False
        if self.backing.shared:
            return True
        own = self.pages is not None and "anon" in self.pages.counts
        return "w" not in self.backing.permissions and not own

    @property
    def mapping(self) -> ModelMapping:
        b = self.backing
        return ModelMapping(
            self.pid, self.start, self.end, self.kind, b.name, b.permissions, b.offset, b.device,
            b.inode,
        )  # fmt: skip


class Crumbs(NamedTuple):
    """Small private areas of one process that are alike: they are not told one by one.

    :ivar like: one of them
    :ivar mappings: their number
    :ivar ranges: the first address of each and the one after its last, where maps told them
    """

    like: Area
    mappings: int
    ranges: list[tuple[int, int]]


class Segment(NamedTuple):
    """One thing that is mapped: a private area, or a shared segment with all areas that map it."""

    areas: tuple[Area, ...]

    @property
    def widest(self) -> Area:
        """The area that maps most of it; of several such the first."""
        return max(self.areas, key=lambda area: area.length)

    @property
    def pids(self) -> tuple[int, ...]:
        """Who maps it, each once."""
        return tuple(dict.fromkeys(area.pid for area in self.areas))

    @property
    def length(self) -> int:
        """Bytes of it that are mapped by anybody; 0 when not known."""
        areas = self.areas
        if len(areas) == 1:
            return areas[0].length
        ends = [area.backing.offset + area.length for area in areas]
        return max(ends) - min(area.backing.offset for area in areas)

    def population(self) -> Population:
        """Its pages, for a sample to be drawn from."""
        size = self.widest.page_size
        begin = min(area.backing.offset for area in self.areas)
        layers: dict[int, list[Piece]] = {}
        for area in self.areas:
            piece = Piece((area.backing.offset - begin) // size, area.length // size, area.start)
            layers.setdefault(area.pid, []).append(piece)
        pieces = {pid: _without_overlap(found, size) for pid, found in layers.items()}
        return Population(size, self.length // size, pieces)


def _without_overlap(pieces: list[Piece], page_size: int) -> tuple[Piece, ...]:
    """The pieces of one process; a page that it maps twice is in the first of them only."""
    kept: list[Piece] = []
    end = 0
    for first, pages, address in sorted(pieces):
        skip = max(0, end - first)
        if skip < pages:
            kept.append(Piece(first + skip, pages - skip, address + skip * page_size))
            end = first + pages
    return tuple(kept)


def segments_of(areas: Iterable[Area], ipc_namespace: Callable[[int], str | None]) -> list[Segment]:
    """The segments that areas of any number of processes belong to.

    :param ipc_namespace: of a pid, None where not known. Each has System V segments of its own
        from number 0 on, all of them on one file system of the kernel; the device and inode of
        other memory (POSIX, memfd, hugetlbfs, MAP_SHARED) are the machine's, whatever the namespace
    """
    segments: list[Segment] = []
    files: dict[object, list[Area]] = {}
    for area in areas:
        if area.is_shared:
            namespace = ipc_namespace(area.pid) if area.backing.is_sysv else None
            files.setdefault((area.backing.identity, namespace), []).append(area)
        else:
            segments.append(Segment((area,)))
    for mapped in files.values():
        segments += _overlapping(mapped)
    return segments


def _overlapping(areas: list[Area]) -> Iterator[Segment]:
    """Areas of one file, put together where they show the same part of it."""
    together: list[Area] = []
    end = 0
    for area in sorted(areas, key=lambda area: area.backing.offset):
        if together and area.backing.offset >= end:
            yield Segment(tuple(together))
            together = []
        together.append(area)
        end = max(end, area.backing.offset + area.length)
    yield Segment(tuple(together))


def mapped_areas(
    pid: int,
    maps: Maps,
    page_size: int,
    huge_sizes: Mapping[tuple[int, int], int],
    min_size: int = 0,
) -> tuple[list[Area], list[Crumbs]]:
    """The mappings of a process by maps.

    :param page_size: of ordinary pages
    :param huge_sizes: (major, minor) of huge page file systems to their page size
    :param min_size: of memory without a file, shorter areas are put together
    """
    programs = _programs(maps.meanings.values())
    areas: list[Area] = []
    crumbs: dict[int, Crumbs] = {}
    for start, end, backing in zip(maps.starts, maps.ends, maps.backings, strict=True):
        huge_size = huge_sizes.get(backing.device) if backing.identity else None
        if end - start >= min_size or backing.identity:
            areas.append(_area(pid, start, end, backing, programs, page_size, huge_size))
            continue
        if id(backing) not in crumbs:
            like = _area(pid, start, end, backing, programs, page_size, None)
            crumbs[id(backing)] = Crumbs(like, 0, [])
        crumbs[id(backing)].ranges.append((start, end))
    return areas, [part._replace(mappings=len(part.ranges)) for part in crumbs.values()]


def counted_areas(
    pid: int, maps: Maps | None, numa: GroupedNumaMaps, page_size: int, min_size: int = 0
) -> tuple[list[Area], list[Crumbs]]:
    """The mappings of a process by numa_maps, with what maps tells beside it.

    :param page_size: of ordinary pages, where numa_maps does not tell it
    :param min_size: of private memory without a name, areas with fewer bytes are put together
    """
    crumbs = []
    told: list[tuple[int, NumaMapsPages]] = []
    for group in numa.groups:
        if _is_small(group, page_size, min_size):
            like = _area(pid, 0, None, Backing(""), (), page_size, None, group.pages)
            crumbs.append(Crumbs(like, group.number, []))
        else:
            told += ((start, group.pages) for start in group.starts)
    told.sort(key=itemgetter(0))
    lines = _lines(maps, [start for start, _ in told])
    programs = _programs(line.backing for line in lines if line)
    areas = []
    for (start, pages), line in zip(told, lines, strict=True):
        if line:
            area = _area(pid, start, line.end, line.backing, programs, page_size, None, pages)
        else:
            # Mapped between the reading of the two files, or there is no maps.
            backing = Backing("", name=pages.file or (f"[{pages.area}]" if pages.area else ""))
            area = _area(pid, start, None, backing, programs, page_size, None, pages)
        areas.append(area)
    return areas, crumbs


def _is_small(group: SameLines, page_size: int, min_size: int) -> bool:
    """Whether lines that say the same are of private memory without a name and fewer bytes."""
    pages = group.pages
    if pages.file or pages.area:
        return False
    if sum(pages.nodes.values()) * (pages.page_size or page_size) >= min_size:
        return False
    # With a policy and no page it may be a pool that nobody has touched yet.
    return bool(pages.nodes) or pages.policy == "default" or group.number > _MOST_UNTOUCHED


def _lines(maps: Maps | None, starts: list[int]) -> list[MapsLine | None]:
    """The mappings that begin at these addresses."""
    if maps is None:
        return [None] * len(starts)
    # Each search takes as long as the conversion of some 16 lines.
    if 16 * len(starts) < maps.number:
        return list(map(maps.find, starts))
    by_start = {line.start: line for line in maps.lines}
    return list(map(by_start.get, starts))


def _programs(backings: Iterable[Backing]) -> Set[tuple[tuple[int, int], int]]:
    """The files that are mapped executable."""
    return {(b.device, b.inode) for b in backings if "x" in b.permissions and b.inode}


def _area(
    pid: int,
    start: int,
    end: int | None,
    backing: Backing,
    programs: Container[tuple[tuple[int, int], int]],
    page_size: int,
    huge_size: int | None,
    pages: NumaMapsPages | None = None,
) -> Area:
    kind = kind_of(
        backing.name,
        length=0 if end is None else end - start,
        shared=backing.shared,
        program=(backing.device, backing.inode) in programs,
        huge=huge_size is not None or (pages is not None and pages.huge),
    )
    size = (pages.page_size if pages else None) or huge_size or page_size
    return Area(pid, start, end, backing, kind, size, pages)
