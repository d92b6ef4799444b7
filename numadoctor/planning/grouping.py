"""The GPUs of each instance: those that were asked for, or the best division of all."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.model import Device, ParseError
from numadoctor.model.device import GpuLink
from numadoctor.model.plan import PoolPolicy
from numadoctor.planning.machine import Machine
from numadoctor.planning.partition import GpuClass, Problem, divide

if TYPE_CHECKING:
    from numadoctor.planning.proposing import Wanted


class Grouping(NamedTuple):
    """The GPUs of each instance and the memory near to them.

    :ivar homes: for each instance the memory nodes near to its GPUs
    :ivar given: the groups were asked for
    """

    groups: tuple[tuple[Device, ...], ...]
    homes: tuple[tuple[int, ...], ...]
    proven: bool = True
    compared: int = 1
    given: bool = False


def group_gpus(machine: Machine, wanted: "Wanted") -> Grouping | None:
    """The groups; None where the machine has too few GPUs.

    :raises ParseError: a group names a GPU that is not there, or that another has
    """
    if wanted.groups:
        groups = _asked_for(machine, wanted.groups)
        homes = tuple(_homes(machine, group) for group in groups)
        return Grouping(groups, homes, given=True)
    if not wanted.gpus:
        return _without_gpus(machine, wanted.instances)
    return _best(machine, wanted)


def _asked_for(machine: Machine, groups: Sequence[Sequence[str]]) -> tuple[tuple[Device, ...], ...]:
    taken: dict[str, str] = {}
    found = []
    for words in groups:
        group = []
        for word in words:
            gpu = machine.gpu(word)
            if gpu.address in taken:
                raise ParseError("GPU", word, f"it is {gpu.address}, which is named twice")
            taken[gpu.address] = word
            group.append(gpu)
        found.append(tuple(group))
    return tuple(found)


def _homes(machine: Machine, gpus: Sequence[Device]) -> tuple[int, ...]:
    """The memory nodes near to GPUs; all of them for one whose node is unknown."""
    memory = [node.id for node in machine.memory_nodes]
    near: set[int] = set()
    for gpu in gpus:
        near.update(memory if gpu.node is None else machine.nearest(gpu.node, memory))
    return tuple(sorted(near))


def _without_gpus(machine: Machine, instances: int) -> Grouping:
    """Instances that compute on CPUs: the nodes in turn, or several nodes for each."""
    # Where CPUs and memory are apart, memory is taken and the nearest CPUs come to it.
    nodes = [node.id for node in machine.memory_nodes]
    homes: list[tuple[int, ...]] = []
    for at in range(instances):
        if instances >= len(nodes):
            homes.append((nodes[at % len(nodes)],))
        else:
            first, last = (n * len(nodes) // instances for n in (at, at + 1))
            homes.append(tuple(nodes[first:last]))
    return Grouping(tuple(() for _ in homes), tuple(homes))


def _best(machine: Machine, wanted: "Wanted") -> Grouping | None:
    members = list(_classes(machine))
    with_nic = {nic.node for nic in machine.nics if nic.node is not None}
    classes = tuple(
        GpuClass(
            node,
            bridge,
            len(gpus),
            _homes(machine, gpus),
            not machine.nics or node in with_nic,
        )
        for node, bridge, gpus in members
    )
    nodes = {one.node for one in classes if one.node is not None}
    unknown = wanted.pool_size * wanted.instances
    problem = Problem(
        classes,
        wanted.instances,
        wanted.gpus or 0,
        # Firmware may tell another distance for the way back: traffic goes both ways.
        {
            (a, b): max(machine.distance(a, b), machine.distance(b, a))
            for a in nodes
            for b in nodes
            if a != b
        },
        machine.far,
        machine.room_for(wanted.page_size, unknown),
        wanted.pool_size,
        wanted.policy is PoolPolicy.BIND,
        _links(machine, [gpus for _, _, gpus in members]),
    )
    division = divide(problem)
    if division is None:
        return None
    left = [list(gpus) for _, _, gpus in members]
    groups = []
    for counts in division.groups:
        group = []
        for gpus, count in zip(left, counts, strict=True):
            group += gpus[:count]
            del gpus[:count]
        groups.append(tuple(sorted(group, key=machine.gpus.index)))
    # The order in which people number them: the instance with the first GPU first.
    groups.sort(key=lambda group: machine.gpus.index(group[0]))
    homes = tuple(_homes(machine, group) for group in groups)
    return Grouping(tuple(groups), homes, division.proven, division.compared)


def _classes(machine: Machine) -> Iterator[tuple[int | None, str, list[Device]]]:
    """GPUs that are alike, by node and host bridge; one with one GPU is none that is shared."""
    sharing: dict[tuple[int | None, str], list[Device]] = defaultdict(list)
    for gpu in machine.gpus:
        sharing[gpu.node, gpu.path[0] if gpu.path else ""].append(gpu)
    members: dict[tuple[int | None, str], list[Device]] = defaultdict(list)
    for gpu in machine.gpus:
        bridge = gpu.path[0] if gpu.path else ""
        alone = len(sharing[gpu.node, bridge]) < 2
        members[gpu.node, "" if alone or gpu.node is None else bridge].append(gpu)
    for (node, bridge), gpus in members.items():
        for alike in _alike(machine, gpus):
            yield node, bridge, alike


def _alike(machine: Machine, gpus: Iterable[Device]) -> list[list[Device]]:
    """Parted into such that have the same links to all others, and so to each other."""
    parts: list[list[Device]] = []
    for gpu in gpus:
        for part in parts:
            if all(
                machine.links.between(gpu, other) == machine.links.between(part[0], other)
                for other in machine.gpus
                if other not in (gpu, part[0])
            ):
                part.append(gpu)
                break
        else:
            parts.append([gpu])
    return parts


def _links(machine: Machine, classes: Sequence[Sequence[Device]]) -> dict[tuple[int, int], int]:
    """How much weaker than the strongest link the one between GPUs of two classes is."""
    found: dict[tuple[int, int], GpuLink] = {}
    for at, ones in enumerate(classes):
        for to, others in enumerate(classes):
            pairs = ((one, other) for one in ones for other in others if one is not other)
            link = next((machine.links.between(*pair) for pair in pairs), None)
            if link is not None:
                found[at, to] = link
    most = max((link.number or 0 for link in found.values()), default=0)
    return {pair: most - (link.number or 0) + link.hops - 1 for pair, link in found.items()}
