"""The numbers of a plan that does not fit: what is short, and what would fit."""

from collections.abc import Mapping, Sequence

from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text
from numadoctor.planning.machine import Machine
from numadoctor.planning.memory import Wish, place_pools


def shortest(wishes: Sequence[Wish], room: Mapping[int, int]) -> str:
    """What is wanted of each node that has too little, and what it has."""
    wanted: dict[tuple[int, ...], int] = {}
    for wish in wishes:
        wanted[wish.homes] = wanted.get(wish.homes, 0) + wish.size
    short = [
        f"{nodes_text(nodes)} has {amount(sum(room[n] for n in nodes))} for {amount(size)}"
        for nodes, size in wanted.items()
        if size > sum(room[node] for node in nodes)
    ]
    return ", ".join(short) or "no division over their nodes works out"


def largest(
    wishes: Sequence[Wish],
    room: Mapping[int, int],
    machine: Machine,
    weights: Mapping[int, int],
) -> str:
    """The largest pools that would fit, in MiB or GiB, found by halving."""
    low, high = 0, sum(room.values()) >> 20
    while low < high:
        middle = (low + high + 1) // 2
        smaller = [wish._replace(size=middle << 20) for wish in wishes]
        if place_pools(smaller, room, machine.distance, weights) is None:
            high = middle - 1
        else:
            low = middle
    return f"{low >> 10}GiB" if low >= 1 << 10 else f"{low}MiB"
