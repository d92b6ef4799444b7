"""The exit codes of every command: the one place where they are defined."""

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numadoctor.model import Finding


class ExitCode(enum.IntEnum):
    """What a command ends with; docs/exit-codes.md is written from the meanings."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    INCOMPLETE = 3

    @property
    def meaning(self) -> str:
        return _MEANING[self]


_MEANING = {
    ExitCode.OK: "nothing at or above --fail-on was found",
    ExitCode.FINDINGS: "something at or above --fail-on was found",
    ExitCode.USAGE: "the command was used wrongly, or numadoctor itself crashed",
    ExitCode.INCOMPLETE: "the examination is incomplete: the target vanished, could not be read "
    "or is a thread of the kernel, a check crashed, or --strict was given and something is unknown",
}

FAIL_ON = ("fail", "warn", "never")

_AT_OR_ABOVE: dict[str, frozenset[str]] = {
    "fail": frozenset({"fail"}),
    "warn": frozenset({"fail", "warn"}),
    "never": frozenset(),
}


def exit_code(
    findings: "Iterable[Finding]",
    *,
    fail_on: str = "fail",
    strict: bool = False,
    incomplete: bool = False,
) -> ExitCode:
    """The exit code that ``findings`` amount to.

    What was found outranks what was not: a pipeline that stops at 1 must stop
    also when, besides the failure, something could not be read.

    What is waived or in the baseline does not count.

    :param fail_on: one of FAIL_ON
    :param strict: unknown findings make the examination incomplete
    :param incomplete: a target could not be examined at all
    """
    statuses = {finding.status.value for finding in findings if finding.suppressed is None}
    if statuses & _AT_OR_ABOVE[fail_on]:
        return ExitCode.FINDINGS
    if incomplete or "error" in statuses or (strict and "unknown" in statuses):
        return ExitCode.INCOMPLETE
    return ExitCode.OK
