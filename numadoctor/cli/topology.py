"""``numadoctor topology``."""

from typing import TYPE_CHECKING

import click

from numadoctor.cli.common import (
    open_host,
    output_option,
    sysroot_option,
    write_outputs,
    write_stderr,
)
from numadoctor.engine.exitcodes import ExitCode
from numadoctor.model import Malformed, Topology

if TYPE_CHECKING:
    from numadoctor.evidence.merge import Given


@click.command("topology", help="Show nodes, CPUs, memory, distances and the devices on each node.")
@sysroot_option
@click.option(
    "--from",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Read what was pasted from nvidia-smi topo -m, numactl -H, lscpu, rocm-smi --showtopo, "
    "lstopo --of xml, an NCCL topology file or the kubelet's log, alone or in the text of an "
    "issue; - is standard input. May be given several times, and with --sysroot.",
)
@output_option(("text", "json", "svg"))
def command(
    sysroot: str | None, files: tuple[str, ...], outputs: list[tuple[str, str | None]]
) -> ExitCode:
    if files:
        topology, name, code = _from_files(files, sysroot)
    else:
        from numadoctor.host.devices.links import with_links

        host = open_host(sysroot)
        topology, name, code = with_links(host), host.name, ExitCode.OK

    def render(format_: str, on_stdout: bool) -> str:
        if format_ == "json":
            from numadoctor.report.json import dump, topology_data

            return dump(topology_data(topology, name))
        if format_ == "svg":
            from numadoctor.report.svg import render as render_svg

            return render_svg(topology, name)
        from numadoctor.report.terminal import Terminal
        from numadoctor.report.topology import render as render_text

        terminal = Terminal.of_stdout() if on_stdout else Terminal(100)
        return render_text(topology, name, terminal)

    write_outputs(outputs, render)
    return code


def _from_files(files: tuple[str, ...], sysroot: str | None) -> tuple[Topology, str, ExitCode]:
    """The topology that the files tell, beside that of ``sysroot`` if one is given.

    :raises click.UsageError: a file cannot be read, or nothing in it is of a known format
    :raises Malformed: all that was recognised is refused
    """
    from numadoctor.evidence.merge import merge

    given = [_recognised(file) for file in files]
    refused = [(one.file, refusal) for one in given for refusal in one.refused]
    if not any(one.pasted for one in given):
        file, refusal = refused[0]
        reason = f"{refusal.format} is not believed: {refusal.reason}"
        raise Malformed(f"{file}:{refusal.line}", None, reason)
    for file, refusal in refused:
        text = f"{file}:{refusal.line}: {refusal.format} is not believed: {refusal.reason}"
        write_stderr(f"numadoctor: {_printable(text)}\n")
    code = ExitCode.INCOMPLETE if refused else ExitCode.OK
    if sysroot is None:
        return merge(given), ", ".join(one.file for one in given), code
    from numadoctor.host.devices.links import with_links

    host = open_host(sysroot)
    return merge(given, with_links(host)), host.name, code


def _printable(text: str) -> str:
    from numadoctor.report.terminal import sanitise

    return sanitise(text)


def _recognised(file: str) -> "Given":
    from numadoctor.evidence.merge import Given
    from numadoctor.evidence.recognise import FORMATS, recognise

    name = "standard input" if file == "-" else file
    pasted, refused = recognise(_read(file))
    if not pasted and not refused:
        raise click.UsageError(f"--from {name}: no output of {', '.join(FORMATS)} in it")
    return Given(name, pasted, refused)


def _read(file: str) -> bytes:
    from numadoctor.evidence.text import LIMIT, MOST_LINES
    from numadoctor.host.given import read_given

    try:
        data = read_given(file, LIMIT, dash=True)
    except OSError as error:
        raise click.UsageError(f"--from {file}: {error.strerror}") from None
    if data.count(b"\n") > MOST_LINES:
        raise click.UsageError(f"--from {file}: more than {MOST_LINES} lines")
    return data
