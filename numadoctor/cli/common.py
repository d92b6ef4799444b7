"""What commands share: their common options, how they fail, and how they write."""

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from numadoctor.engine.exitcodes import FAIL_ON, ExitCode
from numadoctor.model import ParseError, Undecided

if TYPE_CHECKING:
    from numadoctor.host import Host

F = TypeVar("F", bound=Callable[..., Any])


def run_cli(cli: click.Command, args: list[str] | None) -> NoReturn:
    """Run ``cli``; whatever happens, one line on standard error and the agreed exit code."""
    try:
        code = cli.main(args, prog_name="numadoctor", standalone_mode=False)
        write_stdout("")
        sys.exit(code if isinstance(code, int) else ExitCode.OK)
    except click.ClickException as error:
        told = io.StringIO()
        error.show(file=told)
        write_stderr(_harmless(told.getvalue()))
        sys.exit(ExitCode.USAGE)
    except Undecided as error:
        _fail(str(error), ExitCode.INCOMPLETE)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (missing := _missing_package(error)):
            _fail(missing)
        if os.environ.get("NUMADOCTOR_DEBUG"):
            raise
        from numadoctor.engine.oneline import one_line

        _fail(f"crashed: {one_line(error)} (NUMADOCTOR_DEBUG=1 shows the traceback)")


# The module that an extra brings to the name of the extra.
_EXTRAS = {
    "ClusterShell": "fleet",
    "jinja2": "html",
    "numpy": "bench",
    "prometheus_client": "metrics",
    "pynvml": "gpu",
    "scipy": "bench",
    "yaml": "lint",
}


def _missing_package(error: ModuleNotFoundError) -> str:
    """What to install, if it is a package of others that is missing; else empty."""
    module = (error.name or "").partition(".")[0]
    if extra := _EXTRAS.get(module):
        return f"this needs {module}: pip install 'numadoctor[{extra}]'"
    if module in ("psutil", "pyroute2", "tabulate", "tomli"):
        return f"this needs {module}: pip install numadoctor"
    return ""


def write_stdout(text: str) -> None:
    """Write ``text`` to standard output and make sure that it got there.

    A reader that has seen enough (head, less) is no error: the exit code stays
    that of the verdict.

    :raises click.ClickException: it cannot be written
    """
    if sys.stdout is None:
        if text:
            raise click.ClickException("cannot write to standard output: it is closed")
        return
    try:
        # click would take colour away that was asked for with --color.
        click.echo(text, nl=False, color=True)
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise click.ClickException(
                f"cannot write to standard output: {error.strerror}"
            ) from None


def write_stderr(text: str) -> None:
    """Write ``text`` to standard error; where that is full or closed the exit code tells alone."""
    try:
        click.echo(text, nl=False, err=True)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: IO[str]) -> None:
    """Let what a stream could not write go: Python would try once more at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _harmless(text: str) -> str:
    """``text`` with its lines, and nothing else that acts on a terminal."""
    from numadoctor.report.terminal import sanitise

    return "\n".join(map(sanitise, text.split("\n")))


def _fail(message: str, code: ExitCode = ExitCode.USAGE) -> NoReturn:
    write_stderr(f"numadoctor: {_harmless(message)}\n")
    sys.exit(code)


def _complete_sysroot(_ctx: object, _param: object, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from numadoctor.host import sample_names

    samples = [CompletionItem(f"sample:{name}") for name in sample_names()]
    return [s for s in samples if s.value.startswith(incomplete)] or [
        CompletionItem(incomplete, type="dir")
    ]


class Size(click.ParamType):  # type: ignore[type-arg]  # generic in new releases
    """An amount of memory, read by ``parse_amount``; the value is in bytes.

    :param least: in bytes
    """

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from numadoctor.model.units import amount, parse_amount

        try:
            size = value if isinstance(value, int) else parse_amount(value)
        except ParseError as error:
            self.fail(str(error), param, ctx)
        if size < self.least:
            self.fail(f"{amount(size)} is too little: {amount(self.least)} or more.", param, ctx)
        return size


def sysroot_option(function: F) -> F:
    """``--sysroot``: examine a captured tree instead of this machine."""
    return click.option(
        "--sysroot",
        metavar="DIR|sample:NAME",
        shell_complete=_complete_sysroot,
        help="Examine a captured tree, another machine's root mounted at DIR, "
        "or a sample host that comes with numadoctor.",
    )(function)


def checks_dir_option(function: F) -> F:
    """``--checks-dir``: a site's own checks beside the built-in ones."""
    return click.option(
        "--checks-dir",
        "checks_dirs",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        help="Load a site's own checks from the Python files in this folder.",
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
        files = [file for _, file in chosen]
        if files.count(None) > 1:
            raise click.BadParameter("only one format can go to standard output.")
        twice = {file for file in files if file and files.count(file) > 1}
        if twice:
            raise click.BadParameter(f"several formats for one file: {', '.join(sorted(twice))}.")
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
        raise click.UsageError(f"--sysroot {sysroot}: {error.reason}") from None


def write_outputs(
    outputs: Iterable[tuple[str, str | None]], render: Callable[[str, bool], str]
) -> None:
    """Write each format where it belongs: files first, what a person reads last.

    A file that cannot be written keeps no other from being written; nothing then
    goes to standard output, where it would look as if all were well.

    :param render: format name, and whether it goes to standard output, to the text
    :raises click.ClickException: a file or standard output cannot be written
    """
    rendered = [(file, render(name, file is None)) for name, file in outputs]
    failures = []
    for file, text in rendered:
        if file is not None:
            try:
                _write_file(file, text)
            except OSError as error:
                failures.append(f"cannot write {file}: {error.strerror}")
    if failures:
        raise click.ClickException("; ".join(failures))
    for file, text in rendered:
        if file is None:
            write_stdout(text)


# Where a file may be written and its folder may not, or is another file system: a
# report bound into a container as a single file.
_ONLY_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)

# What these lead to may be a file, but whoever opened it has that one.
_OPENED = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")


def _write_file(file: str, text: str) -> None:
    """Write ``file``, whole or not at all where that can be: no reader sees half a report."""
    # A pipe or a device cannot be replaced.
    if (os.path.exists(file) and not os.path.isfile(file)) or file.startswith(_OPENED):
        _write(file, text, "w")
    else:
        # What stands behind a link is replaced, not the link.
        _replace(os.path.realpath(file), text)


def _replace(target: str, text: str) -> None:
    folder = os.path.dirname(target)
    # Hidden: whoever reads all files of the folder (Node Feature Discovery) passes over it.
    temporary = os.path.join(folder, f".numadoctor.{os.getpid()}.tmp")
    try:
        _write(temporary, text, "x", durable=True)
        if os.path.exists(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if not os.path.exists(target) or error.errno not in _ONLY_IN_PLACE:
            raise
        _write(target, text, "w")


def _write(path: str, text: str, mode: str, *, durable: bool = False) -> None:
    with open(path, mode, encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(text)
        if durable:
            # Else a crash of the machine may leave an empty file under the new name.
            stream.flush()
            os.fsync(stream.fileno())
