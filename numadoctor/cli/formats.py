"""The formats of a report by name: how each is written, and which exit code it stands for."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from numadoctor import __version__

if TYPE_CHECKING:
    from numadoctor.engine import Check
    from numadoctor.model import Report


def render(
    name: str,
    report: "Report",
    rules: "Iterable[Check]",
    *,
    on_stdout: bool,
    verbose: bool,
    colour: bool | None,
) -> str:
    """The report in the format of that name.

    :param rules: all checks, whose documentation goes into SARIF
    :raises ModuleNotFoundError: the format needs a package that is not installed
    """
    if name == "text":
        from numadoctor.report.terminal import Terminal
        from numadoctor.report.text import render as render_text

        terminal = Terminal.of_stdout(colour=colour) if on_stdout else Terminal(100)
        return render_text(report, terminal, verbose=verbose)
    if name == "json":
        from numadoctor.report.json import dump, report_data

        return dump(report_data(report, __version__))
    if name == "baseline":
        from numadoctor.engine.baseline import baseline_data
        from numadoctor.report.json import dump

        return dump(baseline_data(report.findings, __version__))
    if name == "sarif":
        from numadoctor.report.sarif import render as render_sarif

        return render_sarif(report, rules, __version__)
    if name == "prometheus":
        from numadoctor.report.prometheus import render as render_prometheus

        return render_prometheus(report, __version__)
    import importlib

    text = importlib.import_module(f"numadoctor.report.{name}").render(report)
    assert isinstance(text, str)
    return text


def exit_code_of(shown: str, report: "Report") -> int:
    """The exit code of a run that shows this format on standard output.

    Plugins speak by the exit codes of what calls them; all others by numadoctor's.
    """
    if shown == "nagios":
        from numadoctor.report.nagios import state

        return int(state(report))
    if shown == "npd":
        from numadoctor.report.npd import answer

        return int(answer(report))
    return report.exit_code
