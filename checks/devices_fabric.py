"""NVLink and XGMI between GPUs: whether each has the links that those of its model have."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.engine import check
from numadoctor.host.devices.amd import KFD, kfd_nodes
from numadoctor.host.devices.links import NVLINK, XGMI, read_links, several, xgmi_hops
from numadoctor.host.devices.vendors import AMD, NVIDIA
from numadoctor.model import (
    Device,
    Evidence,
    Finding,
    Fix,
    Severity,
    Target,
    Undecided,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.words import count

from ._devices import NAMED, device_subject, named

if TYPE_CHECKING:
    from numadoctor.host import Host

_NOT_INSTALLED = "not installed"


class _Ends(NamedTuple):
    """The links of GPUs of one vendor.

    :ivar numbers: address to how many links the GPU has
    :ivar joined: addresses of two GPUs that a link joins
    :ivar evidence: address to what was read
    :ivar lost: GPUs whose links are not told
    :ivar reason: why not
    """

    kind: str
    numbers: Mapping[str, int]
    joined: Container[tuple[str, str]]
    evidence: Mapping[str, Evidence]
    lost: Sequence[Device]
    reason: str


@check(
    "G014",
    name="gpu-links-alike",
    needs=(
        "fact nvml",
        f"{KFD}/*/properties",
        f"{KFD}/*/io_links/*/properties",
    ),
    severity=Severity.HIGH,
)
def gpu_links_alike(host: "Host", target: Target) -> Iterator[Finding]:
    """A GPU has fewer NVLinks or XGMI links than the others of its model.

    Why it matters
        The GPUs of a group exchange data several times a layer, all at the pace of the
        slowest way between two of them. Where one link of a GPU is down NCCL and RCCL
        build their rings around it, or take PCI Express and host memory for it: the
        whole group computes at a fraction of its speed, and nothing reports an error.

    When it is harmless
        Where bridges were put on some pairs of GPUs on purpose, and those without one
        work alone. In a virtual machine that was given part of the GPUs of a board,
        the links to the others are down.

    Fix
        See which links are down, and whether errors were counted on them:

            nvidia-smi nvlink -s          rocm-smi --shownodesbw
            nvidia-smi nvlink -e          dmesg | grep -i xgmi

        With NVSwitch the fabric manager trains the links: look at its log and start it
        anew. A bridge is to be reseated, or the GPU; a link that stays down after a cold
        start is a case for the maker.

    Source
        NVML API reference (nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkRemotePciInfo);
        drivers/gpu/drm/amd/amdkfd/kfd_crat.c (kfd_fill_gpu_xgmi_link_to_gpu);
        NVIDIA Fabric Manager user guide; NCCL, "Troubleshooting"
    """
    devices = host.topology.devices
    nvidia, amd = several(devices, NVIDIA), several(devices, AMD)
    found = [*([_nvlinks(host, nvidia)] if nvidia else ()), *([_xgmi(host, amd)] if amd else ())]
    if absent := next((ends.reason for ends in found if _NOT_INSTALLED in ends.reason), ""):
        found = [ends for ends in found if not ends.lost]
    lost = [ends for ends in found if ends.lost]
    for ends in lost:
        yield unknown(
            f"the {_links(ends.kind)} of {named(ends.lost)} are not known: {ends.reason}",
            subject=_links(ends.kind),
            evidence=[Evidence("NVML" if ends.kind == NVLINK else KFD, ends.reason)],
        )
    joined = [ends for ends in found if any(ends.numbers.values())]
    lacking = [finding for ends in joined for finding in _lacking(ends, devices)]
    yield from lacking
    if lost or lacking:
        return
    if joined:
        yield passed(
            "; ".join(map(_alike, joined)),
            evidence=[told for ends in joined for told in ends.evidence.values()][:3],
        )
    else:
        text = f"{absent}: which NVLinks there are is not known" if absent else ""
        yield skip(text or "neither NVLink nor XGMI joins any GPUs")


def _links(kind: str) -> str:
    return "NVLinks" if kind == NVLINK else "XGMI links"


def _alike(ends: _Ends) -> str:
    numbers = sorted({number for number in ends.numbers.values() if number})
    each = " or ".join(map(str, numbers))
    return f"{count(len(ends.numbers), 'GPU')} with {each} {_links(ends.kind)} each"


def _lacking(ends: _Ends, devices: Sequence[Device]) -> Iterator[Finding]:
    """A finding for each GPU that has fewer links than the best of its model."""
    by_model: dict[int, list[Device]] = {}
    for device in devices:
        if device.address in ends.numbers:
            by_model.setdefault(device.device, []).append(device)
    for alike in by_model.values():
        most = max(ends.numbers[device.address] for device in alike)
        fewer = [device for device in alike if ends.numbers[device.address] < most]
        best = [device for device in alike if device not in fewer]
        for device in fewer:
            yield _fewer(ends, device, best, [other.address for other in fewer])


def _fewer(ends: _Ends, device: Device, best: Sequence[Device], fewer: Sequence[str]) -> Finding:
    address = device.address
    most, number = ends.numbers[best[0].address], ends.numbers[address]
    others = f"{count(len(best), 'other')} of its model {'has' if len(best) == 1 else 'have'}"
    text = (
        f"{named([device])} has {number or 'none'} of the {most} {_links(ends.kind)} that {others}"
    )
    # Where the link of two GPUs is down both lack it.
    apart = [other for other in fewer if other != address and (address, other) not in ends.joined]
    if apart:
        text += f"; none joins it to {', '.join(apart[:NAMED])}"
    return warn(
        text,
        subject=device_subject(device),
        cause="A link is down, or a bridge is missing: what this GPU exchanges with others goes "
        "over fewer links, or over PCI Express and the host.",
        evidence=[ends.evidence[address], ends.evidence[best[0].address]],
        fixes=_NVLINK_FIXES if ends.kind == NVLINK else _XGMI_FIXES,
    )


_START_COLD = Fix(
    "any", "# power off, reseat the bridge (or the GPU), start cold",
    needs_root=True, needs_restart=True,
)  # fmt: skip

_NVLINK_FIXES = (
    Fix("any", "nvidia-smi nvlink -s      # which links are down\n"
        "nvidia-smi nvlink -e      # errors that were counted on them"),
    Fix("systemd", "# with NVSwitch, when no job runs:\nsystemctl restart nvidia-fabricmanager",
        needs_root=True, needs_restart=True),
    _START_COLD,
)  # fmt: skip

_XGMI_FIXES = (
    Fix("any", "rocm-smi --shownodesbw    # which links have no bandwidth\n"
        "dmesg | grep -i xgmi      # errors of training"),
    _START_COLD,
)  # fmt: skip


def _nvlinks(host: "Host", gpus: Sequence[Device]) -> _Ends:
    """What NVML says of those it tells of: a container has part of the GPUs that sysfs shows."""
    from numadoctor.host.devices.nvml import read_nvml

    try:
        known, reason = read_nvml(host), "NVML does not tell them"
    except Undecided as error:
        known, reason = {}, error.reason
    numbers, evidence = {}, {}
    for gpu in gpus:
        told = known.get(gpu.address)
        if told is None or told.nvlinks is None:
            continue
        numbers[gpu.address] = len(told.nvlinks)
        down = told.nvlinks_inactive
        text = f"{gpu.address}: {count(len(told.nvlinks), 'NVLink')} up"
        text += "" if down is None else f", {down} down"
        ends = sorted(set(told.nvlinks))
        text += f"; to {', '.join(ends[:NAMED])}" if ends else ""
        evidence[gpu.address] = Evidence("NVML", text)
    lost = [gpu for gpu in gpus if gpu.address in known and gpu.address not in numbers]
    lost = lost if numbers else list(gpus)
    return _Ends(NVLINK, numbers, read_links(host).joined, evidence, lost, reason)


def _xgmi(host: "Host", gpus: Sequence[Device]) -> _Ends:
    """Peers that are as near as any are: KFD tells a way through others where a link is down."""
    hops, untold = xgmi_hops(host, [gpu.address for gpu in gpus])
    folders = {node.address: f"{KFD}/{node.id}/io_links" for node in kfd_nodes(host)}
    nearest = min(hops.values(), default=1)
    numbers, evidence = {}, {}
    for gpu in gpus:
        address = gpu.address
        if address in untold:
            continue
        mine = {other: n for (one, other), n in hops.items() if one == address}
        numbers[address] = sum(n == nearest for n in mine.values())
        far = [f"{other} in {count(n, 'hop')}" for other, n in mine.items() if n > nearest]
        text = f"XGMI of {address} to {count(numbers[address], 'GPU')}"
        evidence[address] = Evidence(folders[address], ", ".join([text, *far[:NAMED]]))
    lost = [gpu for gpu in gpus if gpu.address in untold and gpu.address in folders]
    lost = lost if numbers else list(gpus)
    direct = {pair for pair, n in hops.items() if n == nearest}
    return _Ends(XGMI, numbers, direct, evidence, lost, "KFD does not tell them")
