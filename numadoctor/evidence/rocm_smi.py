"""``rocm-smi --showtopo`` (and ``--showtoponuma``): how GPUs are connected, and their nodes."""

import re
from collections.abc import Iterator, Mapping, Sequence

from numadoctor.evidence.pasted import Pasted, PastedDevice, Refused, checked_square
from numadoctor.evidence.text import Line, is_fence

FORMAT = "rocm-smi --showtopo"
AMD = 0x1002

_TITLE = re.compile(
    r"=*\s*(Weight between two GPUs|Hops between two GPUs|Link Type between two GPUs|Numa Nodes)"
    r"\s*=*"
)
_END = re.compile(r"End of ROCm SMI Log")
_GPU = re.compile(r"GPU[0-9]{1,4}")
_NUMA = re.compile(
    r"GPU ?\[?([0-9]{1,4})\]?\s*:\s*\(Topology\) Numa (Node|Affinity): *(-?[0-9]{1,5}|N/A)"
)
_CELLS = {
    "Weight between two GPUs": re.compile(r"[0-9]{1,6}|N/A"),
    "Hops between two GPUs": re.compile(r"[0-9]{1,3}|N/A"),
    "Link Type between two GPUs": re.compile(r"0|PCIE|XGMI|N/A|UNKNOWN"),
}
_ADVICE = "copy it again from a wide terminal, or from `rocm-smi --showtopo > FILE`"


def find(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """The outputs in the text: from a first section to its end, or to where it comes again."""
    start: int | None = None
    seen: set[str] = set()
    for at, line in enumerate(lines):
        text = line.text.strip()
        title = _TITLE.fullmatch(text)
        again = bool(title and title[1] in seen)
        if start is not None and (again or is_fence(line) or _END.search(text)):
            yield lines[start:at]
            start, seen = None, set()
        if title:
            seen.add(title[1])
        if start is None and (title or _NUMA.fullmatch(text)):
            start = at
    if start is not None:
        yield lines[start:]


def parse(lines: Sequence[Line]) -> Pasted:
    """The tables of weights, hops and links, and the node of each GPU.

    :raises Refused: a table is wrapped or cut, or its cells contradict each other
    """
    tables: dict[str, dict[tuple[str, str], str]] = {}
    numa: dict[str, dict[str, str]] = {}
    where: dict[str, int] = {}
    title = ""
    body: list[Line] = []
    for line in [*lines, Line(lines[-1].number, "")]:
        text = line.text.strip()
        if match := _NUMA.fullmatch(text):
            name = f"GPU{int(match[1])}"
            where.setdefault(name, line.number)
            # A figure at the very end of the text may be the start of a longer one.
            value = "N/A" if line.open else match[3]
            if numa.setdefault(name, {}).setdefault(match[2], value) != value:
                raise Refused(line.number, f"{name} stands twice: two outputs run together?")
            continue
        if title and body and (not text or text.startswith("=")):
            tables[title], title, body = _table(title, body), "", []
        if found := _TITLE.fullmatch(text):
            title = found[1] if found[1] in _CELLS else ""
        elif title and text:
            body.append(line)
    return _pasted(lines, tables, numa, where)


def _table(title: str, lines: Sequence[Line]) -> dict[tuple[str, str], str]:
    header, *rows = lines
    names = header.words
    if not all(map(_GPU.fullmatch, names)) or len(set(names)) != len(names):
        raise Refused(header.number, f"the header of the {title} is cut or wrapped; {_ADVICE}")
    cells: dict[tuple[str, str], str] = {}
    for line in rows:
        name, *row = line.words
        if name not in names or (name, name) in cells:
            raise Refused(line.number, f"the {title}: no row of its GPUs: wrapped; {_ADVICE}")
        if len(row) != len(names) or not all(map(_CELLS[title].fullmatch, row)):
            raise Refused(
                line.number, f"the {title}: the row of {name} is cut or wrapped; {_ADVICE}"
            )
        cells |= {(name, other): cell for other, cell in zip(names, row, strict=True)}
    if len(cells) != len(names) ** 2:
        raise Refused(lines[-1].number, f"the {title} ends here, with rows missing; {_ADVICE}")
    checked_square(header.number, names, cells, "0")
    return cells


def _pasted(
    lines: Sequence[Line],
    tables: Mapping[str, dict[tuple[str, str], str]],
    numa: Mapping[str, dict[str, str]],
    where: Mapping[str, int],
) -> Pasted:
    named = [{one for one, _ in cells} for cells in tables.values() if cells]
    if any(names != named[0] for names in named):
        raise Refused(lines[0].number, "its tables are of different GPUs: cut")
    names = named[0] if named else set(numa)
    if numa and (set(numa) != names or any(len(told) < 2 for told in numa.values())):
        raise Refused(lines[-1].number, "the nodes of some GPUs are missing: cut")
    links = tables.get("Link Type between two GPUs", {})
    told = {"PCIE", "XGMI"}
    return Pasted(
        FORMAT,
        lines[0].number,
        devices=tuple(
            _device(name, numa.get(name, {}), where.get(name, lines[0].number))
            for name in sorted(names, key=lambda name: int(name[3:]))
        ),
        relations={pair: link for pair, link in links.items() if link in told},
    )


def _device(name: str, numa: Mapping[str, str], line: int) -> PastedDevice:
    # "Numa Node" is what the kernel says, "Numa Affinity" the nearest node by its CPUs.
    node = next((int(v) for k in ("Node", "Affinity") if (v := numa.get(k, "N/A")) != "N/A"), -1)
    return PastedDevice(name, "gpu", line, nodes=None if node < 0 else (node,), vendor=AMD)
