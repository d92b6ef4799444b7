"""``numactl -H`` (``--hardware``), with and without ``--cpu-compress``."""

import re
from collections.abc import Iterator, Sequence

from numadoctor.evidence.pasted import Pasted, PastedNode, Refused, ids
from numadoctor.evidence.text import Line

FORMAT = "numactl -H"

_AVAILABLE = re.compile(r"available: ([0-9]{1,5}) nodes? \(([-0-9,]+)\)")
_CPUS = re.compile(r"node ([0-9]{1,5}) cpus:(.*)")
# Since numactl 2.0.17 ``--cpu-compress`` counts what it lists: 0-15 (16).
_COUNT = re.compile(r"\(([0-9]{1,6})\)\Z")
_SIZE = re.compile(r"node ([0-9]{1,5}) (size|free): (?:([0-9]{1,12}) MB|<not available>)")
_TITLE = re.compile(r"node distances:|No distance information available\.")
_COLUMNS = re.compile(r"node((?:\s+[0-9]{1,5})+)")
_ROW = re.compile(r"([0-9]{1,5}):((?:\s+[0-9]{1,5})+)")
_ANY = (_AVAILABLE, _CPUS, _SIZE, _TITLE, _COLUMNS, _ROW)


def find(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """The outputs in the text, each up to the line that is not of its kind."""
    at = 0
    while at < len(lines):
        text = lines[at].text.strip()
        if not (_AVAILABLE.fullmatch(text) or _CPUS.fullmatch(text)):
            at += 1
            continue
        end = at + 1
        while end < len(lines) and _goes_on(lines[end]):
            end += 1
        yield lines[at:end]
        at = end


def _goes_on(line: Line) -> bool:
    """Whether the line belongs to the output; blank ones do, and figures, which a wrap makes."""
    text = line.text.strip()
    if _AVAILABLE.fullmatch(text):
        return False
    known = any(pattern.fullmatch(text) for pattern in _ANY)
    return known or not text or bool(re.fullmatch(r"[0-9][-0-9,() ]*|MB|node [0-9 ].*", text))


def parse(lines: Sequence[Line]) -> Pasted:
    """The nodes, their CPUs and memory, and the distances.

    :raises Refused: a line is wrapped, nodes or distances are missing, or figures disagree
    """
    reader = _Reader()
    for line in lines:
        if line.text.strip():
            reader.take(line)
    return reader.result(lines)


class _Reader:
    def __init__(self) -> None:
        self.named: tuple[int, ...] | None = None
        self.cpus: dict[int, tuple[int, ...]] = {}
        self.sizes: dict[tuple[int, str], int | None] = {}
        self.columns: tuple[int, ...] | None = None
        self.rows: dict[int, tuple[int, ...]] = {}
        self.no_distances = False

    def take(self, line: Line) -> None:
        text = line.text.strip()
        if match := _AVAILABLE.fullmatch(text):
            self.named = ids(line.number, match[2], "the nodes")
            if len(self.named) != int(match[1]):
                raise Refused(line.number, f"it counts {match[1]} nodes and lists {match[2]}")
        elif match := _CPUS.fullmatch(text):
            self._once(line, int(match[1]) in self.cpus, f"CPUs of node {match[1]}")
            self.cpus[int(match[1])] = _cpus(line, match[2])
        elif match := _SIZE.fullmatch(text):
            key = (int(match[1]), match[2])
            self._once(line, key in self.sizes, f"{match[2]} of node {match[1]}")
            self.sizes[key] = None if match[3] is None else int(match[3]) << 20
        elif _TITLE.fullmatch(text):
            self.no_distances = text.startswith("No")
        elif match := _COLUMNS.fullmatch(text):
            self._once(line, self.columns is not None, "header of the distances")
            self.columns = tuple(map(int, match[1].split()))
        elif match := _ROW.fullmatch(text):
            self._row(line, int(match[1]), tuple(map(int, match[2].split())))
        else:
            raise Refused(line.number, f'"{text[:40]}": the line above is cut or wrapped here')

    def _once(self, line: Line, again: bool, what: str) -> None:
        if again:
            raise Refused(line.number, f"the {what} stands twice: two outputs run together?")

    def _row(self, line: Line, node: int, distances: tuple[int, ...]) -> None:
        if self.columns is None:
            raise Refused(line.number, "distances without a header: the output is cut")
        if len(distances) != len(self.columns):
            raise Refused(
                line.number,
                f"{len(distances)} distances from node {node} to {len(self.columns)} nodes: "
                "the line is cut or wrapped",
            )
        self._once(line, node in self.rows, f"row of node {node}")
        if line.open and node == self.columns[-1] and distances[-1] != 10:
            # What may be cut is the distance of the last node to itself.
            raise Refused(line.number, "the text ends inside this line")
        self.rows[node] = distances

    def result(self, lines: Sequence[Line]) -> Pasted:
        last = next(line for line in reversed(lines) if line.text.strip())
        nodes = self.named or tuple(sorted(self.cpus))
        for node in nodes:
            if node not in self.cpus or not {(node, "size"), (node, "free")} <= set(self.sizes):
                raise Refused(
                    last.number, f"the output ends here, before all of node {node} is told"
                )
        if strange := sorted(set(self.cpus) - set(nodes)):
            raise Refused(lines[0].number, f"node {strange[0]} is told of and not available")
        notes: list[tuple[int, str]] = []
        if self.columns is None and not self.no_distances:
            notes.append((last.number, "the distances are missing: cut"))
        elif self.columns is not None and (
            set(self.rows) != set(self.columns) or len(self.rows) != len(self.columns)
        ):
            raise Refused(last.number, "the table of distances is not whole: cut")
        elif self.columns is not None and set(self.columns) != set(nodes):
            raise Refused(last.number, "the distances are those of other nodes")
        return Pasted(
            FORMAT, lines[0].number, nodes=tuple(map(self._node, nodes)), notes=tuple(notes)
        )

    def _node(self, node: int) -> PastedNode:
        return PastedNode(
            node,
            self.cpus[node],
            self.sizes.get((node, "size")),
            self.sizes.get((node, "free")),
            dict(zip(self.columns or (), self.rows.get(node, ()), strict=bool(self.rows))),
        )


def _cpus(line: Line, text: str) -> tuple[int, ...]:
    listed, counted = text.strip(), None
    if match := _COUNT.search(listed[-8:]):
        listed, counted = listed[: -len(match[0])], int(match[1])
    elif "-" in listed or "," in listed:
        raise Refused(line.number, "a list of CPUs in ranges ends without their number: cut")
    cpus = ids(line.number, listed.replace(", ", ","), "its CPUs")
    if counted is not None and counted != len(cpus):
        raise Refused(line.number, f"it counts {counted} CPUs and lists {len(cpus)}: cut")
    return cpus
