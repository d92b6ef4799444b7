"""``numadoctor check``."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from numadoctor.cli.common import (
    fail_on_options,
    open_host,
    output_option,
    sysroot_option,
    write_outputs,
)
from numadoctor.cli.processes import Choice, process_options

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.model import Target


@click.command("check", help="Examine this machine, or a process, and give a verdict.")
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="PID",
    help="Examine this process; may be given several times.",
)
@process_options
@click.option(
    "--exact",
    is_flag=True,
    help="Count all pages of the processes, however long that holds them up.",
)
@sysroot_option
@click.option(
    "--select",
    "selected",
    multiple=True,
    metavar="IDS",
    help="Run only these checks: ids, family letters or names, separated by commas.",
)
@click.option("--ignore", "ignored", multiple=True, metavar="IDS", help="Leave these checks out.")
@click.option(
    "--checks-dir",
    "checks_dirs",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Load a site's own checks from the Python files in this folder.",
)
@fail_on_options
@output_option(("text", "json"))
@click.option("-v", "--verbose", is_flag=True, help="Show also what passed, with its evidence.")
@click.option("--color/--no-color", "colour", default=None, help="Colour: default on a terminal.")
def command(
    pids: tuple[int, ...],
    name: str | None,
    cgroup: str | None,
    container: str | None,
    unit: str | None,
    tree: bool,
    exact: bool,
    sysroot: str | None,
    selected: tuple[str, ...],
    ignored: tuple[str, ...],
    checks_dirs: tuple[str, ...],
    fail_on: str,
    strict: bool,
    outputs: list[tuple[str, str | None]],
    verbose: bool,
    colour: bool | None,
) -> int:
    from numadoctor.engine.discovery import discover
    from numadoctor.engine.runner import UnknownSelection, run, select
    from numadoctor.model import Target

    host = open_host(sysroot)
    catalogue = discover(checks_dirs)
    try:
        checks = select(catalogue, _words(selected), _words(ignored))
    except UnknownSelection as error:
        raise click.UsageError(str(error)) from None
    choice = Choice(pids, name, cgroup, container, unit, tree)
    targets, incomplete = choice.find(host)
    report = run(
        host,
        checks,
        (Target(),) if choice.empty else targets,
        problems=catalogue.problems,
        fail_on=fail_on,
        strict=strict,
        incomplete=incomplete,
        afterwards=_about(host, targets, exact) if targets else None,
    )

    def render(kind: str, on_stdout: bool) -> str:
        if kind == "json":
            from numadoctor import __version__
            from numadoctor.report.json import dump, report_data

            return dump(report_data(report, __version__))
        from numadoctor.report.terminal import Terminal
        from numadoctor.report.text import render as render_text

        terminal = Terminal.of_stdout(colour=colour) if on_stdout else Terminal(100)
        return render_text(report, terminal, verbose=verbose)

    write_outputs(outputs, render)
    return report.exit_code


def _about(
    host: "Host", targets: "list[Target]", exact: bool
) -> "Callable[[], tuple[str, Iterable[str]]]":
    """What the report says of the processes, once it is known."""
    from numadoctor.model.placement import Method
    from numadoctor.placement.examination import examination

    found = examination(host, targets, Method.EXACT if exact else None)

    def tell() -> tuple[str, tuple[str, ...]]:
        from numadoctor.report.processes import head

        if not found.measured:
            told = [f"pid {target.pid} {target.name}".strip() for target in targets]
            return ", ".join(told), ()
        return head(found.placement, found.open_gpus()), found.placement.incomplete

    return tell


def _words(values: tuple[str, ...]) -> list[str]:
    return [word for value in values for word in value.replace(",", " ").split()]
