"""Groups of GPUs against brute force over single GPUs, on machines with any links between them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from numadoctor.model import Topology
from numadoctor.planning.proposing import CannotFit, Wanted, propose
from tests.build_fixtures import Device, Machine
from tests.host.machines import host_of, machines
from tests.trees import fact

Group = tuple[int, ...]


class Case(NamedTuple):
    """A machine, and the NVLinks between its GPUs by their places."""

    machine: Machine
    nvlinks: Mapping[Group, int]

    @property
    def addresses(self) -> list[str]:
        return [device.address for device in self.machine.devices]

    def answer(self) -> str:
        """What NVML says of them."""
        ends = {
            n: [
                f"gpu {self.addresses[b if n == a else a]}"
                for (a, b), number in self.nvlinks.items()
                if n in (a, b)
                for _ in range(number)
            ]
            for n in range(len(self.addresses))
        }
        gpus = [{"index": n, "address": self.addresses[n], "nvlinks": ends[n]} for n in ends]
        return json.dumps({"unavailable": None, "driver": "1", "gpus": gpus})


@st.composite
def cases(draw: st.DrawFn) -> Case:
    machine = draw(machines().filter(lambda machine: machine.numa))
    ids = [node.id for node in machine.nodes]
    places = draw(st.lists(st.tuples(st.sampled_from(ids), st.booleans()), min_size=2, max_size=6))
    devices = tuple(
        Device(
            f"0000:{0x10 + bus:02x}:00.0",
            f"pci0000:{0xE0 + (0 if shared else bus):02x}/0000:{0xE0 + bus:02x}:01.0",
            0x030200,
            0x10DE,
            0x2330,
            node,
        )
        for bus, (node, shared) in enumerate(places)
    )
    numbers = st.sampled_from((0, 0, 2, 2, 4))
    nvlinks = {pair: draw(numbers) for pair in combinations(range(len(places)), 2)}
    return Case(replace(machine, devices=devices), {p: n for p, n in nvlinks.items() if n})


def every_division(count: int, groups: int, size: int) -> Iterator[list[Group]]:
    """All ways to form groups out of single GPUs; their order says nothing."""

    def fill(left: Group, found: list[Group]) -> Iterator[list[Group]]:
        if len(found) == groups:
            yield found
            return
        for group in combinations(left, size):
            if not found or group > found[-1]:
                yield from fill(tuple(g for g in left if g not in group), [*found, group])

    yield from fill(tuple(range(count)), [])


def apart(topology: Topology, one: int | None, other: int | None) -> int:
    """The distance of two nodes, of both ways the longer; the farthest where it is not told."""
    if one == other:
        return 0
    told = {node.id: node.distances for node in topology.nodes}
    far = max(d for distances in told.values() for d in distances.values())
    return max(told.get(a or 0, {}).get(b or 0, far) for a, b in ((one, other), (other, one)))


def figures(case: Case, topology: Topology, groups: Sequence[Group]) -> tuple[int, ...]:
    """The first figures of docs/plan.md, from what is known of each GPU and each pair."""
    nodes = [device.node for device in topology.devices]
    unjoined = spans = distance = weaker = 0
    for group in groups:
        spans += len({nodes[gpu] for gpu in group}) - 1
        for one, other in combinations(group, 2):
            distance += apart(topology, nodes[one], nodes[other])
            number = case.nvlinks.get((one, other), 0)
            unjoined += not number
            weaker += max(case.nvlinks.values(), default=0) - number if number else 0
    return unjoined if case.nvlinks else 0, spans, distance, weaker


@settings(max_examples=150, deadline=None)
@given(cases(), st.data())
def test_no_other_groups_are_better(case: Case, data: st.DataObject) -> None:
    count = len(case.addresses)
    size = data.draw(st.integers(1, count))
    groups = data.draw(st.integers(1, count // size))
    host = host_of(case.machine, {fact("nvml"): case.answer()})
    try:
        found = propose(host, Wanted(groups, size, keep_cores=0))
    except CannotFit:
        return
    chosen = [
        tuple(case.addresses.index(gpu) for gpu in one.instance.gpus or ()) for one in found.chosen
    ]
    assert found.proven
    best = min(
        figures(case, host.topology, division) for division in every_division(count, groups, size)
    )
    assert figures(case, host.topology, chosen) == best
    for one, group in zip(found.chosen, chosen, strict=True):
        lacking = case.nvlinks and any(p not in case.nvlinks for p in combinations(group, 2))
        assert bool(lacking) == any("not joined by NVLink" in text for text in one.given_up)
