"""Links between GPUs, from what NVML and KFD tell; hostile answers among them."""

import json
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.host.devices.amd import KFD
from numadoctor.host.devices.links import Links, read_links, with_links, xgmi_hops
from numadoctor.model.device import GpuLink, is_link
from tests.build_fixtures import Device, Machine, Node, Package
from tests.host.machines import host_of
from tests.trees import fact

GPUS = ("0000:10:00.0", "0000:20:00.0", "0000:30:00.0", "0000:40:00.0")
NVIDIA, AMD = 0x10DE, 0x1002


def host(files: Mapping[str, str | bytes], vendor: int = AMD, models: str = "1111") -> Host:
    """A machine with four GPUs, of these models."""
    machine = Machine(
        "links",
        ("", "", ""),
        (Package(0, "0-1"),),
        (Node(0, "0-1", 1024, "10"),),
        devices=tuple(
            Device(gpu, f"pci0000:{gpu[5]}f/0000:{gpu[5]}f:01.0", 0x030200, vendor, int(model), 0)
            for gpu, model in zip(GPUS, models, strict=True)
        ),
    )
    return host_of(machine, files)


def nvml(nvlinks: Mapping[int, list[str] | None]) -> dict[str, str]:
    gpus = [{"index": n, "address": GPUS[n], "nvlinks": ends} for n, ends in nvlinks.items()]
    return {fact("nvml"): json.dumps({"unavailable": None, "driver": "1", "gpus": gpus})}


def kfd(links: Mapping[tuple[int, int], int], partitions: int = 1) -> dict[str, str]:
    """KFD nodes 0 (the CPUs) and on, ``partitions`` to a GPU; weights of XGMI between GPUs."""
    files = {f"{KFD}/0/properties": "cpu_cores_count 2\n"}
    for n in range(4 * partitions):
        gpu = GPUS[n // partitions]
        location = int(gpu[5:7], 16) << 8
        files[f"{KFD}/{n + 1}/properties"] = f"simd_count 8\nlocation_id {location}\n"
        ways = {(n, m): 13 for m in range(4 * partitions) if m // partitions == n // partitions}
        ways |= {
            (n, m): weight
            for (one, other), weight in links.items()
            for m in range(other * partitions, (other + 1) * partitions)
            if n // partitions == one
        }
        ways.pop((n, n), None)
        for number, ((_, to), weight) in enumerate(ways.items()):
            files[f"{KFD}/{n + 1}/io_links/{number}/properties"] = (
                f"type 11\nnode_from {n + 1}\nnode_to {to + 1}\nweight {weight}\n"
            )
    return files


def both(links: Mapping[tuple[int, int], GpuLink]) -> dict[tuple[str, str], GpuLink]:
    found = {(GPUS[a], GPUS[b]): link for (a, b), link in links.items()}
    return found | {(b, a): link for (a, b), link in found.items()}


def test_nvlinks_between_two_gpus_and_through_a_switch() -> None:
    files = nvml(
        {
            0: [*[f"gpu {GPUS[1]}"] * 4, "cpu", "unknown"],
            # One of them is down at the other end.
            1: [f"gpu {GPUS[0]}"] * 3,
            2: ["switch"] * 18,
            3: ["switch"] * 17,
        }
    )
    links = read_links(host(files, NVIDIA))
    assert links == Links(both({(0, 1): GpuLink("NVLink", 3), (2, 3): GpuLink("NVLink", 17)}))
    assert links.joined[GPUS[2], GPUS[3]].label == "NV17"


def test_gpus_that_nvml_does_not_tell_of() -> None:
    links = read_links(host(nvml({0: ["switch"], 1: ["switch"], 2: None}), NVIDIA))
    assert links.joined == both({(0, 1): GpuLink("NVLink", 1)})
    assert links.unknown == {"NVLink": f"NVML does not tell those of {GPUS[2]}"}


def test_without_the_library() -> None:
    assert read_links(host({}, NVIDIA)).unknown == {"NVLink": "nvidia-ml-py is not installed"}


def test_gpus_of_several_models_are_not_asked_for() -> None:
    assert read_links(host({}, NVIDIA, "1234")) == Links()
    assert read_links(host({}, NVIDIA, "1223")).unknown != {}


def test_xgmi_with_its_hops() -> None:
    files = kfd({(0, 1): 15, (1, 0): 15, (1, 2): 30, (2, 1): 15, (2, 3): 15})
    # The last is told by one end alone.
    xgmi = GpuLink("XGMI")
    assert read_links(host(files)) == Links(both({(0, 1): xgmi, (1, 2): xgmi._replace(hops=2)}))
    assert xgmi.label == "XGMI"


def test_partitions_of_a_gpu_are_one_gpu() -> None:
    files = kfd(dict.fromkeys(permutations(range(4), 2), 41), partitions=2)
    links = read_links(host(files))
    assert links == Links({pair: GpuLink("XGMI") for pair in permutations(GPUS, 2)})


def test_xgmi_to_the_cpus_joins_no_gpus() -> None:
    files = kfd({})
    for n in range(4):
        files[f"{KFD}/{n + 1}/io_links/0/properties"] = f"type 11\nnode_from {n + 1}\nnode_to 0\n"
    assert read_links(host(files)) == Links()


def test_a_container_that_may_use_two_of_the_gpus() -> None:
    """KFD refuses the files of the others: nodes, and links to them stay told by number."""
    files = kfd(dict.fromkeys(permutations(range(4), 2), 15))
    files |= {f"{KFD}/{n}/properties": "" for n in (3, 4)}
    machine = host(files)
    links = read_links(machine)
    assert links.joined == both({(0, 1): GpuLink("XGMI")})
    assert links.unknown == {"XGMI": f"KFD does not tell those of {GPUS[2]}"}
    hops, lost = xgmi_hops(machine, GPUS)
    assert {to for one, to in hops if one == GPUS[0]} == {GPUS[1], "KFD node 3", "KFD node 4"}
    assert lost == [GPUS[2], GPUS[3]]


def test_without_kfd() -> None:
    assert read_links(host({})).unknown == {"XGMI": f"KFD does not tell those of {GPUS[0]}"}


def test_the_topology_tells_them() -> None:
    topology = with_links(host(kfd({(0, 1): 15, (1, 0): 15})))
    assert topology.relations == {(GPUS[0], GPUS[1]): "XGMI", (GPUS[1], GPUS[0]): "XGMI"}


names = st.sampled_from(["0", "1", "2", "3", "4", "01", "x", "99999999999"])
properties = st.dictionaries(
    st.sampled_from(["type", "node_to", "weight", "simd_count", "location_id", "domain"]),
    st.integers(-1, 1 << 70) | st.sampled_from([2, 11, 0x1000, 0x2000, 15]),
).map(lambda values: "".join(f"{key} {value}\n" for key, value in values.items()))
contents = properties.map(str.encode) | st.binary(max_size=40)


@given(
    st.dictionaries(names, contents, max_size=5),
    st.dictionaries(st.tuples(names, names), contents, max_size=8),
)
def test_any_tree_of_kfd_is_understood_or_unknown(
    nodes: dict[str, bytes], ways: dict[tuple[str, str], bytes]
) -> None:
    files = {f"{KFD}/{node}/properties": text for node, text in nodes.items()}
    files |= {f"{KFD}/{n}/io_links/{way}/properties": text for (n, way), text in ways.items()}
    holds(read_links(host(files)))


@given(st.dictionaries(
    st.integers(0, 3),
    st.none() | st.lists(st.sampled_from(["switch", "cpu", "gpu", *(f"gpu {g}" for g in GPUS)])
                         | st.text(max_size=9), max_size=40),
))  # fmt: skip
def test_any_answer_of_nvml_is_understood_or_unknown(told: dict[int, Any]) -> None:
    links = read_links(host(nvml(told), NVIDIA))
    holds(links)
    assert bool(links.unknown) == (None in [told.get(n) for n in range(4)])


def holds(links: Links) -> None:
    for (one, other), link in links.joined.items():
        assert one != other
        assert {one, other} <= set(GPUS)
        assert links.joined[other, one] == link
        assert is_link(link.label)
        assert link.hops > 0
        assert link.number is None or link.number > 0


@pytest.mark.parametrize("word", ["PIX", "SYS", "NODE", "NV", "NVx", "PCIE", "X", ""])
def test_other_connections_are_no_links(word: str) -> None:
    assert not is_link(word)
