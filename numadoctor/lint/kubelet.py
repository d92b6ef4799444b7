"""The configuration that a kubelet comes to: its file, its drop-ins, and its flags.

Later ones hold: the file of ``--config``, the ``.conf`` files of ``--config-dir`` in the
order of their names, the flags. Drop-ins are merged name by name, lists replaced; a
flag replaces all of its value. Source: Kubernetes, Set Kubelet Parameters Via A
Configuration File; Kubelet Configuration Directory Merging; cmd/kubelet/app/server.go
(kubeletConfigFlagPrecedence).
"""

import re
from collections.abc import Iterable, Iterator

from numadoctor.lint.nodes import Mapping, Node, Refused, Sequence, Word

_PLAIN = {
    "cpu-manager-policy": "cpuManagerPolicy",
    "memory-manager-policy": "memoryManagerPolicy",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
    "reserved-cpus": "reservedSystemCPUs",
}
_PAIRS = {
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
    "eviction-hard": "evictionHard",
}
_RESERVED = "reserved-memory"

_DEEPEST = 100


_KINDS = (
    (Word, "a word", tuple(_PLAIN.values())),
    (Mapping, "a mapping", tuple(_PAIRS.values())),
    (Sequence, "a list", ("reservedMemory",)),
)


def refuse_other_kinds(root: Mapping) -> None:
    """A kubelet does not start with a word where a list or a mapping belongs, nor the other way.

    :raises Refused: what the checks look at is of another kind than the kubelet reads
    """
    for wanted, what, names in _KINDS:
        for name in names:
            _refuse_other(root.get(name), wanted, what, name)
    for name in _PAIRS.values():
        for key, value in root.mapping(name).items():
            _refuse_other(value, Word, "a word", f"{name}.{key.shown}")
    for item in root.sequence("reservedMemory").items:
        _refuse_other(item, Mapping, "a mapping", "reservedMemory")
        if isinstance(item, Mapping):
            _refuse_other(item.get("numaNode"), Word, "a word", "numaNode")
            _refuse_other(item.get("limits"), Mapping, "a mapping", "limits")
            for key, value in item.mapping("limits").items():
                _refuse_other(value, Word, "a word", f"limits.{key.shown}")


def _refuse_other(node: Node | None, wanted: type[Node], what: str, name: str) -> None:
    if node is None or isinstance(node, wanted) or (isinstance(node, Word) and node.null):
        return
    # A whole block may come from a template.
    if not (isinstance(node, Word) and node.open):
        raise Refused(f"{name}: {what} is expected here", node.line, node.column)


def flags(words: Iterable[Word]) -> dict[str, list[Word]]:
    """The flags of a kubelet's command with their values, those given again behind each other."""
    found: dict[str, list[Word]] = {}
    waiting = ""
    for word in words:
        if waiting and not word.text.startswith("--"):
            found.setdefault(waiting, []).append(word)
            waiting = ""
        elif word.text.startswith("--"):
            name, equals, value = word.text[2:].partition("=")
            # The kubelet takes underscores for dashes.
            name = name.replace("_", "-")
            waiting = "" if equals else name
            if equals:
                column = word.column + len(name) + 3
                found.setdefault(name, []).append(
                    Word(word.file, word.line, column, value, word.style or "'")
                )
    return found


def as_configuration(given: dict[str, list[Word]]) -> Mapping | None:
    """What flags say in the words of a KubeletConfiguration; None where nothing of placement."""
    entries: dict[str, tuple[Word, Node]] = {}
    for name, values in given.items():
        at = values[-1]
        node: Node | None = None
        if name in _PLAIN:
            key, node = _PLAIN[name], at
        elif name in _PAIRS:
            key, node = _PAIRS[name], _pairs(values)
        elif name == _RESERVED:
            key, node = "reservedMemory", _reserved(values)
        if node is not None:
            entries[key] = (Word(at.file, at.line, at.column, f"--{name}"), node)
    if not entries:
        return None
    first = next(iter(entries.values()))[0]
    return Mapping(first.file, first.line, first.column, entries)


def _pairs(words: list[Word]) -> Mapping:
    found = Mapping(words[0].file, words[0].line, words[0].column)
    for word in words:
        for start, part in _parts(word.text, ","):
            # `memory.available<100Mi` of --eviction-hard, NAME=VALUE of the others.
            name, sign, value = re.split(r"([=<])", f"{part}=", maxsplit=1)
            value = value[:-1] if sign in part else ""
            at = word.column + start
            entry = Word(word.file, word.line, at + len(name) + 1, value, "'")
            found.entries[name.strip()] = (Word(word.file, word.line, at, name.strip()), entry)
    return found


def _reserved(words: list[Word]) -> Sequence:
    """``NODE:TYPE=VALUE,…``, several with semicolons or given again."""
    found = Sequence(words[0].file, words[0].line, words[0].column)
    for word in words:
        for start, part in _parts(word.text, ";"):
            node, _, rest = part.partition(":")
            at = word.column + start
            after = Word(word.file, word.line, at + len(node) + 1, rest, "'")
            entries: dict[str, tuple[Word, Node]] = {
                "numaNode": (after, Word(word.file, word.line, at, node.strip(), "'")),
                "limits": (after, _pairs([after])),
            }
            found.items.append(Mapping(word.file, word.line, at, entries))
    return found


def _parts(text: str, separator: str) -> Iterator[tuple[int, str]]:
    start = 0
    for part in text.split(separator):
        if part.strip():
            yield start, part
        start += len(part) + 1


def with_drop_in(base: Mapping, over: Mapping, depth: int = 0) -> Mapping:
    """A configuration with a drop-in over it; ``null`` takes a value away."""
    found = Mapping(base.file, base.line, base.column, dict(base.entries), base.repeated)
    for name, (word, value) in over.entries.items():
        earlier = found.entries[name][1] if name in found.entries else None
        if isinstance(value, Word) and value.null:
            found.entries.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(earlier, Mapping) and depth < _DEEPEST:
            found.entries[name] = (word, with_drop_in(earlier, value, depth + 1))
        else:
            found.entries[name] = (word, value)
    return found


def with_flags(base: Mapping, given: Mapping) -> Mapping:
    """A configuration with the flags of ``as_configuration`` over it."""
    entries = {**base.entries, **given.entries}
    return Mapping(base.file, base.line, base.column, entries, base.repeated)
