"""Finds the processes that are to be examined. Vanishing and EACCES are normal here."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from numadoctor.model import Missing, Target, Undecided

if TYPE_CHECKING:
    from numadoctor.host import Host


def find_targets(host: "Host", pids: Iterable[int]) -> tuple[list[Target], list[str]]:
    """A target for each pid that is there, and a line for each that cannot be examined."""
    targets, lines = [], []
    for pid in dict.fromkeys(pids):
        proc = f"/proc/{pid}"
        try:
            targets.append(Target(pid, host.status(proc).name or str(pid)))
        except Missing:
            lines.append(f"pid {pid}: no such process")
        except Undecided as error:
            lines.append(f"pid {pid}: {error}")
    return targets, lines
