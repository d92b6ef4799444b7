"""Mapped files and memory of devices: model weights, libraries, memory of GPUs and slow tiers."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Node,
    NodeKind,
    Severity,
    Target,
    Undecided,
    fail,
    info,
    passed,
    skip,
    warn,
)
from numadoctor.model.binding import bind, numactl_options
from numadoctor.model.placement import Kind, Placement, Policy, Share
from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text
from numadoctor.placement.examination import Examination

from ._placement import (
    GPUS,
    PLACEMENT,
    THREADS,
    gpu_nodes,
    host_nodes,
    looked_at,
    name_of,
    names_nodes,
    off,
    pids_of,
    process_text,
    seen,
    spread_text,
    subject_of,
    total,
)

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "P003",
    name="model-file-node",
    needs=(*PLACEMENT, *THREADS, *GPUS),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def model_file_node(host: "Host", target: Target) -> Iterator[Finding]:
    """A mapped model file lies on another node than the one that works with it.

    Why it matters
        The pages of a mapped file are page cache: they lie where whoever read the file
        first had them put. A model that was downloaded, copied or served by another
        process before stays on that node, and no --membind of the next process moves it:
        the policy acts on pages that are read in, not on pages that are there. Weights
        that are read on the CPU for each token then come over the socket link.

    When it is harmless
        When the weights are copied to GPUs once and never read again.

    Fix
        Drop the file from the page cache and read it again under the policy. For one
        file no root is needed, once nobody maps it any more:

            dd if=model.safetensors iflag=nocache count=0

        Or copy the weights into memory of the process (--no-mmap, --load-format).

    Source
        filemap_alloc_folio() in mm/filemap.c; posix_fadvise(2), POSIX_FADV_DONTNEED;
        dd(1), nocache; Documentation/admin-guide/sysctl/vm.rst, drop_caches
    """
    found = looked_at(host, target)
    files = [
        p
        for p in found.placement.mappings
        if p.mapping.kind is Kind.MODEL and p.resident >= threshold("judged-mapping")
    ]
    if not files:
        yield skip("no large model file is mapped and in memory")
        return
    right = []
    for placement in files:
        near, because = _wanted(found, placement)
        if near and off(placement.by_node, near) > threshold("off-node"):
            yield _file_far(found, placement, near, because)
        elif near:
            right.append(placement)
    if right:
        yield passed(
            f"{len(right)} of {len(files)} model files ({amount(total(right))}) are on the node "
            "that works with them",
            evidence=[seen(p) for p in right[:3]],
        )
    elif not any(_wanted(found, p)[0] for p in files):
        yield skip("whoever maps the model files runs on all nodes: none is the right one")


def _wanted(found: Examination, placement: Placement) -> tuple[frozenset[int], str]:
    """The nodes that a file belongs on, and why; none where all nodes work with it."""
    pids = [pid for pid in pids_of(placement) if pid in found.processes]
    policies = [placement.policy or found.policy(pid) for pid in pids]
    named = [p for p in policies if p is not None and names_nodes(p) and p.mode in _BINDING]
    if policies and len(named) == len(policies):
        nodes = frozenset(node for p in named for node in p.nodes)
        return nodes, f"the policy is {named[0].text}"
    try:
        if near := gpu_nodes(found, pids):
            narrow = near < host_nodes(found.host)
            return (near, f"its GPUs are on {nodes_text(sorted(near))}") if narrow else _NOWHERE
        near = frozenset[int]().union(*(found.cpu_nodes(pid) for pid in pids))
    except Undecided:
        return _NOWHERE
    near &= host_nodes(found.host)
    if near and near < host_nodes(found.host):
        return near, f"its CPUs are of {nodes_text(sorted(near))}"
    return _NOWHERE


_BINDING = ("bind", "prefer", "prefer (many)")
_NOWHERE = (frozenset[int](), "")


def _file_far(
    found: Examination, placement: Placement, near: frozenset[int], because: str
) -> Finding:
    name = placement.mapping.name
    short = name if len(name) < 40 else "FILE"
    return warn(
        f"{name_of(placement)}: {amount(placement.resident)} of it in memory, "
        f"{spread_text(placement.by_node)}, and {because}",
        subject=subject_of(found, placement),
        cause="It was read, and so cached, on the other node earlier; a policy does not move what "
        "is in the page cache already.",
        evidence=[seen(placement)],
        fixes=(
            Fix(
                "any",
                f"# stop who maps it, drop it from the cache, load it under the policy:\n"
                f"dd if={short} iflag=nocache count=0\n"
                f"numactl {numactl_options(nodes=near, cpu_nodes=near)} COMMAND",
                needs_restart=True,
            ),
            Fix("llama", "--no-mmap", needs_restart=True),
            Fix("sysctl", "sysctl -w vm.drop_caches=1", needs_root=True),
        ),
    )


@check(
    "P005",
    name="library-pages",
    needs=(*PLACEMENT, *THREADS),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def library_pages(host: "Host", target: Target) -> Iterator[Finding]:
    """Pages of programs and libraries lie on another node: page cache, and no fault.

    Why it matters
        It does not, but it is often taken for a broken --membind: numastat and numa_maps
        show pages on a node that the process is not bound to. They are page cache that
        whoever used the library first had put there, shared by all processes.

    When it is harmless
        Always: code is small, and lives in the caches of the CPUs.

    Fix
        None is needed.

    Source
        proc_pid_numa_maps(5); filemap_alloc_folio() in mm/filemap.c
    """
    found = looked_at(host, target)
    near, because = _bound_to(found)
    shares = _library_shares(found)
    if not near or not shares:
        yield skip("the processes are held to no node, or map no file: nothing to tell apart")
        return
    far = {node: share for node, share in shares.items() if node not in near}
    evidence = [
        seen(p) for p in found.placement.mappings if p.mapping.kind in (Kind.LIBRARY, Kind.FILE)
    ][:3] or [host.evidence(f"/proc/{next(iter(found.processes))}/status", "VmRSS", "RssFile")]
    if not far:
        yield passed(
            f"programs and libraries are on {nodes_text(sorted(shares))}, too", evidence=evidence
        )
        return
    yield info(
        f"{amount(sum(far.values()))} of programs, libraries and other files are on "
        f"{nodes_text(sorted(far))}, though {because}",
        subject="shared page cache",
        cause="Page cache lies where whoever read the file first had it put. It is no memory of "
        "the process, and no sign that its policy does not work.",
        evidence=evidence,
    )


def _bound_to(found: Examination) -> tuple[frozenset[int], str]:
    """The nodes that the processes are held to, by policy or by CPUs; none if by neither."""
    policies = [found.policy(pid) for pid in found.processes]
    if all(p is not None and p.mode == "bind" and p.nodes for p in policies):
        nodes = frozenset(node for p in policies if p for node in p.nodes)
        return nodes, f"the processes are bound to {nodes_text(sorted(nodes))}"
    try:
        nodes = frozenset[int]().union(*(found.cpu_nodes(pid) for pid in found.processes))
    except Undecided:
        return frozenset(), ""
    if nodes < host_nodes(found.host):
        return nodes, f"their CPUs are of {nodes_text(sorted(nodes))}"
    return frozenset(), ""


def _library_shares(found: Examination) -> dict[int, int]:
    """Node id to bytes of programs, libraries and other files."""
    parts: list[Mapping[int, Share]] = [
        p.by_node for p in found.placement.mappings if p.mapping.kind in (Kind.LIBRARY, Kind.FILE)
    ]
    parts += [r.by_node for r in found.placement.remainders if r.kind in (Kind.LIBRARY, Kind.FILE)]
    sums: dict[int, int] = {}
    for part in parts:
        for node, share in part.items():
            sums[node] = sums.get(node, 0) + share.bytes
    return {node: held for node, held in sums.items() if held}


@check(
    "P006",
    name="memory-of-devices",
    needs=(*PLACEMENT, "/sys/devices/system/node/node*/meminfo"),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
    severity=Severity.HIGH,
)
def memory_of_devices(host: "Host", target: Target) -> Iterator[Finding]:
    """Host memory was put on a GPU's memory or on a slow tier, or a policy names such a node.

    Why it matters
        Where GPU memory is coherent (GB200, MI300A, POWER9 with NVLink) each GPU's memory
        is a node, and --interleave=all spreads the process's own pages over it: they take
        memory that the driver has promised to CUDA, and are read by the CPU over the
        link. Memory behind CXL and persistent memory are nodes too, at two to five times
        the latency.

    When it is harmless
        When it is meant: managed memory that migrated to its GPU, a cold tier of a KV
        cache on CXL. A policy that names the tier by itself is taken as meant (info).

    Fix
        Name the nodes with CPUs instead of all: numactl --interleave=0,8.

    Source
        Documentation/admin-guide/mm/numaperf.rst; Documentation/ABI/testing/
        sysfs-kernel-mm-memory-tiers; numa_status of NVIDIA's driver (nv-procfs.c)
    """
    special = {n.id: n for n in host.topology.nodes if n.kind in (NodeKind.GPU, NodeKind.CXL)}
    if not special:
        yield skip("no node is the memory of a GPU or of a slow tier")
        return
    found = looked_at(host, target)
    told = [*_policies_with(found, special), *_pages_on(found, special)]
    yield from told
    if not told:
        yield passed(
            f"nothing of the processes is on {nodes_text(special)}: memory of devices and slow "
            "tiers",
            evidence=[
                host.evidence(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} MemT")
                for node in list(special)[:3]
            ],
        )


def _policies_with(found: Examination, special: Mapping[int, Node]) -> Iterator[Finding]:
    policies: dict[str, tuple[Policy, Finding]] = {}
    for pid, process in found.processes.items():
        mine = [p for p in found.placement.mappings if p.mapping.pid == pid and p.policy]
        for policy, where in [
            (process.policy, process_text(found, pid)),
            *((p.policy, name_of(p)) for p in mine),
        ]:
            if policy is None or policy.text in policies:
                continue
            if named := [node for node in policy.nodes if node in special]:
                finding = _policy_finding(found, policy, where, named, special, pid)
                policies[policy.text] = policy, finding
    yield from (finding for _, finding in policies.values())


def _policy_finding(
    found: Examination,
    policy: Policy,
    where: str,
    named: list[int],
    special: Mapping[int, Node],
    pid: int,
) -> Finding:
    process = found.processes[pid]
    gpu = [node for node in named if special[node].kind is NodeKind.GPU]
    alone = set(policy.nodes) <= set(special)
    message = f"the policy of {where} is {policy.text}"
    subject = f"{process.name or 'process'}: policy"
    evidence = [Evidence(f"/proc/{pid}/numa_maps", policy.text)]
    if alone and not gpu:
        return info(
            f"{message}: the slow memory of {nodes_text(named)}", subject=subject, evidence=evidence
        )
    tell = fail if gpu else warn
    what_it_is = "memory of GPUs" if gpu else "slow memory"
    return tell(
        f"{message}, which names {what_it_is}: {nodes_text(gpu or named)}",
        subject=subject,
        cause=f"Pages of the process itself go to {nodes_text(gpu or named)} in turn.",
        evidence=evidence,
        fixes=_host_nodes_fix(found),
    )


def _host_nodes_fix(found: Examination) -> tuple[Fix, ...]:
    nodes = [node.id for node in found.host.topology.host_nodes]
    return bind(nodes=nodes, policy="interleave", by=("numactl", "docker", "systemd"))


def _pages_on(found: Examination, special: Mapping[int, Node]) -> Iterator[Finding]:
    for node, share in found.placement.nodes.items():
        if node not in special or share.bytes < threshold("slow-memory"):
            continue
        held = [p for p in found.placement.mappings if p.bytes_by_node.get(node)]
        held.sort(key=lambda p: -p.bytes_by_node[node])
        gpu = special[node].kind is NodeKind.GPU
        meant = held and all(p.policy and set(p.policy.nodes) == {node} for p in held)
        kind = "memory of a GPU" if gpu else "slow memory"
        message = f"{amount(share.bytes)} are on node {node}, which is {kind}"
        if held:
            message += f": {name_of(held[0])} {amount(held[0].bytes_by_node[node])}"
        evidence = [seen(p) for p in held[:3]] or [
            found.host.evidence(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} Mem")
        ]
        if meant and not gpu:
            yield info(f"{message}, as its policy asks", subject=f"node {node}", evidence=evidence)
            continue
        yield warn(
            message,
            subject=f"node {node}",
            cause="The CPUs read it over the link of the device."
            if gpu
            else "Each access takes two to five times as long as one to a node with CPUs.",
            evidence=evidence,
            fixes=_host_nodes_fix(found),
        )
