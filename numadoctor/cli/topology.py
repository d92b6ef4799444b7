"""``numadoctor topology``."""

import click

from numadoctor.cli.common import open_host, output_option, sysroot_option, write_outputs


@click.command("topology", help="Show nodes, CPUs, memory, distances and the devices on each node.")
@sysroot_option
@output_option(("text", "json"))
def command(sysroot: str | None, outputs: list[tuple[str, str | None]]) -> None:
    host = open_host(sysroot)
    topology = host.topology

    def render(name: str, on_stdout: bool) -> str:
        if name == "json":
            from numadoctor.report.json import dump, topology_data

            return dump(topology_data(topology, host.name))
        from numadoctor.report.terminal import Terminal
        from numadoctor.report.topology import render as render_text

        terminal = Terminal.of_stdout() if on_stdout else Terminal(100)
        return render_text(topology, host.name, terminal)

    write_outputs(outputs, render)
