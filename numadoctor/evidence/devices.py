"""Which device of one output is which of another: by PCI address, by name, or by order."""

from collections.abc import Mapping, Sequence

from numadoctor.evidence.pasted import Pasted, PastedDevice
from numadoctor.host.devices import PCI
from numadoctor.host.devices.vendors import vendor_name
from numadoctor.model import Device, Distance, Node, Remark, Status, Step, Topology, distance
from numadoctor.model.device import is_link
from numadoctor.model.units import id_list

# What nvidia-smi calls the connections that stay within a node, nearest first.
_ON_ONE_NODE = ("PIX", "PXB", "PHB", "NODE")

_TOLD = ("gpu", "accelerator", "nic", "storage")


class Devices:
    """Gathers what is said of devices.

    :ivar relations: addresses of two devices to how they are connected
    """

    def __init__(self, host: Topology | None) -> None:
        self.host = host
        self.known: dict[str, Device] = {d.address: d for d in host.devices} if host else {}
        self.near: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None, str]] = {}
        self.relations: dict[tuple[str, str], str] = dict(host.relations) if host else {}
        self.tellers: dict[tuple[str, str], str] = dict.fromkeys(self.relations, "the driver")
        self.remarks: list[Remark] = []

    def take(self, file: str, pasted: Pasted) -> None:
        """Add the devices of one output, and tell where it contradicts what is known."""
        places = self._places(file, pasted)
        for device in pasted.devices:
            address = places.get(device.name)
            if address and device.kind in _TOLD:
                self._add(address, device, pasted.format, f"{file}:{device.line}")
        for (one, other), relation in pasted.relations.items():
            if one in places and other in places:
                self._relate(file, pasted, (places[one], places[other]), relation)

    def _relate(self, file: str, pasted: Pasted, pair: tuple[str, str], relation: str) -> None:
        before = self.relations.get(pair, relation)
        # `topo -mp` tells the way over PCI of GPUs that NVLink joins too: no contradiction.
        if is_link(before) and relation in Distance.__members__:
            return
        if is_link(relation) and before in Distance.__members__:
            before = relation
            self.tellers[pair] = pasted.format
        self.relations[pair] = before
        self.tellers.setdefault(pair, pasted.format)
        if before != relation and pair[0] < pair[1]:
            text = f"{pasted.format} says that {pair[0]} and {pair[1]} are {relation}"
            self._remark(f"{file}:{pasted.line}", f"{text}; what came before says {before}")

    def _remark(self, where: str, text: str, status: Status = Status.WARN) -> None:
        self.remarks.append(Remark(where, text, status))

    def _places(self, file: str, pasted: Pasted) -> dict[str, str]:
        """The output's name of each of its devices to the address it is kept under.

        A device that the host does not have, or has without a doubt about which
        one it is, is left out.
        """
        places = {}
        absent = []
        for device in pasted.devices:
            if device.address and (self.host is None or device.address in self.known):
                places[device.name] = device.address
            elif device.address and device.kind in _TOLD:
                absent.append(device.address)
        if absent:
            text = f"{pasted.format} tells of {', '.join(absent[:4])}, which sysfs does not have"
            more = f" (and {len(absent) - 4} others)" if len(absent) > 4 else ""
            self._remark(f"{file}:{pasted.line}", f"{text}{more}: left out")
        named = [device for device in pasted.devices if not device.address]
        places |= self._gpus(file, pasted, [d for d in named if d.kind == "gpu"])
        for device in named:
            address = "" if device.kind == "gpu" else self._by_name(device)
            if address:
                places[device.name] = address
        return places

    def _gpus(self, file: str, pasted: Pasted, gpus: Sequence[PastedDevice]) -> dict[str, str]:
        """GPU0, GPU1, ... in the order of PCI addresses, which NVML and ROCm SMI keep.

        Source: nvmlDeviceGetHandleByIndex in nvml.h ("ordered by PCI bus ID").
        """
        if not gpus:
            return {}
        vendor = gpus[0].vendor
        there = sorted(
            device.address
            for device in self.known.values()
            if device.kind == "gpu" and device.vendor in (vendor, 0) and ":" in device.address
        )
        if len(there) == len(gpus):
            names = sorted((gpu.name for gpu in gpus), key=lambda name: int(name[3:]))
            return dict(zip(names, there, strict=True))
        if there or self.host is not None:
            text = (
                f"{pasted.format} tells of {len(gpus)} GPUs, and of {len(there)} the addresses "
                "are known: which is which cannot be told"
            )
            self._remark(f"{file}:{pasted.line}", text, Status.UNKNOWN)
        if self.host is not None:
            return {}
        return {gpu.name: self._label(gpu.name, vendor) for gpu in gpus}

    def _label(self, name: str, vendor: int) -> str:
        known = self.known.get(name)
        return name if known is None or known.vendor == vendor else f"{name} {vendor_name(vendor)}"

    def _by_name(self, device: PastedDevice) -> str:
        for known in self.known.values():
            if set(device.names).intersection(known.names):
                return known.address
        return device.name if self.host is None else ""

    def _add(self, address: str, device: PastedDevice, format_: str, where: str) -> None:
        known = self.known.get(address)
        if known is None:
            known = _new(address, device)
        elif known.node is not None and device.nodes and known.node not in device.nodes:
            first = self.near[address][2] if address in self.near else "sysfs"
            self._remark(
                where,
                f"{format_} says that {address} is near node {id_list(device.nodes)}; "
                f"{first} says {known.node}, and is used",
            )
        if known.node is None and device.nodes and len(device.nodes) == 1:
            known = known._replace(node=device.nodes[0], node_source=format_, step=Step.PASTED)
        if (device.nodes or device.cpus) and address not in self.near:
            self.near[address] = (device.nodes or (), device.cpus, format_)
        self.known[address] = known._replace(
            names=tuple(dict.fromkeys((*known.names, *device.names))),
            memory_nodes=tuple(sorted({*known.memory_nodes, *device.memory_nodes})),
            path=known.path or device.path,
        )

    def drop_contradicted(self) -> None:
        """Leave out connections over PCI that the host's own files tell otherwise."""
        of_host = {device.address: device for device in self.host.devices} if self.host else {}
        wrong = []
        for (one, other), relation in self.relations.items():
            if one in of_host and other in of_host and relation in Distance.__members__:
                apart = distance(of_host[one], of_host[other])
                if apart is not None and apart.name != relation:
                    wrong.append((one, other, relation, apart.name))
        for one, other, _, _ in wrong:
            del self.relations[one, other]
        if wrong:
            one, other, relation, label = min(wrong)
            more = f" (and so for {len(wrong) // 2 - 1} other pairs)" if len(wrong) > 2 else ""
            self._remark(
                f"{PCI}/{one}",
                f"{self.tellers[one, other]} says that {one} and {other} are {relation}; "
                f"sysfs says {label}, and is used{more}",
            )

    def nodes(self) -> Mapping[int, tuple[int, ...] | None]:
        """The nodes that devices name, with the CPUs that all devices of a node agree on."""
        found: dict[int, set[tuple[int, ...]]] = {}
        for near, cpus, _ in self.near.values():
            for node in near:
                found.setdefault(node, set())
            if len(near) == 1 and cpus is not None:
                found[near[0]].add(cpus)
        for device in self.known.values():
            for node in device.memory_nodes:
                found.setdefault(node, set())
        return {node: next(iter(sets)) if len(sets) == 1 else None for node, sets in found.items()}

    def result(self, nodes: Sequence[Node]) -> tuple[Device, ...]:
        """The devices by address, and nodes from what is near where nothing else tells."""
        for address, device in self.known.items():
            self.known[address] = self._by_affinity(device, nodes)
        found = (self._by_neighbours(self.known[address]) for address in sorted(self.known))
        return tuple(found)

    def _by_affinity(self, device: Device, nodes: Sequence[Node]) -> Device:
        if device.node is not None or device.address not in self.near:
            return device
        near, cpus, source = self.near[device.address]
        if len(near) > 1:
            return device._replace(node_source=f"{source} says nodes {id_list(near)}: not one")
        local = [node.id for node in nodes if cpus and set(cpus) <= set(node.cpus)]
        if len(local) != 1:
            return device
        reason = f"CPU affinity in {source}"
        return device._replace(node=local[0], node_source=reason, step=Step.PASTED)

    def _by_neighbours(self, device: Device) -> Device:
        """Devices that are connected without leaving a node are on the same one."""
        if device.node is not None:
            return device
        near = sorted(
            (_ON_ONE_NODE.index(relation), other.address, other.node)
            for other in self.known.values()
            if (relation := self.relations.get((device.address, other.address))) in _ON_ONE_NODE
            and other.node is not None
        )
        if len({node for _, _, node in near}) != 1:
            return device
        order, address, node = near[0]
        relation = _ON_ONE_NODE[order]
        source = f"{relation} to {address} in {self.tellers[device.address, address]}"
        return device._replace(node=node, node_source=source, step=Step.PASTED)


def _new(address: str, device: PastedDevice) -> Device:
    vendor = device.vendor
    return Device(
        address=address,
        pci_class=device.pci_class,
        vendor=vendor,
        device=device.device,
        kind=device.kind,
        node=None,
        node_source="the pasted output does not tell it",
        vendor_name=vendor_name(vendor),
    )
