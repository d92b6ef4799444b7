"""NICs: near the GPUs, and those that were configured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.engine import Requires, Scope, check
from numadoctor.model import (
    Device,
    Distance,
    Evidence,
    Finding,
    Fix,
    Target,
    Topology,
    distance,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.words import count, listed, nodes_text

from ._devices import (
    PCI,
    USAGE,
    gpus,
    named,
    nearest_cpu_nodes,
    node_evidence,
    rdma_nics,
    unknown_places,
    usage_of,
)
from ._envelope import for_target
from ._topology import is_virtual

if TYPE_CHECKING:
    from numadoctor.host import Host


def _nearest(device: Device, others: Iterable[Device]) -> tuple[Distance, list[Device]] | None:
    """The distance to the nearest of the others, and all of them there; None if none is known."""
    known = [(far, other) for other in others if (far := distance(device, other)) is not None]
    least = min((far for far, _ in known), default=None)
    return None if least is None else (least, [other for far, other in known if far is least])


def _packages(topology: Topology, node_id: int) -> set[int | None]:
    """The sockets of a node, or of the nodes with CPUs that are nearest to it."""
    near = nearest_cpu_nodes(topology, node_id)
    cpus = {cpu for node in topology.nodes if node.id in near for cpu in node.cpus}
    return {cpu.package for cpu in topology.cpus if cpu.id in cpus}


def _nic_names(devices: Sequence[Device]) -> str:
    return ", ".join((device.rdma or device.names or (device.address,))[0] for device in devices)


@check(
    "G005",
    name="nic-near-each-gpu",
    needs=("/sys/class/infiniband/*", f"{PCI}/*/numa_node"),
    requires=Requires.SEVERAL_NODES,
)
def nic_near_each_gpu(host: "Host", target: Target) -> Iterator[Finding]:
    """A GPU has no RDMA NIC on its node, while other GPUs of the machine have one.

    Why it matters
        With GPUDirect RDMA a NIC reads and writes GPU memory over PCI Express. From
        another socket that goes over the link between sockets at a fraction of the
        rate, so that the slowest GPU of a group sets the pace of a collective or of a
        transfer between prefill and decode.

    When it is harmless
        On a machine that serves by itself. Where GPUs reach the NIC of another GPU over
        NVLink (PXN in NCCL). Between nodes of one socket the way is longer, but does
        not leave the socket: that is told as information.

    Fix
        Give instances that talk to other machines the GPUs that have a NIC, or put NICs
        into slots of the other nodes. NCCL_CROSS_NIC and PXN decide how NCCL goes around.

    Source
        NCCL, "Environment variables" (NCCL_NET_GDR_LEVEL, NCCL_PXN_DISABLE);
        nvidia-smi(1), topo (PIX to SYS)
    """
    nics, mine = rdma_nics(host), gpus(host)
    if not mine or not nics:
        yield skip("no GPU" if not mine else "no NIC with RDMA: traffic goes by host memory")
        return
    far: list[Device] = []
    lost: list[Device] = []
    virtual = is_virtual(host)
    for device in mine:
        nearest = _nearest(device, nics)
        if nearest is None or (virtual and device.node is None):
            # The PCI tree of a virtual machine is its own, not that of the machine below.
            lost.append(device)
        elif nearest[0] is Distance.SYS:
            if any(nic.node is None for nic in nics):
                lost.append(device)
            else:
                far.append(device)
    if lost:
        yield unknown(
            f"how far {named(lost)} {'is' if len(lost) == 1 else 'are'} from a NIC cannot be told: "
            "the node of one or the other is not known",
            subject="nics",
            cause="G001 tells what would help.",
            evidence=[node_evidence(host, device) for device in (lost[0], nics[0])],
        )
    if far:
        yield _without_nic(host, far, mine, nics)
    elif not lost:
        yield passed(
            f"each of {count(len(mine), 'GPU')} has one of {count(len(nics), 'NIC')} on its node",
            evidence=[node_evidence(host, device) for device in (mine[0], nics[0])],
        )


def _without_nic(
    host: "Host", far: list[Device], mine: list[Device], nics: list[Device]
) -> Finding:
    topology = host.topology
    across = [
        device
        for device in far
        if not any(
            _packages(topology, device.node or 0) & _packages(topology, nic.node or 0) - {None}
            for nic in nics
        )
    ]
    nodes = sorted({device.node for device in far if device.node is not None})
    text = f"{named(far)} on {nodes_text(nodes)} {'has' if len(far) == 1 else 'have'} no NIC there"
    with_nic = sorted({nic.node for nic in nics if nic.node is not None})
    text += f"; NICs are on {nodes_text(with_nic)}"
    evidence = [node_evidence(host, device) for device in (*far[:3], *nics[:2])]
    if not across:
        return info(
            f"{text}, each on another node of the same socket",
            subject="gpus",
            cause="The way to a NIC leaves the node but not the socket.",
            evidence=evidence,
        )
    near = [device for device in mine if device not in far]
    use = f": {', '.join(device.address for device in near[:4])}" if near else ""
    return warn(
        text,
        subject="gpus",
        cause="Their traffic with other machines crosses the link between sockets.",
        evidence=evidence,
        fixes=(
            Fix("bios", f"put a NIC into a slot of {nodes_text(nodes)}",
                needs_root=True, needs_restart=True, persists=True),
            *([Fix("any", f"# let GPUs that have a NIC talk to other machines{use}",
                   needs_restart=True)] if near else []),
        ),
    )  # fmt: skip


class _Asked(NamedTuple):
    """NICs that a variable names.

    :ivar devices: those that are here
    :ivar absent: names that stand for none
    """

    setting: Evidence
    devices: tuple[Device, ...]
    absent: tuple[str, ...]


# Variables that choose NICs by RDMA device or interface; NCCL's own take a prefix of the name.
_VARIABLES = ("NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", "RCCL_IB_HCA")
_BY_PREFIX = ("NCCL_IB_HCA", "RCCL_IB_HCA")


@check(
    "G006",
    name="configured-nic-near-gpu",
    needs=(
        *USAGE,
        f"{PCI}/*/numa_node",
        "/proc/PID/ns/net",
        "fact links",
        "/sys/class/net",
        "/sys/class/net/*",
        "/sys/class/net/*/*",
    ),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESS,
)
def configured_nic(host: "Host", target: Target) -> Iterator[Finding]:
    """The NICs that NCCL or UCX was told to use are far from the GPUs, or not there.

    Why it matters
        NCCL_IB_HCA and UCX_NET_DEVICES are copied from machine to machine. A list that
        leaves out the NIC beside a GPU sends its traffic over the link between sockets;
        a name that is not here leaves the library without that NIC, or without any.

    When it is harmless
        Where the near NIC serves storage on purpose. Without the variables NCCL and UCX
        choose by distance themselves.

    Fix
        Name the near NICs as well, or leave the variable away. In NCCL_IB_HCA a name is
        a prefix (mlx5_1 is mlx5_10 too) unless the list begins with =, and ^ excludes.

    Source
        NCCL, "Environment variables" (NCCL_IB_HCA, NCCL_NET_GDR_LEVEL); OpenUCX, "FAQ"
        (UCX_NET_DEVICES); NVSHMEM, "Environment variables"
    """
    environment = host.environ(target.proc)
    settings = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    if not settings:
        yield skip(f"no variable chooses NICs for {target.subject}", subject=target.subject)
        return
    for name, value in settings.items():
        yield from _judge_setting(host, target, name, value)


def _judge_setting(host: "Host", target: Target, name: str, value: str) -> Iterator[Finding]:
    subject = f"{target.subject}: {name}"
    asked = _asked(host, target, name, value)
    if asked is None:
        yield skip(f"{name}={value} leaves the choice open", subject=subject)
        return
    if asked.absent:
        yield warn(
            f"{name} names {listed(asked.absent[:8])}, which {target.subject} does not have",
            subject=subject,
            cause="The library goes on without it, or with sockets instead of RDMA.",
            evidence=[asked.setting],
            fixes=_name_others(host, target, name, asked.devices or rdma_nics(host)),
        )
    if asked.devices:
        yield _judge_distance(host, target, name, asked, subject)


def _judge_distance(
    host: "Host", target: Target, name: str, asked: _Asked, subject: str
) -> Finding:
    mine = [d for d in usage_of(host, target).devices if d.kind in ("gpu", "accelerator")]
    if not mine:
        return skip(f"{target.subject} uses no GPU", subject=subject)
    if any(device.node is None for device in mine):
        return unknown_places(mine, host, subject)
    far: list[tuple[Device, Distance, list[Device]]] = []
    for device in mine:
        chosen, best = _nearest(device, asked.devices), _nearest(device, rdma_nics(host))
        if chosen is None:
            return unknown_places(asked.devices, host, subject)
        # Below one host bridge or on one node is near; what counts is a better one left out.
        if chosen[0] is Distance.SYS and best and best[0] < chosen[0]:
            far.append((device, chosen[0], best[1]))
    evidence = [
        asked.setting,
        *(node_evidence(host, device) for device in (*asked.devices[:2], *mine[:2])),
    ]
    places = sorted({nic.node for nic in asked.devices if nic.node is not None})
    if far:
        left_out = list({nic.address: nic for _, _, near in far for nic in near}.values())
        return warn(
            f"{name} chooses {_nic_names(asked.devices)} on {nodes_text(places)} for "
            f"{named([device for device, _, _ in far])}, and leaves out the nearer "
            f"{_nic_names(left_out[:4])}",
            subject=subject,
            cause="All traffic of these GPUs with other machines crosses the link between nodes.",
            evidence=evidence,
            fixes=_name_others(host, target, name, left_out),
        )
    remote = [
        device
        for device in mine
        if not any((distance(device, nic) or Distance.SYS) < Distance.SYS for nic in asked.devices)
    ]
    text = f"{name} chooses {_nic_names(asked.devices)} on {nodes_text(places)}"
    if remote:
        return info(
            f"{text}, none of them near {named(remote)}, and no other NIC is nearer",
            subject=subject,
            evidence=evidence,
        )
    return passed(f"{text}, near the GPUs", subject=subject, evidence=evidence)


def _name_others(
    host: "Host", target: Target, name: str, nics: Sequence[Device]
) -> tuple[Fix, ...]:
    names = list(dict.fromkeys((nic.rdma or nic.names or (nic.address,))[0] for nic in nics))[:4]
    port = ":1" if name == "UCX_NET_DEVICES" else ""
    exact = "=" if name in _BY_PREFIX else ""
    text = (
        f"{name}={exact}{','.join(f'{one}{port}' for one in names)}" if names else f"unset {name}"
    )
    return for_target(host, target, (Fix("any", text, needs_restart=True),))


def _asked(host: "Host", target: Target, name: str, value: str) -> _Asked | None:
    """What the variable chooses, or None where it leaves the choice to the library."""
    text = value.strip()
    exclude = text.startswith("^")
    text = text.removeprefix("^")
    exact = text.startswith("=") or name not in _BY_PREFIX
    words = [part.strip().partition(":")[0] for part in text.removeprefix("=").split(",")]
    words = [word for word in words if word]
    if not words or "all" in words:
        return None
    known = _known_names(host, target, words)
    chosen: dict[str, Device] = {}
    absent = []
    for word in words:
        found = [d for other, d in known.items()
                 if (other == word if exact else other.startswith(word))]  # fmt: skip
        chosen.update({device.address: device for device in found})
        absent += [] if found else [word]
    if exclude:
        left = [d for d in rdma_nics(host) if d.address not in chosen]
        chosen, absent = {d.address: d for d in left}, []
    setting = Evidence(f"{target.proc}/environ", f"{name}={value}")
    return _Asked(setting, tuple(chosen.values()), tuple(absent))


def _known_names(host: "Host", target: Target, words: Sequence[str]) -> Mapping[str, Device]:
    """RDMA devices by name, and, where one is asked for that is none of them, interfaces.

    :raises Undecided: the interfaces are those of another network namespace, which
        may not be looked into
    """
    devices = {d.address: d for d in host.topology.devices if d.kind == "nic"}
    known = {name: device for device in devices.values() for name in device.rdma}
    if all(any(name.startswith(word) for name in known) for word in words):
        return known
    from numadoctor.host.devices.network import read_interfaces

    interfaces = {
        interface.name: devices[interface.device]
        for interface in read_interfaces(host, target.proc)
        if interface.device in devices
    }
    return {**known, **interfaces}
