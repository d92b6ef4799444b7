"""Kubelets among the documents: configuration files, their drop-ins, and the flags of units."""

import os
from collections.abc import Iterable, Iterator

from numadoctor.lint.documents import Document
from numadoctor.lint.kubelet import as_configuration, flags, with_drop_in, with_flags
from numadoctor.lint.nodes import Mapping, Refused, Sequence, Word
from numadoctor.lint.recognition import KUBELET_DROP_IN, full_path, nearest
from numadoctor.lint.shell import Command
from numadoctor.lint.units import Unit, commands_of_unit

_KUBEADM = ("InitConfiguration ", "JoinConfiguration ")


def with_kubelets(documents: Iterable[Document]) -> list[Document]:
    """The documents, each kubelet's configuration with its drop-ins and flags.

    What names no configuration file belongs to the only one that is linted, if it is one.
    """
    documents = list(documents)
    configurations = [d for d in documents if d.kind == "kubelet"]
    drop_ins = [d for d in configurations if KUBELET_DROP_IN.search(full_path(d.file))]
    mains = [d for d in configurations if d not in drop_ins]
    gone: set[int] = set()
    made: list[Document] = []
    started = [(d, given) for d in documents for given in _started(d)]
    for document, given in started:
        main, over = _parts(document, given, mains, drop_ins)
        gone |= {id(d) for d in over}
        said = as_configuration(given)
        if main is None and (over or said):
            main = _lone(document, said, over)
            made.append(main)
        if main is not None:
            for drop_in in over:
                main.content = with_drop_in(main.content, drop_in.content)
            main.content = with_flags(main.content, said) if said else main.content
    if not started and len(mains) == 1 and drop_ins:
        for drop_in in sorted(drop_ins, key=_base):
            mains[0].content = with_drop_in(mains[0].content, drop_in.content)
        gone |= {id(d) for d in drop_ins}
    return [d for d in (*documents, *made) if id(d) not in gone]


def _base(document: Document) -> str:
    return os.path.basename(document.file)


def _lone(document: Document, said: Mapping | None, over: list[Document]) -> Document:
    """A kubelet whose configuration file is not there: its flags and drop-ins alone are known."""
    first = said or over[0].content
    root = Mapping(first.file, first.line, first.column)
    lacks = "the kubelet's configuration file"
    return Document("kubelet", document.file, root, document.files, lacks=lacks)


def _started(document: Document) -> Iterator[dict[str, list[Word]]]:
    """The flags with which a document starts kubelets."""
    if document.kind == "systemd" and isinstance(document.content, Unit):
        for command in _commands(document.content):
            programs = [word.text.rpartition("/")[2] for word in command.words[:2]]
            if programs[:1] == ["kubelet"] or programs == ["hyperkube", "kubelet"]:
                yield flags(command.words)
    elif document.kind == "kubernetes" and document.name.startswith(_KUBEADM):
        found = dict(_arguments(document.content.get("nodeRegistration", "kubeletExtraArgs")))
        if found:
            yield {name: [value] for name, value in found.items()}


def _commands(unit: Unit) -> list[Command]:
    try:
        return list(commands_of_unit(unit))
    except Refused:
        return []  # told with the unit itself


def _arguments(node: object) -> Iterator[tuple[str, Word]]:
    """A mapping (kubeadm's v1beta3), or a list of names and values (v1beta4)."""
    if isinstance(node, Mapping):
        yield from ((n.text, value) for n, value in node.items() if isinstance(value, Word))
    elif isinstance(node, Sequence):
        for item in node.items:
            name = item.word("name") if isinstance(item, Mapping) else None
            value = item.word("value") if isinstance(item, Mapping) else None
            if name and value:
                yield name.text, value


def _parts(
    document: Document, given: dict[str, list[Word]], mains: list[Document],
    drop_ins: list[Document],
) -> tuple[Document | None, list[Document]]:  # fmt: skip
    """The configuration file of a kubelet, and its drop-ins in their order."""
    named = given["config"][-1].text if "config" in given else ""
    exact = [d for d in mains if full_path(d.file).endswith(named)]
    near = nearest(document.file, exact or mains)
    over = []
    if "config-dir" in given:
        folder = given["config-dir"][-1].text.rstrip("/")
        over = [d for d in drop_ins if os.path.dirname(full_path(d.file)).endswith(folder)]
    over = nearest(document.file, over)
    return near[0] if len(near) == 1 else None, sorted(over, key=_base)
