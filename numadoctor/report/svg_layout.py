"""Where the boxes of a picture go: what is a card, what a tile, and how large each is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from numadoctor.model import Device, Node, NodeKind, Topology
from numadoctor.model.units import id_list
from numadoctor.report.connections import COMPUTING, connection
from numadoctor.report.svg_canvas import folded

MARGIN, GAP, PAD = 28, 20, 14
CARD, SMALL_CARD, TILE, TILE_HEIGHT = 324, 220, 164, 46
CHIP, CHIP_GAP, LEFT, RIGHT = 24, 6, 136, 112
LABEL, MEMORY = 52, 36
# Between cards that are linked by lines stands the distance.
LINK_GAP = 84
_LINKED_AT_MOST = 4

TAGS = {"gpu": "GPU", "accelerator": "ACC", "nic": "NIC", "storage": "SSD"}
# Connections near enough that a device is of use to the other one's traffic.
_NEAR = ("NV#", "XGMI", "PIX", "PXB", "PHB")


@dataclass
class Card:
    """A node, or the devices of no known node, before it has its place."""

    title: str
    kind: str
    note: str = ""
    node: Node | None = None
    left: list[Device] = field(default_factory=list)
    right: list[Device] = field(default_factory=list)
    flow: list[Device] = field(default_factory=list)
    cpus: list[str] = field(default_factory=list)
    x: float = 0
    y: float = 0
    w: float = CARD
    h: float = 0

    @property
    def devices(self) -> list[Device]:
        return [*self.left, *self.right, *self.flow]

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.w / 2, self.y + self.h / 2


def make_cards(topology: Topology) -> tuple[list[Card], list[Card]]:
    """What is drawn as a card, and the nodes without CPUs and devices, drawn as small tiles."""
    shown = [device for device in topology.devices if device.kind in TAGS]
    packages = {cpu.id: cpu.package for cpu in topology.cpus}
    cards: list[Card] = []
    tiles: list[Card] = []
    for node in topology.nodes:
        card = Card(f"node {node.id}", node.kind.value, _socket(node, packages), node)
        _share_out(topology, card, [device for device in shown if device.node == node.id])
        full = card.devices or node.cpus or node.kind is NodeKind.UNKNOWN
        (cards if full else tiles).append(card)
    lost = [d for d in shown if d.node is None or topology.node(d.node) is None]
    if lost:
        card = Card("node unknown" if topology.numa else "devices", "unknown")
        _share_out(topology, card, lost)
        cards.append(card)
    if not any(card.devices for card in cards):
        for card in cards:
            card.w = SMALL_CARD
    for card in (*cards, *tiles):
        _measure(card)
    return cards, tiles


def _socket(node: Node, packages: dict[int, int | None]) -> str:
    found = {packages.get(cpu) for cpu in node.cpus}
    known = sorted(package for package in found if package is not None)
    return f"socket {id_list(known)}" if known else ""


def _share_out(topology: Topology, card: Card, devices: Sequence[Device]) -> None:
    """GPUs to the left, each beside its nearest NIC to the right, other devices below."""
    card.left = [device for device in devices if device.kind in COMPUTING]
    nics = [device for device in devices if device.kind == "nic"]
    card.flow = [device for device in devices if device.kind == "storage"]
    if not card.left:
        card.flow = [*nics, *card.flow]
        return
    for gpu in card.left:
        near = nearest(topology, gpu, nics)
        card.right += [nic for nic in near[1] if nic not in card.right]
    card.right += [nic for nic in nics if nic not in card.right]


def nearest(topology: Topology, one: Device, others: Sequence[Device]) -> tuple[str, list[Device]]:
    """The nearest connection, where it is near, and who has it."""
    words = {other.address: connection(topology, one, other) for other in others}
    for word in _NEAR:
        near = [other for other in others if words[other.address] == word]
        if near:
            return word, near
    return "", []


def _measure(card: Card) -> None:
    """Set the height of a card whose width is known."""
    room = card.w - 2 * PAD
    if card.node is not None:
        listed = id_list(card.node.cpus)
        card.cpus = folded(listed, room - LABEL, 11, 3) if listed else []
    height = PAD + 22.0
    if card.node is not None:
        height += 16 * max(1, len(card.cpus)) + MEMORY
    rows = max(len(card.left), len(card.right))
    pairs = (len(card.flow) + 1) // 2
    if rows or pairs:
        height += 10 + (rows + pairs) * (CHIP + CHIP_GAP) - CHIP_GAP
        height += 4 if rows and pairs else 0
    card.h = height + PAD - 4


def linked(cards: Sequence[Card]) -> list[Card]:
    """The cards that lines are drawn between: all those of nodes, while they are few."""
    nodes = [card for card in cards if card.node is not None]
    return nodes if 2 <= len(nodes) <= _LINKED_AT_MOST else []


def place(cards: Sequence[Card], tiles: Sequence[Card]) -> tuple[float, float]:
    """Give every card its place; the width that is used and the bottom."""
    lines = linked(cards)
    nodes = [card for card in cards if card.node is not None]
    across = 2 if len(nodes) <= 4 else 4 if len(nodes) <= 16 else 6
    rows = [nodes[start : start + across] for start in range(0, len(nodes), across)]
    top, right = 88.0, 0.0
    for number, row in enumerate([*rows, [card for card in cards if card.node is None]]):
        for place, card in enumerate(row):
            card.x = MARGIN + place * (card.w + (LINK_GAP if lines else GAP))
            card.y = top
            card.h = max(other.h for other in row)
            right = max(right, card.x + card.w - MARGIN)
        if row:
            more = lines and number + 1 < len(rows)
            top = row[0].y + row[0].h + (LINK_GAP * 0.75 if more else GAP)
    columns = max(1, int((max(right, 6 * TILE) + 10) // (TILE + 10)))
    for number, tile in enumerate(tiles):
        tile.w, tile.h = TILE, TILE_HEIGHT
        tile.x = MARGIN + number % columns * (TILE + 10)
        tile.y = top + number // columns * (TILE_HEIGHT + 10)
        right = max(right, tile.x + tile.w - MARGIN)
    return right, top + -(-len(tiles) // columns) * (TILE_HEIGHT + 10)
