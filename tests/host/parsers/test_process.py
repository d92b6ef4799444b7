import os
import resource
import threading

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import (
    CgroupMembership,
    Limit,
    ProcStatus,
    parse_argv,
    parse_environ,
    parse_limits,
    parse_proc_cgroup,
    parse_status,
)
from numadoctor.model import ParseError
from tests.host.parsers import samples
from tests.host.parsers.test_lists import SMALL, runs_of, words_of


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def test_status() -> None:
    assert parse_status(samples.STATUS) == ProcStatus(
        name="python3",
        state="S",
        pid=4243,
        tgid=4242,
        nspid=(4243, 8),
        threads=40,
        uids=(1000, 1001, 1002, 1003),
        seccomp=2,
        seccomp_filters=3,
        no_new_privs=1,
        cap_inh=1,
        cap_prm=0x1FFFEFFFFFF,
        cap_eff=0xA80425FB,
        cap_bnd=0xA88425FB,
        cap_amb=0,
        cpus_allowed=(*range(16), *range(32, 40)),
        mems_allowed=(0, 8, 32),
        mems_allowed_digits=24,
        vm_rss=1624 * 1024,
        rss_anon=1000 * 1024,
        rss_file=600 * 1024,
        rss_shmem=24 * 1024,
        vm_lck=64 * 1024,
        vm_swap=12 * 1024,
        hugetlb_pages=1 << 30,
    )


def test_what_the_kernel_does_not_say_is_none() -> None:
    status = parse_status(b"Pid:\t1\n")
    assert status == ProcStatus(pid=1)
    absent = set(status._fields) - {"pid", "nspid", "uids", "remarks"}
    assert all(getattr(status, name) is None for name in absent)
    assert (status.nspid, status.uids, status.remarks) == ((), (), ())


@pytest.mark.parametrize("text", [b"", b"\n\0", b"no colon here", b"PPid:\t1\nUmask:\t0022\n"])
def test_a_text_without_any_field_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="it has none of the fields"):
        parse_status(text)


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("Threads:\tmany", """Threads: bad number 'many': "many" is not a number"""),
        ("CapBnd:\t-", "CapBnd: bad hexadecimal number '-': it is not one"),
        ("NSpid:\t1 x", """NSpid: bad number 'x': "x" is not a number"""),
        ("VmRSS:\t1624", "VmRSS: bad size '1624': it is not a number of kB"),
        ("VmLck:\tx kB", "VmLck: bad size 'x kB': it is not a number of kB"),
        ("HugetlbPages:\t1 2 kB", "HugetlbPages: bad size '1 2 kB': it is not a number of kB"),
        (
            "Mems_allowed_list:\t0-",
            """Mems_allowed_list: bad list '0-': """
            """"0-" is not a number, a range or a range with a stride""",
        ),
    ],
)
def test_a_field_that_cannot_be_understood_is_none_and_told(line: str, remark: str) -> None:
    status = parse_status(f"{line}\nPid:\t5\n".encode())
    assert status == ProcStatus(pid=5, remarks=(remark,))


def test_the_list_is_taken_where_the_map_is_faulty() -> None:
    status = parse_status(b"Mems_allowed:\tzz\nMems_allowed_list:\t0-1\n")
    assert (status.mems_allowed, status.mems_allowed_digits) == ((0, 1), None)
    assert status.remarks == (
        """Mems_allowed: bad map 'zz': "zz" is not a hexadecimal number""",
        # Once from the set, once from its width.
    )


def test_the_list_is_taken_where_it_stands_alone() -> None:
    status = parse_status(b"Cpus_allowed_list:\t0-1\n")
    assert status == ProcStatus(cpus_allowed=(0, 1))


@pytest.mark.parametrize(
    ("mask", "listed", "ids", "remark"),
    [
        ("3", "0", (0, 1), "Mems_allowed is 0-1 but Mems_allowed_list is 0: taken from"),
        ("0", "1", (), "Mems_allowed is empty but Mems_allowed_list is 1: taken from"),
        ("2", "", (1,), "Mems_allowed is 1 but Mems_allowed_list is empty: taken from"),
    ],
)
def test_the_map_is_taken_where_they_contradict(
    mask: str, listed: str, ids: tuple[int, ...], remark: str
) -> None:
    status = parse_status(f"Mems_allowed:\t{mask}\nMems_allowed_list:\t{listed}\n".encode())
    assert status.mems_allowed == ids
    assert status.remarks == (f"{remark} Mems_allowed",)


@given(SMALL, SMALL, st.integers(0, 20))
def test_allowed_sets(cpus: set[int], nodes: set[int], spare: int) -> None:
    digits = max(nodes, default=0) // 4 + 1 + spare
    text = (
        f"Cpus_allowed:\t{words_of(cpus, 64)}\nCpus_allowed_list:\t{runs_of(cpus)}\n"
        f"Mems_allowed:\t{words_of(nodes, digits)}\nMems_allowed_list:\t{runs_of(nodes)}\n"
    )
    assert parse_status(text.encode()) == ProcStatus(
        cpus_allowed=tuple(sorted(cpus)),
        mems_allowed=tuple(sorted(nodes)),
        mems_allowed_digits=digits,
    )


def test_escapes_in_a_process_name() -> None:
    assert parse_status(b"Name:\t" + rb"a\nb\\nc d").name == "a\nb\\nc d"


@given(st.binary(min_size=1, max_size=15).filter(lambda name: b"\0" not in name))
def test_a_process_name_cannot_forge_a_field(name: bytes) -> None:
    shown = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    status = parse_status(b"Name:\t" + shown + b"\nSeccomp:\t2\n")
    expected = name.decode("utf-8", "backslashreplace")
    blanks = " \t\r\v\f"
    assert status.seccomp == 2
    assert status.name is not None
    assert status.name.strip(blanks) == expected.strip(blanks)


def test_the_first_of_repeated_fields_counts() -> None:
    assert parse_status(b"Seccomp:\t2\nSeccomp:\t0\n").seccomp == 2


def test_status_of_this_process() -> None:
    status = parse_status(read("/proc/self/status"))
    assert status.pid == status.tgid == os.getpid()
    assert status.threads == threading.active_count()
    assert status.uids[:3] == os.getresuid()
    assert status.cpus_allowed == tuple(sorted(os.sched_getaffinity(0)))
    assert status.remarks == ()


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        (b"", ()),
        (b"\0", ()),
        (b"sleep\0", ("sleep",)),
        (b"python3\0-m\0vllm.x\0--a=b c\0", ("python3", "-m", "vllm.x", "--a=b c")),
        (b"grep\0\0file\0", ("grep", "", "file")),
        (b"grep\0-e\0\0", ("grep", "-e", "")),
        (b"sh\0-c\0a\nb\0", ("sh", "-c", "a\nb")),
        (
            b"nginx: master process /usr/sbin/nginx",
            ("nginx:", "master", "process", "/usr/sbin/nginx"),
        ),
        (b"VLLM::EngineCore\0\0\0\0", ("VLLM::EngineCore",)),
        (b"sglang::scheduler TP0 \0\0", ("sglang::scheduler", "TP0")),
        (b"\xff\0a\0", ("\\xff", "a")),
    ],
)
def test_argv(data: bytes, arguments: tuple[str, ...]) -> None:
    assert parse_argv(data) == arguments


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_argv_of_several_survives_the_round_trip(arguments: list[str]) -> None:
    given_arguments = ["program", *arguments, "last"]
    data = b"".join(argument.encode() + b"\0" for argument in given_arguments)
    assert parse_argv(data) == tuple(given_arguments)


def test_argv_of_this_process() -> None:
    assert list(parse_argv(read("/proc/self/cmdline"))) == psutil.Process().cmdline()


@pytest.mark.parametrize(
    ("data", "variables"),
    [
        (b"", {}),
        (b"A=1\0B=x=y\0A=2\0", {"A": "1", "B": "x=y"}),
        (b"A=\0=B\0C\0D=\n", {"A": "", "D": "\n"}),
        (b"A=\xff", {"A": "\\xff"}),
    ],
)
def test_environ(data: bytes, variables: dict[str, str]) -> None:
    assert parse_environ(data) == variables


TEXT = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT.filter(len), TEXT))
def test_environ_survives_the_round_trip(variables: dict[str, str]) -> None:
    data = "".join(f"{key}={value}\0" for key, value in variables.items())
    assert parse_environ(data.encode()) == variables


def test_limits() -> None:
    assert parse_limits(samples.LIMITS) == {
        "Max cpu time": Limit(None, None, "seconds"),
        "Max stack size": Limit(8388608, None, "bytes"),
        "Max locked memory": Limit(8388608, 16777216, "bytes"),
        "Max nice priority": Limit(0, 0, ""),
    }


VALUES = st.none() | st.integers(0, 2**64 - 1)


@given(VALUES, VALUES, st.sampled_from(["bytes", ""]))
def test_limits_in_general(soft: int | None, hard: int | None, unit: str) -> None:
    shown = ["unlimited" if value is None else str(value) for value in (soft, hard)]
    line = f"{'Max locked memory':<25} {shown[0]:<20} {shown[1]:<20} {unit:<10}\n"
    assert parse_limits(line.encode()) == {"Max locked memory": Limit(soft, hard, unit)}


@pytest.mark.parametrize(
    "line",
    [b"x", b"1 2", b"1 2 bytes", b"Max x 1", b"Max x 1 y bytes", b"Max x y 1", b"Max -1 1 b"],
)
def test_limits_leave_out_what_they_cannot_understand(line: bytes) -> None:
    assert parse_limits(line + b"\nMax a 1 2 b\n") == {"Max a": Limit(1, 2, "b")}
    with pytest.raises(ParseError, match="bad limits"):
        parse_limits(line)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("Max locked memory", resource.RLIMIT_MEMLOCK),
        ("Max open files", resource.RLIMIT_NOFILE),
        ("Max stack size", resource.RLIMIT_STACK),
        ("Max address space", resource.RLIMIT_AS),
    ],
)
def test_limits_of_this_process(name: str, number: int) -> None:
    limit = parse_limits(read("/proc/self/limits"))[name]
    told = tuple(
        None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(number)
    )
    assert (limit.soft, limit.hard) == told


def test_cgroup_membership() -> None:
    assert parse_proc_cgroup(samples.CGROUP) == (
        CgroupMembership(9, ("name=systemd",), "/user.slice"),
        CgroupMembership(7, ("cpu", "cpuacct"), "/"),
        CgroupMembership(3, ("cpuset",), "/slurm/uid_1000/job_77/step:0"),
        CgroupMembership(0, (), "/kubepods.slice/kubepods-pod1.slice"),
    )


@pytest.mark.parametrize("line", [b"x::/", b"0:", b"0::", b"0::relative", b"-1::/", b"0"])
def test_cgroups_leave_out_what_they_cannot_understand(line: bytes) -> None:
    expected = (CgroupMembership(0, (), "/a b"),)
    assert parse_proc_cgroup(line + b"\n0::/a b\n") == expected
    with pytest.raises(ParseError, match="bad cgroup membership"):
        parse_proc_cgroup(line)


CONTROLLERS = st.lists(st.sampled_from(["cpu", "cpuset", "memory", "name=systemd"]), unique=True)
PATHS = st.text(st.characters(codec="ascii", categories=["L", "N", "P"])).map(
    lambda text: f"/{text}"
)


@given(st.lists(st.tuples(st.integers(0, 99), CONTROLLERS, PATHS)))
def test_cgroups_survive_the_round_trip(groups: list[tuple[int, list[str], str]]) -> None:
    text = "".join(f"{number}:{','.join(names)}:{path}\n" for number, names, path in groups)
    expected = tuple(CgroupMembership(number, tuple(names), path) for number, names, path in groups)
    assert parse_proc_cgroup(text.encode()) == expected
