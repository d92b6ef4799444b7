from numadoctor.host.parsers import (
    Backing,
    GroupedNumaMaps,
    Maps,
    NumaMapsPages,
    parse_maps,
    parse_numa_maps,
)
from numadoctor.model.placement import Kind
from numadoctor.placement.population import Piece, Population
from numadoctor.placement.segments import (
    Area,
    Segment,
    counted_areas,
    mapped_areas,
    segments_of,
)

PAGE = 4096

MAPS = parse_maps(
    b"00400000-00401000 r-xp 00000000 fd:00 7 /bin/engine\n"
    b"00401000-00402000 r--p 00001000 fd:00 7 /bin/engine\n"
    b"10000000-10002000 rw-p 00000000 00:00 0 [heap]\n"
    b"20000000-20001000 rw-p 00000000 00:00 0\n"
    b"20002000-20003000 rw-p 00000000 00:00 0\n"
    b"30000000-34000000 ---p 00000000 00:00 0\n"
    b"40000000-50000000 rw-s 00000000 00:01 5 /SYSV00000000 (deleted)\n"
    b"60000000-60200000 rw-s 00000000 00:11 6 /SYSV00000001 (deleted)\n"
)
NUMA = parse_numa_maps(
    b"00400000 default file=/bin/engine mapped=1 N0=1 kernelpagesize_kB=4\n"
    b"00401000 default file=/bin/engine anon=1 N1=1 kernelpagesize_kB=4\n"
    b"10000000 default heap anon=2 N0=2 kernelpagesize_kB=4\n"
    b"20000000 default anon=1 N0=1 kernelpagesize_kB=4\n"
    b"20002000 default anon=1 N0=1 kernelpagesize_kB=4\n"
    b"30000000 default\n"
    b"40000000 interleave:0-1 file=/SYSV00000000\\040(deleted) N0=3 N1=3 kernelpagesize_kB=4\n"
    b"60000000 bind:1 file=/SYSV00000001\\040(deleted) huge N1=1 kernelpagesize_kB=2048\n"
    b"70000000 default anon=1 N0=1 kernelpagesize_kB=4\n"
).grouped


def in_one_namespace(areas: list[Area]) -> list[Segment]:
    return segments_of(areas, lambda pid: "ipc:[4026531839]")


def areas(maps: Maps | None = MAPS, numa: GroupedNumaMaps = NUMA, pid: int = 1) -> list[Area]:
    return counted_areas(pid, maps, numa, PAGE)[0]


def area(pid: int, start: int, offset: int, pages: int, **rest: NumaMapsPages) -> Area:
    """A mapping of a part of the shared file 5."""
    backing = Backing("rw-s", offset * PAGE, (0, 1), 5, "/dev/shm/pool")
    return Area(pid, start, start + pages * PAGE, backing, Kind.POSIX, PAGE, **rest)


def test_maps_and_numa_maps_are_joined_by_address() -> None:
    found = {a.start: a for a in areas()}
    assert found[0x400000].kind is Kind.LIBRARY
    # The other mapping of a program is of the program too.
    assert found[0x401000].kind is Kind.LIBRARY
    assert found[0x10000000].kind is Kind.HEAP
    assert found[0x10000000].bytes_by_node == {0: 2 * PAGE}
    assert found[0x30000000].reserved
    assert not found[0x20000000].reserved
    assert found[0x40000000].length == 0x10000000
    assert found[0x60000000].kind is Kind.HUGETLB
    assert found[0x60000000].bytes_by_node == {1: 2 << 20}
    assert found[0x60000000].page_size == 2 << 20


def test_what_was_mapped_between_the_two_files_counts_without_an_end() -> None:
    (late,) = (a for a in areas() if a.start == 0x70000000)
    assert late.end is None
    assert late.length == 0
    assert late.bytes_by_node == {0: PAGE}
    assert late.mapping.length is None


def test_numa_maps_alone_names_what_it_can() -> None:
    found = {a.start: a for a in areas(maps=None)}
    assert found[0x10000000].kind is Kind.HEAP
    assert found[0x40000000].kind is Kind.SYSV
    assert found[0x400000].backing.name == "/bin/engine"
    assert not found[0x40000000].is_shared


def test_maps_alone_knows_huge_pages_by_their_device() -> None:
    found = {a.start: a for a in mapped_areas(1, MAPS, PAGE, {(0, 0x11): 2 << 20})[0]}
    assert found[0x60000000].kind is Kind.HUGETLB
    assert found[0x60000000].page_size == 2 << 20
    assert found[0x40000000].kind is Kind.SYSV
    assert found[0x40000000].bytes_by_node == {}


def test_small_areas_that_are_alike_are_put_together() -> None:
    found, crumbs = mapped_areas(1, MAPS, PAGE, {}, min_size=2 * PAGE)
    (crumb,) = crumbs
    assert crumb.ranges == [(0x20000000, 0x20001000), (0x20002000, 0x20003000)]
    assert crumb.mappings == 2
    assert crumb.like.kind is Kind.ANONYMOUS
    # Those with a file are not: others may map them too.
    assert {0x400000, 0x10000000} <= {a.start for a in found}


def test_small_areas_that_count_the_same_are_put_together() -> None:
    found, crumbs = counted_areas(1, MAPS, NUMA, PAGE, min_size=2 * PAGE)
    full, empty = sorted(crumbs, key=lambda part: -part.mappings)
    # One of the three was mapped after maps was read.
    assert (full.mappings, full.like.bytes_by_node) == (3, {0: PAGE})
    assert (empty.mappings, empty.like.bytes_by_node) == (1, {})
    assert {a.start for a in found} == {
        0x400000, 0x401000, 0x10000000, 0x40000000, 0x60000000,
    }  # fmt: skip


def test_few_areas_are_searched_for_and_many_are_looked_up() -> None:
    lines = [f"{n << 16:08x}-{(n << 16) + PAGE:08x} rw-p 0 00:00 0" for n in range(1, 100)]
    maps = parse_maps("\n".join(lines).encode())
    texts = [f"{n << 16:08x} default anon={n} N0={n} kernelpagesize_kB=4" for n in range(1, 100)]
    numa = parse_numa_maps("\n".join(texts).encode()).grouped
    for number in (3, 99):
        found, crumbs = counted_areas(1, maps, numa, PAGE, (100 - number) * PAGE)
        assert [a.length for a in found] == [PAGE] * number
        assert sum(part.mappings for part in crumbs) == 99 - number


def test_pages_of_a_file_are_shared_unless_the_process_has_its_own() -> None:
    shared = {a.start for a in areas() if a.is_shared}
    # 0x401000 is private, read-only and holds anonymous pages: relocated data.
    assert shared == {0x400000, 0x40000000, 0x60000000}


def test_a_segment_is_one_whoever_maps_it() -> None:
    maps = [area(1, 0x1000000, 0, 100), area(2, 0x5000000, 0, 100), area(3, 0x7000000, 0, 100)]
    (segment,) = in_one_namespace(maps)
    assert segment.pids == (1, 2, 3)
    assert segment.length == 100 * PAGE
    assert segment.population() == Population(
        PAGE,
        100,
        {
            1: (Piece(0, 100, 0x1000000),),
            2: (Piece(0, 100, 0x5000000),),
            3: (Piece(0, 100, 0x7000000),),
        },
    )


def test_the_number_of_a_system_v_segment_is_no_inode() -> None:
    # The first segment of a machine has the number 0, a later one that of another file.
    maps = parse_maps(
        b"10000000-14000000 rw-s 00000000 00:01 0 /SYSV00000000 (deleted)\n"
        b"20000000-24000000 rw-s 00000000 00:01 7 /SYSV00000000 (deleted)\n"
        b"30000000-34000000 rw-s 00000000 00:01 7 /dev/zero (deleted)\n"
        b"40000000-40200000 rw-s 00000000 00:11 0 /SYSV00000000 (deleted)\n"
    )
    found = [mapped_areas(pid, maps, PAGE, {(0, 0x11): 2 << 20})[0] for pid in (1, 2, 3)]
    segments = in_one_namespace([area for process in found for area in process])
    assert [segment.areas[0].start for segment in segments] == [one.start for one in found[0]]
    assert all(segment.pids == (1, 2, 3) for segment in segments)
    assert [area.page_size for area in found[0]] == [PAGE, PAGE, PAGE, 2 << 20]


def test_a_number_of_system_v_is_one_of_its_ipc_namespace() -> None:
    maps = parse_maps(
        b"10000000-14000000 rw-s 00000000 00:01 0 /SYSV00000000 (deleted)\n"
        b"20000000-24000000 rw-s 00000000 00:01 7 /memfd:kv (deleted)\n"
    )
    found = [area for pid in (1, 2, 3, 4) for area in mapped_areas(pid, maps, PAGE, {})[0]]
    namespaces = {1: "ipc:[1]", 2: "ipc:[2]", 3: "ipc:[1]", 4: None}
    sysv: dict[tuple[int, ...], int] = {}
    memfd: dict[tuple[int, ...], int] = {}
    for segment in segments_of(found, namespaces.get):
        kept = sysv if segment.widest.kind is Kind.SYSV else memfd
        kept[segment.pids] = segment.length
    assert sysv == {(1, 3): 64 << 20, (2,): 64 << 20, (4,): 64 << 20}
    # The inodes of other memory are the machine's.
    assert memfd == {(1, 2, 3, 4): 64 << 20}


def test_parts_of_a_file_are_one_segment_where_they_overlap() -> None:
    parts = [area(1, 0x1000000, 10, 40), area(2, 0x5000000, 30, 40), area(2, 0x9000000, 200, 5)]
    first, second = in_one_namespace(parts)
    assert first.pids == (1, 2)
    assert first.length == 60 * PAGE
    assert first.widest.pid == 1
    assert first.population().layers[2] == (Piece(20, 40, 0x5000000),)
    assert second.areas == (parts[2],)


def test_what_one_process_maps_twice_is_asked_about_once() -> None:
    twice = [area(1, 0x1000000, 0, 50), area(1, 0x5000000, 20, 50), area(1, 0x9000000, 10, 5)]
    (segment,) = in_one_namespace(twice)
    assert segment.population() == Population(
        PAGE, 70, {1: (Piece(0, 50, 0x1000000), Piece(50, 20, 0x5000000 + 30 * PAGE))}
    )


def test_private_areas_are_segments_of_their_own() -> None:
    heaps = [a for pid in (1, 2) for a in areas(pid=pid) if a.kind is Kind.HEAP]
    assert in_one_namespace(heaps) == [Segment((heaps[0],)), Segment((heaps[1],))]
