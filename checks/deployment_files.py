"""Whether deployment files can be understood at all."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.lint.documents import KINDS, Document
from numadoctor.lint.nodes import Mapping, Node, Sequence, Word
from numadoctor.lint.workloads import Workload
from numadoctor.model import (
    Evidence,
    Finding,
    Location,
    Severity,
    passed,
    skip,
    unknown,
    warn,
)

from ._deployment import in_file

if TYPE_CHECKING:
    from numadoctor.host import Host

_YAML = ("compose", "devcontainer", "kubernetes", "kubelet", "seccomp")

# Further repetitions of a file are of one making with these.
_MOST_TOLD = 10


@check(
    "D001",
    name="file-understood",
    needs=tuple(f"kind {kind}" for kind in KINDS),
    scope=Scope.FILE,
    severity=Severity.LOW,
)
def file_understood(host: "Host | None", document: Document) -> Iterator[Finding]:
    """Tells of files, and parts of them, that were not understood, and of keys that stand twice.

    Why it matters
        What was not understood was not judged. A key that stands twice in a mapping has its
        last value with most readers, and none with strict ones: what a reader of the file
        sees first is then not what holds.

    When it is harmless
        Templates of a Helm chart are no YAML before they are rendered.

    Fix
        Name what is missing, or lint it together with the file that extends or includes it.
        Lint what will be applied: `helm template CHART | numadoctor lint -`,
        `kustomize build DIR | numadoctor lint -`, `docker compose config | numadoctor lint -`.
        Remove the key that stands twice.

    Source
        YAML 1.2.2, 3.2.1.3 (keys are unique); Compose Specification, Merge, Include, and
        extends of services; systemd.syntax(7); POSIX, Shell Command
        Language
    """
    if document.refused:
        error = document.refused
        place = Location(document.file, error.line, error.column)
        if document.kind == "other":
            yield skip(error.reason, subject=document.file, location=place)
            return
        yield unknown(
            error.reason,
            subject=document.file,
            cause=f"It was not judged: {error.hint}." if error.hint else "It was not judged.",
            evidence=[Evidence(str(place), error.reason)],
            location=place,
        )
        return
    if document.kind == "other":
        place = Location(document.file)
        yield skip("of no kind that is known", subject=document.file, location=place)
        return
    repeated = list(islice(_repeated(document.content), _MOST_TOLD)) if _is_yaml(document) else []
    for word in repeated:
        yield warn(
            f'"{word.shown}" stands twice in one mapping; the last value holds, or none',
            subject=f"{document.subject} key {word.shown}",
            cause="Strict readers (kubectl among them) refuse the file.",
            evidence=[Evidence(str(word.location), word.text)],
            fixes=[
                in_file(word, f"# remove {word.shown} of line {word.line}, or the one above it")
            ],
            location=word.location,
        )
    broken = [workload for workload in document.workloads if workload.refused]
    for workload in broken:
        yield _not_understood(workload)
    if not repeated and not broken:
        kind = KINDS[document.kind]
        yield passed(
            f"understood as {kind}",
            subject=document.subject,
            evidence=[Evidence(document.file, kind)],
            location=Location(document.file),
        )


def _not_understood(workload: Workload) -> Finding:
    error = workload.refused
    assert error is not None
    place = Location(workload.at.file, error.line, error.column)
    return unknown(
        error.reason,
        subject=workload.name,
        cause=f"It was not judged: {error.hint}." if error.hint else "It was not judged.",
        evidence=[Evidence(str(place), error.reason)],
        location=place,
    )


def _is_yaml(document: Document) -> bool:
    return document.kind in _YAML


def _repeated(root: Node) -> Iterator[Word]:
    """Keys that stand twice, each once however often aliases name its mapping."""
    pending, met, told = [root], set[int](), set[Location]()
    while pending:
        node = pending.pop()
        if id(node) in met or isinstance(node, Word):
            continue
        met.add(id(node))
        if isinstance(node, Mapping):
            # What is laid over another file keeps the places that it came from.
            yield from (word for word in node.repeated if word.location not in told)
            told |= {word.location for word in node.repeated}
            pending += [value for _, value in node.items()]
        elif isinstance(node, Sequence):
            pending += node.items
