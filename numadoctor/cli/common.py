"""What commands share: their common options, how they fail, and how they write."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from numadoctor.engine.exitcodes import FAIL_ON, ExitCode
from numadoctor.model import Undecided

if TYPE_CHECKING:
    from numadoctor.host import Host

F = TypeVar("F", bound=Callable[..., Any])


def run_cli(cli: click.Command, args: list[str] | None) -> NoReturn:
    """Run ``cli``; whatever happens, one line on standard error and the agreed exit code."""
    try:
        code = cli.main(args, prog_name="numadoctor", standalone_mode=False)
        _flush()
        sys.exit(code if isinstance(code, int) else ExitCode.OK)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except Undecided as error:
        _fail(str(error))
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted")
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python would complain once
        # more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except SystemExit:
        raise
    except Exception as error:
        if os.environ.get("NUMADOCTOR_DEBUG"):
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        _fail(f"numadoctor crashed: {what} (set NUMADOCTOR_DEBUG=1 for the traceback)")


def _flush() -> None:
    sys.stdout.flush()


def _fail(message: str) -> NoReturn:
    from numadoctor.report.terminal import sanitise

    click.echo(f"numadoctor: {sanitise(message)}", err=True)
    sys.exit(ExitCode.USAGE)


def _complete_sysroot(_ctx: object, _param: object, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from numadoctor.host import sample_names

    samples = [CompletionItem(f"sample:{name}") for name in sample_names()]
    return [s for s in samples if s.value.startswith(incomplete)] or [
        CompletionItem(incomplete, type="dir")
    ]


def sysroot_option(function: F) -> F:
    """``--sysroot``: examine a captured tree instead of this machine."""
    return click.option(
        "--sysroot",
        metavar="DIR|sample:NAME",
        shell_complete=_complete_sysroot,
        help="Examine a captured tree, another machine's root mounted at DIR, "
        "or a sample host that comes with numadoctor.",
    )(function)


def fail_on_options(function: F) -> F:
    """``--fail-on`` and ``--strict``: what a pipeline stops at."""
    function = click.option(
        "--strict", is_flag=True, help="Exit 3 if anything could not be decided."
    )(function)
    return click.option(
        "--fail-on",
        type=click.Choice(FAIL_ON),
        default="fail",
        show_default=True,
        help="The least status that makes the exit code 1.",
    )(function)


def output_option(formats: Iterable[str]) -> Callable[[F], F]:
    """``-o FORMAT[=FILE]``, several times; the parsed values are (format, file or None)."""
    known = tuple(formats)

    def parse(
        _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
    ) -> list[tuple[str, str | None]]:
        chosen: list[tuple[str, str | None]] = []
        for value in values:
            name, equals, file = value.partition("=")
            if name not in known:
                raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}.")
            if equals and not file:
                raise click.BadParameter(f"{value!r} names no file after '='.")
            chosen.append((name, file or None))
        if len([file for _, file in chosen if file is None]) > 1:
            raise click.BadParameter("only one format can go to standard output.")
        return chosen or [("text", None)]

    return click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        callback=parse,
        metavar="FORMAT[=FILE]",
        help=f"{', '.join(known)}; may be given several times, with =FILE to write a file.",
    )


def open_host(sysroot: str | None) -> "Host":
    """The host that ``--sysroot`` names.

    :raises click.UsageError: it cannot be used
    """
    from numadoctor.host import Host, open_root

    try:
        return Host(open_root(sysroot))
    except Undecided as error:
        from numadoctor.report.terminal import sanitise

        raise click.UsageError(sanitise(f"--sysroot {sysroot}: {error.reason}")) from None


def write_outputs(
    outputs: Iterable[tuple[str, str | None]], render: Callable[[str, bool], str]
) -> None:
    """Write each format where it belongs: files first, what a person reads last.

    :param render: format name, and whether it goes to standard output, to the text
    """
    for name, file in sorted(outputs, key=lambda output: output[1] is None):
        text = render(name, file is None)
        if file is None:
            click.echo(text, nl=False)
        else:
            _write_file(file, text)


def _write_file(file: str, text: str) -> None:
    """Write ``file`` whole or not at all: a reader never sees half a report."""
    # A pipe or a device (/dev/stderr, a FIFO) cannot be replaced by renaming.
    plain = not os.path.exists(file) or os.path.isfile(file)
    temporary = f"{file}.{os.getpid()}.tmp" if plain else file
    try:
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        if plain:
            os.replace(temporary, file)
    except OSError as error:
        if plain and os.path.exists(temporary):
            os.unlink(temporary)
        raise click.UsageError(f"cannot write {file}: {error.strerror}") from None
