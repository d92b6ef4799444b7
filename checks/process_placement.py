"""Where the memory of processes is, against the GPUs and CPUs that work on it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.model import (
    Finding,
    Fix,
    Severity,
    Target,
    Undecided,
    fail,
    info,
    passed,
    skip,
    warn,
)
from numadoctor.model.binding import bind
from numadoctor.model.placement import Placement, Policy
from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text
from numadoctor.placement.examination import Examination

from ._placement import (
    GPUS,
    PLACEMENT,
    THREADS,
    gpu_nodes,
    gpus_text,
    host_nodes,
    looked_at,
    names_nodes,
    node_list,
    off,
    pids_of,
    pools,
    seen,
    spread_text,
    subject_of,
    undecided_processes,
    what,
)

if TYPE_CHECKING:
    from numadoctor.host import Host


class _Judged(NamedTuple):
    """A mapping, the nodes of those who work on it, and the share of it that lies elsewhere."""

    placement: Placement
    near: frozenset[int]
    off: float


@check(
    "P001",
    name="memory-near-gpus",
    needs=(*PLACEMENT, *GPUS),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
    severity=Severity.HIGH,
)
def memory_near_gpus(host: "Host", target: Target) -> Iterator[Finding]:
    """Memory that serves GPUs lies on other nodes than theirs.

    Why it matters
        A copy between a GPU and host memory on the other node crosses the link between
        sockets, which all GPUs of a node share: swapping a KV cache, loading weights and
        staging for the network run at a fraction of what PCI Express gives, and slow down
        everybody else's remote accesses. Each mapping is judged by itself, against the
        GPUs of the processes that map it: that most of a process is in the right place
        says nothing about the pinned blocks of two of its six GPUs.

    When it is harmless
        Memory that no GPU copies from or to, as a tokenizer's tables. A pool that was
        interleaved on purpose, since GPUs of several nodes read it: that is told (info).

    Fix
        Start each worker with the CPUs and the memory of its GPU's node, or let the engine
        bind its workers itself. In one process with GPUs on several nodes the thread that
        allocates a pinned block has to run on, or bind to, the node of that block's GPU.
        migratepages(8) moves what is there already, if it is not pinned.

    Source
        CUDA C++ Best Practices Guide, "Pinned Memory"; numactl(8), migratepages(8);
        drivers/pci/pci-sysfs.c (numa_node)
    """
    found = looked_at(host, target)
    with_gpus, blind = _with_gpus(found)
    yield from undecided_processes(found, blind, "which GPUs it uses")
    if not with_gpus:
        if not blind:
            yield skip("none of the processes has a GPU open")
        return
    judged = []
    for placement in pools(found):
        pids = [pid for pid in pids_of(placement) if pid in with_gpus]
        if near := gpu_nodes(found, pids):
            judged.append(_Judged(placement, near, off(placement.by_node, near)))
    told = [*_far(found, judged, "GPUs"), *_unserved(found, judged, with_gpus)]
    yield from told
    if not told and judged:
        near = frozenset[int]().union(*(one.near for one in judged))
        yield passed(
            f"{_sum_text(judged)} are on {nodes_text(sorted(near))}, as are those GPUs that work "
            f"on it: {gpus_text(found, with_gpus)}",
            evidence=[seen(one.placement) for one in judged[:3]],
        )
    elif not judged and not blind:
        yield skip("no memory large enough to be judged, or the node of no GPU is known")


def _with_gpus(found: Examination) -> tuple[list[int], dict[int, Undecided]]:
    """The processes that have a GPU open, and those of which that cannot be told."""
    having, blind = [], {}
    for pid in found.processes:
        try:
            if found.gpus(pid).devices:
                having.append(pid)
        except Undecided as error:
            blind[pid] = error
    return having, blind


def _sum_text(judged: Sequence[_Judged]) -> str:
    size = amount(sum(one.placement.resident for one in judged))
    mappings = "1 mapping" if len(judged) == 1 else f"{len(judged)} mappings"
    return f"{size} in {mappings}"


def _far(found: Examination, judged: list[_Judged], who: str) -> Iterator[Finding]:
    """A finding for the mappings of one name that lie off the same nodes."""
    groups: dict[tuple[str, frozenset[int], bool], list[_Judged]] = {}
    for one in judged:
        if one.off > threshold("off-node"):
            meant = _is_meant(found, one.placement.policy)
            key = subject_of(found, one.placement), one.near, meant
            groups.setdefault(key, []).append(one)
    for (subject, near, meant), alike in groups.items():
        yield _far_finding(found, subject, near, meant, alike, who)


def _is_meant(found: Examination, policy: Policy | None) -> bool:
    """Whether somebody spread it, or put it on memory without CPUs, on purpose.

    A bind to the node of another socket is a mistake as often as not.
    """
    if policy is None or not names_nodes(policy):
        return False
    return "interleave" in policy.mode or not host_nodes(found.host).intersection(policy.nodes)


def _far_finding(
    found: Examination,
    subject: str,
    near: frozenset[int],
    meant: bool,
    alike: list[_Judged],
    who: str,
) -> Finding:
    placements = [one.placement for one in alike]
    largest = max(placements, key=lambda p: p.resident)
    pids = tuple(dict.fromkeys(pid for p in placements for pid in pids_of(p)))
    whose = gpus_text(found, pids) if who == "GPUs" else f"its CPUs ({nodes_text(sorted(near))})"
    spread = spread_text(largest.by_node)
    evidence = [*(seen(p) for p in placements[:4])]
    if who == "GPUs":
        evidence += [e for pid in pids if pid in found.processes for e in found.gpus(pid).evidence]
    message = f"{what(placements)} {_lie(placements)} off the node of {whose}: {spread}"
    if meant:
        return info(
            f"{message}, as its policy {largest.policy.text if largest.policy else ''} asks",
            subject=subject,
            evidence=evidence[:6],
        )
    if names_nodes(largest.policy) and largest.policy:
        message += f"; its policy is {largest.policy.text}"
    tell = fail if max(one.off for one in alike) > threshold("off-node-most") else warn
    there = sorted(set(largest.by_node) - near)
    return tell(
        message,
        subject=subject,
        cause=f"Each access goes over the link between {nodes_text(sorted({*there, *near}))}.",
        evidence=evidence[:6],
        fixes=_bring_near(largest.mapping.pid, there, sorted(near)),
    )


def _lie(placements: Sequence[Placement]) -> str:
    return "lies" if len(placements) == 1 else "lie"


def _bring_near(pid: int, there: list[int], near: list[int]) -> tuple[Fix, ...]:
    wanted = node_list(near)
    return (
        *bind(nodes=near, cpu_nodes=near, by=("numactl",)),
        Fix("vllm", "--numa-bind", needs_restart=True),
        Fix("sglang", f"--numa-node {' '.join(map(str, near))}", needs_restart=True),
        Fix(
            "any",
            f"migratepages {pid} {node_list(there)} {wanted}\n"
            "# moves what is not pinned, and holds the process up meanwhile",
        ),
    )


def _unserved(found: Examination, judged: list[_Judged], with_gpus: list[int]) -> Iterator[Finding]:
    """Of a process with GPUs on several nodes, those nodes where nearly none of its memory is."""
    for pid in with_gpus:
        gpus = [d for d in found.gpus(pid).devices if d.node is not None]
        mine = [one.placement for one in judged if pid in pids_of(one.placement)]
        held = sum(p.resident for p in mine)
        nodes = sorted({d.node for d in gpus if d.node is not None})
        if len(nodes) < 2 or not held:
            continue
        for node in nodes:
            wanted = sum(d.node == node for d in gpus) / len(gpus)
            there = sum(p.bytes_by_node.get(node, 0) for p in mine)
            if there / held < wanted * threshold("off-node-most"):
                yield _unserved_finding(found, pid, node, mine, there)


def _unserved_finding(
    found: Examination, pid: int, node: int, mine: list[Placement], there: int
) -> Finding:
    elsewhere = [p for p in mine if off(p.by_node, [node]) > 1 - threshold("off-node")]
    where = sorted({n for p in elsewhere for n in p.by_node if n != node})
    served = gpus_text(found, [pid], [node])
    process = found.processes[pid]
    gpus = found.gpus(pid)
    here = {str(e.text) for e, d in zip(gpus.evidence, gpus.devices, strict=True) if d.node == node}
    return warn(
        f"{served} of {process.name or 'the process'} {_have(there, len(here))} near: "
        f"{_blocks(elsewhere)} on {nodes_text(where)} alone",
        subject=f"{process.name or 'process'}: GPUs of node {node}",
        cause="Which block serves which GPU cannot be seen from outside, but those of that node "
        "find nearly nothing near them: copies to them cross the link between the nodes.",
        evidence=[*(seen(p) for p in elsewhere[:4]), *(e for e in gpus.evidence if e.text in here)],
        fixes=(
            Fix(
                "any",
                f"# allocate and pin the blocks of {served} in a thread bound to node {node}",
                needs_restart=True,
            ),
            Fix(
                "any",
                "one process for the GPUs of each node: numactl --cpunodebind=N --membind=N …",
                needs_restart=True,
            ),
        ),
    )


def _have(there: int, gpus: int) -> str:
    return f"{'has' if gpus == 1 else 'have'} {amount(there) if there else 'no memory'}"


def _blocks(elsewhere: list[Placement]) -> str:
    size = amount(sum(p.resident for p in elsewhere))
    blocks = "1 block" if len(elsewhere) == 1 else f"{len(elsewhere)} blocks"
    return f"{blocks} ({size}) {_lie(elsewhere)}"


@check(
    "P002",
    name="memory-near-cpus",
    needs=(*PLACEMENT, *THREADS, *GPUS),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def memory_near_cpus(host: "Host", target: Target) -> Iterator[Finding]:
    """Memory lies on other nodes than the CPUs that its processes are held to.

    Why it matters
        A process whose threads may run on one node only pays for each access to the other:
        about twice the latency and half the bandwidth. It happens when a process is pinned
        after it has touched its memory (taskset -p, cpuset of a running pod, a rebalancing
        operator), or when the node was full at that moment.

    When it is harmless
        Where it was interleaved on purpose, or put on memory without CPUs, that is told
        (info). Memory that serves GPUs is judged against their nodes instead (P001). A
        process that may run everywhere has no near node.

    Fix
        Bind CPUs and memory before the start (numactl --cpunodebind --membind), or move
        what is there: migratepages(8).

    Source
        numa(7); migratepages(8); cpuset(7), memory_migrate
    """
    found = looked_at(host, target)
    all_nodes = host_nodes(host)
    judged, blind = [], {}
    for placement in pools(found):
        pids = [pid for pid in pids_of(placement) if pid in found.processes]
        try:
            if any(found.gpus(pid).devices for pid in pids):
                continue
        except Undecided:
            pass  # told by P001; what its CPUs are held to holds without
        try:
            near = frozenset[int]().union(*(found.cpu_nodes(pid) for pid in pids)) & all_nodes
        except Undecided as error:
            blind[placement.mapping.pid] = error
            continue
        if near and near < all_nodes:
            judged.append(_Judged(placement, near, off(placement.by_node, near)))
    yield from undecided_processes(found, blind, "on which CPUs its threads may run")
    told = list(_far(found, judged, "CPUs"))
    yield from told
    if judged and not told:
        yield passed(
            f"{_sum_text(judged)} are near the CPUs of their processes",
            evidence=[seen(one.placement) for one in judged[:3]],
        )
    elif not judged and not blind:
        yield skip("no large memory of a process without GPUs that is held to some nodes' CPUs")
