"""How Compose lays one file, or one service, over another (Compose Specification, Merge).

Mappings are merged name by name and sequences appended; commands are replaced,
variables and whatever may be written as ``NAME=value`` are merged by name.
``!override`` replaces, ``!reset`` takes away. Nothing is changed in place, and each
word keeps the file and the place that it came from.
"""

from collections.abc import Callable

from numadoctor.lint.nodes import Mapping, Node, Sequence, Word, words_of

# Of a service: values that replace the earlier ones, whatever they are.
_REPLACED = frozenset(("command", "entrypoint", "extends"))

# Of a service: values that are mappings, or sequences of ``NAME=value``.
_BY_NAME = frozenset(("environment", "labels", "annotations", "sysctls", "extra_hosts"))

# Of a service: sequences whose entries are known by where they are mounted.
_BY_TARGET = frozenset(("tmpfs", "devices", "volumes"))

_DEEPEST = 100


def lay_file(base: Mapping, over: Mapping) -> Mapping:
    """A Compose file with another one over it."""
    found = _mappings(base, over, 0)
    ours, theirs = base.get("services"), over.get("services")
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        services = _copy(ours, theirs)
        for name, (word, service) in theirs.entries.items():
            _enter(services, name, word, service, theirs.tags.get(name), lay_service)
        found.entries["services"] = (base.key("services"), services)
    return found


def lay_service(base: Node, over: Node) -> Node:
    """A service with another one over it: an override file's, or the one that extends it."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return base if isinstance(over, Word) and over.null else over
    found = _copy(base, over)
    for name, (word, value) in over.entries.items():
        tag = over.tags.get(name)
        if name in _REPLACED:
            tag = tag or "!override"
        if name in _BY_NAME:
            _enter(found, name, word, value, tag, _by_name)
        elif name in _BY_TARGET:
            _enter(found, name, word, value, tag, _by_target)
        elif name == "ulimits":
            _enter(found, name, word, value, tag, _limits)
        else:
            _enter(found, name, word, value, tag, _values)
    return found


def _copy(base: Mapping, over: Mapping) -> Mapping:
    known = {word.location for word in base.repeated}
    again = [*base.repeated, *(word for word in over.repeated if word.location not in known)]
    return Mapping(over.file, over.line, over.column, dict(base.entries), again)


def _enter(
    found: Mapping, name: str, word: Word, value: Node, tag: str | None,
    lay: Callable[[Node, Node], Node],
) -> None:  # fmt: skip
    if tag == "!reset":
        found.entries.pop(name, None)
    elif tag == "!override" or name not in found.entries:
        found.entries[name] = (word, value)
    else:
        found.entries[name] = (word, lay(found.entries[name][1], value))


def _mappings(base: Mapping, over: Mapping, depth: int) -> Mapping:
    found = _copy(base, over)
    for name, (word, value) in over.entries.items():

        def lay(one: Node, other: Node) -> Node:
            return _values(one, other, depth + 1)

        _enter(found, name, word, value, over.tags.get(name), lay)
    return found


def _values(base: Node, over: Node, depth: int = 0) -> Node:
    if isinstance(base, Mapping) and isinstance(over, Mapping) and depth < _DEEPEST:
        return _mappings(base, over, depth)
    if isinstance(base, Sequence) and isinstance(over, Sequence):
        return Sequence(over.file, over.line, over.column, [*base.items, *over.items])
    return over


def _by_name(base: Node, over: Node) -> Node:
    """Both as ``NAME=value`` entries; a later one of a name takes the place of the earlier."""
    found: dict[str, Node] = {}
    for node in (base, over):
        for word in _assignments(node):
            found[word.text.partition("=")[0]] = word
    return Sequence(over.file, over.line, over.column, list(found.values()))


def _assignments(node: Node) -> list[Word]:
    if not isinstance(node, Mapping):
        return words_of(node)
    return [
        Word(value.file, value.line, value.column, f"{name.text}={value.text}", value.style or "'")
        for name, value in node.items()
        if isinstance(value, Word)
    ]


def _by_target(base: Node, over: Node) -> Node:
    """Both in a row; an entry whose target an earlier one has takes its place."""
    found: dict[str, Node] = {}
    for node in (base, over):
        items = node.items if isinstance(node, Sequence) else [node]
        for number, item in enumerate(items):
            found[_target(item) or f"{id(node)} {number}"] = item
    return Sequence(over.file, over.line, over.column, list(found.values()))


def _target(item: Node) -> str:
    if isinstance(item, Mapping):
        target = item.word("target")
        return target.text if target else ""
    if not isinstance(item, Word):
        return ""
    # SOURCE:TARGET[:MODE] of volumes and devices, TARGET[:OPTIONS] of tmpfs.
    parts = item.text.split(":")
    return parts[1] if len(parts) > 1 and parts[1].startswith("/") else parts[0]


def _limits(base: Node, over: Node) -> Node:
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    found = _copy(base, over)
    found.entries.update(over.entries)
    return found
