"""Puts a plan together: GPUs, memory, CPUs, NICs, huge pages; and explains or refuses it."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.kernel.nodemask import to_text
from numadoctor.model import Device, Undecided, distance
from numadoctor.model.device import Distance
from numadoctor.model.plan import (
    Chosen,
    HugePages,
    Instance,
    NodeBudget,
    PlannedGpu,
    PoolBacking,
    PoolPolicy,
    Proposal,
    Refusal,
    Snippet,
)
from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text
from numadoctor.planning import explaining
from numadoctor.planning.cpus import Claims, Cpus, TooFewCores, divide_cores
from numadoctor.planning.grouping import Grouping, group_gpus
from numadoctor.planning.launchers import huge_page_commands, snippets
from numadoctor.planning.machine import Machine
from numadoctor.planning.memory import Placed, Wish, place_pools
from numadoctor.planning.partition import MOST_SEARCHED
from numadoctor.planning.refusing import largest, shortest
from numadoctor.planning.starting import AMD, NVIDIA, Start

if TYPE_CHECKING:
    from numadoctor.host import Host

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")

WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"


class Wanted(NamedTuple):
    """What is asked for.

    :ivar instances: their number; the length of ``groups`` if those are given
    :ivar gpus: for each instance; None for all there are, divided among them
    :ivar groups: the GPUs of each instance, as people name them; empty to choose
    :ivar pool_size: of each instance, in bytes
    :ivar policy: None to choose
    :ivar page_size: of a pool of huge pages, in bytes; None for ordinary pages
    :ivar keep_cores: cores to leave on each node; None to choose
    :ivar launchers: names of ``launchers.LAUNCHERS``
    :ivar command: what to start, as a line of shell
    """

    instances: int
    gpus: int | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    pool_size: int = 0
    policy: PoolPolicy | None = None
    page_size: int | None = None
    backing: PoolBacking | None = None
    keep_cores: int | None = None
    launchers: tuple[str, ...] = ("numactl",)
    command: str = "COMMAND"


class CannotFit(Exception):
    """There is no such plan; ``refusal`` says why, with the numbers."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


def propose(host: "Host", wanted: Wanted) -> Proposal:
    """The best plan for a machine.

    :raises CannotFit: what is wanted does not fit
    :raises ParseError: a group names a GPU that is not there, or one twice
    :raises Undecided: the topology cannot be read
    """
    return _Proposer(host, wanted).propose()


class _Proposer:
    def __init__(self, host: "Host", wanted: Wanted) -> None:
        self.host = host
        self.machine = Machine(host)
        # Nobody said how many GPUs an instance is to have: all of them are meant.
        self.undivided = wanted.gpus is None and not wanted.groups
        if wanted.gpus is None:
            wanted = wanted._replace(gpus=len(self.machine.gpus) // wanted.instances)
        self.gpus = wanted.gpus or 0
        self.wanted = wanted

    def propose(self) -> Proposal:
        if not self.machine.topology.numa:
            raise self.refused(
                "this kernel has no NUMA support: every GPU, CPU and page is as near as any other",
            )
        if not self.machine.memory_nodes:
            reasons = [f"node {node}: {why}" for node, why in self.machine.left_out.items()]
            raise self.refused("no node has memory that this process may use", reasons)
        if not self.machine.cores:
            raise self.refused("no node has a CPU that this process may use")
        have = len(self.machine.gpus)
        if have and self.undivided and have < self.wanted.instances:
            raise self.refused(
                f"{have} GPU{'' if have == 1 else 's'} cannot be divided among "
                f"{self.wanted.instances} instances",
                [f"GPU {at}: {gpu.address}" for at, gpu in enumerate(self.machine.gpus)],
                ["--gpus-per-instance 0, for instances that compute on CPUs"],
            )
        grouping = group_gpus(self.machine, self.wanted)
        if grouping is None:
            need = self.wanted.instances * self.gpus
            raise self.refused(
                f"{self.wanted.instances} × {self.gpus} GPUs are {need}, and the machine "
                f"has {have}",
                [f"GPU {at}: {gpu.address}" for at, gpu in enumerate(self.machine.gpus)],
                [_fewer(have, self.gpus)] if have else [],
            )
        placed = self.memory(grouping)
        cpus = self.cpus(grouping, placed)
        nics = self.nics(grouping)
        pages = self.huge_pages(placed)
        chosen = tuple(
            self.instance(at, grouping, placed[at], cpus, nics[at])
            for at in range(len(grouping.groups))
        )
        return Proposal(
            host=self.host.name,
            chosen=chosen,
            nodes=self.budget(placed),
            reserved_cpus=tuple(sorted(c for kept in cpus.reserved.values() for c in kept)),
            huge_pages=pages,
            proven=grouping.proven,
            compared=grouping.compared,
            remarks=tuple(self.remarks(grouping, cpus)),
            prepare=self.prepare(pages),
        )

    def refused(
        self, reason: str, details: Sequence[str] = (), advice: Sequence[str] = ()
    ) -> CannotFit:
        return CannotFit(Refusal(self.host.name, reason, tuple(details), tuple(advice)))

    def memory(self, grouping: Grouping) -> list[Placed]:
        unknown = self.wanted.pool_size * self.wanted.instances
        room = self.machine.room_for(self.wanted.page_size, unknown)
        # A pool of huge pages is divided page by page.
        unit = self.wanted.page_size or 1
        pages = -(-self.wanted.pool_size // unit)
        wishes = [Wish(homes, pages, self.wanted.policy) for homes in grouping.homes]
        weights = self.weights()
        left = {node: have // unit for node, have in room.items()}
        placed = place_pools(wishes, left, self.machine.distance, weights)
        if placed is not None:
            return [
                Placed(one.policy, {node: part * unit for node, part in one.shares.items()})
                for one in placed
            ]
        wishes = [wish._replace(size=pages * unit) for wish in wishes]
        total, have = self.wanted.pool_size * len(wishes), sum(room.values())
        details = [
            f"node {node}: {amount(size)} for pools (free and reclaimable)"
            for node, size in room.items()
        ]
        details += [f"node {node}: none: {why}" for node, why in self.machine.left_out.items()]
        number = f"{len(wishes)} × {amount(self.wanted.pool_size)}"
        advice = [f"--pool-size {largest(wishes, room, self.machine, weights)}"]
        if self.wanted.policy is PoolPolicy.BIND and total <= have:
            raise self.refused(
                f"{number} bound to the nodes of their GPUs do not fit: {shortest(wishes, room)}",
                details,
                ["--mode interleave spreads a pool over nodes that have room", *advice],
            )
        raise self.refused(
            f"{number} of pools are {amount(total)}, and the nodes have {amount(have)} for them",
            details,
            advice,
        )

    def weights(self) -> Mapping[int, int]:
        if self.wanted.policy is not PoolPolicy.WEIGHTED:
            return {}
        from numadoctor.host.parsers import parse_weight

        try:
            return {
                node.id: self.host.parse(f"{WEIGHTS}/node{node.id}", parse_weight)
                for node in self.machine.memory_nodes
            }
        except Undecided as error:
            raise self.refused(
                f"the weights of the nodes cannot be had ({error}): weighted interleave needs "
                "Linux 6.9",
                advice=["--mode interleave"],
            ) from None

    def claims(self, grouping: Grouping, placed: Sequence[Placed]) -> list[Claims]:
        """Each instance wants cores of the nodes of its GPUs, in proportion to them."""
        claims: list[Claims] = []
        with_cores = self.machine.cores
        for gpus, one in zip(grouping.groups, placed, strict=True):
            claim: dict[int, Fraction] = {}
            for node in [gpu.node for gpu in gpus] or one.nodes:
                near = tuple(with_cores) if node is None else self.machine.nearest(node, with_cores)
                for each in near:
                    claim[each] = claim.get(each, Fraction(0)) + Fraction(1, len(near))
            claims.append(claim)
        return claims

    def cpus(self, grouping: Grouping, placed: Sequence[Placed]) -> Cpus:
        cores = {node: [core.cpus for core in c] for node, c in self.machine.cores.items()}
        try:
            return divide_cores(cores, self.claims(grouping, placed), self.wanted.keep_cores)
        except TooFewCores as error:
            raise self.refused(
                f"{error.claimants} instances need cores of node {error.node}, which has "
                f"{error.cores} that may be used",
                [f"node {node}: {len(c)} cores" for node, c in self.machine.cores.items()],
                ["fewer instances"],
            ) from None

    def nics(self, grouping: Grouping) -> list[tuple[Device, ...]]:
        """For each GPU the nearest NIC on its node; those that others have come last."""
        used = dict.fromkeys((nic.address for nic in self.machine.nics), 0)
        found = []
        for gpus in grouping.groups:
            mine: dict[str, Device] = {}
            for gpu in gpus:
                near = [
                    (apart, used[nic.address], nic.address, nic)
                    for nic in self.machine.nics
                    # In a guest one host bridge is above all devices, wherever they are.
                    if gpu.node is not None
                    and (apart := distance(gpu, nic)) is not None
                    and apart <= Distance.NODE
                ]
                if near:
                    nic = min(near, key=lambda one: one[:3])[3]
                    used[nic.address] += 1
                    mine[nic.address] = nic
            found.append(tuple(mine.values()))
        return found

    def huge_pages(self, placed: Sequence[Placed]) -> tuple[HugePages, ...]:
        size = self.wanted.page_size
        if not size or not self.wanted.pool_size:
            return ()
        needed: dict[int, int] = {}
        for one in placed:
            for node, share in one.shares.items():
                needed[node] = needed.get(node, 0) + -(-share // size)
        found = []
        for node, count in sorted(needed.items()):
            total, free = self.machine.pool(node, size)
            found.append(HugePages(node, size, count, free, total + max(0, count - free)))
        return tuple(found)

    def prepare(self, pages: Sequence[HugePages]) -> tuple[Snippet, ...]:
        short = [(p.node, p.page_size, p.total) for p in pages if p.free < p.needed]
        return (huge_page_commands(short),) if short else ()

    def instance(
        self,
        at: int,
        grouping: Grouping,
        placed: Placed,
        cpus: Cpus,
        nics: tuple[Device, ...],
    ) -> Chosen:
        gpus, mine = grouping.groups[at], cpus.instances[at]
        even = placed.policy is PoolPolicy.INTERLEAVE or len(placed.nodes) < 2
        # What spills over is no part of the policy.
        homes = tuple(node for node in grouping.homes[at] if node in placed.nodes)
        held = placed.policy.is_strict or placed.policy.spreads
        backing = self.wanted.backing or (PoolBacking.HUGETLB if self.wanted.page_size else None)
        instance = Instance(
            name=f"instance-{at}",
            gpus=tuple(gpu.address for gpu in gpus),
            pool_size=self.wanted.pool_size or None,
            backing=backing,
            page_size=self.wanted.page_size,
            policy=placed.policy,
            nodes=placed.nodes if held else homes or placed.nodes,
            cpus=mine,
            nics=tuple(_nic_name(nic) for nic in nics),
            shares={} if even or not self.wanted.pool_size else dict(placed.shares),
        )
        story = explaining.Story(self.machine, self.wanted.pool_size, instance, gpus,
                                 grouping.homes[at], nics, grouping.given)  # fmt: skip
        planned = tuple(self.planned(gpu) for gpu in gpus)
        start = Start(
            instance,
            planned,
            gpus[0].vendor_name if gpus else "",
            tuple(_nic_name(nic) for nic in nics),
            bool(nics) and all(nic.rdma for nic in nics),
            self.cpus_by_gpu(gpus, mine),
            tuple(self.memory_node(gpu) for gpu in gpus),
            tuple(sorted(c for kept in cpus.reserved.values() for c in kept)),
            self.wanted.command,
        )
        return Chosen(
            instance,
            planned,
            tuple(explaining.why(story)),
            tuple(explaining.given_up(story)),
            tuple(explaining.assumed(story)),
            snippets(start, self.wanted.launchers),
        )

    def planned(self, gpu: Device) -> PlannedGpu:
        index = self.machine.gpus.index(gpu) if gpu in self.machine.gpus else -1
        uuid = gpu.uuid if _PLAIN.fullmatch(gpu.uuid) else ""
        return PlannedGpu(gpu.address, index, gpu.node, gpu.node_source, gpu.model, uuid)

    def memory_node(self, gpu: Device) -> int | None:
        if gpu.node is None:
            return None
        return self.machine.nearest(gpu.node, (n.id for n in self.machine.memory_nodes))[0]

    def cpus_by_gpu(
        self, gpus: Sequence[Device], cpus: tuple[int, ...]
    ) -> tuple[tuple[int, ...], ...]:
        """The instance's cores, those of each node divided among its GPUs there."""
        mine = set(cpus)
        cores = {
            node: [core.cpus for core in c if set(core.cpus) <= mine]
            for node, c in self.machine.cores.items()
        }
        claims: list[Claims] = []
        for gpu in gpus:
            near = [node for node in cores if cores[node]]
            if gpu.node is not None:
                near = list(self.machine.nearest(gpu.node, near))
            claims.append({node: Fraction(1) for node in near})
        try:
            return divide_cores(cores, claims, 0).instances
        except TooFewCores:
            # Fewer cores than GPUs: their workers have to share.
            return tuple(cpus for _ in gpus)

    def budget(self, placed: Sequence[Placed]) -> tuple[NodeBudget, ...]:
        return tuple(
            NodeBudget(
                node.id,
                node.kind.value,
                self.machine.room.get(node.id),
                sum(one.shares.get(node.id, 0) for one in placed),
                self.machine.left_out.get(node.id, ""),
            )
            for node in self.machine.topology.nodes
        )

    def remarks(self, grouping: Grouping, cpus: Cpus) -> list[str]:
        found = []
        if not grouping.proven and not grouping.given:
            found.append(
                f"The machine has more than {MOST_SEARCHED} GPUs: groups were filled node by "
                "node, and a better choice may exist."
                if len(self.machine.gpus) > MOST_SEARCHED
                else "Not all choices of GPUs were looked at: a better one may exist."
            )
        if not grouping.given and 1 < self.gpus < len(self.machine.gpus):
            links = self.machine.links
            rest = "those not told of" if links.joined else "all"
            found += [
                f"Which GPUs {kind} joins is unknown ({reason}): {rest} were taken as not joined."
                for kind, reason in links.unknown.items()
            ]
        used = {gpu for group in grouping.groups for gpu in group}
        if used and (idle := [gpu for gpu in self.machine.gpus if gpu not in used]):
            places = to_text(self.machine.gpus.index(gpu) for gpu in idle)
            found.append(f"No instance has GPU{'' if len(idle) == 1 else 's'} {places}.")
        for gpu in self.machine.other_gpus:
            name = gpu.model or f"{gpu.vendor_name} {gpu.vendor:04x}:{gpu.device:04x}".strip()
            found.append(
                f"GPU {gpu.address} ({name}) is left out: the others are of another model."
            )
        makers = {gpu.vendor_name for gpu in used}
        if others := sorted(makers - {AMD, NVIDIA}):
            names = ", ".join(filter(None, others)) or "their maker"
            found.append(
                f"No variable that chooses GPUs is known for {names}: each instance has to be told "
                "its GPUs in the words of its runtime."
            )
        if AMD in makers:
            found.append(
                "ROCm numbers GPUs in an order of its own, which is usually that of the bus: "
                "compare with rocm-smi --showbus."
            )
        if cpus.short:
            found.append(
                f"No core is left for interrupts on {nodes_text(cpus.short)}: the instances "
                "need all of them."
            )
        if cut := self.machine.cut_nodes:
            found.append(
                f"No core of {nodes_text(cut)} is whole: siblings are on another node or may not "
                "be used here, so that instances share cores with others."
            )
        if broken := self.machine.broken_cores:
            found.append(
                f"CPUs {to_text(broken)} are left out: their siblings are not allowed here, or "
                "are on another node."
            )
        unused = [node for node in self.machine.cores
                if not any(set(c.cpus) <= set(mine) for mine in cpus.instances
                           for c in self.machine.cores[node])]  # fmt: skip
        if unused:
            found.append(f"No instance uses CPUs of {nodes_text(unused)}.")
        unread = [node for node, room in self.machine.room.items() if room is None]
        if unread and self.wanted.pool_size:
            found.append(
                f"What is free on {nodes_text(unread)} cannot be read: that the pools fit is "
                "assumed."
            )
        return found


def _fewer(have: int, each: int) -> str:
    """What the GPUs that there are suffice for."""
    return f"--instances {have // each}" if have >= each else f"--gpus-per-instance {have}"


def _nic_name(nic: Device) -> str:
    """What programs call it. Names come from the examined machine and go into commands."""
    names = (*nic.rdma, *nic.interfaces, *nic.names)
    return next((name for name in names if _PLAIN.fullmatch(name)), nic.address)
