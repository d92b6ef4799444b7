"""Whether devices of one switch reach each other without the host in between."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from numadoctor.engine import check
from numadoctor.host import parsers
from numadoctor.model import (
    Device,
    Distance,
    Evidence,
    Finding,
    Fix,
    Severity,
    Target,
    Undecided,
    distance,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.words import count

from ._devices import NAMED, PCI, gpus, rdma_nics
from ._topology import boot_fix, is_virtual

if TYPE_CHECKING:
    from numadoctor.host import Host


_GROUPS = "/sys/kernel/iommu_groups"
_TRANSLATED = ("DMA", "DMA-FQ")


@check(
    "G010",
    name="peer-to-peer-direct",
    needs=(f"{PCI}/*/config", f"{_GROUPS}/*/type"),
    severity=Severity.MEDIUM,
)
def peer_to_peer(host: "Host", target: Target) -> Iterator[Finding]:
    """Access control or the IOMMU turns traffic between devices of one switch over the host.

    Why it matters
        GPUs and NICs below one PCI Express switch can exchange data through it. Access
        Control Services (ACS) with redirection send each such packet up to the root
        complex and back, and an IOMMU that translates makes it wait for a translation:
        GPUDirect is slow, and with some boards hangs or corrupts.

    When it is harmless
        On a host that passes devices through to virtual machines ACS must stay on; the
        guests use ATS. Where GPUs talk through NVLink alone and NICs move host memory.

    Fix
        For ACS: switch it off in the BIOS, or per port with setpci as NCCL's guide
        shows, at each start. For the IOMMU: iommu=pt on the kernel's command line keeps
        it for guests and lets the host's own devices through.

    Source
        NCCL, "Troubleshooting", PCI Access Control Services; PCI Express Base
        Specification, Access Control Services; Documentation/admin-guide/
        kernel-parameters.txt (iommu=pt); Documentation/ABI/testing/sysfs-kernel-iommu_groups
    """
    devices = [*gpus(host), *rdma_nics(host)]
    if len(devices) < 2 or not gpus(host):
        yield skip("fewer than two GPUs and RDMA devices: nothing talks to a peer")
        return
    if is_virtual(host):
        yield skip("a virtual machine: switches and IOMMU are those of its host")
        return
    found = [*_redirected(host, devices), *_translated(host, devices)]
    yield from found
    if not any(finding.status.value in ("warn", "unknown") for finding in found):
        groups = {d.iommu_group for d in devices} - {None}
        text = "the IOMMU lets them through" if groups else "no IOMMU is in the way"
        yield passed(
            f"{count(len(devices), 'GPU or NIC', 'GPUs and NICs')}: {text}, and no switch between "
            "two of them redirects",
            evidence=[_group_evidence(host, devices[0])],
        )


def _ports_between(devices: Sequence[Device]) -> dict[str, list[Device]]:
    """The ports on the way between two of the devices below one switch, to these devices."""
    ports: dict[str, list[Device]] = {}
    for device in devices:
        for peer in devices:
            if distance(device, peer) in (Distance.PIX, Distance.PXB):
                shared = sum(a == b for a, b in zip(device.path, peer.path, strict=False))
                for port in device.path[shared:]:
                    mine = ports.setdefault(port, [])
                    mine += [device] if device not in mine else []
    return ports


def _redirected(host: "Host", devices: Sequence[Device]) -> Iterator[Finding]:
    redirecting, unread = [], []
    ports = _ports_between(devices)
    for port in ports:
        path = f"{PCI}/{port}/config"
        try:
            acs = host.parse(path, parsers.parse_acs)
        except Undecided as error:
            unread.append(error)
            continue
        if acs and acs.redirects:
            redirecting.append(port)
    if redirecting:
        below = {d.address: d for port in redirecting for d in ports[port]}
        yield warn(
            f"{count(len(redirecting), 'switch port')} ({', '.join(redirecting[:4])}) "
            f"{'redirects' if len(redirecting) == 1 else 'redirect'} traffic of "
            f"{', '.join(list(below)[:NAMED])} over the root complex",
            subject="switch ports",
            cause="Access Control Services are on: what one device below the switch sends to "
            "another goes up to the CPU and back.",
            evidence=[Evidence(f"{PCI}/{redirecting[0]}/config", "ACS control: redirection on")],
            fixes=(
                Fix("bios", "disable ACS (and ARI's ACS) of PCIe switches",
                    needs_root=True, needs_restart=True, persists=True),
                Fix("any", "\n".join(f"setpci -s {port} ECAP_ACS+6.w=0000"
                                     for port in redirecting[:NAMED]), needs_root=True),
            ),
        )  # fmt: skip
    if unread:
        yield unknown(
            f"whether {count(len(unread), 'switch port')} between GPUs and NICs "
            f"{'redirects' if len(unread) == 1 else 'redirect'} traffic cannot be told: "
            f"{unread[0].reason}",
            subject="switch ports",
            cause="The extended configuration space is shown to CAP_SYS_ADMIN alone.",
            evidence=[Evidence(unread[0].path, unread[0].reason)],
        )


def _translated(host: "Host", devices: Iterable[Device]) -> Iterator[Finding]:
    translated: list[Device] = []
    unread: list[Undecided] = []
    for device in devices:
        if device.iommu_group is None:
            continue
        try:
            kind = host.text(f"{_GROUPS}/{device.iommu_group}/type")
        except Undecided as error:
            unread.append(error)
            continue
        if kind in _TRANSLATED:
            translated.append(device)
    if translated:
        names = [device.address for device in translated[:NAMED]]
        more = ", ..." if len(translated) > NAMED else ""
        yield warn(
            f"the IOMMU translates every access of {', '.join(names)}{more}",
            subject="iommu",
            cause="Traffic between devices has to pass the root complex to be translated.",
            evidence=[_group_evidence(host, translated[0])],
            fixes=(boot_fix("iommu=pt"),),
        )
    elif unread:
        yield unknown(
            f"whether the IOMMU translates for GPUs and NICs cannot be told: {unread[0].reason}",
            subject="iommu",
            evidence=[Evidence(unread[0].path, unread[0].reason)],
        )


def _group_evidence(host: "Host", device: Device) -> Evidence:
    if device.iommu_group is None:
        return Evidence(f"{PCI}/{device.address}/iommu_group", "not there")
    return host.evidence(f"{_GROUPS}/{device.iommu_group}/type")
