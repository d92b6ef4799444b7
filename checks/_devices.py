"""What the checks of devices share: which devices count, how they are named, fixes for binding."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from numadoctor.model import Device, Evidence, Finding, Fix, Node, Target, Topology, info, unknown
from numadoctor.model.binding import bind
from numadoctor.model.words import count

from ._envelope import for_target
from ._topology import be

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.devices.usage import Usage

PCI = "/sys/bus/pci/devices"

USAGE = (
    "/proc/PID/environ",
    "/proc/PID/cmdline",
    "/proc/PID/fd",
    "/proc/PID/fd/*",
    "/sys/class/infiniband_verbs/*/ibdev",
    "/sys/class/kfd/kfd/topology/nodes/*/properties",
    "/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties",
    "fact nvml",
)
"""What is read to tell which GPUs a process uses."""

WORDS = {"gpu": "GPU", "accelerator": "accelerator", "nic": "NIC", "storage": "NVMe drive"}

# More addresses than that are counted, and found in the evidence and in `topology`.
NAMED = 8


def gpus(host: "Host") -> list[Device]:
    """The GPUs and accelerators, by address."""
    return [device for device in host.topology.devices if device.kind in ("gpu", "accelerator")]


def rdma_nics(host: "Host") -> list[Device]:
    """The NICs with an RDMA device, by address; of one with virtual functions the whole."""
    return [d for d in host.topology.devices if d.kind == "nic" and d.rdma]


def node_evidence(host: "Host", device: Device) -> Evidence:
    """The device's numa_node."""
    return host.evidence(f"{PCI}/{device.address}/numa_node")


def named(devices: Sequence[Device]) -> str:
    """``GPU 0000:c1:00.0``, ``8 GPUs (0000:18:00.0, ...)``, all of one kind."""
    word = WORDS[devices[0].kind]
    if len(devices) == 1:
        return f"{word} {devices[0].address}"
    addresses = [device.address for device in devices[:NAMED]]
    more = ", ..." if len(devices) > NAMED else ""
    return f"{count(len(devices), word)} ({', '.join(addresses)}{more})"


def device_subject(device: Device) -> str:
    """``gpu 0000:c1:00.0``."""
    return f"{device.kind} {device.address}"


def nearest_cpu_nodes(topology: Topology, node_id: int) -> tuple[int, ...]:
    """The nodes whose CPUs are nearest to a node: itself, if it has any."""
    node = topology.node(node_id)
    if node is None or node.cpus:
        return (node_id,)
    with_cpus = [other for other in topology.nodes if other.cpus and other.id in node.distances]
    least = min((node.distances[other.id] for other in with_cpus), default=None)
    return tuple(o.id for o in with_cpus if node.distances[o.id] == least) or (node_id,)


def unknown_places(devices: Iterable[Device], host: "Host", subject: str) -> Finding:
    """The finding for a judgement that the unknown node of a device stands in the way of."""
    lost = [device for device in devices if device.node is None]
    return unknown(
        f"on which node {named(lost)} {be(lost)} cannot be told: {lost[0].node_source}",
        subject=subject,
        cause="G001 tells what would help. NVML may know it: pip install 'numadoctor[gpu]'.",
        evidence=[node_evidence(host, device) for device in lost[:3]],
    )


def usage_of(host: "Host", target: Target) -> "Usage":
    """The GPUs that the target uses; read once for all checks that ask."""
    from numadoctor.host.devices.usage import read_usage

    return host.derive(("gpu usage", target.proc), lambda: read_usage(host, target.proc))


def bind_fixes(host: "Host", target: Target, nodes: Sequence[Node]) -> tuple[Fix, ...]:
    """Start the target on these nodes: CPUs and memory in the same place."""
    ids = [node.id for node in nodes]
    with_cpus = [node.id for node in nodes if node.cpus]
    cpus = [cpu for node in nodes for cpu in node.cpus]
    return for_target(host, target, bind(cpus, ids, cpu_nodes=with_cpus))


def nodes_of(devices: Sequence[Device]) -> list[int]:
    """The nodes of the devices, as far as known, ascending."""
    return sorted({device.node for device in devices if device.node is not None})


def disagreements(usage: "Usage", target: Target) -> Iterator[Finding]:
    """Where descriptors and variables disagree: told, and judged by the descriptors."""
    for remark in usage.remarks if usage.opened else ():
        if "open" in remark:
            yield info(
                f"{target.subject}: {remark}",
                subject=f"{target.subject}: GPUs",
                evidence=usage.evidence,
            )
