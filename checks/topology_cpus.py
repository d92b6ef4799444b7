"""CPUs in nodes: sockets that are split, lists that cut cores, offline and isolated CPUs."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Missing,
    ParseError,
    Severity,
    Target,
    Topology,
    Undecided,
    fail,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.words import count, listed, nodes_text

from ._topology import (
    COMMAND_LINE,
    CPUS,
    NODES,
    be,
    boot_fix,
    cpu_text,
    is_virtual,
    platform_fixes,
    short_list,
    unread_nodes,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

_TOPOLOGY = f"{CPUS}/cpu*/topology"

# As for memory: a few CPUs that are offline are told by T008.
_IMBALANCE = 0.10


def _packages(topology: Topology) -> dict[int, set[int]]:
    """Package to the nodes that hold CPUs of it."""
    home = _home(topology)
    packages: dict[int, set[int]] = {}
    for cpu in topology.cpus:
        if cpu.package is not None and cpu.id in home:
            packages.setdefault(cpu.package, set()).add(home[cpu.id])
    return packages


def _home(topology: Topology) -> dict[int, int]:
    """CPU to its node."""
    return {cpu: node.id for node in topology.nodes for cpu in node.cpus}


def _mixed(packages: dict[int, set[int]]) -> set[int]:
    """Nodes that hold CPUs of several packages and not all CPUs of each."""
    nodes = {node for members in packages.values() for node in members}
    mixed = set()
    for node in nodes:
        inside = [members for members in packages.values() if node in members]
        if len(inside) > 1 and any(members != {node} for members in inside):
            mixed.add(node)
    return mixed


def _overlap(topology: Topology) -> bool:
    """Whether nodes claim the same CPUs, so that no CPU has a place (T001 and T005 tell)."""
    return sum(len(node.cpus) for node in topology.nodes) > len(_home(topology))


def _places(topology: Topology) -> Evidence:
    """Which CPUs each package has: drawn from one file per CPU, so not cited as a file."""
    members: dict[int, list[int]] = {}
    for cpu in topology.cpus:
        if cpu.package is not None:
            members.setdefault(cpu.package, []).append(cpu.id)
    text = "; ".join(f"{p}: {short_list(cpus)}" for p, cpus in sorted(members.items())[:8])
    return Evidence(f"{_TOPOLOGY}/physical_package_id", text)


def _node_lists(host: "Host", nodes: Iterable[int]) -> list[Evidence]:
    return [host.evidence(f"{NODES}/node{node}/cpulist") for node in sorted(nodes)[:4]]


@check(
    "T006",
    name="sub-numa-clustering",
    needs=(f"{_TOPOLOGY}/physical_package_id", f"{NODES}/node*/cpumap", "/proc/cpuinfo"),
    requires=Requires.SEVERAL_NODES,
)
def sub_numa_clustering(host: "Host", target: Target) -> Iterator[Finding]:
    """A socket is split into several nodes (NPS on AMD EPYC, SNC on Intel Xeon).

    Why it matters
        Here a node is not a socket. Each has its own share of the memory channels: a
        thread that stays on one has lower latency, and a process that is bound to one
        has a quarter, say, of the socket's bandwidth and memory. A GPU or a NIC is near
        to one of the nodes, so that half a socket may be the wrong half. Tools that
        print sockets for nodes mislead, and so do launchers that take the GPU's index
        divided by the GPUs per socket for the node.

    When it is harmless
        Always, as long as one counts nodes. A pool should be interleaved over all nodes
        of the socket that its GPUs are on.

    Fix
        Nothing has to be changed. One node per socket is easier to place on: BIOS,
        NPS1 (AMD) or SNC disabled (Intel).

    Source
        Documentation/arch/x86/topology.rst; AMD EPYC BIOS & Workload Tuning Guide (NPS);
        Documentation/ABI/stable/sysfs-devices-system-cpu (physical_package_id)
    """
    topology = host.topology
    packages = _packages(topology)
    if unread := unread_nodes(host, "which CPUs are on", "cpumap"):
        yield from unread
        return
    if not packages:
        yield unknown(
            "whether sockets are split into nodes: no CPU says which package it is in",
            evidence=[_places(topology)],
        )
        return
    if _overlap(topology) or _mixed(packages):
        yield skip("nodes do not follow packages at all: T005 and T007 tell")
        return
    split = {package: nodes for package, nodes in packages.items() if len(nodes) > 1}
    if not split:
        yield passed(
            f"no package is split: {count(len(packages), 'package')} in "
            f"{count(len({n for m in packages.values() for n in m}), 'node')}",
            evidence=[_places(topology)],
        )
        return
    parts = [f"package {p} holds {nodes_text(nodes)}" for p, nodes in sorted(split.items())]
    yield info(
        f"{listed(parts)}{_called(host, split)}: say nodes, not sockets",
        cause="Each of these nodes has a part of its socket's cores, memory channels and devices.",
        evidence=[_places(topology), *_node_lists(host, {n for m in split.values() for n in m})],
    )


def _called(host: "Host", split: dict[int, set[int]]) -> str:
    """What the maker calls such a split."""
    sizes = {len(nodes) for nodes in split.values()}
    try:
        model = host.parse("/proc/cpuinfo", parsers.parse_cpuinfo).model or ""
    except Undecided:
        return ""
    name = next((name for word, name in _MODES.items() if word in model), None)
    return f" ({name}{sizes.pop()})" if name and len(sizes) == 1 else ""


# Nodes per socket; sub-NUMA clustering. Older processors of both makers had
# packages of two dies, each a node, and no such mode.
_MODES = {"EPYC": "NPS", "Xeon": "SNC", "XEON": "SNC"}


@check(
    "T007",
    name="nodes-cut-packages",
    needs=(
        f"{_TOPOLOGY}/physical_package_id",
        f"{_TOPOLOGY}/core_cpus",
        f"{NODES}/node*/cpumap",
    ),
    requires=Requires.SEVERAL_NODES,
    severity=Severity.HIGH,
)
def nodes_cut_packages(host: "Host", target: Target) -> Iterator[Finding]:
    """The CPU lists of the nodes cut through cores, or mix parts of several packages.

    Why it matters
        Two threads of one core share its caches and cannot be at two places: where they
        are in different nodes, the nodes are an invention. In a virtual machine this
        happens when the list of CPUs per virtual node does not match the virtual
        sockets. The guest's scheduler then keeps apart what shares a cache, and a
        process that is bound to a node is spread over all sockets: it pays for NUMA and
        gets nothing for it.

    When it is harmless
        A package that consists of whole nodes is no fault (T006), nor is a node that
        consists of whole packages.

    Fix
        A virtual machine: give each node the CPUs of one virtual socket, and pin them to
        one physical node.

            <topology sockets='2' cores='4' threads='2'/>
            <numa><cell id='0' cpus='0-7' .../><cell id='1' cpus='8-15' .../></numa>

        A physical machine: the firmware's tables (SRAT, MADT, PPTT) are wrong; update it.

    Source
        Documentation/ABI/stable/sysfs-devices-system-cpu; topology_span_sane() in
        kernel/sched/topology.c; libvirt, domain XML, CPU model and topology
    """
    topology = host.topology
    if unread := unread_nodes(host, "which CPUs are on", "cpumap"):
        yield from unread
        return
    if _overlap(topology):
        yield skip("nodes claim the same CPUs: T001 or T005 tells")
        return
    packages, cores = _packages(topology), _cores(topology)
    if not packages and not cores:
        yield unknown(
            "whether node lists match cores and packages: no CPU says where it sits",
            evidence=[host.evidence(f"{CPUS}/cpu0/topology/core_cpus"), _places(topology)],
        )
        return
    home = _home(topology)
    cut = [core for core in cores if len({home[cpu] for cpu in core}) > 1]
    mixed = _mixed(packages)
    if not cut and not mixed:
        yield passed(
            f"the CPU lists of {count(len(topology.nodes), 'node')} follow cores and packages",
            evidence=[_places(topology), *_node_lists(host, {node.id for node in topology.nodes})],
        )
        return
    yield _cut(host, topology, cut, mixed)


def _cores(topology: Topology) -> list[tuple[int, ...]]:
    """The threads of each core that are in a node."""
    home = _home(topology)
    cores = {tuple(c for c in cpu.siblings if c in home) for cpu in topology.cpus if cpu.siblings}
    return sorted(core for core in cores if core)


def _cut(host: "Host", topology: Topology, cut: list[tuple[int, ...]], mixed: set[int]) -> Finding:
    home = _home(topology)
    parts = []
    evidence = _node_lists(host, mixed or set(home.values()))
    if cut:
        first = cut[0]
        parts.append(
            f"{count(len(cut), 'core')} cut in two: {cpu_text(first)} are threads of one core, "
            f"on {nodes_text({home[cpu] for cpu in first})}"
        )
        evidence.insert(0, host.evidence(f"{CPUS}/cpu{first[0]}/topology/core_cpus"))
    if mixed:
        which = [p for p, nodes in _packages(topology).items() if nodes & mixed]
        verb = "holds" if len(mixed) == 1 else "each hold"
        parts.append(f"{nodes_text(mixed)} {verb} a part of packages {short_list(which)}")
        evidence.insert(0, _places(topology))
    guest = is_virtual(host)
    what = "virtual nodes do not match the virtual packages" if guest else "nodes do not match"
    return fail(
        f"{what}: {'; '.join(parts)}",
        cause="What the kernel takes for one place is several: binding to such a node spreads a "
        "process over caches and sockets instead of keeping it on one.",
        evidence=evidence,
        fixes=platform_fixes(
            host,
            ["update the firmware: its tables (SRAT, PPTT) put one core on several nodes"],
            {
                "libvirt": "<numa>: give each <cell> the cpus of whole sockets of <topology>",
                "qemu": "-numa node,nodeid=0,cpus=0-7 with the CPUs of one socket of -smp",
            },
        ),
    )


@check(
    "T008",
    name="offline-cpus",
    needs=(
        f"{CPUS}/online",
        f"{CPUS}/present",
        _TOPOLOGY,
        f"{CPUS}/smt/control",
    ),
)
def offline_cpus(host: "Host", target: Target) -> Iterator[Finding]:
    """Some CPUs of the machine are offline.

    Why it matters
        CPU numbers are names: with CPU 3 offline, the list is 0-2,4-23. A launcher that
        counts 24 CPUs and binds to the range 0-23, or to 3, gets EINVAL from
        sched_setaffinity or a thread less than it asked for.

    When it is harmless
        When it is meant: SMT switched off, cores parked, cores taken out by the firmware
        after errors. Lists that are read from sysfs are right all the same.

    Fix
        Take CPU lists from the machine. Bring a CPU back:

            echo 1 > /sys/devices/system/cpu/cpu3/online

    Source
        Documentation/core-api/cpu_hotplug.rst; Documentation/admin-guide/hw-vuln (nosmt)
    """
    online, present = (host.ids(f"{CPUS}/{name}") for name in ("online", "present"))
    offline = sorted(set(present) - set(online))
    evidence = [host.evidence(f"{CPUS}/online"), host.evidence(f"{CPUS}/present")]
    if not offline:
        text = f"all {count(len(online), 'CPU')} are online" if len(online) > 1 else "1 CPU, online"
        yield passed(text, evidence=evidence)
        return
    smt = _smt_is_off(host)
    fix = Fix("sysfs", f"echo 1 > {CPUS}/cpu{offline[0]}/online", needs_root=True)
    if smt:
        evidence.append(host.evidence(f"{CPUS}/smt/control"))
        fix = Fix("sysfs", f"echo on > {CPUS}/smt/control", needs_root=True)
    yield info(
        f"{len(online)} of {count(len(present), 'CPU')} are online; {cpu_text(offline)} "
        f"{be(offline)} offline{', with SMT off' if smt else ''}",
        cause="A CPU list that names one of them fails, or is silently shortened; a range from "
        "the first CPU to the last is wrong.",
        evidence=evidence,
        fixes=[fix],
    )


def _smt_is_off(host: "Host") -> bool:
    try:
        return host.text(f"{CPUS}/smt/control") in ("off", "forceoff")
    except Undecided:
        return False


@check(
    "T009",
    name="cpu-imbalance",
    needs=(f"{NODES}/node*/cpumap", f"{NODES}/node*/meminfo"),
    requires=Requires.SEVERAL_NODES,
)
def cpu_imbalance(host: "Host", target: Target) -> Iterator[Finding]:
    """The nodes with memory have unequal numbers of CPUs.

    Why it matters
        Launchers give each instance the CPUs of one node, or the same number of workers
        to each: the node with fewer is the slow one, and what is sharded over all nodes
        runs at its pace. In a virtual machine it is a sign that the nodes were drawn
        without looking at the machine below.

    When it is harmless
        When the GPUs do the work and the CPUs of the smaller node suffice to feed them.

    Fix
        Bring offline CPUs back (T008), or give the instances the same number of CPUs. A
        virtual machine: give each node as many CPUs as the others.

    Source
        Documentation/ABI/stable/sysfs-devices-node (cpumap)
    """
    nodes = host.topology.host_nodes
    if unread := unread_nodes(host, "how many CPUs are on", "cpumap"):
        yield from unread
        return
    if len(nodes) < 2:
        yield skip("fewer than two nodes have both CPUs and memory")
        return
    least, most = min(nodes, key=lambda n: len(n.cpus)), max(nodes, key=lambda n: len(n.cpus))
    few, many = len(least.cpus), len(most.cpus)
    evidence = _node_lists(host, {least.id, most.id})
    if many - few <= _IMBALANCE * many:
        counts = f"{few}" if few == many else f"{few} to {many}"
        text = f"the {len(nodes)} nodes with memory and CPUs have {counts} CPUs each"
        yield passed(text, evidence=evidence)
        return
    yield warn(
        f"node {least.id} has {count(few, 'CPU')}, node {most.id} has {many}",
        cause="Work that is divided equally between the nodes waits for the smaller one.",
        evidence=evidence,
        fixes=[
            Fix("any", f"give each instance at most {count(few, 'CPU')}"),
            *platform_fixes(
                host,
                ["enable the same number of cores in each socket"],
                {"libvirt": "<numa>: give each <cell> the same number of cpus"},
            ),
        ],
    )


_ISOLATED = f"{CPUS}/isolated"
_PARTITIONS = "/sys/fs/cgroup/cpuset.cpus.isolated"


@check(
    "T013",
    name="isolated-cpus",
    needs=(_ISOLATED, f"{CPUS}/nohz_full", _PARTITIONS, COMMAND_LINE, f"{NODES}/node*/cpumap"),
)
def isolated_cpus(host: "Host", target: Target) -> Iterator[Finding]:
    """Some CPUs are taken from the scheduler (isolcpus, nohz_full, isolated partitions).

    Why it matters
        No thread is put on an isolated CPU unless it is pinned there, and several that
        are pinned to a list of them all run on its first: the scheduler does not balance
        between them. An engine that starts 32 workers with the affinity of a node whose
        CPUs are isolated runs them on one CPU. And where all CPUs of a node are
        isolated, nothing unpinned ever touches memory there first, so that first touch
        fills the other nodes only.

    When it is harmless
        On machines that are partitioned on purpose, for one pinned thread per CPU.

    Fix
        Give isolated CPUs one pinned thread each, and leave them out of the lists of all
        others; or take the option off the kernel's command line.

    Source
        Documentation/admin-guide/kernel-parameters.txt (isolcpus, nohz_full);
        Documentation/admin-guide/cgroup-v2.rst (cpuset.cpus.isolated)
    """
    sources = _isolated_by(host)
    isolated = sorted({cpu for cpus in sources.values() for cpu in cpus})
    evidence = [host.evidence(path) for path in sources] or [host.evidence(_ISOLATED)]
    if not isolated:
        yield passed("no CPU is isolated from the scheduler", evidence=evidence)
        return
    whole = [node.id for node in host.topology.host_nodes if set(node.cpus) <= set(isolated)]
    message = f"{cpu_text(isolated)} {be(isolated)} isolated from the scheduler"
    cause = "Only threads that are pinned run there, and several that are pinned to the same list "
    cause += "all run on one CPU of it."
    fixes = [
        Fix("any", "pin one thread to each isolated CPU, and nothing else", needs_restart=True),
        boot_fix(f"remove {_options(host) or 'isolcpus'} from the kernel's command line"),
    ]
    if whole:
        yield warn(
            f"{message}: all of {nodes_text(whole)}",
            subject=f"{nodes_text(whole)}",
            cause=f"{cause} Nothing unpinned ever touches memory on {nodes_text(whole)} first.",
            evidence=evidence,
            fixes=fixes,
        )
    else:
        yield info(message, cause=cause, evidence=evidence, fixes=fixes)


def _isolated_by(host: "Host") -> dict[str, tuple[int, ...]]:
    """File to the CPUs that it says are isolated.

    :raises Undecided: sysfs does not say, nor does the command line
    """
    found = {}
    for path in (_ISOLATED, f"{CPUS}/nohz_full", _PARTITIONS):
        if cpus := _cpus_in(host, path):
            found[path] = cpus
    if not found and host.optional(host.text, _ISOLATED) is None:
        # The file is there since Linux 4.0; before that the option alone tells.
        options = dict(host.parse(COMMAND_LINE, parsers.parse_command_line))
        try:
            cpus = parsers.parse_isolcpus((options.get("isolcpus") or "").encode())
        except ParseError:
            cpus = ()
        if cpus:
            found[COMMAND_LINE] = cpus
    return found


def _cpus_in(host: "Host", path: str) -> tuple[int, ...]:
    try:
        text = host.text(path)
    except Missing:
        return ()
    # A kernel built with nohz_full and started without prints its null pointer.
    return () if text == "(null)" else host.ids(path)


def _options(host: "Host") -> str:
    try:
        options = host.parse(COMMAND_LINE, parsers.parse_command_line)
    except Undecided:
        return ""
    return " ".join(f"{key}={value}" for key, value in options if key in ("isolcpus", "nohz_full"))
