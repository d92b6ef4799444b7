"""What the kernel will make of a wanted set of nodes, told before the call is made."""

from collections.abc import Iterable
from typing import NamedTuple

from numadoctor.kernel.nodemask import to_text
from numadoctor.model import Fix
from numadoctor.model.binding import cpuset


class BindForecast(NamedTuple):
    """What ``mbind`` and ``set_mempolicy`` will do with a set of nodes.

    :ivar asked: the nodes that are wanted
    :ivar effective: those of them that the kernel will use; None when unknown
    :ivar not_allowed: wanted, and outside the cpuset
    :ivar without_memory: wanted, allowed, and without memory (or not there at all)
    :ivar errno: ``EINVAL`` when the call will fail, None when it will not or when unknown
    :ivar because: both sets side by side, and what follows
    """

    asked: tuple[int, ...]
    effective: tuple[int, ...] | None
    not_allowed: tuple[int, ...]
    without_memory: tuple[int, ...]
    errno: str | None
    because: str
    fixes: tuple[Fix, ...] = ()

    @property
    def narrowed(self) -> bool:
        """Whether the kernel will use fewer nodes than were asked for, without saying so."""
        return self.errno is None and self.effective not in (None, self.asked)


def predict_bind(
    nodes: Iterable[int],
    mems_allowed: Iterable[int] | None,
    memory_nodes: Iterable[int] | None = None,
) -> BindForecast:
    """The forecast for a set of nodes under MPOL_BIND or MPOL_INTERLEAVE.

    The kernel drops every node that the cpuset does not allow or that has no
    memory, silently; only when none is left it answers EINVAL (mpol_set_nodemask()
    in mm/mempolicy.c).

    :param mems_allowed: Mems_allowed_list of the process; None where unknown
    :param memory_nodes: the online nodes that have memory; None where unknown
    """
    asked = tuple(sorted(set(nodes)))
    if not asked:
        return BindForecast(asked, (), (), (), "EINVAL", "No node is asked for: EINVAL.")
    if mems_allowed is None:
        because = f"Asked for node {to_text(asked)}; which nodes are allowed is not known."
        return BindForecast(asked, None, (), (), None, because)
    allowed = set(mems_allowed)
    not_allowed = tuple(node for node in asked if node not in allowed)
    usable = allowed if memory_nodes is None else allowed & set(memory_nodes)
    effective = tuple(node for node in asked if node in usable)
    without_memory = tuple(node for node in asked if node in allowed and node not in usable)
    facts = f"Asked for node {to_text(asked)}; Mems_allowed_list is {to_text(allowed)}"
    if without_memory:
        facts += f"; no memory on node {to_text(without_memory)}"
    fixes = wider_cpuset(asked) if not_allowed else ()
    if not effective:
        because = f"{facts}: no node is left, and the call answers EINVAL."
        return BindForecast(asked, (), not_allowed, without_memory, "EINVAL", because, fixes)
    because = f"{facts}: the kernel uses node {to_text(effective)}"
    because += "." if effective == asked else " and drops the rest without a word."
    return BindForecast(asked, effective, not_allowed, without_memory, None, because, fixes)


def wider_cpuset(nodes: Iterable[int]) -> tuple[Fix, ...]:
    """How the cpuset of a process gets these memory nodes."""
    return (
        *cpuset(nodes=nodes),
        Fix(
            "kubernetes",
            "memoryManagerPolicy: None\n"
            "# in the kubelet's configuration: its Memory Manager chose these nodes, and gives "
            "more only to a pod that needs more memory than one has",
            needs_root=True,
            needs_restart=True,
            persists=True,
        ),
    )
