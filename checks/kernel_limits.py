"""Settings that limit or hide: counters, mappings, overcommit, CPU frequency, missing features."""

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numadoctor.engine import Requires, check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Malformed,
    Missing,
    Severity,
    Target,
    Undecided,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.units import amount
from numadoctor.model.words import listed, nodes_text

from ._kernel import absent, field, meminfo, names, sysctl_fixes, total_memory

if TYPE_CHECKING:
    from numadoctor.host import Host

_NUMA_STAT = "/proc/sys/vm/numa_stat"
_MAP_COUNT = "/proc/sys/vm/max_map_count"
_OVERCOMMIT = "/proc/sys/vm/overcommit_memory"
_RATIO = "/proc/sys/vm/overcommit_ratio"
_CPUS = "/sys/devices/system/cpu"
_CPUFREQ = f"{_CPUS}/cpufreq"

# The kernel's own default (include/linux/mm.h): 65,536 less a margin for core dumps.
_DEFAULT_MAP_COUNT = 65_530
# What several distributions set since 2023, and a count that a slab of 2 MiB needs
# for 2 TiB.
_USUAL_MAP_COUNT = 1_048_576
# The smallest slab an allocator binds by itself: one huge page.
_SLAB = 2 << 20

# Drivers whose governor named powersave is no fixed low frequency but the
# hardware's or the driver's own choice by load.
_DYNAMIC_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
_FOLLOWING = ("ondemand", "conservative", "schedutil")


@check("K006", name="numa-counters", needs=(_NUMA_STAT,), requires=Requires.NUMA)
def numa_counters(host: "Host", target: Target) -> Iterator[Finding]:
    """The counters of NUMA allocations are switched off: numastat shows old figures.

    Why it matters
        numa_hit, numa_miss, numa_foreign, interleave_hit, local_node and other_node in
        /sys/devices/system/node/node*/numastat and /proc/vmstat stop with vm.numa_stat
        = 0. numastat, dashboards and bench tools go on showing them, as if no page
        were ever allocated on another node.

    When it is harmless
        When nobody looks: counting costs some nanoseconds per page, which matters to
        network loads of millions of packets a second, not to inference.

    Fix
        Let them count:

            sysctl -w vm.numa_stat=1

    Source
        Documentation/admin-guide/sysctl/vm.rst, numa_stat (since Linux 4.15);
        Documentation/admin-guide/numastat.rst
    """
    try:
        value = host.integer(_NUMA_STAT)
    except Missing as error:
        absent(host, error, "")  # or the absence would say nothing
        yield passed(
            "this kernel cannot switch the NUMA counters off", evidence=(host.evidence(_NUMA_STAT),)
        )
        return
    if value:
        yield passed("the NUMA counters count", evidence=(host.evidence(_NUMA_STAT),))
        return
    yield warn(
        "the NUMA counters are switched off (vm.numa_stat = 0): numastat shows figures that stand "
        "still",
        cause="Misses and remote allocations do not show, however many there are.",
        evidence=(host.evidence(_NUMA_STAT),),
        fixes=sysctl_fixes("vm.numa_stat", 1),
    )


@check(
    "K007",
    name="max-map-count",
    needs=(_MAP_COUNT, "/proc/meminfo"),
    requires=Requires.SEVERAL_NODES,
)
def max_map_count(host: "Host", target: Target) -> Iterator[Finding]:
    """How many mappings a process may have, against the memory it may want to bind in slabs.

    Why it matters
        Each mbind of part of a mapping splits it, unless its neighbours have the same
        policy. An allocator that binds slab by slab, this one here and the next there,
        needs a mapping for each: at 2 MiB a slab the default of 65,530 is used up after
        128 GiB, and mmap, mbind, mprotect and the start of a thread fail with ENOMEM
        while memory is free. Each mapped file and each thread's stack counts as well.

    When it is harmless
        When pools are interleaved as a whole, by one call for one large mapping.

    Fix
        Bind large mappings with one call (MPOL_INTERLEAVE over the whole pool), or
        raise the limit; a mapping costs about 200 bytes of kernel memory:

            sysctl -w vm.max_map_count=1048576

    Source
        Documentation/admin-guide/sysctl/vm.rst, max_map_count; mbind_range() in
        mm/mempolicy.c
    """
    limit, memory = host.integer(_MAP_COUNT), total_memory(host)
    reach = limit * _SLAB
    evidence = (host.evidence(_MAP_COUNT), host.evidence("/proc/meminfo", "MemTotal"))
    slabs = 1 << (memory // _SLAB).bit_length()
    fixes = sysctl_fixes("vm.max_map_count", max(_USUAL_MAP_COUNT, slabs))
    message = (
        f"a process may have {limit:,} mappings: enough to bind {amount(reach)} in slabs of 2 MiB"
    )
    cause = "When they are used up, mbind and mmap fail with ENOMEM while memory is free."
    if limit < _DEFAULT_MAP_COUNT:
        yield warn(
            f"{message}; the kernel's default is {_DEFAULT_MAP_COUNT:,}",
            cause=cause,
            evidence=evidence,
            fixes=fixes,
        )
    elif reach < memory:
        yield info(
            f"{message}, and the machine has {amount(memory)}",
            cause=f"{cause} It matters to allocators that bind slab by slab.",
            evidence=evidence,
            fixes=fixes,
        )
    else:
        yield passed(message, evidence=evidence)


@check("K012", name="overcommit", needs=(_OVERCOMMIT, _RATIO, "/proc/meminfo"))
def overcommit(host: "Host", target: Target) -> Iterator[Finding]:
    """Strict overcommit refuses large pools before memory is short.

    Why it matters
        With vm.overcommit_memory = 2 the kernel adds up what all processes have asked
        for, touched or not, and refuses what goes beyond CommitLimit: swap plus
        vm.overcommit_ratio (50 by default) percent of memory without the hugetlb
        pools. On a machine without swap half of the memory is not to be had. Private
        mappings and shared memory count in full from mmap on, MAP_NORESERVE is
        ignored, and fork of a large process needs as much again: engines that map
        weights privately, reserve a KV pool and fork workers fail with ENOMEM at
        start.

    When it is harmless
        When the limit is above what all processes ask for: a ratio near 100, or enough
        swap. 0 (refuse only what can never fit) and 1 (refuse nothing) pass.

    Fix
        Let the kernel refuse only what can never fit, or raise the limit:

            sysctl -w vm.overcommit_memory=0
            sysctl -w vm.overcommit_ratio=95

    Source
        Documentation/mm/overcommit-accounting.rst; proc_meminfo(5), CommitLimit
    """
    try:
        value = host.integer(_OVERCOMMIT)
    except Missing as error:
        yield absent(host, error, "this kernel has no overcommit policy")
        return
    if value in (0, 1):
        what = "only what can never fit" if value == 0 else "nothing"
        yield passed(
            f"the kernel refuses {what} (vm.overcommit_memory = {value})",
            evidence=(host.evidence(_OVERCOMMIT),),
        )
        return
    if value != 2:
        raise Malformed(_OVERCOMMIT, None, f"{value} is none of 0, 1, 2")
    yield _strict_overcommit(host)


def _strict_overcommit(host: "Host") -> Finding:
    values = meminfo(host)
    limit, asked = field(values, "CommitLimit"), field(values, "Committed_AS")
    memory = field(values, "MemTotal")
    # Without its huge page pools: they count in neither figure.
    usable = memory - values.get("Hugetlb", 0)
    evidence = [
        host.evidence(_OVERCOMMIT),
        host.evidence(_RATIO),
        host.evidence("/proc/meminfo", "CommitLimit", "Committed_AS", "MemTotal"),
    ]
    message = (
        f"strict overcommit (vm.overcommit_memory = 2): {amount(max(0, limit - asked))} can still "
        f"be asked for, of a limit of {amount(limit)} and {amount(memory)} of memory"
    )
    finding = warn if limit < usable * 0.9 else info
    return finding(
        message,
        cause="Memory counts from mmap on, whether it is touched or not: a pool or a fork beyond "
        "the limit fails with ENOMEM.",
        evidence=evidence,
        fixes=(
            *sysctl_fixes("vm.overcommit_memory", 0),
            *sysctl_fixes("vm.overcommit_ratio", 95),
        ),
    )


@check(
    "K013",
    name="cpu-governor",
    needs=(
        f"{_CPUFREQ}/policy*/scaling_governor",
        f"{_CPUFREQ}/policy*/scaling_driver",
        f"{_CPUFREQ}/policy*/energy_performance_preference",
        "/sys/devices/system/cpu/cpufreq/policy*/affected_cpus",
        "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    ),
    severity=Severity.LOW,
)
def cpu_governor(host: "Host", target: Target) -> Iterator[Finding]:
    """The CPU frequency governor: at the lowest frequency, or another on each node.

    Why it matters
        Inference is full of short CPU work between GPU kernels: launches, sampling,
        scheduling, copies. The governor powersave of most drivers holds a CPU at its
        lowest frequency whatever the load. ondemand and conservative wait for a load
        to last; schedutil follows it within milliseconds. Where nodes have different
        governors equal instances run at different speeds, and a comparison of
        placements measures the governor.

    When it is harmless
        powersave of intel_pstate and amd-pstate in active mode is not the lowest
        frequency: the processor follows the load by itself, as its
        energy_performance_preference says (information). On most virtual machines
        there is nothing to set.

    Fix
        Until the next start, or for good (the boot option since Linux 5.9):

            cpupower frequency-set -g performance
            tuned-adm profile throughput-performance
            cpufreq.default_governor=performance

    Source
        Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst and amd-pstate.rst
    """
    policies = _policies(host)
    if not policies:
        if _in_virtual_machine(host):
            yield skip("the hypervisor sets the CPU frequencies of this virtual machine")
            return
        if not host.has(_CPUS if host.live else _CPUFREQ):
            raise Missing(_CPUFREQ)
        yield skip("the kernel does not set CPU frequencies here")
        return
    governors: dict[str, list[int]] = {}
    for policy, folder in policies.items():
        governors.setdefault(host.text(f"{folder}/scaling_governor"), []).append(policy)
    evidence = [
        host.evidence(f"{policies[members[0]]}/scaling_governor") for members in governors.values()
    ]
    if len(governors) == 1:
        yield _one_governor(host, next(iter(governors)), next(iter(policies.values())), evidence)
        return
    cpus = {
        name: {cpu for policy in members for cpu in _cpus(host, policy, policies[policy])}
        for name, members in governors.items()
    }
    shares = listed(f"{name} on {_where(host, cpus, name)}" for name in cpus)
    yield warn(
        f"CPUs run under different governors: {shares}",
        cause="Equal work takes a different time on different CPUs.",
        evidence=evidence,
        fixes=_to_performance(),
    )


def _in_virtual_machine(host: "Host") -> bool:
    from numadoctor.host.virtual import read_virtual

    try:
        return read_virtual(host).virtual
    except Undecided:
        return False


def _policies(host: "Host") -> dict[int, str]:
    """First CPU of each frequency policy to the policy's folder.

    Policies have a folder of their own since Linux 4.2; before, each CPU had one.
    """
    found = {n: f"{_CPUFREQ}/policy{n}" for n in parsers.numbered(names(host, _CPUFREQ), "policy")}
    if found:
        return found
    folders = {cpu: f"{_CPUS}/cpu{cpu}/cpufreq" for cpu in host.topology.online_cpus}
    return {
        cpu: folder for cpu, folder in folders.items() if "scaling_governor" in names(host, folder)
    }


def _cpus(host: "Host", policy: int, folder: str) -> tuple[int, ...]:
    """The CPUs that share a frequency policy."""
    return host.optional(host.ids, f"{folder}/affected_cpus") or (policy,)


def _where(host: "Host", cpus: dict[str, set[int]], name: str) -> str:
    """The nodes whose CPUs all have the governor ``name``, if that are all that have it."""
    others = {cpu for other in cpus if other != name for cpu in cpus[other]}
    nodes = [node for node in host.topology.nodes if cpus[name] & set(node.cpus)]
    if nodes and not any(others & set(node.cpus) for node in nodes):
        return nodes_text(node.id for node in nodes)
    return f"CPUs {parsers.format_list(cpus[name])}"


def _one_governor(host: "Host", governor: str, folder: str, evidence: list[Evidence]) -> Finding:
    driver_file = f"{folder}/scaling_driver"
    if governor == "performance":
        return passed("all CPUs run under the governor performance", evidence=evidence)
    if governor == "powersave":
        driver = host.text(driver_file)
        evidence = [*evidence, host.evidence(driver_file)]
        if driver in _DYNAMIC_DRIVERS:
            return _dynamic(host, driver, folder, evidence)
        return warn(
            f"all CPUs are held at their lowest frequency (governor powersave of {driver})",
            cause="Launches, sampling and copies between GPU kernels run at that frequency, "
            "whatever the load.",
            evidence=evidence,
            fixes=_to_performance(),
        )
    if governor in _FOLLOWING:
        message = f"CPU frequencies follow the load (governor {governor})"
    elif governor == "userspace":
        message = "CPU frequencies are set by a program (governor userspace)"
    else:
        return unknown(f"the governor {governor!r} is not known", evidence=evidence)
    return info(
        message,
        cause="Short work between GPU kernels may run below the highest frequency, and timings "
        "vary.",
        evidence=evidence,
        fixes=_to_performance(),
    )


def _dynamic(host: "Host", driver: str, folder: str, evidence: list[Evidence]) -> Finding:
    preference = f"{folder}/energy_performance_preference"
    try:
        text = f", preference {host.text(preference)}"
        evidence = [*evidence, host.evidence(preference)]
    except Undecided:
        text = ""
    return info(
        f"the processor follows the load by itself (governor powersave of {driver}{text})",
        cause="It is not held at its lowest frequency, despite the name; performance asks for "
        "the highest at once.",
        evidence=evidence,
        fixes=_to_performance(),
    )


def _to_performance() -> tuple[Fix, ...]:
    return (
        Fix("any", "cpupower frequency-set -g performance", needs_root=True),
        Fix("any", "tuned-adm profile throughput-performance", needs_root=True, persists=True),
        Fix("grub", "cpufreq.default_governor=performance", True, True, True),
    )


# What each feature is for, and what happens without it.
_FEATURES = {
    "MPOL_PREFERRED_MANY": (
        "prefer several nodes",
        "MPOL_PREFERRED takes one node, and numactl 2.0.18 fails on --membind",
    ),
    "MPOL_WEIGHTED_INTERLEAVE": ("interleave by bandwidth", "MPOL_INTERLEAVE, 1:1"),
    "MPOL_F_NUMA_BALANCING": (
        "let balancing move bound pages among their nodes",
        "bound pages stay where they were first touched",
    ),
    "MADV_POPULATE_WRITE": ("touch a pool in one call", "touch it page by page"),
    "MADV_COLLAPSE": ("make huge pages at once", "khugepaged makes them in time"),
    "set_mempolicy_home_node": (
        "choose where a bound mapping allocates first",
        "the node of the thread that touches it",
    ),
}


@check("K016", name="kernel-features", needs=("fact features",), requires=Requires.NUMA)
def kernel_features(host: "Host", target: Target) -> Iterator[Finding]:
    """What this kernel offers for memory placement, found by trying.

    Why it matters
        Vendors carry features back to old kernels and leave them out of new ones, so
        that a version tells little. Programs that use a feature which is not there
        fail or, more often, do something else in silence: this is the list of what
        falls back to what.

        MPOL_PREFERRED_MANY (Linux 5.15) · MPOL_WEIGHTED_INTERLEAVE (6.9) ·
        MPOL_F_NUMA_BALANCING (5.12) · MADV_POPULATE_WRITE (5.14) · MADV_COLLAPSE (6.1) ·
        set_mempolicy_home_node (5.17).

    When it is harmless
        Always, unless a program needs what is missing. It is information.

    Fix
        A newer kernel. Where a call is refused, so that it cannot be tried, see
        `numadoctor syscalls`.

    Source
        set_mempolicy(2), mbind(2), madvise(2), set_mempolicy_home_node(2)
    """
    answers = host.fact("features")
    if not isinstance(answers, dict):
        raise Malformed("features", None, "it is no object")
    sorted_out: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for name in _FEATURES:
        sorted_out[_available(answers.get(name))].append(name)
    present, missing, untold = sorted_out[True], sorted_out[False], sorted_out[None]
    evidence = tuple(
        Evidence(f"trying {name}", _answer(answers.get(name))) for name in (*missing, *untold)
    )
    if present or missing:
        yield _features(present, missing, evidence)
    if untold:
        yield unknown(
            f"whether this kernel has {listed(untold)} cannot be told",
            subject="refused",
            cause="The calls are refused or were not tried: `numadoctor syscalls` tells by whom.",
            evidence=evidence,
        )


def _features(present: list[str], missing: list[str], evidence: tuple[Evidence, ...]) -> Finding:
    if not missing:
        return passed(
            f"this kernel has {listed(present)}",
            evidence=[Evidence(f"trying {name}", "available") for name in present],
        )
    fallbacks = "; ".join(f"without {name}: {_FEATURES[name][1]}" for name in missing)
    there = f", and has {listed(present)}" if present else ""
    return info(
        f"this kernel lacks {listed(missing)}{there}",
        cause=f"What falls back to what: {fallbacks}.",
        evidence=evidence,
    )


def _available(record: Any) -> bool | None:
    value = record.get("available") if isinstance(record, dict) else None
    return value if isinstance(value, bool) else None


def _answer(record: Any) -> str:
    if not isinstance(record, dict):
        return "no answer"
    if record.get("reason"):
        return str(record["reason"])
    number = record.get("errno")
    return f"answers {errno.errorcode.get(number, number)}" if number else "not available"
