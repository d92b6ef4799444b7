"""Where the pool of each instance goes: its nodes, how much on each, under which policy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations
from typing import NamedTuple

from numadoctor.model.plan import PoolPolicy

# All sets of nodes are tried up to here; beyond, only those that grow from the
# pool's own nodes, nearest first.
_MOST_SUBSETS = 10

# Placements that are tried for all pools together before it is said that none fits.
_MOST_STEPS = 5_000

Distance = Callable[[int, int], int]


class Wish(NamedTuple):
    """A pool that is to be placed.

    :ivar homes: the nodes near to its GPUs
    :ivar size: bytes
    :ivar policy: None to choose: bind on one node, interleave on several
    """

    homes: tuple[int, ...]
    size: int
    policy: PoolPolicy | None = None


class Placed(NamedTuple):
    """Where a pool goes.

    :ivar shares: node id to bytes
    """

    policy: PoolPolicy
    shares: Mapping[int, int]

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted(self.shares))


def place_pools(
    wishes: Sequence[Wish],
    room: Mapping[int, int],
    distance: Distance,
    weights: Mapping[int, int],
) -> list[Placed] | None:
    """A place for every pool, each as near as can be; None where there is none for all.

    Pools that come first choose first, unless a later one then finds no room.

    :param room: memory node to bytes that can be had
    :param weights: node to its weight for weighted interleave
    """
    steps = 0
    # What the pools from each on need together: less room than that is too little at once.
    needed = list(accumulate((wish.size for wish in reversed(wishes)), initial=0))[::-1]

    def place(at: int, left: Mapping[int, int]) -> list[Placed] | None:
        nonlocal steps
        if at == len(wishes):
            return []
        if needed[at] > sum(left.values()):
            return None
        for one in _candidates(wishes[at], left, distance, weights):
            steps += 1
            if steps > _MOST_STEPS:
                return None
            rest = {node: have - one.shares.get(node, 0) for node, have in left.items()}
            if (others := place(at + 1, rest)) is not None:
                return [one, *others]
        return None

    return place(0, room)


def _candidates(
    wish: Wish, room: Mapping[int, int], distance: Distance, weights: Mapping[int, int]
) -> Iterator[Placed]:
    """The placements that fit into ``room``, best first."""
    if wish.policy in (PoolPolicy.PREFERRED, PoolPolicy.LOCAL, PoolPolicy.BIND):
        order = [] if wish.policy.is_strict else _by_nearness(wish.homes, room, distance)
        if shares := filled(wish.size, wish.homes, order, room):
            yield Placed(wish.policy, shares)
        return
    spreading = wish.policy or PoolPolicy.INTERLEAVE
    for nodes in _sets(wish.homes, room, distance):
        single = wish.policy is None and len(nodes) == 1
        by = weights if spreading is PoolPolicy.WEIGHTED else {}
        shares = spread(wish.size, nodes, by)
        if all(size <= room[node] for node, size in shares.items()):
            yield Placed(PoolPolicy.BIND if single else spreading, shares)


def _sets(
    homes: tuple[int, ...], room: Mapping[int, int], distance: Distance
) -> Iterator[tuple[int, ...]]:
    """Sets of nodes for an interleave: the pool's own first, then more, then without full ones."""
    own = tuple(node for node in homes if node in room)
    others = _by_nearness(own, room, distance)
    grown = [tuple(sorted((*own, *others[:count]))) for count in range(len(others) + 1)]
    yield from (nodes for nodes in grown if nodes)
    if len(room) > _MOST_SUBSETS:
        return
    subsets = [
        nodes
        for count in range(1, len(room) + 1)
        for nodes in combinations(sorted(room), count)
        if nodes not in grown
    ]

    def harm(nodes: tuple[int, ...]) -> tuple[int, int, int]:
        lost = len(set(own) - set(nodes))
        far = sum(min((distance(home, node) for home in own), default=0) for node in nodes)
        return lost, len(set(nodes) - set(own)), far

    yield from sorted(subsets, key=harm)


def _by_nearness(homes: Sequence[int], room: Mapping[int, int], distance: Distance) -> list[int]:
    """The nodes that are no homes, nearest to any home first."""
    others = sorted(set(room) - set(homes))
    return sorted(others, key=lambda n: (min((distance(h, n) for h in homes), default=0), n))


def spread(size: int, nodes: Sequence[int], weights: Mapping[int, int]) -> dict[int, int]:
    """``size`` bytes in turn over ``nodes``: equal parts, or by weight; the first take the rest."""
    by = {node: weights.get(node, 1) for node in nodes}
    total = sum(by.values())
    shares = {node: size * by[node] // total for node in nodes}
    for node in list(shares)[: size - sum(shares.values())]:
        shares[node] += 1
    return shares


def filled(
    size: int, homes: Sequence[int], others: Sequence[int], room: Mapping[int, int]
) -> dict[int, int] | None:
    """``size`` bytes on ``homes``, equal as far as their room goes; the rest on ``others``.

    None where there is not enough room.
    """
    shares: dict[int, int] = {}
    missing = size
    # The fullest first: what it cannot take is shared out among the others.
    order = sorted((node for node in homes if node in room), key=lambda node: room[node])
    for place, node in enumerate(order):
        part = min(-(-missing // (len(order) - place)), max(0, room[node]))
        shares[node] = part
        missing -= part
    for node in others:
        if missing:
            shares[node] = min(missing, max(0, room[node]))
            missing -= shares[node]
    if missing:
        return None
    return {node: part for node, part in sorted(shares.items()) if part or not size}
