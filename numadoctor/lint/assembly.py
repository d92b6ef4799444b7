"""Compose files made projects: each judged with what Compose would put together with it."""

import os
import re
from typing import TYPE_CHECKING

from numadoctor.lint import devcontainer
from numadoctor.lint.composefiles import Reader
from numadoctor.lint.nodes import Mapping, Refused
from numadoctor.lint.projects import BASES, OVERRIDES, is_overlay, project
from numadoctor.lint.reading import Source, read_file
from numadoctor.lint.recognition import claim_of_name

if TYPE_CHECKING:
    from numadoctor.lint.documents import Document, Files

_LISTED = re.compile(r"""(?m)^[ \t]*(?:export[ \t]+)?COMPOSE_FILE=["']?([^"'#\r\n]+)""")


def with_projects(
    documents: list["Document"], sources: dict[str, Source], files: "Files"
) -> list["Document"]:
    """The documents, Compose files with their override files and what they extend and include.

    :param sources: the files that may be a part of one, by path
    """
    composed = [d for d in documents if d.kind == "compose"]
    if not composed:
        return documents
    reader = Reader({os.path.normpath(path): source for path, source in sources.items()})
    for document in composed:
        reader.give(document.file, document.content)
    chosen: dict[tuple[str, ...], Document] = {}
    by_others = [
        devcontainer.layers(d.content, d.file) for d in documents if d.kind == "devcontainer"
    ]
    for document in composed:
        layers = _layers(os.path.normpath(document.file), document.content, reader, by_others)
        if layers not in chosen or os.path.normpath(document.file) == layers[0]:
            chosen[layers] = document
    for layers, document in chosen.items():
        _assemble(document, layers, reader, files)
    kept = _not_included([d for d in chosen.values() if d.project])
    told: list[str] = []
    parts = {os.path.normpath(path) for path, _ in reader.extended}
    for document in kept:
        assert document.project is not None
        told += document.project.all_broken()
        parts |= document.project.included_files().union(document.project.layers)
        _leave_to_others(document, reader)
    files.unread += dict.fromkeys(told)
    left = {id(d) for d in (*kept, *(d for d in chosen.values() if not d.project))}
    return [
        d
        for d in documents
        if id(d) in left
        or d.kind not in ("compose", "other")
        or (d.kind == "other" and os.path.normpath(d.file) not in parts)
    ]


def _leave_to_others(document: "Document", reader: Reader) -> None:
    """Take out what is there to be extended, from a file that nobody starts."""
    if claim_of_name(document.file) != "compose":
        services = document.content.mapping("services").entries
        for path, name in reader.extended:
            if path == os.path.normpath(document.file):
                services.pop(name, None)


def _layers(
    file: str, root: Mapping, reader: Reader, by_others: list[tuple[str, ...]]
) -> tuple[str, ...]:
    """The files with which Compose would read this one, the first the lowest."""
    folder, name = os.path.split(file)
    listed = _listed(folder)
    if file in listed:
        return listed
    for layers in by_others:
        if file in layers[1:]:
            return layers
    base = _first(folder, BASES, reader)
    if base == file or name in OVERRIDES:
        over = _first(folder, OVERRIDES, reader)
        return tuple(one for one in (base, over) if one) if file in (base, over) else (file,)
    return (base, file) if base and is_overlay(root, base, reader) else (file,)


def _first(folder: str, names: tuple[str, ...], reader: Reader) -> str:
    paths = (os.path.join(folder, name) for name in names)
    return next((path for path in paths if reader.has(path)), "")


def _listed(folder: str) -> tuple[str, ...]:
    """The files that ``COMPOSE_FILE`` in the folder's .env names."""
    path = os.path.join(folder, ".env")
    if not os.path.isfile(path):
        return ()
    source = read_file(path)
    found = _LISTED.search(source.data.decode("utf-8", "replace"))
    names = found[1].strip().split(":") if found else []
    return tuple(os.path.normpath(os.path.join(folder, name)) for name in names)


def _assemble(
    document: "Document", layers: tuple[str, ...], reader: Reader, files: "Files"
) -> None:
    try:
        found = project(list(layers), reader)
    except Refused as error:
        document.kind, document.refused = "unreadable", error
        if not error.template:
            files.unread.append(f"{document.file}: {error.reason}")
        return
    file = os.path.normpath(document.file)
    if (
        file != layers[0]
        and os.path.basename(file) not in OVERRIDES
        and file not in _listed(os.path.dirname(file))
    ):
        # Laid over the project by hand: the rest of it is judged with its own files.
        names = document.content.mapping("services").entries
        services = found.root.mapping("services").entries
        for name in set(services) - set(names):
            del services[name]
        found.missing = [w for w in found.missing if w.name.removeprefix("service ") in names]
        found.included = []
    document.project, document.content = found, found.root


def _not_included(documents: list["Document"]) -> list["Document"]:
    """Those that no other one includes, and of those that include each other the first."""
    reach = {id(d): d.project.included_files() for d in documents if d.project}
    layers = {id(d): set(d.project.layers) for d in documents if d.project}

    def free(document: "Document", others: list["Document"]) -> bool:
        return not any(layers[id(document)] <= reach[id(o)] for o in others if o is not document)

    kept = [d for d in documents if free(d, documents)]
    # Whoever starts a circle does so with the name that Compose looks for.
    for document in sorted(documents, key=lambda d: os.path.basename(d.file) not in BASES):
        if document not in kept and free(document, kept):
            kept.append(document)
    return kept
