import errno
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.host.topology import read_pools
from numadoctor.model import (
    Denied,
    Malformed,
    Missing,
    NodeKind,
    Pool,
    Status,
    Topology,
    Undecided,
    Unreadable,
)
from tests.build_fixtures import CPUS, NODES, Access, Machine, Node, Package, build, ids
from tests.host.machines import Changes, TreeRoot, host_of, machines

TWO_NODES = Machine(
    "two",
    ("", "", ""),
    (Package(0, "0-3", 2), Package(1, "4-7", 2)),
    (Node(0, "0-3", 4096, "10 21"), Node(8, "4-7", 4096, "21 10")),
)


def denied(path: str) -> Denied:
    return Denied(path, errno.EACCES)


def remarks(topology: Topology, status: Status) -> list[str]:
    return [remark.path for remark in topology.remarks if remark.status is status]


@given(machines())
def test_any_machine_is_read_as_it_is(machine: Machine) -> None:
    topology = host_of(machine).topology
    online = set(machine.online)
    assert topology.numa
    assert [
        (node.id, node.kind.value, set(node.cpus), node.memory_bytes, list(node.distances.values()))
        for node in topology.nodes
    ] == [
        (
            node.id,
            node.kind,
            online & set(ids(node.cpus)),
            node.memory << 20,
            list(map(int, node.distance.split())),
        )
        for node in machine.nodes
    ]
    for node in topology.nodes:
        assert node.distances[node.id] == 10
    assert list(topology.online_cpus) == machine.online
    assert list(topology.present_cpus) == machine.present
    assert {cpu.package for cpu in topology.cpus} == {machine.packages[0].id}
    assert [(d.address, d.node, d.node_source) for d in topology.devices] == [
        (device.address, device.node, "sysfs") for device in machine.devices
    ]
    assert topology.remarks == ()
    assert topology.allowed.cpus == topology.online_cpus
    assert topology.allowed.nodes == tuple(n.id for n in machine.nodes if n.memory)


@given(st.data())
def test_nothing_that_a_file_holds_stops_the_reading(data: st.DataObject) -> None:
    files, links = build(TWO_NODES)
    damage = st.one_of(
        st.binary(max_size=40),
        st.sampled_from([denied("/x"), Missing("/x", errno.ENOENT), Unreadable("/x", errno.EIO)]),
        st.sampled_from([b"", b"\0", b"-1\n", b"4294967295\n", b"0-65535\n", b"9" * 30]),
    )
    paths = sorted(path for path in files if path.startswith(("/sys/", "/proc/")))
    changes = data.draw(st.dictionaries(st.sampled_from(paths), damage, max_size=6))
    topology = Host(TreeRoot({**files, **changes}, links)).topology
    assert [node.id for node in topology.nodes] == [0, 8]
    for node in topology.nodes:
        folder = f"{NODES}/node{node.id}"
        if isinstance(changes.get(f"{folder}/meminfo"), Undecided):
            assert (node.memory_bytes, node.kind) == (None, NodeKind.UNKNOWN)
        elif f"{folder}/meminfo" not in changes:
            assert node.memory_bytes == 4096 << 20
        untouched = not {f"{folder}/cpumap", f"{folder}/cpulist", f"{CPUS}/online"} & set(changes)
        if untouched:
            assert node.cpus == ((0, 1, 2, 3) if node.id == 0 else (4, 5, 6, 7))


@given(st.data())
def test_a_file_that_cannot_be_read_leaves_what_others_say(data: st.DataObject) -> None:
    files, links = build(TWO_NODES)
    whole = Host(TreeRoot(files, links)).topology
    path = data.draw(st.sampled_from([p for p in sorted(files) if p.startswith(NODES)]))
    topology = Host(TreeRoot({**files, path: denied(path)}, links)).topology
    for node, before in zip(topology.nodes, whole.nodes, strict=True):
        if f"/node{node.id}/" not in path:
            assert node == before
        assert node.memory_bytes in (before.memory_bytes, None)
        assert node.cpus in (before.cpus, ())
        if not node.cpus:
            assert node.kind is NodeKind.UNKNOWN


def test_no_node_folder_is_a_kernel_without_numa() -> None:
    topology = host_of(replace(TWO_NODES, numa=False)).topology
    assert (topology.numa, topology.nodes) == (False, ())
    assert topology.online_cpus == tuple(range(8))


def test_without_sysfs_nothing_is_known() -> None:
    with pytest.raises(Missing) as caught:
        _ = Host(TreeRoot({"/proc/version": "Linux"})).topology
    assert caught.value.path == NODES


def test_node_folder_that_may_not_be_listed() -> None:
    with pytest.raises(Denied):
        _ = host_of(TWO_NODES, {NODES: denied(NODES)}).topology


def test_node_folder_without_a_node() -> None:
    files = {f"{CPUS}/online": "0", f"{NODES}/power/control": "auto", f"{NODES}/online": "\n"}
    with pytest.raises(Malformed):
        _ = Host(TreeRoot(files)).topology


def test_online_stands_in_for_node_folders() -> None:
    files = {f"{CPUS}/online": "0", f"{NODES}/online": "0,8"}
    topology = Host(TreeRoot(files)).topology
    assert [(n.id, n.kind, n.memory_bytes) for n in topology.nodes] == [
        (0, NodeKind.UNKNOWN, None),
        (8, NodeKind.UNKNOWN, None),
    ]
    assert f"{NODES}/online" in remarks(topology, Status.WARN)


def test_names_that_are_no_nodes() -> None:
    extra = {f"{NODES}/{name}/meminfo": "x" for name in ("node", "nodex", "node01", "node-1")}
    assert [n.id for n in host_of(TWO_NODES, extra).topology.nodes] == [0, 8]


@pytest.mark.parametrize("gone", [b"", b"\n", None])
def test_cpus_tell_for_themselves_without_a_list(gone: bytes | None) -> None:
    online = Missing("/x", errno.ENOENT) if gone is None else gone
    changes: Changes = {
        f"{CPUS}/online": online,
        f"{CPUS}/cpu3/online": "0",
        f"{CPUS}/cpu2/online": "1",
    }
    topology = host_of(TWO_NODES, changes).topology
    assert topology.online_cpus == (0, 1, 2, 4, 5, 6, 7)
    assert topology.nodes[0].cpus == (0, 1, 2)


def test_a_cpu_whose_state_cannot_be_read_is_remarked() -> None:
    changes: Changes = {f"{CPUS}/online": Missing("/x"), f"{CPUS}/cpu3/online": b""}
    topology = host_of(TWO_NODES, changes).topology
    assert topology.online_cpus == tuple(range(8))
    assert remarks(topology, Status.UNKNOWN) == [f"{CPUS}/online"]


def test_a_long_list_of_cpus_asks_for_those_that_exist() -> None:
    host = host_of(TWO_NODES, {f"{CPUS}/online": "0-65535"})
    assert len(host.topology.cpus) == 65536
    assert {cpu.package for cpu in host.topology.cpus} == {0, 1, None}
    assert len([path for path in host.reads if path.startswith(f"{CPUS}/cpu")]) < 100


def test_siblings_and_packages() -> None:
    cpus = host_of(TWO_NODES).topology.cpus
    assert [(c.id, c.package, c.core, c.siblings) for c in cpus[:4]] == [
        (0, 0, 0, (0, 2)),
        (1, 0, 1, (1, 3)),
        (2, 0, 0, (0, 2)),
        (3, 0, 1, (1, 3)),
    ]


def test_old_name_of_the_siblings_file() -> None:
    folder = f"{CPUS}/cpu0/topology"
    changes: Changes = {f"{folder}/core_cpus": Missing("/x"), f"{folder}/thread_siblings": "03"}
    assert host_of(TWO_NODES, changes).topology.cpus[0].siblings == (0, 1)


@pytest.mark.parametrize("text", ["-1", "", "socket"])
def test_a_package_that_is_not_told_is_none(text: str) -> None:
    changes = {f"{CPUS}/cpu0/topology/physical_package_id": text}
    assert host_of(TWO_NODES, changes).topology.cpus[0].package is None


@pytest.mark.parametrize(
    ("cpulist", "cpus", "status"),
    [
        ("0-1", (0, 1, 2, 3), Status.WARN),
        ("0-3,9", (0, 1, 2, 3), Status.INFO),
        ("0-4", (0, 1, 2, 3), Status.WARN),
        ("0-2,9", (0, 1, 2, 3), Status.WARN),
    ],
)
def test_cpumap_outranks_cpulist(cpulist: str, cpus: tuple[int, ...], status: Status) -> None:
    topology = host_of(TWO_NODES, {f"{NODES}/node0/cpulist": cpulist}).topology
    assert topology.nodes[0].cpus == cpus
    assert remarks(topology, status) == [f"{NODES}/node0/cpulist"]


@pytest.mark.parametrize("other", ["Missing", "zz"])
def test_cpulist_stands_in_for_cpumap(other: str) -> None:
    cpumap = Missing("/x", errno.ENOENT) if other == "Missing" else other
    topology = host_of(TWO_NODES, {f"{NODES}/node0/cpumap": cpumap}).topology
    assert topology.nodes[0].cpus == (0, 1, 2, 3)


def test_a_node_without_readable_cpus_is_not_memory_without_cpus() -> None:
    folder = f"{NODES}/node0"
    changes = {f"{folder}/cpumap": denied("/x"), f"{folder}/cpulist": denied("/x")}
    node = host_of(TWO_NODES, changes).topology.nodes[0]
    assert (node.kind, node.because) == (NodeKind.UNKNOWN, "its cpumap cannot be read")


@pytest.mark.parametrize("meminfo", ["", "Node 0 MemFree: 5 kB", "Node 0 MemTotal: lots kB"])
def test_memory_that_is_not_told_is_unknown(meminfo: str) -> None:
    node = host_of(TWO_NODES, {f"{NODES}/node0/meminfo": meminfo}).topology.nodes[0]
    assert (node.memory_bytes, node.kind) == (None, NodeKind.UNKNOWN)


@pytest.mark.parametrize(
    ("columns", "possible", "distances"),
    [
        ("10 21", "0,8", {0: 10, 8: 21}),
        ("10 40 21", "0,4,8", {0: 10, 4: 40, 8: 21}),
        ("10 40 21", "0-1,4,8", {}),
        ("10", "0,8", {}),
        ("", "0,8", {}),
    ],
)
def test_columns_of_distance_are_those_of_the_online_or_the_possible_nodes(
    columns: str, possible: str, distances: dict[int, int]
) -> None:
    changes = {f"{NODES}/node0/distance": columns, f"{NODES}/possible": possible}
    topology = host_of(TWO_NODES, changes).topology
    assert topology.nodes[0].distances == distances
    assert remarks(topology, Status.WARN) == ([] if distances else [f"{NODES}/node0/distance"])


def test_pools_by_size_and_one_that_cannot_be_read_left_out() -> None:
    base = "/hugepages"
    files: Changes = {
        f"{base}/hugepages-1048576kB/nr_hugepages": "2",
        f"{base}/hugepages-1048576kB/free_hugepages": "1",
        f"{base}/hugepages-2048kB/nr_hugepages": "10",
        f"{base}/hugepages-2048kB/free_hugepages": "4",
        f"{base}/hugepages-2048kB/surplus_hugepages": "3",
        f"{base}/hugepages-64kB/nr_hugepages": "1",
        f"{base}/hugepages-64kB/free_hugepages": denied("/x"),
        f"{base}/other/nr_hugepages": "1",
    }
    pools = read_pools(Host(TreeRoot(files)), base)
    assert pools == (Pool(2 << 20, 10, 4, 3), Pool(1 << 30, 2, 1, 0))
    assert read_pools(Host(TreeRoot(files)), "/absent") == ()


def memory_node(node: Node) -> Machine:
    """A host node of 256 GiB/s beside ``node``."""
    near = Node(0, "0-3", 4096, "10 20", access=Access("0", 262144, 100), tier=None)
    return Machine("m", ("", "", ""), (Package(0, "0-3"),), (near, node))


@pytest.mark.parametrize(
    ("distance", "access", "kind"),
    [
        (13, None, NodeKind.HBM),
        (14, None, NodeKind.MEMORY_ONLY),
        (20, None, NodeKind.MEMORY_ONLY),
        (20, Access("0", 1048576, 130), NodeKind.HBM),
        (20, Access("0", 26214, 250), NodeKind.CXL),
        # What firmware measured outranks how far it says it is.
        (13, Access("0", 26214, 250), NodeKind.CXL),
        # Nearly the same bandwidth says nothing.
        (20, Access("0", 240000, 110), NodeKind.MEMORY_ONLY),
        # No node with CPUs to compare with.
        (20, Access("1", 1048576, 110), NodeKind.MEMORY_ONLY),
        (20, Access("0", 0, 0), NodeKind.MEMORY_ONLY),
    ],
)
def test_memory_without_cpus_by_bandwidth_then_distance(
    distance: int, access: Access | None, kind: NodeKind
) -> None:
    node = Node(1, "", 4096, f"{distance} 10", access=access, tier=None)
    machine = memory_node(node)
    machine = replace(machine, nodes=(replace(machine.nodes[0], distance=f"10 {distance}"), node))
    topology = host_of(machine).topology
    assert topology.nodes[1].kind is kind
    assert topology.nodes[1].because


@pytest.mark.parametrize(
    ("tier", "kind"), [(22, NodeKind.CXL), (2, NodeKind.HBM), (4, NodeKind.MEMORY_ONLY)]
)
def test_the_tier_outranks_figures(tier: int, kind: NodeKind) -> None:
    node = Node(1, "", 4096, "20 10", tier=tier)
    machine = memory_node(node)
    machine = replace(machine, nodes=(replace(machine.nodes[0], tier=4), node))
    topology = host_of(machine).topology
    assert (topology.nodes[1].kind, topology.nodes[1].tier) == (kind, tier)
    assert topology.tiers[4][0] == 0


def test_the_gpu_driver_outranks_the_tier() -> None:
    node = Node(1, "", 4096, "20 10", tier=22)
    machine = replace(memory_node(node), nodes=(Node(0, "0-3", 4096, "10 20"), node))
    status = {"/proc/driver/nvidia/gpus/0004:05:00.0/numa_status": "Node:  1\nStatus: online\n"}
    found = host_of(machine, status).topology.nodes[1]
    assert (found.kind, found.tier) == (NodeKind.GPU, 22)
    assert found.because.endswith("GPU 0004:05:00.0")


@pytest.mark.parametrize("text", ["Node: -1\n", "Node: x\n", "Status: offline\n", "", "\0"])
def test_a_gpu_without_a_node(text: str) -> None:
    status = {"/proc/driver/nvidia/gpus/0004:05:00.0/numa_status": text}
    kinds = {node.kind for node in host_of(TWO_NODES, status).topology.nodes}
    assert kinds == {NodeKind.HOST}


def test_memory_of_offline_cpus_is_no_expander() -> None:
    machine = replace(TWO_NODES, offline="4-7")
    topology = host_of(machine).topology
    assert topology.nodes[1].kind is NodeKind.MEMORY_ONLY
    assert topology.nodes[1].because == "its CPUs 4-7 are all offline"


def test_tiers_that_may_not_be_listed_are_remarked() -> None:
    tiers = "/sys/devices/virtual/memory_tiering"
    topology = host_of(TWO_NODES, {tiers: denied(tiers)}).topology
    assert topology.tiers == {}
    assert remarks(topology, Status.UNKNOWN) == [tiers]
