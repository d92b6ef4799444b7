"""YAML (and so JSON) into nodes with places, without ever building what aliases multiply."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from numadoctor.lint.nodes import Mapping, Node, Refused, Sequence, Word

# A manifest has a few thousand nodes and is a dozen levels deep; the bounds keep
# hostile files from filling the memory and the stack.
MOST_NODES = 1_000_000
DEEPEST = 100

# How many entries ``<<`` may copy: the one way in which an alias makes more of itself.
_MOST_MERGED = 100_000

# Tags by which a Compose file says how a value is merged into that of another file.
_TAGS = ("!override", "!reset")

# Where a template's action makes a text that is no YAML: at the head of a line or of a value,
# in a flow collection, or with quotes of its own inside of a quoted value.
_ACTION = re.compile(
    r"""(?m)^[ \t]*(?:-[ \t]+)*(?:[^\s"'#][^"'#\n]*:[ \t]+)?(?:\{\{|\{%|<%)"""
    r"""|[\[,][ \t]{0,40}\{[{%]|"[^"\n]{0,400}\{\{[^}\n]{0,400}"[^}\n]{0,400}\}\}"""
)


class MissingReader(Exception):
    """PyYAML is not installed; the message is for a person."""


def _loader() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingReader(
            "YAML and JSON files need PyYAML: pip install 'numadoctor[lint]'"
        ) from None
    # The parser in C is some ten times as fast; some builds lack it.
    return yaml, getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, file: str) -> Iterator[Node]:
    """The root of each document that is not empty.

    :raises Refused: it is no YAML, or larger or deeper than the bounds
    :raises MissingReader: PyYAML is not installed
    """
    yaml, loader = _loader()
    builder = _Builder(file, text)
    try:
        for event in yaml.parse(text, Loader=loader):
            root = builder.take(type(event).__name__, event)
            if root is not None:
                yield root
    except yaml.YAMLError as error:
        raise _refusal(error, text) from None
    except RecursionError:
        raise Refused(f"more than {DEEPEST} levels deep") from None


def _refusal(error: Any, text: str) -> Refused:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "no YAML"
    if mark is None:
        at = getattr(error, "position", None)
        if not isinstance(at, int):
            return Refused(str(reason))
        before = text.encode()[:at].decode("utf-8", "replace")
        return Refused(str(reason), before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)
    line, column = mark.line + 1, mark.column + 1
    lines = text.split("\n")
    shown = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in shown[: mark.column + 1]:
        return Refused("a tab where YAML takes blanks alone", line, shown.index("\t") + 1)
    return Refused(f"no YAML: {reason}", line, column, _hint(text))


def _hint(text: str) -> str:
    if _ACTION.search(text):
        return "a template: lint what `helm template` prints (numadoctor lint - reads a pipe)"
    return ""


class _Builder:
    """Turns parser events into nodes, one at a time and without recursion."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.count = self.merged = 0
        self.anchors: dict[str, Node] = {}
        # Open collections, innermost last, each with the name that waits for its value and
        # with what its merge keys name: that may still be filled when it is met.
        self.open: list[tuple[Mapping | Sequence, list[Word], list[Node]]] = []
        self.root: Node | None = None

    def take(self, kind: str, event: Any) -> Node | None:
        """Take an event over; the document's root once it ends."""
        if kind == "ScalarEvent":
            style = "" if event.implicit[0] and not event.style else event.style or "'"
            line, column = self._begin(event.start_mark, style)
            self._add(Word(self.file, line, column, event.value, style), event)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            mark = event.start_mark
            made = Mapping if kind == "MappingStartEvent" else Sequence
            node = made(self.file, mark.line + 1, mark.column + 1)
            self._add(node, event)
            if len(self.open) >= DEEPEST:
                raise Refused(f"more than {DEEPEST} levels deep", node.line, node.column)
            self.open.append((node, [], []))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            node, _, named = self.open.pop()
            for source in named:
                self._merge(node, source)
        elif kind == "AliasEvent":
            self._alias(event)
        elif kind == "DocumentStartEvent":
            self.anchors, self.root = {}, None
        elif kind == "DocumentEndEvent":
            root, self.root, self.anchors = self.root, None, {}
            return None if isinstance(root, Word) and root.null else root
        return None

    def _begin(self, mark: Any, style: str) -> tuple[int, int]:
        """Where the text of a scalar begins: for a block in the lines below its sign."""
        if style not in ("|", ">"):
            return mark.line + 1, mark.column + 1
        for number in range(mark.line + 1, len(self.lines)):
            if content := self.lines[number].strip():
                return number + 1, self.lines[number].index(content) + 1
        return mark.line + 1, mark.column + 1

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def _alias(self, event: Any) -> None:
        mark = event.start_mark
        if event.anchor not in self.anchors:
            reason = f'no anchor "{event.anchor[:60]}" stands before its alias'
            raise Refused(reason, mark.line + 1, mark.column + 1)
        self._place(self.anchors[event.anchor], None)

    def _add(self, node: Node, event: Any) -> None:
        self.count += 1
        if self.count > MOST_NODES:
            raise Refused(f"more than {MOST_NODES:,} values", node.line, node.column)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self._place(node, event.tag)

    def _place(self, node: Node, tag: str | None) -> None:
        if not self.open:
            self.root = node
            return
        parent, waiting, named = self.open[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif not waiting:
            # A name may be a collection in YAML; none of our formats has such.
            waiting.append(
                node if isinstance(node, Word) else Word(self.file, node.line, node.column, "")
            )
        else:
            name = waiting.pop()
            self._enter(parent, name, node, named)
            if tag in _TAGS:
                parent.tags[name.text] = tag

    def _enter(self, parent: Mapping, name: Word, node: Node, named: list[Node]) -> None:
        if name.text == "<<" and not name.style:
            named.append(node)
            return
        if name.text in parent.entries:
            parent.repeated.append(name)
        parent.entries[name.text] = (name, node)

    def _merge(self, parent: Node, source: Node) -> None:
        """Enter what ``<<`` names, where the mapping has no such name itself."""
        if isinstance(source, Sequence):
            for item in source.items:
                if not isinstance(item, Sequence):
                    self._merge(parent, item)
        if not isinstance(source, Mapping) or not isinstance(parent, Mapping) or source is parent:
            return
        self.merged += len(source.entries) + 1
        if self.merged > _MOST_MERGED:
            raise Refused("merge keys that multiply what they name", parent.line, parent.column)
        for text, entry in source.entries.items():
            parent.entries.setdefault(text, entry)
