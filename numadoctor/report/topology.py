"""The topology for people: nodes × distances, and the devices on each node."""

from collections.abc import Iterable

from numadoctor.model import Device, Node, Topology
from numadoctor.report.terminal import Terminal, human_bytes

_KINDS = {"gpu": "GPU", "accelerator": "accelerator", "nic": "NIC", "storage": "drive"}


def render(topology: Topology, host: str, terminal: Terminal) -> str:
    """The whole topology as text."""
    lines = [terminal.text(line) for line in _head(topology, host)]
    if topology.numa:
        lines += ["", *_table(topology, terminal)]
        lines += _distance_table(topology, terminal)
    lines += _devices(topology, terminal)
    lines += _allowed(topology, terminal)
    if topology.remarks:
        lines += ["", "Odd:"]
        for remark in topology.remarks:
            lines += terminal.wrap(terminal.text(f"{remark.path}: {remark.text}"), 4, 2)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(topology: Topology, host: str) -> list[str]:
    if not topology.numa:
        return [f"{host}: this kernel has no NUMA support (no /sys/devices/system/node)"]
    packages = {cpu.package for cpu in topology.cpus if cpu.package is not None}
    sockets = f" on {_count(len(packages), 'socket')}" if packages else ""
    memory = sum(node.memory_bytes or 0 for node in topology.nodes)
    text = (
        f"{host}: {_count(len(topology.nodes), 'NUMA node')}{sockets}, "
        f"{_count(len(topology.online_cpus), 'CPU')}, {human_bytes(memory)}"
    )
    return [", ".join([text, *_device_counts(topology.devices)])]


def _device_counts(devices: Iterable[Device]) -> list[str]:
    kinds = [device.kind for device in devices]
    return [_count(n, word) for kind, word in _KINDS.items() if (n := kinds.count(kind))]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _format_ids(ids: Iterable[int]) -> str:
    """Ids in the kernel's list format: ``0-3,8``."""
    runs: list[list[int]] = []
    for i in sorted(ids):
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "-"


def _bytes(count: int | None) -> str:
    return "?" if count is None else human_bytes(count)


def _table(topology: Topology, terminal: Terminal) -> list[str]:
    from tabulate import tabulate

    rows = [
        [
            node.id,
            node.kind.value,
            _format_ids(node.cpus),
            _bytes(node.memory_bytes),
            _bytes(node.free_bytes),
            *([str(node.tier) if node.tier is not None else "-"] if topology.tiers else []),
            ", ".join(_device_counts(d for d in topology.devices if d.node == node.id)) or "-",
        ]
        for node in topology.nodes
    ]
    headers = ["node", "kind", "CPUs", "memory", "free"]
    headers += ["tier"] if topology.tiers else []
    table = tabulate(
        rows,
        [*headers, "devices"],
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right", "left", "left", "right", "right"],
    )
    return [terminal.cut(terminal.text(line)) for line in table.splitlines()]


def _distance_table(topology: Topology, terminal: Terminal) -> list[str]:
    if len(topology.nodes) < 2:
        return []
    from tabulate import tabulate

    columns = [node.id for node in topology.nodes]
    rows = [[node.id, *(_distance(node, other) for other in columns)] for node in topology.nodes]
    table = tabulate(
        rows,
        ["", *map(str, columns)],
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right"] * (len(columns) + 1),
    )
    lines = table.splitlines()
    if max(map(len, lines)) > terminal.width:
        return ["", *_distance_groups(topology.nodes, terminal)]
    return ["", "distances (10 is local):", *lines]


def _distance(node: Node, other: int) -> str:
    return str(node.distances.get(other, "?"))


def _distance_groups(nodes: tuple[Node, ...], terminal: Terminal) -> list[str]:
    """One line a node, its neighbours grouped by distance: for a matrix wider than the terminal."""
    lines = ["distances (10 is local), node: distance to nodes"]
    for node in nodes:
        by_distance: dict[int, list[int]] = {}
        for other, distance in node.distances.items():
            by_distance.setdefault(distance, []).append(other)
        told = "  ".join(f"{d} to {_format_ids(o)}" for d, o in sorted(by_distance.items()))
        lines += terminal.wrap(f"{node.id}: {told or '?'}", 6, 2)
    return lines


def _devices(topology: Topology, terminal: Terminal) -> list[str]:
    if not topology.devices:
        return []
    from tabulate import tabulate

    order = {kind: rank for rank, kind in enumerate((*_KINDS, "other"))}
    rows = [
        [
            device.kind,
            device.address,
            device.vendor_name or f"0x{device.vendor:04x}",
            "?" if device.node is None else device.node,
            "" if device.node_source == "sysfs" else device.node_source,
            " ".join(device.names),
        ]
        for device in sorted(topology.devices, key=lambda d: (order[d.kind], d.address))
        if device.kind != "other"
    ]
    if not rows:
        return []
    table = tabulate(
        rows,
        ["device", "address", "vendor", "node", "node from", "names"],
        tablefmt="plain",
        disable_numparse=True,
    )
    return ["", *(terminal.cut(terminal.text(line)) for line in table.splitlines())]


def _allowed(topology: Topology, terminal: Terminal) -> list[str]:
    allowed = topology.allowed
    cpus = "unknown" if allowed.cpus is None else _format_ids(allowed.cpus)
    nodes = "unknown" if allowed.nodes is None else _format_ids(allowed.nodes)
    what = f"CPUs {cpus}" + (f", memory of nodes {nodes}" if topology.numa else "")
    return ["", *terminal.wrap(terminal.text(f"allowed here: {what} ({allowed.source})"), 2, 0)]
