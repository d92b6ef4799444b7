"""A report for people: the verdict first, then what is wrong in order of harm, then the fix."""

from collections.abc import Iterable
from itertools import groupby

from numadoctor.model import Evidence, Finding, Fix, Report, Status
from numadoctor.report.terminal import Terminal

# The column at which what a finding says begins.
_INDENT = 12
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
_LAUNCHER_WIDTH = 12


def verdict(report: Report) -> str:
    """What the whole report comes to, in a few words."""
    if report.count(Status.FAIL):
        return "not fit"
    if report.count(Status.ERROR) or report.incomplete:
        return "examination incomplete"
    if report.count(Status.WARN):
        return "fit, with warnings"
    if not report.count(Status.PASS) and not report.count(Status.INFO):
        return "not decided" if report.count(Status.UNKNOWN) else "nothing to examine"
    return "fit"


def headline(report: Report) -> str:
    """The line that can be pasted into a chat and tells the whole story."""
    counts = [
        (report.count(Status.FAIL), "problem", "problems"),
        (report.count(Status.ERROR), "crashed check", "crashed checks"),
        (report.count(Status.WARN), "warning", "warnings"),
        (report.count(Status.PASS), "passed", "passed"),
        (report.count(Status.UNKNOWN), "not decided", "not decided"),
    ]
    told = [f"{n} {one if n == 1 else many}" for n, one, many in counts if n]
    return f"{report.host}: {verdict(report)} · {', '.join(told) or 'no check ran'}"


def render(report: Report, terminal: Terminal, *, verbose: bool = False) -> str:
    """The report as text that fits ``terminal``; with ``verbose`` also what passed."""
    lines = _head(report, terminal)
    shown = [f for f in report.findings if f.status in _PROBLEMS]
    for _, group in groupby(shown, key=_same_advice):
        lines += ["", *_block(list(group), terminal)]
    lines += _briefly(report, Status.UNKNOWN, "Not decided:", terminal, verbose)
    lines += _briefly(report, Status.INFO, "Good to know:", terminal, verbose)
    if verbose:
        lines += _briefly(report, Status.PASS, "Passed:", terminal, verbose)
        lines += _briefly(report, Status.SKIP, "Does not apply:", terminal, verbose)
    lines += ["", *_foot(report, terminal, verbose)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(report: Report, terminal: Terminal) -> list[str]:
    colour = {"fit": "green", "not fit": "red"}.get(verdict(report), "yellow")
    line, seconds = terminal.text(headline(report)), f"{report.seconds:.1f} s"
    if len(line) + len(seconds) + 2 <= terminal.width:
        padding = " " * (terminal.width - len(line) - len(seconds))
        lines = [terminal.paint(line, colour, bold=True) + padding + seconds]
    else:
        lines = [terminal.paint(part, colour, bold=True) for part in terminal.wrap(line, 2, 0)]
    if report.target:
        lines += terminal.wrap(terminal.text(report.target))
    for missing in report.incomplete:
        lines += terminal.wrap(terminal.text(f"not examined: {missing}"), 2, 0)
    return lines


def _same_advice(finding: Finding) -> tuple[object, ...]:
    return finding.id, finding.status, finding.cause, finding.fixes


def _block(findings: list[Finding], terminal: Terminal) -> list[str]:
    """Findings of one check with the same cause and fixes: each message, the rest once."""
    first = findings[0]
    label, colour = _LABELS[first.status]
    start = f"{label:<6}{first.id or '-':<6}"
    lines: list[str] = []
    for finding in findings:
        body = terminal.wrap(terminal.text(finding.message), _INDENT)
        lines += body
    painted = terminal.paint(label, colour, bold=True) + start[len(label) :]
    lines[0] = painted + lines[0][_INDENT:]
    if first.cause:
        lines += terminal.wrap(terminal.text(first.cause), _INDENT)
    lines += _evidence((e for f in findings for e in f.evidence), terminal)
    return lines + _fixes(first.fixes, terminal)


def _evidence(evidence: Iterable[Evidence], terminal: Terminal, most: int = 6) -> list[str]:
    unique = list(dict.fromkeys(evidence))
    lines: list[str] = []
    for number, item in enumerate(unique[:most]):
        text = " | ".join(filter(None, map(str.strip, item.text.splitlines()))) or "(empty)"
        line = f"{'Seen: ' if number == 0 else '      '}{item.source}: {text}"
        lines.append(terminal.cut(" " * _INDENT + terminal.text(line)))
    if len(unique) > most:
        lines.append(" " * _INDENT + f"      and {len(unique) - most} more (-o json has all)")
    return lines


def _fixes(fixes: Iterable[Fix], terminal: Terminal) -> list[str]:
    lines: list[str] = []
    for fix in fixes:
        flags = [
            word
            for word, is_set in (
                ("root", fix.needs_root),
                ("restart", fix.needs_restart),
                ("persists", fix.persists),
            )
            if is_set
        ]
        note = f"   ({', '.join(flags)})" if flags else ""
        indent = _INDENT + _LAUNCHER_WIDTH
        # A command is to be copied: it is broken only where it has lines of its own.
        first, *rest = terminal.text(fix.text).splitlines() or [""]
        opening = ("      fix   " if not lines else " " * _INDENT) + f"{fix.launcher:<12}"
        if (
            fix.launcher == "any"
            or " " not in first
            or len(opening + first + note) <= terminal.width
        ):
            body = [opening + first]
        else:
            body = [opening + first]
        if len(body[-1] + note) > terminal.width and note:
            rest_lines = [" " * indent + line for line in rest]
            lines += [*body, *rest_lines, " " * indent + note.strip()]
        else:
            lines += [body[0] + note, *(" " * indent + line for line in rest)]
    return lines


def _briefly(
    report: Report, status: Status, title: str, terminal: Terminal, verbose: bool
) -> list[str]:
    findings = [f for f in report.findings if f.status is status]
    if not findings:
        return []
    lines = ["", title]
    for finding in findings:
        # The colour of the id alone, so that it never carries the meaning.
        body = terminal.wrap(terminal.text(_brief(finding)), 8, 0)
        body[0] = f"  {terminal.paint(finding.id or '-', _LABELS[status][1]):<4}" + body[0][4:]
        lines += [body[0], *body[1:]]
        if verbose:
            if finding.cause:
                lines += terminal.wrap(terminal.text(finding.cause), 8)
            lines += [line[_INDENT - 8 :] for line in _evidence(finding.evidence, terminal)]
    return lines


def _brief(finding: Finding) -> str:
    return f"{' ' * 8}{finding.message}"


def _foot(report: Report, terminal: Terminal, verbose: bool) -> list[str]:
    told = next((f.id for f in report.findings if f.status in _PROBLEMS and f.id), None)
    parts = [f"numadoctor explain {told} tells more"] if told else []
    if not verbose:
        parts.append("-v shows what passed")
    parts.append(f"exit {report.exit_code}")
    return terminal.wrap(terminal.text(" · ".join(parts)))
