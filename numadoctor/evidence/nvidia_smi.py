"""``nvidia-smi topo -m`` (and ``-mp``): how GPUs and NICs are connected, their CPUs and nodes.

The columns are separated by tabs whose number does not follow from the header: the
column after "NUMA Affinity" has one more, and a cell may be empty. So cells are
counted from the left, and what is left over is placed only where that is certain.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from numadoctor.evidence.pasted import Pasted, PastedDevice, Refused, checked_square, ids
from numadoctor.evidence.text import Line, is_fence
from numadoctor.host import parsers
from numadoctor.model import ParseError

FORMAT = "nvidia-smi topo -m"
NVIDIA = 0x10DE

# SOC is what drivers before 375 called SYS.
_OLD_WORDS = {"SOC": "SYS"}
_WORD = r"(?:X|PIX|PXB|PHB|NODE|SYS|SOC|NV[0-9]{1,3})"
_RELATION = re.compile(_WORD)
# A tab at the edge of a terminal has no width: what it parted is one word when copied.
_JOINED = re.compile(rf"{_WORD}+")
_PEER_TO_PEER = {"X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U", "N/A"}

_GPU = re.compile(r"GPU[0-9]{1,4}")
# mlx5_0, mlx5_bond_0, rocep4s0f1: a name of an RDMA device ends in a number, or has one.
_DEVICE = re.compile(
    r"GPU[0-9]{1,4}|NIC[0-9]{1,4}|(?=[a-z_.-]{1,62}[0-9])[a-z][a-zA-Z0-9_.-]{1,63}"
)
_LABELS = {"CPU Affinity": "cpus", "NUMA Affinity": "nodes", "GPU NUMA ID": "memory"}
_ITEM = re.compile(r"CPU +Affinity|NUMA +Affinity|GPU +NUMA +ID|\S+")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,4})\s*:\s*([\w.-]{1,64})\s*")
_PART_ONLY = re.compile(r"\b(?:only displaying|displaying only)\b", re.IGNORECASE)

_ADVICE = "copy it again from a wide terminal, or from `nvidia-smi topo -m > FILE`"


class _Item(NamedTuple):
    text: str
    start: int


class _Header(NamedTuple):
    """The header.

    ``edge`` is where a terminal may have cut all lines, unseen: no line goes further,
    nor as far as another label would stand.
    """

    line: Line
    devices: tuple[_Item, ...]
    labels: tuple[_Item, ...]
    edge: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(item.text for item in self.devices)


class _Row(NamedTuple):
    line: Line
    relations: tuple[str, ...]
    affinity: Mapping[str, str | None]
    doubtful: bool


def find(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """The tables in the text, each from its header to the line before the next header.

    Tables of ``topo -p2p`` have the same header and other words: they are left out.
    """
    heads = [at for at in range(len(lines)) if _is_header(lines, at)]
    for at, end in zip(heads, [*heads[1:], len(lines)], strict=False):
        if not _is_peer_to_peer(lines[at:end]):
            before = [line for line in lines[max(0, at - 3) : at] if _PART_ONLY.search(line.text)]
            yield [*before, *lines[at:end]]


def _is_header(lines: Sequence[Line], at: int) -> bool:
    words = lines[at].words
    if not words or not _GPU.fullmatch(words[0]):
        return False
    if len(words) > 1:
        # A row has a word of the table, or of another one, after its name.
        return words[1] == "CPU" or bool(_DEVICE.fullmatch(words[1]))
    after = (lines[number].words for number in range(at + 1, min(at + 4, len(lines))))
    following = next(filter(None, after), [])
    return len(following) > 1 and following[:2] == [words[0], "X"]


def _is_peer_to_peer(lines: Sequence[Line]) -> bool:
    rows = [line.words[1:] for line in lines[1:] if line.words and _GPU.fullmatch(line.words[0])]
    cells = {cell for row in rows for cell in row}
    return bool(cells) and cells <= _PEER_TO_PEER and bool(cells - {"X", "N/A"})


def parse(lines: Sequence[Line]) -> Pasted:
    """The table that begins with the first header in ``lines``.

    :raises Refused: it is wrapped or cut, or its cells contradict each other
    """
    at = next(number for number in range(len(lines)) if _is_header(lines, number))
    header = _header(lines[at], lines[at + 1 :])
    rows = dict(_rows(header, lines[at + 1 :]))
    notes = [
        (line.number, f"the program says that it does not tell all: {line.text.strip()}")
        for line in lines[:at]
        if _PART_ONLY.search(line.text)
    ]
    _refuse_missing(header, rows)
    names = header.names
    relations = {
        (name, other): cell
        for name, row in rows.items()
        for other, cell in zip(names, row.relations, strict=True)
    }
    checked_square(header.line.number, names, relations, "X")
    if left_out := [name for name in names if name not in rows]:
        notes.append((header.line.number, f"the rows of {', '.join(left_out)} are left out"))
    notes += [
        (row.line.number, "cells are empty and which ones cannot be told: taken as unknown")
        for row in rows.values()
        if row.doubtful
    ]
    legend = _legend(lines[at + 1 :])
    return Pasted(
        format=FORMAT,
        line=header.line.number,
        devices=tuple(_device(name, rows.get(name), header.line, legend) for name in names),
        relations={pair: cell for pair, cell in relations.items() if pair[0] != pair[1]},
        notes=tuple(notes),
    )


def _header(line: Line, below: Sequence[Line]) -> _Header:
    text = line.text.expandtabs(8)
    items = [_Item(" ".join(m[0].split()), m.start()) for m in _ITEM.finditer(text)]
    labels = [item for item in items if item.text in _LABELS]
    devices = items[: len(items) - len(labels)]
    if items[len(devices) :] != labels:
        raise Refused(line.number, f"the columns are out of order; {_ADVICE}")
    for item in devices:
        if not _DEVICE.fullmatch(item.text):
            raise Refused(
                line.number,
                f'"{item.text[:40]}" is neither a device nor a column: '
                f"the header is cut or wrapped; {_ADVICE}",
            )
    for some in (devices, labels):
        if len({item.text for item in some}) != len(some):
            raise Refused(line.number, f"a column stands twice: the header is cut; {_ADVICE}")
    names = {item.text for item in devices}
    rows = [
        row.text.expandtabs(8).rstrip() for row in below if row.words[:1] and row.words[0] in names
    ]
    end = len(text.rstrip())
    longest = max([end, *map(len, rows)])
    # A further label would have stood at the next tab stop.
    edge = longest if longest < (end // 8 + 1) * 8 else sys.maxsize
    return _Header(line, tuple(devices), tuple(labels), edge)


def _rows(header: _Header, lines: Sequence[Line]) -> Iterator[tuple[str, _Row]]:
    names = set(header.names)
    seen: set[str] = set()
    for line in lines:
        words = line.words
        if not words:
            continue
        if words[0] not in names or is_fence(line):
            _refuse_continuation(header, line, bool(seen))
            return
        if words[0] in seen:
            raise Refused(line.number, f"a second row of {words[0]}: two tables run together?")
        seen.add(words[0])
        yield words[0], _row(header, line)


def _refuse_continuation(header: _Header, line: Line, has_rows: bool) -> None:
    """Refuse where ``line``, which is no row of the table, belongs to it all the same."""
    first = line.words[0]
    if not has_rows:
        raise Refused(
            line.number,
            f"the header of line {header.line.number} is followed by no row of its devices: "
            f"it is wrapped or cut; {_ADVICE}",
        )
    part = _JOINED.fullmatch(first) or first in ("N/A", "/A", "A", "CPU", "NUMA", "Affinity", "ID")
    if part or re.fullmatch(r"[-,0-9]+", first):
        raise Refused(line.number, f"the row above goes on here: it is wrapped; {_ADVICE}")
    if _DEVICE.fullmatch(first) and len(line.words) > 1 and _JOINED.fullmatch(line.words[1]):
        raise Refused(
            line.number, f"{first} has a row and no column: the header is cut or wrapped; {_ADVICE}"
        )


def _refuse_missing(header: _Header, rows: Mapping[str, _Row]) -> None:
    missing = [name for name in header.names if name not in rows]
    # Many paste ``nvidia-smi topo -m | grep GPU``: whole as far as it goes.
    if any(_GPU.fullmatch(name) for name in missing) or (
        missing and any(not _GPU.fullmatch(name) for name in rows)
    ):
        last = max((row.line.number for row in rows.values()), default=header.line.number)
        raise Refused(last, f"the table ends here, without the rows of {', '.join(missing[:8])}")


def _row(header: _Header, line: Line) -> _Row:
    text = line.text.expandtabs(8)
    items = [_Item(m[0], m.start()) for m in re.finditer(r"\S+", text)]
    name, cells = items[0].text, _parted(items[1:])
    count = len(header.devices)
    relations, rest = cells[:count], cells[count:]
    _refuse_row(header, line, name, relations, rest)
    placed = _placed(header, relations, rest)
    values = placed or {label.text: None for label in header.labels}
    told = [label for label, value in values.items() if value]
    at_edge = len(text.rstrip()) >= header.edge
    if (line.open or at_edge) and told and values[told[-1]] != "N/A":
        # What follows was cut: the last figure may be the start of a longer one.
        values[told[-1]] = None
    return _Row(
        line,
        tuple(_OLD_WORDS.get(cell.text, cell.text) for cell in relations),
        values,
        doubtful=placed is None,
    )


def _refuse_row(
    header: _Header,
    line: Line,
    name: str,
    relations: Sequence[_Item],
    rest: Sequence[_Item],
) -> None:
    count = len(header.devices)
    for number, cell in enumerate(relations):
        if not _RELATION.fullmatch(cell.text):
            raise Refused(
                line.number,
                f'"{cell.text[:40]}" of {name} with {header.names[number]} is not a connection: '
                f"the line is cut, wrapped or shifted; {_ADVICE}",
            )
    if len(relations) < count:
        raise Refused(
            line.number,
            f"{name} has {len(relations)} cells for {count} devices: "
            f"the line is cut or wrapped; {_ADVICE}",
        )
    if len(rest) > len(header.labels):
        raise Refused(
            line.number,
            f"{name} has {count + len(rest)} cells for {count + len(header.labels)} columns: "
            f"the header is cut or wrapped; {_ADVICE}",
        )
    if line.open and not rest and relations[-1].text.startswith("NV") and name != header.names[-1]:
        raise Refused(line.number, "the text ends here, perhaps inside a word")


def _parted(items: Sequence[_Item]) -> list[_Item]:
    """The cells, with those parted that lost the tab between them (``NODENODE``)."""
    cells = []
    for item in items:
        if _JOINED.fullmatch(item.text):
            parts = _RELATION.finditer(item.text)
            cells += [_Item(part[0], item.start + part.start()) for part in parts]
        else:
            cells.append(item)
    return cells


def _placed(
    header: _Header, relations: Sequence[_Item], rest: Sequence[_Item]
) -> dict[str, str | None] | None:
    """What stands under each label; None where cells are empty and it cannot be told which."""
    labels = [label.text for label in header.labels]
    cells: list[str | None] = [item.text for item in rest]
    if not rest:
        return dict.fromkeys(labels)
    if labels[0] != "CPU Affinity" or not _aligned(header, relations):
        whole = len(labels) == len(_LABELS) or _are_cpus(rest[0].text)
        return dict(zip(labels, cells, strict=True)) if len(rest) == len(labels) and whole else None
    after = rest[0].start - header.labels[0].start
    if after == 0 and len(rest) == len(labels):
        return dict(zip(labels, cells, strict=True))
    if after > 0 and len(rest) == len(labels) - 1:
        return dict(zip(labels, [None, *cells], strict=True))
    if after == 0 and len(rest) == 1:
        return dict(zip(labels, [*cells, *[None] * (len(labels) - 1)], strict=True))
    return None


def _are_cpus(text: str) -> bool:
    """Whether a list is one of CPUs: of fewer than four numbers it may be one of nodes.

    The header may have been cut behind a label whose column is not the last.
    """
    try:
        return len(parsers.parse_list(text.encode())) >= 4
    except ParseError:
        return False


def _aligned(header: _Header, relations: Sequence[_Item]) -> bool:
    """Whether each cell stands under its device: then the place of the next one means something.

    The X of the diagonal has a blank before it. After a name of more than seven
    characters the number of tabs depends on the driver.
    """
    return len(header.devices[-1].text) < 8 and all(
        cell.start - device.start == (cell.text == "X") or cell.start == device.start
        for device, cell in zip(header.devices, relations, strict=True)
    )


def _legend(lines: Sequence[Line]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if (match := _LEGEND.fullmatch(line.text)) and not line.open:
            found.setdefault(match[1], match[2])
    return found


def _device(name: str, row: _Row | None, line: Line, legend: Mapping[str, str]) -> PastedDevice:
    gpu = bool(_GPU.fullmatch(name))
    number = row.line.number if row else line.number
    cells = row.affinity if row else {}

    def listed(label: str) -> tuple[int, ...] | None:
        text = cells.get(label)
        return None if text in (None, "N/A") else ids(number, text or "", f"{label} of {name}")

    own = () if gpu or name.startswith("NIC") else (name,)
    try:
        return PastedDevice(
            name=name,
            kind="gpu" if gpu else "nic",
            line=number,
            cpus=listed("CPU Affinity"),
            nodes=listed("NUMA Affinity"),
            memory_nodes=listed("GPU NUMA ID") or (),
            names=(legend[name],) if name in legend else own,
            vendor=NVIDIA if gpu else 0,
        )
    except Refused as error:
        raise Refused(error.line, f"{error.reason} {_ADVICE}") from None
    except ParseError as error:
        raise Refused(number, str(error)) from None
