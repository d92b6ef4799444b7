"""``numadoctor maps``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from numadoctor.cli.common import (
    Size,
    open_host,
    output_option,
    sysroot_option,
    write_outputs,
    write_stderr,
)
from numadoctor.cli.processes import Choice, process_options
from numadoctor.engine.exitcodes import ExitCode

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.model.placement import ProcessPlacement
    from numadoctor.report.terminal import Terminal

# A screen is for what matters; JSON is for all.
_MIN_SIZE_TEXT = 1 << 20

# Of --watch for hours: a document a line.
_LARGEST_OUTPUT = 128 << 20

_HELP = "Show where the memory of a process is, by mapping and node."


@click.command("maps", help=_HELP)
@click.argument("pids", metavar="[PID]...", nargs=-1, type=click.IntRange(min=1))
@process_options
@click.option(
    "--by",
    type=click.Choice(("mapping", "kind", "node")),
    default="mapping",
    show_default=True,
    help="What a row of the table is for.",
)
@click.option(
    "--min-size",
    type=Size(),
    help="Put smaller mappings together by kind.  [default: 1M as text, 0 as JSON]",
)
@click.option(
    "--exact", is_flag=True, help="Count all pages, however long that holds the process up."
)
@click.option("--sampled", is_flag=True, help="Ask about a sample of pages only.")
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Pages to ask about.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="Of the sample: asks about the same pages."
)
@click.option(
    "--hold",
    type=click.FloatRange(min=0),
    default=0.25,
    show_default=True,
    metavar="MS",
    help="Milliseconds for which counting the pages of a mapping may hold the process up.",
)
@click.option(
    "--watch", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Look again and again."
)
@click.option(
    "--diff",
    nargs=2,
    type=click.Path(exists=True, dir_okay=False),
    metavar="A B",
    help="Tell what changed between two JSON outputs.",
)
@sysroot_option
@output_option(("text", "json"))
@click.option("--color/--no-color", "colour", default=None, help="Colour: default on a terminal.")
def command(
    pids: tuple[int, ...],
    name: str | None,
    cgroup: str | None,
    container: str | None,
    unit: str | None,
    tree: bool,
    by: str,
    min_size: int | None,
    exact: bool,
    sampled: bool,
    samples: int,
    seed: int | None,
    hold: float,
    watch: float | None,
    diff: tuple[str, str] | None,
    sysroot: str | None,
    outputs: list[tuple[str, str | None]],
    colour: bool | None,
) -> int:
    if diff is not None:
        return _diff(*diff, outputs, colour)
    choice = Choice(pids, name, cgroup, container, unit, tree)
    if choice.empty:
        raise click.UsageError("name a PID, or choose by --name, --cgroup, --container or --unit.")
    if exact and sampled:
        raise click.UsageError("--exact and --sampled exclude each other.")
    if watch is not None and sysroot is not None:
        raise click.UsageError("--watch looks at a live machine: nothing changes in a sysroot.")
    if min_size is None:
        min_size = 0 if any(kind == "json" for kind, _ in outputs) else _MIN_SIZE_TEXT
    look = Look(choice, sysroot, exact, sampled, samples, seed, min_size, hold / 1000)
    if watch is not None:
        return _watch(look, watch, by, outputs, colour)
    host, placement = look.now()
    write_outputs(outputs, _renderer(host.name, placement, by, colour))
    return int(ExitCode.INCOMPLETE if placement.incomplete else ExitCode.OK)


class Look(NamedTuple):
    """What to look at, and how."""

    choice: Choice
    sysroot: str | None
    exact: bool
    sampled: bool
    samples: int
    seed: int | None
    min_size: int
    hold: float

    def now(self) -> "tuple[Host, ProcessPlacement]":
        """Look once. A host remembers what it read, so each look has its own."""
        ahead = None
        if self.exact and self.choice.pids and self.sysroot is None:
            from numadoctor.placement.ahead import Ahead

            ahead = Ahead.of_process(self.choice.pids[0])
        from numadoctor.model.placement import Method
        from numadoctor.placement import place

        host = open_host(self.sysroot)
        targets, lines = self.choice.find(host)
        placement = place(
            host,
            targets,
            method=Method.EXACT if self.exact else Method.SAMPLED if self.sampled else None,
            samples=self.samples,
            seed=self.seed,
            min_size=self.min_size,
            hold=self.hold,
            ahead=ahead,
        )
        return host, placement._replace(incomplete=(*lines, *placement.incomplete))


def _terminal(on_stdout: bool, colour: bool | None) -> "Terminal":
    from numadoctor.report.terminal import Terminal

    return Terminal.of_stdout(colour=colour) if on_stdout else Terminal(100)


def _renderer(
    host: str, placement: "ProcessPlacement", by: str, colour: bool | None, *, line: bool = False
) -> Callable[[str, bool], str]:
    """How a placement is written in each format.

    :param line: JSON on standard output is one line
    """
    from numadoctor import __version__
    from numadoctor.placement.group import by_kind
    from numadoctor.report import maps as report

    kinds = by_kind(placement)

    def render(kind: str, on_stdout: bool) -> str:
        if kind == "text":
            terminal = _terminal(on_stdout, colour)
            return report.render(placement, kinds, host, terminal, by=by)
        data = report.data(placement, kinds, host, __version__)
        if line and on_stdout:
            import json

            return json.dumps(data) + "\n"
        from numadoctor.report.json import dump

        return dump(data)

    return render


def _diff(
    before: str, after: str, outputs: list[tuple[str, str | None]], colour: bool | None
) -> int:
    from numadoctor.placement.difference import difference
    from numadoctor.report import maps_difference as report

    change = difference(_load(before), _load(after))

    def render(kind: str, on_stdout: bool) -> str:
        if kind == "json":
            from numadoctor.report.json import dump

            return dump(report.data(change))
        return report.render(change, f"{before} to {after}", _terminal(on_stdout, colour))

    write_outputs(outputs, render)
    return int(ExitCode.OK)


def _load(file: str) -> "ProcessPlacement":
    from numadoctor.host.given import read_given
    from numadoctor.host.parsers import ParseError
    from numadoctor.placement.load import load_placement

    try:
        return load_placement(read_given(file, _LARGEST_OUTPUT))
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
    except ParseError as error:
        raise click.UsageError(f"{file}: {error}") from None


def _watch(
    look: Look,
    seconds: float,
    by: str,
    outputs: list[tuple[str, str | None]],
    colour: bool | None,
) -> int:
    """Look again and again until interrupted or the processes are gone; then sum up."""
    import time

    looks: list[ProcessPlacement] = []
    begin, told = time.monotonic(), False
    with _stoppable():
        while True:
            host, placement = look.now()
            if not any(not process.problem for process in placement.processes):
                if looks:
                    break
                if look.choice.may_come and not told:
                    write_stderr("waiting for a process to start\n")
                    told = True
                elif not look.choice.may_come:
                    write_outputs(outputs, _renderer(host.name, placement, by, colour))
                    return int(ExitCode.INCOMPLETE)
            else:
                if not looks:
                    begin = time.monotonic()
                _tell(host.name, looks, placement, time.monotonic() - begin, by, outputs, colour)
                looks = [looks[0] if looks else placement, placement]
            time.sleep(seconds)
    if not looks:
        return int(ExitCode.INCOMPLETE)
    if any(file is None and kind == "text" for kind, file in outputs):
        title = f"in all, {time.monotonic() - begin:.0f} s"
        click.echo("\n" + _change(looks[0], looks[-1], title, colour), nl=False)
    return int(ExitCode.INCOMPLETE if looks[-1].incomplete else ExitCode.OK)


def _tell(
    host: str,
    looks: "list[ProcessPlacement]",
    placement: "ProcessPlacement",
    elapsed: float,
    by: str,
    outputs: list[tuple[str, str | None]],
    colour: bool | None,
) -> None:
    """The first look as a whole, later ones as what changed since the one before."""
    whole = _renderer(host, placement, by, colour, line=True)

    def render(kind: str, on_stdout: bool) -> str:
        if kind == "text" and on_stdout and looks:
            return _change(looks[-1], placement, f"{elapsed:.0f} s", colour)
        return whole(kind, on_stdout)

    write_outputs(outputs, render)


def _change(
    before: "ProcessPlacement", after: "ProcessPlacement", title: str, colour: bool | None
) -> str:
    from numadoctor.placement.difference import difference
    from numadoctor.report.maps_difference import render

    return render(difference(before, after), title, _terminal(True, colour))


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C and SIGTERM end what is inside, and nothing more."""
    import signal

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, former)
