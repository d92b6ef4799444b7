"""What a document starts, whatever its kind: containers, processes of units, commands."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from numadoctor.lint import compose, devcontainer, docker, kubernetes, units
from numadoctor.lint.shell import Command
from numadoctor.lint.workloads import Workload

if TYPE_CHECKING:
    from numadoctor.lint.documents import Document
    from numadoctor.lint.projects import Project


def workloads_of(document: "Document") -> Iterator[Workload]:
    """The workloads of a document."""
    if document.kind == "compose":
        if document.project:
            yield from _of_project(document.project)
        else:
            yield from compose.services(document.content)
    elif document.kind == "devcontainer":
        yield from devcontainer.workloads(document.content)
    elif document.kind == "kubernetes":
        for pod in document.pods:
            yield from kubernetes.containers(pod)
        if not document.pods:
            yield from kubernetes.made_elsewhere(document.content)
    elif document.kind == "systemd":
        for workload in units.workloads(document.content):
            yield from _with_containers(workload)
    elif document.kind == "shell":
        yield from _of_script(document.content)


def _of_project(project: "Project") -> Iterator[Workload]:
    yield from compose.services(project.root, project.file)
    yield from project.missing
    for inner in project.included:
        yield from _of_project(inner)


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
