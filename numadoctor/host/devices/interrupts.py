"""Where the interrupts of a PCI device are handled."""

from collections.abc import Iterator
from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.devices.pci import PCI, attempt
from numadoctor.host.host import Host
from numadoctor.model import Missing

IRQ = "/proc/irq"


class Interrupt(NamedTuple):
    """An interrupt that a driver has asked for.

    :ivar name: what the driver calls it, ``mlx5_comp0@pci:0000:17:00.0``, or ""
    :ivar cpus: the CPUs that handle it
    :ivar source: the file that says so
    """

    number: int
    name: str
    cpus: tuple[int, ...]
    source: str


def device_interrupts(host: Host, address: str) -> tuple[Interrupt, ...]:
    """The interrupts of a device that are in use, by number.

    Those that no driver has asked for have no CPU, and are left out.

    :raises Undecided: the affinity of one may not be read, or sysfs does not list them
    """
    return tuple(_interrupts(host, parsers.numbered(host.list(f"{PCI}/{address}/msi_irqs"), "")))


def _interrupts(host: Host, numbers: tuple[int, ...]) -> Iterator[Interrupt]:
    for number in numbers:
        # The effective one, since Linux 4.13, is a single CPU on x86; the other one is
        # what was asked for.
        path = f"{IRQ}/{number}/effective_affinity_list"
        try:
            cpus = host.ids(path)
        except Missing:
            path = f"{IRQ}/{number}/smp_affinity_list"
            try:
                cpus = host.ids(path)
            except Missing:
                continue
        if cpus:
            yield Interrupt(number, _name(host, number), cpus, path)


def _name(host: Host, number: int) -> str:
    """The handler's name: the only folder in that of the interrupt (register_handler_proc())."""
    entries = attempt(host.list, f"{IRQ}/{number}") or ()
    plain = {"affinity_hint", "node", "spurious"}
    named = [e for e in entries if e not in plain and "affinity" not in e]
    return named[0] if named else ""
