"""``numadoctor interleave``."""

import sys
from typing import TYPE_CHECKING, Any

import click

from numadoctor.cli.common import Size, output_option, write_outputs, write_stderr

if TYPE_CHECKING:
    from numadoctor.allocator import Pool
    from numadoctor.allocator.prefault import Progress
    from numadoctor.model import Finding
    from numadoctor.report.interleave import Sample

_BACKINGS = (
    "private", "shared", "posix", "sysv", "memfd", "hugetlb", "hugetlb-memfd", "hugetlb-sysv",
)  # fmt: skip
_MODES = ("interleave", "weighted-interleave", "bind", "preferred-many")


def _nodes(_ctx: object, _param: object, value: str | None) -> tuple[int, ...] | None:
    from numadoctor.host.parsers import parse_list
    from numadoctor.model import ParseError

    if value is None:
        return None
    try:
        nodes = parse_list(value.encode("utf-8", "replace"))
    except ParseError as error:
        raise click.BadParameter(str(error)) from None
    if not nodes:
        raise click.BadParameter("names no node.")
    return nodes


@click.command(
    "interleave", help="Allocate a pool by first touch and one that is placed, and compare."
)
@click.option(
    "--size",
    type=Size(least=1),
    default="256M",
    show_default=True,
    help="Of each pool; units are powers of 1024.",
)
@click.option(
    "--backing",
    type=click.Choice(_BACKINGS),
    default="posix",
    show_default=True,
    help="What the pool is made of.",
)
@click.option(
    "--mode",
    type=click.Choice(_MODES),
    default="interleave",
    show_default=True,
    help="The memory policy of the placed pool.",
)
@click.option(
    "--nodes",
    callback=_nodes,
    metavar="LIST",
    help="Node list (0-1,8); default: all nodes with CPUs and memory that may be used here.",
)
@click.option(
    "--huge-page-size",
    type=Size(),
    help="Of hugetlb backings; default: the kernel's default.",
)
@click.option(
    "--threads",
    type=click.IntRange(0, 1024),
    default=0,
    help="That bring the pages in; default: one a CPU, eight at most.",
)
@click.option(
    "--hold",
    type=click.FloatRange(0),
    default=0,
    metavar="SECONDS",
    help="Keep the placed pool for so long, to be looked at from outside.",
)
@output_option(("text", "json"))
def command(
    size: int,
    backing: str,
    mode: str,
    nodes: tuple[int, ...] | None,
    huge_page_size: int | None,
    threads: int,
    hold: float,
    outputs: list[tuple[str, str | None]],
) -> int:
    from numadoctor.allocator import Pool, PoolError
    from numadoctor.engine.exitcodes import exit_code
    from numadoctor.host import Host
    from numadoctor.report.interleave import Comparison

    host = Host()
    samples: list[Sample] = []
    errors: list[Finding] = []
    for this_mode in ("first-touch", mode):
        try:
            with Pool(
                size,
                backing=backing,
                mode=this_mode,
                nodes=nodes,
                huge_page_size=huge_page_size,
                host=host,
            ) as pool:
                samples.append(_examine(pool, threads))
                if this_mode != "first-touch" and hold:
                    _hold(pool, hold)
        except PoolError as error:
            if error.finding not in errors:
                errors.append(error.finding)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    findings = [finding for sample in samples for finding in sample.findings] + errors
    comparison = Comparison(host.name, host.topology, size, backing, tuple(samples), tuple(errors))

    def render(name: str, on_stdout: bool) -> str:
        from numadoctor.report import interleave as report

        if name == "json":
            from numadoctor.report.json import dump

            return dump(report.data(comparison))
        from numadoctor.report.terminal import Terminal

        return report.render(comparison, Terminal.of_stdout() if on_stdout else Terminal(100))

    write_outputs(outputs, render)
    return int(exit_code(findings))


def _examine(pool: "Pool", threads: int) -> "Sample":
    from numadoctor.model import Undecided
    from numadoctor.report.interleave import Sample

    with _Progress(pool) as progress:
        prefaulted = pool.prefault(threads, progress)
    findings = pool.verify()
    try:
        placement = pool.placement()
    except Undecided:
        # verify() has said why.
        placement = None
    return Sample(
        pool.mode, pool.effective_mode, pool.length, prefaulted, placement, tuple(findings)
    )


class _Progress:
    """A bar on standard error, on a terminal only; gives None where there is none to see it."""

    def __init__(self, pool: "Pool") -> None:
        self._length, self._label = pool.length, pool.mode
        self._bar: Any = None

    def __enter__(self) -> "Progress | None":
        if not sys.stderr.isatty():
            return None
        bar = click.progressbar(
            length=self._length, label=f"{self._label:<20}", file=sys.stderr, show_pos=False
        )
        self._bar = bar
        bar.__enter__()

        def progress(done: int, _length: int) -> None:
            bar.update(done - bar.pos)

        return progress

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)


def _hold(pool: "Pool", seconds: float) -> None:
    import os
    import time

    end = pool.address + pool.length
    write_stderr(
        f"pid {os.getpid()} holds {pool.mode} at {pool.address:x}-{end:x} for {seconds:g} s\n"
    )
    time.sleep(seconds)
