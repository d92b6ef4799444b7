"""Who moves pages behind a process's back: automatic balancing, numad, DAMON."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Missing,
    Target,
    Undecided,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.words import count, listed

from ._kernel import MM, absent, interleave, names, shows, sysctl_fixes, sysfs_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host

_BALANCING = "/proc/sys/kernel/numa_balancing"
# The bits of kernel.numa_balancing (include/linux/sched/sysctl.h).
_NORMAL, _TIERING = 1, 2

_SERVICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
# systemd starts this one on every machine: a list of services that has it is whole.
_ALWAYS_THERE = "systemd-journald.service"
_PID_FILES = ("/run/numad.pid", "/var/run/numad.pid")

_KDAMONDS = f"{MM}/damon/admin/kdamonds"
# What a DAMON scheme does to the pages it selects (mm/damon/sysfs-schemes.c):
# these two move them to another node, this one out of memory.
_MIGRATING, _EVICTING = ("migrate_hot", "migrate_cold"), ("pageout",)
_DAMON_MODULES = {
    "damon_reclaim": "pages out what was not used for a while",
    "damon_lru_sort": "reorders what is reclaimed first",
}


@check(
    "K001",
    name="numa-balancing",
    needs=(_BALANCING, "/proc/self/numa_maps"),
    requires=Requires.SEVERAL_NODES,
)
def numa_balancing(host: "Host", target: Target) -> Iterator[Finding]:
    """Automatic NUMA balancing samples accesses by faults and moves pages between nodes.

    Why it matters
        The kernel unmaps up to 256 MiB of each busy process per scan, at most one scan
        a second, so that the next access to each page faults, and moves a page to the
        node whose threads fault on it. A pool that was placed by first touch alone
        drifts towards the threads that used it last; faults and copies cost memory
        bandwidth and show as latency spikes. NVIDIA's guide for Grace, where GPU
        memory is a node as well, tells to switch it off.

        The value is a bit mask: 1 is balancing between all nodes; 2 (since Linux 5.18)
        only moves hot pages from slow memory, such as CXL, up to fast memory.

    When it is harmless
        The scanner leaves alone mappings with a policy of their own (mbind) or of
        their task (numactl, set_mempolicy) unless it has MPOL_F_NUMA_BALANCING, shared
        memory without a policy of its own, huge pages of hugetlbfs, and what cannot
        migrate. Where every large process is bound or interleaves, balancing changes
        nothing; numadoctor says so (info) when it was itself started under such a
        policy, because children inherit it. With 2 alone nothing moves on a machine
        without slower memory.

    Fix
        Give each large process a policy: that needs no root and exempts it. Or switch
        balancing off for the machine:

            sysctl -w kernel.numa_balancing=0

        The setting belongs to the machine: no container can have one of its own. At
        boot the kernel switches it on by itself on machines with several nodes if it
        was built so; numa_balancing=disable on the kernel command line prevents that.

    Source
        Documentation/admin-guide/sysctl/kernel.rst, numa_balancing; task_numa_work() in
        kernel/sched/fair.c and vma_policy_mof() in mm/mempolicy.c for what is left alone;
        NVIDIA Grace CPU Benchmarking Guide, Platform Configuration
    """
    try:
        value = host.integer(_BALANCING)
    except Missing as error:
        yield absent(host, error, "this kernel is built without automatic NUMA balancing")
        return
    evidence = host.evidence(_BALANCING)
    if value & ~(_NORMAL | _TIERING):
        yield unknown(
            f"kernel.numa_balancing is {value}: only its bits 1 and 2 are known",
            evidence=(evidence,),
        )
    elif value & _NORMAL:
        yield _balancing_on(host, target, value)
    elif value & _TIERING:
        yield _tiering_only(host)
    else:
        yield passed("automatic NUMA balancing is off", evidence=(evidence,))


def _balancing_on(host: "Host", target: Target, value: int) -> Finding:
    evidence = [host.evidence(_BALANCING)]
    # The boot option knows on and off alone: it would end the tiering, too.
    at_boot = Fix("grub", "numa_balancing=disable", True, True, True)
    path = f"{target.proc}/numa_maps"
    if policies := _exempting_policies(host, path):
        return info(
            "automatic NUMA balancing is on, but what is started from here is exempt: all its "
            f"memory has the policy {listed(policies)}",
            cause="The scanner leaves memory with an explicit policy alone, and children "
            "inherit that of their task. Processes started elsewhere are scanned.",
            evidence=[*evidence, host.evidence(path)],
        )
    return warn(
        f"automatic NUMA balancing is on over {len(host.topology.nodes)} nodes "
        f"(kernel.numa_balancing = {value})",
        cause="The kernel makes processes fault on their own pages, and moves a page to the node "
        "that faulted on it: a heap or a pool that was placed by first touch drifts. Memory with "
        "a policy (numactl, mbind) and hugetlb are left alone: harmless if all that is large "
        "has one.",
        evidence=evidence,
        fixes=(
            interleave(host, "COMMAND"),
            *sysctl_fixes("kernel.numa_balancing", value & ~_NORMAL),
            *(() if value & _TIERING else (at_boot,)),
        ),
    )


def _tiering_only(host: "Host") -> Finding:
    cause = "Pages in fast memory stay where they are; hot ones in slower memory move up."
    if len(host.topology.tiers) == 1:
        cause = "All memory of this machine is in one tier, so nothing moves."
    return info(
        "NUMA balancing is in tiering mode alone (kernel.numa_balancing = 2): it moves hot pages "
        "up from slow memory, and none between sockets",
        cause=cause,
        evidence=(host.evidence(_BALANCING),),
    )


def _exempting_policies(host: "Host", path: str) -> tuple[str, ...]:
    """The policies of all mappings of a process, if each keeps the scanner away; else empty.

    Only the calling process is looked at: its file is small, while that of a
    large process holds up its page faults for as long as it is read. Mappings of
    huge pages do not count, the scanner never looks at them.
    """
    try:
        lines = host.parse(path, parsers.parse_numa_maps).lines
    except Undecided:
        return ()
    texts = dict.fromkeys(line.pages.policy for line in lines if not line.pages.huge)
    policies = [parsers.parse_policy(text) for text in texts]
    exempt = all(
        policy.understood and policy.mode != "default" and "balancing" not in policy.flags
        for policy in policies
    )
    return tuple(texts) if exempt else ()


@check(
    "K014",
    name="numad",
    needs=(
        "/run/numad.pid",
        "/sys/fs/cgroup/system.slice/numad.service",
        "/proc/*/comm",
        "/var/run/numad.pid",
    ),
    requires=Requires.SEVERAL_NODES,
)
def numad(host: "Host", target: Target) -> Iterator[Finding]:
    """The daemon numad moves large processes and their memory between nodes as it sees fit.

    Why it matters
        numad watches the CPU and memory use of large processes and, every few seconds,
        sets the CPUs of some and migrates their pages to the nodes that it thinks best.
        An inference server that was placed by hand, by a scheduler or by its own engine
        is large and busy: numad picks it first. To migrate 100 GiB takes seconds in
        which the process stalls, and a pool that was interleaved ends on one node.

    When it is harmless
        When it leaves alone the processes that matter (numad -x PID, or -S 0 without
        them on its list).

    Fix
        Stop it, or have it leave a process alone:

            systemctl disable --now numad
            numad -x PID

    Source
        numad(8)
    """
    if running := _running_numad(host):
        yield warn(
            "numad is running: it moves large processes and their pages between nodes",
            cause="It undoes any placement that was made on purpose.",
            evidence=running,
            fixes=(
                Fix("any", "numad -x PID", needs_root=True),
                Fix("systemd", "systemctl disable --now numad", needs_root=True, persists=True),
            ),
        )
    elif (evidence := _whole_machine(host)) is None:
        yield unknown(
            "whether numad runs on this machine cannot be seen from here",
            cause="Neither the machine's services nor all its processes are visible in this "
            "container or captured folder: run numadoctor on the machine itself.",
            evidence=(host.evidence(_PID_FILES[0]),),
        )
    else:
        yield passed("numad is not running", evidence=(evidence,))


def _running_numad(host: "Host") -> list[Evidence]:
    """What shows that numad runs; empty where nothing does."""
    for folder in _SERVICES:
        # systemd removes a service's control group when its last process ends.
        if _listing(host, f"{folder}/numad.service"):
            return [Evidence(f"{folder}/numad.service", "the service's control group")]
    for path in _PID_FILES:
        try:
            comm = f"/proc/{host.integer(path)}/comm"
        except Undecided:
            continue
        # A file that was left behind names another process or none.
        if _comm(host, comm) == "numad":
            return [host.evidence(path), host.evidence(comm)]
    if _sees_all_processes(host) and not _services(host):
        for comm in _comms(host):
            if _comm(host, comm) == "numad":
                return [host.evidence(comm)]
    return []


def _whole_machine(host: "Host") -> Evidence | None:
    """What shows that the machine as a whole was looked at, not a container; else None."""
    sees_all = _sees_all_processes(host)
    if (services := _services(host)) and (sees_all or not host.live):
        text = f"{count(len(services), 'service')}, numad.service is not among them"
        return Evidence(services[0].rpartition("/")[0], text)
    if sees_all:
        text = f"{count(len(_comms(host)), 'process', 'processes')}, numad is not among them"
        return Evidence("/proc/*/comm", text)
    return None


def _sees_all_processes(host: "Host") -> bool:
    # The kernel's threads are in no container's process namespace.
    return _comm(host, "/proc/2/comm") == "kthreadd"


def _services(host: "Host") -> tuple[str, ...]:
    """The control groups of systemd's services, if all of them are to be seen."""
    for folder in _SERVICES:
        found = _listing(host, folder)
        if _ALWAYS_THERE in found:
            return tuple(f"{folder}/{name}" for name in found if name.endswith(".service"))
    return ()


def _comms(host: "Host") -> list[str]:
    return [f"/proc/{name}/comm" for name in _listing(host, "/proc") if name.isdigit()]


def _comm(host: "Host", path: str) -> str:
    try:
        return host.text(path)
    except Undecided:
        return ""


def _listing(host: "Host", folder: str) -> tuple[str, ...]:
    try:
        return host.list(folder)
    except Undecided:
        return ()


@check(
    "K015",
    name="damon-migration",
    needs=(
        f"{_KDAMONDS}/*/state",
        f"{_KDAMONDS}/*/contexts/*/schemes/*/action",
        "/sys/module/damon_*/parameters/enabled",
        f"{_KDAMONDS}/*/contexts/*/schemes/*/target_nid",
    ),
    requires=Requires.SEVERAL_NODES,
)
def damon_migration(host: "Host", target: Target) -> Iterator[Finding]:
    """DAMON schemes that are running move pages between nodes or out of memory.

    Why it matters
        DAMON watches which memory is used and applies schemes to what it finds.
        migrate_hot and migrate_cold (since Linux 6.11) move physical pages to a fixed
        node; pageout and the module damon_reclaim push pages out that were idle for a
        while (damon_reclaim: two minutes, up to 128 MiB a second). A KV cache of idle
        sessions is cold by that measure. Pages are picked by physical address, so the
        memory policy of the process that owns them is not asked.

    When it is harmless
        When the schemes were made for this machine, for instance to use CXL memory as
        a lower tier, and their filters leave the engine's control group out.
        damon_lru_sort only changes what is reclaimed first (info).

    Fix
        Stop the scheme, or exclude the engine's control group with a filter of type
        memcg:

            echo off > /sys/kernel/mm/damon/admin/kdamonds/0/state

    Source
        Documentation/admin-guide/mm/damon/usage.rst and reclaim.rst;
        Documentation/mm/damon/design.rst, Operation Action
    """
    if not _kernel_has_damon(host):
        yield skip("this kernel is built without DAMON")
        return
    findings = [*_schemes(host), *_modules(host)]
    yield from findings
    if not findings:
        yield passed(
            "no DAMON scheme is running",
            evidence=[
                Evidence(_KDAMONDS, count(len(_numbered(host, _KDAMONDS)), "monitoring thread")),
                *(host.evidence(_module_switch(name)) for name in _DAMON_MODULES),
            ],
        )


def _kernel_has_damon(host: "Host") -> bool:
    """Whether DAMON is there.

    :raises Missing: there is nothing of it in a folder that holds too little to tell
    """
    present = names(host, f"{MM}/damon") or any(
        names(host, f"/sys/module/{name}") for name in _DAMON_MODULES
    )
    if not present and not shows(host, MM):
        raise Missing(f"{MM}/damon")
    return bool(present)


def _numbered(host: "Host", folder: str) -> list[str]:
    return [f"{folder}/{number}" for number in parsers.numbered(names(host, folder), "")]


def _schemes(host: "Host") -> Iterator[Finding]:
    for kdamond in _numbered(host, _KDAMONDS):
        if host.text(f"{kdamond}/state") != "on":
            continue
        for context in _numbered(host, f"{kdamond}/contexts"):
            for scheme in _numbered(host, f"{context}/schemes"):
                yield from _scheme(host, kdamond, scheme)


def _scheme(host: "Host", kdamond: str, scheme: str) -> Iterator[Finding]:
    action = host.text(f"{scheme}/action")
    subject = f"DAMON thread {kdamond.rpartition('/')[2]}"
    evidence = [host.evidence(f"{kdamond}/state"), host.evidence(f"{scheme}/action")]
    if action in _MIGRATING:
        evidence.append(host.evidence(f"{scheme}/target_nid"))
        where = f" to node {evidence[-1].text}" if evidence[-1].text.isdigit() else ""
        message = f"{subject} migrates pages{where} (action {action})"
    elif action in _EVICTING:
        message = f"{subject} pages idle memory out (action {action})"
    else:
        return
    yield warn(
        message,
        subject=subject,
        cause="It picks pages by how they are used, whatever memory policy their owner has: "
        "memory placed on purpose does not stay where it was put.",
        evidence=evidence,
        fixes=(Fix("sysfs", f"echo off > {kdamond}/state", needs_root=True),),
    )


def _module_switch(name: str) -> str:
    return f"/sys/module/{name}/parameters/enabled"


def _modules(host: "Host") -> Iterator[Finding]:
    for name, what in _DAMON_MODULES.items():
        path = _module_switch(name)
        if not host.optional(lambda path: host.parse(path, parsers.parse_flag), path):
            continue
        finding = warn if name == "damon_reclaim" else info
        yield finding(
            f"the kernel module {name} is on: it {what}",
            subject=name,
            cause="A KV cache of idle sessions counts as unused.",
            evidence=(host.evidence(path),),
            fixes=(
                *sysfs_fixes(path, "N"),
                Fix("grub", f"{name}.enabled=N", True, True, True),
            ),
        )
