"""The verdicts on the six NUMA calls, as text and as JSON."""

from collections.abc import Iterable
from typing import Any

from numadoctor.model import Evidence, Status
from numadoctor.model.calls import CallVerdict, Outlook, Verdict
from numadoctor.report.fixes import fix_lines
from numadoctor.report.terminal import Terminal

_INDENT = 6
_COLOURS = {
    Status.PASS: "green",
    Status.FAIL: "red",
    Status.WARN: "yellow",
    Status.UNKNOWN: "blue",
}
_HEADER = ("call", "answer", "verdict", "who")


def render(outlook: Outlook, terminal: Terminal, *, verbose: bool = False) -> str:
    """The outlook as text that fits ``terminal``; with ``verbose`` also why a call passes."""
    lines = [
        terminal.paint(line, _COLOURS.get(outlook.status, "cyan"), bold=True)
        for line in terminal.wrap(terminal.text(outlook.headline))
    ]
    lines += ["", *_table(outlook.calls, terminal)]
    if outlook.source != "probe":
        lines += ["", *_source(outlook, terminal)]
    told = [c for c in outlook.calls if verbose or c.verdict is not Verdict.REACHED]
    if told:
        lines += ["", *_reasons(told, terminal)]
    if told or outlook.status is not Status.PASS:
        lines += ["", *_seen(outlook, verbose, terminal)]
    # From the last call: what is closed in most places needs the least to live without.
    fixes = list(dict.fromkeys(fix for call in reversed(outlook.calls) for fix in call.fixes))
    if fixes:
        lines += ["", "fix   least privilege first", *fix_lines(fixes, terminal, 2)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _table(calls: tuple[CallVerdict, ...], terminal: Terminal) -> list[str]:
    rows = [(c.name, c.answer, c.verdict.value, c.blocked_by or "") for c in calls]
    widths = [max(len(row[column]) for row in [_HEADER, *rows]) for column in range(3)]
    lines = []
    for row, status in zip([_HEADER, *rows], [None, *(c.status for c in calls)], strict=True):
        cells = [terminal.text(cell).ljust(width) for cell, width in zip(row, widths, strict=False)]
        line = terminal.cut("  ".join([*cells, terminal.text(row[3])]).rstrip())
        if status in _COLOURS:
            line = line.replace(cells[2], terminal.paint(cells[2], _COLOURS[status]), 1)
        lines.append(line)
    return lines


_SOURCES = {
    "profile": "Judged from the profile; nothing was run.",
    "filters": "Judged by the seccomp filters of the process.",
    "config": "Judged by what the container's runtime was told; its filters were not read.",
    "status": "Judged by /proc/PID/status alone.",
}


def _source(outlook: Outlook, terminal: Terminal) -> list[str]:
    """Where the answers come from, and what programs of other ABIs would get."""
    text = _SOURCES[outlook.source]
    if outlook.stopped is not None:
        text += f" One thread stood still for {1000 * outlook.stopped:.2f} ms."
    lines = terminal.wrap(text)
    for abi, answers in outlook.others.items():
        by_answer: dict[str, list[str]] = {}
        for call, answer in answers.items():
            by_answer.setdefault(answer, []).append(call)
        told = [
            f"{answer} for {'all six' if len(calls) == len(answers) else ', '.join(calls)}"
            for answer, calls in by_answer.items()
        ]
        lines += terminal.wrap(terminal.text(f"{abi} programs get {'; '.join(told)}."), 2, 0)
    return lines


def _reasons(calls: list[CallVerdict], terminal: Terminal) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for call in calls:
        by_reason.setdefault(call.because, []).append(call.name)
    lines = []
    for because, names in by_reason.items():
        about = "all six calls" if len(names) == 6 else ", ".join(names)
        lines += terminal.wrap(terminal.text(f"{about}:"), _INDENT)
        lines += terminal.wrap(terminal.text(because), _INDENT + 2)
    return _labelled("why", lines)


def _seen(outlook: Outlook, verbose: bool, terminal: Terminal) -> list[str]:
    common = set(outlook.evidence)
    own = [e for call in outlook.calls for e in call.evidence if e not in common]
    if not verbose:
        # What a call answered stands in the table.
        own = [e for e in own if not e.source.startswith("system call")]
    lines: list[str] = []
    for item in dict.fromkeys([*own, *outlook.evidence]):
        lines += terminal.wrap(terminal.text(_evidence_line(item)), _INDENT + 2, _INDENT)
    return _labelled("seen", lines)


def _evidence_line(item: Evidence) -> str:
    words = (" ".join(line.split()) for line in item.text.splitlines())
    return f"{item.source}: {' | '.join(filter(None, words)) or '(empty)'}"


def _labelled(label: str, lines: Iterable[str]) -> list[str]:
    """The lines, with the label in the indent of the first."""
    first, *rest = lines
    return [label + first[len(label) :], *rest]


def data(outlook: Outlook, exit_code: int) -> dict[str, Any]:
    """The outlook as JSON data; docs/schema/syscalls.schema.json describes it."""
    from numadoctor.report.json import SCHEMA_VERSION, evidence_data

    calls = outlook.calls
    return {
        "schema_version": SCHEMA_VERSION,
        "abi": outlook.abi,
        "numa": outlook.numa,
        "works": outlook.works,
        "status": outlook.status.value,
        "headline": outlook.headline,
        "summary": {v.value: sum(call.verdict is v for call in calls) for v in Verdict},
        "exit_code": exit_code,
        "source": outlook.source,
        "stopped_ms": None if outlook.stopped is None else round(1000 * outlook.stopped, 3),
        "other_abis": {abi: dict(answers) for abi, answers in outlook.others.items()},
        "calls": [_call_data(call) for call in calls],
        "evidence": [evidence_data(item) for item in outlook.evidence],
    }


def _call_data(call: CallVerdict) -> dict[str, Any]:
    from numadoctor.report.json import evidence_data, fix_data

    return {
        "name": call.name,
        "number": call.number,
        "verdict": call.verdict.value,
        "status": call.status.value,
        "answer": call.answer,
        "errno": call.errno,
        "blocked_by": call.blocked_by,
        "because": call.because,
        "evidence": [evidence_data(item) for item in call.evidence],
        "fixes": [fix_data(fix) for fix in call.fixes],
    }
