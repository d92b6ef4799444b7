"""What the checks of topology share: paths, how nodes and CPUs are written, fixes in firmware."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from numadoctor.host import parsers
from numadoctor.host.virtual import read_virtual
from numadoctor.model import Evidence, Finding, Fix, Node, NodeKind, Undecided, unknown

if TYPE_CHECKING:
    from numadoctor.host import Host

NODES = "/sys/devices/system/node"
CPUS = "/sys/devices/system/cpu"
COMMAND_LINE = "/proc/cmdline"

# A list of alternating CPU numbers is as long as it has numbers: the file that
# is cited has the rest.
_LIST_LENGTH = 60


def short_list(ids: Iterable[int]) -> str:
    """The ids as a list, cut where it gets long."""
    text = parsers.format_list(ids)
    if len(text) <= _LIST_LENGTH:
        return text
    return f"{text[:_LIST_LENGTH].rpartition(',')[0]},..."


def cpu_text(cpus: Iterable[int]) -> str:
    """``CPU 3``, ``CPUs 0-7,16-23``."""
    ids = tuple(cpus)
    return f"CPU{'' if len(ids) == 1 else 's'} {short_list(ids)}"


def unread_nodes(host: "Host", what: str, *files: str) -> list[Finding]:
    """A finding for each node whose CPUs or memory, as far as they matter, cannot be read.

    :param what: what is not known of them, for that reason
    :param files: those that matter: ``cpumap``, ``meminfo``
    """
    return [
        unknown(
            f"{what} node {node.id}: {node.because}",
            subject=f"node {node.id}",
            evidence=[host.evidence(f"{NODES}/node{node.id}/{file}") for file in files],
        )
        for node in host.topology.nodes
        if node.kind is NodeKind.UNKNOWN and any(file in node.because for file in files)
    ]


def memory_evidence(host: "Host", node: Node) -> Evidence:
    """The line of the node's meminfo that says how much it has."""
    path = f"{NODES}/node{node.id}/meminfo"
    return host.evidence(path, f"Node {node.id} MemTotal")


def be(ids: Iterable[object]) -> str:
    """``is`` or ``are``."""
    return "is" if len(tuple(ids)) == 1 else "are"


def is_virtual(host: "Host") -> bool | None:
    """Whether the machine is a virtual one; None where nothing tells."""
    try:
        return read_virtual(host).virtual
    except Undecided:
        return None


def platform_fixes(host: "Host", metal: Iterable[str], guest: dict[str, str]) -> tuple[Fix, ...]:
    """Changes below the kernel: of the firmware, or of the virtual machine on its host.

    Both where nothing tells which kind of machine it is.

    :param metal: what to change in the BIOS or in the machine
    :param guest: launcher to what to change in its definition
    """
    virtual = is_virtual(host)
    firmware = [_below("bios", text) for text in metal if virtual is not True]
    hypervisor = [_below(name, text) for name, text in guest.items() if virtual is not False]
    return (*firmware, *hypervisor)


def _below(launcher: str, text: str) -> Fix:
    return Fix(launcher, text, needs_root=True, needs_restart=True, persists=True)


def boot_fix(text: str) -> Fix:
    """A change of the kernel's command line."""
    return _below("grub", text)
