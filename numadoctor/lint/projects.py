"""Compose projects: the files and services that Compose puts together before it starts anything.

Override files that lie beside are laid over theirs, ``extends`` and ``include``
are followed. Read is what is linted together, and what lies below a folder of such
a file; what else is named is told, and what it would change is not judged.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from numadoctor.lint.composefiles import Reader
from numadoctor.lint.interpolation import filled, variables_beside
from numadoctor.lint.layers import lay_file, lay_service
from numadoctor.lint.nodes import Mapping, Node, Refused, Sequence, Word, words_of
from numadoctor.lint.workloads import Workload

# In the order in which `docker compose` looks for them (compose-go, cli/options.go).
BASES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
OVERRIDES = (
    "compose.override.yml", "compose.override.yaml",
    "docker-compose.override.yml", "docker-compose.override.yaml",
)  # fmt: skip

_REMOTE = re.compile(r"^(?:oci|git|https?|ssh)://|^git@|\.git(?:#|$)")
_STARTED = frozenset(("image", "build", "extends", "provider"))

# No project of a person has so many; the bounds keep hostile ones from going on.
_MOST_INCLUDED, _MOST_STEPS = 1_000, 50


@dataclass
class Project:
    """What one `docker compose up` starts.

    :ivar layers: its files, the lowest first
    :ivar file: a file of the folder in which relative paths begin: the first, as a rule
    :ivar root: all of its files laid over each other, services extended
    :ivar missing: services and files that could not be followed, a workload each that says why
    :ivar included: the projects that it includes
    :ivar broken: of what is missing, what Compose would refuse too: a line each
    """

    layers: tuple[str, ...]
    file: str
    root: Mapping
    missing: list[Workload] = field(default_factory=list)
    included: list["Project"] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def included_files(self) -> set[str]:
        """The files of all that it includes, however deep."""
        found = {path for inner in self.included for path in inner.layers}
        return found.union(*(inner.included_files() for inner in self.included))

    def all_broken(self) -> list[str]:
        """What is broken in it and in what it includes."""
        inner = [line for one in self.included for line in one.all_broken()]
        return [*self.broken, *inner]


def is_overlay(root: Mapping, base: str, reader: Reader) -> bool:
    """Whether a file is one that is laid over a project's own with a second ``-f``.

    None of its services could be started alone, and some are the project's.
    """
    services = root.mapping("services")
    if any(_STARTED & set(s.entries) for _, s in services.items() if isinstance(s, Mapping)):
        return False
    try:
        known = reader.root(base).mapping("services").entries
    except Refused:
        return False
    return bool(set(services.entries) & set(known))


def project(files: list[str], reader: Reader, trail: tuple[str, ...] = ()) -> Project:
    """The project of some files, the later laid over the earlier.

    :raises Refused: one of them is not at hand, or none of Compose's
    """
    reader.included = reader.included + 1 if trail else 0
    if reader.included > _MOST_INCLUDED or len(trail) > _MOST_STEPS:
        raise Refused(f"more than {_MOST_INCLUDED:,} files are included, or one inside the other")
    layers = tuple(map(os.path.normpath, files))
    found = Project(layers, layers[0], reader.root(layers[0]))
    roots = [_extended(found, file, reader.root(file), reader) for file in layers]
    root = roots[0]
    for over in roots[1:]:
        root = lay_file(root, over)
    variables = variables_beside(os.path.dirname(layers[0]))
    found.root = root = filled(root, variables) if variables else root
    for entry in _included(root):
        _include(found, entry, reader, (*trail, layers[0]))
    return found


def _extended(found: Project, file: str, root: Mapping, reader: Reader) -> Mapping:
    """A file whose services have what they extend; those that cannot be are told and left out."""
    whole = Mapping(root.file, root.line, root.column, dict(root.entries), root.repeated, root.tags)
    services = root.get("services")
    reader.lay(services or root)
    if isinstance(services, Mapping):
        made = Mapping(services.file, services.line, services.column, {}, services.repeated)
        made.tags.update(services.tags)
        for name, (word, service) in services.entries.items():
            try:
                made.entries[name] = (word, _extend(file, name, service, services, reader, ()))
            except _Broken as error:
                _tell(found, f"service {name}", error.at, error.refused)
        whole.entries["services"] = (root.key("services"), made)
    return whole


class _Broken(Exception):
    """What is named cannot be followed, and where it is named."""

    def __init__(self, at: Node, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.at, self.refused = at, refused


def _extend(
    file: str, name: str, service: Node, services: Mapping, reader: Reader,
    trail: tuple[tuple[str, str], ...],
) -> Node:  # fmt: skip
    if not isinstance(service, Mapping) or "extends" not in service.entries:
        return service
    at = service.get("extends")
    assert at is not None
    key = (os.path.normpath(file), name)
    if key in reader.whole:
        return reader.whole[key]
    trail = (*trail, key)
    try:
        base_file, base_name = _base(at, file)
        if (os.path.normpath(base_file), base_name) in trail:
            names = " → ".join([*(one for _, one in trail), base_name])
            raise Refused(f"extends itself: {names}")
        if base_file != file:
            services = reader.root(base_file).mapping("services")
        if len(trail) > _MOST_STEPS:
            raise Refused(f"extends a service in more than {_MOST_STEPS} steps")
        if base_name not in services.entries:
            raise Refused(f"extends {base_name}, which {os.path.basename(base_file)} lacks")
    except Refused as error:
        raise _Broken(at, error) from None
    reader.extended.add((os.path.normpath(base_file), base_name))
    base = services.entries[base_name][1]
    whole = _extend(base_file, base_name, base, services, reader, trail)
    laid = lay_service(whole, service)
    try:
        reader.lay(laid)
    except Refused as error:
        raise _Broken(at, error) from None
    if isinstance(laid, Mapping):
        laid.entries.pop("extends", None)
    reader.whole[key] = laid
    return laid


def _base(at: Node, file: str) -> tuple[str, str]:
    """The file and the service that ``extends`` names."""
    if isinstance(at, Word):
        name, path = at, None
    else:
        found = at.word("service") if isinstance(at, Mapping) else None
        if found is None or not isinstance(at, Mapping):
            raise Refused("extends names no service")
        name, path = found, at.word("file")
    for word in (name, path):
        if word is not None and word.open:
            raise Refused(f'extends "{word.shown}", which is filled in later', hint=_RENDER)
    return (_beside(file, path.text) if path else file), name.text


_RENDER = "lint what `docker compose config` prints (numadoctor lint - reads a pipe)"


def _beside(file: str, path: str) -> str:
    if _REMOTE.search(path):
        raise Refused(f"{path} is not on this machine", hint=_RENDER)
    return os.path.normpath(os.path.join(os.path.dirname(file), path))


def _included(root: Mapping) -> Iterator[Node]:
    node = root.get("include")
    yield from node.items if isinstance(node, Sequence) else [node] if node else []


def _include(found: Project, entry: Node, reader: Reader, trail: tuple[str, ...]) -> None:
    words = words_of(entry.get("path") if isinstance(entry, Mapping) else entry)
    at: Node = words[0] if words else entry
    try:
        if not words:
            raise Refused("include names no file")
        for word in words:
            if word.open:
                raise Refused(f'"{word.shown}" is filled in later', hint=_RENDER)
        files = [_beside(found.file, word.text) for word in words]
        if files[0] in trail:
            names = " → ".join(os.path.basename(one) for one in (*trail, files[0]))
            raise Refused(f"includes itself: {names}")
        inner = project(files, reader, trail)
    except Refused as error:
        _tell(found, f"include {words[0].shown}" if words else "include", at, error)
        return
    if isinstance(entry, Mapping) and (folder := entry.word("project_directory")):
        inner.file = os.path.join(os.path.dirname(found.file), folder.text, "compose.yaml")
    ours = found.root.mapping("services").entries
    for name, (_, service) in list(inner.root.mapping("services").entries.items()):
        if name in ours:  # laid over it; Compose takes no other service of its name
            word, own = ours[name]
            ours[name] = (word, lay_service(service, own))
            del inner.root.mapping("services").entries[name]
    found.included.append(inner)


def _tell(found: Project, name: str, at: Node, error: Refused) -> None:
    refused = Refused(error.reason, at.line, at.column, error.hint)
    found.missing.append(Workload(name, "compose", at, refused=refused))
    if not error.template:
        found.broken.append(f"{at.location}: {error.reason}")
