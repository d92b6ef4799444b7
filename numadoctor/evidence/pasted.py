"""What one pasted output says, in the same form whatever program printed it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.model import ParseError


class Refused(ParseError):
    """An output was recognised and cannot be trusted: wrapped, cut, or not whole.

    :ivar line: the line of the text that shows it, from 1
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__("pasted output", "", reason)
        self.line, self.reason = line, reason

    def __str__(self) -> str:
        return self.reason


class PastedNode(NamedTuple):
    """One node. None for what the output does not tell.

    :ivar memory_bytes: as precise as the output: numactl gives whole MiB
    :ivar of_gpu: what says that its memory is a GPU's, or ""
    """

    id: int
    cpus: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None
    distances: Mapping[int, int] = {}
    of_gpu: str = ""


class PastedDevice(NamedTuple):
    """One device.

    :ivar name: what the output calls it: ``GPU0``, ``mlx5_0``, or its PCI address
    :ivar address: its PCI address as sysfs writes it, or ""
    :ivar nodes: the nodes it is near to, or None when that is not told
    :ivar cpus: the CPUs it is near to, or None
    :ivar path: as in ``numadoctor.model.Device``
    """

    name: str
    kind: str
    line: int
    address: str = ""
    nodes: tuple[int, ...] | None = None
    cpus: tuple[int, ...] | None = None
    memory_nodes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    pci_class: int = 0
    vendor: int = 0
    device: int = 0
    path: tuple[str, ...] = ()


class PastedHint(NamedTuple):
    """Nodes that a scheduler would align a resource to.

    :ivar mask: as it is written, a number or binary digits
    """

    resource: str
    mask: str
    nodes: tuple[int, ...]
    preferred: bool
    line: int


class Pasted(NamedTuple):
    """What one output says.

    :ivar format: the command that prints this form
    :ivar line: where it begins, from 1
    :ivar relations: names of two devices to how they are connected, both ways
    :ivar online: online CPUs, or None
    :ivar allowed: CPUs and nodes that the program could use, or None
    :ivar notes: line and text of what was odd, and did not stop the reading
    """

    format: str
    line: int
    nodes: tuple[PastedNode, ...] = ()
    devices: tuple[PastedDevice, ...] = ()
    relations: Mapping[tuple[str, str], str] = {}
    online: tuple[int, ...] | None = None
    allowed: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    hints: tuple[PastedHint, ...] = ()
    notes: tuple[tuple[int, str], ...] = ()


def ids(line: int, text: str, what: str) -> tuple[int, ...]:
    """The ids in a list such as ``0-3,8``.

    :raises Refused: it is not one
    """
    if text.strip().startswith(",") or text.strip().endswith(","):
        raise Refused(line, f"{what}: it ends in a comma: a cut or wrapped line?")
    try:
        return parsers.parse_list(text.encode())
    except ParseError as error:
        raise Refused(line, f"{what}: {error.reason}: a cut or wrapped line?") from None


def checked_square(
    line: int, names: Iterable[str], cells: Mapping[tuple[str, str], str], own: str
) -> None:
    """Refuse a matrix that is not the same both ways, or whose diagonal is not ``own``.

    Such a matrix was shifted, cut inside a word, or put together from two.
    """
    for one in names:
        for other in names:
            cell, back = cells.get((one, other)), cells.get((other, one))
            if one == other and cell not in (None, own):
                raise Refused(line, f"the cell of {one} with itself is {cell}, not {own}: shifted?")
            if cell is not None and back is not None and cell != back:
                text = f"{one} to {other} is {cell}, {other} to {one} is {back}"
                raise Refused(line, f"{text}: cut, shifted or put together from two tables?")
