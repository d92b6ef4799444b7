import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.host.allowed import read_allowed
from numadoctor.host.parsers import format_list
from numadoctor.model import Allowed, Denied, Vanished
from tests.host.machines import Changes, TreeRoot

SELF = "/proc/self"
CPUS, NODES = tuple(range(8)), (0, 1)
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"


def allowed(files: Changes) -> Allowed:
    return read_allowed(Host(TreeRoot(files)), SELF, CPUS, NODES)


def status(cpus: str, mems: str) -> Changes:
    return {f"{SELF}/status": f"Name:\tx\nCpus_allowed:\t{cpus}\nMems_allowed:\t{mems}\n"}


def test_status_is_what_the_kernel_goes_by() -> None:
    files = {
        **status("0f", "00000000,00000001"),
        f"{SELF}/cgroup": "0::/\n",
        f"{SELF}/mounts": V2,
        "/sys/fs/cgroup/cpuset.cpus.effective": "0-7",
        "/sys/fs/cgroup/cpuset.mems.effective": "0-1",
    }
    assert allowed(files) == Allowed((0, 1, 2, 3), (0,), f"{SELF}/status")


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)))
def test_a_mask_also_names_what_is_not_there(cpus: set[int], mems: set[int]) -> None:
    masks = [f"{sum(1 << i for i in ids):x}" for ids in (cpus, mems)]
    found = allowed(status(*masks))
    assert found.cpus == tuple(sorted(cpus & set(CPUS)))
    assert found.nodes == tuple(sorted(mems & set(NODES)))


def test_a_kernel_without_cpusets_narrows_nothing() -> None:
    found = allowed({f"{SELF}/status": "Name:\tx\nCpus_allowed:\t03\n"})
    assert found == Allowed((0, 1), NODES, f"{SELF}/status")


@pytest.mark.parametrize(
    ("text", "cpus", "nodes"),
    [
        ("Cpus_allowed:\t03\nMems_allowed:\tzz\n", (0, 1), None),
        ("Cpus_allowed:\tzz\nMems_allowed:\t1\n", None, (0,)),
        ("Name:\tx\n", None, None),
    ],
)
def test_what_the_status_does_not_say_is_unknown(
    text: str, cpus: tuple[int, ...] | None, nodes: tuple[int, ...] | None
) -> None:
    found = allowed({f"{SELF}/status": text})
    assert (found.cpus, found.nodes) == (cpus, nodes)


@pytest.mark.parametrize("error", [Denied("/s", errno.EACCES), Vanished("/s", errno.ESRCH)])
def test_a_status_that_cannot_be_read_allows_nothing_known(error: Denied | Vanished) -> None:
    found = allowed({f"{SELF}/status": error})
    assert (found.cpus, found.nodes) == (None, None)
    assert found.source == str(error)


@given(st.sets(st.integers(0, 12)), st.sets(st.integers(0, 3)))
def test_a_captured_cpuset_tells(cpus: set[int], mems: set[int]) -> None:
    files = {
        f"{SELF}/cgroup": "0::/job\n",
        f"{SELF}/mounts": V2,
        "/sys/fs/cgroup/job/cpuset.cpus.effective": format_list(cpus),
        "/sys/fs/cgroup/job/cpuset.mems.effective": format_list(mems),
    }
    found = allowed(files)
    assert found.cpus == tuple(sorted(cpus & set(CPUS)))
    assert found.nodes == tuple(sorted(mems & set(NODES)))
    assert found.source == "/sys/fs/cgroup/job"


@pytest.mark.parametrize("value", [Denied("/x", errno.EACCES), "all"])
def test_a_captured_cpuset_that_cannot_be_read_is_unknown(value: str | Denied) -> None:
    files: Changes = {
        f"{SELF}/cgroup": "0::/\n",
        f"{SELF}/mounts": V2,
        "/sys/fs/cgroup/cpuset.cpus.effective": "0-1",
        "/sys/fs/cgroup/cpuset.mems.effective": value,
    }
    found = allowed(files)
    assert (found.cpus, found.nodes) == ((0, 1), None)


def test_a_tree_without_any_cpuset() -> None:
    found = allowed({"/proc/version": "x"})
    assert (found.cpus, found.nodes) == (CPUS, NODES)
    assert "nothing is known to narrow" in found.source


def test_a_cpuset_whose_tree_was_not_captured() -> None:
    files = {f"{SELF}/cpuset": "/job\n", f"{SELF}/mounts": "none /dev/cpuset cpuset rw 0 0\n"}
    found = allowed(files)
    assert (found.cpus, found.nodes) == (CPUS, NODES)
    assert found.source == "/dev/cpuset was not captured: nothing is known to narrow"
