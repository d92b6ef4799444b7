"""A report for people: the verdict first, then what is wrong in order of harm, then the fix."""

import re
from collections.abc import Callable, Iterable
from itertools import groupby

from numadoctor.model import Evidence, Finding, Report, Status
from numadoctor.report.fixes import fix_lines
from numadoctor.report.terminal import Terminal, columns
from numadoctor.report.verdict import headline, verdict

# The columns at which what a finding says begins: a problem's, and one told briefly.
_INDENT, _BRIEF_INDENT = 12, 8

_LABELS = {
    Status.FAIL: ("FAIL", "red"),
    Status.ERROR: ("ERROR", "magenta"),
    Status.WARN: ("WARN", "yellow"),
    Status.UNKNOWN: ("?", "blue"),
    Status.INFO: ("info", "cyan"),
    Status.PASS: ("pass", "green"),
    Status.SKIP: ("skip", "cyan"),
}
_PROBLEMS = (Status.FAIL, Status.ERROR, Status.WARN)

# Evidence is to be recognised, not read whole: the file is there, and -o json.
_MOST_EVIDENCE, _LONGEST_EVIDENCE = 6, 2


def render(report: Report, terminal: Terminal, *, verbose: bool = False) -> str:
    """The report as text that fits ``terminal``; with ``verbose`` also what passed."""
    lines = _head(report, terminal)
    counting = [f for f in report.findings if f.suppressed is None]
    problems = (f for f in counting if f.status in _PROBLEMS)
    for _, same in groupby(problems, lambda f: (f.id, f.status, f.cause, f.fixes)):
        lines += ["", *_problem(list(same), terminal)]
    sections = [(Status.UNKNOWN, "Not decided"), (Status.INFO, "Good to know")]
    if verbose:
        sections += [(Status.PASS, "Passed"), (Status.SKIP, "Does not apply")]
    for status, title in sections:
        findings = sorted((f for f in counting if f.status is status), key=lambda f: f.id)
        if findings:
            lines += ["", terminal.paint(title, _LABELS[status][1], bold=True)]
            lines += _section(findings, terminal, verbose)
    lines += _exceptions(report, terminal, verbose)
    lines += ["", *_foot(report, terminal, verbose)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(report: Report, terminal: Terminal) -> list[str]:
    colour = {"fit": "green", "not fit": "red"}.get(verdict(report), "yellow")
    first, *rest = _wrap_counts(terminal.text(headline(report)), terminal)
    seconds = f"{report.seconds:.1f} s"
    lines = [terminal.paint(line, colour, bold=True) for line in (first, *rest)]
    room = terminal.width - columns(first)
    if not rest and room > len(seconds):
        lines[0] += seconds.rjust(room)
    lines += terminal.wrap(terminal.text(report.target), 2, 0) if report.target else []
    for missing in report.incomplete:
        lines += terminal.wrap(terminal.text(f"not examined: {missing}"), 2, 0)
    return lines


def _wrap_counts(line: str, terminal: Terminal) -> list[str]:
    """The headline wrapped so that a number stays with what it counts."""
    kept = re.sub("(?<=[0-9]) | (?=decided|checks?\\b)", "\0", line)
    return [part.replace("\0", " ") for part in terminal.wrap(kept, 2, 0)]


def _problem(findings: list[Finding], terminal: Terminal) -> list[str]:
    """Findings of one check with the same cause and fixes: told once, with each one's message."""
    first = findings[0]
    label, colour = _LABELS[first.status]
    lines: list[str] = []
    for finding in findings:
        lines += terminal.wrap(terminal.text(_placed(finding)), _INDENT)
    start = f"{label:<6}{terminal.text(first.id) or '-':<5}"
    lines[0] = (
        terminal.paint(label, colour, bold=True) + f"{start} "[len(label) :] + lines[0].lstrip()
    )
    lines += _cause(first, terminal, _INDENT)
    lines += _evidence((e for f in findings for e in f.evidence), terminal, _INDENT)
    fixes = fix_lines(first.fixes, terminal, _INDENT)
    if fixes:
        fixes[0] = "      fix".ljust(_INDENT) + fixes[0].lstrip()
    return lines + fixes


def _evidence(evidence: Iterable[Evidence], terminal: Terminal, indent: int) -> list[str]:
    unique = list(dict.fromkeys(evidence))
    lines: list[str] = []
    for item in unique[:_MOST_EVIDENCE]:
        rows = (" ".join(row.split()) for row in item.text.splitlines())
        text = f"{item.source}: {' | '.join(filter(None, rows)) or '(empty)'}"
        told = terminal.wrap(terminal.text(text), indent + 8, indent + 6)
        rest = " ".join(line.lstrip() for line in told[_LONGEST_EVIDENCE - 1 :])
        if len(told) >= _LONGEST_EVIDENCE:
            told[_LONGEST_EVIDENCE - 1 :] = [terminal.cut(" " * (indent + 8) + rest)]
        lines += told
    if len(unique) > _MOST_EVIDENCE:
        lines.append(" " * (indent + 6) + f"and {len(unique) - _MOST_EVIDENCE} more (-o json)")
    if lines:
        lines[0] = " " * indent + "Seen: " + lines[0].lstrip()
    return lines


def _section(findings: list[Finding], terminal: Terminal, verbose: bool) -> list[str]:
    """Findings told briefly: one message for all that say the same, then their common advice."""
    lines: list[str] = []
    for advised in _by(findings, lambda f: (f.cause, f.fixes)):
        for same in _by(advised, _placed):
            lines += _brief(same, terminal)
            if verbose:
                lines += _evidence((e for f in same for e in f.evidence), terminal, _BRIEF_INDENT)
        first = advised[0]
        # How to let numadoctor look is always told; what lies behind the rest, to who asks.
        if verbose or first.status is Status.UNKNOWN:
            lines += _cause(first, terminal, _BRIEF_INDENT)
            lines += fix_lines(first.fixes, terminal, _BRIEF_INDENT)
    return lines


def _by(findings: list[Finding], key: Callable[[Finding], object]) -> list[list[Finding]]:
    """The findings in groups of the same ``key``, in the order in which the keys are met."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(key(finding), []).append(finding)
    return list(groups.values())


def _cause(finding: Finding, terminal: Terminal, indent: int) -> list[str]:
    return terminal.wrap(terminal.text(finding.cause), indent) if finding.cause else []


def _brief(findings: list[Finding], terminal: Terminal) -> list[str]:
    ids = [terminal.text(i) or "-" for i in dict.fromkeys(f.id for f in findings)]
    start = f"  {' '.join(ids):<4}  "
    lines = terminal.wrap(start + terminal.text(_placed(findings[0])), _BRIEF_INDENT, 0)
    # The colour of the ids alone: the words carry the meaning.
    painted = terminal.paint(ids[0], _LABELS[findings[0].status][1])
    lines[0] = lines[0].replace(ids[0], painted, 1)
    return lines


def _placed(finding: Finding) -> str:
    """What a finding says, behind the place in a file that it is about."""
    return f"{finding.location}: {finding.message}" if finding.location else finding.message


def _exceptions(report: Report, terminal: Terminal, verbose: bool) -> list[str]:
    """What does not count and why, and what is to be told about the waivers themselves."""
    lines = []
    for finding in sorted(report.findings, key=lambda f: f.id):
        # A baseline may know hundreds; a waiver was written by somebody, one by one.
        if finding.suppressed and (verbose or finding.suppressed.kind == "waiver"):
            told = f"  {finding.id or '-':<4}  {_placed(finding)} ({finding.suppressed})"
            lines += terminal.wrap(terminal.text(told), _BRIEF_INDENT, 0)
    for remark in report.remarks:
        lines += terminal.wrap(terminal.text(remark), _BRIEF_INDENT, 2)
    return ["", terminal.paint("Waivers and settings", "cyan", bold=True), *lines] if lines else []


def _foot(report: Report, terminal: Terminal, verbose: bool) -> list[str]:
    problems = (f for f in report.findings if f.status in _PROBLEMS and not f.suppressed)
    told = next((f.id for f in problems if f.id), None)
    parts = [f"numadoctor explain {told} tells more"] if told else []
    if not verbose:
        parts.append("-v shows what passed")
    parts.append(f"exit {report.exit_code}")
    return terminal.wrap(terminal.text(" · ".join(parts)))
