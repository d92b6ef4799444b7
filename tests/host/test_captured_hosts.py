"""Seventeen captured machines: their topology is read as it was, and no check fails on them.

The archives are those of the hwloc project's test suite; they are read where
they stand beside the repository and are no part of it. expected.json beside
them was read from the same files by another program (lstopo of hwloc 2.9).
"""

from typing import Any

import pytest

from numadoctor.engine.discovery import discover
from numadoctor.engine.registry import Scope
from numadoctor.engine.runner import run
from numadoctor.model import NodeKind, Status, Topology
from tests.host.archives import ARCHIVES, EXPECTED, Open

# lstopo merges eight nodes that hold the same CPUs and are all at distance 10 into
# one, so that its allowed node is 0; the files allow 0-7.
MERGED_BY_LSTOPO = {"8em64t-2s2ca2c-buggynuma.tar.bz2": tuple(range(8))}


def _read(topology: Topology) -> dict[str, Any]:
    return {
        "numa": topology.numa,
        "nodes": {
            str(node.id): {
                "cpus": list(node.cpus),
                "memory_bytes": node.memory_bytes,
                "distance": list(node.distances.values()),
            }
            for node in topology.nodes
        },
    }


@pytest.mark.parametrize("name", ARCHIVES)
def test_topology_is_that_of_the_machine(name: str, opened: Open) -> None:
    expected = EXPECTED[name]
    topology = opened(name).topology
    assert _read(topology) == {"numa": expected["numa"], "nodes": expected.get("nodes", {})}
    if not expected["numa"]:
        return
    assert topology.allowed.cpus == tuple(expected["allowed_cpus"])
    nodes = MERGED_BY_LSTOPO.get(name, tuple(expected["allowed_nodes"]))
    assert topology.allowed.nodes == nodes


@pytest.mark.parametrize("name", ARCHIVES)
def test_columns_of_distance_follow_the_nodes(name: str, opened: Open) -> None:
    for node in opened(name).topology.nodes:
        assert node.distances[node.id] == 10
        assert list(node.distances) == sorted(node.distances)


@pytest.mark.parametrize("name", ARCHIVES)
def test_checks_end_without_an_error(name: str, opened: Open) -> None:
    # Those of files look at what is given to lint.
    checks = [check for check in discover() if check.scope is not Scope.FILE]
    report = run(opened(name), checks)
    assert [f for f in report.findings if f.status is Status.ERROR] == []
    assert {finding.id for finding in report.findings} == {check.id for check in checks}
    for finding in report.findings:
        if finding.status in (Status.WARN, Status.FAIL):
            assert finding.evidence, finding


def test_lstopo_merges_nodes_of_one_archive_only() -> None:
    for name, nodes in MERGED_BY_LSTOPO.items():
        if EXPECTED:
            assert EXPECTED[name]["allowed_nodes"] == [0]
            assert sorted(map(int, EXPECTED[name]["nodes"])) == list(nodes)


def _only(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(name not in EXPECTED, reason=f"{name} is not there")


@_only("nvidiagpunumanodes.tar.bz2")
def test_gpu_memory_and_gpus_of_power9(opened: Open) -> None:
    topology = opened("nvidiagpunumanodes.tar.bz2").topology
    kinds = {node.id: node.kind for node in topology.nodes}
    gpu = dict.fromkeys(range(250, 256), NodeKind.GPU)
    assert kinds == {0: NodeKind.HOST, 8: NodeKind.HOST, **gpu}
    # There is no numa_node in the archive: the local CPUs tell.
    assert [(d.address, d.kind, d.node) for d in topology.devices] == [
        ("0004:05:00.0", "gpu", 0),
        ("0004:06:00.0", "gpu", 0),
        ("0006:00:00.0", "gpu", 0),
        ("0007:00:00.0", "gpu", 8),
        ("0035:04:00.0", "gpu", 8),
        ("0035:05:00.0", "gpu", 8),
    ]


@_only("fakeheteromemtiers.tar.bz2")
def test_fast_and_slow_memory_by_bandwidth(opened: Open) -> None:
    topology = opened("fakeheteromemtiers.tar.bz2").topology
    assert {n.id: n.kind for n in topology.nodes if n.kind is not NodeKind.HOST} == {
        4: NodeKind.HBM,
        6: NodeKind.CXL,
        8: NodeKind.CXL,
        9: NodeKind.CXL,
    }


@_only("32intel64-2p8co2t+8ve.tar.bz2")
def test_eight_vector_engines_on_node_0(opened: Open) -> None:
    devices = opened("32intel64-2p8co2t+8ve.tar.bz2").topology.devices
    engines = [device for device in devices if device.kind == "accelerator"]
    assert [(device.vendor_name, device.node) for device in engines] == [("NEC", 0)] * 8


@_only("offline-cpu0-node0.tar.bz2")
def test_cpus_of_an_offline_node(opened: Open) -> None:
    host = opened("offline-cpu0-node0.tar.bz2")
    assert [node.id for node in host.topology.nodes] == [1]
    findings = run(host, [discover().checks["T001"]]).findings
    homeless = [f for f in findings if f.subject == "cpu/online"]
    assert [f.status for f in homeless] == [Status.WARN]
    assert "CPUs 4,6,8,10,12,14,16,18,20 are online and in no online node" in homeless[0].message


@pytest.mark.parametrize(
    ("name", "check", "status", "text"),
    [
        ("8em64t-2s2ca2c-buggynuma.tar.bz2", "T005", "warn", "all at distance 10"),
        ("128arm-2pa2n8cluster4co.tar.bz2", "T005", "pass", "16,25,32-33 between nodes"),
        ("32amd64-4s2n4c-cgroup2.tar.bz2", "T006", "info", "package 3 holds nodes 6-7"),
        ("96em64t-4no4pa3ca2co.tar.bz2", "T007", "pass", "follow cores and packages"),
        ("nvidiagpunumanodes.tar.bz2", "T003", "info", "nodes 250-255 (90 GiB)"),
        ("128ia64-17n4s2c.tar.bz2", "T003", "info", "node 16"),
    ],
)
def test_what_is_said_of_them(name: str, check: str, status: str, text: str, opened: Open) -> None:
    if name not in EXPECTED:
        pytest.skip(f"{name} is not there")
    findings = run(opened(name), [discover().checks[check]]).findings
    assert [f.status.value for f in findings if text in f.message] == [status]
