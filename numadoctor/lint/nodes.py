"""What files consist of, each part with its place: words, and mappings and sequences of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from numadoctor.model import Location, Undecided

# Helm and Jinja actions, shell, compose and Kubernetes references, systemd specifiers.
_OPEN = re.compile(
    r"\{\{|\{%|\$\{|\$\(|(?<!\$)\$[A-Za-z_0-9@*#]|`|(?<![A-Za-z0-9%])%[a-zA-Z](?![A-Za-z])"
)

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "yes", "on", "y", "1"))
_FALSE = frozenset(("false", "no", "off", "n", "0"))


class Refused(Exception):
    """A file, or a part of it, that cannot be read or understood.

    :param reason: what is wrong, for a person, without the place
    :param line: where, counted from 1; None where the whole file is meant
    :param hint: what helps, for a template: that is no fault of the file
    """

    def __init__(
        self, reason: str, line: int | None = None, column: int | None = None, hint: str = ""
    ) -> None:
        # It may quote the file, which may have lines where a message has none.
        reason = " ".join(reason.replace("\\\n", " ").split())
        super().__init__(reason, line, column)
        self.reason, self.line, self.column, self.hint = reason, line, column, hint

    @property
    def template(self) -> bool:
        """Whether it is a file from which another one is made first."""
        return bool(self.hint)


class Unsettled(Undecided):
    """A value that tells nothing where the file is examined: filled in later, or not understood.

    :ivar location: where it stands
    """

    def __init__(self, location: Location, reason: str, hint: str = "") -> None:
        super().__init__(str(location), None, reason, hint)
        self.location = location


@dataclass(frozen=True, slots=True)
class Node:
    """Any part of a file: where it begins, counted from 1 (columns in characters)."""

    file: str
    line: int
    column: int

    @property
    def location(self) -> Location:
        """Its place, for a finding."""
        return Location(self.file, self.line, self.column)


@dataclass(frozen=True, slots=True)
class Word(Node):
    """A value as it is written, without quotes.

    :ivar style: how YAML wrote it: empty for plain, a quote, ``|`` or ``>``
    """

    text: str
    style: str = ""

    @property
    def null(self) -> bool:
        """Whether it stands for no value."""
        return not self.style and self.text in _NULL

    @property
    def open(self) -> bool:
        """Whether a part of it is filled in later: a variable, a template, a specifier."""
        return _OPEN.search(self.text) is not None

    @property
    def shown(self) -> str:
        """The text for a message: on one line, and short."""
        return " ".join(self.text[:200].split())[:60]

    def settled(self) -> str:
        """The text.

        :raises Unsettled: a part of it is filled in later
        """
        if self.open:
            raise Unsettled(
                self.location,
                f'"{self.shown}" is filled in later',
                "render the file first (helm template, docker compose config) and lint the result",
            )
        return self.text

    def truth(self) -> bool | None:
        """As a switch; None for what is no switch.

        :raises Unsettled: it is filled in later
        """
        text = self.settled().strip().lower()
        return True if text in _TRUE else False if text in _FALSE else None


@dataclass(frozen=True, slots=True)
class Sequence(Node):
    """Several nodes in order."""

    items: list[Node] = field(default_factory=list)

    def words(self) -> list[Word]:
        """Those of its items that are words."""
        return [item for item in self.items if isinstance(item, Word)]


@dataclass(frozen=True, slots=True)
class Mapping(Node):
    """Nodes by name; names that stand twice have the last value.

    :ivar entries: name to the name's place and the value
    :ivar repeated: names that stand in it again
    :ivar tags: the local tags of its values, by name: ``!override``, ``!reset``
    """

    entries: dict[str, tuple[Word, Node]] = field(default_factory=dict)
    repeated: list[Word] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)

    def get(self, *path: str) -> Node | None:
        """What stands below these names, one inside the other, or None."""
        node: Node | None = self
        for name in path:
            if not isinstance(node, Mapping) or name not in node.entries:
                return None
            node = node.entries[name][1]
        return node

    def key(self, name: str) -> Word:
        """The place of a name that it has."""
        return self.entries[name][0]

    def word(self, *path: str) -> Word | None:
        """The word below these names; None where there is none, or null."""
        node = self.get(*path)
        return node if isinstance(node, Word) and not node.null else None

    def mapping(self, *path: str) -> "Mapping":
        """The mapping below these names, or an empty one."""
        node = self.get(*path)
        return node if isinstance(node, Mapping) else Mapping(self.file, self.line, self.column)

    def sequence(self, *path: str) -> Sequence:
        """The sequence below these names, or an empty one."""
        node = self.get(*path)
        return node if isinstance(node, Sequence) else Sequence(self.file, self.line, self.column)

    def items(self) -> Iterator[tuple[Word, Node]]:
        """Names and values, in the order of the file."""
        yield from self.entries.values()


def words_of(node: Node | None) -> list[Word]:
    """The words of a sequence, or a lone word as the only one."""
    if isinstance(node, Word):
        return [] if node.null else [node]
    return node.words() if isinstance(node, Sequence) else []
