"""Devices: on which node each GPU, accelerator, NIC and NVMe drive is, and how that is known."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.engine.runner import undecided
from numadoctor.model import (
    Device,
    Evidence,
    Finding,
    Missing,
    Node,
    Severity,
    Step,
    Target,
    Undecided,
    info,
    passed,
    skip,
    warn,
)
from numadoctor.model.words import count, listed

from ._devices import NAMED, PCI, WORDS, device_subject, named, node_evidence
from ._topology import NODES, be, memory_evidence, platform_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host

_NVME = 0x0108


@check(
    "G001",
    name="device-locality",
    needs=(
        f"{PCI}/*/class",
        f"{PCI}/*/numa_node",
        f"{PCI}/*/local_cpus",
        f"{NODES}/online",
        f"{NODES}/node*/meminfo",
        "fact nvml",
        "/sys/class/kfd/kfd/topology/nodes/*/properties",
    ),
    requires=Requires.NUMA,
    severity=Severity.MEDIUM,
)
def device_locality(host: "Host", target: Target) -> Iterator[Finding]:
    """The node of a GPU, accelerator, NIC or NVMe drive is not known, or has no memory for it.

    Why it matters
        Whoever places threads and buffers near a device asks sysfs for its numa_node:
        NCCL, UCX, DPDK, the kubelet's device plugins, launchers. -1 is no node: most of
        them then take node 0, or all nodes, and every buffer of a device on another
        node crosses the link between sockets in both directions.

    When it is harmless
        On a machine with one node. And where a bridge above the device, or its list of
        local CPUs, or its driver, names the node: numadoctor derives it and says so, but
        other programs may not. Of GPUs on a node without memory G007 tells.

    Fix
        The firmware has to say it (_PXM in ACPI): update it, and look for a BIOS option
        that ties PCIe root ports to nodes. A virtual machine: put the device behind a
        pxb-pcie expander bus on its node. Writing a number into numa_node is no fix: it
        taints the kernel, is gone at the next start, and is a guess.

    Source
        Documentation/ABI/testing/sysfs-bus-pci (numa_node, local_cpulist);
        numa_node_store() in drivers/pci/pci-sysfs.c (FW_BUG, taints the kernel);
        acpi_get_node() in drivers/acpi/numa/srat.c; ACPI 6.5, 6.2.14 (_PXM); QEMU,
        docs/pcie.txt and docs/pci_expander_bridge.txt
    """
    devices = [device for device in host.topology.devices if _matters(device)]
    if not devices:
        yield _none_there(host)
        return
    findings = list(_told(host, devices))
    yield from findings
    if not findings:
        kinds = [_counted([d for d in devices if d.kind == kind]) for kind in _kinds(devices)]
        yield passed(
            f"the node of each device is known: {listed(kinds)}",
            evidence=[node_evidence(host, device) for device in devices[:3]],
        )


def _none_there(host: "Host") -> Finding:
    try:
        host.list(PCI)
    except Missing:
        # Without sysfs nothing is known; with it there is a bus or there is none.
        if not host.has("/sys/bus"):
            raise
    return skip("no GPU, accelerator, NIC or NVMe drive on a PCI bus")


def _matters(device: Device) -> bool:
    if device.kind == "storage":
        return device.pci_class >> 8 == _NVME
    return device.kind in WORDS


def _kinds(devices: Iterable[Device]) -> list[str]:
    return list(dict.fromkeys(device.kind for device in devices))


def _counted(devices: list[Device]) -> str:
    text: str = count(len(devices), WORDS[devices[0].kind])
    return text


def _subject(devices: list[Device]) -> str:
    if len(devices) == 1:
        return device_subject(devices[0])
    return f"{devices[0].kind}s" if devices[0].kind != "storage" else "storage"


def _told(host: "Host", devices: list[Device]) -> Iterator[Finding]:
    online = {node.id: node for node in host.topology.nodes}
    alone = [device for device in devices if device.step is Step.ONLY_NODE]
    if alone:
        yield _one_node(host, alone)
    for kind in _kinds(devices):
        mine = [device for device in devices if device.kind == kind and device not in alone]
        lost = [device for device in mine if device.node is None]
        yield from _lost(host, lost)
        derived = [d for d in mine if d.node is not None and d.step is not Step.SYSFS]
        if derived:
            yield _derived(host, derived)
        for device in mine:
            if device.node is None:
                continue
            node = online.get(device.node)
            if node is None:
                yield _on_no_node(host, device)
            elif not node.has_memory and device.kind not in ("gpu", "accelerator"):
                # Of GPUs G007 tells.
                yield _without_memory(host, device, node)


def _one_node(host: "Host", devices: list[Device]) -> Finding:
    groups = [named([d for d in devices if d.kind == kind]) for kind in _kinds(devices)]
    return info(
        f"numa_node is -1 for {listed(groups)}: the machine has one node",
        cause="Nothing is lost here; a program that takes -1 for an error is wrong.",
        evidence=[node_evidence(host, device) for device in devices[:3]],
    )


def _lost(host: "Host", devices: list[Device]) -> Iterator[Finding]:
    minus_one = []
    for device in devices:
        try:
            host.integer(f"{PCI}/{device.address}/numa_node")
            minus_one.append(device)
        except Undecided as error:
            yield undecided(error, _subject([device]))
    if minus_one:
        yield _unknown_node(host, minus_one)


def _unknown_node(host: "Host", devices: list[Device]) -> Finding:
    first = devices[0]
    evidence = [node_evidence(host, device) for device in devices[:NAMED]]
    for name in ("local_cpulist", "local_cpus"):
        local = host.evidence(f"{PCI}/{first.address}/{name}")
        if any(character.isdigit() for character in local.text):
            evidence.append(local)
            break
    return warn(
        f"on which node {named(devices)} {be(devices)} cannot be told: numa_node is "
        f"-1, for the bridges above too, on a machine with {len(host.topology.nodes)} nodes",
        subject=_subject(devices),
        cause="The firmware or the hypervisor does not say it. Programs that place buffers near "
        "the device take the first node, or all.",
        evidence=evidence,
        fixes=platform_fixes(
            host,
            ["update the BIOS: its ACPI tables lack _PXM for the root port above the device"],
            {
                "libvirt": "<controller type='pci' model='pcie-expander-bus'>\n"
                "  <target busNr='128'><node>1</node></target>\n"
                "</controller>\n# and the device's <address> on it",
                "qemu": "-device pxb-pcie,id=pxb1,bus_nr=128,numa_node=1,bus=pcie.0 "
                "-device pcie-root-port,id=rp1,bus=pxb1 -device vfio-pci,bus=rp1,host=...",
            },
        ),
    )


def _derived(host: "Host", devices: list[Device]) -> Finding:
    first = devices[0]
    places = [f"{d.address} on node {d.node} ({_how(d)})" for d in devices[:NAMED]]
    more = ", ..." if len(devices) > NAMED else ""
    return info(
        f"the node of {_counted(devices)} is derived, as numa_node does not say it: "
        f"{', '.join(places)}{more}",
        subject=_subject(devices),
        cause="Programs that look at numa_node alone do not know it.",
        evidence=[node_evidence(host, first), _told_by(host, first)],
    )


def _how(device: Device) -> str:
    return device.node_source if device.step is Step.DRIVER else f"its {device.node_source}"


def _told_by(host: "Host", device: Device) -> Evidence:
    if device.step is Step.BRIDGE:
        bridge = device.node_source.removeprefix("parent bridge ")
        return host.evidence(f"{PCI}/{bridge}/numa_node")
    if device.step is Step.DRIVER:
        return Evidence(device.node_source, f"{device.address} on node {device.node}")
    return host.evidence(f"{PCI}/{device.address}/{device.node_source}")


def _on_no_node(host: "Host", device: Device) -> Finding:
    return warn(
        f"{named([device])} is on node {device.node}, which is not online",
        subject=_subject([device]),
        cause="The socket that the device is attached to has no memory or is switched off: all "
        "its buffers are remote.",
        evidence=[node_evidence(host, device), host.evidence(f"{NODES}/online")],
        fixes=platform_fixes(
            host,
            [f"put memory into the slots of the socket of node {device.node}"],
            {"libvirt": "name a node of the guest in the <node> of the device's controller"},
        ),
    )


def _without_memory(host: "Host", device: Device, node: Node) -> Finding:
    near = sorted(
        (distance, other.id)
        for other in host.topology.host_nodes
        if (distance := node.distances.get(other.id)) is not None
    )
    where = f"; the nearest with CPUs and memory is node {near[0][1]}" if near else ""
    return info(
        f"{named([device])} is on node {node.id}, which has no memory{where}",
        subject=_subject([device]),
        cause="Its host buffers are on another node, wherever they are put. T002 tells more.",
        evidence=[node_evidence(host, device), memory_evidence(host, node)],
    )
