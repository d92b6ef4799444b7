"""``numadoctor plan``."""

from typing import TYPE_CHECKING

import click

from numadoctor.cli.common import Size, open_host, output_option, sysroot_option, write_outputs
from numadoctor.engine.exitcodes import ExitCode

if TYPE_CHECKING:
    from numadoctor.model.plan import Proposal, Refusal
    from numadoctor.report.terminal import Terminal

# Names of numadoctor.planning.launchers, of PoolPolicy and of PoolBacking; a test compares them.
LAUNCHERS = (
    "numactl", "taskset", "systemd", "docker", "compose", "kubernetes", "slurm", "vllm", "sglang",
    "lightllm",
)  # fmt: skip
MODES = ("auto", "local", "preferred", "bind", "interleave", "weighted-interleave")
BACKINGS = ("private", "shared", "posix", "sysv", "memfd", "hugetlb")

_MOST_INSTANCES = 256


def _groups(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    groups = tuple(tuple(filter(None, value.replace(",", " ").split())) for value in values)
    if not all(groups):
        raise click.BadParameter("a group without a GPU.")
    return groups


_HELP = "Choose GPUs, nodes, CPUs and NICs for each instance, and print how to start it so."


@click.command("plan", help=_HELP)
@click.option(
    "--instances",
    type=click.IntRange(1, _MOST_INSTANCES),
    metavar="N",
    help="Instances of the engine on this machine.  [default: 1]",
)
@click.option(
    "--gpus-per-instance",
    "gpus",
    type=click.IntRange(0, 1024),
    metavar="M",
    help="GPUs of each; 0 for engines that compute on CPUs.  [default: as many as there are]",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GPUS",
    callback=_groups,
    help="The GPUs of one instance, instead of choosing: 0,1 (in bus order), bus ids or UUIDs; "
    "once for each instance.",
)
@click.option(
    "--pool-size",
    type=Size(),
    help="Pool of each instance in host memory: 64GiB.  [default: none]",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="auto",
    show_default=True,
    help="Memory policy; auto binds on one node and interleaves over several.",
)
@click.option(
    "--backing", type=click.Choice(BACKINGS), help="What the pool is made of; told in the plan."
)
@click.option(
    "--page-size",
    type=Size(),
    help="Back the pools with huge pages of this size: 2MiB, 1GiB.",
)
@click.option(
    "--keep-cores",
    type=click.IntRange(min=0),
    metavar="CORES",
    help="Cores to leave on each node for interrupts and the router.  [default: one in 16]",
)
@click.option(
    "--launcher",
    "launchers",
    type=click.Choice((*LAUNCHERS, "all")),
    multiple=True,
    help="Print how to start with it; several times, or all.  [default: numactl; all as JSON]",
)
@click.option(
    "--command", "line", metavar="COMMAND", default="COMMAND", help="What is to be started."
)
@click.option("--strict", is_flag=True, help="Exit 3 if something unknown had to be assumed.")
@sysroot_option
@output_option(("text", "json"))
@click.option("--color/--no-color", "colour", default=None, help="Colour: default on a terminal.")
def command(
    instances: int | None,
    gpus: int | None,
    groups: tuple[tuple[str, ...], ...],
    pool_size: int | None,
    mode: str,
    backing: str | None,
    page_size: int | None,
    keep_cores: int | None,
    launchers: tuple[str, ...],
    line: str,
    strict: bool,
    sysroot: str | None,
    outputs: list[tuple[str, str | None]],
    colour: bool | None,
) -> int:
    from numadoctor.host.parsers import ParseError
    from numadoctor.model.plan import PoolBacking, PoolPolicy, Refusal
    from numadoctor.planning.proposing import CannotFit, Wanted, propose

    if groups and (gpus is not None or (instances is not None and instances != len(groups))):
        raise click.UsageError("--group names the GPUs of every instance: leave out the numbers.")
    if page_size is not None and (page_size < 1 << 16 or page_size & (page_size - 1)):
        raise click.BadParameter("no size of huge pages", param_hint="'--page-size'")
    if page_size and backing not in (None, "hugetlb"):
        raise click.UsageError(f"--page-size is for huge pages, and --backing is {backing}.")
    host = open_host(sysroot)
    # What a program reads holds all; a screen shows what was asked for.
    shown = tuple(dict.fromkeys(launchers)) or ("numactl",)
    shown = LAUNCHERS if "all" in shown else shown
    found: Proposal | Refusal
    try:
        found = propose(
            host,
            Wanted(
                instances=len(groups) or instances or 1,
                gpus=gpus,
                groups=groups,
                pool_size=pool_size or 0,
                policy=None if mode == "auto" else PoolPolicy(mode),
                page_size=page_size,
                backing=PoolBacking(backing) if backing else None,
                keep_cores=keep_cores,
                launchers=shown if launchers else LAUNCHERS,
                command=line,
            ),
        )
    except CannotFit as error:
        found = error.refusal
    except ParseError as error:
        raise click.UsageError(str(error)) from None

    def render(name: str, on_stdout: bool) -> str:
        from numadoctor.report.terminal import Terminal

        if name == "json":
            return _as_json(found)
        terminal = Terminal.of_stdout(colour=colour) if on_stdout else Terminal(100)
        return _as_text(found, terminal, shown)

    write_outputs(outputs, render)
    if isinstance(found, Refusal):
        return int(ExitCode.FINDINGS)
    return int(ExitCode.INCOMPLETE if strict and found.assumed else ExitCode.OK)


def _as_json(found: "Proposal | Refusal") -> str:
    from numadoctor import __version__
    from numadoctor.model.plan import Refusal
    from numadoctor.report.json import dump
    from numadoctor.report.plan import proposal_data, refusal_data

    if isinstance(found, Refusal):
        return dump(refusal_data(found, __version__))
    return dump(proposal_data(found, __version__))


def _as_text(found: "Proposal | Refusal", terminal: "Terminal", launchers: tuple[str, ...]) -> str:
    from numadoctor.model.plan import Refusal
    from numadoctor.report.plan import render, render_refusal

    if isinstance(found, Refusal):
        return render_refusal(found, terminal)
    return render(found, terminal, launchers)
