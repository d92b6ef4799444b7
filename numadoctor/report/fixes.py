"""Fixes for people, by launcher; commands stay whole, so that they can be copied."""

from collections.abc import Iterable

from numadoctor.model import Fix
from numadoctor.report.terminal import Terminal, columns

# Two columns more than "kubernetes".
_LAUNCHER_WIDTH = 12

# What is changed by hand is told in a sentence, which nobody copies.
_IN_WORDS = ("bios", "vmware")

# A line of this length that stands above already is referred to.
_LONG = 60


def fix_lines(fixes: Iterable[Fix], terminal: Terminal, indent: int) -> list[str]:
    """The fixes as lines, each indented by ``indent`` columns, those for one launcher together.

    A line of a fix that begins with ``# `` explains it and is filled, and JSON may
    be broken at blanks. All others are as wide as they are, wider than the
    terminal if need be: one that was broken could not be copied.
    """
    by_launcher: dict[str, list[Fix]] = {}
    for fix in fixes:
        by_launcher.setdefault(fix.launcher, []).append(fix)
    lines: list[str] = []
    told: set[str] = set()
    for launcher, group in by_launcher.items():
        name = terminal.cut(terminal.text(launcher), _LAUNCHER_WIDTH - 1)
        start = f"{' ' * indent}{name:<{_LAUNCHER_WIDTH - 1}} "
        body = [line for fix in group for line in _fix(fix, terminal, len(start), told)]
        lines += [start + body[0].lstrip(), *body[1:]]
    return lines


def _fix(fix: Fix, terminal: Terminal, indent: int, told: set[str]) -> list[str]:
    lines: list[str] = []
    for line in _untold(fix.text, told):
        text = terminal.text(line)
        if fix.launcher in _IN_WORDS or text.startswith("{"):
            lines += terminal.wrap(text, indent)
        elif text.startswith("# "):
            lines += _comment(text[2:], terminal, indent)
        else:
            lines.append(" " * indent + text)
    note = f"({', '.join(_flags(fix))})"
    if not _flags(fix):
        return lines
    if columns(lines[0]) + 3 + len(note) <= terminal.width:
        return [f"{lines[0]}   {note}", *lines[1:]]
    return [*lines, *terminal.wrap(note, indent)]


def _untold(text: str, told: set[str]) -> list[str]:
    """The lines of a fix, without explanations and long entries that stand above already."""
    first, *rest = text.splitlines() or [""]
    lines = [first]
    for line in rest:
        if line not in told:
            lines.append(line)
        elif len(line) > _LONG and not line.startswith("# "):
            lines.append("# the entry above")
    told.update(line for line in rest if line.startswith("# ") or len(line) > _LONG)
    return lines


def _comment(text: str, terminal: Terminal, indent: int) -> list[str]:
    marked = Terminal(terminal.width - 2).wrap(text, indent)
    return [f"{line[:indent]}# {line[indent:]}" for line in marked]


def _flags(fix: Fix) -> list[str]:
    passing = fix.needs_root and not fix.needs_restart and not fix.persists
    flags = {
        "root": fix.needs_root,
        "restart": fix.needs_restart,
        "permanent": fix.persists,
        "until reboot": passing,
    }
    return [word for word, holds in flags.items() if holds]
