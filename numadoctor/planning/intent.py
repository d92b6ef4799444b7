"""A plan from its document: what each word of it means, and what is wrong where."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

from numadoctor.host import parsers
from numadoctor.lint.nodes import Mapping, Node, Sequence, Word
from numadoctor.model import ParseError
from numadoctor.model.plan import Instance, Plan, PoolBacking, PoolPolicy
from numadoctor.model.units import parse_amount
from numadoctor.planning.badplan import BadPlan
from numadoctor.planning.documents import nodes_of, place_of, read_document

T = TypeVar("T")

MOST_INSTANCES = 256
MOST_GPUS = 1024

MOST_IDS = 1 << 16
"""CPUs and nodes of all instances together: Linux knows at most 8192 CPUs and 1024 nodes, and
CPUs belong to one instance."""

# What the command writes beside the plan itself; and the version that it has.
_BESIDE = frozenset(
    ("schema_version", "tool_version", "host", "fits", "nodes", "reserved_cpus", "huge_pages",
     "proven", "compared", "remarks", "prepare", "refusal")
)  # fmt: skip
_BESIDE_INSTANCE = frozenset(("why", "given_up", "assumed", "gpu_details", "commands"))

_SAME = {
    "weighted_interleave": "weighted-interleave", "default": "local", "first-touch": "local",
    "localalloc": "local", "membind": "bind", "prefer": "preferred", "shm": "posix",
    "shmem": "posix", "anonymous": "private", "anon": "private", "hugetlbfs": "hugetlb",
}  # fmt: skip


def read_plan(file: str) -> Plan:
    """The plan in ``file``; ``-`` is standard input.

    :raises BadPlan: it cannot be used; the message names file, place and reason
    """
    return _plan(read_document(file), "standard input" if file == "-" else file)


def plan_of(data: Any, source: str = "plan") -> Plan:
    """The plan that JSON data holds: what ``plan_data`` made, or ``plan -o json`` wrote.

    :raises BadPlan: it is none
    """
    return _plan(nodes_of(data, source), source)


def plan_data(plan: Plan) -> dict[str, Any]:
    """The plan as JSON data, for a recording; ``plan_of`` takes it back."""
    return {"source": plan.source, "instances": [one.data for one in plan.instances]}


def _plan(root: Node, file: str) -> Plan:
    reader = _Reader(file)
    top = reader.mapping(root, "")
    known = {*_BESIDE, *_READERS, "version", "source", "instances"}
    reader.names(top, "", known)
    refused = top.word("fits")
    if refused and refused.text.lower() == "false":
        reader.wrong(refused, "fits", "the plan says that it does not fit: there is none to expect")
    version = top.word("schema_version") or top.word("version")
    if version and version.text != "1":
        reader.wrong(version, "version", "plans of version 1 are understood")
    if "instances" not in top.entries:
        reader.wrong(top, "", "it has no instances")
    items = reader.items(top.entries["instances"][1], "instances", MOST_INSTANCES)
    if not items:
        reader.wrong(top.key("instances"), "instances", "there is none")
    # What stands beside the instances holds for each that does not say otherwise.
    common = {name: value for name, value in _common(reader, top).items() if value is not None}
    instances = []
    for at, item in enumerate(items):
        place = f"instances[{at}]"
        instances.append(reader.instance(reader.mapping(item, place), place, at, common))
    names = [instance.name for instance in instances]
    for at, name in enumerate(names):
        if name in names[:at]:
            reader.wrong(
                items[at], f"instances[{at}].name", f'"{name[:60]}" is the name of another'
            )
    source = top.word("source")
    return Plan(tuple(instances), source.text if source else file)


def _common(reader: "_Reader", top: Mapping) -> dict[str, Any]:
    # ``nodes`` is the budget of nodes in what the command writes.
    return {
        name: read(reader, top.entries[name][1], name)
        for name, read in _READERS.items()
        if name in top.entries
        and name not in ("name", "match", "gpus", "cpus", "shares")
        and not (name == "nodes" and reader.is_budget(top.entries[name][1]))
    }


class _Reader:
    """Takes the nodes of one file apart."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.ids_read = 0

    def wrong(self, node: Node, place: str, reason: str) -> NoReturn:
        where = ", ".join(part for part in (place_of(node.line, node.column), place) if part)
        raise BadPlan(self.file, where, reason)

    def mapping(self, node: Node, place: str) -> Mapping:
        if not isinstance(node, Mapping):
            self.wrong(node, place, f"names and values are expected, not {_shown(node)}")
        if node.repeated:
            again = node.repeated[0]
            self.wrong(again, place, f'"{again.text[:60]}" stands twice')
        return node

    def names(self, node: Mapping, place: str, known: set[str]) -> None:
        for name in node.entries:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f'; did you mean "{near[0]}"?' if near else ""
                self.wrong(node.key(name), place, f'"{name[:60]}" is no word of a plan{hint}')

    def instance(self, node: Mapping, place: str, at: int, common: dict[str, Any]) -> Instance:
        self.names(node, place, {*_READERS, *_BESIDE_INSTANCE})
        found = {
            name: read(self, node.entries[name][1], f"{place}.{name}")
            for name, read in _READERS.items()
            if name in node.entries
        }
        values = {**common, **{name: value for name, value in found.items() if value is not None}}
        values.setdefault("name", f"instance-{at}")
        instance = Instance(**values)
        if "shares" in values and "shares" in node.entries:
            self._agree(instance, node.entries["shares"][1], f"{place}.shares")
        return instance

    def _agree(self, instance: Instance, node: Node, place: str) -> None:
        total, unit = sum(instance.shares.values()), instance.page_size or 1
        # A pool of huge pages ends in a page that it does not fill.
        if instance.pool_size is not None and not 0 <= total - instance.pool_size < unit:
            reason = f"they add up to {total}, and pool_size is {instance.pool_size}"
            self.wrong(node, place, reason)
        policy = instance.policy
        held = policy is not None and (policy.is_strict or policy.spreads)
        if held and instance.nodes is not None and not set(instance.shares) <= set(instance.nodes):
            self.wrong(node, place, "they name nodes that are not in nodes")

    def items(self, node: Node, place: str, most: int) -> list[Node]:
        if not isinstance(node, Sequence):
            self.wrong(node, place, f"a list is expected, not {_shown(node)}")
        if len(node.items) > most:
            self.wrong(node, place, f"{len(node.items)} of them: at most {most} make sense")
        return node.items

    def is_budget(self, node: Node) -> bool:
        return isinstance(node, Sequence) and any(isinstance(i, Mapping) for i in node.items)

    def text(self, node: Node, place: str) -> str | None:
        if not isinstance(node, Word):
            self.wrong(node, place, f"a word is expected, not {_shown(node)}")
        if node.null:
            return None
        if len(node.text) > 4096:
            self.wrong(node, place, "more than 4,096 characters")
        return node.text

    def amount(self, node: Node, place: str) -> int | None:
        return self.parsed(node, place, parse_amount)

    def page_size(self, node: Node, place: str) -> int | None:
        size = self.amount(node, place)
        if size is not None and (size < 4096 or size & (size - 1)):
            self.wrong(node, place, "pages have a power of two of bytes, 4 KiB at least")
        return size

    def policy(self, node: Node, place: str) -> PoolPolicy | None:
        return self.choice(node, place, PoolPolicy)

    def backing(self, node: Node, place: str) -> PoolBacking | None:
        return self.choice(node, place, PoolBacking)

    def choice(self, node: Node, place: str, kind: Callable[[str], T]) -> T | None:
        text = self.text(node, place)
        if text is None:
            return None
        word = text.strip().lower()
        try:
            return kind(_SAME.get(word, word))
        except ValueError:
            words = ", ".join(member.value for member in kind)  # type: ignore[attr-defined]
            self.wrong(node, place, f'"{text[:60]}" is not one of {words}')

    def ids(self, node: Node, place: str) -> tuple[int, ...] | None:
        """``0-3,8`` as text, or a list of such."""
        words = node.items if isinstance(node, Sequence) else [node]
        found: set[int] = set()
        for word in words:
            text = self.text(word, place)
            if text is None:
                if isinstance(node, Word):
                    return None
                self.wrong(word, place, "an id is missing")
            found.update(self.parsed(word, place, lambda t: parsers.parse_list(t.encode())) or ())
        # A line names 65,000 CPUs, and a plan has room for 100,000 such lines.
        self.ids_read += len(found)
        if self.ids_read > MOST_IDS:
            self.wrong(node, place, f"more than {MOST_IDS:,} ids in one plan")
        return tuple(sorted(found))

    def words(self, node: Node, place: str) -> tuple[str, ...] | None:
        """A list of words, or one text with commas between them."""
        if isinstance(node, Word):
            text = self.text(node, place)
            return None if text is None else tuple(filter(None, re.split(r"[,\s]+", text)))
        found: list[str] = []
        for at, item in enumerate(self.items(node, place, MOST_GPUS)):
            # What the command writes has an address and more for each.
            if isinstance(item, Mapping) and item.word("address"):
                item = item.entries["address"][1]
            text = self.text(item, f"{place}[{at}]")
            if not text:
                self.wrong(item, f"{place}[{at}]", "a name is missing")
            found.append(text)
        if repeated := next((word for word in found if found.count(word) > 1), None):
            self.wrong(node, place, f'"{repeated[:60]}" stands twice')
        return tuple(found)

    def shares(self, node: Node, place: str) -> dict[int, int] | None:
        if isinstance(node, Word) and node.null:
            return None
        mapping, found = self.mapping(node, place), {}
        for name, value in mapping.items():
            if not (name.text.isascii() and name.text.isdecimal() and len(name.text) < 6):
                self.wrong(name, place, f'"{name.text[:60]}" is no node')
            size = self.amount(value, f"{place}.{name.text}")
            found[int(name.text)] = size or 0
        return found or None

    def parsed(self, node: Node, place: str, parse: Callable[[str], T]) -> T | None:
        text = self.text(node, place)
        try:
            return None if text is None else parse(text)
        except ParseError as error:
            self.wrong(node, place, str(error))


def _shown(node: Node) -> str:
    if isinstance(node, Word):
        return f'"{node.text[:40]}"' if node.text else "nothing"
    return "a list" if isinstance(node, Sequence) else "names and values"


_READERS: dict[str, Callable[[_Reader, Node, str], Any]] = {
    "name": _Reader.text,
    "gpus": _Reader.words,
    "pool_size": _Reader.amount,
    "backing": _Reader.backing,
    "page_size": _Reader.page_size,
    "policy": _Reader.policy,
    "nodes": _Reader.ids,
    "cpus": _Reader.ids,
    "nics": _Reader.words,
    "shares": _Reader.shares,
    "match": _Reader.text,
}
