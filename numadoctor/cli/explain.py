"""``numadoctor explain``."""

from typing import TYPE_CHECKING, Any

import click

from numadoctor.cli.common import checks_dir_option, output_option, write_outputs
from numadoctor.engine.registry import Check, Requires

if TYPE_CHECKING:
    from numadoctor.report.terminal import Terminal


def check_data(check: Check) -> dict[str, Any]:
    """A check's declaration and documentation as JSON data."""
    return {
        "id": check.id,
        "name": check.name,
        "summary": check.summary,
        "severity": check.severity.value,
        "scope": check.scope.value,
        "requires": check.requires.value,
        "needs": list(check.needs),
        "sections": check.sections,
    }


def _complete_id(_ctx: object, _param: object, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from numadoctor.engine.discovery import discover

    return [
        CompletionItem(check.id, help=check.name)
        for check in discover()
        if check.id.startswith(incomplete.upper())
    ]


@click.command("explain", help="Tell what a check looks at, why it matters and how to fix it.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=_complete_id)
@checks_dir_option
@output_option(("text", "json"))
def command(
    ids: tuple[str, ...], checks_dirs: tuple[str, ...], outputs: list[tuple[str, str | None]]
) -> None:
    from numadoctor.engine.discovery import discover
    from numadoctor.engine.registry import Scope
    from numadoctor.engine.runner import UnknownSelection, select

    try:
        checks = select(discover(checks_dirs), ids, scopes=tuple(Scope))
    except UnknownSelection as error:
        raise click.UsageError(str(error)) from None

    def render(name: str, on_stdout: bool) -> str:
        if name == "json":
            from numadoctor.report.json import SCHEMA_VERSION, dump

            data = [check_data(check) for check in checks]
            return dump({"schema_version": SCHEMA_VERSION, "checks": data})
        from numadoctor.report.terminal import Terminal

        terminal = Terminal.of_stdout() if on_stdout else Terminal(100)
        return "\n".join(_page(check, terminal) for check in checks)

    write_outputs(outputs, render)


def _page(check: Check, terminal: "Terminal") -> str:
    head = f"{check.id}  {check.name}: {check.summary}"
    lines = terminal.wrap(terminal.text(head), 6, 0)
    for title, text in check.sections.items():
        lines += ["", terminal.text(title)]
        for number, paragraph in enumerate(text.split("\n\n")):
            lines += [""] * bool(number) + _paragraph(paragraph, terminal)
    lines += ["", "Looks at"]
    lines += [f"  {terminal.text(need)}" for need in check.needs]
    if check.requires is not Requires.NOTHING:
        lines += ["", *terminal.wrap(f"Applies only to a machine with {check.requires.value}.")]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _paragraph(text: str, terminal: "Terminal") -> list[str]:
    # A list or an indented block keeps its lines; prose is filled.
    if any(line.startswith((" ", "- ", "* ")) for line in text.splitlines()):
        return [f"  {terminal.text(line)}" for line in text.splitlines()]
    return terminal.wrap(terminal.text(" ".join(text.split())), 2)
