"""Reads files into the documents that are judged together."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from numadoctor.lint import compose, kubernetes, lines, units
from numadoctor.lint.assembly import with_projects
from numadoctor.lint.devcontainer import without_comments
from numadoctor.lint.documents import Document, Files
from numadoctor.lint.dropins import unit_name, with_drop_ins
from numadoctor.lint.environments import with_environments
from numadoctor.lint.kubelet import refuse_other_kinds
from numadoctor.lint.kubelets import with_kubelets
from numadoctor.lint.nccl import parse_nccl
from numadoctor.lint.nodes import Mapping, Node, Refused, Word
from numadoctor.lint.reading import Source
from numadoctor.lint.recognition import KUSTOMIZING, claim_of_name, is_claimed, kind_of
from numadoctor.lint.shell import Command, expanded, parse_shell
from numadoctor.lint.variables import parse_environment
from numadoctor.lint.yamlfile import parse_yaml
from numadoctor.model import Location


def gather(sources: Iterable[Source], files: Files) -> Files:
    """Recognise and parse ``sources`` into the documents of ``files``.

    A file that cannot be understood is told in ``files.unread`` if it was named, or says
    by its name or its content that it is a deployment file, and is no template.

    :raises MissingReader: one of them needs PyYAML, which is not installed
    """
    composed: dict[str, Source] = {}
    for source in sources:
        try:
            found = list(_documents(source))
        except Refused as error:
            counts = source.asked or is_claimed(source)
            kind = "unreadable" if counts or error.line is not None else "other"
            found = [Document(kind, source.path, refused=error)]
            # Hooks name all files that changed, templates among them.
            if counts and not error.template:
                place = Location(source.path, error.line, error.column)
                files.unread.append(f"{place}: {error.reason}")
        for document in found:
            document.files = files
            if document.kind == "seccomp":
                document.data = source.data
        if b"services" in source.data and not source.refused:
            composed[source.path] = source
        files.documents += found
    joined = with_kubelets(with_environments(with_drop_ins(files.documents)))
    files.documents = with_projects(joined, composed, files)
    files.static = files.static or any(map(_is_static, files.documents))
    return files


def _is_static(document: Document) -> bool:
    """Whether it is the configuration of a kubelet that gives pods CPUs or memory of their own."""
    if document.kind != "kubelet":
        return False
    policies = (document.content.word(f"{what}ManagerPolicy") for what in ("cpu", "memory"))
    return any(word is not None and word.text.lower() == "static" for word in policies)


def _documents(source: Source) -> Iterator[Document]:
    path = source.path
    if b"\0" in source.data[:4096] and not source.data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused("a binary file")
    text = source.text
    kind = kind_of(path, text)
    if kind == "yaml":
        yield from _of_yaml(text, path)
    elif kind in _PARSERS:
        yield Document(kind, path, _PARSERS[kind](text, path))
    else:
        yield Document("other", path)


def _of_yaml(text: str, path: str) -> Iterator[Document]:
    claimed = claim_of_name(path)
    found = False
    for root in parse_yaml(text, path):
        for document in _of_root(root, path, claimed):
            found = True
            yield document
    if not found and claimed == "compose":
        raise Refused("its name is that of a Compose file, and it declares no services")
    if not found:
        yield Document("other", path)


def _of_root(root: Node, path: str, claimed: str) -> Iterator[Document]:
    if not isinstance(root, Mapping):
        return
    if os.path.basename(path) in ("kustomization.yaml", "kustomization.yml"):
        _refuse_changes(root)
    if kubernetes.is_kubernetes(root):
        for item in kubernetes.objects(root):
            kind = item.word("kind")
            kubelet = kind is not None and kind.text == "KubeletConfiguration"
            if kubelet:
                refuse_other_kinds(item)
            name = path if kubelet else kubernetes.object_name(item)
            yield Document("kubelet" if kubelet else "kubernetes", path, item, name=name)
    elif compose.is_compose(root, claimed == "compose"):
        yield Document("compose", path, root)
    elif "defaultAction" in root.entries or "seccomp" in root.mapping("linux").entries:
        yield Document("seccomp", path, root)


def _refuse_changes(root: Mapping) -> None:
    """A kustomization that patches: what it is made from is not what will be applied.

    :raises Refused: it does; with a hint, since that is no fault
    """
    for name, (at, value) in root.entries.items():
        empty = value.null if isinstance(value, Word) else not root.sequence(name).items
        if name in KUSTOMIZING and not empty:
            hint = "lint what `kustomize build` prints (numadoctor lint - reads a pipe)"
            reason = f"its {name} change what is deployed, and are not applied here"
            raise Refused(reason, at.line, at.column, hint)


def _parse_unit(text: str, path: str) -> units.Unit:
    return units.Unit(unit_name(path), tuple(lines.parse_unit(text, path)))


def _parse_script(text: str, path: str) -> list[Command]:
    commands = list(parse_shell(text, path))
    return [one for command in commands for one in _unfolded(command)]


def _unfolded(command: Command) -> list[Command]:
    try:
        return expanded(command)
    except Refused:
        return [command]


def _parse_devcontainer(text: str, path: str) -> Mapping:
    roots = list(parse_yaml(without_comments(text), path))
    if len(roots) != 1 or not isinstance(roots[0], Mapping):
        raise Refused("its name is that of a devcontainer, and it holds no object")
    return roots[0]


_PARSERS: dict[str, Any] = {
    "devcontainer": _parse_devcontainer,
    "systemd": _parse_unit,
    "environment": parse_environment,
    "sysctl": lines.parse_sysctl,
    "modprobe": lines.parse_modprobe,
    "boot": lines.parse_boot,
    "slurm": lines.parse_slurm,
    "nccl": parse_nccl,
    "shell": _parse_script,
}
