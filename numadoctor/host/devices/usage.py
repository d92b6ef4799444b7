"""Which GPUs a process uses: what it has open, what its variables leave, and what its rank says."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.devices.nvidia import folders
from numadoctor.host.devices.opened import Opened, opened_devices
from numadoctor.host.devices.pci import attempt
from numadoctor.host.devices.vendors import NVIDIA
from numadoctor.host.devices.visible import Visible, visible_devices
from numadoctor.host.host import Host
from numadoctor.model import Device, Evidence, Undecided

# Which of the visible devices is a worker's own, by the variables of its launcher.
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")

# Names that vLLM and SGLang give their workers: VLLM::Worker_TP3, sglang::scheduler_TP2.
_WORKER = re.compile(r"(?:VLLM::Worker|sglang::scheduler)\w*?_TP(\d{1,3})\b", re.ASCII)


class Usage(NamedTuple):
    """The GPUs and accelerators of a process.

    :ivar devices: those it uses, or may use, in rank order where that is known
    :ivar certain: whether it is known that it uses these and no others
    :ivar evidence: what that was drawn from
    :ivar visible: what its variables leave visible; None where they cannot be read
    :ivar opened: what it has open; None where that cannot be read
    :ivar because: how ``devices`` was found, in words
    :ivar remarks: where the sources disagree, in words
    """

    devices: tuple[Device, ...]
    certain: bool
    evidence: tuple[Evidence, ...] = ()
    visible: Visible | None = None
    opened: Opened | None = None
    because: str = ""
    remarks: tuple[str, ...] = ()


def present_devices(host: Host) -> tuple[Device, ...]:
    """The GPUs and accelerators that are there for whoever looks from here.

    sysfs shows a container all of the machine; its own mount of the NVIDIA
    driver's folder shows those that it was given.
    """
    devices = tuple(d for d in host.topology.devices if d.kind in ("gpu", "accelerator"))
    given = folders(host)
    if not given:
        return devices
    return tuple(d for d in devices if d.vendor != NVIDIA or d.address in given)


def read_usage(host: Host, proc: str = "/proc/self") -> Usage:
    """What the process at ``proc`` uses, as far as that can be told from outside of it.

    Descriptors are what is; variables are what it was started with, and a
    program may have changed its own since.
    """
    devices = present_devices(host)
    if not devices:
        return Usage((), True, because="there is no GPU")
    visible, seen = _visible(host, proc, devices)
    opened, open_evidence = _opened(host, proc)
    remarks = [*(visible.remarks if visible else ()), *_disagreement(visible, opened)]
    base = Usage((), False, (*open_evidence, *seen), visible, opened, "", tuple(remarks))
    in_use = [d for d in opened.devices if d.kind in ("gpu", "accelerator")] if opened else []
    # Where the two have nothing in common the descriptors are right.
    both = [d for d in visible.devices if d in in_use] if visible else []
    candidates = tuple(both or in_use or (visible.devices if visible else devices))
    ranked = _by_rank(host, proc, visible, candidates)
    if ranked:
        device, evidence = ranked
        return _with(base, (device,), (evidence, *base.evidence), False, "its rank")
    if in_use:
        return _with(base, candidates, base.evidence, len(candidates) == 1, "what it has open")
    known = visible is not None and visible.certain
    return _with(base, candidates, base.evidence, known, "its variables" if seen else "all of them")


def _with(
    base: Usage, devices: tuple[Device, ...], seen: tuple[Evidence, ...], certain: bool, how: str
) -> Usage:
    return Usage(devices, certain, seen, base.visible, base.opened, how, base.remarks)


def _visible(
    host: Host, proc: str, devices: tuple[Device, ...]
) -> tuple[Visible | None, tuple[Evidence, ...]]:
    try:
        environment = host.environ(proc)
    except Undecided as error:
        return None, (Evidence(error.path, error.reason),)
    visible = visible_devices(host, environment, devices)
    return visible, tuple(Evidence(f"{proc}/environ", text) for text in visible.settings)


def _opened(host: Host, proc: str) -> tuple[Opened | None, tuple[Evidence, ...]]:
    try:
        opened = opened_devices(host, proc, host.topology.devices)
    except Undecided:
        return None, ()
    gpus = [
        evidence
        for device, evidence in zip(opened.devices, opened.evidence, strict=True)
        if device.kind in ("gpu", "accelerator")
    ]
    return opened, tuple(gpus)


def _disagreement(visible: Visible | None, opened: Opened | None) -> list[str]:
    found = []
    if opened and opened.unmapped:
        files = ", ".join(opened.unmapped[:4])
        found.append(f"it has {files} open, and nothing tells which device that is")
    if not visible or not opened or not visible.settings or not visible.certain:
        return found
    hidden = [
        device.address
        for device in opened.devices
        if device.kind in ("gpu", "accelerator") and device not in visible.devices
    ]
    if hidden:
        found.append(
            f"it has {', '.join(hidden)} open, which {visible.settings[-1]} hides from its runtime"
        )
    return found


def _by_rank(
    host: Host, proc: str, visible: Visible | None, candidates: tuple[Device, ...]
) -> tuple[Device, Evidence] | None:
    """The one device of several that the process's rank makes its own."""
    if visible is None or not visible.certain or len(candidates) < 2:
        return None
    ranks = _ranks(host.environ(proc), proc)
    argv = attempt(host.parse, f"{proc}/cmdline", parsers.parse_argv)
    title = argv[0][:200] if argv else ""
    if match := _WORKER.search(title):
        ranks = [(int(match[1]), Evidence(f"{proc}/cmdline", title))]
    for rank, evidence in ranks:
        if rank < len(visible.devices) and visible.devices[rank] in candidates:
            return visible.devices[rank], evidence
    return None


def _ranks(environment: Mapping[str, str], proc: str) -> list[tuple[int, Evidence]]:
    return [
        (int(environment[name]), Evidence(f"{proc}/environ", f"{name}={environment[name]}"))
        for name in _LOCAL_RANKS
        if re.fullmatch("[0-9]{1,3}", environment.get(name, ""))
    ]
