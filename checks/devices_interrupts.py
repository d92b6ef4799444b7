"""Where the interrupts of NICs are handled."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host import parsers
from numadoctor.model import (
    Device,
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
from numadoctor.model.words import count, nodes_text

from ._devices import (
    PCI,
    device_subject,
    nearest_cpu_nodes,
    node_evidence,
)

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.devices.interrupts import Interrupt


# One interrupt for commands and events beside those of the queues is on any CPU.
_CONTROL = re.compile(r"async|control|cmd|pages|mlx[45]-async|ctrl|adminq|config", re.IGNORECASE)


@check(
    "G011",
    name="interrupts-near-nic",
    needs=(
        f"{PCI}/*/msi_irqs",
        "/proc/irq/*",
        "/proc/irq/*/effective_affinity_list",
        "/proc/irq/*/smp_affinity_list",
    ),
    requires=Requires.SEVERAL_NODES,
)
def interrupts_near_nic(host: "Host", target: Target) -> Iterator[Finding]:
    """The interrupts of a NIC are handled by CPUs of another node than the NIC's.

    Why it matters
        The CPU that handles the interrupt of a receive queue allocates and touches the
        buffers of what came in. On another node each packet crosses the link between
        sockets, and requests wait longer for their first token.

    When it is harmless
        For RDMA traffic, which takes no interrupt for data, and where a NIC serves
        processes on both nodes, each with queues of its own. Interrupts of NVMe drives
        are spread by the kernel itself and not judged.

    Fix
        irqbalance keeps to the node when it runs (look for IRQBALANCE_BANNED_CPULIST);
        without it: write the CPUs of the NIC's node into smp_affinity_list, or let the
        vendor's script do it (set_irq_affinity_bynode.sh NODE INTERFACE).

    Source
        Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst
        (RSS); irqbalance(1)
    """
    nics = [
        device
        for device in host.topology.devices
        if device.kind == "nic" and device.node is not None and (device.interfaces or device.rdma)
    ]
    if not nics:
        yield skip("no NIC of known node with an interface")
        return
    looked = False
    for device in nics:
        finding = _judge_interrupts(host, device)
        looked = looked or finding is not None
        if finding:
            yield finding
    if not looked:
        yield skip("no NIC has interrupts of its own in use")


def _judge_interrupts(host: "Host", device: Device) -> Finding | None:
    from numadoctor.host.devices.interrupts import device_interrupts

    subject = device_subject(device)
    try:
        found = device_interrupts(host, device.address)
    except Missing:
        return None
    except Undecided as error:
        return unknown(
            f"where the interrupts of {_nic(device)} are handled cannot be told: {error.reason}",
            subject=subject,
            evidence=[Evidence(error.path, error.reason)],
        )
    queues = [one for one in found if not _CONTROL.search(one.name)] or list(found)
    topology = host.topology
    near = {
        cpu
        for node in topology.nodes
        if node.id in nearest_cpu_nodes(topology, device.node or 0)
        for cpu in node.cpus
    }
    if not queues or not near:
        return None
    far = [one for one in queues if not near & set(one.cpus)]
    evidence = [
        node_evidence(host, device),
        *(host.evidence(one.source) for one in (far or queues)[:2]),
    ]
    text = f"{_nic(device)} on {nodes_text([device.node or 0])}"
    if not far:
        return passed(
            f"{text}: its {count(len(queues), 'interrupt')} are handled there",
            subject=subject,
            evidence=evidence,
        )
    where = {n.id for n in topology.nodes for one in far if set(n.cpus) & set(one.cpus)}
    on = nodes_text(sorted(where))
    text += f": {len(far)} of {count(len(queues), 'interrupt')} are handled on {on}"
    if len(far) * 2 <= len(queues):
        return info(
            text,
            subject=subject,
            cause="Spread over all CPUs, as some drivers and tools do by themselves.",
            evidence=evidence,
        )
    return warn(
        text,
        subject=subject,
        cause="Packets land in memory of that node, or cross the link between nodes.",
        evidence=evidence,
        fixes=_interrupt_fixes(device, far, near),
    )


def _nic(device: Device) -> str:
    name = (device.interfaces or device.rdma or device.names)[0]
    return f"NIC {name} ({device.address})"


def _interrupt_fixes(
    device: Device, far: Sequence["Interrupt"], near: Iterable[int]
) -> tuple[Fix, ...]:
    cpus = parsers.format_list(near)
    lines = [f"echo {cpus} > /proc/irq/{one.number}/smp_affinity_list" for one in far[:4]]
    more = [f"# and {len(far) - 4} more"] if len(far) > 4 else []
    fixes = [Fix("sysfs", "\n".join([*lines, *more]), needs_root=True)]
    if device.interfaces:
        script = f"set_irq_affinity_bynode.sh {device.node} {device.interfaces[0]}"
        fixes.append(Fix("any", script, needs_root=True))
    return tuple(fixes)
