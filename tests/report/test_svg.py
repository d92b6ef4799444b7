"""The picture is taken apart again: every box in its place, every word in its box."""

import re
from itertools import combinations
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host, open_root, sample_names
from numadoctor.host.devices.links import with_links
from numadoctor.model import (
    Allowed,
    Cpu,
    Device,
    Node,
    NodeKind,
    Remark,
    Source,
    Topology,
)
from numadoctor.report import svg_canvas
from numadoctor.report.svg import render

SVG = "{http://www.w3.org/2000/svg}"


class Box(NamedTuple):
    x: float
    y: float
    w: float
    h: float

    def overlaps(self, other: "Box") -> bool:
        return (
            self.x < other.x + other.w
            and other.x < self.x + self.w
            and self.y < other.y + other.h
            and other.y < self.y + self.h
        )

    def holds(self, other: "Box") -> bool:
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.w <= self.x + self.w
            and other.y + other.h <= self.y + self.h
        )


def box(element: ElementTree.Element) -> Box:
    x, y, w, h = (float(element.get(name, "0")) for name in ("x", "y", "width", "height"))
    return Box(x, y, w, h)


def text_box(element: ElementTree.Element, inherited: dict[str, str]) -> Box:
    """Where the words are, by the widest of the fonts that are named."""
    own = {**inherited, **element.attrib}
    size, classes = float(own["font-size"]), own["class"].split()
    room = svg_canvas.width(
        element.text or "", size, mono="mono" in classes, bold="bold" in classes
    )
    x, y = float(own["x"]), float(own["y"])
    x -= {"middle": room / 2, "end": room}.get(own.get("text-anchor", ""), 0)
    return Box(x, y - size, room, size * 1.25)


class Picture:
    def __init__(self, text: str) -> None:
        self.text = text
        self.root = ElementTree.fromstring(text)
        self.size = box(self.root)

    def parts(self, name: str) -> list[ElementTree.Element]:
        return [g for g in self.root.iter(f"{SVG}g") if g.get("data-part") == name]

    def words(self) -> list[str]:
        return [element.text or "" for element in self.root.iter(f"{SVG}text")]

    def cards(self) -> list[Box]:
        groups = [*self.parts("node"), *self.parts("unplaced")]
        return [box(group.findall(f"{SVG}rect")[0]) for group in groups]

    def devices(self) -> dict[str, Box]:
        return {
            group.get("data-address", ""): box(group.findall(f"{SVG}rect")[0])
            for group in self.parts("device")
        }

    def check(self) -> None:
        """No two boxes overlap; devices stand in a card; words in their box and in the picture."""
        cards, chips = self.cards(), list(self.devices().values())
        for boxes in (cards, chips):
            assert [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []
        assert [chip for chip in chips if sum(card.holds(chip) for card in cards) != 1] == []
        for group in (*self.parts("device"), *self.parts("node"), *self.parts("unplaced")):
            around = box(group.findall(f"{SVG}rect")[0])
            for element in group.findall(f"{SVG}text"):
                assert around.holds(text_box(element, {})), (element.text, around)
        whole = Box(0, 0, self.size.w, self.size.h)
        for group in self.root.iter(f"{SVG}g"):
            for element in group.findall(f"{SVG}text"):
                if element.get("transform") is None:
                    assert whole.holds(text_box(element, group.attrib)), element.text
        for element in self.root.iter(f"{SVG}rect"):
            assert whole.holds(box(element))


def sample(name: str) -> Topology:
    return with_links(Host(open_root(f"sample:{name}")))


@pytest.mark.parametrize("name", sample_names())
def test_every_node_and_device_of_a_sample(name: str) -> None:
    topology = sample(name)
    picture = Picture(render(topology, name))
    picture.check()
    words = picture.words()
    assert [n.id for n in topology.nodes if f"node {n.id}" not in words] == []
    assert len(picture.parts("node")) == len(topology.nodes)
    shown = {d.address for d in topology.devices if d.kind != "other"}
    assert set(picture.devices()) == shown


@pytest.mark.parametrize(("name", "count"), [("two-socket", 1), ("grace-gpu-memory", 6)])
def test_few_nodes_are_linked_with_their_distance(name: str, count: int) -> None:
    picture = Picture(render(sample(name), name))
    links = picture.parts("link")
    assert len(links) == count
    pills = [box(link.findall(f"{SVG}rect")[0]) for link in links]
    assert [pair for pair in combinations(pills, 2) if pair[0].overlaps(pair[1])] == []
    assert [p for p in pills if any(p.overlaps(card) for card in picture.cards())] == []


def test_the_table_of_distances_is_that_of_the_nodes() -> None:
    topology = sample("gpu-memory-nodes")
    (table,) = Picture(render(topology, "x")).parts("distances")
    ids = [node.id for node in topology.nodes]
    names, cells = ([element.text for element in group] for group in table.findall(f"{SVG}g"))
    assert names == [str(node) for node in ids] * 2
    assert cells == [str(node.distances[to]) for node in topology.nodes for to in ids]


def host_node(number: int, count: int, **other: object) -> Node:
    return Node(
        number,
        NodeKind.HOST,
        tuple(range(number * 2, number * 2 + 2)),
        1 << 36,
        1 << 35,
        distances={n: 10 if n == number else 20 for n in range(count)},
        **other,  # type: ignore[arg-type]
    )


def topology_of(
    nodes: tuple[Node, ...], devices: tuple[Device, ...] = (), **other: object
) -> Topology:
    cpus = tuple(cpu for node in nodes for cpu in node.cpus)
    return Topology(
        numa=bool(nodes),
        nodes=nodes,
        cpus=tuple(Cpu(cpu, 0) for cpu in cpus),
        online_cpus=cpus,
        present_cpus=cpus,
        devices=devices,
        allowed=Allowed(None, None, ""),
        **other,  # type: ignore[arg-type]
    )


KINDS = st.sampled_from(["gpu", "accelerator", "nic", "storage"])
NAMES = st.text(max_size=40)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    count = draw(st.integers(0, 12))
    nodes = []
    for number in range(count):
        cpus = tuple(sorted(draw(st.sets(st.integers(0, 4000), max_size=60))))
        memory = draw(st.none() | st.just(0) | st.integers(1, 1 << 44))
        nodes.append(
            Node(
                number * draw(st.integers(1, 1)) * 7,
                draw(st.sampled_from(NodeKind)),
                cpus,
                memory,
                draw(st.none() | st.integers(0, 1 << 45)),
                distances=draw(
                    st.dictionaries(
                        st.integers(0, 11).map(lambda n: n * 7),
                        st.integers(0, 1 << 31),
                        max_size=12,
                    )
                ),
                because=draw(NAMES),
            )
        )
    devices = tuple(
        Device(
            address=f"{draw(st.sampled_from(['0000', '10000']))}:{number:02x}:00.0",
            pci_class=0,
            vendor=0,
            device=0,
            kind=draw(KINDS),
            node=draw(st.none() | st.integers(0, 12).map(lambda n: n * 7)),
            node_source=draw(NAMES),
            names=tuple(draw(st.lists(NAMES, max_size=2))),
            path=draw(st.sampled_from([(), ("pci0000:00",), ("pci0000:00", "0000:00:01.0")])),
        )
        for number in range(draw(st.integers(0, 14)))
    )
    return topology_of(
        tuple(nodes),
        devices,
        remarks=(Remark("x", draw(NAMES)),),
        sources=(Source(draw(NAMES), 1, "numactl -H"),) if draw(st.booleans()) else (),
    )


@given(topologies(), NAMES)
def test_any_topology_is_a_sound_picture(topology: Topology, host: str) -> None:
    picture = Picture(render(topology, host))
    picture.check()
    assert set(picture.devices()) == {device.address for device in topology.devices}
    assert len(picture.parts("node")) == len(topology.nodes)


@pytest.mark.parametrize(
    "name", ["</text><script>alert(1)</script>", "\x1b[31m\x00", "a&b<c>\"'", "\ud800", "\u202e"]
)
def test_a_hostile_name_stays_a_name(name: str) -> None:
    device = Device("0000:01:00.0", 0, 0, 0, "nic", 0, name, names=(name,))
    text = render(topology_of((host_node(0, 1, because=name),), (device,)), name)
    picture = Picture(text)
    picture.check()
    tags = {element.tag.removeprefix(SVG) for element in picture.root.iter()}
    assert tags <= {"svg", "g", "rect", "path", "text", "title", "style"}
    assert re.search("[\x00-\x08\x0e-\x1f\u202e\ud800]", text) is None


def test_it_needs_nothing_from_outside_and_has_both_themes() -> None:
    text = render(sample("two-socket"), "two-socket")
    assert "prefers-color-scheme:dark" in text
    outside = text.replace("http://www.w3.org/2000/svg", "")
    assert re.search(r"https?:|href|url\(|@import|<script|on[a-z]+=", outside) is None
    light, dark = (set(re.findall(r"\.([\w-]+)\{", part)) for part in text.split("@media")[:2])
    assert dark <= light
    used = {c for e in ElementTree.fromstring(text).iter() for c in (e.get("class") or "").split()}
    assert used <= light | {"dashed", "bold", "mono"}


def test_what_is_unknown_is_drawn_as_unknown() -> None:
    unknown = Node(3, NodeKind.UNKNOWN, (), None, because="its cpumap cannot be read")
    device = Device("0000:01:00.0", 0, 0, 0, "gpu", None, "numa_node is -1")
    picture = Picture(render(topology_of((host_node(0, 4), unknown), (device,)), "x"))
    picture.check()
    (card,) = [g for g in picture.parts("node") if "node 3" in [t.text for t in g]]
    assert [t.text for t in card.findall(f"{SVG}text")].count("?") == 2
    assert "dashed" in (card.findall(f"{SVG}rect")[0].get("class") or "")
    (lost,) = picture.parts("unplaced")
    assert "node unknown" in [t.text for t in lost]
    (link,) = picture.parts("link")
    assert [t.text for t in link.findall(f"{SVG}text")] == ["20 / ?"]


def test_a_gpu_without_a_nic_on_its_node_says_so() -> None:
    gpu = Device("0000:01:00.0", 0, 0, 0, "gpu", 0, "sysfs", path=("pci0000:00",))
    nic = Device(
        "0000:02:00.0", 0, 0, 0, "nic", 1, "sysfs", names=("mlx5_0",), path=("pci0000:40",)
    )
    words = Picture(
        render(topology_of((host_node(0, 2), host_node(1, 2)), (gpu, nic)), "x")
    ).words()
    assert words.count("no NIC here") == 1


def test_thirty_six_nodes_with_devices() -> None:
    nodes = tuple(host_node(n, 36) for n in range(36))
    devices = tuple(
        Device(f"0000:{n:02x}:00.{f}", 0, 0, 0, kind, n, "sysfs", path=(f"pci0000:{n:02x}",))
        for n in range(36)
        for f, kind in enumerate(("gpu", "nic"))
    )
    picture = Picture(render(topology_of(nodes, devices), "x"))
    picture.check()
    assert len(picture.cards()) == 36
    assert len(picture.devices()) == 72


IMAGES = sorted((Path(__file__).parents[2] / "docs" / "images").glob("topology-*.svg"))


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.stem)
def test_the_images_of_the_documents_are_what_is_drawn(image: Path) -> None:
    """To draw one again: ``numadoctor topology --sysroot sample:NAME -o svg=FILE``."""
    name = image.stem.removeprefix("topology-")
    assert image.read_text() == render(sample(name), name)
