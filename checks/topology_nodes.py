"""Nodes and their memory: masks that agree, CPUs and memory on the same nodes, equal shares."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.engine.runner import undecided
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Missing,
    Node,
    NodeKind,
    Remark,
    Severity,
    Status,
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
from numadoctor.model.binding import bind
from numadoctor.model.units import amount
from numadoctor.model.words import count, listed, nodes_text

from ._topology import (
    CPUS,
    NODES,
    be,
    cpu_text,
    memory_evidence,
    platform_fixes,
    short_list,
    unread_nodes,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

# A socket with one DIMM of 12 less than the other has 8 % less. What the kernel
# keeps for itself is 2 % at most, and not the same on each node.
_IMBALANCE = 0.10

# A node this full takes no model: 3 GiB are left of the 64 GiB of a Xeon Max.
_NEARLY_FULL = 0.05


@check(
    "T001",
    name="node-masks-disagree",
    needs=(
        f"{NODES}/online",
        f"{NODES}/possible",
        f"{NODES}/has_cpu",
        f"{NODES}/has_memory",
        f"{NODES}/has_normal_memory",
        f"{NODES}/node*/cpumap",
        f"{NODES}/node*/cpulist",
        f"{NODES}/node*/meminfo",
        f"{CPUS}/online",
    ),
    requires=Requires.NUMA,
)
def node_masks_disagree(host: "Host", target: Target) -> Iterator[Finding]:
    """The files that say which nodes, CPUs and memory there are contradict each other.

    Why it matters
        The same fact stands in several files, and programs read different ones: libnuma
        and numactl take cpumap, scripts take cpulist, container engines take online or
        has_memory. Where the files disagree, two programs on one machine bind to
        different CPUs, and neither reports an error. An online CPU that no node lists
        has no local memory at all: what it touches first lands wherever the fallback
        list of node 0 leads.

    When it is harmless
        A cpulist that names offline CPUs beside the online ones, as some kernels and
        captured folders have it: numadoctor takes cpumap and drops what is offline. And
        all contradictions in a folder that was captured by hand or cut down.

    Fix
        A running kernel prints all of these from one set of masks, so a contradiction
        there is a defect of the kernel or of the firmware's tables (SRAT, PPTT): update
        both. Bring an online CPU's node online, or take the CPU offline. A folder that
        was put together by hand has to be captured again.

    Source
        drivers/base/node.c: node_read_cpumap(), node_states_init();
        Documentation/ABI/stable/sysfs-devices-node
    """
    topology = host.topology
    complaints = [_of_remark(host, remark) for remark in topology.remarks]
    complaints += _masks(host, topology)
    complaints += _homes(host, topology)
    yield from complaints
    if all(finding.status is Status.INFO for finding in complaints):
        yield passed(
            f"the masks of {count(len(topology.nodes), 'node')} and "
            f"{count(len(topology.online_cpus), 'CPU')} agree",
            evidence=[host.evidence(f"{NODES}/online"), host.evidence(f"{CPUS}/online")],
        )


def _of_remark(host: "Host", remark: Remark) -> Finding:
    subject = "/".join(remark.path.split("/")[-2:])
    message = remark.text if remark.path in remark.text else f"{subject}: {remark.text}"
    evidence = (host.evidence(remark.path),)
    if remark.status is Status.UNKNOWN:
        return unknown(message, subject=subject, evidence=evidence)
    if remark.status is Status.INFO:
        return info(message, subject=subject, evidence=evidence)
    return _contradiction(message, subject, evidence)


def _contradiction(message: str, subject: str, evidence: Iterable[Evidence]) -> Finding:
    return warn(
        message,
        subject=subject,
        cause="Programs that read the one file and programs that read the other place memory "
        "and threads differently, without an error.",
        evidence=evidence,
        fixes=[
            Fix("any", "take CPU lists from `numadoctor topology`, which reads cpumap and online"),
            Fix(
                "any",
                "# update kernel and firmware: a running kernel prints these files from one mask",
                needs_root=True,
                needs_restart=True,
                persists=True,
            ),
        ],
    )


def _masks(host: "Host", topology: Topology) -> Iterator[Finding]:
    known = [node for node in topology.nodes if node.kind is not NodeKind.UNKNOWN]
    with_cpus = {node.id for node in topology.nodes if node.cpus}
    with_memory = {node.id for node in known if node.has_memory}
    without = {node.id for node in known} - with_memory
    yield from _mask(host, "has_cpu", "CPUs", with_cpus, {n.id for n in topology.nodes} - with_cpus)
    yield from _mask(host, "has_memory", "memory", with_memory, without)
    yield from _mask(host, "has_normal_memory", "memory", set(), without)
    possible = set(topology.possible_nodes or ())
    missing = {node.id for node in topology.nodes} - possible if possible else set()
    if missing:
        yield _contradiction(
            f"{nodes_text(missing)} {be(missing)} online and not among the possible nodes",
            "node/possible",
            [host.evidence(f"{NODES}/possible"), host.evidence(f"{NODES}/online")],
        )


def _mask(
    host: "Host", name: str, what: str, must: set[int], must_not: set[int]
) -> Iterator[Finding]:
    """What is wrong with the file ``name``: nodes it must list, and nodes it must not."""
    path = f"{NODES}/{name}"
    try:
        listed_nodes = set(host.ids(path))
    except Missing:  # has_memory came after has_normal_memory (Linux 3.8)
        return
    except Undecided as error:
        yield undecided(error, f"node/{name}")
        return
    if must and not listed_nodes:
        # Some kernels never fill has_cpu at boot; nothing relies on it.
        yield info(
            f"{name} is empty; {what} of the nodes are read from the nodes themselves",
            subject=f"node/{name}",
            evidence=[host.evidence(path)],
        )
        return
    lost, false = must - listed_nodes, listed_nodes & must_not
    parts = []
    if lost:
        parts.append(f"leaves out {nodes_text(lost)}, which {_have(lost)} {what}")
    if false:
        parts.append(f"names {nodes_text(false)}, which {_have(false)} no {what}")
    if parts:
        file = "cpumap" if name == "has_cpu" else "meminfo"
        cited = [host.evidence(f"{NODES}/node{node}/{file}") for node in sorted(lost | false)[:2]]
        message = f"{name} {' and '.join(parts)}"
        yield _contradiction(message, f"node/{name}", [host.evidence(path), *cited])


def _have(nodes: set[int]) -> str:
    return "has" if len(nodes) == 1 else "have"


def _homes(host: "Host", topology: Topology) -> Iterator[Finding]:
    """CPUs that are in no node, or in several."""
    homes: dict[int, list[int]] = {}
    for node in topology.nodes:
        for cpu in node.cpus:
            homes.setdefault(cpu, []).append(node.id)
    unread = any(r.status is Status.UNKNOWN and "cpu" in r.path for r in topology.remarks)
    homeless = set(topology.online_cpus) - set(homes)
    if homeless and not unread:
        yield warn(
            f"{cpu_text(homeless)} {be(homeless)} online and in no online node",
            subject="cpu/online",
            cause="Threads there have no local memory: what they touch first is taken from "
            "whichever node the kernel falls back to.",
            evidence=[
                host.evidence(f"{CPUS}/online"),
                host.evidence(f"{NODES}/online"),
                host.evidence(f"{NODES}/possible"),
            ],
            fixes=[
                Fix("any", f"keep work off {cpu_text(homeless)}: taskset, CPUAffinity=, cpuset"),
                *platform_fixes(
                    host,
                    ["put memory into the slots of the socket whose node is offline"],
                    {"libvirt": "name every vCPU in one <cell cpus='...'> of <numa>"},
                ),
            ],
        )
    shared = {cpu: nodes for cpu, nodes in homes.items() if len(nodes) > 1}
    if shared and not same_place(topology):
        nodes = sorted({node for several in shared.values() for node in several})
        yield _contradiction(
            f"{cpu_text(shared)} {be(shared)} in more than one of {nodes_text(nodes)}",
            "cpumap",
            [host.evidence(f"{NODES}/node{node}/cpumap") for node in nodes[:2]],
        )


def same_place(topology: Topology) -> bool:
    """Whether all nodes are at distance 10 from one another: T005 tells of that, once."""
    distances = [d for node in topology.nodes for d in node.distances.values()]
    return len(topology.nodes) > 1 and bool(distances) and set(distances) == {10}


@check(
    "T002",
    name="cpus-without-memory",
    needs=(
        f"{NODES}/node*/cpumap",
        f"{NODES}/node*/meminfo",
        f"{NODES}/node*/distance",
        "/sys/bus/pci/devices/*/numa_node",
    ),
    requires=Requires.NUMA,
    severity=Severity.HIGH,
)
def cpus_without_memory(host: "Host", target: Target) -> Iterator[Finding]:
    """A node has CPUs and no memory: all that its threads touch lies on another node.

    Why it matters
        Every access of those CPUs crosses a link between sockets: about twice the
        latency and a fraction of the bandwidth of local memory, shared with all others
        who cross it. A GPU or a NIC on that node has no local memory either: pinned
        buffers, KV cache in host memory and staging copies all cross the link. Binding
        to the node fails with EINVAL, because a policy drops nodes without memory and
        then nothing is left.

    When it is harmless
        On a virtual machine whose nodes exist for the sake of devices only, and on one
        whose work runs on the other nodes alone. A GPU that keeps all its data in its
        own memory loses little beyond the time to load the model.

    Fix
        Put DIMMs into the slots of that socket, the same in each channel. Until then run
        on the nodes that have memory. A virtual machine: give the virtual node memory.

    Source
        Documentation/ABI/stable/sysfs-devices-node; mpol_set_nodemask() in
        mm/mempolicy.c (empty after nodes without memory were dropped: EINVAL)
    """
    topology = host.topology
    bare = [node for node in topology.nodes if node.kind is NodeKind.CPU_ONLY]
    with_cpus = [node for node in topology.nodes if node.cpus]
    unread = unread_nodes(host, "whether there are CPUs and memory on", "cpumap", "meminfo")
    yield from unread
    if not bare:
        if not unread:
            yield passed(
                f"each of the {count(len(with_cpus), 'node')} with CPUs has memory",
                evidence=[memory_evidence(host, node) for node in with_cpus[:2]],
            )
        return
    if len(bare) == len(with_cpus) and topology.memory_nodes and not unread:
        yield _all_remote(host, topology, bare)
        return
    for node in bare:
        yield _bare_node(host, topology, node)


def _all_remote(host: "Host", topology: Topology, bare: list[Node]) -> Finding:
    ids, cpus = [n.id for n in bare], [cpu for n in bare for cpu in n.cpus]
    memory = topology.memory_nodes
    return fail(
        f"every access is remote: all {count(len(cpus), 'CPU')} are on {nodes_text(ids)} without "
        f"memory, and all memory ({amount(sum(n.memory_bytes or 0 for n in memory))}) is on "
        f"{nodes_text(n.id for n in memory)} without CPUs",
        cause="No thread on this machine has local memory: each access crosses a link between "
        "sockets or dies, and no placement can change that.",
        evidence=[_cpus_of(host, bare[0]), *(memory_evidence(host, n) for n in (*bare, *memory))],
        fixes=_memory_fixes(host, []),
    )


def _bare_node(host: "Host", topology: Topology, node: Node) -> Finding:
    devices = [d for d in topology.devices if d.node == node.id and d.kind in _LOCALS]
    near = _nearest_memory(topology, node)
    message = (
        f"node {node.id} has {count(len(node.cpus), 'CPU')} ({short_list(node.cpus)}) and no memory"
    )
    evidence = [memory_evidence(host, node), _cpus_of(host, node)]
    if not devices:
        return warn(
            message,
            subject=f"node {node.id}",
            cause="Threads there touch remote memory only, and binding to the node fails.",
            evidence=evidence,
            fixes=_memory_fixes(host, near),
        )
    names = listed(f"{d.kind} {d.address}" for d in devices)
    evidence += [host.evidence(f"{_PCI}/{d.address}/numa_node") for d in devices[:4]]
    return fail(
        f"{message}, and {names} {'is' if len(devices) == 1 else 'are'} attached to it",
        subject=f"node {node.id}",
        cause="Such a device has no local memory: every host buffer that it reads or writes is "
        "across the link between the sockets.",
        evidence=evidence,
        fixes=_memory_fixes(host, near),
    )


_PCI = "/sys/bus/pci/devices"
_LOCALS = ("gpu", "accelerator", "nic")


def _cpus_of(host: "Host", node: Node) -> Evidence:
    return host.evidence(f"{NODES}/node{node.id}/cpulist")


def _nearest_memory(topology: Topology, node: Node) -> list[int]:
    """The nodes with CPUs and memory that are nearest to ``node``."""
    distances = {
        other.id: node.distances[other.id]
        for other in topology.host_nodes
        if other.id in node.distances
    }
    return [other for other, d in distances.items() if d == min(distances.values())]


def _memory_fixes(host: "Host", near: list[int]) -> list[Fix]:
    fixes = bind(nodes=near, cpu_nodes=near, by=("numactl",)) if near else ()
    dimms = (
        "put DIMMs into this socket's slots, the same in each channel; or, if that cannot be, "
        "switch on node interleaving, which makes the machine one node"
    )
    cell = "<numa><cell id='N' cpus='...' memory='...' unit='GiB'/></numa>"
    return [*fixes, *platform_fixes(host, [dimms], {"libvirt": cell})]


@check(
    "T003",
    name="memory-without-cpus",
    needs=(
        f"{NODES}/node*/cpumap",
        f"{NODES}/node*/meminfo",
        f"{NODES}/node*/distance",
        f"{NODES}/node*/access*/initiators",
        "/sys/devices/virtual/memory_tiering/memory_tier*/nodelist",
        "/proc/driver/nvidia/gpus/*/numa_status",
        f"{NODES}/has_cpu",
    ),
    requires=Requires.NUMA,
)
def memory_without_cpus(host: "Host", target: Target) -> Iterator[Finding]:
    """Nodes with memory and no CPUs: the memory of GPUs, on the package, behind CXL.

    Why it matters
        Such nodes are no sockets. `numactl --interleave=all` spreads pages over them as
        over any other: a pool interleaved over the memory of a GPU takes what the GPU's
        own allocations need, and one over CXL memory runs at the pace of the slowest
        node. Memory on the package (HBM) is small: binding to it fails, or the process
        is killed, when it is full, because MPOL_BIND does not spill.

    When it is harmless
        Always, for processes that name the nodes they want. The finding only tells what
        the nodes are; it warns of on-package memory that is nearly full.

    Fix
        Interleave over the nodes of the sockets, by their ids:

            numactl --interleave=0,8 COMMAND

        Prefer on-package memory instead of binding to it, so that the rest goes
        elsewhere:

            numactl --preferred=2 COMMAND

    Source
        Documentation/admin-guide/mm/numaperf.rst; Documentation/ABI/testing/
        sysfs-kernel-mm-memory-tiers; numa_status of NVIDIA's driver; ACPI 6.5, HMAT
    """
    topology = host.topology
    unread = unread_nodes(host, "what is on", "cpumap", "meminfo")
    yield from unread
    found = [node for node in topology.memory_nodes if node.kind in _WHAT]
    for kind in _WHAT:
        members = [node for node in found if node.kind is kind]
        if members:
            yield _told(host, topology, kind, members)
        if kind is NodeKind.HBM:
            yield from _nearly_full(host, members)
    empty = [node for node in topology.nodes if node.kind is NodeKind.EMPTY]
    if empty:
        yield info(
            f"{nodes_text(n.id for n in empty)} {be(n.id for n in empty)} empty: "
            "neither CPUs nor memory",
            subject="empty nodes",
            cause="They are kept for memory that may come: hot-plugged, or of a partitioned GPU.",
            evidence=[memory_evidence(host, empty[0])],
        )
    if not (found or empty or unread):
        yield passed("each node with memory has CPUs", evidence=[host.evidence(f"{NODES}/has_cpu")])


_WHAT = {
    NodeKind.GPU: ("gpu memory", "the memory of GPUs, not of a socket"),
    NodeKind.HBM: ("on-package memory", "fast memory on the package of a socket"),
    NodeKind.CXL: ("slower memory", "slower memory than that of the sockets (CXL or the like)"),
    NodeKind.MEMORY_ONLY: ("memory without CPUs", "memory without CPUs, of a kind not known"),
}


def _told(host: "Host", topology: Topology, kind: NodeKind, members: list[Node]) -> Finding:
    subject, what = _WHAT[kind]
    ids = [node.id for node in members]
    sockets = [node.id for node in topology.host_nodes]
    sizes = amount(sum(node.memory_bytes or 0 for node in members))
    cause = _why(members)
    fixes = []
    if sockets:
        cause += f" The nodes of the sockets are {parsers.format_list(sockets)}."
        text = f"numactl --interleave={parsers.format_list(sockets)} COMMAND"
        fixes.append(Fix("numactl", text, needs_restart=True))
    return info(
        f"{nodes_text(ids)} ({sizes}) {be(ids)} {what}",
        subject=subject,
        cause=cause,
        evidence=[_source_of_kind(host, members[0]), memory_evidence(host, members[0])],
        fixes=fixes,
    )


def _why(members: list[Node]) -> str:
    if members[0].kind is NodeKind.GPU:
        owners = [f"node {node.id} is that of {_gpu_of(node)}" for node in members]
        return f"The GPU driver names them: {', '.join(owners)}."
    reasons: dict[str, list[int]] = {}
    for node in members:
        reasons.setdefault(node.because, []).append(node.id)
    text = "; ".join(f"{nodes_text(nodes)}: {because}" for because, nodes in reasons.items())
    return f"{text[:1].upper()}{text[1:]}."


def _gpu_of(node: Node) -> str:
    return node.because.rpartition(" ")[2]


def _source_of_kind(host: "Host", node: Node) -> Evidence:
    if node.kind is NodeKind.GPU:
        return host.evidence(f"/proc/driver/nvidia/gpus/{_gpu_of(node)}/numa_status")
    if "bandwidth" in node.because:
        access = next(i.access_class for i in node.initiators if i.read_bandwidth)
        folder = f"{NODES}/node{node.id}/access{access}/initiators"
        return host.evidence(f"{folder}/read_bandwidth")
    if "tier" in node.because:
        path = f"/sys/devices/virtual/memory_tiering/memory_tier{node.tier}/nodelist"
        return host.evidence(path)
    return host.evidence(f"{NODES}/node{node.id}/distance")


def _nearly_full(host: "Host", members: list[Node]) -> Iterator[Finding]:
    for node in members:
        path = f"{NODES}/node{node.id}/meminfo"
        sizes = host.parse(path, parsers.parse_meminfo)
        try:
            total, free = sizes["MemTotal"], sizes["MemFree"]
            cache = sizes["Active(file)"] + sizes["Inactive(file)"]
        except KeyError as error:
            yield unknown(
                f"how full node {node.id} is: its meminfo has no {error.args[0]}",
                subject=f"node {node.id}",
                evidence=[host.evidence(path)],
            )
            continue
        if free + cache >= _NEARLY_FULL * total:
            continue
        yield warn(
            f"on-package memory of node {node.id} is nearly full: {amount(free)} free and "
            f"{amount(cache)} of page cache to reclaim, of {amount(total)}",
            subject=f"node {node.id}",
            cause="A process bound to it is killed or gets ENOMEM once that is used up: "
            "MPOL_BIND does not spill to another node.",
            evidence=[host.evidence(path, *(f"Node {node.id} {key}" for key in _FILL))],
            fixes=[
                Fix("numactl", f"numactl --preferred={node.id} COMMAND", needs_restart=True),
                Fix("any", f"numastat -m shows what fills node {node.id}; numastat -p NAME, who"),
            ],
        )


_FILL = ("MemTotal", "MemFree", "Active(file)", "Inactive(file)", "FilePages")


@check(
    "T004",
    name="memory-imbalance",
    needs=(f"{NODES}/node*/meminfo",),
    requires=Requires.SEVERAL_NODES,
)
def memory_imbalance(host: "Host", target: Target) -> Iterator[Finding]:
    """The nodes of the sockets have unequal amounts of memory.

    Why it matters
        Interleaving gives each node the same number of pages until the smallest is full;
        from then on the pages go to the others, and so do the accesses. An instance per
        socket has less room on the smaller one, and its process is the one that is
        killed. Unequal memory mostly means a DIMM that is missing or that the firmware
        mapped out, and with it a memory channel: bandwidth is lost too.

    When it is harmless
        When nothing comes near to filling the smaller node.

    Fix
        Look for the lost DIMM (`dmidecode -t memory`, `edac-util`, the management
        controller's log) and put the same DIMMs into the same slots of each socket. A
        virtual machine: give its nodes the same size.

    Source
        interleave_nodes() in mm/mempolicy.c; Documentation/admin-guide/mm/
        numa_memory_policy.rst
    """
    nodes = host.topology.host_nodes
    unread = unread_nodes(host, "how much memory and how many CPUs are on", "cpumap", "meminfo")
    yield from unread
    if len(nodes) < 2:
        if not unread:
            yield skip("fewer than two nodes have both CPUs and memory")
        return
    least, most = (pick(nodes, key=lambda n: n.memory_bytes or 0) for pick in (min, max))
    small, large = least.memory_bytes or 0, most.memory_bytes or 0
    evidence = [memory_evidence(host, least), memory_evidence(host, most)]
    share = (large - small) / large
    if share <= _IMBALANCE:
        yield passed(
            f"the {len(nodes)} nodes with CPUs have {amount(small)} to {amount(large)} each",
            evidence=evidence,
        )
        return
    cells = " and ".join(
        f"<cell id='{node}' memory='M' .../>" for node in sorted((least.id, most.id))
    )
    yield warn(
        f"node {least.id} has {amount(small)}, {share:.0%} less than node {most.id} with "
        f"{amount(large)}",
        cause="Interleaving is even only until the smaller node is full, and a process bound to "
        "that node has less room. In a physical machine mostly a DIMM is missing, and with it a "
        "memory channel.",
        evidence=evidence,
        fixes=platform_fixes(
            host,
            ["put the same DIMMs into each socket's slots: `dmidecode -t memory` lists those seen"],
            {"libvirt": cells},
        ),
    )
