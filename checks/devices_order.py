"""The GPUs of a process in their order: groups on one node, and lists that mislead."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.host import parsers
from numadoctor.host.devices.links import read_links
from numadoctor.model import (
    Device,
    Evidence,
    Finding,
    Fix,
    Target,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.words import listed, nodes_text

from ._devices import (
    PCI,
    USAGE,
    disagreements,
    gpus,
    named,
    node_evidence,
    nodes_of,
    unknown_places,
    usage_of,
)
from ._envelope import for_target

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.devices.visible import Visible


# Options of engines that say how many GPUs compute one layer together.
_TP = re.compile(r"--?(?:tensor[-_]parallel[-_]size|tp[-_]size|tp|tensor[-_]parallel)(?:=(.+))?")


@check(
    "G004",
    name="tensor-parallel-group-on-one-node",
    needs=(*USAGE, f"{PCI}/*/numa_node"),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESS,
)
def tensor_parallel_group(host: "Host", target: Target) -> Iterator[Finding]:
    """A tensor-parallel group has GPUs of several nodes though one node has enough of them.

    Why it matters
        The GPUs of such a group exchange data several times a layer. Without NVLink or
        XGMI between all of them each exchange crosses the link between sockets; with it
        their host buffers, CPU threads and NICs still are on two nodes, and the memory
        policy of the engine has no single node to bind to.

    When it is harmless
        Where NVLink or XGMI joins all GPUs of the group and hardly anything passes
        through host memory. Where no node has as many GPUs as the group needs.

    Fix
        Name the GPUs so that consecutive groups are on one node each; the list is the
        order of ranks:

            CUDA_VISIBLE_DEVICES=0,1,4,5 CUDA_DEVICE_ORDER=PCI_BUS_ID ...

    Source
        vLLM, "Parallelism and scaling"; SGLang, "Server arguments" (--tp-size);
        nvidia-smi(1), topo (NODE, SYS)
    """
    size = _group_size(host, target)
    if size < 2:
        yield skip(f"{target.subject} names no tensor-parallel group", subject=target.subject)
        return
    usage = usage_of(host, target)
    visible = usage.visible
    if visible is None:
        host.environ(target.proc)  # raises what stands in the way
        return
    evidence = [host.evidence(f"{target.proc}/cmdline"), *usage.evidence[-2:]]
    if len(visible.devices) < size:
        yield info(
            f"{target.subject} asks for groups of {size} GPUs and sees {len(visible.devices)}",
            subject=target.subject,
            cause="The rest of the group is on other machines, or the start will fail.",
            evidence=evidence,
        )
        return
    if not visible.certain:
        yield unknown(
            f"which GPUs form a group of {target.subject} cannot be told: {visible.remarks[-1]}",
            subject=target.subject,
            evidence=evidence,
        )
        return
    if len({device.vendor for device in visible.devices}) > 1:
        yield unknown(
            f"which GPUs form a group of {target.subject} cannot be told: "
            "they are of several vendors",
            subject=target.subject,
            evidence=[*evidence, *(node_evidence(host, device) for device in visible.devices[:4])],
        )
        return
    if any(device.node is None for device in visible.devices):
        yield unknown_places(visible.devices, host, target.subject)
        return
    yield _judge_groups(host, target, visible, size, evidence)


def _group_size(host: "Host", target: Target) -> int:
    argv = host.parse(f"{target.proc}/cmdline", parsers.parse_argv)
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        if match := _TP.fullmatch(word):
            value = match[1] or following
            if value.isascii() and value.isdecimal() and len(value) < 5:
                return int(value)
    return 1


def _judge_groups(
    host: "Host", target: Target, visible: "Visible", size: int, evidence: list[Evidence]
) -> Finding:
    devices = visible.devices
    groups = [devices[at : at + size] for at in range(0, len(devices) - size + 1, size)]
    split = [group for group in groups if len(nodes_of(group)) > 1]
    per_node = {node: [d for d in devices if d.node == node] for node in nodes_of(devices)}
    possible = sum(len(mine) // size for mine in per_node.values())
    evidence = [*evidence, *(node_evidence(host, device) for device in devices[:4])]
    if not split:
        return passed(
            f"each group of {size} GPUs of {target.subject} is on one node",
            subject=target.subject,
            evidence=evidence,
        )
    places = [f"{named(group)} on {nodes_text(nodes_of(group))}" for group in split[:2]]
    text = f"{target.subject}: a tensor-parallel group is {' and another '.join(places)}"
    if kind := _linked(host, split):
        return info(
            f"{text}, and {kind} joins all GPUs of a group",
            subject=target.subject,
            cause="Exchanges within the group do not pass through host memory; its threads and "
            "host buffers have no single node all the same.",
            evidence=evidence,
        )
    whole = len(groups) - len(split)
    if possible <= whole:
        return info(
            f"{text}; no node has {size} GPUs for a group",
            subject=target.subject,
            cause="Nothing is to be gained by another order.",
            evidence=evidence,
        )
    return warn(
        f"{text}, though {'one node has' if possible == 1 else f'{possible} groups find'} "
        f"{'enough of them' if possible == 1 else 'room on one node each'}",
        subject=target.subject,
        cause="Exchanges within the group that pass through host memory cross the link between "
        "nodes, and no one node fits its threads and buffers.",
        evidence=evidence,
        fixes=for_target(host, target, _order_fixes(host, devices, per_node, size)),
    )


def _linked(host: "Host", groups: Sequence[Sequence[Device]]) -> str:
    """NVLink or XGMI, where it joins each GPU of each group to each other one of it."""
    links = read_links(host)
    found = [
        links.between(one, other)
        for group in groups
        for at, one in enumerate(group)
        for other in group[at + 1 :]
    ]
    return " and ".join(sorted({link.kind for link in found if link})) if all(found) else ""


def _order_fixes(
    host: "Host", devices: Sequence[Device], per_node: dict[int, list[Device]], size: int
) -> tuple[Fix, ...]:
    """An order in which as many groups as possible are on one node."""
    full = [d for mine in per_node.values() for d in mine[: len(mine) // size * size]]
    ordered = [*full, *(d for d in devices if d not in full)]
    everything = sorted(
        (d for d in gpus(host) if d.vendor == devices[0].vendor), key=lambda d: d.address
    )
    indices = ",".join(str(everything.index(device)) for device in ordered)
    name = "ROCR_VISIBLE_DEVICES" if devices[0].vendor == 0x1002 else "CUDA_VISIBLE_DEVICES"
    order = "" if name[0] == "R" else "CUDA_DEVICE_ORDER=PCI_BUS_ID "
    return (Fix("any", f"{order}{name}={indices}", needs_restart=True),)


@check(
    "G008",
    name="visible-devices-order",
    needs=USAGE,
    scope=Scope.PROCESS,
)
def visible_devices_order(host: "Host", target: Target) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES and its kin name other GPUs, or another order, than one would read.

    Why it matters
        The first GPU in the list is device 0 of the process. Whoever takes the index of
        a worker for that of nvidia-smi binds the worker to the wrong node. CUDA ends the
        list at the first entry that names no GPU, without a word, and counts the
        fastest GPU first unless CUDA_DEVICE_ORDER=PCI_BUS_ID; nvidia-smi counts along
        the bus. With AMD, HIP_VISIBLE_DEVICES counts within what ROCR_VISIBLE_DEVICES
        left.

    When it is harmless
        Another order on purpose is fine, and told. On a machine whose GPUs are all of
        one model, fastest first is the order of the bus.

    Fix
        CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA count as nvidia-smi does; a UUID
        (GPU-..., nvidia-smi -L) means the same everywhere.

    Source
        CUDA programming guide, "CUDA environment variables"; NVIDIA container toolkit,
        "Specialized configurations"; ROCm, "GPU isolation techniques"
    """
    if not gpus(host):
        yield skip("no GPU or accelerator on a PCI bus", subject=target.subject)
        return
    usage = usage_of(host, target)
    visible = usage.visible
    if visible is None:
        host.environ(target.proc)  # raises what stands in the way
        return
    if not visible.settings:
        yield skip(f"no variable narrows the GPUs of {target.subject}", subject=target.subject)
        return
    evidence = [Evidence(f"{target.proc}/environ", text) for text in visible.settings]
    if visible.ignored:
        yield _cut_short(host, target, visible, evidence)
    elif not visible.certain:
        yield _not_told(host, target, visible, evidence)
    else:
        yield _rank_order(target, visible, evidence)
    yield from disagreements(usage, target)


def _cut_short(
    host: "Host", target: Target, visible: "Visible", evidence: list[Evidence]
) -> Finding:
    first, *others = visible.ignored
    what = f'"{first}" names no GPU here'
    rest = f", so that {', '.join(others[:8])} behind it is ignored as well" if others else ""
    left = named(visible.devices) if visible.devices else "no GPU"
    verdict = info if first == "-1" and not others else warn
    return verdict(
        f"{target.subject}: in {visible.settings[-1]} {what}{rest}; it sees {left}",
        subject=target.subject,
        cause="The runtime ends the list at the first entry it cannot use and says nothing.",
        evidence=evidence,
        fixes=for_target(
            host,
            target,
            (
                Fix(
                    "any",
                    "name GPUs by UUID, or by index below the count: nvidia-smi -L",
                    needs_restart=True,
                ),
            ),
        ),
    )


def _not_told(
    host: "Host", target: Target, visible: "Visible", evidence: list[Evidence]
) -> Finding:
    remark = visible.remarks[-1]
    text = f"{target.subject}: which GPU is which in {visible.settings[-1]} is open: {remark}"
    if "by speed" not in remark:
        return unknown(text, subject=target.subject, evidence=evidence)
    return warn(
        text,
        subject=target.subject,
        cause="nvidia-smi counts along the bus, CUDA does not: the same index is another GPU.",
        evidence=evidence,
        fixes=for_target(
            host,
            target,
            (Fix("any", "CUDA_DEVICE_ORDER=PCI_BUS_ID", needs_restart=True),),
        ),
    )


def _rank_order(target: Target, visible: "Visible", evidence: list[Evidence]) -> Finding:
    addresses = [device.address for device in visible.devices]
    if not addresses:
        return info(
            f"{target.subject} sees no GPU: {visible.settings[-1]}",
            subject=target.subject,
            evidence=evidence,
        )
    order = listed(f"device {n} is {address}" for n, address in enumerate(addresses[:16]))
    per_vendor = {d.vendor: [x for x in visible.devices if x.vendor == d.vendor]
                  for d in visible.devices}  # fmt: skip
    if all([d.address for d in mine] == sorted(d.address for d in mine)
           for mine in per_vendor.values()):  # fmt: skip
        return passed(f"{target.subject}: {order}", subject=target.subject, evidence=evidence)
    return info(
        f"{target.subject}: {order}: not the order of the bus, in which nvidia-smi and NVML count",
        subject=target.subject,
        cause="Map ranks to nodes through this list, not by the index that nvidia-smi prints.",
        evidence=evidence,
    )
