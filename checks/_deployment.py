"""What the checks of deployment files share: places, edits, and lists of ids in values."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from numadoctor.host import parsers
from numadoctor.kernel.seccomp import Verdict
from numadoctor.lint.documents import Document
from numadoctor.lint.nodes import Node, Unsettled, Word
from numadoctor.lint.quantity import parse_quantity
from numadoctor.lint.workloads import Workload
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Location,
    ParseError,
    Undecided,
    unknown,
)
from numadoctor.model.units import parse_amount

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")

CONTAINERS = ("kind compose", "kind devcontainer", "kind kubernetes", "kind shell", "kind systemd")

# What Fix calls the launcher of a workload.
LAUNCHERS = {"quadlet": "podman", "shell": "any"}

_LONGEST = 160


def launcher(workload: Workload) -> str:
    """The launcher that a fix for the workload is for."""
    return LAUNCHERS.get(workload.launcher, workload.launcher)


def undecided(error: Undecided, subject: str, place: Location) -> Finding:
    """The finding for what cannot be told from the file."""
    where = error.location if isinstance(error, Unsettled) else place
    return unknown(
        error.reason if isinstance(error, Unsettled) else f"{error.path}: {error.reason}",
        subject=subject,
        cause=f"{error.hint[0].upper()}{error.hint[1:]}." if error.hint else "",
        evidence=[Evidence(error.path, error.reason)],
        location=where,
    )


def for_each(
    document: Document, judge: Callable[[Workload], Iterable[Finding]]
) -> Iterator[Finding]:
    """What ``judge`` says of each workload of a document; one that is undecided hides no other."""
    for workload in document.workloads:
        if workload.refused:
            continue  # told by the check that files are understood
        try:
            yield from judge(workload)
        except Undecided as error:
            yield undecided(error, workload.name, workload.at.location)


def seen(*nodes: Node | None) -> tuple[Evidence, ...]:
    """The words that a verdict was drawn from, each with its place."""
    return tuple(
        Evidence(str(node.location), node.text[:_LONGEST])
        for node in nodes
        if isinstance(node, Word)
    )


def edit(workload: Workload, text: str, explained: str = "") -> Fix:
    """A change to the file that declares a workload."""
    return Fix(
        launcher(workload),
        f"{text}\n# {explained}" if explained else text,
        needs_restart=True,
        persists=workload.launcher in ("compose", "kubernetes", "systemd", "quadlet"),
    )


def in_file(at: Node | Location, text: str, explained: str = "", by: str = "any") -> Fix:
    """A change to a file that is no workload's."""
    return Fix(
        by, f"{text}\n# {explained}" if explained else text, needs_restart=True, persists=True
    )


def instead(word: Node) -> str:
    """Where an edit belongs, for the line that explains it."""
    return f"instead of line {word.line}"


def add_capability(workload: Workload, name: str = "SYS_NICE") -> Fix:
    """The smallest edit that gives a container a capability."""
    names = ", ".join([*(word.shown for word in workload.added), name])
    into = f"in {workload.name}"
    if workload.added:
        into = instead(workload.added[0])
    text = {
        "compose": f"cap_add: [{names}]",
        "kubernetes": f"securityContext: {{capabilities: {{add: [{names}]}}}}",
        "quadlet": f"AddCapability={name}",
    }.get(workload.launcher, f"--cap-add {name}")
    if workload.launcher in ("docker", "podman", "quadlet"):
        into = f"in {workload.name}"
    return edit(workload, text, into)


def ids(word: Word, what: str) -> tuple[int, ...] | None:
    """The ids in a list of CPUs or nodes; None for a word such as ``all`` that names none.

    :raises Unsettled: it is filled in later
    :raises ParseError: it is no list
    """
    text = word.settled().strip()
    if text.lower() in ("", "all", "auto", "any", "numa", "netdev") or text.startswith(("+", "!")):
        return None
    try:
        return parsers.parse_list(text.encode())
    except ParseError as error:
        raise ParseError(what, text, error.reason) from None


def known_ids(word: Word | None) -> tuple[int, ...] | None:
    """As ``ids``; None also where there is no word or it is no list, which another check tells."""
    try:
        return ids(word, "list") if word else None
    except ParseError:
        return None


def answered(verdict: Verdict) -> str:
    """The answer in words; of a few the errno depends on the runtime's version."""
    return "refused (EPERM or ENOSYS)" if verdict.unknown else verdict.answer


def size(word: Word) -> int:
    """Bytes that a size stands for, as Docker and systemd read them (``64m``, ``10.24gb``).

    :raises Unsettled: it is filled in later, or is no size
    """
    # Limits of 64 bits are written in full: 18446744073709551615 is none.
    return _read(word, partial(parse_amount, most=1 << 64))


def quantity(word: Word) -> "Fraction":
    """The number that a Kubernetes quantity stands for (``500m``, ``64Gi``).

    :raises Unsettled: it is filled in later, or is no quantity
    """
    return _read(word, parse_quantity)


def _read(word: Word, parse: Callable[[str], T]) -> T:
    try:
        return parse(word.settled())
    except ParseError as error:
        raise Unsettled(word.location, str(error)) from None
