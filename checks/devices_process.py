"""The GPUs of a process: beside its CPUs and its memory, which is not theirs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.host.allowed import UNNARROWED, read_allowed
from numadoctor.model import (
    Allowed,
    Evidence,
    Finding,
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
from numadoctor.model.binding import bind, cpuset
from numadoctor.model.words import cpus_text, nodes_text

from ._devices import (
    PCI,
    USAGE,
    bind_fixes,
    disagreements,
    gpus,
    named,
    nearest_cpu_nodes,
    node_evidence,
    nodes_of,
    unknown_places,
    usage_of,
)
from ._envelope import for_target

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.devices.usage import Usage


def _allowed(host: "Host", target: Target) -> Allowed:
    topology = host.topology
    ids = tuple(node.id for node in topology.nodes)
    allowed = read_allowed(host, target.proc, topology.online_cpus, ids)
    if allowed.source.endswith(UNNARROWED):
        host.status(target.proc)  # raises what stands in the way
    return allowed


@check(
    "G003",
    name="process-near-its-gpus",
    needs=(*USAGE, "/proc/PID/status", "/sys/fs/cgroup/*/cpuset.*", f"{PCI}/*/numa_node"),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESS,
    severity=Severity.HIGH,
)
def process_near_its_gpus(host: "Host", target: Target) -> Iterator[Finding]:
    """A process feeds a GPU from the CPUs or the memory of another node.

    Why it matters
        Launching kernels, copying from pinned memory, polling for completion and
        tokenizing happen on CPUs. On another node each of these crosses the link
        between sockets: copies lose a third and more of their bandwidth, launches gain
        microseconds, and all instances of the machine share that one link.

    When it is harmless
        For a process that computes on the GPU alone for seconds at a time and copies
        next to nothing. A process with GPUs on several nodes cannot be near to all of
        them from one: it needs a worker for each node. Which GPU a worker uses is told
        by its open device files; CUDA may open all that it can see, so that for a worker
        which has several open and no rank of its own only what holds for all is judged.

    Fix
        Start each worker on the node of its GPU, CPUs and memory alike:

            numactl --cpunodebind=1 --membind=1 COMMAND

        Schedulers do it by themselves where they are told to: topologyManagerPolicy
        single-numa-node in Kubernetes, --gpu-bind=closest in Slurm.

    Source
        CUDA C++ best practices guide, "NUMA best practices"; nvidia-smi(1), topo;
        Documentation/ABI/testing/sysfs-bus-pci (numa_node)
    """
    if not gpus(host):
        yield skip("no GPU or accelerator on a PCI bus", subject=target.subject)
        return
    usage = usage_of(host, target)
    if usage.opened is None:
        # Raises what stands in the way.
        host.list(f"{target.proc}/fd")
    elif not any(device.kind in ("gpu", "accelerator") for device in usage.opened.devices):
        if usage.opened.unmapped:
            files = ", ".join(usage.opened.unmapped[:4])
            raise Undecided(f"{target.proc}/fd", None, f"nothing tells which GPU {files} is")
        yield skip(f"{target.subject} has no GPU open", subject=target.subject)
        return
    yield from disagreements(usage, target)
    if any(device.node is None for device in usage.devices):
        yield unknown_places(usage.devices, host, target.subject)
        return
    allowed = _allowed(host, target)
    if allowed.cpus is None or allowed.nodes is None:
        raise Undecided(allowed.source, None, "what the process may use is not known")
    yield _judge_place(host, target, usage, allowed)


def _judge_place(host: "Host", target: Target, usage: "Usage", allowed: Allowed) -> Finding:
    topology = host.topology
    cpus, mems = set(allowed.cpus or ()), set(allowed.nodes or ())
    on = {node.id for node in topology.nodes if cpus & set(node.cpus)}
    near = {d.address: set(nearest_cpu_nodes(topology, d.node or 0)) for d in usage.devices}
    no_cpu = [d for d in usage.devices if not near[d.address] & on]
    memory = {node.id for node in topology.memory_nodes}
    no_memory = [
        d for d in usage.devices if d.node in memory and d.node not in mems and d not in no_cpu
    ]
    evidence = [
        *usage.evidence[:3],
        *(node_evidence(host, device) for device in (no_cpu or no_memory or usage.devices)[:3]),
        host.evidence(f"{target.proc}/status", "Cpus_allowed_list", "Mems_allowed_list"),
    ]
    where = f"{_which(usage)} on {nodes_text(nodes_of(usage.devices))}"
    its_cpus = f"it may run on {cpus_text(sorted(cpus))} of {nodes_text(sorted(on))}"
    its_memory = f"its memory may come from {nodes_text(sorted(mems))} alone"
    bad = no_cpu or no_memory
    if not bad:
        everywhere = {n for ids in near.values() for n in ids}
        text = f"{target.subject} uses {where}; {its_cpus}"
        if on <= everywhere:
            return passed(text, subject=target.subject, evidence=evidence)
        return info(
            f"{text}: its threads may run away from it",
            subject=target.subject,
            cause="The scheduler moves threads between nodes to balance load, and memory that they "
            "touch first then lies where they were.",
            evidence=evidence,
            fixes=bind_fixes(host, target, [n for n in topology.nodes if n.id in everywhere]),
        )
    text = f"{target.subject} uses {where}; {f'{its_cpus} alone' if no_cpu else its_memory}"
    wanted = [n for n in topology.nodes if n.id in {i for d in bad for i in near[d.address]}]
    fixes = bind_fixes(host, target, wanted)
    cause = (
        "Every launch, copy and completion crosses the link between nodes."
        if no_cpu
        else "Every host buffer of the GPU is across the link between nodes."
    )
    if len(bad) == len(usage.devices):
        verdict = fail if usage.certain or usage.because == "its rank" else warn
        text = text if usage.certain else f"{text}, whichever of them it works with"
        return verdict(text, subject=target.subject, cause=cause, evidence=evidence, fixes=fixes)
    return info(
        f"{text}: {named(bad)} would be remote; which of them it works with is not known",
        subject=target.subject,
        cause=cause,
        evidence=evidence,
    )


def _which(usage: "Usage") -> str:
    return named(usage.devices)


@check(
    "G013",
    name="gpu-memory-nodes-allowed",
    needs=(
        "/proc/PID/status",
        "/sys/fs/cgroup/*/cpuset.*",
        "/proc/driver/nvidia/gpus/*/numa_status",
    ),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESS,
)
def gpu_memory_allowed(host: "Host", target: Target) -> Iterator[Finding]:
    """The process may put host memory on nodes that are the memory of GPUs.

    Why it matters
        On Grace and on POWER9 with NVLink the memory of a GPU is a node without CPUs.
        A cpuset that allows it lets ordinary pages spill there when the nodes with CPUs
        are full, an interleave over "all" nodes puts most pages there, and CUDA then
        finds its own memory taken.

    When it is harmless
        For a process that binds its memory by itself, or puts managed memory there on
        purpose. The kernel prefers nodes with CPUs as long as these have free pages.

    Fix
        Allow the nodes with CPUs alone:

            numactl --membind=0,1 COMMAND      docker run --cpuset-mems 0,1 ...

    Source
        NVIDIA Grace performance tuning guide, "NUMA"; numa_status in nv-procfs.c of
        NVIDIA's kernel module; Documentation/admin-guide/mm/numa_memory_policy.rst
    """
    topology = host.topology
    of_gpus = {node.id for node in topology.nodes if node.kind is NodeKind.GPU}
    if not of_gpus:
        yield skip("no node is the memory of a GPU", subject=target.subject)
        return
    allowed = _allowed(host, target)
    if allowed.nodes is None:
        raise Undecided(allowed.source, None, "which memory the process may use is not known")
    evidence = [
        host.evidence(allowed.source, "Mems_allowed_list")
        if allowed.source.endswith("/status")
        else Evidence(allowed.source, f"memory of {nodes_text(allowed.nodes)}"),
        *(
            host.evidence(f"/proc/driver/nvidia/gpus/{device.address}/numa_status", "Node")
            for device in gpus(host)[:2]
        ),
    ]
    mine = sorted(of_gpus & set(allowed.nodes))
    # Where it may use the memory of GPUs alone, all nodes with CPUs are better.
    all_hosts = [node.id for node in topology.host_nodes]
    hosts = [node for node in all_hosts if node in allowed.nodes] or all_hosts
    if not mine:
        yield passed(
            f"{target.subject} may use the memory of {nodes_text(allowed.nodes)}, none a GPU's",
            subject=target.subject,
            evidence=evidence,
        )
        return
    yield warn(
        f"{target.subject} may put ordinary memory on {nodes_text(mine)}, the memory of GPUs",
        subject=target.subject,
        cause="Pages spill there as soon as the nodes with CPUs are full, and an interleave over "
        "all nodes uses them at once.",
        evidence=evidence,
        fixes=for_target(
            host,
            target,
            (
                *bind(nodes=hosts, by=("numactl", "slurm")),
                *cpuset(nodes=hosts),
            ),
        ),
    )
