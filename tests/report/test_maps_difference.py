from numadoctor.model.placement import Change, Difference, Kind
from numadoctor.report.maps_difference import data, render
from numadoctor.report.terminal import Terminal, columns
from tests.placement.made import GIB, MIB

CHANGES = (
    Change(Kind.POSIX, "/dev/shm/pool", GIB, 3 * GIB, {0: GIB, 1: GIB}, "default", "default"),
    Change(Kind.SYSV, "/SYSV00000000", GIB, GIB, {0: -GIB // 2, 1: GIB // 2}, "default", "bind:1"),
    Change(Kind.HEAP, "[heap]", MIB, 0, {0: -MIB}),
    Change(Kind.ANONYMOUS, "pid 7 7f00", 0, MIB, {8: MIB}),
)
DIFFERENCE = Difference(
    before=4 * GIB,
    after=6 * GIB,
    nodes={0: (2 * GIB, 3 * GIB), 1: (2 * GIB, 3 * GIB), 8: (0, 0)},
    changes=CHANGES,
    started=(7,),
    ended=(8,),
    minor_faults=524_288,
    major_faults=3,
    swapped=-MIB,
    migrated_pages=12,
)


def test_the_first_line_tells_the_whole_story() -> None:
    first = render(DIFFERENCE, "10 s", Terminal(300)).splitlines()[0]
    assert first == (
        "10 s: +2 GiB resident, node 0 +1 GiB, node 1 +1 GiB, 512 MiB moved between nodes, "
        "524,288 minor faults, 3 major faults, -1 MiB swapped, "
        "12 pages migrated by NUMA balancing, pid 7 started, pid 8 ended"
    )


def test_a_line_for_each_change() -> None:
    lines = render(DIFFERENCE, "10 s", Terminal(200)).splitlines()[1:]
    assert [line.strip() for line in lines] == [
        "+2 GiB  posix  /dev/shm/pool: node 0 +1 GiB, node 1 +1 GiB",
        "+0 B  sysv  /SYSV00000000: node 0 -512 MiB, node 1 +512 MiB; policy default became bind:1",
        "-1 MiB  heap  [heap] (gone): node 0 -1 MiB",
        "+1 MiB  private-anonymous  pid 7 7f00 (new): node 8 +1 MiB",
    ]


def test_nothing_changed() -> None:
    same = Difference(GIB, GIB, {0: (GIB, GIB)}, ())
    assert render(same, "a to b", Terminal(80)) == "a to b: +0 B resident\n"


def test_many_changes_are_cut_and_say_so() -> None:
    many = DIFFERENCE._replace(changes=CHANGES * 10)
    lines = render(many, "x", Terminal(80)).splitlines()
    assert lines[-1] == "  and 20 more (-o json has all)"
    assert max(map(columns, lines)) <= 80


def test_json_has_all() -> None:
    found = data(DIFFERENCE)
    assert found["schema_version"] == 1
    assert found["nodes"]["0"] == {"before": 2 * GIB, "after": 3 * GIB}
    assert len(found["changes"]) == 4
    assert found["changes"][1]["moved_bytes"] == GIB // 2
    assert found["changes"][1]["policy_after"] == "bind:1"
    assert (found["started"], found["ended"]) == ([7], [8])
    assert found["minor_faults"] == 524_288
