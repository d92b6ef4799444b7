import os
import re

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import (
    CpuInfo,
    Mount,
    MountInfo,
    Swap,
    parse_cgroup_limit,
    parse_command_line,
    parse_cpuinfo,
    parse_meminfo,
    parse_mountinfo,
    parse_mounts,
    parse_swaps,
)
from numadoctor.model import ParseError
from tests.host.parsers import samples
from tests.host.parsers.test_process import read


def next_arguments(text: str) -> list[tuple[str, str | None]]:
    """The kernel's next_arg() and parse_args(), step for step with its indices."""
    found = []
    rest = text.strip(" \t\n\r\v\f")
    while rest:
        quoted = in_quote = rest[0] == '"'
        if quoted:
            rest = rest[1:]
        index = equals = 0
        while index < len(rest) and not (rest[index] in " \t\n\r\v\f" and not in_quote):
            if equals == 0 and rest[index] == "=":
                equals = index
            if rest[index] == '"':
                in_quote = not in_quote
            index += 1
        word = list(rest[:index])
        start, end = (equals + 1, index) if equals else (0, index)
        if equals and word[start : start + 1] == ['"']:
            start += 1
            if word[index - 1] == '"':
                end = index - 1
        elif quoted and index and word[index - 1] == '"':
            end = index - 1
        value = "".join(word[start : max(start, end)])
        key = "".join(word[:equals]) if equals else value
        if key == "--" and not equals:
            break
        found.append((key, value if equals else None))
        rest = rest[index:].lstrip(" \t\n\r\v\f")
    return found


def test_command_line() -> None:
    assert parse_command_line(samples.COMMAND_LINE) == (
        ("BOOT_IMAGE", "/vmlinuz"),
        ("root", "UUID=1-2"),
        ("ro", None),
        ("quiet", None),
        ("numa_balancing", "0"),
        ("console", "tty0"),
        ("console", "ttyS0,115200"),
        ("dyndbg", "file mm +p"),
        ("note", "a b"),
        ("hugepagesz", "1G"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", ()),
        (b"\n\0", ()),
        (b"numa=", (("numa", ""),)),
        (b"=x", (("=x", None),)),
        (b'"a', (("a", None),)),
        (b'a="', (("a", ""),)),
        (b'"--" b', ()),
        (b"--=1 b", (("--", "1"), ("b", None))),
        (b"a\0b", (("a", None), ("b", None))),
        (b'a="b c', (("a", "b c"),)),
    ],
)
def test_command_line_corners(text: bytes, expected: tuple[tuple[str, str | None], ...]) -> None:
    assert parse_command_line(text) == expected


@given(st.text('ab"= -\t\n', max_size=30))
def test_command_lines_are_split_as_the_kernel_does(text: str) -> None:
    assert list(parse_command_line(text.encode())) == next_arguments(text)


def test_mounts() -> None:
    assert parse_mounts(samples.MOUNTS) == (
        Mount(
            "proc",
            "/proc",
            "proc",
            dict.fromkeys(["rw", "nosuid", "nodev", "noexec", "relatime"]),
        ),
        Mount(
            "tmpfs",
            "/dev/shm",
            "tmpfs",
            {
                "rw": None,
                "nosuid": None,
                "size": "24683656k",
                "mpol": "bind=static:0,2-3,8",
                "inode64": None,
            },
        ),
        Mount("/dev/sda1", "/mnt/a b\\c", "ext4", {"rw": None, "errors": "remount-ro"}),
        Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", {"rw": None, "nsdelegate": None}),
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"", {}),
        (b",", {}),
        (b"mpol=interleave:0-1", {"mpol": "interleave:0-1"}),
        (b"mpol=prefer:1,3,rw", {"mpol": "prefer:1,3", "rw": None}),
        (b"a=1,2", {"a": "1", "2": None}),
        (rb"lowerdir=/a\054b:/c,x=\075", {"lowerdir": "/a,b:/c", "x": "="}),
        (b"a==b,a=c", {"a": "c"}),
    ],
)
def test_mount_options(options: bytes, expected: dict[str, str | None]) -> None:
    assert parse_mounts(b"d /p t " + options + b" 0 0")[0].options == expected


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def escaped(text: str) -> str:
    """As mangle_path() and seq_escape() write names."""
    return re.sub(r"[ \t\n\\#,=\r\v\f]", lambda match: f"\\{ord(match[0]):03o}", text)


OPTIONS = st.dictionaries(
    NAMES.filter(lambda name: name not in ("", "mpol")), st.none() | NAMES, max_size=4
)


def shown(options: dict[str, str | None]) -> str:
    parts = (
        escaped(key) if value is None else f"{escaped(key)}={escaped(value)}"
        for key, value in options.items()
    )
    return ",".join(parts)


@given(NAMES.filter(len), NAMES, NAMES.filter(len), OPTIONS)
def test_mounts_survive_the_round_trip(
    device: str, point: str, fstype: str, options: dict[str, str | None]
) -> None:
    line = f"{escaped(device)} /{escaped(point)} {escaped(fstype)} {shown(options)} 0 0\n"
    assert parse_mounts(line.encode()) == (Mount(device, f"/{point}", fstype, options),)


def test_a_mount_needs_four_fields() -> None:
    assert parse_mounts(b"d /p t rw\n") == (Mount("d", "/p", "t", {"rw": None}),)


@pytest.mark.parametrize("line", [b"a", b"a /b c", b"a b c d", b"a  c d e"])
def test_mounts_leave_out_what_they_cannot_understand(line: bytes) -> None:
    expected = (Mount("d", "/p", "t", {"rw": None}),)
    assert parse_mounts(line + b"\nd /p t rw 0 0\n") == expected
    with pytest.raises(ParseError, match="bad mounts"):
        parse_mounts(line)


def test_mountinfo() -> None:
    assert parse_mountinfo(samples.MOUNTINFO) == (
        MountInfo(
            25,
            24,
            "0:23",
            "/",
            "/dev/shm",
            {"rw": None, "nosuid": None},
            "tmpfs",
            "tmpfs",
            {"rw": None, "size": "24683656k"},
        ),
        MountInfo(
            36,
            35,
            "98:0",
            "/a b",
            "/mnt",
            {"rw": None, "noatime": None},
            "ext3",
            "/dev/root",
            {"rw": None, "errors": "continue"},
        ),
    )


@given(
    st.integers(0, 2**31),
    st.integers(0, 2**31),
    st.lists(NAMES, min_size=5, max_size=5),
    OPTIONS.filter(len),
)
def test_mountinfo_survives_the_round_trip(
    mount_id: int, parent_id: int, names: list[str], options: dict[str, str | None]
) -> None:
    number, root, point, fstype, device = (f"n{name}" for name in names)
    line = (
        f"{mount_id} {parent_id} {escaped(number)} {escaped(root)} {escaped(point)} rw shared:1"
        f" - {escaped(fstype)} {escaped(device)} {shown(options)}"
    )
    own: dict[str, str | None] = {"rw": None}
    assert parse_mountinfo(line.encode()) == (
        MountInfo(mount_id, parent_id, number, root, point, own, fstype, device, options),
    )


@pytest.mark.parametrize(
    "line",
    [
        b"1 2 0:1 / /p rw",
        b"1 2 0:1 / /p - t d rw",
        b"1 2 0:1 / /p rw - t d",
        b"x 2 0:1 / /p rw - t d o",
        b"1 x 0:1 / /p rw - t d o",
    ],
)
def test_mountinfo_leaves_out_what_it_cannot_understand(line: bytes) -> None:
    good = b"1 2 0:1 / /p rw - t d o\n"
    assert parse_mountinfo(line + b"\n" + good) == parse_mountinfo(good)
    with pytest.raises(ParseError, match="bad mountinfo"):
        parse_mountinfo(line)


def test_mounts_of_this_process() -> None:
    mounts = parse_mounts(read("/proc/self/mounts"))
    assert {mount.point for mount in mounts} == {
        mount.point for mount in parse_mountinfo(read("/proc/self/mountinfo"))
    }
    assert any(os.path.ismount(mount.point) for mount in mounts if mount.fstype == "proc")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (b"max\n", None),
        (b"0\n", 0),
        (b"274877906944\n\0", 1 << 38),
        (b"9223372036854771712", None),  # 4 KiB pages
        (b"9223372036854710272", None),  # 64 KiB pages
        (b"9223372036852678656", None),  # hugetlb.2MB
        (b"9223372035781033984", None),  # hugetlb.1GB
        (b"9223372019674906624", None),  # hugetlb.16GB
        (b"18446744073709551615", None),
        (b"4611686018427387903", (1 << 62) - 1),
        (b"4611686018427387904", None),
    ],
)
def test_cgroup_limits(text: bytes, limit: int | None) -> None:
    assert parse_cgroup_limit(text) == limit


@pytest.mark.parametrize("text", [b"", b"Max", b"-1", b"max max", b"1G"])
def test_other_cgroup_limits_are_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="bad cgroup limit"):
        parse_cgroup_limit(text)


def test_swaps() -> None:
    assert parse_swaps(samples.SWAPS) == (
        Swap("/dev/dm-1", "partition", 8388604 * 1024, 512 * 1024, -2),
        Swap("/swap file", "file", 1 << 20, 0, 5),
    )


def test_a_machine_without_swap_has_the_heading_alone() -> None:
    assert parse_swaps(b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n") == ()


@pytest.mark.parametrize(
    "line", [b"/a file 1 2", b"/a file x 2 3", b"/a file 1 x 3", b"/a file 1 2 --3"]
)
def test_swaps_leave_out_what_they_cannot_understand(line: bytes) -> None:
    assert parse_swaps(line + b"\n/b file 1 0 -1\n") == (Swap("/b", "file", 1024, 0, -1),)
    with pytest.raises(ParseError, match="bad swaps"):
        parse_swaps(line)


@given(NAMES.filter(len), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(-99, 32767))
def test_swaps_survive_the_round_trip(path: str, size: int, used: int, priority: int) -> None:
    line = f"/{escaped(path)} partition\t{size}\t\t{used}\t\t{priority}\n"
    expected = (Swap(f"/{path}", "partition", size * 1024, used * 1024, priority),)
    assert parse_swaps(line.encode()) == expected


def test_cpuinfo_of_x86_is_read_from_the_first_processor() -> None:
    assert parse_cpuinfo(samples.CPUINFO) == CpuInfo(
        "AuthenticAMD", "AMD EPYC 7763", frozenset({"fpu", "vme", "hypervisor", "avx2"}), True
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            b"\n\nvendor_id\t: GenuineIntel\r\nflags\t: fpu\r\n\r\nflags\t: hypervisor",
            CpuInfo("GenuineIntel", None, frozenset({"fpu"}), False),
        ),
        (
            b"processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\0",
            CpuInfo("0x41", None, frozenset({"fp", "asimd"}), None),
        ),
        (
            b"processor\t: 0\ncpu\t\t: POWER9, altivec supported\n",
            CpuInfo(None, "POWER9, altivec supported", frozenset(), None),
        ),
        (
            b"vendor     : GenuineIntel\nfeatures   : branchlong, 16-byte atomic ops\n",
            CpuInfo(
                "GenuineIntel", None, frozenset({"branchlong", "16-byte", "atomic", "ops"}), None
            ),
        ),
        (
            b"system type : Loongson\ncpu model : MIPS 1004Kc\n",
            CpuInfo(None, "MIPS 1004Kc", frozenset(), None),
        ),
        (b"flags :\n", CpuInfo(None, None, frozenset(), False)),
    ],
)
def test_cpuinfo_of_other_machines(text: bytes, expected: CpuInfo) -> None:
    assert parse_cpuinfo(text) == expected


@pytest.mark.parametrize("text", [b"", b"\n\0", b"processor 0", b"what\n\nflags : fpu"])
def test_other_cpuinfo_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="it has no line of the form key : value"):
        parse_cpuinfo(text)


@given(st.sets(st.from_regex(r"[a-z0-9_]{1,10}", fullmatch=True)))
def test_cpu_flags(flags: set[str]) -> None:
    text = f"flags : {' '.join(sorted(flags))}\n".encode()
    assert parse_cpuinfo(text) == CpuInfo(None, None, frozenset(flags), "hypervisor" in flags)


def test_this_machine() -> None:
    assert parse_meminfo(read("/proc/meminfo"))["MemTotal"] == psutil.virtual_memory().total
    swaps = parse_swaps(read("/proc/swaps"))
    assert sum(swap.size for swap in swaps) == pytest.approx(psutil.swap_memory().total, abs=8192)
