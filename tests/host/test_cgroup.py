import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.host.cgroup import Cgroup, read_cgroup
from numadoctor.model import Denied, Malformed, Missing
from tests.host.machines import Changes, TreeRoot

SELF = "/proc/self"
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
V1 = (
    "tmpfs /sys/fs/cgroup tmpfs ro 0 0\n"
    "cgroup /sys/fs/cgroup/cpuset cgroup rw,nosuid,cpuset 0 0\n"
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpuacct,cpu 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
    "cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\n"
)
HYBRID = V1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"


def cgroup_of(mounts: str, membership: str, files: Changes | None = None) -> Cgroup:
    known = {f"{SELF}/mounts": mounts, f"{SELF}/cgroup": membership, **(files or {})}
    return read_cgroup(Host(TreeRoot(known)), SELF)


def memory_limit(cgroup: Cgroup) -> tuple[int, str] | None:
    return cgroup.limit("memory.max", "memory", "memory.limit_in_bytes")


def below(folder: str, *files: str) -> dict[str, str]:
    return {f"{folder}/{file}": "" for file in files or ("cgroup.procs",)}


def test_v2_directory_and_its_ancestors() -> None:
    leaf = "/sys/fs/cgroup/a.slice/b.service"
    cgroup = cgroup_of(V2, "0::/a.slice/b.service\n", below(leaf))
    assert cgroup.unified
    assert list(cgroup.ancestors("")) == [leaf, "/sys/fs/cgroup/a.slice", "/sys/fs/cgroup"]
    assert list(cgroup.ancestors("memory")) == []


def test_v1_directories_by_controller() -> None:
    folders = {**below("/sys/fs/cgroup/cpuset/jobs/7"), **below("/sys/fs/cgroup/memory/jobs")}
    membership = "9:memory:/jobs\n4:cpuset:/jobs/7\n2:cpu,cpuacct:/\n1:name=systemd:/user\n"
    cgroup = cgroup_of(V1, membership, folders)
    assert cgroup.directories == {
        "cpuset": "/sys/fs/cgroup/cpuset/jobs/7",
        "memory": "/sys/fs/cgroup/memory/jobs",
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
    }
    assert not cgroup.unified
    assert cgroup.cpuset == "/sys/fs/cgroup/cpuset/jobs/7"
    assert cgroup.cpuset_file("mems") == "/sys/fs/cgroup/cpuset/jobs/7/cpuset.mems"


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"": "max", "a": "max", "a/b": "max"}, None),
        ({"a/b": "4096"}, (4096, "a/b")),
        ({"a": "2048", "a/b": "4096"}, (2048, "a")),
        ({"": "100", "a": "2048", "a/b": "max"}, (100, "")),
        ({"a": "4096", "a/b": "4096"}, (4096, "a/b")),
        ({"a/b": "0"}, (0, "a/b")),
        ({}, None),
    ],
)
def test_the_tightest_limit_of_all_ancestors_acts(
    values: dict[str, str], limit: tuple[int, str] | None
) -> None:
    top = "/sys/fs/cgroup"
    files = {f"{top}/{at}/memory.max".replace("//", "/"): text for at, text in values.items()}
    cgroup = cgroup_of(V2, "0::/a/b\n", {**below(f"{top}/a/b"), **files})
    found = memory_limit(cgroup)
    if limit is None:
        assert found is None
    else:
        assert found == (limit[0], f"{top}/{limit[1]}/memory.max".replace("//", "/"))


@given(st.lists(st.one_of(st.none(), st.just("max"), st.integers(0, 1 << 61)), max_size=6))
def test_limit_is_the_least_of_the_numbers(values: list[int | str | None]) -> None:
    path, files = "/sys/fs/cgroup", {}
    for depth, value in enumerate(values):
        path += f"/{depth}"
        files[f"{path}/cgroup.procs"] = ""
        if value is not None:
            files[f"{path}/memory.max"] = str(value)
    membership = f"0::{path.removeprefix('/sys/fs/cgroup') or '/'}\n"
    found = memory_limit(cgroup_of(V2, membership, files))
    numbers = [value for value in values if isinstance(value, int)]
    assert (found[0] if found else None) == min(numbers, default=None)


def test_v1_limits_have_another_name_and_a_large_number_for_none() -> None:
    base = "/sys/fs/cgroup/memory"
    files = {
        f"{base}/memory.limit_in_bytes": "9223372036854771712",
        f"{base}/jobs/memory.limit_in_bytes": "1073741824",
    }
    cgroup = cgroup_of(V1, "9:memory:/jobs\n", files)
    assert memory_limit(cgroup) == (1 << 30, f"{base}/jobs/memory.limit_in_bytes")


def test_hybrid_takes_each_controller_from_its_tree() -> None:
    files = {
        "/sys/fs/cgroup/unified/memory.max": "5",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "7",
        "/sys/fs/cgroup/unified/hugetlb.2MB.max": "9",
    }
    cgroup = cgroup_of(HYBRID, "9:memory:/\n0::/\n", files)
    assert memory_limit(cgroup) == (7, "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    huge = cgroup.limit("hugetlb.2MB.max", "hugetlb", "hugetlb.2MB.limit_in_bytes")
    assert huge == (9, "/sys/fs/cgroup/unified/hugetlb.2MB.max")


def test_a_limit_that_may_not_be_read_is_not_unlimited() -> None:
    files: Changes = {"/sys/fs/cgroup/a/memory.max": Denied("/x", errno.EACCES)}
    with pytest.raises(Denied):
        memory_limit(cgroup_of(V2, "0::/a\n", files))


def test_a_limit_that_is_none() -> None:
    with pytest.raises(Malformed):
        memory_limit(cgroup_of(V2, "0::/a\n", {"/sys/fs/cgroup/a/memory.max": "lots"}))


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({}, f"{SELF}/cgroup"),
        ({f"{SELF}/mounts": V2}, f"{SELF}/cgroup"),
        ({f"{SELF}/cgroup": "0::/a\n"}, f"{SELF}/cgroup"),
        ({f"{SELF}/cgroup": "9:memory:/a\n", f"{SELF}/mounts": V2}, f"{SELF}/cgroup"),
    ],
)
def test_a_cgroup_that_cannot_be_seen_is_not_unlimited(files: Changes, path: str) -> None:
    cgroup = read_cgroup(Host(TreeRoot(files)), SELF)
    with pytest.raises(Missing) as caught:
        memory_limit(cgroup)
    assert caught.value.path == path


def test_a_membership_that_may_not_be_read_is_named() -> None:
    files: Changes = {f"{SELF}/cgroup": Denied(f"{SELF}/cgroup", errno.EACCES)}
    with pytest.raises(Denied):
        memory_limit(read_cgroup(Host(TreeRoot(files)), SELF))


def test_a_container_without_a_namespace_sees_its_own_part() -> None:
    # /proc/self/cgroup names the machine's path; what is mounted begins below it.
    files = {"/sys/fs/cgroup/memory.max": "64"}
    cgroup = cgroup_of(V2, "0::/docker/3f2c61aa\n", files)
    assert memory_limit(cgroup) == (64, "/sys/fs/cgroup/memory.max")


@pytest.mark.parametrize("path", ["/../../other", "/a/../../..", "/.."])
def test_a_path_outside_of_the_namespace_stays_inside_of_the_mount(path: str) -> None:
    cgroup = cgroup_of(V2, f"0::{path}\n", below("/sys/fs/cgroup"))
    assert cgroup.directories == {"": "/sys/fs/cgroup"}
    assert list(cgroup.ancestors("")) == ["/sys/fs/cgroup"]


def test_a_mount_point_that_begins_like_another() -> None:
    mounts = "cgroup2 /cg cgroup2 rw 0 0\n"
    cgroup = cgroup_of(mounts, "0::/../cgroups/a\n", below("/cgroups/a"))
    assert cgroup.directories == {"": "/cg"}


def test_v2_cpuset_is_the_nearest_above_that_has_the_controller() -> None:
    files = {
        "/sys/fs/cgroup/a/b/cgroup.procs": "",
        "/sys/fs/cgroup/a/cpuset.cpus.effective": "0-3",
        "/sys/fs/cgroup/cpuset.cpus.effective": "0-7",
    }
    cgroup = cgroup_of(V2, "0::/a/b\n", files)
    assert cgroup.cpuset == "/sys/fs/cgroup/a"
    assert cgroup.cpuset_file("mems") == "/sys/fs/cgroup/a/cpuset.mems.effective"
    assert cgroup.cpuset_top == "/sys/fs/cgroup"


def test_v2_cpuset_that_may_not_be_read_is_not_passed_over() -> None:
    files: Changes = {
        "/sys/fs/cgroup/a/cpuset.cpus.effective": Denied("/x", errno.EACCES),
        "/sys/fs/cgroup/cpuset.cpus.effective": "0-7",
    }
    assert cgroup_of(V2, "0::/a\n", files).cpuset == "/sys/fs/cgroup/a"


@pytest.mark.parametrize(
    "mount",
    [
        "none /dev/cpuset cpuset rw 0 0\n",
        "none /dev/cpuset cgroup rw,cpuset,noprefix 0 0\n",
    ],
)
def test_cpuset_of_before_cgroups_has_short_names(mount: str) -> None:
    files = {f"{SELF}/mounts": mount, f"{SELF}/cpuset": "/torque\n", "/dev/cpuset/torque/cpus": "0"}
    cgroup = read_cgroup(Host(TreeRoot(files)), SELF)
    assert cgroup.cpuset_file("cpus") == "/dev/cpuset/torque/cpus"


def test_nothing_known_is_empty() -> None:
    cgroup = read_cgroup(Host(TreeRoot({})), SELF)
    assert (cgroup.directories, cgroup.cpuset, cgroup.unified) == ({}, None, False)


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=40))
def test_any_bytes_are_survived(mounts: bytes, membership: bytes, cpuset: bytes) -> None:
    files: Changes = {
        f"{SELF}/mounts": mounts,
        f"{SELF}/cgroup": membership,
        f"{SELF}/cpuset": cpuset,
    }
    cgroup = read_cgroup(Host(TreeRoot(files)), SELF)
    for controller in cgroup.directories:
        top = cgroup.tops[controller]
        assert list(cgroup.ancestors(controller))[-1] == top


_PART = st.sampled_from(["a", "b.slice", "..", ".", "", "c:d", "cgroup"])


@given(st.lists(_PART, max_size=8), st.sampled_from(["/sys/fs/cgroup", "/", "/cg"]))
def test_no_path_leads_out_of_the_mount(parts: list[str], point: str) -> None:
    cgroup = cgroup_of(f"c {point} cgroup2 rw 0 0\n", f"0::/{'/'.join(parts)}\n")
    ancestors = list(cgroup.ancestors(""))
    assert ancestors[-1] == point
    assert all(a == point or a.startswith(point.rstrip("/") + "/") for a in ancestors)
