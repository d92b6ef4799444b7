"""What a process may use: the CPUs and memory nodes that affinity and cpuset leave it."""

from collections.abc import Iterable

from numadoctor.host.cgroup import Cgroup, read_cgroup
from numadoctor.host.host import Host
from numadoctor.model import Allowed, Missing, Undecided

# Ends the source of an answer that is an assumption: no ground for a verdict.
UNNARROWED = "nothing is known to narrow"


def read_allowed(
    host: Host, proc: str, online_cpus: tuple[int, ...], nodes: tuple[int, ...]
) -> Allowed:
    """The online CPUs and nodes that the process at ``proc`` may use.

    ``Cpus_allowed`` and ``Mems_allowed`` of its status file are what the kernel
    itself goes by (kernel/cgroup/cpuset.c). A captured tree may lack the file:
    its cpuset then tells nearly the same, without the affinity.
    """
    try:
        status = host.status(proc)
    except Missing:
        return _by_cpuset(host, read_cgroup(host, proc), online_cpus, nodes)
    except Undecided as error:
        return Allowed(None, None, str(error))
    cpus, mems = status.cpus_allowed, status.mems_allowed
    garbled = any(remark.startswith("Mems_allowed") for remark in status.remarks)
    if mems is None and cpus is not None and not garbled:
        # Without CONFIG_CPUSETS there is no such line, and nothing that could narrow.
        mems = nodes
    return Allowed(_among(cpus, online_cpus), _among(mems, nodes), f"{proc}/status")


def _among(ids: Iterable[int] | None, known: tuple[int, ...]) -> tuple[int, ...] | None:
    """Those that exist: a mask also names what could be plugged in."""
    return None if ids is None else tuple(sorted(set(ids).intersection(known)))


def _by_cpuset(
    host: Host, cgroup: Cgroup, online_cpus: tuple[int, ...], nodes: tuple[int, ...]
) -> Allowed:
    cpuset, top = cgroup.cpuset, cgroup.cpuset_top
    if cpuset is None or top is None:
        return Allowed(online_cpus, nodes, f"no cpuset is to be seen: {UNNARROWED}")
    try:
        captured = host.has(top)
    except Undecided as error:
        return Allowed(None, None, str(error))
    if not captured:
        source = f"{top} was not captured: {UNNARROWED}"
        return Allowed(online_cpus, nodes, source)
    cpus = _members(host, cgroup.cpuset_file("cpus"), online_cpus)
    return Allowed(cpus, _members(host, cgroup.cpuset_file("mems"), nodes), cpuset)


def _members(host: Host, path: str, known: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return _among(host.ids(path), known)
    except Undecided:
        return None
