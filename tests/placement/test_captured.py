"""Placements of captured processes: numa_maps alone tells where the pages are."""

import errno

import pytest

from numadoctor.model import Denied, Target, Vanished
from numadoctor.model.placement import Kind, Method, Placement, ProcessPlacement
from numadoctor.placement import place
from numadoctor.placement.group import by_kind
from tests.placement.captured import PAGE, host, stat

ALL = [Target(10, "engine"), Target(11, "engine"), Target(12, "engine")]
POOL, WEIGHTS = 0x40000000, 0x60000000


def at(found: ProcessPlacement, start: int) -> list[Placement]:
    return [one for one in found.mappings if one.mapping.start == start]


def test_a_process_alone() -> None:
    found = place(host(), ALL[0])
    assert found.pid == 10
    assert found.method is Method.EXACT
    assert found.because == "a captured folder has numa_maps only"
    (pool,) = at(found, POOL)
    assert pool.mapping.kind is Kind.POSIX
    assert pool.mapping.end == 0x50000000
    assert pool.bytes_by_node == {0: 32768 * PAGE, 1: 32768 * PAGE}
    assert pool.policy is not None
    assert pool.policy.text == "interleave:0-1"
    # Nothing but a sample tells how the nodes alternate.
    assert (pool.run_length, pool.strip, pool.samples) == (None, (), 0)
    assert found.incomplete == ()
    assert found.cost.calls == 0
    assert found.thp_size == 2 << 20


def test_what_is_known_of_the_process() -> None:
    (process,) = place(host(), ALL[0]).processes
    assert (process.name, process.uid, process.threads, process.mappings) == ("engine", 1000, 3, 4)
    assert process.namespace_pids == (10, 7)
    assert (process.resident, process.swapped) == (4096 * 1024, 8 * 1024)
    assert (process.minor_faults, process.major_faults) == (98, 3)
    assert process.policy is not None
    assert process.policy.text == "default"
    assert process.migrated_pages is None


def test_shared_memory_counts_once_and_private_memory_for_each() -> None:
    found = place(host(), ALL)
    (pool,) = at(found, POOL)
    assert pool.resident == 65536 * PAGE
    assert [attacher.pid for attacher in pool.attachers] == [10, 11, 12]
    assert pool.attachers[2].bytes_by_node == {0: 100 * PAGE, 1: 100 * PAGE}
    assert len(at(found, WEIGHTS)) == 3
    kinds = {kind.kind: kind.resident for kind in by_kind(found)}
    # The program's own pages are shared, too.
    assert kinds == {
        Kind.POSIX: 65536 * PAGE,
        Kind.ANONYMOUS: 3 * 2048 * PAGE,
        Kind.HEAP: 3 * 4 * PAGE,
        Kind.LIBRARY: 2 * PAGE,
    }
    assert found.resident == sum(kinds.values())
    assert found.nodes[1].bytes == (32768 + 3 * 2048 + 3) * PAGE


@pytest.mark.parametrize(
    ("namespaces", "pids", "untold"),
    [
        ({10: "ipc:[1]", 11: "ipc:[1]"}, [[10, 11]], ""),
        ({10: "ipc:[1]", 11: "ipc:[2]"}, [[10], [11]], ""),
        ({10: "ipc:[1]"}, [[10], [11]], "11"),
        ({}, [[10, 11]], "10, 11"),
    ],
)
def test_system_v_segments_of_a_captured_folder_need_its_namespaces(
    namespaces: dict[int, str], pids: list[list[int]], untold: str
) -> None:
    maps = "40000000-50000000 rw-s 00000000 00:01 5    /SYSV00000000 (deleted)\n"
    numa = "40000000 default file=/SYSV00000000\\040(deleted) N0=9 kernelpagesize_kB=4\n"
    files = {
        f"/proc/{pid}/{n}": t for pid in (10, 11) for n, t in (("maps", maps), ("numa_maps", numa))
    }
    links = {f"/proc/{pid}/ns/ipc": link for pid, link in namespaces.items()}
    found = place(host({**files, **links}), ALL[:2])
    assert sorted([a.pid for a in p.attachers] for p in at(found, POOL)) == pids
    assert [untold in remark for remark in found.remarks] == [True] * bool(untold)


def test_the_largest_comes_first() -> None:
    starts = [one.mapping.start for one in place(host(), ALL[0]).mappings]
    assert starts == [POOL, WEIGHTS, 0x10000000, 0x400000]


def test_parts_that_nobody_has_alone_are_a_remark() -> None:
    numa = "40000000 default file=/dev/shm/pool N{node}=100 kernelpagesize_kB=4\n"
    files = {f"/proc/{pid}/numa_maps": numa.format(node=pid - 10) for pid in (10, 11)}
    (pool,) = at(place(host(files), ALL[:2]), POOL)
    assert pool.resident == 100 * PAGE
    assert "at least" in pool.remarks[0]


def test_smaps_tells_of_swap_and_huge_pages() -> None:
    ten, eleven = (at(place(host(), target), WEIGHTS)[0] for target in ALL[:2])
    assert (ten.swapped_bytes, ten.thp_bytes) == (128 * 1024, 6144 * 1024)
    assert (eleven.swapped_bytes, eleven.thp_bytes) == (None, None)


def test_numa_maps_alone_is_enough() -> None:
    gone = dict.fromkeys(f"/proc/10/{name}" for name in ("maps", "status", "stat", "smaps"))
    found = place(host(gone), ALL[0])
    (pool,) = at(found, POOL)
    assert pool.resident == 65536 * PAGE
    assert pool.mapping.end is None
    assert pool.mapping.kind is Kind.POSIX
    assert found.incomplete == ()
    assert found.remarks == ("without maps, shared memory counts once for each process",)
    assert found.processes[0].name == "engine"
    assert found.processes[0].resident is None


def test_small_mappings_are_put_together_by_kind() -> None:
    found = place(host(), ALL[0], min_size=1 << 20)
    assert [one.mapping.start for one in found.mappings] == [POOL, WEIGHTS]
    rest = {part.kind: (part.mappings, part.resident) for part in found.remainders}
    assert rest == {Kind.HEAP: (1, 4 * PAGE), Kind.LIBRARY: (1, 2 * PAGE)}
    assert found.resident == place(host(), ALL[0]).resident


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("numa_maps", Denied("/proc/11/numa_maps", errno.EACCES), "process of uid 1000"),
        ("maps", Denied("/proc/11/maps", errno.EACCES), "run as the same user or with"),
        ("numa_maps", Vanished("/proc/11/numa_maps", errno.ESRCH), "it ended while"),
        ("numa_maps", None, "the captured folder does not hold it"),
        ("numa_maps", "what is this\n", "cannot understand /proc/11/numa_maps"),
        ("stat", stat("engine", 11, 10, state="Z"), "it ended while"),
    ],
)
def test_what_cannot_be_examined_is_a_line_and_the_rest_stays(
    file: str, content: str | Denied | None, told: str
) -> None:
    found = place(host({f"/proc/11/{file}": content}), ALL)
    (line,) = found.incomplete
    assert line.startswith("pid 11 engine: ")
    assert told in line
    assert found.processes[1].problem
    (pool,) = at(found, POOL)
    assert [attacher.pid for attacher in pool.attachers] == [10, 12]


def test_descendants_that_end_are_no_news() -> None:
    gone = dict.fromkeys(f"/proc/12/{name}" for name in ("maps", "numa_maps", "stat", "status"))
    targets = [ALL[0], Target(12, "engine", descendant=True)]
    found = place(host(gone), targets)
    assert found.incomplete == ()
    assert [process.pid for process in found.processes] == [10]
    assert found.remarks == ("1 descendant ended meanwhile",)


def test_threads_of_the_kernel_did_not_end() -> None:
    kernel = {
        "/proc/12/maps": "",
        "/proc/12/status": "Name:\tkworker\nState:\tI (idle)\nThreads:\t1\n",
    }
    targets = [ALL[0], Target(12, "engine", descendant=True)]
    found = place(host(kernel), targets)
    assert found.remarks == ("no memory of their own: 1 descendant",)


def test_unknown_words_are_told() -> None:
    text = "40000000 default file=/dev/shm/pool novel=7 N0=1 strange kernelpagesize_kB=4\n"
    found = place(host({"/proc/10/numa_maps": text}), ALL[0])
    assert found.remarks == ("numa_maps of pid 10 holds what is not understood: novel=7, strange",)
    assert found.resident == PAGE


def test_the_page_size_is_taken_from_whatever_tells_it() -> None:
    old = "40000000 default file=/dev/shm/pool N0=3\n"
    from tests.trees import fact

    for size in (4096, 65536):
        files = {"/proc/10/numa_maps": old, fact("sysconf"): f'{{"page_size": {size}}}'}
        assert place(host(files), ALL[0]).resident == 3 * size
    assert (
        place(host({"/proc/10/numa_maps": old, fact("sysconf"): None}), ALL[0]).resident == 3 * PAGE
    )
    assert place(host({"/proc/10/numa_maps": old, fact("sysconf"): "{}"}), ALL[0]).page_size == 4096
