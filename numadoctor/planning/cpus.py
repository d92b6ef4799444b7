"""Which cores each instance gets: whole cores, in a row, with some left for everything else."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

# One core in so many is left on each node: enough for the interrupts of its NICs
# and drives, the kernel's threads, and a router or tokenizer beside the engines.
_ONE_IN = 16

Claims = Mapping[int, Fraction]
"""Node id to how much of its cores an instance wants beside the others."""


class TooFewCores(Exception):
    """A node has fewer cores than instances that need one of it.

    :param node: its id
    :param cores: that it has
    :param claimants: instances that need one
    """

    def __init__(self, node: int, cores: int, claimants: int) -> None:
        super().__init__(node, cores, claimants)
        self.node, self.cores, self.claimants = node, cores, claimants


class Cpus(NamedTuple):
    """Who runs where.

    :ivar instances: the CPUs of each instance, ascending
    :ivar reserved: CPUs that belong to none of them, by node
    :ivar short: nodes where nothing could be reserved
    """

    instances: tuple[tuple[int, ...], ...]
    reserved: Mapping[int, tuple[int, ...]]
    short: tuple[int, ...]


def divide_cores(
    cores: Mapping[int, Sequence[tuple[int, ...]]], claims: Sequence[Claims], keep: int | None
) -> Cpus:
    """The cores of each node, divided among the instances that claim them.

    :param cores: node id to its cores, each as its CPUs
    :param keep: cores to leave on each node; None for one in sixteen, one at least
    :raises TooFewCores: an instance would get none
    """
    taken: list[list[int]] = [[] for _ in claims]
    reserved: dict[int, tuple[int, ...]] = {}
    short = []
    for node, here in cores.items():
        claimants = [at for at, claim in enumerate(claims) if claim.get(node)]
        if len(here) < len(claimants):
            raise TooFewCores(node, len(here), len(claimants))
        wanted = max(1, len(here) // _ONE_IN) if keep is None else keep
        kept = min(wanted, len(here) - len(claimants))
        # The first cores: the boot CPU serves timers and whatever nobody moved away.
        reserved[node] = tuple(sorted(cpu for core in here[:kept] for cpu in core))
        if kept < wanted:
            short.append(node)
        weights = [claims[at][node] for at in claimants]
        first = kept
        for at, count in zip(claimants, _parts(len(here) - kept, weights), strict=True):
            taken[at] += [cpu for core in here[first : first + count] for cpu in core]
            first += count
    return Cpus(tuple(tuple(sorted(cpus)) for cpus in taken), reserved, tuple(short))


def _parts(total: int, weights: Sequence[Fraction]) -> list[int]:
    """``total`` cores in the proportion of ``weights``: whole ones, each part one at least."""
    if not weights:
        return []
    spare = total - len(weights)
    exact = [spare * weight / sum(weights) for weight in weights]
    parts = [1 + int(part) for part in exact]
    # What rounding left goes to those it took most from; of equals to the first.
    by_loss = sorted(range(len(weights)), key=lambda at: int(exact[at]) - exact[at])
    for at in by_loss[: total - sum(parts)]:
        parts[at] += 1
    return parts
