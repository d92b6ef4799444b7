"""``numadoctor syscalls``: needs the standard library and click alone, for bare containers."""

from typing import TYPE_CHECKING

import click

from numadoctor.cli.common import (
    fail_on_options,
    open_host,
    output_option,
    sysroot_option,
    write_outputs,
)

if TYPE_CHECKING:
    from numadoctor.model.calls import Outlook

# As in numadoctor.kernel.seccomp, which the plain command does not load.
_RUNTIMES = ("docker", "containerd", "podman", "crio", "kubernetes")


@click.command(
    "syscalls", help="Tell which NUMA system calls work here, and who blocks the others."
)
@click.option(
    "--seccomp-profile",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Judge a seccomp profile (Docker's or the OCI runtime's form) and run nothing.",
)
@click.option(
    "--runtime", type=click.Choice(_RUNTIMES), help="Whose way with profiles counts.  [docker]"
)
@click.option(
    "--cap", "caps", multiple=True, metavar="CAP", help="A capability that the container gets."
)
@click.option(
    "--cap-drop", "dropped", multiple=True, metavar="CAP", help="One that it does not get."
)
@click.option("--arch", metavar="ABI", help="Of the programs in the container: x86_64, aarch64.")
@click.option(
    "--kernel", metavar="VERSION", help="Of the machine it will run on.  [this machine's]"
)
@click.option("--pid", type=click.IntRange(min=1), help="Judge a running process from outside.")
@click.option(
    "--stop-thread",
    is_flag=True,
    help="With --pid: read its seccomp filters. This stops one thread of it for about a "
    "millisecond (ptrace; root of the host), and a call in which it waits may end with EINTR.",
)
@click.option(
    "--emit-profile",
    is_flag=True,
    help="Print the profile with the smallest change that opens the calls, and nothing else.",
)
@sysroot_option
@output_option(("text", "json"))
@fail_on_options
@click.option("-v", "--verbose", is_flag=True, help="Also say why each call passes.")
def command(
    seccomp_profile: str | None,
    runtime: str | None,
    caps: tuple[str, ...],
    dropped: tuple[str, ...],
    arch: str | None,
    kernel: str | None,
    pid: int | None,
    stop_thread: bool,
    emit_profile: bool,
    sysroot: str | None,
    outputs: list[tuple[str, str | None]],
    fail_on: str,
    strict: bool,
    verbose: bool,
) -> int:
    elsewhere = any((seccomp_profile, runtime, caps, dropped, arch, kernel, stop_thread))
    if not (elsewhere or pid or emit_profile):
        return _report(_here(sysroot), outputs, fail_on, strict, verbose)
    from numadoctor.cli import seccomp

    asked = seccomp.Asked(
        seccomp_profile, runtime, caps, dropped, arch, kernel, pid, stop_thread, sysroot
    )
    asked.check(emit_profile)
    if emit_profile:
        write_outputs([("text", None)], lambda *_: asked.emitted())
        return 0
    return _report(asked.outlook(), outputs, fail_on, strict, verbose)


def _here(sysroot: str | None) -> "Outlook":
    from numadoctor.host.runtime import fitting, read_runtimes
    from numadoctor.kernel.outlook import examine

    host = open_host(sysroot)
    runtimes = read_runtimes(host)
    return examine(host, runtimes, lambda fixes: fitting(fixes, runtimes))


def _report(
    outlook: "Outlook",
    outputs: list[tuple[str, str | None]],
    fail_on: str,
    strict: bool,
    verbose: bool,
) -> int:
    from numadoctor.engine.exitcodes import exit_code
    from numadoctor.model import Finding
    from numadoctor.report import syscalls as report

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
