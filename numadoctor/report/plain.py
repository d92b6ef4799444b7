"""Text for files that machines read: nothing in it acts on a terminal or breaks a format."""

from numadoctor.model import Finding, Fix
from numadoctor.report.terminal import sanitise

# What a person reads in a CI system; the whole is in the JSON.
_LONGEST_EVIDENCE = 300


def line(text: str, longest: int = 0) -> str:
    """``text`` on one line, cut to ``longest`` characters where that is given."""
    text = sanitise(text)
    return text if not longest or len(text) <= longest else text[: longest - 3].rstrip() + "..."


def lines(text: str) -> str:
    """``text`` with its lines and nothing else that is not printable."""
    return "\n".join(sanitise(part) for part in text.split("\n"))


def told(finding: Finding) -> str:
    """All that a finding says, a line or more for each part."""
    where = f"{finding.location}: " if finding.location else ""
    parts = [f"{finding.status.value}: {where}{finding.message}"]
    parts += [f"about: {finding.subject}"] if finding.subject else []
    parts += [finding.cause] if finding.cause else []
    parts += [str(finding.suppressed)] if finding.suppressed else []
    cleaned = [line(part) for part in parts]
    cleaned += [
        line(f"seen: {item.source}: {item.text.strip()}", _LONGEST_EVIDENCE)
        for item in finding.evidence
    ]
    cleaned += [fix_text(fix) for fix in finding.fixes]
    return "\n".join(cleaned)


def fix_text(fix: Fix) -> str:
    """A fix with its launcher and what it takes; commands of several lines stay whole."""
    flags = {"root": fix.needs_root, "restart": fix.needs_restart, "permanent": fix.persists}
    takes = ", ".join(word for word, holds in flags.items() if holds)
    start = f"fix for {line(fix.launcher)}" + (f" ({takes})" if takes else "")
    commands = lines(fix.text).split("\n")
    if len(commands) == 1:
        return f"{start}: {commands[0]}"
    return "\n".join([f"{start}:", *(f"    {part}" for part in commands)])
