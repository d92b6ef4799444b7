"""NCCL's topology files (NCCL_TOPO_FILE): CPUs, and the PCI devices below each.

The one parser of this format: checks of a running process, the lint of files
and pasted evidence all read it through ``parse_nccl_topology``.

Source: src/graph/xml.cc and src/graph/topo.cc of NCCL: a ``cpu`` has the
attributes ``numaid`` and ``affinity`` (a mask as in local_cpus), a ``pci`` the
attribute ``busid`` and, inside, further ``pci``, a ``gpu`` or a ``nic``. In a ``gpu``
there is an ``nvlink`` (with RCCL an ``xgmi``) for each device that links lead to, with
its ``target`` and ``count``, and the class of the target as ``tclass``.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from numadoctor.host.parsers._text import BLANK, error
from numadoctor.host.parsers.lists import parse_map
from numadoctor.host.parsers.pci import parse_bus_id, parse_link_speed
from numadoctor.model.errors import ParseError

_WHAT = "NCCL topology"

# NCCL itself takes at most 1024 elements and a few levels of switches (xml.h).
_MOST_ELEMENTS, _DEEPEST = 65536, 64


class NcclCpu(NamedTuple):
    """A ``cpu`` element: a node as NCCL sees it.

    :ivar node: its ``numaid``; None for -1 and where there is none
    :ivar cpus: the CPUs of its ``affinity``; None where there is none
    :ivar affinity: the mask as it is written, or ""
    :ivar line: where it starts in the file
    """

    node: int | None
    cpus: tuple[int, ...] | None
    affinity: str = ""
    line: int = 0


class NcclLink(NamedTuple):
    """An ``nvlink`` or ``xgmi`` element.

    :ivar kind: which of the two
    :ivar target: the bus id as sysfs writes it, or "" for one that is none, as of a switch
        that the program may not see
    :ivar number: links that lead there; 0 where that is not told
    :ivar target_class: 24-bit class code of the target, or None
    """

    kind: str
    target: str
    number: int
    target_class: int | None = None


class NcclDevice(NamedTuple):
    """A ``pci`` element.

    :ivar address: its ``busid`` as sysfs writes it
    :ivar cpu: position of the ``cpu`` it is below, among ``cpus``; None for none
    :ivar above: bus ids of the ``pci`` elements it is in, outermost first
    :ivar pci_class: 24-bit class code, or None
    :ivar speed: GT/s, or None
    :ivar width: lanes, or None
    :ivar gpu: NCCL's number of the GPU in it (``dev``), or None
    :ivar rank: the rank that uses the GPU, or None
    :ivar nets: names of the NICs in it: ``mlx5_0``
    :ivar line: where it starts in the file
    :ivar links: those of the GPU in it, beside PCI Express
    """

    address: str
    cpu: int | None
    above: tuple[str, ...] = ()
    pci_class: int | None = None
    speed: float | None = None
    width: int | None = None
    gpu: int | None = None
    rank: int | None = None
    nets: tuple[str, ...] = ()
    line: int = 0
    links: tuple[NcclLink, ...] = ()

    @property
    def is_gpu(self) -> bool:
        """Whether NCCL takes it for a GPU: by the element in it, else by its class."""
        return self.gpu is not None or (self.pci_class or 0) >> 8 in (0x0300, 0x0302, 0x1200)


class NcclTopology(NamedTuple):
    """The file, its devices in the order in which they stand there."""

    cpus: tuple[NcclCpu, ...]
    devices: tuple[NcclDevice, ...]


@dataclass
class _Reader:
    """Gathers what the XML reader meets."""

    cpus: list[NcclCpu] = field(default_factory=list)
    devices: list[dict[str, object]] = field(default_factory=list)
    open: list[tuple[str, int]] = field(default_factory=list)
    seen: int = 0

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        self.seen += 1
        if self.seen > _MOST_ELEMENTS or len(self.open) >= _DEEPEST:
            raise ParseError(_WHAT, name, f"line {line}: no machine has so many parts")
        if not self.open and name != "system":
            raise ParseError(_WHAT, name, f'line {line}: the first element is not "system"')
        place = -1
        if name == "cpu":
            self.cpus.append(_cpu(attributes, line))
            place = len(self.cpus) - 1
        elif name == "pci":
            self.devices.append(self._pci(attributes, line))
            place = len(self.devices) - 1
        elif name == "gpu" and (device := self._device()) is not None:
            device["gpu"] = _integer(attributes, "dev", line, 0)
            device["rank"] = _integer(attributes, "rank", line, None)
        elif name == "net" and (device := self._device()) is not None and "name" in attributes:
            device["nets"] = (*device.get("nets", ()), attributes["name"])  # type: ignore[misc]
        elif name in ("nvlink", "xgmi") and (device := self._device()) is not None:
            device["links"] = (*device.get("links", ()), _link(name, attributes))  # type: ignore[misc]
        self.open.append((name, place))

    def end(self, name: str) -> None:
        del self.open[-1:]

    def _inside(self, kind: str) -> list[int]:
        return [place for name, place in self.open if name == kind]

    def _device(self) -> dict[str, object] | None:
        inside = self._inside("pci")
        return self.devices[inside[-1]] if inside else None

    def _pci(self, attributes: dict[str, str], line: int) -> dict[str, object]:
        try:
            address = parse_bus_id(attributes.get("busid", ""))
        except ParseError as bad:
            raise ParseError(_WHAT, attributes.get("busid", ""), f"line {line}: {bad}") from None
        inside = self._inside("cpu")
        return {
            "address": address,
            "cpu": inside[-1] if inside else None,
            "above": tuple(str(self.devices[at]["address"]) for at in self._inside("pci")),
            "pci_class": _hexadecimal(attributes.get("class", "")),
            "speed": _speed(attributes.get("link_speed", "")),
            "width": _integer(attributes, "link_width", line, None),
            "line": line,
        }


def parse_nccl_topology(data: bytes) -> NcclTopology:
    """The CPUs and PCI devices of a topology file, with the lines on which they stand.

    Entities and document types are refused: NCCL knows neither, and they are
    how a small file becomes a large one.

    :raises ParseError: no XML, no ``system`` in it, an address or a mask that is none
    """
    from xml.parsers import expat

    reader = _Reader()
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise ParseError(_WHAT, "<!", f"line {parser.CurrentLineNumber}: a document type is in it")

    parser.StartElementHandler = lambda name, attributes: reader.start(
        name, attributes, parser.CurrentLineNumber
    )
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data.strip(BLANK), True)
    except expat.ExpatError as bad:
        raise error(_WHAT, data, f"not XML: {bad}") from None
    except (LookupError, ValueError) as bad:
        if isinstance(bad, ParseError):
            raise
        raise error(_WHAT, data, "its encoding is not known") from None
    devices = tuple(NcclDevice(**entry) for entry in reader.devices)  # type: ignore[arg-type]
    return NcclTopology(tuple(reader.cpus), devices)


def _cpu(attributes: dict[str, str], line: int) -> NcclCpu:
    affinity = attributes.get("affinity", "")
    node = _integer(attributes, "numaid", line, None)
    cpus = None
    if affinity:
        try:
            cpus = parse_map(affinity.encode("utf-8", "backslashreplace"))
        except ParseError as bad:
            raise ParseError(_WHAT, affinity, f"line {line}: {bad}") from None
    return NcclCpu(None if node is None or node < 0 else node, cpus, affinity, line)


def _link(kind: str, attributes: dict[str, str]) -> NcclLink:
    """Tells less where an attribute is not understood: nothing else hangs on it."""
    try:
        target = parse_bus_id(attributes.get("target", ""))
    except ParseError:
        target = ""
    count = attributes.get("count", "")
    known = count.isascii() and count.isdecimal() and len(count) < 4
    return NcclLink(
        kind, target, int(count) if known else 0, _hexadecimal(attributes.get("tclass", ""))
    )


def _integer(attributes: dict[str, str], name: str, line: int, absent: int | None) -> int | None:
    text = attributes.get(name, "")
    if not text:
        return absent
    digits = text.removeprefix("-")
    # str.isdecimal() takes digits of every script.
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 10):
        raise ParseError(_WHAT, text, f"line {line}: {name} is not a number")
    return int(text)


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16) if text.isascii() and len(text) < 12 else None
    except ValueError:
        return None


def _speed(text: str) -> float | None:
    try:
        return parse_link_speed(text.encode("utf-8", "backslashreplace"))
    except ParseError:
        return None
