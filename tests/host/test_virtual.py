import errno

import pytest

from numadoctor.host import Host
from numadoctor.host.virtual import DMI, read_virtual
from numadoctor.model import Denied, Missing, Undecided
from tests.host.machines import Changes, TreeRoot

X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu lm"
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"


def virtual(files: Changes) -> tuple[bool, str]:
    found = read_virtual(Host(TreeRoot(files)))
    assert found.evidence
    return found.virtual, found.by


@pytest.mark.parametrize(
    ("cpuinfo", "vendor", "product", "answer"),
    [
        (f"{X86}\n", "Supermicro", "SYS-821GE", (False, "")),
        (f"{X86} hypervisor\n", "QEMU", "Standard PC (Q35)", (True, "QEMU")),
        (f"{X86} hypervisor\n", "VMware, Inc.", "VMware7,1", (True, "VMware")),
        (f"{X86} hypervisor\n", "Microsoft Corporation", "Virtual Machine", (True, "Hyper-V")),
        (f"{X86} hypervisor\n", "Acme", "Box", (True, "a hypervisor")),
        # A metal instance: the same maker, and no hypervisor below.
        (f"{X86}\n", "Amazon EC2", "p5.48xlarge", (False, "")),
        (f"{X86} hypervisor\n", "Amazon EC2", "p5.48xlarge", (True, "Amazon EC2")),
        (ARM, "NVIDIA", "Grace CPU P3880", (False, "")),
        (ARM, "QEMU", "QEMU Virtual Machine", (True, "QEMU")),
    ],
)
def test_by_the_flag_then_by_firmware(
    cpuinfo: str, vendor: str, product: str, answer: tuple[bool, str]
) -> None:
    files = {"/proc/cpuinfo": cpuinfo}
    files |= {f"{DMI}/sys_vendor": vendor, f"{DMI}/product_name": product}
    assert virtual(files) == answer


def test_the_flag_alone_is_enough() -> None:
    assert virtual({"/proc/cpuinfo": f"{X86} hypervisor\n"}) == (True, "a hypervisor")
    assert virtual({"/proc/cpuinfo": f"{X86}\n"}) == (False, "")


def test_firmware_alone_is_enough() -> None:
    closed = Denied("/proc/cpuinfo", errno.EACCES)
    assert virtual({"/proc/cpuinfo": closed, f"{DMI}/sys_vendor": "QEMU"}) == (True, "QEMU")


def test_device_tree_of_power() -> None:
    files = {
        "/proc/cpuinfo": "processor\t: 0\ncpu\t\t: POWER9\n",
        "/proc/device-tree/model": "IBM pSeries (emulated by qemu)\0",
    }
    assert virtual(files) == (True, "QEMU")


@pytest.mark.parametrize(
    "files", [{}, {"/proc/cpuinfo": ARM}, {"/proc/cpuinfo": Denied("/x", errno.EACCES)}]
)
def test_where_nothing_tells(files: Changes) -> None:
    with pytest.raises(Undecided) as caught:
        read_virtual(Host(TreeRoot(files)))
    assert isinstance(caught.value, Missing | Denied)
