"""``numadoctor check``."""

import click

from numadoctor.cli.common import (
    fail_on_options,
    open_host,
    output_option,
    sysroot_option,
    write_outputs,
)


@click.command("check", help="Examine this machine, or a process, and give a verdict.")
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="PID",
    help="Examine this process; may be given several times.",
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
    from numadoctor.engine.targets import find_targets
    from numadoctor.model import Target

    host = open_host(sysroot)
    catalogue = discover(checks_dirs)
    try:
        checks = select(catalogue, _words(selected), _words(ignored))
    except UnknownSelection as error:
        raise click.UsageError(str(error)) from None
    targets, incomplete = find_targets(host, pids)
    report = run(
        host,
        checks,
        targets if pids else (Target(),),
        problems=catalogue.problems,
        fail_on=fail_on,
        strict=strict,
        incomplete=incomplete,
    )

    def render(name: str, on_stdout: bool) -> str:
        if name == "json":
            from numadoctor import __version__
            from numadoctor.report.json import dump, report_data

            return dump(report_data(report, __version__))
        from numadoctor.report.terminal import Terminal
        from numadoctor.report.text import render as render_text

        terminal = Terminal.of_stdout(colour=colour) if on_stdout else Terminal(100)
        return render_text(report, terminal, verbose=verbose)

    write_outputs(outputs, render)
    return report.exit_code


def _words(values: tuple[str, ...]) -> list[str]:
    return [word for value in values for word in value.replace(",", " ").split()]
