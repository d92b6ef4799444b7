"""Every PCI device of the seventeen captured machines has the node that its files give.

The archives are those of tests/host/archives.py. What is expected is
read from them here once more, by other means: numa_node of the device, else of
a bridge above it, else the one node whose cpumap holds the device's CPUs.
"""

import os
import re
from pathlib import Path

import pytest

from numadoctor.host.devices import device_node
from numadoctor.host.devices.pci import path_of
from numadoctor.model import Distance, Step, distance
from tests.host.archives import ARCHIVES, EXPECTED, Open

ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def bits(text: str) -> set[int]:
    value = int(text.strip().strip("\0").replace(",", "") or "0", 16)
    return {bit for bit in range(value.bit_length()) if value >> bit & 1}


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip().strip("\0")
    except OSError:
        return None


def expected_node(device: Path, nodes: dict[int, set[int]]) -> int | None:
    """The node by the raw files; None where they do not say."""
    own = text_of(device / "numa_node")
    if own is not None and int(own) >= 0:
        return int(own)
    real = os.path.realpath(device)
    above = Path(real).parent
    while ADDRESS.fullmatch(above.name):
        there = text_of(above / "numa_node")
        if there is not None and int(there) >= 0:
            return int(there)
        above = above.parent
    if len(nodes) == 1:
        return next(iter(nodes))
    every = set().union(*nodes.values())
    local = text_of(device / "local_cpus")
    if local is None or bits(local) >= every:
        return None
    near = [node for node, cpus in nodes.items() if bits(local) and bits(local) <= cpus]
    return near[0] if len(near) == 1 else None


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_device_has_the_node_that_its_files_give(
    name: str, opened: Open, in_memory: Path
) -> None:
    host = opened(name)
    topology = host.topology
    nodes = {node.id: set(node.cpus) for node in topology.nodes}
    bus = in_memory / name / EXPECTED[name]["folder"] / "sys/bus/pci/devices"
    devices = sorted(bus.iterdir()) if bus.is_dir() and nodes else []
    found = {}
    expected = {}
    for device in devices:
        expected[device.name] = expected_node(device, nodes)
        place = device_node(host, device.name, topology.nodes)
        found[device.name] = place.node
        assert (place.node is None) == (place.step is Step.UNKNOWN), device.name
        own = text_of(device / "numa_node")
        assert (place.step is Step.SYSFS) == (own is not None and int(own) >= 0), device.name
    assert found == expected
    for known in topology.devices:
        assert known.node == (expected[known.address] if nodes else None)


def _only(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(name not in EXPECTED, reason=f"{name} is not there")


@_only("40intel64-4n10c+pci-conflicts.tar.bz2")
def test_conflicting_localities_stay_unknown(opened: Open) -> None:
    (device,) = opened("40intel64-4n10c+pci-conflicts.tar.bz2").topology.devices
    assert (device.address, device.node, device.step) == ("0000:01:00.0", None, Step.UNKNOWN)
    assert device.path == ("pci0000:00", "0000:00:03.0")


@_only("fakepcilocalities.tar.bz2")
def test_devices_of_all_four_nodes(opened: Open) -> None:
    host = opened("fakepcilocalities.tar.bz2")
    names = host.list("/sys/bus/pci/devices")
    places = {name: device_node(host, name, host.topology.nodes) for name in names}
    assert {place.node for place in places.values()} >= {0, 1, 2, 3}
    assert {place.step for place in places.values() if place.node is not None} == {Step.SYSFS}
    nics = [device for device in host.topology.devices if device.kind == "nic"]
    same_card = distance(nics[0], nics[1])
    assert same_card is Distance.PIX
    assert path_of(host, nics[0].address)[0] == "pci0000:00"
