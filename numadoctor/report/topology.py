"""The topology for people: nodes × distances, and the devices on each node."""

from collections.abc import Iterable

from numadoctor.model import Device, Node, Topology
from numadoctor.model.units import amount, id_list
from numadoctor.report.terminal import Terminal

_KINDS = {"gpu": "GPU", "accelerator": "accelerator", "nic": "NIC", "storage": "drive"}


def render(topology: Topology, host: str, terminal: Terminal) -> str:
    """The whole topology as text."""
    lines = terminal.wrap(terminal.text(_head(topology, host)), 2, 0)
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


def _head(topology: Topology, host: str) -> str:
    if not topology.numa:
        return f"{host}: this kernel has no NUMA support (no /sys/devices/system/node)"
    packages = {cpu.package for cpu in topology.cpus if cpu.package is not None}
    sockets = f" on {_count(len(packages), 'socket')}" if packages else ""
    memory = [node.memory_bytes for node in topology.nodes]
    total = amount(sum(filter(None, memory)))
    parts = [
        f"{host}: {_count(len(topology.nodes), 'NUMA node')}{sockets}",
        _count(len(topology.online_cpus), "CPU"),
        f"at least {total}" if None in memory else total,
    ]
    return ", ".join([*parts, *_device_counts(topology.devices)])


def _device_counts(devices: Iterable[Device]) -> list[str]:
    kinds = [device.kind for device in devices]
    return [_count(n, word) for kind, word in _KINDS.items() if (n := kinds.count(kind))]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _format_ids(ids: Iterable[int]) -> str:
    return id_list(ids) or "-"


def _bytes(count: int | None) -> str:
    return "?" if count is None else amount(count)


def _columns(
    headers: list[str], rows: list[list[object]], align: list[str], terminal: Terminal
) -> list[str]:
    """A table as lines; each cell is made harmless first, so that none reaches into another."""
    from tabulate import tabulate

    return tabulate(
        [[terminal.text(str(cell)) for cell in row] for row in rows],
        headers,
        tablefmt="plain",
        disable_numparse=True,
        colalign=align,
    ).splitlines()


def _table(topology: Topology, terminal: Terminal) -> list[str]:
    # Tiers tell something only where there are several.
    tiers = len({node.tier for node in topology.nodes}) > 1
    # What may be long comes last: that is where a line is cut.
    rows: list[list[object]] = [
        [
            node.id,
            node.kind.value,
            _bytes(node.memory_bytes),
            _bytes(node.free_bytes),
            *(["-" if node.tier is None else node.tier] if tiers else []),
            _format_ids(node.cpus),
            ", ".join(_device_counts(d for d in topology.devices if d.node == node.id)) or "-",
        ]
        for node in topology.nodes
    ]
    tier = ["tier"] if tiers else []
    headers = ["node", "kind", "memory", "free", *tier, "CPUs", "devices"]
    align = ["right", "left", "right", "right", *("right" for _ in tier), "left", "left"]
    return list(map(terminal.cut, _columns(headers, rows, align, terminal)))


def _distance_table(topology: Topology, terminal: Terminal) -> list[str]:
    if len(topology.nodes) < 2:
        return []
    columns = [node.id for node in topology.nodes]
    rows: list[list[object]] = [
        [node.id, *(_distance(node, other) for other in columns)] for node in topology.nodes
    ]
    lines = _columns(["", *map(str, columns)], rows, ["right"] * (len(columns) + 1), terminal)
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
    order = {kind: rank for rank, kind in enumerate(_KINDS)}
    told = [device for device in topology.devices if device.kind in order]
    if not told:
        return []
    rows: list[list[object]] = [
        [
            device.kind,
            device.address,
            "?" if device.node is None else device.node,
            device.vendor_name or (f"0x{device.vendor:04x}" if device.vendor else "?"),
            " ".join(device.names),
            "" if device.node_source == "sysfs" else device.node_source,
        ]
        for device in sorted(told, key=lambda d: (order[d.kind], d.address))
    ]
    headers = ["device", "address", "node", "vendor", "names", "node from"]
    lines = _columns(headers, rows, ["left", "left", "right", "left", "left", "left"], terminal)
    return ["", *map(terminal.cut, lines)]


def _allowed(topology: Topology, terminal: Terminal) -> list[str]:
    allowed = topology.allowed
    cpus = "unknown" if allowed.cpus is None else _format_ids(allowed.cpus)
    nodes = "unknown" if allowed.nodes is None else _format_ids(allowed.nodes)
    what = f"CPUs {cpus}" + (f", memory of nodes {nodes}" if topology.numa else "")
    return ["", *terminal.wrap(terminal.text(f"allowed here: {what} ({allowed.source})"), 2, 0)]
