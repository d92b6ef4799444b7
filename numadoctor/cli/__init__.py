"""The command line: one module a command, loaded when it is asked for."""

import importlib
from typing import NoReturn

import click

from numadoctor import __version__

# Command name to its one line of help. Help must not cost the import of every
# command, so the line stands here and a test compares it with the command's own.
COMMANDS = {
    "check": "Examine this machine, or a process, and give a verdict.",
    "explain": "Tell what a check looks at, why it matters and how to fix it.",
    "interleave": "Allocate a pool by first touch and one that is placed, and compare.",
    "lint": "Judge deployment files before anything runs.",
    "list": "List the checks and the sample hosts there are.",
    "maps": "Show where the memory of a process is, by mapping and node.",
    "plan": "Choose GPUs, nodes, CPUs and NICs for each instance, and print how to start it so.",
    "syscalls": "Tell which NUMA system calls work here, and who blocks the others.",
    "topology": "Show nodes, CPUs, memory, distances and the devices on each node.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"numadoctor.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 nothing found, 1 something found, 2 usage error or crash, 3 incomplete.",
)
@click.version_option(__version__, prog_name="numadoctor")
def cli() -> None:
    """Diagnose and verify NUMA memory placement on machines that serve large language models."""


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code."""
    from numadoctor.cli.common import run_cli

    run_cli(cli, args)
