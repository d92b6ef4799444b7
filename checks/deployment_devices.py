"""GPUs in files: one bind for GPUs of several nodes, topology files, Slurm's resources."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.host.parsers.nccl import NcclCpu
from numadoctor.lint.bindings import CPUS, Binding, bindings
from numadoctor.lint.documents import Document
from numadoctor.lint.gpus import Gpus, gpus_of
from numadoctor.lint.nccl import Topology
from numadoctor.lint.nodes import Word
from numadoctor.lint.workloads import Workload
from numadoctor.model import (
    Device,
    Evidence,
    Finding,
    Fix,
    Location,
    Severity,
    fail,
    passed,
    unknown,
    warn,
)
from numadoctor.model.words import count, cpus_text, listed, nodes_text

from ._deployment import CONTAINERS, for_each, in_file, known_ids, launcher, seen

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "D016",
    name="one-bind-for-all-gpus",
    needs=CONTAINERS,
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def one_bind_for_all_gpus(host: "Host | None", document: Document) -> Iterator[Finding]:
    """One command binds a process with GPUs of several nodes to one node.

    Why it matters
        `numactl --membind=0` in front of an engine with eight GPUs binds all its workers: the
        buffers of the GPUs on the other socket are remote, all traffic goes through one
        memory controller, and half of the memory is not used at all.

    When it is harmless
        Where all the GPUs are on the node that is named.

    Fix
        Let the engine bind each worker by its GPU (vLLM --numa-bind, SGLang --numa-node with
        one node for each GPU), interleave what all workers share, or start one instance for
        each node.

    Source
        numactl(8); vllm/utils/numa_utils.py; python/sglang/srt/utils/numa_utils.py
    """

    def judge(workload: Workload) -> Iterator[Finding]:
        bound = _to_one_node(workload)
        gpus = gpus_of(workload) or _every(host, workload)
        if bound is None or gpus is None:
            return
        word, wanted, number = gpus.word, gpus.indices, gpus.number
        node = known_ids(bound.word)
        if node is None:
            bound.word.settled()
            return
        if number == 1:
            return
        if host is None:
            yield unknown(
                f"{bound.by} {bound.word.shown} for {number} GPUs, whose nodes are not known",
                subject=workload.name,
                cause="Compare with the machine: --sysroot.",
                evidence=seen(bound.word, word),
                location=bound.word.location,
            )
            return
        yield _compared(host, workload, bound, node, word, wanted, number)

    yield from for_each(document, judge)


def _every(host: "Host | None", workload: Workload) -> Gpus | None:
    """All GPUs of the machine, where a container is given all."""
    word = workload.gpus
    if host is None or word is None or word.text not in ("all", "gpu", "-1"):
        return None
    number = sum(device.kind == "gpu" for device in host.topology.devices)
    return Gpus(word, (), number) if number else None


def _to_one_node(workload: Workload) -> Binding | None:
    """A binding of the whole process to one node, and not one for each worker."""
    for binding in bindings(workload):
        if binding.what == CPUS or binding.soft or binding.by.startswith("--numa"):
            continue
        if binding.word.open or len(known_ids(binding.word) or ()) == 1:
            return binding
    return None


def _compared(
    host: "Host",
    workload: Workload,
    bound: Binding,
    node: tuple[int, ...],
    word: Word,
    wanted: tuple[int, ...],
    number: int,
) -> Finding:
    # NVML numbers GPUs in the order of their PCI addresses.
    gpus = sorted((d for d in host.topology.devices if d.kind == "gpu"), key=lambda d: d.address)
    if not gpus:
        return unknown(
            f"{bound.by} {bound.word.shown} for {count(number, 'GPU')}, and the machine shows none",
            subject=workload.name,
            evidence=seen(bound.word, word),
            location=bound.word.location,
        )
    chosen: list[Device] = [gpus[i] for i in wanted if i < len(gpus)] or gpus[:number]
    elsewhere = [gpu for gpu in chosen if gpu.node is not None and gpu.node not in node]
    if not elsewhere:
        return passed(
            f"{bound.by} {bound.word.shown}: its GPUs are on {nodes_text(node)}",
            subject=workload.name,
            evidence=[*seen(bound.word, word), *_nodes_evidence(chosen)],
            location=bound.word.location,
        )
    others = sorted({gpu.node for gpu in elsewhere if gpu.node is not None})
    return warn(
        f"{bound.by} {bound.word.shown} binds all workers to {nodes_text(node)}, and "
        f"{count(len(elsewhere), 'GPU')} of {len(chosen)} are on {nodes_text(others)}",
        subject=workload.name,
        cause="Their buffers are remote, and all traffic goes through one memory controller.",
        evidence=[*seen(bound.word, word), *_nodes_evidence(elsewhere)],
        fixes=[
            *_moved(workload, bound, others if len(elsewhere) == len(chosen) else []),
            Fix("vllm", "--numa-bind\n# instead: binds each worker by its GPU", False, True),
            in_file(
                bound.word,
                f"# one instance for {listed([nodes_text([n]) for n in sorted({*node, *others})])}",
                f"each with its GPUs, instead of line {bound.word.line}",
                by=launcher(workload),
            ),
        ],
        location=bound.word.location,
    )


def _moved(workload: Workload, bound: Binding, nodes: list[int]) -> list[Fix]:
    """The node that all GPUs are on, where there is one."""
    if len(nodes) != 1:
        return []
    text = f"{nodes[0]}\n# {bound.by}, instead of {bound.word.shown} in line {bound.word.line}"
    return [in_file(bound.word, text, by=launcher(workload))]


def _nodes_evidence(gpus: list[Device]) -> list[Evidence]:
    return [
        Evidence(f"/sys/bus/pci/devices/{gpu.address}/numa_node", f"{gpu.node}") for gpu in gpus[:4]
    ]


# The kernel's largest number of nodes (MAX_NUMNODES with NODES_SHIFT 10).
_MOST_CPUS = 1024


@check(
    "D019",
    name="nccl-topology",
    needs=("kind nccl",),
    scope=Scope.FILE,
    severity=Severity.HIGH,
)
def nccl_topology(host: "Host | None", document: Document) -> Iterator[Finding]:
    """An NCCL topology file whose CPU masks are equal, overlap, or differ from the machine.

    Why it matters
        NCCL binds its threads to the mask of the CPU that the GPU is below, and counts paths
        by the node. A file that was written for another machine, or in which both CPUs have
        the mask of all, puts the threads of every GPU on the wrong socket, without a word.

    When it is harmless
        NCCL_IGNORE_CPU_AFFINITY=1 makes it ignore the masks; distances still follow the file.

    Fix
        The mask of each node from the machine that the file is for:

            cat /sys/devices/system/node/node1/cpumap

        or no file at all on bare metal, where NCCL reads the same from sysfs.

    Source
        src/graph/xml.cc and src/graph/topo.cc of NCCL; NCCL user guide, NCCL_TOPO_FILE and
        NCCL_IGNORE_CPU_AFFINITY
    """
    topology: Topology = document.content
    cpus = topology.nccl.cpus
    if len(cpus) > _MOST_CPUS:
        yield unknown(
            f"{count(len(cpus), 'cpu element')}: more than machines have nodes",
            subject=document.file,
            evidence=[Evidence(document.file, f"line {cpus[_MOST_CPUS].line}")],
            location=topology.place(cpus[_MOST_CPUS].line, "numaid"),
        )
        return
    wrong = 0
    for number, cpu in enumerate(cpus):
        if cpu.node is not None and cpu.cpus is None:
            wrong += 1
            yield unknown(
                f"the CPU of node {cpu.node} has no affinity mask",
                subject=f"node {cpu.node}",
                cause="NCCL takes it from the machine; the file does not say what that will be.",
                evidence=[Evidence(str(topology.place(cpu.line, "numaid")), f"numaid {cpu.node}")],
                location=topology.place(cpu.line, "numaid"),
            )
        for other in cpus[number + 1 :]:
            shared = set(cpu.cpus or ()) & set(other.cpus or ())
            if shared:
                wrong += 1
                yield _overlap(host, topology, cpu, other, shared)
    if host is not None:
        for finding in (*_masks(host, topology), *_places(host, topology)):
            wrong += 1
            yield finding
    if cpus and not wrong:
        compared = "as on the machine" if host else "not compared with a machine"
        yield passed(
            f"{count(len(cpus), 'CPU mask')}, no CPU in two of them; {compared}",
            subject=document.file,
            evidence=[
                Evidence(str(topology.place(cpu.line, "affinity")), cpu.affinity)
                for cpu in cpus[:4]
            ],
            location=Location(document.file, cpus[0].line or None),
        )
    elif not cpus:
        yield unknown(
            "the file has no cpu element: nothing is told of CPUs",
            subject=document.file,
            location=Location(document.file),
            evidence=[Evidence(document.file, "no cpu element")],
        )


def _overlap(
    host: "Host | None", topology: Topology, first: NcclCpu, second: NcclCpu, shared: set[int]
) -> Finding:
    same = first.cpus == second.cpus
    place = topology.place(second.line, "affinity")
    mask = _mask_of(host, second.node)
    what = "have the same mask" if same else f"share {cpus_text(shared)}"
    return fail(
        f"the CPUs of nodes {first.node} and {second.node} {what}",
        subject=f"nodes {first.node} and {second.node}",
        cause="NCCL's threads for the GPUs of both run on the same CPUs; on the machine no CPU is "
        "of two nodes.",
        evidence=[
            Evidence(str(topology.place(first.line, "affinity")), first.affinity),
            Evidence(str(place), second.affinity),
        ],
        fixes=[
            in_file(
                place, f'affinity="{mask}"', f"node {second.node}, instead of line {place.line}"
            )
        ],
        location=place,
    )


def _mask_of(host: "Host | None", node: int | None) -> str:
    """The mask of a node as the kernel writes it, or where it is to be read."""
    if host is not None:
        for one in host.topology.nodes:
            if one.id == node:
                return _mask(one.cpus)
    return f"(/sys/devices/system/node/node{node}/cpumap)"


def _mask(cpus: tuple[int, ...]) -> str:
    number = sum(1 << cpu for cpu in cpus)
    digits = f"{number:x}"
    digits = digits.rjust(-(-len(digits) // 8) * 8, "0")
    return ",".join(digits[at : at + 8] for at in range(0, len(digits), 8))


def _masks(host: "Host", topology: Topology) -> Iterator[Finding]:
    nodes = {node.id: node for node in host.topology.nodes}
    for cpu in topology.nccl.cpus:
        if cpu.node is None or cpu.cpus is None:
            continue
        place = topology.place(cpu.line, "affinity")
        if cpu.node not in nodes:
            yield fail(
                f"node {cpu.node} is in the file and not on the machine",
                subject=f"node {cpu.node}",
                cause=f"The machine has {nodes_text(nodes)}: the file is for another one.",
                evidence=[Evidence(str(place), f"numaid {cpu.node}")],
                fixes=[in_file(place, "# unset NCCL_TOPO_FILE, or a file for this machine")],
                location=place,
            )
        elif set(cpu.cpus) != set(nodes[cpu.node].cpus):
            there = nodes[cpu.node].cpus
            yield fail(
                f"node {cpu.node} has {cpus_text(cpu.cpus)} in the file and {cpus_text(there)} on "
                "the machine",
                subject=f"node {cpu.node}",
                cause="NCCL binds its threads to what the file says.",
                evidence=[
                    Evidence(str(place), cpu.affinity),
                    host.evidence(f"/sys/devices/system/node/node{cpu.node}/cpulist"),
                ],
                fixes=[
                    in_file(place, f'affinity="{_mask(there)}"', f"instead of line {place.line}")
                ],
                location=place,
            )


def _places(host: "Host", topology: Topology) -> Iterator[Finding]:
    nodes = {device.address: device.node for device in host.topology.devices}
    for device in topology.nccl.devices:
        if device.cpu is None or device.address not in nodes:
            continue
        told, there = topology.nccl.cpus[device.cpu].node, nodes[device.address]
        if told is not None and there is not None and told != there:
            place = topology.place(device.line, "busid")
            yield fail(
                f"{device.address} is below node {told} in the file and on node {there} of the "
                "machine",
                subject=f"device {device.address}",
                cause="NCCL takes its paths, and the CPUs of its threads, from the file.",
                evidence=[
                    Evidence(str(place), device.address),
                    Evidence(f"/sys/bus/pci/devices/{device.address}/numa_node", str(there)),
                ],
                fixes=[in_file(place, f'# move the element below <cpu numaid="{there}">')],
                location=place,
            )
