"""``lscpu``: the CPUs of each node, and the CPUs that are online."""

import re
from collections.abc import Iterator, Sequence

from numadoctor.evidence.pasted import Pasted, PastedNode, Refused, ids
from numadoctor.evidence.text import Line

FORMAT = "lscpu"

_NODES = re.compile(r"NUMA node\(s\):\s*([0-9]{1,5})")
_NODE = re.compile(r"NUMA node([0-9]{1,5}) CPU\(s\):\s*(.*)")
_ONLINE = re.compile(r"On-line CPU\(s\) list:\s*(.*)")
_OURS = (_NODES, _NODE, _ONLINE)


def find(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """The lines of each output that tell of nodes; those of other things are left out.

    ``lscpu | grep NUMA`` will do. An output begins where a line comes again.
    """
    found: list[Line] = []
    seen: set[str] = set()
    for line in lines:
        key = line.text.partition(":")[0].strip()
        if not any(pattern.fullmatch(line.text.strip()) for pattern in _OURS):
            continue
        if key in seen:
            yield from [found] if _tells(found) else []
            found, seen = [], set()
        found.append(line)
        seen.add(key)
    if _tells(found):
        yield found


def _tells(lines: Sequence[Line]) -> bool:
    return any(line.text.strip().startswith("NUMA node") for line in lines)


def parse(lines: Sequence[Line]) -> Pasted:
    """The nodes with their CPUs.

    :raises Refused: there are not as many nodes as it counts, or a list is cut
    """
    count: int | None = None
    online: tuple[int, ...] | None = None
    nodes: dict[int, PastedNode] = {}
    notes: list[tuple[int, str]] = []
    for line in lines:
        text = line.text.strip()
        if match := _NODES.fullmatch(text):
            count = None if line.open else int(match[1])
        elif match := _ONLINE.fullmatch(text):
            online = None if line.open else ids(line.number, match[1], "the online CPUs")
        elif match := _NODE.fullmatch(text):
            node = int(match[1])
            if line.open:
                notes.append((line.number, f"the text ends here: CPUs of node {node} unknown"))
            cpus = None if line.open else ids(line.number, match[2], f"CPUs of node {node}")
            nodes[node] = PastedNode(node, cpus)
    if count is not None and count != len(nodes):
        raise Refused(
            lines[-1].number, f"it counts {count} nodes and lists {len(nodes)}: the output is cut"
        )
    _refuse_shared(lines, nodes)
    return Pasted(
        FORMAT,
        lines[0].number,
        nodes=tuple(nodes[node] for node in sorted(nodes)),
        online=online,
        notes=tuple(notes),
    )


def _refuse_shared(lines: Sequence[Line], nodes: dict[int, PastedNode]) -> None:
    """A CPU in two lists comes from a cut (``1`` for ``16``), unless all lists are the same."""
    lists = [node.cpus for node in nodes.values() if node.cpus]
    if len(set(lists)) > 1 and sum(map(len, lists)) != len({cpu for cpus in lists for cpu in cpus}):
        raise Refused(lines[-1].number, "a CPU is on two nodes: a list is cut")
