"""What is examined: documents, and all that are examined together."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from numadoctor.lint import kubernetes
from numadoctor.lint.nodes import Refused, Unsettled, Word
from numadoctor.lint.reading import read_file
from numadoctor.lint.started import workloads_of
from numadoctor.lint.workloads import Workload
from numadoctor.model import Missing, Undecided

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.kernel.seccomp import Profile
    from numadoctor.lint.projects import Project

KINDS = {
    "compose": "Docker Compose",
    "devcontainer": "devcontainer.json",
    "kubernetes": "Kubernetes objects",
    "kubelet": "kubelet configuration",
    "systemd": "systemd units, drop-ins and Quadlet files",
    "environment": "environment files of units",
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
    :ivar lacks: what else says something of it and is not at hand, in words
    :ivar project: of a Compose file, what it makes together with others
    """

    kind: str
    file: str
    content: Any = None
    files: "Files" = field(default_factory=lambda: Files(), repr=False)
    refused: Refused | None = None
    name: str = ""
    data: bytes = field(default=b"", repr=False)
    lacks: str = ""
    project: "Project | None" = field(default=None, repr=False)

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
        return tuple(workloads_of(self))


@dataclass
class Files:
    """All files that are examined together, and what is known of where they will be used.

    :ivar runtime: the container runtime: docker, containerd, podman, crio; empty if not known
    :ivar version: of the runtime
    :ivar machine: the machine that the files are for
    :ivar unread: files that should have been judged and could not be, a line each
    :ivar static: whether the kubelets they are for align CPUs and memory
    """

    runtime: str = ""
    version: str | None = None
    machine: "Host | None" = None
    static: bool = False
    documents: list[Document] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    _profiles: dict[str, "Profile | Undecided"] = field(default_factory=dict, repr=False)

    def profile(self, word: Word, folder: str = "", file: str = "") -> "Profile":
        """The seccomp profile that a word names, by a path from its file or on the machine.

        :param folder: where on the machine relative paths begin
        :param file: the file beside which it lies, where that is not the word's own
        :raises Undecided: it is not at hand, or no profile
        """
        near = os.path.dirname(file or word.file)
        key = f"{near}\0{word.text}"
        if key not in self._profiles:
            try:
                self._profiles[key] = self._find(word, folder, near)
            except Undecided as error:
                self._profiles[key] = error
        found = self._profiles[key]
        if isinstance(found, Undecided):
            raise found
        return found

    def _find(self, word: Word, folder: str, near: str) -> "Profile":
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
        beside = os.path.normpath(os.path.join(near, path))
        for document in self.documents:
            if document.kind == "seccomp" and os.path.normpath(document.file) == beside:
                return read_profile(document.file, document.data)
        source = read_file(beside)
        if source.refused:
            raise Unsettled(word.location, f"the profile {path}: {source.refused.reason}")
        return read_profile(source.path, source.data)
