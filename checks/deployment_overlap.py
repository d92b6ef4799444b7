"""Workloads of files that are bound to the same CPUs."""

from collections.abc import Iterator
from itertools import combinations, islice, product, takewhile
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.lint.bindings import CPUS, Binding, bindings, of_unit
from numadoctor.lint.documents import Document
from numadoctor.lint.engines import is_engine, needs
from numadoctor.lint.workloads import Workload
from numadoctor.model import Finding, Severity, Undecided, passed, warn
from numadoctor.model.words import cpus_text

from ._deployment import in_file, known_ids, launcher, seen, undecided

if TYPE_CHECKING:
    from numadoctor.host import Host

# More workloads than a machine runs of its CPUs are compared no further.
_MOST_COMPARED = 256


@check(
    "D018",
    name="cpus-taken-twice",
    needs=("kind compose", "kind shell", "kind systemd"),
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def cpus_taken_twice(host: "Host | None", document: Document) -> Iterator[Finding]:
    """Two workloads that run beside each other are bound to the same CPUs.

    Why it matters
        Engines keep CPU threads busy (scheduling, tokenisation, copies, OpenMP). Two that
        are bound to common CPUs take turns on them, whatever else is idle; the delay shows
        as jitter between tokens, and in no utilisation of the whole machine.

    When it is harmless
        For workloads that never run at the same time, or a small helper beside an engine.

    Fix
        Give each its own CPUs, all of one node and with it the node's memory.
        `numadoctor plan` lays instances out for a machine.

    Source
        cpuset(7); sched_setaffinity(2)
    """
    bound = list(islice(_bound(document), _MOST_COMPARED))
    # Of two units each pair is told once, for the later file.
    others = list(islice(_of_others(document), _MOST_COMPARED))
    clashes = 0
    for (one, first, some), (other, second, more) in (
        *combinations(bound, 2),
        *product(others, bound),
    ):
        shared = some & more
        if not shared or not (_matters(one) or _matters(other)):
            continue
        clashes += 1
        yield warn(
            f"{one.name} and {other.name} share {cpus_text(shared)}",
            subject=f"{one.name} and {other.name}",
            cause="They take turns on these CPUs, whatever else is idle.",
            evidence=seen(first.word, second.word),
            fixes=[
                in_file(
                    second.word,
                    f"# CPUs of its own for {other.name} {_place(second)}",
                    by=launcher(other),
                )
            ],
            location=second.word.location,
        )
    if len(bound) + len(others) > 1 and bound and not clashes:
        yield passed(
            f"{len(bound) + len(others)} workloads have CPUs, no engine those of another",
            subject=document.subject,
            evidence=seen(*(binding.word for _, binding, _ in bound)),
            location=bound[0][1].word.location,
        )
    for workload in document.workloads:
        if workload.cpus and workload.cpus.open:
            try:
                workload.cpus.settled()
            except Undecided as error:
                yield undecided(error, workload.name, workload.cpus.location)


def _of_others(document: Document) -> Iterator[tuple[Workload, Binding, frozenset[int]]]:
    """What is bound by the units in front of this one."""
    if document.kind == "systemd" and of_unit(document.content):
        for other in takewhile(lambda other: other is not document, document.files.documents):
            if other.kind == "systemd":
                yield from _bound(other)


def _place(binding: Binding) -> str:
    return f"in line {binding.word.line}"


def _matters(workload: Workload) -> bool:
    return is_engine(workload) or bool(needs(workload))


def _bound(document: Document) -> Iterator[tuple[Workload, Binding, frozenset[int]]]:
    """Workloads that may run at the same time, with the CPUs that each is bound to."""
    for workload in document.workloads:
        if not workload.detached:
            continue
        lists = [b for b in bindings(workload) if b.what == CPUS and not b.word.open]
        if workload.launcher == "systemd":
            lists += [b for b in of_unit(document.content) if b.what == CPUS]
        for binding in lists[:1]:
            if members := known_ids(binding.word):
                yield workload, binding, frozenset(members)
