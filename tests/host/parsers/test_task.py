import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import (
    ProcStat,
    Sched,
    SysvSegment,
    parse_sched,
    parse_stat,
    parse_sysvipc_shm,
)
from numadoctor.model import ParseError

# The fields of proc(5) from the third on.
FIELDS = [
    "S", "1", "4242", "4242", "0", "-1", "4194304", "98", "7", "3", "0", "11", "12", "0", "0",
    "20", "0", "40", "0", "178892", "3133440", "381", "18446744073709551615", "1", "2", "3", "0",
    "0", "0", "0", "0", "0", "0", "0", "0", "17", "65", "0", "0", "0",
]  # fmt: skip


def stat(name: bytes, fields: list[str]) -> bytes:
    return b"4242 (" + name + b") " + " ".join(fields).encode() + b"\n"


def test_stat_by_field_number() -> None:
    assert parse_stat(stat(b"python3", FIELDS)) == ProcStat(
        pid=4242,
        name="python3",
        state="S",
        parent=1,
        of_kernel=False,
        minor_faults=98,
        major_faults=3,
        user_ticks=11,
        system_ticks=12,
        threads=40,
        start_ticks=178892,
        resident_pages=381,
        last_cpu=65,
    )


@given(st.binary(min_size=0, max_size=16).filter(lambda name: b"\0" not in name))
def test_a_name_may_hold_anything(name: bytes) -> None:
    read = parse_stat(stat(name, FIELDS))
    assert read.name == name.decode("utf-8", "backslashreplace")
    assert (read.pid, read.state, read.last_cpu) == (4242, "S", 65)


def test_a_thread_of_the_kernel_has_a_flag() -> None:
    # kthreadd, as Linux 6.18 shows it.
    assert parse_stat(stat(b"kthreadd", [*FIELDS[:6], "2129984", *FIELDS[7:]])).of_kernel
    assert not parse_stat(stat(b"kthreadd", [*FIELDS[:6], "4194560", *FIELDS[7:]])).of_kernel


def test_an_old_kernel_names_no_cpu() -> None:
    assert parse_stat(stat(b"a", FIELDS[:22])).last_cpu is None
    assert parse_stat(stat(b"a", FIELDS[:36])).last_cpu is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"4242 python3 S 1",
        b"x (a) " + " ".join(FIELDS).encode(),
        stat(b"a", FIELDS[:21]),
        stat(b"a", ["S", "one", *FIELDS[2:]]),
        stat(b"a", [*FIELDS[:7], "9" * 21, *FIELDS[8:]]),
    ],
)
def test_what_is_no_stat_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="bad process stat"):
        parse_stat(data)


SCHED = b"""\
a:b (4242, #threads: 40)
-------------------------------------------------------------------
se.exec_start                                :       1776321.104137
se.nr_migrations                             :                   17
policy                                       :                    0
mm->numa_scan_seq                            :                    3
numa_pages_migrated                          :                  512
numa_preferred_nid                           :                   -1
total_numa_faults                            :                   90
current_node=1, numa_group_id=5
numa_faults node=0 task_private=1 task_shared=2 group_private=3 group_shared=4
numa_faults node=8 task_private=5 task_shared=6 group_private=7 group_shared=8
numa_faults node=8 task_private=9
numa_faults strange
half                                         :              1.
"""


def test_sched_with_numa_balancing() -> None:
    read = parse_sched(SCHED)
    assert read.values["numa_pages_migrated"] == 512
    assert read.values["numa_preferred_nid"] == -1
    assert read.values["se.exec_start"] == 1776321.104137
    assert read.values["current_node"] == 1
    assert read.values["numa_group_id"] == 5
    assert "half" not in read.values
    assert read.faults == {
        0: {"task_private": 1, "task_shared": 2, "group_private": 3, "group_shared": 4},
        8: {"task_private": 5, "task_shared": 6, "group_private": 7, "group_shared": 8},
    }


@given(st.dictionaries(st.text("abc._>-", min_size=1), st.integers(-(2**60), 2**60), min_size=1))
def test_sched_numbers_keep_their_names(values: dict[str, int]) -> None:
    text = "".join(f"{name:45}:{value:21}\n" for name, value in values.items())
    assert parse_sched(text.encode()) == Sched(values, {})


def test_sched_without_a_number_is_refused() -> None:
    assert parse_sched(b"") == Sched({}, {})
    with pytest.raises(ParseError, match="no line of it can be understood"):
        parse_sched(b"nothing here\n")


HEADING = (
    "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid"
    "      atime      dtime      ctime                   rss                  swap\n"
)
SEGMENT = SysvSegment(
    -559038737, 7, 0o1600, 64 << 30, 4242, 4243, 3, 1000, 1 << 30, 4096
)  # a key above 2**31 is written as a negative number


def write_segment(segment: SysvSegment) -> str:
    """sysvipc_shm_proc_show() in ipc/shm.c."""
    s = segment
    return (
        f"{s.key:10d} {s.id:10d}  {s.mode:4o} {s.size:21d} {s.creator:5d} {s.last:5d}  "
        f"{s.attached:5d} {s.uid:5d} {0:5d} {0:5d} {0:5d} {1:10d} {2:10d} {3:10d} "
        f"{s.resident:21d} {s.swapped:21d}\n"
    )


AMOUNT = st.integers(0, 2**60)
SEGMENTS = st.builds(
    SysvSegment,
    key=st.integers(-(2**31), 2**31 - 1),
    id=st.integers(0, 2**31 - 1),
    mode=st.integers(0, 0o3777),
    size=AMOUNT,
    creator=st.integers(0, 2**22),
    last=st.integers(0, 2**22),
    attached=st.integers(0, 2**20),
    uid=st.integers(0, 2**31 - 1),
    resident=AMOUNT,
    swapped=AMOUNT,
)


@given(st.lists(SEGMENTS, max_size=5))
def test_segments_are_read_as_they_are_written(segments: list[SysvSegment]) -> None:
    text = HEADING + "".join(map(write_segment, segments))
    assert parse_sysvipc_shm(text.encode()) == tuple(segments)


def test_an_old_kernel_tells_no_resident_bytes() -> None:
    heading = HEADING.replace("rss", "").replace("swap", "")
    line = " ".join(write_segment(SEGMENT).split()[:-2]) + "\n"
    (read,) = parse_sysvipc_shm((heading + line).encode())
    assert (read.resident, read.swapped) == (None, None)
    assert read.size == 64 << 30


@pytest.mark.parametrize(
    "line", ["1 2 3", "x" + " 1" * 15, "1 1 9" + " 1" * 13, "1 1 " + "7" * 7 + " 1" * 13]
)
def test_a_line_that_is_not_understood_hides_nothing(line: str) -> None:
    text = HEADING + line + "\n" + write_segment(SEGMENT)
    assert parse_sysvipc_shm(text.encode()) == (SEGMENT,)


def test_a_machine_without_segments_has_the_heading_alone() -> None:
    assert parse_sysvipc_shm(HEADING.encode()) == ()
    assert parse_sysvipc_shm(b"") == ()
    with pytest.raises(ParseError, match="no line of it can be understood"):
        parse_sysvipc_shm(b"1 2 3\n")
