"""``numadoctor lint``."""

import gc
import os

import click

from numadoctor.cli.common import open_host
from numadoctor.cli.gate import Gate, gate_options

_RUNTIMES = ("docker", "containerd", "podman", "crio")


@click.command("lint", help="Judge deployment files before anything runs.")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR|-...")
@click.option(
    "--sysroot",
    metavar="DIR|sample:NAME",
    help="The machine that the files are for: CPUs, nodes and devices are compared with it.",
)
@click.option(
    "--runtime",
    metavar="NAME[=VERSION]",
    help=f"The container runtime that the files are for: {', '.join(_RUNTIMES)}.",
)
@click.option(
    "--static",
    is_flag=True,
    help="Pods are for nodes whose kubelet has static CPU and memory managers.",
)
@gate_options
def command(
    paths: tuple[str, ...],
    sysroot: str | None,
    runtime: str | None,
    static: bool,
    gate: Gate,
) -> int:
    from numadoctor.engine import Scope
    from numadoctor.engine.runner import run_on_files
    from numadoctor.lint.documents import Files
    from numadoctor.lint.gathering import gather
    from numadoctor.lint.nodes import Refused
    from numadoctor.lint.reading import read_files
    from numadoctor.lint.yamlfile import MissingReader

    for path in paths:
        if path != "-" and not os.path.lexists(path):
            raise click.UsageError(f"{path}: no such file or folder")
    checks = gate.checks((Scope.FILE,))
    name, version = _runtime(runtime)
    machine = open_host(sysroot) if sysroot else None
    # Documents are trees without cycles; looking for some takes a fifth of the time.
    gc.disable()
    try:
        files = gather(read_files(paths), Files(name, version, machine, static))
    except Refused as error:
        raise click.UsageError(error.reason) from None
    except MissingReader as error:
        raise click.ClickException(str(error)) from None
    report = run_on_files(
        machine,
        checks,
        files.documents,
        name=" ".join(paths) if len(paths) < 3 else f"{len(paths)} paths",
        problems=gate.catalogue.problems,
        fail_on=gate.fail_on,
        strict=gate.strict,
        incomplete=files.unread,
    )
    return gate.finish(report)


def _runtime(given: str | None) -> tuple[str, str | None]:
    name, equals, version = (given or "").partition("=")
    if given and name not in _RUNTIMES:
        raise click.UsageError(f"--runtime {name}: known are {', '.join(_RUNTIMES)}.")
    if equals and not version[:1].isdigit():
        raise click.UsageError(f"--runtime {given}: a version such as 20.10 is expected.")
    return name, version or None
