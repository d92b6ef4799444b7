"""Writes docs/checks/ID.md, docs/checks/README.md and docs/exit-codes.md from the code.

``python docs/generate.py`` writes; with ``--check`` it only says what is out of
step, and exits 1 if something is.
"""

import sys
from pathlib import Path

from numadoctor.engine.discovery import discover
from numadoctor.engine.exitcodes import ExitCode
from numadoctor.engine.registry import FAMILIES, Check, Requires

DOCS = Path(__file__).parent


def check_page(check: Check) -> str:
    """The page of one check."""
    lines = [f"# {check.id} {check.name}", "", check.summary, ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| family | {check.family}: {FAMILIES[check.family]} |"]
    lines += [f"| severity | {check.severity.value} |"]
    lines += [f"| examines | {check.scope.value} |"]
    if check.requires is not Requires.NOTHING:
        lines += [f"| applies to a machine with | {check.requires.value} |"]
    lines += [f"| looks at | {', '.join(f'`{need}`' for need in check.needs)} |"]
    for title, text in check.sections.items():
        lines += ["", f"## {title}", "", _body(text)]
    return "\n".join(lines) + "\n"


def _body(text: str) -> str:
    """Prose stays prose; a paragraph that is indented in the docstring is a block to copy."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if all(line.startswith("    ") for line in lines):
            paragraph = "\n".join(["```", *(line[4:] for line in lines), "```"])
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def index_page(checks: list[Check]) -> str:
    """The table of all checks."""
    lines = ["# Checks", "", "`numadoctor explain ID` prints the same pages.", ""]
    for letter, title in FAMILIES.items():
        family = [check for check in checks if check.family == letter]
        if family:
            lines += [f"## {letter}: {title}", "", "| id | name | what it finds |", "|---|---|---|"]
            lines += [f"| [{c.id}]({c.id}.md) | {c.name} | {c.summary} |" for c in family]
            lines.append("")
    return "\n".join(lines)


def exit_code_page() -> str:
    """The one table of exit codes."""
    lines = ["# Exit codes", "", "Every command ends with one of these.", ""]
    lines += ["| code | name | meaning |", "|---|---|---|"]
    lines += [f"| {code.value} | {code.name} | {code.meaning} |" for code in ExitCode]
    lines += [
        "",
        "What was found outranks what was not: a report with a failure and an unreadable file",
        "exits 1, so a pipeline that stops at 1 stops there too. `--fail-on warn` lowers the bar,",
        "`--fail-on never` removes it; `--strict` makes an `unknown` finding count as incomplete.",
        "What is [waived or in the baseline](configuration.md) does not count.",
        "",
        "`check` and `lint` with `-o nagios` or `-o npd` on standard output end with the codes of",
        "what calls such plugins instead: [formats](formats.md#which-exit-code).",
    ]
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Every generated page by its path."""
    checks = list(discover())
    generated = {DOCS / "checks" / f"{check.id}.md": check_page(check) for check in checks}
    generated[DOCS / "checks" / "README.md"] = index_page(checks)
    generated[DOCS / "exit-codes.md"] = exit_code_page()
    return generated


def main() -> int:
    generated = pages()
    stale = set((DOCS / "checks").glob("*.md")) - set(generated)
    changed = [p for p, text in generated.items() if not p.exists() or p.read_text() != text]
    for path in sorted(stale | set(changed)):
        print(f"{'stale' if path in stale else 'out of step'}: {path.relative_to(DOCS.parent)}")
    if "--check" in sys.argv:
        return int(bool(stale or changed))
    for path in stale:
        path.unlink()
    for path in changed:
        path.parent.mkdir(exist_ok=True)
        path.write_text(generated[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
