"""Chooses which GPUs make up each group: the best of all choices, on up to 16 GPUs.

GPUs that differ in nothing the cost looks at (same node, same host bridge, same
links to all others) are one class, so that what is enumerated are counts by
class and not single GPUs: 8 GPUs on two nodes give 9 kinds of pairs of nodes
instead of 70 sets of four. Branches whose best possible outcome is no better
than what is found are cut.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

MOST_SEARCHED = 16
"""With more GPUs than this groups are filled greedily (``greedy``)."""

MOST_STEPS = 500_000
"""Kinds of groups that are tried in one search; a search that ends here is not proven."""

Counts = tuple[int, ...]


class GpuClass(NamedTuple):
    """GPUs that are alike.

    :ivar node: None for GPUs whose node is unknown
    :ivar bridge: the host bridge they share, or empty for such that share none
    :ivar homes: the memory nodes that are near to them
    :ivar has_nic: there is a NIC on their node, or the machine has none at all
    """

    node: int | None
    bridge: str
    number: int
    homes: tuple[int, ...]
    has_nic: bool = True


class Problem(NamedTuple):
    """What is to be divided.

    :ivar groups: number of groups
    :ivar size: GPUs in each
    :ivar distances: of two different nodes, to their distance; symmetric
    :ivar far: the distance that is assumed where one node is unknown
    :ivar room: memory node to bytes that a pool can have there
    :ivar pool: bytes of the pool of each group
    :ivar strict: a pool that does not fit on its own nodes cannot be had at all
    :ivar links: of two classes, by their places, or of one with itself, to how much weaker
        than the strongest link of all the one is that joins their GPUs; symmetric. Pairs that
        no link joins are not in it; it is empty where nothing is known of links, or there are
        none
    """

    classes: tuple[GpuClass, ...]
    groups: int
    size: int
    distances: Mapping[tuple[int, int], int]
    far: int
    room: Mapping[int, int]
    pool: int = 0
    strict: bool = False
    links: Mapping[tuple[int, int], int] = {}


class Cost(NamedTuple):
    """How bad a choice is; compared from the first to the last.

    :ivar impossible: bytes of strict pools that cannot be had
    :ivar unjoined: pairs of GPUs in a group that no link joins
    :ivar spans: nodes in the groups beyond one for each; a GPU of unknown node counts as one
    :ivar distance: of the nodes of the GPUs in a group, added over all pairs
    :ivar weaker: how much weaker than the strongest the links within the groups are
    :ivar overflow: bytes of pools that do not fit on the nodes of their GPUs
    :ivar crowding: squares of the GPUs that are used on each node, added up
    :ivar bridges: pairs of GPUs in a group that share no host bridge
    :ivar no_nic: GPUs without a NIC on their node
    """

    impossible: int
    unjoined: int
    spans: int
    distance: int
    weaker: int
    overflow: int
    crowding: int
    bridges: int
    no_nic: int


class Division(NamedTuple):
    """A choice of groups, each as its number of GPUs of every class.

    :ivar proven: no other choice costs less
    :ivar compared: complete choices that were compared
    """

    groups: tuple[Counts, ...]
    cost: Cost
    proven: bool
    compared: int


class _Additive(NamedTuple):
    """The parts of the cost that each group adds by itself."""

    unjoined: int
    spans: int
    distance: int
    weaker: int
    bridges: int
    no_nic: int


def cost(problem: Problem, groups: Sequence[Counts]) -> Cost:
    """The cost of a complete or partial choice."""
    parts = [_additive(problem, group) for group in groups]
    return _cost(problem, groups, parts)


def divide(problem: Problem) -> Division | None:
    """The best division; None where there are not enough GPUs."""
    total = sum(one.number for one in problem.classes)
    if problem.groups * problem.size > total:
        return None
    if total > MOST_SEARCHED:
        return greedy(problem)
    return _Search(problem).run()


def kinds_of_groups(counts: Sequence[int], size: int) -> Iterator[Counts]:
    """Every way to take ``size`` GPUs out of classes of ``counts``."""
    if not counts:
        if size == 0:
            yield ()
        return
    rest = sum(counts[1:])
    for taken in range(min(counts[0], size), max(0, size - rest) - 1, -1):
        for others in kinds_of_groups(counts[1:], size - taken):
            yield (taken, *others)


def _additive(problem: Problem, group: Counts) -> _Additive:
    present = [
        (at, one, count)
        for at, (one, count) in enumerate(zip(problem.classes, group, strict=True))
        if count
    ]
    known = {one.node for _, one, _ in present if one.node is not None}
    unknown = sum(count for _, one, count in present if one.node is None)
    unjoined = distance = weaker = bridges = 0
    for place, (at, one, count) in enumerate(present):
        inside = count * (count - 1) // 2
        others = [(a, other, count * more) for a, other, more in present[place + 1 :]]
        bridges += (0 if one.bridge else inside) + sum(pairs for _, _, pairs in others)
        for a, other, pairs in [(at, one, inside), *others]:
            distance += pairs * _between(problem, one, other)
            if problem.links:
                link = problem.links.get((at, a))
                unjoined += pairs if link is None else 0
                weaker += pairs * (link or 0)
    no_nic = sum(count for _, one, count in present if not one.has_nic)
    spans = max(0, len(known) + unknown - 1)
    return _Additive(unjoined, spans, distance, weaker, bridges, no_nic)


def _between(problem: Problem, one: GpuClass, other: GpuClass) -> int:
    if one.node is None or other.node is None:
        return problem.far
    return 0 if one.node == other.node else problem.distances[one.node, other.node]


def homes(problem: Problem, group: Counts) -> tuple[int, ...]:
    """The memory nodes of a group: those near to any of its GPUs."""
    near = (one.homes for one, count in zip(problem.classes, group, strict=True) if count)
    return tuple(sorted({node for nodes in near for node in nodes}))


def _cost(problem: Problem, groups: Sequence[Counts], parts: Sequence[_Additive]) -> Cost:
    overflow = _overflow(problem, groups)
    used: dict[int | None, int] = {}
    for group in groups:
        for one, count in zip(problem.classes, group, strict=True):
            used[one.node] = used.get(one.node, 0) + count
    return Cost(
        overflow if problem.strict else 0,
        sum(part.unjoined for part in parts),
        sum(part.spans for part in parts),
        sum(part.distance for part in parts),
        sum(part.weaker for part in parts),
        overflow,
        sum(count * count for count in used.values()),
        sum(part.bridges for part in parts),
        sum(part.no_nic for part in parts),
    )


def _overflow(problem: Problem, groups: Sequence[Counts]) -> int:
    if not problem.pool:
        return 0
    wanted: dict[int, int] = {}
    for group in groups:
        nodes = homes(problem, group)
        for node in nodes:
            wanted[node] = wanted.get(node, 0) + -(-problem.pool // len(nodes))
    return sum(max(0, size - problem.room.get(node, 0)) for node, size in wanted.items())


class _Search:
    """Depth-first over multisets of kinds of groups, good kinds first."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        counts = [one.number for one in problem.classes]
        kinds = [(_additive(problem, k), k) for k in kinds_of_groups(counts, problem.size)]
        kinds.sort()
        self.kinds = [kind for _, kind in kinds]
        self.parts = [part for part, _ in kinds]
        self.least = _suffix_minima(self.parts)
        self.crowding = _least_crowding(problem)
        known = [one.node for one in problem.classes if one.node is not None]
        self.members = {
            node: [at for at, one in enumerate(problem.classes) if one.node == node]
            for node in known
        }
        self.overflow = _least_overflow(problem)
        self.step = min((*problem.distances.values(), problem.far))
        self.best: Cost | None = None
        self.found: tuple[Counts, ...] = ()
        self.compared = self.steps = 0

    def run(self) -> Division:
        self._begin()
        self._descend(0, tuple(one.number for one in self.problem.classes), [])
        assert self.best is not None
        return Division(self.found, self.best, self.steps <= MOST_STEPS, self.compared)

    def _begin(self) -> None:
        """Something to beat: each group the kind that leaves the most hope, in any order."""
        left, chosen = tuple(one.number for one in self.problem.classes), list[int]()
        for missing in reversed(range(self.problem.groups)):
            fitting = [
                (self._bound([*chosen, at], rest, missing, 0), at, rest)
                for at, kind in enumerate(self.kinds)
                if min(rest := tuple(map(int.__sub__, left, kind))) >= 0
            ]
            self.best, at, left = min(fitting)
            chosen.append(at)
        self.found = tuple(self.kinds[at] for at in chosen)
        self.compared = 1

    def _descend(self, first: int, left: Counts, chosen: list[int]) -> None:
        missing = self.problem.groups - len(chosen)
        if not missing:
            self.compared += 1
            total = self._bound(chosen, left, 0, 0)
            if self.best is None or total < self.best:
                self.best, self.found = total, tuple(self.kinds[at] for at in chosen)
            return
        for at in range(first, len(self.kinds)):
            self.steps += 1
            if self.steps > MOST_STEPS and self.best is not None:
                return
            kind = self.kinds[at]
            if any(map(int.__gt__, kind, left)):
                continue
            rest = tuple(map(int.__sub__, left, kind))
            bound = self._bound([*chosen, at], rest, missing - 1, at)
            if self.best is not None and bound >= self.best:
                continue
            self._descend(at, rest, [*chosen, at])

    def _spanning(self, left: Counts, missing: int) -> int:
        """How many of the missing groups must span nodes, since no node has enough left."""
        size = self.problem.size
        if size == 1:
            return 0
        whole = sum(sum(left[at] for at in places) // size for places in self.members.values())
        return max(0, missing - whole)

    def _bound(self, chosen: list[int], left: Counts, missing: int, at: int) -> Cost:
        """The cost of what is chosen, and at least that of what is missing."""
        parts = [self.parts[place] for place in chosen]
        partial = _cost(self.problem, [self.kinds[place] for place in chosen], parts)
        if not missing:
            return partial
        least, spanning = self.least[at], self._spanning(left, missing)
        # A group on two nodes has the fewest pairs across them if it is all but one on one node.
        apart = spanning * (self.problem.size - 1) * self.step
        overflow = max(partial.overflow, self.overflow)
        return partial._replace(
            impossible=overflow if self.problem.strict else 0,
            overflow=overflow,
            unjoined=partial.unjoined + missing * least.unjoined,
            weaker=partial.weaker + missing * least.weaker,
            spans=partial.spans + max(missing * least.spans, spanning),
            distance=partial.distance + max(missing * least.distance, apart),
            crowding=max(partial.crowding, self.crowding),
            bridges=partial.bridges + missing * least.bridges,
            no_nic=partial.no_nic + missing * least.no_nic,
        )


def _suffix_minima(parts: Sequence[_Additive]) -> list[_Additive]:
    """For each place the least of every part from there on."""
    minima: list[_Additive] = []
    for part in reversed(parts):
        minima.append(_Additive(*map(min, part, minima[-1])) if minima else part)
    return minima[::-1]


def _least_overflow(problem: Problem) -> int:
    """What does not fit even if every byte of room is used."""
    nodes = {node for one in problem.classes for node in one.homes}
    room = sum(max(0, problem.room.get(node, 0)) for node in nodes)
    return max(0, problem.groups * problem.pool - room)


def _least_crowding(problem: Problem) -> int:
    """The crowding when the GPUs that are used are spread as evenly as can be."""
    free: dict[int | None, int] = {}
    for one in problem.classes:
        free[one.node] = free.get(one.node, 0) + one.number
    used = dict.fromkeys(free, 0)
    for _ in range(problem.groups * problem.size):
        node = min((n for n in free if used[n] < free[n]), key=lambda n: used[n])
        used[node] += 1
    return sum(count * count for count in used.values())


def greedy(problem: Problem) -> Division:
    """A division for machines with more GPUs than can be searched; not proven the best.

    Each group goes to the node that has just enough GPUs left for it. Where no
    node has enough, the group starts on the node with the most, and takes from
    the nodes nearest to it. GPUs that are joined to those it has come first.
    """
    left = [one.number for one in problem.classes]
    groups = []
    for _ in range(problem.groups):
        group = _greedy_group(problem, left)
        left = [have - taken for have, taken in zip(left, group, strict=True)]
        groups.append(group)
    return Division(tuple(groups), cost(problem, groups), False, 1)


def _greedy_group(problem: Problem, left: list[int]) -> Counts:
    by_node: dict[int | None, int] = {}
    for one, count in zip(problem.classes, left, strict=True):
        by_node[one.node] = by_node.get(one.node, 0) + count
    known = {node: count for node, count in by_node.items() if node is not None and count}
    enough = {node: count for node, count in known.items() if count >= problem.size}
    if enough:
        start: int | None = min(enough, key=lambda node: (enough[node], node))
    else:
        start = max(known, key=lambda node: (known[node], -node), default=None)

    group = [0] * len(left)

    def apart(place: int) -> int:
        """Pairs without a link that a GPU adds; of the first one, those that it will."""
        if not problem.links:
            return 0
        if not any(group):
            joined = sum(have for at, have in enumerate(left) if (place, at) in problem.links)
            return max(0, problem.size - joined)
        return sum(have for at, have in enumerate(group) if (place, at) not in problem.links)

    def nearness(place: int) -> tuple[int, int, int, int]:
        one = problem.classes[place]
        if start is None or one.node is None:
            return apart(place), problem.far, 1, place
        away = 0 if one.node == start else problem.distances[start, one.node]
        return apart(place), away, 0, place

    def first(place: int) -> tuple[bool, tuple[int, int, int, int]]:
        return problem.classes[place].node != start, nearness(place)

    for number in range(problem.size):
        there = [place for place in range(len(left)) if group[place] < left[place]]
        group[min(there, key=nearness if number else first)] += 1
    return tuple(group)
