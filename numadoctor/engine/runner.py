"""Runs checks against a host and turns whatever happens into findings."""

import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from numadoctor.engine.catalogue import Catalogue, Problem
from numadoctor.engine.exitcodes import exit_code
from numadoctor.engine.oneline import one_line
from numadoctor.engine.registry import Check, Requires, Scope
from numadoctor.model import (
    Denied,
    Evidence,
    Finding,
    Missing,
    Report,
    Severity,
    Status,
    Target,
    Undecided,
    Vanished,
    skip,
    unknown,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

_STATUS_ORDER = {
    status: rank
    for rank, status in enumerate(
        (
            Status.FAIL,
            Status.ERROR,
            Status.WARN,
            Status.UNKNOWN,
            Status.INFO,
            Status.PASS,
            Status.SKIP,
        )
    )
}
_NO_PROCESS = "no process was named: --pid, --name, --cgroup, --container or --unit"
_SEVERITY_ORDER = {Severity.HIGH: 0, Severity.MEDIUM: 1, Severity.LOW: 2}


class UnknownSelection(ValueError):
    """``--select`` or ``--ignore`` names no check; the message lists the nearest ones."""


# What can be examined where there is a machine.
MACHINE_SCOPES = (Scope.MACHINE, Scope.PROCESS, Scope.PROCESSES)


def select(
    catalogue: Catalogue,
    chosen: Iterable[str] = (),
    ignored: Iterable[str] = (),
    *,
    scopes: Container[Scope] = MACHINE_SCOPES,
) -> list[Check]:
    """The checks whose id, family or name is in ``chosen`` (all, if empty), less ``ignored``.

    :param scopes: what there is to examine; checks of other things are left out
    :raises UnknownSelection: a word stands for no check
    """
    chosen, ignored = set(chosen), set(ignored)
    wanted = catalogue.of(scopes, chosen)
    for word in sorted(chosen | ignored):
        if not catalogue.find(word):
            raise UnknownSelection(_no_such_check(word, list(catalogue)) + _not_loaded(catalogue))
    # One file of settings serves all commands: its words need not all be of this one.
    if chosen and not wanted:
        raise UnknownSelection(_elsewhere(_checks_text(chosen), scopes))
    return [check for check in wanted if not any(map(check.answers_to, ignored))]


def _checks_text(words: Iterable[str]) -> str:
    listed = sorted(words)
    return f"{', '.join(listed)} {'is a check' if len(listed) == 1 else 'are checks'}"


def _elsewhere(words: str, scopes: Container[Scope]) -> str:
    if Scope.FILE in scopes:
        return f"{words} of machines and processes: numadoctor check"
    return f"{words} of deployment files: numadoctor lint"


def _no_such_check(word: str, checks: list[Check]) -> str:
    from difflib import get_close_matches

    known = [check.id for check in checks] + [check.name for check in checks]
    near = get_close_matches(word.upper(), known, 2) or get_close_matches(word.lower(), known, 2)
    hint = f"did you mean {' or '.join(near)}?" if near else "numadoctor list shows all"
    return f'no check "{word}": {hint}'


def _not_loaded(catalogue: Catalogue) -> str:
    return "".join(f"; not loaded: {p.origin}: {p.reason}" for p in catalogue.problems)


def run(
    host: "Host",
    checks: Iterable[Check],
    targets: Iterable[Target] = (Target(),),
    *,
    problems: Iterable[Problem] = (),
    fail_on: str = "fail",
    strict: bool = False,
    incomplete: Iterable[str] = (),
    afterwards: Callable[[], tuple[str, Iterable[str]]] | None = None,
) -> Report:
    """Examine ``host`` and each target; always returns a report, whatever a check does.

    :param incomplete: targets that were asked for and could not be examined,
        one line each
    :param afterwards: asked when all checks have run: a line about the targets, and further
        lines for ``incomplete``
    """
    start = time.monotonic()
    targets, incomplete = tuple(targets), tuple(incomplete)
    findings = [_of_problem(problem) for problem in problems]
    about = ", ".join(f"pid {t.pid} {t.name}".strip() for t in targets if t.pid is not None)
    # What a check prints must not end up in the report.
    with redirect_stdout(sys.stderr):
        for check in checks:
            findings += _each_once(
                finding
                for target in _of_scope(check.scope, targets)
                for finding in _run_one(check, host, target)
            )
        if afterwards:
            about, further = afterwards()
            incomplete = tuple(dict.fromkeys((*incomplete, *further)))
    return _report(
        host.name, about, findings, start, incomplete=incomplete, fail_on=fail_on, strict=strict
    )


def _of_scope(scope: Scope, targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """What a check of that scope is run for, one after the other."""
    if scope is Scope.PROCESS:
        return targets
    if scope is Scope.PROCESSES:
        return (Target(together=tuple(t for t in targets if t.pid is not None)),)
    return (Target(),)


def _each_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """What several processes of one name have in common is told of the first."""
    told = set()
    for finding in findings:
        said = finding.status, finding.subject, finding.message, finding.cause, finding.fixes
        if said not in told:
            told.add(said)
            yield finding


class Document(Protocol):
    """A deployment file, or one of several documents in it, as checks of files are given it."""

    @property
    def subject(self) -> str: ...

    @property
    def need(self) -> str: ...


def run_on_files(
    machine: "Host | None",
    checks: Iterable[Check],
    documents: Iterable[Document],
    *,
    name: str,
    problems: Iterable[Problem] = (),
    fail_on: str = "fail",
    strict: bool = False,
    incomplete: Iterable[str] = (),
) -> Report:
    """Examine each document with the checks that need its kind.

    :param machine: the one that the files are for, where that is known
    :param name: what the report is about, in a word or two
    :param incomplete: files that were asked for and could not be read, one line each
    """
    start = time.monotonic()
    incomplete = tuple(incomplete)
    findings = [_of_problem(problem) for problem in problems]
    by_need: dict[str, list[Check]] = {}
    for check in checks:
        for need in check.needs:
            by_need.setdefault(need, []).append(check)
    with redirect_stdout(sys.stderr):
        for document in documents:
            for check in by_need.get(document.need, ()):
                judge = partial(check.function, machine, document)
                findings += _stamped(check, judge, document.subject)
    return _report(name, "", findings, start, incomplete=incomplete, fail_on=fail_on, strict=strict)


def _report(
    name: str,
    about: str,
    findings: Iterable[Finding],
    start: float,
    *,
    incomplete: tuple[str, ...],
    fail_on: str,
    strict: bool,
) -> Report:
    """The findings, worst first, with the exit code that follows from them."""
    findings = sorted(findings, key=rank)
    code = exit_code(findings, fail_on=fail_on, strict=strict, incomplete=bool(incomplete))
    return Report(
        host=name,
        target=about,
        findings=tuple(findings),
        exit_code=int(code),
        seconds=time.monotonic() - start,
        incomplete=incomplete,
        fail_on=fail_on,
        strict=strict,
    )


def rank(finding: Finding) -> tuple[int, int, str]:
    """Where a finding stands in a report: the worst first."""
    return _STATUS_ORDER[finding.status], _SEVERITY_ORDER[finding.severity], finding.id


def _run_one(check: Check, host: "Host", target: Target) -> Iterator[Finding]:
    subject = {Scope.PROCESS: target.subject, Scope.PROCESSES: "processes"}.get(
        check.scope, "machine"
    )

    def examine() -> Iterator[Finding]:
        if check.scope is Scope.PROCESSES and not target.together:
            yield skip(_NO_PROCESS, subject=subject)
            return
        if reason := _does_not_apply(check, host):
            yield skip(reason, subject=subject)
            return
        empty = True
        for finding in check.function(host, target):
            empty = False
            yield finding
        if empty:
            yield skip("nothing here for this check to look at", subject=subject)

    return _stamped(check, examine, subject)


def _stamped(
    check: Check, examine: Callable[[], Iterator[Finding]], subject: str
) -> Iterator[Finding]:
    """What the check says; whatever happens in it, a finding tells."""
    try:
        for finding in examine():
            yield _stamp(check, finding)
    except Undecided as error:
        yield _stamp(check, undecided(error, subject))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a check may raise anything, SystemExit included
        yield _stamp(check, _crashed(check, error, subject))


def _does_not_apply(check: Check, host: "Host") -> str:
    if check.requires is Requires.NOTHING:
        return ""
    if not host.topology.numa:
        return "this kernel has no NUMA support (no /sys/devices/system/node)"
    if check.requires is Requires.SEVERAL_NODES and len(host.topology.nodes) < 2:
        return "the machine has one NUMA node: there is nothing to place"
    return ""


def _stamp(check: Check, finding: Finding) -> Finding:
    texts = [finding.message, finding.subject, finding.cause]
    texts += [text for item in finding.evidence for text in (item.source, item.text)]
    texts += [text for fix in finding.fixes for text in (fix.launcher, fix.text)]
    for text in texts:
        # Found here it is this check's error; found by a renderer it would be the report's.
        if type(text) is not str:
            raise TypeError(f"a finding holds {text!r} where text belongs")
    return replace(
        finding,
        status=Status(finding.status),
        id=check.id,
        name=check.name,
        severity=check.severity,
        source=finding.source or check.sections.get("Source", ""),
    )


def undecided(error: Undecided, subject: str) -> Finding:
    """The finding that stands for a fact that could not be had."""
    return unknown(
        str(error).removesuffix(f": {error.hint}"),
        subject=subject,
        cause=_how_to_look(error),
        evidence=(Evidence(error.path, error.reason),),
    )


def _how_to_look(error: Undecided) -> str:
    if error.hint:
        return f"{error.hint[0].upper()}{error.hint[1:]}."
    if isinstance(error, Denied):
        return "Run numadoctor as the owner of what is examined, or give it the right to read this."
    if isinstance(error, Vanished):
        return "The process ended; examine one that is running."
    if isinstance(error, Missing):
        return "This kernel, container or captured folder does not show it."
    return ""


def _crashed(check: Check, error: BaseException, subject: str) -> Finding:
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    return Finding(
        Status.ERROR,
        f"check {check.id} ({check.name}) crashed: {one_line(error)}",
        subject=subject,
        cause="The other checks ran. This is a defect of the check, not a verdict on the machine.",
        evidence=(Evidence(f"{last.filename}:{last.lineno}", last.line or ""),),
    )


def _of_problem(problem: Problem) -> Finding:
    return Finding(
        Status.ERROR,
        f"{problem.origin}: {problem.reason}",
        subject="plugins",
        cause="Its checks did not run; all others did.",
        name="plugin-not-loaded",
    )
