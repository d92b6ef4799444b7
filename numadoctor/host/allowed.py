"""What a process may use: its affinity, its cpuset, and the nodes that leaves it."""

from collections.abc import Iterable

from numadoctor.host.cgroup import Cgroup, read_cgroup
from numadoctor.host.host import Host
from numadoctor.model import Allowed, Undecided


def read_allowed(
    host: Host, proc: str, online_cpus: tuple[int, ...], nodes: tuple[int, ...]
) -> Allowed:
    """The CPUs and nodes the process at ``proc`` may use.

    ``Cpus_allowed`` and ``Mems_allowed`` of its status file are what the kernel
    itself applies. A captured tree may lack that file; its cpuset then tells
    the same, and one that has neither leaves everything allowed only if it
    holds no cpuset at all.
    """
    try:
        status = host.status(proc)
    except Undecided:
        status = None
    if status is not None and status.mems_allowed is not None:
        cpus = _within(status.cpus_allowed, online_cpus)
        return Allowed(cpus, _within(status.mems_allowed, nodes), f"{proc}/status")
    cgroup = read_cgroup(host, proc)
    cpuset = cgroup.cpuset
    if cpuset is None:
        if status is not None and status.cpus_allowed is not None:
            # A kernel without CONFIG_CPUSETS has no Mems_allowed line: nothing narrows.
            return Allowed(_within(status.cpus_allowed, online_cpus), nodes, f"{proc}/status")
        return Allowed(online_cpus, nodes, "no cpuset found: everything is allowed")
    cpus = _ids(host, cgroup, "cpus", online_cpus)
    mems = _ids(host, cgroup, "mems", nodes)
    return Allowed(cpus, mems, cpuset)


def _within(ids: Iterable[int] | None, known: tuple[int, ...]) -> tuple[int, ...] | None:
    # A mask names every possible id; those that are not online can not be used.
    if ids is None:
        return None
    return tuple(i for i in ids if i in set(known)) if known else tuple(ids)


def _ids(host: Host, cgroup: Cgroup, what: str, known: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        ids = host.ids(cgroup.cpuset_file(what))
    except Undecided:
        return None
    # An empty list means "as the parent" in cgroup v2.
    return _within(ids, known) if ids else known
