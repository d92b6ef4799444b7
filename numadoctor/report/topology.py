"""The topology for people: nodes × distances, devices by node, and how those are connected."""

from collections.abc import Iterable

from numadoctor.model import Device, Node, NodeKind, Topology
from numadoctor.model.units import amount, id_list
from numadoctor.model.words import count
from numadoctor.report.connections import (
    COMPUTING,
    WORDS,
    by_kind,
    connection,
    short_name,
    unknown_links,
    word,
)
from numadoctor.report.summary import KINDS, cpu_count, device_counts, memory_total
from numadoctor.report.terminal import Terminal
from numadoctor.report.terminal import columns as columns_of


def render(topology: Topology, host: str, terminal: Terminal) -> str:
    """The whole topology as text."""
    lines = terminal.wrap(terminal.text(_head(topology, host)), 2, 0)
    if topology.numa:
        lines += ["", *_table(topology, terminal)]
        lines += _distance_table(topology, terminal)
    lines += _devices(topology, terminal)
    lines += _connections(topology, terminal)
    lines += _allowed(topology, terminal)
    lines += _sources(topology, terminal)
    if topology.remarks:
        lines += ["", "Odd:"]
        for remark in topology.remarks:
            lines += terminal.wrap(terminal.text(f"{remark.path}: {remark.text}"), 4, 2)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(topology: Topology, host: str) -> str:
    if not topology.numa:
        return f"{host}: this kernel has no NUMA support (no /sys/devices/system/node)"
    packages = {cpu.package for cpu in topology.cpus if cpu.package is not None}
    sockets = f" on {count(len(packages), 'socket')}" if packages else ""
    parts = [
        f"{host}: {count(len(topology.nodes), 'NUMA node')}{sockets}",
        cpu_count(topology),
        memory_total(topology),
    ]
    return ", ".join([*parts, *device_counts(topology.devices)])


def _format_ids(ids: Iterable[int]) -> str:
    return id_list(ids) or "-"


def _cpus(node: Node) -> str:
    # A node whose CPUs could not be read has none in the model.
    unread = node.kind is NodeKind.UNKNOWN and not node.cpus
    return "?" if unread else _format_ids(node.cpus)


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
            _cpus(node),
            ", ".join(device_counts(d for d in topology.devices if d.node == node.id)) or "-",
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
    if not any(node.distances for node in topology.nodes):
        return ["", "distances: unknown"]
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
    order = {kind: rank for rank, kind in enumerate(KINDS)}
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


def _connections(topology: Topology, terminal: Terminal) -> list[str]:
    """GPUs × GPUs and GPUs × NICs, as far as anything is known of them."""
    gpus, nics = by_kind(topology, *COMPUTING), by_kind(topology, "nic")
    lines: list[str] = []
    used: set[str] = set()
    for title, columns in (("GPU to GPU", gpus if len(gpus) > 1 else []), ("GPU to NIC", nics)):
        cells = [[connection(topology, gpu, other) for other in columns] for gpu in gpus]
        words = {word(cell) for row in cells for cell in row}
        if words - {"X", "?"}:
            used |= words
            lines += ["", f"{title}:", *_matrix(gpus, columns, cells, terminal)]
    if used:
        told = [f"{key} {text}" for key, text in WORDS.items() if key in used]
        lines += terminal.wrap(terminal.text(f"({', '.join(told)})"), 1, 0)
    if unknown := unknown_links(topology):
        lines += [] if used else [""]
        for text in unknown:
            lines += terminal.wrap(terminal.text(text), 2, 0)
    return lines


def _matrix(
    rows: list[Device], columns: list[Device], cells: list[list[str]], terminal: Terminal
) -> list[str]:
    names = [short_name(device) for device in columns]
    if columns == rows:
        names = [device.address.removeprefix("0000:") for device in columns]
    table = [["", *names], *([r.address, *line] for r, line in zip(rows, cells, strict=True))]
    shown = [[terminal.text(cell) for cell in line] for line in table]
    widths = [max(map(columns_of, column)) for column in zip(*shown, strict=True)]
    if sum(widths) + len(names) <= terminal.width:
        return [
            " ".join(
                cell + " " * (width - columns_of(cell))
                for cell, width in zip(line, widths, strict=True)
            )
            for line in shown
        ]
    return [line for row in table[1:] for line in _grouped(names, row, terminal)]


def _grouped(names: list[str], row: list[str], terminal: Terminal) -> list[str]:
    """One line: the devices grouped by how they are connected, nearest first."""
    by_word: dict[str, list[str]] = {}
    for name, cell in zip(names, row[1:], strict=True):
        by_word.setdefault(cell, []).append(name)
    nearest = list(WORDS)
    told = "  ".join(
        f"{cell} {','.join(by_word[cell])}"
        for cell in sorted(by_word, key=lambda cell: nearest.index(word(cell)))
        if cell != "X"
    )
    return terminal.wrap(terminal.text(f"{row[0]}: {told}"), 6, 2)


def _sources(topology: Topology, terminal: Terminal) -> list[str]:
    if not topology.sources:
        return []
    told = ", ".join(f"{s.format} ({s.file}:{s.line})" for s in topology.sources)
    return ["", *terminal.wrap(terminal.text(f"read from: {told}"), 2, 0)]


def _allowed(topology: Topology, terminal: Terminal) -> list[str]:
    allowed = topology.allowed
    if topology.sources and allowed.cpus is None and allowed.nodes is None:
        return []
    cpus = "unknown" if allowed.cpus is None else _format_ids(allowed.cpus)
    nodes = "unknown" if allowed.nodes is None else _format_ids(allowed.nodes)
    what = f"CPUs {cpus}" + (f", memory of nodes {nodes}" if topology.numa else "")
    return ["", *terminal.wrap(terminal.text(f"allowed here: {what} ({allowed.source})"), 2, 0)]
