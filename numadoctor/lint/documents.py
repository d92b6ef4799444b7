"""Recognises what files are, and holds all that are examined together."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from numadoctor.host.parsers.nccl import NcclTopology, parse_nccl_topology
from numadoctor.lint import compose, docker, kubernetes, lines, units
from numadoctor.lint.nodes import Mapping, Node, Refused, Unsettled, Word
from numadoctor.lint.reading import Source, is_shell, read_file
from numadoctor.lint.shell import Command, expanded, parse_shell
from numadoctor.lint.workloads import Workload
from numadoctor.lint.yamlfile import parse_yaml
from numadoctor.model import Location, Missing, ParseError, Undecided

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.kernel.seccomp import Profile

KINDS = {
    "compose": "Docker Compose",
    "kubernetes": "Kubernetes objects",
    "kubelet": "kubelet configuration",
    "systemd": "systemd units, drop-ins and Quadlet files",
    "seccomp": "seccomp profiles, and config.json of OCI runtimes",
    "sysctl": "sysctl.d",
    "modprobe": "modprobe.d",
    "boot": "kernel command lines: grub's defaults, loader entries",
    "slurm": "slurm.conf and gres.conf",
    "nccl": "NCCL topology files",
    "shell": "shell scripts",
    "unreadable": "files that could not be understood",
    "other": "files of no kind that is known",
}


@dataclass
class Document:
    """One thing to judge: a file, or a document of several in it.

    :ivar kind: one of KINDS
    :ivar file: its path as it was given
    :ivar content: what its kind is parsed into
    :ivar refused: why it could not be understood
    :ivar data: the bytes of a seccomp profile, which has a reader of its own
    """

    kind: str
    file: str
    content: Any = None
    files: "Files" = field(default_factory=lambda: Files(), repr=False)
    refused: Refused | None = None
    name: str = ""
    data: bytes = field(default=b"", repr=False)

    @property
    def subject(self) -> str:
        """What findings are about that are about all of it."""
        return self.name or self.file

    @property
    def need(self) -> str:
        """The need by which checks ask for its kind."""
        return f"kind {self.kind}"

    @cached_property
    def pods(self) -> tuple[kubernetes.Pod, ...]:
        """The pods of a Kubernetes object."""
        return tuple(kubernetes.pods(self.content))

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """What it starts."""
        return tuple(_workloads(self))


@dataclass
class Files:
    """All files that are examined together, and what is known of where they will be used.

    :ivar runtime: the container runtime: docker, containerd, podman, crio; empty if not known
    :ivar version: of the runtime
    :ivar machine: the machine that the files are for
    :ivar unread: files that were asked for and could not be understood, a line each
    :ivar static: whether the kubelets they are for align CPUs and memory
    """

    runtime: str = ""
    version: str | None = None
    machine: "Host | None" = None
    static: bool = False
    documents: list[Document] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    _profiles: dict[str, "Profile | Undecided"] = field(default_factory=dict, repr=False)

    def profile(self, word: Word, folder: str = "") -> "Profile":
        """The seccomp profile that a word names, by a path from its file or on the machine.

        :param folder: where on the machine relative paths begin
        :raises Undecided: it is not at hand, or no profile
        """
        key = f"{os.path.dirname(word.file)}\0{word.text}"
        if key not in self._profiles:
            try:
                self._profiles[key] = self._find(word, folder)
            except Undecided as error:
                self._profiles[key] = error
        found = self._profiles[key]
        if isinstance(found, Undecided):
            raise found
        return found

    def _find(self, word: Word, folder: str) -> "Profile":
        from numadoctor.lint.filters import read_profile

        path = word.text
        if path.startswith("/") or folder:
            if self.machine is not None:
                on_machine = path if path.startswith("/") else folder + path
                try:
                    return read_profile(on_machine, self.machine.read(on_machine))
                except Missing:
                    pass
            # A profile that will be copied there usually lies beside the manifests.
            for document in self.documents:
                same = os.path.basename(document.file) == os.path.basename(path)
                if document.kind == "seccomp" and same:
                    return read_profile(document.file, document.data)
            raise Unsettled(
                word.location, f"the seccomp profile {path} is not at hand",
                "lint it together with this file, or give the machine with --sysroot",
            )  # fmt: skip
        beside = os.path.normpath(os.path.join(os.path.dirname(word.file), path))
        for document in self.documents:
            if document.kind == "seccomp" and os.path.normpath(document.file) == beside:
                return read_profile(document.file, document.data)
        source = read_file(beside)
        if source.refused:
            raise Unsettled(word.location, f"the profile {path}: {source.refused.reason}")
        return read_profile(source.path, source.data)


def gather(sources: Iterable[Source], files: Files) -> Files:
    """Recognise and parse ``sources`` into the documents of ``files``.

    :raises MissingReader: one of them needs PyYAML, which is not installed
    """
    for source in sources:
        try:
            found = list(_documents(source))
        except Refused as error:
            known = source.asked or error.line is not None
            kind = "unreadable" if known else "other"
            found = [Document(kind, source.path, refused=error)]
            # Hooks name all files that changed, templates among them.
            if source.asked and not error.template:
                place = Location(source.path, error.line, error.column)
                files.unread.append(f"{place}: {error.reason}")
        for document in found:
            document.files = files
            if document.kind == "seccomp":
                document.data = source.data
        files.documents += found
    files.documents = _with_drop_ins(files.documents)
    files.static = files.static or any(map(_is_static, files.documents))
    return files


def _is_static(document: Document) -> bool:
    """Whether it is the configuration of a kubelet that gives pods CPUs or memory of their own."""
    if document.kind != "kubelet":
        return False
    policies = (document.content.word(f"{what}ManagerPolicy") for what in ("cpu", "memory"))
    return any(word is not None and word.text.lower() == "static" for word in policies)


def _documents(source: Source) -> Iterator[Document]:
    path, name = source.path, os.path.basename(source.path)
    if b"\0" in source.data[:4096] and not source.data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused("a binary file")
    text = source.text
    kind = _kind_by_name(path, name, text)
    if kind == "yaml":
        yield from _of_yaml(text, path)
    elif kind in _PARSERS:
        yield Document(kind, path, _PARSERS[kind](text, path))
    else:
        yield Document("other", path)


_UNIT = re.compile(r"\.(service|scope|slice|socket|container)$")
_DROP_IN = re.compile(r"\.(service|scope|slice|container)\.d/[^/]+\.conf$")
_YAML = re.compile(r"(?m)^[ \t]*[\"']?(apiVersion|services|defaultAction|linux|kind)[\"']?\s*:")


def _kind_by_name(path: str, name: str, text: str) -> str:
    """The kind that a file's name and first looks make it."""
    full = os.path.abspath(path).replace(os.sep, "/")
    if _UNIT.search(name) or _DROP_IN.search(full):
        return "systemd"
    if name.endswith((".yaml", ".yml", ".json")):
        # A look that costs little: most YAML of a repository is of other kinds.
        return "yaml" if _YAML.search(text) or '"defaultAction"' in text else _odd_json(text)
    for pattern, kind in _NAMED:
        if re.search(pattern, full):
            return kind
    if name.endswith((".sh", ".bash", ".sbatch", ".slurm")) or is_shell(
        text.split("\n", 1)[0].encode("utf-8", "replace")
    ):
        return "shell"
    return _by_content(text)


def _odd_json(text: str) -> str:
    return "yaml" if re.search(r'"(apiVersion|services|linux)"\s*:', text) else ""


_NAMED = (
    (r"/gres[^/]*\.conf$|[-_.]gres\.conf$", "slurm"),
    (r"/slurm[^/]*\.conf$", "slurm"),
    (r"/sysctl\.d/|sysctl[^/]*\.conf$", "sysctl"),
    (r"/modprobe\.d/|modprobe[^/]*\.conf$", "modprobe"),
    (r"/grub(\.d/[^/]+)?$|grub[^/]*\.cfg$|cmdline$|/loader/entries/[^/]+\.conf$", "boot"),
)


_SYSCTL = re.compile(r"\s*-?(vm|kernel|net|fs|user|dev)[./][\w./*-]+\s*=")


def _by_content(text: str) -> str:
    head = text[:4096]
    if re.search(r"<system[\s/>]", head) and head.lstrip().startswith("<"):
        return "nccl"
    if _YAML.search(text) or (head.lstrip().startswith("{") and '"defaultAction"' in text):
        return "yaml"
    rows = [row for row in head.splitlines() if row.strip() and row.lstrip()[0] not in "#;"]
    if rows and all(
        re.match(r"\s*-?(vm|kernel|net|fs|user|dev)[./][\w./*-]+\s*=", r) for r in rows
    ):
        return "sysctl"
    if re.search(r"(?m)^\[(Service|Container|Manager)\]\s*$", head):
        return "systemd"
    return ""


def _of_yaml(text: str, path: str) -> Iterator[Document]:
    found = False
    for root in parse_yaml(text, path):
        for document in _of_root(root, path):
            found = True
            yield document
    if not found:
        yield Document("other", path)


def _of_root(root: Node, path: str) -> Iterator[Document]:
    if not isinstance(root, Mapping):
        return
    if kubernetes.is_kubernetes(root):
        for item in kubernetes.objects(root):
            kind = item.word("kind")
            kubelet = kind is not None and kind.text == "KubeletConfiguration"
            name = path if kubelet else kubernetes.object_name(item)
            yield Document("kubelet" if kubelet else "kubernetes", path, item, name=name)
    elif compose.is_compose(root):
        yield Document("compose", path, root)
    elif "defaultAction" in root.entries or "seccomp" in root.mapping("linux").entries:
        yield Document("seccomp", path, root)


@dataclass(frozen=True)
class Topology:
    """An NCCL topology file, and its lines for places in it."""

    file: str
    nccl: NcclTopology
    lines: list[str]

    def place(self, line: int, attribute: str) -> Location:
        """Where an attribute of the element stands that begins on a line."""
        # expat tells where an element begins; its attributes may stand below.
        for number in range(line, min(line + 8, len(self.lines) + 1)):
            at = self.lines[number - 1].find(f"{attribute}=")
            if at >= 0:
                return Location(self.file, number, at + 1)
        return Location(self.file, line, 1)


def _parse_nccl(text: str, path: str) -> Topology:
    try:
        return Topology(path, parse_nccl_topology(text.encode()), text.split("\n"))
    except ParseError as error:
        place = re.search(r"line (\d+)(?:, column (\d+))?", error.reason)
        line = int(place[1]) if place else None
        column = int(place[2]) + 1 if place and place[2] else None
        raise Refused(f"no NCCL topology: {error.reason}", line, column) from None


def _parse_unit(text: str, path: str) -> units.Unit:
    full = os.path.abspath(path).replace(os.sep, "/")
    name = os.path.basename(path)
    if _DROP_IN.search(full):
        name = full.split("/")[-2].removesuffix(".d")
    return units.Unit(name, tuple(lines.parse_unit(text, path)))


def _parse_script(text: str, path: str) -> list[Command]:
    commands = list(parse_shell(text, path))
    return [one for command in commands for one in _unfolded(command)]


def _unfolded(command: Command) -> list[Command]:
    try:
        return expanded(command)
    except Refused:
        return [command]


_PARSERS: dict[str, Any] = {
    "systemd": _parse_unit,
    "sysctl": lines.parse_sysctl,
    "modprobe": lines.parse_modprobe,
    "boot": lines.parse_boot,
    "slurm": lines.parse_slurm,
    "nccl": _parse_nccl,
    "shell": _parse_script,
}


def _with_drop_ins(documents: list[Document]) -> list[Document]:
    """The documents, drop-ins made part of their units where those are there."""
    units_of = {d.content.name: d for d in documents if d.kind == "systemd" and not _drops_in(d)}
    left: list[Document] = []
    merged: list[Document] = []
    for document in documents:
        main = units_of.get(document.content.name) if document.kind == "systemd" else None
        (left if main is None or main is document else merged).append(document)
    for document in sorted(merged, key=lambda d: os.path.basename(d.file)):
        main = units_of[document.content.name]
        settings = (*main.content.settings, *document.content.settings)
        main.content = units.Unit(main.content.name, settings)
    return left


def _drops_in(document: Document) -> bool:
    return _DROP_IN.search(os.path.abspath(document.file)) is not None


def _workloads(document: Document) -> Iterator[Workload]:
    if document.kind == "compose":
        yield from compose.services(document.content)
    elif document.kind == "kubernetes":
        for pod in document.pods:
            yield from kubernetes.containers(pod)
    elif document.kind == "systemd":
        for workload in units.workloads(document.content):
            yield from _with_containers(workload)
    elif document.kind == "shell":
        yield from _of_script(document.content)


def _with_containers(workload: Workload) -> Iterator[Workload]:
    """A unit's process, and the containers that it starts, whose commands are not its own."""
    found = [(command, docker.container_of(command)) for command in workload.commands]
    own = tuple(command for command, container in found if container is None)
    yield replace(workload, commands=own)
    yield from (container for _, container in found if container)


def _of_script(commands: Iterable[Command]) -> Iterator[Workload]:
    """The containers that a script starts, and what it starts on the machine itself."""
    for command in commands:
        container = docker.container_of(command)
        yield container or Workload(
            name=f"command {command.program}",
            launcher="shell",
            at=command.words[0],
            commands=(command,),
            environment=command.environment,
            detached=command.background,
        )
