import errno
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.host.devices import device_kind, gpu_memory_nodes
from numadoctor.model import Denied, Device, Missing, Step
from tests.build_fixtures import Device as Described
from tests.build_fixtures import Machine, Node, Package, uuid
from tests.host.machines import Changes, TreeRoot, host_of

PCI = "/sys/bus/pci/devices"
GPU = "0000:c1:00.0"
BRIDGES = ("0000:c0:01.0", "0000:c0:02.0")


def machine(numa_node: int, *, nodes: int = 2) -> Machine:
    """A GPU below two bridges; all of unknown node unless ``numa_node`` says."""
    cpus = ["0-3", "4-7"] if nodes == 2 else ["0-7"]
    rows = ["10 20", "20 10"] if nodes == 2 else ["10"]
    above = f"pci0000:c0/{BRIDGES[0]}/{BRIDGES[1]}"
    gpu = Described(GPU, above, 0x030200, 0x10DE, 0x2330, numa_node, ("drm/card0",))
    return Machine(
        "m",
        ("", "", ""),
        tuple(Package(n, list_) for n, list_ in enumerate(cpus)),
        tuple(Node(n, cpus[n], 4096, rows[n]) for n in range(nodes)),
        (gpu,),
    )


def gpu_of(described: Machine, changes: Changes | None = None) -> Device:
    (device,) = host_of(described, changes).topology.devices
    return device


@pytest.mark.parametrize(
    ("pci_class", "vendor", "kind"),
    [
        (0x030000, 0x10DE, "gpu"),
        (0x030200, 0x10DE, "gpu"),
        (0x038000, 0x1002, "gpu"),
        (0x120000, 0x1002, "gpu"),
        (0x120000, 0x1DA3, "accelerator"),
        (0x0B4000, 0x1BCF, "accelerator"),
        (0x020000, 0x8086, "nic"),
        (0x020700, 0x15B3, "nic"),
        (0x010802, 0x144D, "storage"),
        (0x030000, 0x1A03, "other"),
        (0x030000, 0x102B, "other"),
        (0x030000, 0x1234, "other"),
        (0x038000, 0x1AF4, "gpu"),
        (0x060400, 0x8086, "other"),
        (0x040300, 0x10DE, "other"),
        (0, 0, "other"),
    ],
)
def test_kind_by_class_and_vendor(pci_class: int, vendor: int, kind: str) -> None:
    assert device_kind(pci_class, vendor) == kind


@given(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFF))
def test_every_class_has_a_kind(pci_class: int, vendor: int) -> None:
    kind = device_kind(pci_class, vendor)
    assert kind in ("gpu", "accelerator", "nic", "storage", "other")
    if pci_class >> 16 in (0x01, 0x02):
        assert kind in ("storage", "nic")


def test_what_the_system_says_of_a_device() -> None:
    assert gpu_of(machine(1)) == Device(
        GPU,
        0x030200,
        0x10DE,
        0x2330,
        "gpu",
        1,
        "sysfs",
        "NVIDIA",
        ("card0",),
        step=Step.SYSFS,
        path=("pci0000:c0", *BRIDGES),
        model="NVIDIA H100 80GB HBM3",
        uuid=uuid(GPU),
        minor=0,
    )


@pytest.mark.parametrize(
    ("changes", "node", "source"),
    [
        ({}, None, "numa_node is -1, as it is for the bridges above"),
        ({f"{BRIDGES[0]}/numa_node": "1"}, 1, f"parent bridge {BRIDGES[0]}"),
        ({f"{BRIDGES[1]}/numa_node": "1"}, 1, f"parent bridge {BRIDGES[1]}"),
        # The nearest bridge is the one to believe.
        (
            {f"{BRIDGES[0]}/numa_node": "0", f"{BRIDGES[1]}/numa_node": "1"},
            1,
            f"parent bridge {BRIDGES[1]}",
        ),
        ({f"{GPU}/local_cpulist": "4-7"}, 1, "local_cpulist"),
        ({f"{GPU}/local_cpulist": "5"}, 1, "local_cpulist"),
        ({f"{GPU}/local_cpus": "0f"}, 0, "local_cpus"),
        ({f"{GPU}/local_cpus": "ff", f"{GPU}/local_cpulist": "4-7"}, None, None),
        ({f"{GPU}/local_cpulist": "3-4"}, None, None),
        ({f"{GPU}/local_cpulist": "\n"}, None, None),
        ({f"{GPU}/local_cpulist": "9"}, None, None),
        ({f"{GPU}/numa_node": "-1\0"}, None, None),
        ({f"{GPU}/numa_node": Missing("/x", errno.ENOENT)}, None, "numa_node: No such file"),
        (
            {f"{GPU}/numa_node": Missing("/x", errno.ENOENT), f"{GPU}/local_cpulist": "4-7"},
            1,
            "local_cpulist",
        ),
        # What is there and may not be read is not to be guessed around.
        (
            {f"{GPU}/numa_node": Denied("/x", errno.EACCES), f"{GPU}/local_cpulist": "4-7"},
            None,
            "numa_node: Permission denied",
        ),
        ({f"{GPU}/numa_node": "one", f"{GPU}/local_cpulist": "4-7"}, None, "numa_node: bad"),
        ({f"{BRIDGES[1]}/numa_node": "x", f"{BRIDGES[0]}/numa_node": "0"}, 0, "parent bridge"),
        ({f"{GPU}/numa_node": "7"}, 7, "sysfs"),
    ],
)
def test_node_of_a_device(changes: Changes, node: int | None, source: str | None) -> None:
    found = gpu_of(machine(-1), {_real(name): value for name, value in changes.items()})
    assert found.node == node
    assert found.node_source.startswith(source or "numa_node is -1")


def _real(name: str) -> str:
    """Where the file of a device lies: below the folders of the bridges above it."""
    address, _, file = name.partition("/")
    chain = ["pci0000:c0", *BRIDGES, GPU]
    return f"/sys/devices/{'/'.join(chain[: chain.index(address) + 1])}/{file}"


def test_one_node_is_the_node_of_all() -> None:
    found = gpu_of(machine(-1, nodes=1))
    assert (found.node, found.node_source) == (0, "only node")


def test_without_numa_a_device_has_no_node() -> None:
    found = gpu_of(replace(machine(-1), numa=False))
    assert (found.node, found.node_source) == (None, "the kernel has no NUMA")


def test_a_device_without_a_readable_class_is_left_out() -> None:
    host = host_of(machine(1), {_real(f"{GPU}/class"): Denied("/x", errno.EACCES)})
    assert host.topology.devices == ()


def test_names_that_are_no_addresses_are_left_out() -> None:
    extra = {f"{PCI}/{name}/class": "0x030200" for name in ("usb1", "../../etc", "c1:00.0")}
    assert gpu_of(machine(1), extra).address == GPU


def test_wide_domains() -> None:
    files = {f"{PCI}/10000:01:00.0/class": "0x010802", f"{PCI}/10000:01:00.0/numa_node": "0"}
    host = host_of(machine(1), files)
    assert [d.address for d in host.topology.devices] == [GPU, "10000:01:00.0"]


def test_a_bus_that_may_not_be_listed_is_remarked() -> None:
    topology = host_of(machine(1), {PCI: Denied(PCI, errno.EACCES)}).topology
    assert topology.devices == ()
    assert [remark.path for remark in topology.remarks] == [PCI]


def test_gpu_memory_nodes() -> None:
    base = "/proc/driver/nvidia/gpus"
    files = {
        f"{base}/0004:05:00.0/numa_status": "Node:      255\nStatus:    online\n",
        f"{base}/00010000:C1:00.0/numa_status": "Node: 254\n",
        f"{base}/0004:06:00.0/numa_status": "Status: offline\n",
        f"{base}/not-an-address/numa_status": "Node: 253\n",
        f"{base}/0006:00:00.0/information": "Model: x\n",
    }
    host = Host(TreeRoot(files))
    assert gpu_memory_nodes(host) == {255: "0004:05:00.0", 254: "10000:c1:00.0"}
    assert gpu_memory_nodes(Host(TreeRoot({}))) == {}
