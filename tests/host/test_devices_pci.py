"""Where a device sits in the PCI tree, and its link, as read from sysfs."""

import pytest

from numadoctor.host import Host
from numadoctor.host.devices import read_devices
from numadoctor.host.devices.pci import PCI, bridges_above, path_of, read_link
from numadoctor.model import Node, NodeKind, PcieLink, Step
from tests.host.machines import Changes, TreeRoot

GPU = "0000:03:00.0"
CHAIN = ("pci0000:00", "0000:00:01.0", "0000:01:00.0", "0000:02:00.0")
NODES = (Node(0, NodeKind.HOST, (0, 1), 1), Node(1, NodeKind.HOST, (2, 3), 1))


def host(files: Changes, target: str = f"../../../devices/{'/'.join(CHAIN)}/{GPU}") -> Host:
    return Host(TreeRoot(files, {f"{PCI}/{GPU}": target, f"{PCI}/{CHAIN[-1]}": target[:-13]}))


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (f"../../../devices/{'/'.join(CHAIN)}/{GPU}", CHAIN),
        (f"../../../devices/pci0000:00/{GPU}", ("pci0000:00",)),
        # Behind a VMD controller a root bus of its own begins.
        (f"../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/{GPU}",
         ("pci10000:e0", "10000:e0:06.0")),
        (f"../../../devices/platform/soc/40.pcie/pci0004:00/0004:00:00.0/{GPU}",
         ("pci0004:00", "0004:00:00.0")),
        (GPU, ()),
    ],
)  # fmt: skip
def test_path(target: str, path: tuple[str, ...]) -> None:
    assert path_of(host({}, target), GPU) == path


def test_a_controller_above_may_know_the_node() -> None:
    target = f"../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/{GPU}"
    assert bridges_above(host({}, target), GPU) == ["10000:e0:06.0", "0000:00:0e.0"]


def below(place: str, name: str) -> str:
    chain = [*CHAIN, GPU]
    return f"/sys/devices/{'/'.join(chain[: chain.index(place) + 1])}/{name}"


@pytest.mark.parametrize(
    ("files", "link"),
    [
        ({}, None),
        (
            {"current_link_speed": "2.5 GT/s PCIe", "current_link_width": "16",
             "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"},
            PcieLink(2.5, 16, 32.0, 16, 16.0, 8),
        ),
        # 255 lanes and an unknown speed: a device on no PCI Express link.
        (
            {"current_link_speed": "Unknown", "current_link_width": "0",
             "max_link_speed": "Unknown", "max_link_width": "255"},
            None,
        ),
        ({"max_link_width": "16"}, PcieLink(None, None, None, 16, 16.0, 8)),
        ({"max_link_width": "many", "max_link_speed": "x"}, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("listed", [True, False], ids=["bridge in the bus", "in the tree alone"])
def test_link(files: dict[str, str], link: PcieLink | None, listed: bool) -> None:
    port = {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "8"}
    tree = {below(GPU, name): text for name, text in files.items()}
    tree |= {below(CHAIN[-1], name): text for name, text in port.items()}
    links = {f"{PCI}/{GPU}": f"../../../devices/{'/'.join(CHAIN)}/{GPU}"}
    if listed:
        links[f"{PCI}/{CHAIN[-1]}"] = f"../../../devices/{'/'.join(CHAIN)}"
    assert read_link(Host(TreeRoot(tree, links)), GPU, CHAIN) == link


def test_what_drivers_and_groups_tell() -> None:
    folder = below(GPU, "")
    files = {f"{folder}class": "0x020000\n", f"{folder}vendor": "0x1af4\n",
             f"{folder}numa_node": "1\n", f"{folder}virtio2/net/eth0/x": "",
             f"{folder}infiniband/mlx5_0/x": ""}  # fmt: skip
    links = {
        f"{PCI}/{GPU}": f"../../../devices/{'/'.join(CHAIN)}/{GPU}",
        f"{folder}driver": "../../../../../../bus/pci/drivers/virtio-pci",
        f"{folder}iommu_group": "../../../../../../kernel/iommu_groups/17",
        f"{folder}physfn": "../0000:02:00.0",
    }
    (device,) = read_devices(Host(TreeRoot(files, links)), NODES)
    assert (device.kind, device.node, device.step) == ("nic", 1, Step.SYSFS)
    assert (device.driver, device.iommu_group) == ("virtio-pci", 17)
    assert device.physical_function == "0000:02:00.0"
    assert (device.interfaces, device.rdma) == (("eth0",), ("mlx5_0",))
    assert device.names == ("eth0", "mlx5_0")
    assert device.path == CHAIN
