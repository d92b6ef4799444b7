import json

import pytest

from numadoctor.model.placement import (
    Cell,
    Cost,
    Kind,
    Method,
    Process,
    ProcessPlacement,
    Remainder,
    Share,
)
from numadoctor.placement import intervals
from numadoctor.placement.group import by_kind
from numadoctor.report import maps
from numadoctor.report.json import dump
from numadoctor.report.terminal import Terminal, columns
from tests.placement.made import GIB, MIB, mapping, whole
from tests.schemas import schema, validate

WIDE = Terminal(140)

POOL = mapping(
    Kind.POSIX,
    shares={
        0: Share(48 * GIB, 47 * GIB, 49 * GIB, 0.75, 0.74, 0.76),
        1: Share(16 * GIB, 15 * GIB, 17 * GIB, 0.25, 0.24, 0.26),
    },
    name="/dev/shm/kv_pool",
    length=64 * GIB,
    run_length=16 * GIB,
    strip=(*[Cell({0: 9})] * 36, *[Cell({1: 9})] * 11, Cell({}, 9)),
    attachers=(4242, 4243, 4243),
)
HEAP = mapping(Kind.HEAP, {0: 2 * MIB}, name="[heap]", start=0x55D000000000, policy=None)
REST = Remainder(Kind.LIBRARY, 512, Method.EXACT, intervals.counted({0: MIB}), MIB)
BOTH = whole(
    POOL,
    HEAP,
    remainders=(REST,),
    processes=(Process(4242, "vllm", threads=212), Process(4243, "worker", threads=10)),
    method=Method.SAMPLED,
    cost=Cost(81, 10_240, 0.00005, 0.1),
)


def text(placement: ProcessPlacement, terminal: Terminal = WIDE, by: str = "mapping") -> str:
    return maps.render(placement, by_kind(placement), "gpu-07", terminal, by=by)


def test_the_first_line_tells_the_whole_story() -> None:
    who, what = "pid 4242 vllm (2 processes, 222 threads)", "64 GiB resident"
    first = text(BOTH).splitlines()[0]
    assert first == f"gpu-07: {who}: {what}, node 0 75 %, node 1 25 %"


def test_how_it_was_found_out_and_what_it_cost() -> None:
    assert text(BOTH).splitlines()[1] == (
        "sampled, ±1.6 %: 10,240 pages asked about in 81 calls, longest 0.05 ms; asked for"
    )
    assert text(whole(HEAP)).splitlines()[1] == (
        "counted by numa_maps: 7 reads under its mmap lock, longest 1.02 ms; asked for"
    )
    captured = whole(HEAP, cost=Cost())
    assert text(captured).splitlines()[1] == "counted by numa_maps: asked for"


def test_a_bar_for_each_node_beside_its_figure() -> None:
    assert text(BOTH).splitlines()[3:5] == [
        "node 0  ██████████████████······      48 GiB   75 %  (47 GiB to 49 GiB)",
        "node 1  ██████··················      16 GiB   25 %  (15 GiB to 17 GiB)",
    ]
    assert (
        text(whole(HEAP)).splitlines()[3] == "node 0  ████████████████████████       2 MiB  100 %"
    )


def cells(line: str) -> list[str]:
    """The columns of a row: two blanks stand between them."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_row_for_each_mapping_and_one_for_the_smaller_ones() -> None:
    header, pool, heap, rest = map(cells, text(BOTH).splitlines()[6:10])
    assert header[:6] == ["resident", "kind", "policy", "node 0", "node 1", "run"]
    assert header[6:] == ["along the mapping", "procs", "name"]
    assert pool == [
        "64 GiB", "posix", "default", "75 ±1 %", "25 ±1 %", "16 GiB",
        "000000000000000000111111", "2", "/dev/shm/kv_pool",
    ]  # fmt: skip
    # The policy was not read; all is on one node, so there is no run to speak of.
    assert heap == ["2 MiB", "heap", "?", "100 %", "-", "-", "1", "[heap]"]
    assert rest == ["1 MiB", "library", "512 smaller", "100 %", "-"]


def test_an_unknown_policy_says_why() -> None:
    assert "policy ?: only numa_maps tells it: --exact" in text(BOTH)
    assert "policy ?" not in text(whole(POOL))


def test_the_strip_names_nodes_and_what_is_mixed_or_missing() -> None:
    strip = (Cell({0: 5, 8: 5}), Cell({8: 19, 0: 1}), Cell({}, 3), Cell({0: 2}))
    spread = mapping(Kind.SYSV, {0: GIB, 8: GIB}, strip=strip, run_length=4096)
    told = text(whole(spread))
    assert "×8·0" in told
    assert "along: 0 node 0, 8 node 8, × several, · none" in told
    many = mapping(Kind.SYSV, {0: GIB, 250: GIB}, strip=(Cell({0: 2}), Cell({250: 2})))
    assert "  ab  " in text(whole(many))
    assert "along: a node 0, b node 250" in text(whole(many))


def test_many_nodes_share_a_column() -> None:
    spread = mapping(Kind.SYSV, {node: (10 - node) * MIB for node in range(6)})
    told = text(whole(spread))
    assert "0: 22 %, 1: 20 %, 2: 18 %, 3 more" in told
    assert "node 0 22 %, node 1 20 %, node 2 18 %, node 3 16 %, 2 more nodes" in told


def test_huge_pages_are_counted_in_their_size() -> None:
    pool = mapping(Kind.HUGETLB, {0: GIB}, name="/pool", page_size=2 * MIB)
    thp = mapping(Kind.ANONYMOUS, {0: GIB}, thp=512 * MIB, start=0x10000)
    told = text(whole(pool, thp))
    assert "512 × 2 MiB  " in told
    assert "256 × 2 MiB thp  " in told


def test_who_shares_a_segment_is_listed() -> None:
    assert "/dev/shm/kv_pool is mapped by pids 4242-4243" in text(BOTH)
    assert "is mapped by" not in text(whole(HEAP))


def test_of_a_long_name_the_end_is_kept() -> None:
    name = "/opt/" + "long/" * 30 + "libtorch_cuda.so"
    told = text(whole(mapping(Kind.LIBRARY, {0: GIB, 1: GIB}, name=name)), Terminal(80))
    assert "libtorch_cuda.so\n" in told
    assert "/opt/" not in told
    wide = text(whole(mapping(Kind.LIBRARY, {0: GIB}, name="/opt/大" * 40)), Terminal(60))
    assert max(columns(line) for line in wide.splitlines()) <= 60


def test_swapped_memory_is_told() -> None:
    assert "[swapped: 3 MiB] [heap]" in text(
        whole(mapping(Kind.HEAP, {0: MIB}, name="[heap]", swapped=3 * MIB))
    )


def test_by_kind_and_by_node() -> None:
    kinds = [cells(line) for line in text(BOTH, by="kind").splitlines()[6:]]
    assert kinds[0] == ["resident", "kind", "mappings", "node 0", "node 1"]
    assert kinds[1] == ["64 GiB", "posix", "3", "75 ±1 %", "25 ±1 %"]
    assert kinds[3] == ["1 MiB", "library", "512", "100 %", "-"]
    nodes = [cells(line) for line in text(BOTH, by="node").splitlines()[6:9]]
    assert nodes[0] == ["node", "resident", "posix", "heap", "library"]
    assert nodes[1] == ["0", "48 GiB", "48 GiB", "2 MiB", "1 MiB"]
    assert nodes[2] == ["1", "16 GiB", "16 GiB", "-", "-"]


def test_long_tables_are_cut_and_say_so() -> None:
    many = [mapping(Kind.ANONYMOUS, {0: GIB}, start=n << 32) for n in range(100)]
    told = text(whole(*many))
    assert "and 60 more mappings (--min-size, or -o json for all)" in told
    assert told.count("anonymous") == 40


def test_nothing_examined_is_a_line_for_each() -> None:
    line = "pid 7 x: cannot read /proc/7/maps: Permission denied (process of uid 0): do this"
    told = text(whole(processes=(Process(7, "x"),), incomplete=(line,)))
    assert f"not examined: {line}" in told
    assert "node 0" not in told
    assert text(whole(processes=())) == "gpu-07: no process\n"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("by", maps.BY)
def test_no_line_is_wider_than_the_terminal(width: int, by: str) -> None:
    told = text(BOTH, Terminal(width), by)
    assert max(columns(line) for line in told.splitlines()) <= width


def test_nothing_hostile_reaches_the_terminal() -> None:
    bad = "/tmp/\x1b[31m\u202egnp\n\x00"
    told = text(
        whole(
            mapping(Kind.FILE, {0: GIB}, name=bad),
            processes=(Process(1, bad),),
            incomplete=(bad,),
            remarks=(bad,),
        ),
        Terminal(200, unicode=False),
    )
    assert told.isascii()
    assert all(line.isprintable() for line in told.split("\n"))


def test_json_is_what_the_schema_says() -> None:
    data = json.loads(dump(maps.data(BOTH, by_kind(BOTH), "gpu-07", "0.1.0")))
    validate("maps", data)
    assert data["pid"] == 4242
    assert data["nodes"]["1"]["low"] == 15 * GIB
    pool, heap = data["mappings"]
    assert pool["bytes_by_node"] == {"0": 48 * GIB, "1": 16 * GIB}
    assert pool["attachers"] == [4242, 4243]
    assert pool["run_length_bytes"] == 16 * GIB
    assert (pool["method"], pool["samples"]) == ("sampled", 1000)
    assert heap["policy"] is None
    assert data["smaller"][0]["mappings"] == 512
    assert [kind["kind"] for kind in data["kinds"]] == ["posix", "heap", "library"]


def test_the_schema_knows_every_kind_and_method() -> None:
    definitions = schema("maps")["$defs"]
    assert definitions["kind"]["enum"] == [kind.value for kind in Kind]
    assert set(definitions["method"]["enum"]) == {method.value for method in Method}
