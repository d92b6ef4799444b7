"""The topology as a picture: nodes as boxes, devices on their node, distances and links.

It is one document without scripts, outside fonts or images, and follows the
reader's light or dark theme. What is unknown is drawn as unknown: dashed, and ``?``.
"""

from collections.abc import Sequence
from itertools import combinations

from numadoctor.model import Device, Node, NodeKind, Topology
from numadoctor.model.units import amount
from numadoctor.model.words import count
from numadoctor.report.connections import COMPUTING, WORDS, short_name, unknown_links
from numadoctor.report.summary import cpu_count, device_counts, memory_total
from numadoctor.report.svg_canvas import Canvas, fitted, width
from numadoctor.report.svg_layout import (
    CHIP,
    CHIP_GAP,
    LABEL,
    LEFT,
    MARGIN,
    MEMORY,
    PAD,
    RIGHT,
    TAGS,
    Card,
    linked,
    make_cards,
    nearest,
    place,
)
from numadoctor.report.svg_matrix import Matrix, connections, distances, draw


def render(topology: Topology, host: str) -> str:
    """The picture as an SVG document."""
    canvas = Canvas()
    cards, tiles = make_cards(topology)
    room, bottom = place(cards, tiles)
    matrices = [m for m in (distances(topology), connections(topology)) if m]
    head = f"{host}: {_summary(topology)}"
    right = max([room, 520, *(matrix.width for matrix in matrices)])
    right, bottom = _place_matrices(matrices, right, bottom)
    canvas.group("head")
    canvas.text(MARGIN, 42, fitted(host, right, 20, bold=True), 20, "ink bold")
    canvas.text(MARGIN, 64, fitted(_summary(topology), right, 12), 12, "faint")
    for one, other in combinations(linked(cards), 2):
        _link(canvas, one, other)
    for card in cards:
        _draw_card(canvas, topology, card)
    owners = {node: device.address for device in topology.devices for node in device.memory_nodes}
    for tile in tiles:
        _draw_tile(canvas, tile, owners.get(tile.node.id, "") if tile.node else "")
    for matrix in matrices:
        draw(canvas, matrix)
    bottom = _foot(canvas, topology, matrices, bottom, right)
    return canvas.finish(right + 2 * MARGIN, bottom + MARGIN, head)


def _summary(topology: Topology) -> str:
    if not topology.numa:
        return "no NUMA: the kernel shows no nodes"
    parts = [count(len(topology.nodes), "node"), cpu_count(topology), memory_total(topology)]
    return " · ".join([*parts, *device_counts(topology.devices)])


def _place_matrices(matrices: Sequence[Matrix], right: float, top: float) -> tuple[float, float]:
    """Side by side where there is room, else below one another; the width and the new bottom."""
    x, row, bottom = 0.0, top + 8, top
    for matrix in matrices:
        if x and x + matrix.width > right:
            x, row = 0.0, bottom + 14
        matrix.x, matrix.y = MARGIN + x, row
        x += matrix.width + 48
        bottom = max(bottom, row + matrix.height)
    return right, bottom


def _draw_card(canvas: Canvas, topology: Topology, card: Card) -> None:
    unknown = card.kind == "unknown"
    canvas.group("node" if card.node else "unplaced", card.node.because if card.node else "")
    canvas.box(
        card.x, card.y, card.w, card.h, "card dashed" if unknown else "card", 10, stroke_width="1.2"
    )
    x, y, room = card.x + PAD, card.y + PAD, card.w - 2 * PAD
    _draw_title(canvas, card, x, y, room)
    y += 22
    if card.node is not None:
        y = _draw_cpus(canvas, card, x, y)
        _draw_memory(canvas, card.node, x, y, room)
        y += MEMORY
    y += 10
    places: dict[str, tuple[float, float]] = {}
    for column, devices, left, size in (
        ("left", card.left, x, LEFT),
        ("right", card.right, card.x + card.w - PAD - RIGHT, RIGHT),
    ):
        for number, device in enumerate(devices):
            at = y + number * (CHIP + CHIP_GAP)
            _draw_chip(canvas, device, left, at, size)
            places[device.address] = (left + (size if column == "left" else 0), at + CHIP / 2)
    _draw_links(canvas, topology, card, places)
    rows = max(len(card.left), len(card.right))
    y += rows * (CHIP + CHIP_GAP) + (4 if rows else 0)
    half = (room - 8) / 2
    for number, device in enumerate(card.flow):
        at = y + number // 2 * (CHIP + CHIP_GAP)
        _draw_chip(canvas, device, x + number % 2 * (half + 8), at, half)


def _draw_title(canvas: Canvas, card: Card, x: float, y: float, room: float) -> None:
    badge = card.kind if card.node is not None else "?"
    size = width(badge, 10, bold=True) + 14
    canvas.box(x + room - size, y - 2, size, 18, card.kind, 9, fill_opacity="0.14")
    canvas.text(
        x + room - size / 2, y + 11, badge, 10, f"{card.kind}-ink bold", text_anchor="middle"
    )
    title = fitted(card.title, room - size - 8, 15, bold=True)
    canvas.text(x, y + 12, title, 15, "ink bold")
    rest = room - size - width(title, 15, bold=True) - 16
    if card.note and width(card.note, 11) <= rest:
        canvas.text(x + width(title, 15, bold=True) + 6, y + 12, card.note, 11, "faint")


def _draw_cpus(canvas: Canvas, card: Card, x: float, y: float) -> float:
    """Draw the list of CPUs; the place below it."""
    node = card.node
    unknown = node is not None and node.kind is NodeKind.UNKNOWN and not node.cpus
    canvas.text(x, y + 12, "CPUs", 11, "faint")
    lines = card.cpus or ["?" if unknown else "none"]
    for number, line in enumerate(lines):
        canvas.text(x + LABEL, y + 12 + 16 * number, line, 11, "ink mono")
    return y + 16 * len(lines)


def _draw_memory(canvas: Canvas, node: Node, x: float, y: float, room: float) -> None:
    total, free = node.memory_bytes, node.free_bytes
    text = "?" if total is None else amount(total) if total else "none"
    if total and free is not None:
        text += f", {amount(free)} free"
    canvas.text(x, y + 14, "memory", 11, "faint")
    canvas.text(x + LABEL, y + 14, fitted(text, room - LABEL, 11), 11, "ink")
    if total:
        canvas.box(x, y + 22, room, 6, "track", 3, fill_opacity="0.45")
        if free is not None and (used := min(1.0, max(0.0, 1 - free / total))) * room >= 3:
            canvas.box(
                x, y + 22, used * room, 6, node.kind.value, 3, stroke="none", style="stroke:none"
            )
    else:
        canvas.box(x, y + 22, room, 6, "open dashed", 3)


def _draw_chip(canvas: Canvas, device: Device, x: float, y: float, room: float) -> None:
    known = device.node is not None
    before, group = canvas.into, canvas.group("device", _about(device))
    group.set("data-address", fitted(device.address, 1e6, 1))
    canvas.box(x, y, room, CHIP, device.kind + ("" if known else " dashed"), 5, fill_opacity="0.10")
    canvas.text(x + 7, y + 16, TAGS[device.kind], 9, f"{device.kind}-ink bold")
    label = fitted(_label(device), room - 42, 11, mono=True)
    canvas.text(x + 36, y + 16, label, 11, "ink mono")
    canvas.into = before


def _label(device: Device) -> str:
    if device.kind in COMPUTING:
        return device.address.removeprefix("0000:")
    return short_name(device).removeprefix("0000:")


def _about(device: Device) -> str:
    """All that the picture has no room for."""
    names = " ".join((device.model, *device.names)).strip()
    vendor = device.vendor_name or "unknown vendor"
    where = "node unknown" if device.node is None else f"node {device.node}"
    return f"{device.address} {vendor} {names} ({where}: {device.node_source})".replace("  ", " ")


def _draw_links(
    canvas: Canvas, topology: Topology, card: Card, places: dict[str, tuple[float, float]]
) -> None:
    """A line from each GPU to the NICs nearest to it, with the word for it."""
    for gpu in card.left:
        word, near = nearest(topology, gpu, card.right)
        x, y = places[gpu.address]
        for nic in near:
            to, at = places[nic.address]
            bend = (to - x) / 2
            curve = f"M{x} {y}C{x + bend} {y} {to - bend} {at} {to} {at}"
            canvas.path(curve, "near" if word != "PHB" else "near dashed", 1.5)
        if word:
            canvas.text(x + 4, y - 3, word, 8.5, "near-ink mono halo")
    if card.left and not card.right and any(d.kind == "nic" for d in topology.devices):
        x = card.x + card.w - PAD - RIGHT
        y = places[card.left[0].address][1]
        canvas.text(x, y + 4, fitted("no NIC here", RIGHT, 11), 11, "faint")


def _link(canvas: Canvas, one: Card, other: Card) -> None:
    """The line between two cards, with the distance of their nodes."""
    if one.node is None or other.node is None:
        return
    there, back = one.node.distances.get(other.node.id), other.node.distances.get(one.node.id)
    text = str(there if there is not None else "?")
    if back != there:
        text += f" / {'?' if back is None else back}"
    (x1, y1), (x2, y2) = _ends(one, other)
    canvas.group("link", f"distance from node {one.node.id} to node {other.node.id}, and back")
    canvas.path(
        f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", "line" if there is not None else "line dashed", 1.5
    )
    # Diagonals cross in the middle: their figures stand near one end.
    part = 0.5 if one.x == other.x or one.y == other.y else 0.22
    x, y = x1 + (x2 - x1) * part, y1 + (y2 - y1) * part
    size = width(text, 12, mono=True) + 14
    canvas.box(x - size / 2, y - 11, size, 22, "card", 11)
    canvas.text(x, y + 4.5, text, 12, "ink mono bold", text_anchor="middle")


def _ends(one: Card, other: Card) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where the line between two cards leaves the one and meets the other."""
    if one.y == other.y:
        y = one.y + min(one.h, other.h) / 2
        return (one.x + one.w, y), (other.x, y)
    if one.x == other.x:
        return (one.middle[0], one.y + one.h), (one.middle[0], other.y)
    left, right = (one, other) if one.x < other.x else (other, one)
    upper_left = left.y < right.y
    start = (left.x + left.w, left.y + left.h if upper_left else left.y)
    return start, (right.x, right.y if upper_left else right.y + right.h)


def _draw_tile(canvas: Canvas, tile: Card, owner: str) -> None:
    """A node of memory alone, or of nothing; ``owner`` is the device whose memory it is."""
    node = tile.node
    canvas.group("node", node.because if node else "")
    empty = tile.kind in ("empty", "unknown")
    canvas.box(tile.x, tile.y, tile.w, tile.h, "card dashed" if empty else "card", 8)
    canvas.box(tile.x, tile.y + 8, 3, tile.h - 16, tile.kind, 1.5)
    canvas.text(tile.x + 12, tile.y + 19, tile.title, 12, "ink bold")
    room = tile.w - 24 - width(tile.title, 12, bold=True)
    canvas.text(
        tile.x + tile.w - 10,
        tile.y + 19,
        fitted(tile.kind, room, 10, bold=True),
        10,
        f"{tile.kind}-ink bold",
        text_anchor="end",
    )
    memory = node.memory_bytes if node else None
    text = "memory ?" if memory is None else amount(memory) if memory else "no memory"
    if memory and owner:
        text += f" of {owner}"
    elif memory and node and node.free_bytes is not None:
        text += f", {amount(node.free_bytes)} free"
    canvas.text(tile.x + 12, tile.y + 36, fitted(text, tile.w - 22, 10), 10, "faint")


def _foot(
    canvas: Canvas, topology: Topology, matrices: Sequence[Matrix], bottom: float, right: float
) -> float:
    """What the words mean, what it was read from, and what was odd."""
    words = {word for matrix in matrices for word in matrix.words}
    legend = [f"{key} {text}" for key, text in WORDS.items() if key in words and key != "X"]
    lines = [" · ".join(legend)] if legend else []
    lines += unknown_links(topology)
    if topology.sources:
        lines.append("read from " + ", ".join(f"{s.format} ({s.file})" for s in topology.sources))
    if odd := len(topology.remarks):
        lines.append(f"{count(odd, 'remark')}: see `numadoctor topology`")
    canvas.group("foot")
    for line in lines:
        bottom += 18
        canvas.text(MARGIN, bottom, fitted(line, right, 10.5), 10.5, "faint")
    return bottom
