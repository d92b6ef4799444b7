"""Which devices a process has open, from its file descriptors."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from numadoctor.host.devices.pci import attempt
from numadoctor.host.host import Host
from numadoctor.model import Device, Evidence, Undecided

# Not /dev/dri/cardN: that is opened to show something.
_DEVICE = re.compile(
    r"/dev/(?:(nvidia)([0-9]{1,4})|dri/(renderD[0-9]{1,4})|accel/(accel[0-9]{1,4})"
    r"|(?:habanalabs/)?(hl[0-9]{1,4})|(davinci)([0-9]{1,4})|infiniband/(uverbs[0-9]{1,4}))"
)
_VERBS = "/sys/class/infiniband_verbs"

# A process with more descriptors than that is a server of many connections; devices are
# opened when it starts, with low numbers.
_MOST = 20_000


class Opened(NamedTuple):
    """What a process has open.

    :ivar devices: the GPUs, accelerators and NICs, by address
    :ivar evidence: a descriptor for each
    :ivar unmapped: device files whose device is not known: /dev/nvidia4 without the driver's files
    """

    devices: tuple[Device, ...]
    evidence: tuple[Evidence, ...] = ()
    unmapped: tuple[str, ...] = ()


def opened_devices(host: Host, proc: str, devices: Sequence[Device]) -> Opened:
    """The devices among ``devices`` that the process at ``proc`` has open.

    :raises Denied: its descriptors may not be listed (owner or CAP_SYS_PTRACE)
    :raises Undecided: they cannot be read, or were not recorded
    """
    files: dict[str, str] = {}
    for name in sorted(host.list(f"{proc}/fd"), key=lambda name: (len(name), name))[:_MOST]:
        target = attempt(host.link, f"{proc}/fd/{name}") or ""
        if _DEVICE.fullmatch(target):
            files.setdefault(target, f"{proc}/fd/{name}")
    minors = _minors(host, devices) if any(map(_is_nvidia, files)) else {}
    found: dict[str, tuple[Device, Evidence]] = {}
    unmapped = []
    for target, source in files.items():
        device = _device_of(host, target, devices, minors)
        if device is None:
            unmapped.append(target)
        else:
            found.setdefault(device.address, (device, Evidence(source, target)))
    ordered = [found[address] for address in sorted(found)]
    return Opened(
        tuple(device for device, _ in ordered),
        tuple(evidence for _, evidence in ordered),
        tuple(unmapped),
    )


def _is_nvidia(target: str) -> bool:
    match = _DEVICE.fullmatch(target)
    return bool(match and match[1])


def _minors(host: Host, devices: Iterable[Device]) -> dict[int, Device]:
    """N of /dev/nvidiaN to the GPU, by the driver's own files, or else by NVML.

    Minor numbers follow the order in which the driver met the GPUs: no index.
    """
    from numadoctor.host.devices import nvml
    from numadoctor.host.devices.vendors import NVIDIA

    mine = [device for device in devices if device.vendor == NVIDIA and device.kind == "gpu"]
    minors = {device.minor: device for device in mine if device.minor is not None}
    if len(minors) < len(mine):
        try:
            known = nvml.read_nvml(host)
        except Undecided:
            return minors
        for device in mine:
            gpu = known.get(device.address)
            if gpu and gpu.minor is not None:
                minors.setdefault(gpu.minor, device)
    return minors


def _device_of(
    host: Host, target: str, devices: Sequence[Device], minors: dict[int, Device]
) -> Device | None:
    match = _DEVICE.fullmatch(target)
    if not match:
        return None
    if match[1]:
        return minors.get(int(match[2]))
    if match[6]:
        # Which Ascend device has which number only its own library tells.
        return None
    name = match[3] or match[4] or match[5]
    if match[8]:
        name = attempt(host.text, f"{_VERBS}/{match[8]}/ibdev") or ""
    return next((device for device in devices if name and name in device.names), None)
