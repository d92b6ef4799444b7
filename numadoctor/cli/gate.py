"""What ``check`` and ``lint`` share: which checks run, what of the findings counts, who is told."""

import functools
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from numadoctor.cli.common import checks_dir_option, fail_on_options, output_option, write_outputs

if TYPE_CHECKING:
    from numadoctor.engine import Check, Scope
    from numadoctor.engine.baseline import Baseline
    from numadoctor.engine.catalogue import Catalogue
    from numadoctor.engine.config import Config
    from numadoctor.model import Report

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = (
    "text", "json", "junit", "sarif", "tap", "github", "gitlab", "prometheus", "nagios", "npd",
    "nfd",
)  # fmt: skip

_FILE = click.Path(dir_okay=False)


def gate_options(function: F) -> F:
    """The options of a ``Gate``, which the command gets as the argument ``gate``."""

    @functools.wraps(function)
    def with_gate(**given: Any) -> Any:
        own = {key: given.pop(key) for key in Gate.__dataclass_fields__}
        return function(gate=Gate(**own), **given)

    options = (
        click.option(
            "--select",
            "selected",
            multiple=True,
            metavar="IDS",
            help="Run only these checks: ids, family letters or names, separated by commas.",
        ),
        click.option(
            "--ignore", "ignored", multiple=True, metavar="IDS", help="Leave these checks out."
        ),
        checks_dir_option,
        click.option(
            "--config",
            "config_file",
            type=_FILE,
            metavar="FILE",
            help="Settings and waivers; else numadoctor.toml or [tool.numadoctor] of "
            "pyproject.toml, in this folder or above.",
        ),
        click.option("--no-config", is_flag=True, help="Look for no settings."),
        click.option(
            "--baseline",
            "baseline_file",
            type=_FILE,
            metavar="FILE",
            help="Only what this file does not know counts.",
        ),
        click.option(
            "--write-baseline",
            type=_FILE,
            metavar="FILE",
            help="Write what is found to a baseline; it counts this time.",
        ),
        fail_on_options,
        output_option(FORMATS),
        click.option(
            "-v", "--verbose", is_flag=True, help="Show also what passed, with its evidence."
        ),
        click.option(
            "--color/--no-color", "colour", default=None, help="Colour: default on a terminal."
        ),
    )
    command: Any = with_gate
    for option in reversed(options):
        command = option(command)
    return command  # type: ignore[no-any-return]


@dataclass
class Gate:
    """The values of ``gate_options``, and what follows from them."""

    selected: tuple[str, ...]
    ignored: tuple[str, ...]
    checks_dirs: tuple[str, ...]
    config_file: str | None
    no_config: bool
    baseline_file: str | None
    write_baseline: str | None
    fail_on: str
    strict: bool
    outputs: list[tuple[str, str | None]]
    verbose: bool
    colour: bool | None

    def __post_init__(self) -> None:
        # Wrong files are told before a long examination, not after it.
        from numadoctor.engine.files import BadFile

        if self.config_file and self.no_config:
            raise click.UsageError("--config and --no-config exclude each other.")
        if self.write_baseline and self.write_baseline in (file for _, file in self.outputs):
            raise click.UsageError(f"{self.write_baseline}: a report and the baseline in one file.")
        try:
            self.config, self._found = self._read_config()
            self._baseline = self._read_baseline()
        except BadFile as error:
            raise click.UsageError(str(error)) from None
        source = click.get_current_context().get_parameter_source("fail_on")
        if source is click.core.ParameterSource.DEFAULT and self.config.fail_on:
            self.fail_on = self.config.fail_on
        self.strict = self.strict or self.config.strict

    def _read_config(self) -> "tuple[Config, bool]":
        from numadoctor.engine.config import Config, find_config, read_config

        if self.config_file:
            return read_config(self.config_file), False
        found = None if self.no_config else find_config()
        return (read_config(found), True) if found else (Config(), False)

    def _read_baseline(self) -> "Baseline | None":
        if not self.baseline_file:
            return None
        from numadoctor.engine.baseline import read_baseline

        return read_baseline(self.baseline_file)

    @cached_property
    def catalogue(self) -> "Catalogue":
        """All checks there are."""
        from numadoctor.engine.discovery import discover

        return discover(self.checks_dirs)

    def checks(self, scopes: "Container[Scope] | None" = None) -> "list[Check]":
        """The checks to run.

        :param scopes: what there is to examine, if it is not a machine
        :raises click.UsageError: a word stands for no check
        """
        from numadoctor.engine.runner import MACHINE_SCOPES, UnknownSelection, select

        chosen = _words(self.selected) or self.config.select
        ignored = [*_words(self.ignored), *self.config.ignore]
        try:
            return select(self.catalogue, chosen, ignored, scopes=scopes or MACHINE_SCOPES)
        except UnknownSelection as error:
            raise click.UsageError(str(error)) from None

    def finish(self, report: "Report") -> int:
        """Apply waivers and the baseline, write all that was asked for; the exit code."""
        from numadoctor.cli.formats import exit_code_of, render
        from numadoctor.engine.settle import settle, today

        report = replace(report, remarks=(*report.remarks, *self._about_settings()))
        report = settle(report, self.config, self._baseline, today())
        outputs = list(self.outputs)
        if self.write_baseline:
            outputs.append(("baseline", self.write_baseline))
        write_outputs(
            outputs,
            lambda name, on_stdout: render(
                name,
                report,
                self.catalogue,
                on_stdout=on_stdout,
                verbose=self.verbose,
                colour=self.colour,
            ),
        )
        shown = next((name for name, file in outputs if file is None), "text")
        return exit_code_of(shown, report)

    def _about_settings(self) -> list[str]:
        """Where settings were found, and what in them is of no use."""
        remarks = [f"settings: {self.config.file}"] if self._found else []
        for what, word in (
            *(("waiver", waiver.id) for waiver in self.config.waivers),
            *(("severity", word) for word in self.config.severities),
        ):
            if not any(check.is_called(word) for check in self.catalogue.find(word)):
                remarks.append(f"{what} of {word}: there is no such check")
        return remarks


def _words(values: tuple[str, ...]) -> list[str]:
    return [word for value in values for word in value.replace(",", " ").split()]
