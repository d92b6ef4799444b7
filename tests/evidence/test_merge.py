from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.evidence.merge import Given, merge
from numadoctor.evidence.recognise import recognise
from numadoctor.host import Host, open_root
from numadoctor.host.devices.links import with_links
from numadoctor.model import Device, NodeKind, Status, Step, Topology
from tests.evidence import pastes
from tests.evidence.pastes import EIGHT, HWLOC, NCCL

CPUS = {0: [*range(14), *range(28, 42)], 1: [*range(14, 28), *range(42, 56)]}
NUMACTL = pastes.numactl(CPUS, {0: 1000, 1: 2000}, {0: [10, 21], 1: [21, 10]})


def given_files(*texts: str) -> list[Given]:
    return [Given(f"{n}.txt", *recognise(text.encode())) for n, text in enumerate(texts)]


def merged(*texts: str, host: Topology | None = None) -> Topology:
    return merge(given_files(*texts), host)


def devices(topology: Topology) -> dict[str, Device]:
    return {device.address: device for device in topology.devices}


def sample(name: str) -> Topology:
    return Host(open_root(f"sample:{name}")).topology


def test_several_outputs_make_one_machine() -> None:
    topology = merged(EIGHT.text(), NUMACTL)
    assert [(n.id, n.kind, n.memory_bytes) for n in topology.nodes] == [
        (0, NodeKind.HOST, 1000 << 20),
        (1, NodeKind.HOST, 2000 << 20),
    ]
    found = devices(topology)
    assert [found[f"GPU{n}"].node for n in range(4)] == [0, 0, 1, 1]
    assert topology.remarks == ()
    assert {source.format for source in topology.sources} == {"nvidia-smi topo -m", "numactl -H"}
    assert topology.relations["GPU0", "GPU1"] == "NV12"


def test_a_nic_is_on_the_node_of_the_gpus_it_reaches_without_leaving_it() -> None:
    found = devices(merged(EIGHT.text()))
    assert (found["NIC0"].node, found["NIC1"].node) == (0, 1)
    assert found["NIC0"].node_source == "PIX to GPU0 in nvidia-smi topo -m"
    assert found["NIC0"].step is Step.PASTED


def test_nodes_that_gpus_alone_tell_of_are_not_made_up() -> None:
    topology = merged(EIGHT.text())
    zero, one = topology.nodes
    assert (zero.id, zero.cpus, zero.memory_bytes) == (0, tuple(CPUS[0]), None)
    assert zero.kind is one.kind is NodeKind.UNKNOWN
    assert "memory" in zero.because
    assert topology.allowed.cpus is None


def test_a_set_of_nodes_is_no_node_and_cpus_may_tell_it() -> None:
    smi = replace(EIGHT, nodes=("0-1", "0", "N/A", "N/A"), relations={})
    found = devices(merged(smi.text(), NUMACTL))
    assert found["GPU0"].node is None
    assert "nodes 0-1: not one" in found["GPU0"].node_source
    assert (found["GPU2"].node, found["GPU2"].node_source) == (
        1,
        "CPU affinity in nvidia-smi topo -m",
    )
    # Its cell of CPUs is empty too.
    assert found["GPU3"].node is None


def test_gpus_are_matched_by_address_where_one_output_has_those() -> None:
    smi = replace(
        EIGHT, gpus=1, nics=("mlx5_0",), cpus=("0-1",), nodes=("0",), relations={(0, 1): "PIX"}
    )
    topology = merged(smi.text(), HWLOC)
    assert set(devices(topology)) == {"0000:18:00.0", "0000:19:00.0"}
    assert topology.relations["0000:18:00.0", "0000:19:00.0"] == "PIX"
    assert [node.id for node in topology.nodes] == [0, 8]
    assert topology.allowed.nodes == (0, 8)


def test_disagreement_is_told_and_the_first_is_used() -> None:
    other = pastes.numactl({0: [0], 1: [1]}, {0: 1, 1: 2000}, {0: [10, 32], 1: [21, 10]})
    topology = merged(NUMACTL, other)
    assert topology.nodes[0].cpus == tuple(CPUS[0])
    texts = [remark.text for remark in topology.remarks]
    assert [remark.path for remark in topology.remarks] == ["1.txt:1"] * 4
    assert any("CPUs 0; numactl -H (0.txt:1) says 0-13,28-41, and is used" in t for t in texts)
    assert any("1 MiB" in text for text in texts)
    assert any("distance (to node 1) 32" in text for text in texts)


def test_sysfs_wins_and_says_so() -> None:
    host = sample("two-socket")
    nodes = [n.id for n in host.nodes]
    text = pastes.numactl(
        {**{n.id: n.cpus for n in host.nodes}, 1: [0]},
        {n.id: (n.memory_bytes or 0) >> 20 for n in host.nodes},
        {n: [10 if n == o else 21 for o in nodes] for n in nodes},
    )
    topology = merged(text, host=host)
    assert topology.nodes == host.nodes
    (remark,) = topology.remarks[len(host.remarks) :]
    assert remark.text == (
        "numactl -H says that node 1 has CPUs 0; sysfs says 8-15,24-31, and is used"
    )
    assert remark.status is Status.WARN


def smi_of(host: Topology, nodes: tuple[str, ...]) -> str:
    gpus = [d for d in host.devices if d.kind == "gpu"]
    cpus = tuple("0-7" for _ in gpus)
    return replace(
        EIGHT, gpus=len(gpus), nics=(), cpus=cpus, nodes=nodes, relations={(0, 1): "NV18"}
    ).text()


def test_gpus_that_sysfs_does_not_place_are_placed_by_the_driver() -> None:
    host = sample("vm-unplaced-gpus")
    gpus = [d.address for d in host.devices if d.kind == "gpu"]
    assert {d.node for d in host.devices if d.kind == "gpu"} == {None}
    topology = merged(smi_of(host, ("0", "0", "1", "1")), host=host)
    found = devices(topology)
    assert [found[address].node for address in gpus] == [0, 0, 1, 1]
    assert found[gpus[0]].node_source == "nvidia-smi topo -m"
    assert topology.relations[gpus[0], gpus[1]] == "NV18"


def test_a_driver_that_disagrees_with_sysfs_does_not_win() -> None:
    host = sample("two-socket")
    nodes = tuple("1" if n == 0 else str(d.node) for n, d in enumerate(_gpus(host)))
    topology = merged(smi_of(host, nodes), host=host)
    assert [d.node for d in _gpus(topology)] == [d.node for d in _gpus(host)]
    assert any("is near node 1; sysfs says 0, and is used" in r.text for r in topology.remarks)


def test_connections_that_the_bridges_tell_otherwise_are_left_out() -> None:
    host = sample("vm-unplaced-gpus")
    topology = merged(smi_of(host, ("0", "0", "1", "1")), host=host)
    # One host bridge has all of them; NVLinks are nothing that sysfs could contradict.
    assert set(topology.relations.values()) == {"NV18"}
    (remark,) = topology.remarks[len(host.remarks) :]
    assert "are SYS; sysfs says PHB, and is used (and so for 4 other pairs)" in remark.text


def _gpus(topology: Topology) -> list[Device]:
    return [d for d in topology.devices if d.kind == "gpu"]


def test_what_the_host_does_not_have_is_left_out() -> None:
    host = sample("two-socket")
    topology = merged(NCCL, EIGHT.text(), host=host)
    assert set(devices(topology)) == set(devices(host))
    texts = " ".join(remark.text for remark in topology.remarks)
    assert "which sysfs does not have" in texts
    assert "which is which cannot be told" in texts


def test_refusals_are_remarks_of_the_unknown() -> None:
    topology = merged(NUMACTL, "\n".join(EIGHT.lines()[:3]) + "\n")
    (remark,) = topology.remarks
    assert (remark.path, remark.status) == ("1.txt:3", Status.UNKNOWN)


def test_gpu_memory_is_told_by_hwloc_and_by_nvidia() -> None:
    xml = HWLOC.replace('os_index="8" cpuset="0x0000000c"', 'subtype="GPUMemory" os_index="8"')
    assert merged(xml).nodes[1].kind is NodeKind.GPU
    smi = "\n".join(EIGHT.lines()).replace("\t\tN/A", "\t\t8", 1) + "\n"
    assert devices(merged(smi))["GPU0"].memory_nodes == (8,)
    assert [node.id for node in merged(smi).nodes] == [0, 1, 8]


TEXTS = [EIGHT.text(), NUMACTL, HWLOC, NCCL, pastes.lscpu({0: "0-13", 1: "14-27"})]


@given(st.permutations([*TEXTS, pastes.rocm([0, 1], ["XGMI"])]), st.sampled_from([None, "laptop"]))
def test_any_order_of_any_outputs(texts: list[str], name: str | None) -> None:
    host = sample(name) if name else None
    topology = merged("\n".join(texts), host=host)
    assert len(topology.sources) == 6
    ids = [node.id for node in topology.nodes]
    assert ids == sorted(set(ids))
    addresses = [device.address for device in topology.devices]
    assert addresses == sorted(set(addresses))
    if host:
        assert [node.id for node in topology.nodes] == [node.id for node in host.nodes]


@pytest.mark.parametrize("text", TEXTS)
def test_twice_the_same_is_once(text: str) -> None:
    once, twice = merged(text), merged(text, text)
    assert twice.remarks == once.remarks
    assert (twice.nodes, twice.devices, twice.relations) == (
        once.nodes,
        once.devices,
        once.relations,
    )


def linked(name: str) -> Topology:
    return with_links(Host(open_root(f"sample:{name}")))


def test_the_way_over_pci_of_gpus_that_nvlink_joins_is_no_contradiction() -> None:
    """``nvidia-smi topo -mp`` tells it, in the form of ``topo -m``."""
    host = linked("nvlink-pairs")
    gpus = [d.address for d in _gpus(host)]
    over_pci = {(0, 2): "NODE", (4, 6): "NODE", (0, 1): "PIX"}
    smi = replace(
        EIGHT, gpus=8, nics=(), cpus=("0",) * 8, nodes=("0",) * 4 + ("1",) * 4, relations=over_pci
    )
    topology = merged(smi.text(), host=host)
    assert topology.relations[gpus[0], gpus[2]] == "NV12"
    assert topology.relations[gpus[0], gpus[1]] == "PIX"
    assert not any(gpus[2] in remark.text and "NODE" in remark.text for remark in topology.remarks)


def test_other_numbers_of_nvlinks_are_a_contradiction() -> None:
    host = linked("nvlink-pairs")
    gpus = [d.address for d in _gpus(host)]
    smi = replace(
        EIGHT, gpus=8, nics=(), cpus=("0",) * 8, nodes=("0",) * 8, relations={(0, 2): "NV4"}
    )
    topology = merged(smi.text(), host=host)
    assert topology.relations[gpus[0], gpus[2]] == "NV12"
    text = f"says that {gpus[0]} and {gpus[2]} are NV4; what came before says NV12"
    assert any(text in remark.text for remark in topology.remarks)


def test_pcie_where_the_driver_has_xgmi_is_a_contradiction() -> None:
    host = linked("mi300x")
    topology = merged(pastes.rocm([0] * 8, ["PCIE"] * 7), host=host)
    assert set(topology.relations.values()) == {"XGMI"}
    assert sum("are PCIE; what came before says XGMI" in r.text for r in topology.remarks) == 28


def test_pasted_nvlinks_are_told_where_nvml_does_not() -> None:
    host = linked("two-socket")
    assert host.unknown_links == {"NVLink": "nvidia-ml-py is not installed"}
    nodes = tuple(str(d.node) for d in _gpus(host))
    assert merged(smi_of(host, nodes), host=host).unknown_links == {}
    plain = merged(NUMACTL, host=host)
    assert plain.unknown_links == host.unknown_links
