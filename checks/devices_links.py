"""Devices as hardware: what drivers say against sysfs, links below their best."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host.devices.vendors import AMD, NVIDIA
from numadoctor.model import (
    Device,
    Distance,
    Evidence,
    Finding,
    Fix,
    PcieLink,
    Step,
    Target,
    distance,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.words import count, cpus_text, nodes_text

from ._devices import NAMED, PCI, device_subject, gpus, named, node_evidence

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.devices.nvml import NvmlGpu

_KFD = "/sys/class/kfd/kfd/topology/nodes"
_NVME = 0x0108


# What is compared: its name, what the driver says, what the kernel says, whether they agree.
_Pair = tuple[str, str, str, bool]


@check(
    "G002",
    name="driver-against-sysfs",
    needs=(
        "fact nvml",
        f"{_KFD}/*/properties",
        f"{_KFD}/*/io_links/*/properties",
        f"{PCI}/*/numa_node",
        "/proc/driver/nvidia/gpus/*/information",
    ),
    requires=Requires.NUMA,
)
def driver_against_sysfs(host: "Host", target: Target) -> Iterator[Finding]:
    """The GPU's driver or its library names another node, or another device, than the kernel.

    Why it matters
        NCCL and launchers read sysfs, nvidia-smi and device plugins read NVML, ROCm
        reads KFD. Where they disagree two programs of one job place the same GPU on
        different nodes.

    When it is harmless
        Where only one of them is used. Without nvidia-ml-py there is nothing to compare
        NVIDIA's GPUs with; numadoctor does without it.

    Fix
        The kernel's numa_node comes from the firmware (_PXM) and is what the memory
        system goes by. Update the driver where it disagrees; where firmware is wrong,
        update that.

    Source
        NVML API reference (nvmlDeviceGetMemoryAffinity, nvmlDeviceGetNumaNodeId);
        drivers/gpu/drm/amd/amdkfd/kfd_crat.c; Documentation/ABI/testing/sysfs-bus-pci
    """
    nvidia = [device for device in gpus(host) if device.vendor == NVIDIA]
    amd = [device for device in gpus(host) if device.vendor == AMD]
    compared: list[Device] = []
    findings: list[Finding] = []
    reason = "no GPU whose driver tells of nodes"
    if nvidia:
        from numadoctor.host.devices.nvml import read_nvml

        answer = host.fact("nvml")
        if isinstance(answer, dict) and "not installed" in str(answer.get("unavailable")):
            reason = "nvidia-ml-py is not installed: there is nothing to compare with sysfs"
        else:
            known = read_nvml(host)
            compared += [device for device in nvidia if device.address in known]
            findings += [f for d in compared for f in _against_nvml(host, d, known[d.address])]
    if amd:
        from numadoctor.host.devices.amd import kfd_nodes

        if kfd_nodes(host):
            compared += amd
            findings += [f for device in amd if (f := _against_kfd(host, device))]
    if not compared:
        yield skip(reason)
        return
    yield from findings
    if not findings:
        yield passed(
            f"driver and sysfs agree on {count(len(compared), 'GPU')}",
            evidence=[node_evidence(host, device) for device in compared[:3]],
        )


def _against_nvml(host: "Host", device: Device, gpu: "NvmlGpu") -> Iterator[Finding]:
    pairs: list[_Pair] = []
    if gpu.nodes and device.node is not None and device.step is not Step.DRIVER:
        pairs.append(("node", nodes_text(gpu.nodes), nodes_text([device.node]),
                      device.node in gpu.nodes))  # fmt: skip
    node = host.topology.node(device.node) if device.node is not None else None
    if gpu.cpus and node and node.cpus:
        same = bool(set(gpu.cpus) & set(node.cpus))
        pairs.append(("near", cpus_text(gpu.cpus), cpus_text(node.cpus), same))
    if gpu.minor is not None and device.minor is not None:
        pairs.append(("minor number", str(gpu.minor), str(device.minor), gpu.minor == device.minor))
    if gpu.uuid and device.uuid:
        pairs.append(("UUID", gpu.uuid, device.uuid, gpu.uuid == device.uuid))
    if gpu.memory_node is not None and device.memory_nodes:
        same = gpu.memory_node in device.memory_nodes
        mine = nodes_text(device.memory_nodes)
        pairs.append(("memory", nodes_text([gpu.memory_node]), mine, same))
    pairs += _distances(host, device, gpu)
    wrong = [
        f"{what}: {theirs}, the kernel {mine}" for what, theirs, mine, same in pairs if not same
    ]
    if wrong:
        yield _disagree(host, device, "NVML", wrong)


def _distances(host: "Host", device: Device, gpu: "NvmlGpu") -> Iterator[_Pair]:
    """Other GPUs that one says are across the link between nodes, and the other says are not."""
    for other in gpus(host):
        level, mine = gpu.levels.get(other.address), distance(device, other)
        if level and mine is not None:
            same = (level == Distance.SYS.label) == (mine is Distance.SYS)
            yield f"to {other.address}", level, mine.label, same


def _against_kfd(host: "Host", device: Device) -> Finding | None:
    from numadoctor.host.devices.amd import node_of

    node = node_of(host, device.address, host.topology.nodes)
    if node is None or device.node in (None, node) or device.step is Step.DRIVER:
        return None
    text = f"node: {nodes_text([node])}, the kernel {nodes_text([device.node or 0])}"
    return _disagree(host, device, "KFD", [text])


def _disagree(host: "Host", device: Device, who: str, wrong: list[str]) -> Finding:
    return warn(
        f"{named([device])}: {who} says {'; '.join(wrong)}",
        subject=device_subject(device),
        cause="Programs that ask the one and programs that ask the other place it differently.",
        evidence=[node_evidence(host, device), Evidence(who, "; ".join(wrong)[:200])],
        fixes=(
            Fix("any", "update the GPU's driver, and the firmware (_PXM of the root port)",
                needs_root=True, needs_restart=True, persists=True),
        ),
    )  # fmt: skip


def _linked(host: "Host") -> list[Device]:
    """The devices whose link is worth a look; virtual functions have none of their own."""
    return [
        device
        for device in host.topology.devices
        if device.link
        and not device.physical_function
        and (device.kind in ("gpu", "accelerator", "nic") or device.pci_class >> 8 == _NVME)
    ]


@check(
    "G009",
    name="pcie-link-at-its-best",
    needs=(f"{PCI}/*/current_link_*", f"{PCI}/*/max_link_*"),
)
def degraded_link(host: "Host", target: Target) -> Iterator[Finding]:
    """The PCI Express link of a device runs with fewer lanes or slower than both ends can.

    Why it matters
        A GPU on 8 of 16 lanes loads weights and copies KV blocks at half the speed, and
        slows down the whole group it computes in. Dirt in a connector, a riser or a
        cable that is not fully in, or a slot with fewer lanes are the usual causes;
        nothing else reports it.

    When it is harmless
        GPUs lower the speed of their link while they are idle: below full speed alone is
        told as information; look again under load. A board that wires fewer lanes to a
        slot than the device has can give no more: then the port above has fewer too.
        Where the port does not tell, as in a virtual machine, that is not decided.

    Fix
        Reseat the card, the riser or the cable; look in the BIOS for bifurcation and a
        limited link speed; `lspci -vv` shows LnkSta beside LnkCap.

    Source
        Documentation/ABI/testing/sysfs-bus-pci (current_link_speed, max_link_width);
        PCI Express Base Specification, Link Status Register
    """
    devices = _linked(host)
    if not devices:
        yield skip("sysfs tells of no PCI Express link of a GPU, NIC or NVMe drive")
        return
    slow: list[Device] = []
    lost: list[Device] = []
    bad = False
    for device in devices:
        link = device.link or PcieLink()
        if link.width is None or link.max_width is None:
            lost.append(device)
        elif link.width < min(link.max_width, link.port_width or link.max_width):
            bad = True
            yield _degraded(host, device, link, f"{link.width} of {_best_width(link)} lanes")
        elif _is_slow(link):
            slow.append(device)
    for device in slow:
        if device.kind not in ("gpu", "accelerator"):
            link = device.link or PcieLink()
            text = f"{link.speed:g} of {_best_speed(link):g} GT/s"
            bad = True
            yield _degraded(host, device, link, text)
    idle = [device for device in slow if device.kind in ("gpu", "accelerator")]
    if idle:
        bad = True
        first = idle[0].link or PcieLink()
        yield info(
            f"the link of {named(idle)} is below its full speed, as it is while idle "
            f"({first.speed:g} of {_best_speed(first):g} GT/s)",
            subject="gpu links",
            cause="Drivers lower it to save power. Look again while the GPU works.",
            evidence=_link_evidence(host, idle[0], "speed"),
        )
    if lost:
        bad = True
        yield unknown(
            f"the link of {', '.join(d.address for d in lost[:NAMED])} does not tell its width",
            subject="links",
            cause="A virtual machine, or a device on no PCI Express link.",
            evidence=_link_evidence(host, lost[0], "width"),
        )
    if not bad:
        yield passed(
            f"all links of {count(len(devices), 'device')} run at their best",
            evidence=_link_evidence(host, devices[0], "width"),
        )


def _best_width(link: PcieLink) -> int:
    return min(link.max_width or 0, link.port_width or link.max_width or 0)


def _best_speed(link: PcieLink) -> float:
    return min(link.max_speed or 0.0, link.port_speed or link.max_speed or 0.0)


def _is_slow(link: PcieLink) -> bool:
    return link.speed is not None and link.speed < _best_speed(link)


def _link_evidence(host: "Host", device: Device, what: str) -> list[Evidence]:
    base = f"{PCI}/{device.address}"
    return [host.evidence(f"{base}/{end}_link_{what}") for end in ("current", "max")]


def _degraded(host: "Host", device: Device, link: PcieLink, text: str) -> Finding:
    evidence = _link_evidence(host, device, "width" if "lanes" in text else "speed")
    if (link.port_width if "lanes" in text else link.port_speed) is None:
        return unknown(
            f"the link of {_what(device)} runs with {text}, and what the port above it can is "
            "not told",
            subject=device_subject(device),
            cause="A virtual machine shows the device without its slot, or the port was not "
            "captured. It is at its best where the port can do no more.",
            evidence=evidence,
        )
    return warn(
        f"the link of {_what(device)} runs with {text}",
        subject=device_subject(device),
        cause="Both ends can do better: something between them (slot, riser, cable, BIOS) limits "
        "it, and every copy to and from the device takes longer.",
        evidence=evidence,
        fixes=(
            Fix("bios", "look for bifurcation and a limited link speed of the slot",
                needs_root=True, needs_restart=True, persists=True),
            Fix("any", "# reseat the card, riser or cable, then compare LnkSta and LnkCap:\n"
                f"lspci -vv -s {device.address}", needs_root=True, needs_restart=True),
        ),
    )  # fmt: skip


def _what(device: Device) -> str:
    names = f" ({' '.join(device.names[:2])})" if device.names else ""
    return f"{named([device])}{names}"
