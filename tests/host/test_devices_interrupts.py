import errno

import pytest

from numadoctor.host import Host
from numadoctor.host.devices.interrupts import Interrupt, device_interrupts
from numadoctor.host.devices.pci import PCI
from numadoctor.model import Denied, Malformed, Missing
from tests.host.machines import Changes, TreeRoot

NIC = "0000:99:00.0"


def interrupts(files: Changes) -> tuple[Interrupt, ...]:
    listed: Changes = {f"{PCI}/{NIC}/msi_irqs/{number}": "msix\n" for number in (120, 121, 9)}
    return device_interrupts(Host(TreeRoot({**listed, **files})), NIC)


def test_the_effective_affinity_counts() -> None:
    found = interrupts(
        {
            "/proc/irq/9/effective_affinity_list": "3\n",
            "/proc/irq/9/smp_affinity_list": "0-31\n",
            "/proc/irq/9/mlx5_comp0@pci:0000:99:00.0/x": "",
            "/proc/irq/9/affinity_hint": "0\n",
            "/proc/irq/120/smp_affinity_list": "8-15\n",
            # Nobody has asked for this one.
            "/proc/irq/121/effective_affinity_list": "\n",
        }
    )
    assert found == (
        Interrupt(9, "mlx5_comp0@pci:0000:99:00.0", (3,), "/proc/irq/9/effective_affinity_list"),
        Interrupt(120, "", tuple(range(8, 16)), "/proc/irq/120/smp_affinity_list"),
    )


def test_what_cannot_be_read() -> None:
    path = "/proc/irq/9/effective_affinity_list"
    with pytest.raises(Denied):
        interrupts({path: Denied(path, errno.EACCES)})
    with pytest.raises(Malformed):
        interrupts({path: "some\n"})
    with pytest.raises(Missing):
        device_interrupts(Host(TreeRoot({})), NIC)
