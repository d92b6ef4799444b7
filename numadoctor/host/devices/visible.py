"""Which devices the variables of a process's runtime leave visible, and in which order.

What a variable names first is device 0 of the process, whatever the bus says.

Sources: CUDA programming guide, "CUDA environment variables" (the first invalid
entry ends the list; a unique prefix of a UUID will do; FASTEST_FIRST is the
default order); MIG user guide, "CUDA visible devices"; the container toolkit's
"Specialized configurations" (NVIDIA_VISIBLE_DEVICES); ROCm, "GPU isolation
techniques" (ROCR_VISIBLE_DEVICES acts first, HIP_VISIBLE_DEVICES counts within
what that leaves); Level Zero, "Environment variables" (ZE_AFFINITY_MASK);
CANN, "ASCEND_RT_VISIBLE_DEVICES".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from numadoctor.host.devices import amd, nvml
from numadoctor.host.devices.vendors import AMD, INTEL, NVIDIA
from numadoctor.host.host import Host
from numadoctor.model import Device, Undecided

_HUAWEI, _HABANA = 0x19E5, 0x1DA3

_CUDA, _ORDER, _NVIDIA = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"
_ROCR, _HIP, _ORDINAL = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"

# Runtimes whose numbering no file of the kernel tells: variable and vendor.
_OTHERS = {
    "ZE_AFFINITY_MASK": INTEL,
    "HABANA_VISIBLE_DEVICES": _HABANA,
    "ASCEND_RT_VISIBLE_DEVICES": _HUAWEI,
}

# What the container toolkit takes for no choice of devices.
_NO_CHOICE = ("all", "void", "none", "")


class Visible(NamedTuple):
    """What is left visible of the devices that there are.

    :ivar devices: in rank order: the process's device 0 first
    :ivar settings: the variables that had a say, as they were found
    :ivar certain: whether members and order follow from what is known
    :ivar ignored: entries that name no device, and those behind them
    :ivar remarks: what is odd, in words
    """

    devices: tuple[Device, ...]
    settings: tuple[str, ...] = ()
    certain: bool = True
    ignored: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def plus(self, setting: str, *remarks: str, certain: bool = True) -> "Visible":
        """The same, after a variable that had no choice of devices to make."""
        return self._replace(
            settings=(*self.settings, setting),
            certain=self.certain and certain,
            remarks=(*self.remarks, *remarks),
        )


def visible_devices(
    host: Host, environment: Mapping[str, str], devices: Sequence[Device]
) -> Visible:
    """What a process with this environment may see of ``devices``, vendor by vendor."""
    nvidia = _of(devices, NVIDIA)
    amd_ = _of(devices, AMD)
    rest = tuple(d for d in devices if d.vendor not in (NVIDIA, AMD))
    parts = [
        _for_nvidia(host, environment, nvidia) if nvidia else Visible(()),
        _for_amd(host, environment, amd_, alone=not nvidia) if amd_ else Visible(()),
        _for_others(environment, rest),
    ]
    return Visible(
        devices=tuple(device for part in parts for device in part.devices),
        settings=tuple(setting for part in parts for setting in part.settings),
        certain=all(part.certain for part in parts),
        ignored=tuple(entry for part in parts for entry in part.ignored),
        remarks=tuple(remark for part in parts for remark in part.remarks),
    )


def _of(devices: Sequence[Device], vendor: int) -> tuple[Device, ...]:
    return tuple(sorted((d for d in devices if d.vendor == vendor), key=lambda d: d.address))


def _chosen(seen: Visible, name: str, value: str, find: Callable[[str], Device | None]) -> Visible:
    """What a list of entries leaves of ``seen``; the first that names none ends it."""
    entries = [entry.strip() for entry in value.split(",")] if value.strip() else []
    found: list[Device] = []
    remarks: list[str] = []
    ignored: list[str] = []
    for at, entry in enumerate(entries):
        device = find(entry)
        if device is None:
            ignored = entries[at:]
            break
        if device in found and not entry.startswith("MIG-"):
            remarks.append(f"{entry} is named twice, which leaves the outcome open")
        found.append(device)
    chosen = seen.plus(f"{name}={value}", *remarks, certain=not remarks)
    return chosen._replace(devices=tuple(dict.fromkeys(found)), ignored=(*seen.ignored, *ignored))


def _index(entry: str, devices: Sequence[Device]) -> Device | None:
    number = int(entry) if entry.isascii() and entry.isdecimal() and len(entry) < 6 else -1
    return devices[number] if 0 <= number < len(devices) else None


def _by_prefix(entry: str, uuids: Mapping[str, Device]) -> Device | None:
    """The one device whose UUID starts with the entry."""
    near = {d.address: d for uuid, d in uuids.items() if uuid.lower().startswith(entry.lower())}
    return next(iter(near.values())) if len(near) == 1 and len(entry) > 4 else None


def _for_nvidia(host: Host, environment: Mapping[str, str], devices: tuple[Device, ...]) -> Visible:
    seen = _given_by_the_toolkit(host, environment, devices)
    value = environment.get(_CUDA)
    if value is None:
        return seen
    order = environment.get(_ORDER)
    if order is not None:
        seen = seen.plus(f"{_ORDER}={order}")
    words = [word.strip() for word in value.split(",")]
    uuids, migs = _uuids(host, seen.devices, words)

    def find(entry: str) -> Device | None:
        if entry.startswith("MIG-"):
            return migs.get(entry) or _of_old_mig(entry, uuids)
        if entry.startswith("GPU-"):
            return _by_prefix(entry, uuids)
        return _index(entry, seen.devices)

    lost = {word for word in words if word.startswith(("GPU-", "MIG-")) and find(word) is None}
    models = {device.device for device in seen.devices}
    if any(word.startswith("GPU-") for word in lost) and len(uuids) < len(seen.devices):
        reason = "no file of the driver tells which GPU has which UUID"
    elif any(word.startswith("MIG-") for word in lost) and not migs:
        reason = "which GPU a MIG device is part of only NVML tells"
    elif any(map(str.isdecimal, words)) and order != "PCI_BUS_ID" and len(models) > 1:
        # Fastest first; with GPUs of one model that is the order of the bus.
        reason = "CUDA numbers GPUs of several models by speed, which no file tells"
    else:
        chosen = _chosen(seen, _CUDA, value, find)
        if sum(word.startswith("MIG-") for word in words) > 1:
            remark = "of several MIG devices CUDA enumerates the first alone"
            return chosen._replace(remarks=(*chosen.remarks, remark))
        return chosen
    return seen.plus(f"{_CUDA}={value}", reason, certain=False)


def _of_old_mig(entry: str, uuids: Mapping[str, Device]) -> Device | None:
    """``MIG-GPU-UUID/GI/CI``, as drivers before 470 name a MIG device."""
    uuid, slash, _ = entry.removeprefix("MIG-").partition("/")
    return uuids.get(uuid) if slash else None


def _uuids(
    host: Host, devices: Sequence[Device], words: Sequence[str]
) -> tuple[dict[str, Device], dict[str, Device]]:
    """UUID to GPU, and MIG UUID to the GPU it is part of; NVML is asked where files do not tell."""
    uuids = {device.uuid: device for device in devices if device.uuid}
    migs: dict[str, Device] = {}
    wants_gpu = any(w.startswith("GPU-") for w in words) and len(uuids) < len(devices)
    wants_mig = any(w.startswith("MIG-") and "/" not in w for w in words)
    if wants_gpu or wants_mig:
        try:
            known = nvml.read_nvml(host)
        except Undecided:
            known = {}
        for device in devices:
            if gpu := known.get(device.address):
                uuids.setdefault(gpu.uuid, device)
                migs.update(dict.fromkeys(gpu.mig_uuids, device))
    return uuids, migs


def _given_by_the_toolkit(
    host: Host, environment: Mapping[str, str], devices: tuple[Device, ...]
) -> Visible:
    """What the container toolkit gave: seen from inside nothing else is there any more."""
    value = environment.get(_NVIDIA)
    seen = Visible(devices)
    if value is None or value.strip().lower() in _NO_CHOICE:
        return seen if value is None else seen.plus(f"{_NVIDIA}={value}")
    words = [word.strip() for word in value.split(",")]
    uuids, migs = _uuids(host, devices, words)

    def find(entry: str) -> Device | None:
        return migs.get(entry) or _by_prefix(entry, uuids) or _index(entry, devices)

    named = [find(word) for word in words]
    if any(device is None for device in named):
        remark = f"{_NVIDIA} names what is not here: a hint about the host, or a container's own"
        return seen.plus(f"{_NVIDIA}={value}", remark, certain=len(devices) < 2)
    given = {device.address for device in named if device}
    # Inside, CUDA numbers them by the bus, in whatever order they were named.
    left = tuple(device for device in devices if device.address in given)
    return seen.plus(f"{_NVIDIA}={value}")._replace(devices=left)


def _for_amd(
    host: Host, environment: Mapping[str, str], devices: tuple[Device, ...], *, alone: bool
) -> Visible:
    known = {node.address: node for node in amd.kfd_nodes(host) if node.address}
    seen = Visible(tuple(d for address in known for d in devices if d.address == address))
    if len(seen.devices) < len(devices):
        # Without KFD nothing tells the order; it is that of the bus on most machines.
        seen = Visible(devices)
    uuids = {f"GPU-{known[d.address].unique_id}": d for d in seen.devices if d.address in known}
    certain = bool(known)
    # HIP takes CUDA's variable where its own is not set.
    last = _HIP if _HIP in environment or not alone else _CUDA
    for name in (_ROCR, _ORDINAL, last):
        if name not in environment:
            continue
        before = seen.devices

        def find(entry: str, before: tuple[Device, ...] = before) -> Device | None:
            return _by_prefix(entry, uuids) if entry.startswith("GPU-") else _index(entry, before)

        seen = _chosen(seen, name, environment[name], find)
    remarks = () if certain or not seen.settings else (
        "KFD's topology is not here: its order of GPUs is taken to be that of the bus",
    )  # fmt: skip
    return seen._replace(
        certain=seen.certain and (certain or not seen.settings),
        remarks=(*seen.remarks, *remarks),
    )


def _for_others(environment: Mapping[str, str], devices: tuple[Device, ...]) -> Visible:
    seen = Visible(devices)
    for name, vendor in _OTHERS.items():
        if name in environment and any(device.vendor == vendor for device in devices):
            remark = f"{name} counts in an order that no file tells"
            several = sum(device.vendor == vendor for device in devices) > 1
            seen = seen.plus(f"{name}={environment[name]}", remark, certain=not several)
    return seen
