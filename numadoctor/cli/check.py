"""``numadoctor check``."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from numadoctor.cli.common import open_host, sysroot_option
from numadoctor.cli.gate import Gate, gate_options
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
@click.option(
    "--expect",
    "expected",
    metavar="PLAN",
    help="Compare with this plan (YAML, TOML, JSON; - is standard input): the machine before a "
    "start, or the processes that are named.",
)
@sysroot_option
@gate_options
def command(
    pids: tuple[int, ...],
    name: str | None,
    cgroup: str | None,
    container: str | None,
    unit: str | None,
    tree: bool,
    exact: bool,
    expected: str | None,
    sysroot: str | None,
    gate: Gate,
) -> int:
    from numadoctor.engine.runner import run
    from numadoctor.model import Target

    host = open_host(sysroot)
    checks = gate.checks()
    choice = Choice(pids, name, cgroup, container, unit, tree)
    if expected is not None:
        _expect(host, expected, running=not choice.empty)
    targets, incomplete = choice.find(host)
    report = run(
        host,
        checks,
        (Target(),) if choice.empty else targets,
        problems=gate.catalogue.problems,
        fail_on=gate.fail_on,
        strict=gate.strict,
        incomplete=incomplete,
        afterwards=_about(host, targets, exact) if targets else None,
    )

    return gate.finish(report)


def _expect(host: "Host", file: str, *, running: bool) -> None:
    """State the plan in ``file`` to the checks.

    :param running: processes are compared with it, and not the machine
    :raises click.ClickException: it is none
    """
    from numadoctor.planning.badplan import BadPlan
    from numadoctor.planning.intent import plan_data, read_plan

    try:
        host.state("plan", {**plan_data(read_plan(file)), "running": running})
    except BadPlan as error:
        raise click.ClickException(str(error)) from None


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
