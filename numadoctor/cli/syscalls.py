"""``numadoctor syscalls``: needs the standard library and click alone, for bare containers."""

import click

from numadoctor.cli.common import (
    fail_on_options,
    open_host,
    output_option,
    sysroot_option,
    write_outputs,
)


@click.command(
    "syscalls", help="Tell which NUMA system calls work here, and who blocks the others."
)
@sysroot_option
@output_option(("text", "json"))
@fail_on_options
@click.option("-v", "--verbose", is_flag=True, help="Also say why each call passes.")
def command(
    sysroot: str | None,
    outputs: list[tuple[str, str | None]],
    fail_on: str,
    strict: bool,
    verbose: bool,
) -> int:
    from numadoctor.engine.exitcodes import exit_code
    from numadoctor.host.runtime import fitting, read_runtimes
    from numadoctor.kernel.outlook import examine
    from numadoctor.model import Finding
    from numadoctor.report import syscalls as report

    host = open_host(sysroot)
    runtimes = read_runtimes(host)
    outlook = examine(host, runtimes, lambda fixes: fitting(fixes, runtimes))
    findings = [Finding(call.status, call.because, call.name) for call in outlook.calls]
    code = exit_code(findings, fail_on=fail_on, strict=strict)

    def render(name: str, on_stdout: bool) -> str:
        if name == "json":
            from numadoctor.report.json import dump

            return dump(report.data(outlook, code))
        from numadoctor.report.terminal import Terminal

        terminal = Terminal.of_stdout() if on_stdout else Terminal(100)
        return report.render(outlook, terminal, verbose=verbose)

    write_outputs(outputs, render)
    return code
