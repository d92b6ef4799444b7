"""Sizes on the command line: one grammar for every option, and one clear line for what is none."""

import contextlib
import importlib
import io

import click
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from numadoctor.cli import COMMANDS, main
from numadoctor.cli.common import Size
from numadoctor.model import ParseError
from numadoctor.model.units import amount, parse_amount


def options() -> list[tuple[str, click.Option]]:
    """Every option of every command, with the command's name."""
    return [
        (name, option)
        for name in COMMANDS
        for option in importlib.import_module(f"numadoctor.cli.{name}").command.params
        if isinstance(option, click.Option)
    ]


SIZES = [(name, option.opts[0]) for name, option in options() if isinstance(option.type, Size)]


def test_every_option_that_is_called_size_takes_one() -> None:
    called = [
        (name, option.opts[0])
        for name, option in options()
        if "size" in f"{option.opts[0]} {option.metavar}".lower()
    ]
    assert called == SIZES
    assert len(SIZES) >= 5


def refused(command: str, option: str, text: str) -> str:
    """What is said of a command that ends with exit code 2 before it did anything."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):  # noqa: SIM117
        with pytest.raises(SystemExit) as ended:
            main([command, f"{option}={text}"])
    assert (ended.value.code, out.getvalue()) == (2, "")
    return err.getvalue()


@pytest.mark.parametrize(("command", "option"), SIZES)
@given(text=st.text(max_size=12) | st.from_regex(r"[-+]?[0-9.]{1,9}[bkmgi]{0,3}", fullmatch=True))
@example("-1G")
@example("inf")
@example("nan")
@example("1.5")
@example("0.0001K")
@example("9" * 40)
@example("\x1b[31m1G\n")
@example("\udcff")
@example("")
def test_what_is_no_size_is_one_line_and_exit_code_2(command: str, option: str, text: str) -> None:
    try:
        parse_amount(text)
    except ParseError as error:
        reason = error.reason
    else:
        assume(False)
    *_, last = refused(command, option, text).splitlines()
    assert last.startswith(f"Error: Invalid value for '{option}': bad size ")
    assert last.endswith(reason)
    assert "\x1b" not in last


def test_a_pool_of_nothing_is_refused() -> None:
    assert "0 B is too little: 1 B or more." in refused("interleave", "--size", "0")


@given(st.integers(1, 1 << 60))
def test_a_size_that_was_printed_is_taken(count: int) -> None:
    taken = Size().convert(amount(count), None, None)
    assert taken == parse_amount(amount(count))
    assert Size().convert(taken, None, None) == taken
