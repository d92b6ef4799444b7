"""Which nodes a pool gets, and with which weights."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.allocator.nodes import (
    bandwidth_weights,
    choose_nodes,
    free_for_bind,
    kernel_weights,
    reduce_weights,
)
from numadoctor.allocator.verify import expected_shares
from numadoctor.host import Host, open_root
from numadoctor.model import Missing


def sample(name: str) -> Host:
    return Host(open_root(f"sample:{name}"))


def test_memory_of_gpus_is_never_chosen_unasked() -> None:
    chosen = choose_nodes(sample("gpu-memory-nodes").topology)
    assert chosen.nodes == (0, 8)
    assert set(chosen.left_out) == set(range(250, 256))
    assert "gpu memory" in chosen.left_out[250]


def test_memory_of_gpus_is_chosen_when_asked_for() -> None:
    assert choose_nodes(sample("gpu-memory-nodes").topology, [8, 250]).nodes == (8, 250)


def test_slower_memory_is_left_out() -> None:
    topology = sample("cxl-tier").topology
    chosen = choose_nodes(topology)
    assert chosen.nodes == tuple(node.id for node in topology.host_nodes)
    assert chosen.left_out


def test_node_without_memory_is_left_out_with_the_reason() -> None:
    topology = sample("gpu-on-memoryless-node").topology
    assert choose_nodes(topology, [0, 1]) == ((0,), {1: "it has no memory"})


def test_no_numa() -> None:
    assert choose_nodes(sample("no-numa").topology) == ((), {})


def test_node_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="there is no node 7: this machine has 0-1"):
        choose_nodes(sample("two-socket").topology, [0, 7])


def test_kernel_weights_of_a_kernel_without() -> None:
    with pytest.raises(Missing):
        kernel_weights(sample("laptop"), [99])


def test_bandwidth_weights_need_the_figures() -> None:
    with pytest.raises(Missing, match="no bandwidth"):
        bandwidth_weights(sample("laptop").topology, [0])


@given(st.dictionaries(st.integers(0, 1023), st.integers(1, 10**7), min_size=1, max_size=16))
def test_weights_keep_the_proportions(rates: dict[int, int]) -> None:
    weights = reduce_weights(rates)
    assert set(weights) == set(rates)
    assert all(1 <= weight <= 255 for weight in weights.values())
    # A faster node never weighs less than a slower one.
    by_rate = sorted(rates, key=lambda node: rates[node])
    assert [weights[n] for n in by_rate] == sorted(weights.values())
    least, most = min(rates.values()), max(rates.values())
    if most <= 16 * least:
        for node, rate in rates.items():
            exact = rate / least * min(weights.values())
            assert weights[node] == pytest.approx(exact, rel=0.2, abs=0.6)


def test_weights_are_small_where_the_proportion_is() -> None:
    assert reduce_weights({0: 300, 1: 100}) == {0: 3, 1: 1}
    assert reduce_weights({0: 131072, 1: 131072}) == {0: 1, 1: 1}
    assert reduce_weights({0: 400, 2: 40}) == {0: 10, 2: 1}


def test_expected_shares() -> None:
    assert expected_shares("interleave", (0, 8), {}) == {0: 0.5, 8: 0.5}
    assert expected_shares("weighted-interleave", (0, 1), {0: 3, 1: 1}) == {0: 0.75, 1: 0.25}
    assert expected_shares("bind", (0,), {}) == {}


def test_shared_memory_is_no_room_for_a_bound_pool(scratch: Path) -> None:
    meminfo = scratch / "sys/devices/system/node/node0/meminfo"
    meminfo.parent.mkdir(parents=True)
    (meminfo.parents[1] / "online").write_text("0\n")
    counts = {
        "MemTotal": 1000,
        "MemFree": 100,
        "FilePages": 600,
        "Shmem": 500,
        "Active(file)": 40,
        "Inactive(file)": 50,
    }
    meminfo.write_text("".join(f"Node 0 {name}: {kb} kB\n" for name, kb in counts.items()))
    host = Host(open_root(str(scratch)))
    (node,) = host.topology.nodes
    assert free_for_bind(host, node) == 190 * 1024
    meminfo.write_text("Node 0 MemTotal: 1000 kB\n")
    assert free_for_bind(Host(open_root(str(scratch))), node) is None
