"""The kubelet's log (``-v=4`` and up): topology hints, which are bit masks of nodes.

A hint is written in three ways: as a number (``"NUMANodeAffinity":242``), as binary digits in
quotes, and as binary digits with the word for *preferred* (``{11110010 true}``). Bit n is node n.

Source: pkg/kubelet/cm/topologymanager of Kubernetes: TopologyHint, and bitmask.String().
"""

import re
from collections.abc import Iterator, Sequence

from numadoctor.evidence.pasted import Pasted, PastedHint, PastedNode
from numadoctor.evidence.text import Line

FORMAT = "kubelet log"

# A kubelet has 64 nodes at most: a hint is one word.
_JSON = re.compile(
    r'\{"NUMANodeAffinity":(?:"([01]{2,64})"|([0-9]{1,20})),"Preferred":(true|false)\}'
)
_PRINTED = re.compile(r"\{([01]{2,64}) (true|false)\}")
_RESOURCE = re.compile(
    r"""["'\[ ]([A-Za-z0-9][\w./-]{0,127})"?:\[\{|(bestHint)=\{|(cpuHints)=\[\{"""
)
_SUBJECTS = {"cpuHints": "cpu", "bestHint": "the pod"}


def find(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """All lines that hold hints: of a log that is one output."""
    found = [line for line in lines if "Hint" in line.text and any(_hints(line))]
    if found:
        yield found


def parse(lines: Sequence[Line]) -> Pasted:
    """Each hint once. What is cut is no hint; none of it is read."""
    hints = {(hint.resource, hint.nodes): hint for line in reversed(lines) for hint in _hints(line)}
    nodes = sorted({node for hint in hints.values() for node in hint.nodes})
    return Pasted(
        FORMAT,
        lines[0].number,
        nodes=tuple(map(PastedNode, nodes)),
        hints=tuple(
            sorted(hints.values(), key=lambda hint: (hint.line, hint.resource, hint.nodes))
        ),
    )


def _hints(line: Line) -> Iterator[PastedHint]:
    places = [(m.end(), next(filter(None, m.groups()))) for m in _RESOURCE.finditer(line.text)]
    for match in (*_JSON.finditer(line.text), *_PRINTED.finditer(line.text)):
        binary, decimal = (match[1], match[2]) if match.re is _JSON else (match[1], None)
        mask = int(binary, 2) if binary else int(decimal or "0")
        nodes = tuple(bit for bit in range(64) if mask >> bit & 1)
        if not nodes or mask >> 64:
            continue
        before = [name for at, name in places if at <= match.start() + 1]
        resource = before[-1] if before else "a container"
        yield PastedHint(
            resource=_SUBJECTS.get(resource, resource),
            mask=binary or decimal or "",
            nodes=nodes,
            preferred=match[match.re.groups] == "true",
            line=line.number,
        )
