"""The sample hosts: they are what their description builds, and are read as it says."""

import json
from configparser import ConfigParser
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from numadoctor.engine.discovery import discover
from numadoctor.engine.registry import Scope
from numadoctor.engine.runner import run
from numadoctor.host import Host, open_root, sample_names
from numadoctor.model import Device, Node, Status
from tests.build_fixtures import FIXTURES, Machine, ids, listed, mask, write
from tests.sample_hosts import MACHINES

NAMES = [machine.name for machine in MACHINES]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_committed_sample_is_what_its_description_builds(machine: Machine, scratch: Path) -> None:
    write(machine, scratch)
    built, committed = tree(scratch), tree(FIXTURES / machine.name)
    assert sorted(built) == sorted(committed), "run python -m tests.build_fixtures"
    assert built == committed, "run python -m tests.build_fixtures"


def test_every_sample_has_a_description() -> None:
    assert sorted(NAMES) == sorted(sample_names())


def _node(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "kind": node.kind.value,
        "cpus": list(node.cpus),
        "memory_bytes": node.memory_bytes,
        "distances": {str(other): distance for other, distance in node.distances.items()},
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "address": device.address,
        "class": f"0x{device.pci_class:06x}",
        "kind": device.kind,
        "node": device.node,
        "node_source": device.node_source,
    }


@pytest.mark.parametrize("name", NAMES)
def test_topology_is_read_as_described(name: str) -> None:
    expected = json.loads((FIXTURES / name / "expected.json").read_text())
    topology = Host(open_root(f"sample:{name}")).topology
    assert topology.numa == expected["numa"]
    assert [_node(node) for node in topology.nodes] == expected["nodes"]
    assert [_device(device) for device in topology.devices] == expected["devices"]
    assert topology.remarks == ()


@pytest.mark.parametrize("name", NAMES)
def test_checks_of_topology_and_devices_say_what_is_expected(name: str) -> None:
    expected = json.loads((FIXTURES / name / "expected.json").read_text())
    checks = [check for check in discover() if check.family in "TG"]
    report = run(Host(open_root(f"sample:{name}")), checks)
    found = [
        f"{finding.id} {finding.status.value} {finding.subject}"
        for finding in report.findings
        if finding.status not in (Status.PASS, Status.SKIP)
    ]
    assert sorted(found) == expected["findings"]


def test_two_socket_passes_every_check() -> None:
    # Those of files look at what is given to lint.
    checks = [check for check in discover() if check.scope is not Scope.FILE]
    report = run(Host(open_root("sample:two-socket")), checks)
    wrong = [f for f in report.findings if f.status not in (Status.PASS, Status.SKIP, Status.INFO)]
    assert wrong == []


def test_every_file_of_a_sample_is_packaged() -> None:
    config = ConfigParser()
    config.read(FIXTURES.parent / "setup.cfg")
    patterns = config["options.package_data"]["numadoctor.fixtures"].split()
    packaged = {path for p in patterns for path in glob(p, root_dir=FIXTURES, recursive=True)}
    files = {f"{name}/{path}" for name in NAMES for path in tree(FIXTURES / name)}
    assert files - packaged == set()


def test_readme_has_three_lines() -> None:
    for name in NAMES:
        assert len((FIXTURES / name / "README").read_text().splitlines()) == 3, name


@pytest.mark.parametrize(
    ("numbers", "width", "text"),
    [
        ([0, 1, 2, 3], 8, "0f"),
        ([0, 32], 40, "01,00000001"),
        ([], 64, "00000000,00000000"),
        ([5], 6, "20"),
    ],
)
def test_builder_writes_masks_as_the_kernel_does(numbers: list[int], width: int, text: str) -> None:
    assert mask(numbers, width) == text


def test_builder_lists() -> None:
    assert ids("0-2,8,10-11") == [0, 1, 2, 8, 10, 11]
    assert listed([11, 0, 1, 2, 8, 10]) == "0-2,8,10-11"
