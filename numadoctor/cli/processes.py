"""Which processes a command is about: the options that choose them, and what they choose."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.model import Target

F = TypeVar("F", bound=Callable[..., Any])


class Choice(NamedTuple):
    """What was asked for; the fields are those of ``find_targets``."""

    pids: tuple[int, ...]
    name: str | None
    cgroup: str | None
    container: str | None
    unit: str | None
    tree: bool

    @property
    def empty(self) -> bool:
        return not any(self[:5])

    @property
    def may_come(self) -> bool:
        """A process that was asked for may not have started yet."""
        return any(self[1:5])

    def find(self, host: "Host") -> "tuple[list[Target], list[str]]":
        """The processes on ``host``, and a line for each that cannot be examined.

        :raises click.UsageError: a pattern or an id is none
        """
        from numadoctor.engine.targets import find_targets
        from numadoctor.model import ParseError

        try:
            return find_targets(host, **self._asdict())
        except ParseError as error:
            raise click.UsageError(str(error)) from None


def process_options(function: F) -> F:
    """``--name``, ``--cgroup``, ``--container``, ``--unit``, ``--tree``: choose processes."""
    for option in reversed(
        (
            click.option(
                "--name",
                metavar="REGEX",
                help="Processes whose command line the regular expression matches.",
            ),
            click.option("--cgroup", metavar="PATH", help="Processes in this control group."),
            click.option(
                "--container", metavar="ID", help="Processes of the container with this id."
            ),
            click.option("--unit", metavar="NAME", help="Processes of this systemd unit."),
            click.option(
                "--tree/--no-tree",
                default=True,
                show_default=True,
                help="Their descendants, too.",
            ),
        )
    ):
        function = option(function)
    return function
