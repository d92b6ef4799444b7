"""Finds the outputs in a pasted text: a file of one, or an issue with prose around several."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from numadoctor.evidence import hwloc, kubelet, lscpu, nccl, numactl, nvidia_smi, rocm_smi
from numadoctor.evidence.pasted import Pasted, Refused
from numadoctor.evidence.text import Line, read_lines

FORMATS = tuple(
    module.FORMAT for module in (nvidia_smi, numactl, lscpu, rocm_smi, hwloc, nccl, kubelet)
)

_DOCUMENTS: dict[str, tuple[str, Callable[[str, int], Pasted]]] = {
    hwloc.ROOT: (hwloc.FORMAT, hwloc.parse),
    nccl.ROOT: (nccl.FORMAT, nccl.parse),
}
_ROOT = re.compile(rf"<({'|'.join(_DOCUMENTS)})(?=[\s>/])")
_PROLOGUE = re.compile(r"<\?xml|<!")


# Nobody pastes more outputs in one text; each may ask for 65536 CPUs.
_MOST = 64


class Refusal(NamedTuple):
    """An output that was recognised and not believed.

    :ivar line: the line that shows why, from 1
    """

    format: str
    line: int
    reason: str


def recognise(data: bytes) -> tuple[tuple[Pasted, ...], tuple[Refusal, ...]]:
    """The outputs in ``data`` in their order, and those of a known format that are refused.

    Both are empty where nothing is of a known format.
    """
    lines = read_lines(data)
    found: list[Pasted] = []
    refused: list[Refusal] = []

    def take(name: str, read: Callable[[], Pasted]) -> None:
        if len(found) + len(refused) == _MOST:
            return
        try:
            found.append(read())
        except Refused as error:
            refused.append(Refusal(name, error.line, error.reason))

    documents = list(_documents(lines))
    for first, last, root in documents:
        name, parse = _DOCUMENTS[root]
        text = _document("\n".join(line.text for line in lines[first:last]), root)
        take(name, lambda p=parse, t=text, n=lines[first].number: p(t, n))  # type: ignore[misc]
    inside = {at for first, last, _ in documents for at in range(first, last)}
    rest = [line for at, line in enumerate(lines) if at not in inside]
    taken: set[int] = set()
    for module in (rocm_smi, nvidia_smi, numactl, lscpu, kubelet):
        # A table of rocm-smi looks like one of nvidia-smi without its title.
        free = [line for line in rest if line.number not in taken]
        for block in module.find(free):
            if module is rocm_smi:
                taken |= {line.number for line in block}
            take(module.FORMAT, lambda m=module, b=block: m.parse(b))  # type: ignore[misc]
    refused.sort(key=lambda refusal: refusal.line)
    return tuple(sorted(found, key=lambda p: p.line)), tuple(refused)


def _documents(lines: Sequence[Line]) -> Iterator[tuple[int, int, str]]:
    """First line, line after the last, and root of each XML document; a cut one goes to the end."""
    at = 0
    while at < len(lines):
        match = _ROOT.search(lines[at].text)
        if not match:
            at += 1
            continue
        first = at
        while first and _is_prologue(lines, first - 1):
            first -= 1
        end = f"</{match[1]}>"
        last = next((n for n in range(at, len(lines)) if end in lines[n].text), len(lines) - 1)
        yield first, last + 1, match[1]
        at = last + 1


def _document(text: str, root: str) -> str:
    """The document without the words of others on its first and last line."""
    start = re.search(rf"<\?xml|<!|<{root}(?=[\s>/])", text)
    end = text.rfind(f"</{root}>")
    return text[start.start() if start else 0 : end + len(root) + 3 if end >= 0 else None]


def _is_prologue(lines: Sequence[Line], at: int) -> bool:
    text = lines[at].text.strip()
    return bool(_PROLOGUE.match(text)) or text.endswith("]>") or "<!ENTITY" in text
