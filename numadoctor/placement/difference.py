"""What changed between two looks at the same processes: grew, moved, was swapped, faulted."""

import math
from collections.abc import Callable, Iterable, Mapping

from numadoctor.model.placement import (
    Change,
    Difference,
    Kind,
    Placement,
    Process,
    ProcessPlacement,
    Share,
)
from numadoctor.placement import intervals


class _Group:
    """Placements that are one thing to whoever looks twice."""

    def __init__(self) -> None:
        self.parts: list[Mapping[int, Share]] = []
        self.policies: set[str] = set()

    def add(self, shares: Mapping[int, Share], policy: str = "") -> None:
        self.parts.append(shares)
        if policy:
            self.policies.add(policy)

    @property
    def policy(self) -> str:
        return self.policies.copy().pop() if len(self.policies) == 1 else ""


_Key = tuple[Kind, str]


def difference(before: ProcessPlacement, after: ProcessPlacement) -> Difference:
    """What changed. What has a name is compared by it, other memory by where it is mapped."""
    names = _names(before, after)
    old, new = _groups(before, {}), _groups(after, names)
    changes = [
        change
        for key in dict.fromkeys((*old, *new))
        if (change := _change(key, old.get(key, _Group()), new.get(key, _Group())))
    ]
    nodes = {
        node: (_bytes(before.nodes.get(node)), _bytes(after.nodes.get(node)))
        for node in sorted({*before.nodes, *after.nodes})
    }
    pairs = _same_processes(before, after)
    old_pids, new_pids = ({p.pid for p in side.processes} for side in (before, after))
    return Difference(
        before=before.resident,
        after=after.resident,
        nodes=nodes,
        changes=tuple(sorted(changes, key=lambda c: -max(abs(c.after - c.before), c.moved))),
        started=tuple(sorted(new_pids - old_pids)),
        ended=tuple(sorted(old_pids - new_pids)),
        minor_faults=_counted(pairs, lambda p: p.minor_faults),
        major_faults=_counted(pairs, lambda p: p.major_faults),
        swapped=_counted(pairs, lambda p: p.swapped),
        migrated_pages=_counted(pairs, lambda p: p.migrated_pages),
    )


def _bytes(share: Share | None) -> int:
    return share.bytes if share else 0


def _groups(side: ProcessPlacement, names: Mapping[tuple[int, int], str]) -> dict[_Key, _Group]:
    groups: dict[_Key, _Group] = {}
    for placement in side.mappings:
        mapping = placement.mapping
        name = mapping.name or names.get((mapping.pid, mapping.start)) or _address(placement)
        group = groups.setdefault((mapping.kind, name), _Group())
        group.add(placement.by_node, placement.policy.text if placement.policy else "")
    for rest in side.remainders:
        groups.setdefault((rest.kind, "smaller mappings"), _Group()).add(rest.by_node)
    return groups


def _address(placement: Placement) -> str:
    return f"pid {placement.mapping.pid} {placement.mapping.start:x}"


def _names(before: ProcessPlacement, after: ProcessPlacement) -> dict[tuple[int, int], str]:
    """For memory without a name: what it was called before, by where it overlaps.

    It may have grown at either end, or have become one with its neighbour.
    """
    nameless: dict[tuple[int, Kind], list[Placement]] = {}
    for placement in before.mappings:
        if not placement.mapping.name:
            key = placement.mapping.pid, placement.mapping.kind
            nameless.setdefault(key, []).append(placement)
    names = {}
    for placement in after.mappings:
        mapping = placement.mapping
        known = nameless.get((mapping.pid, mapping.kind), ()) if not mapping.name else ()
        overlaps = [(_overlap(placement, other), other) for other in known]
        best = max(overlaps, key=lambda pair: pair[0], default=None)
        if best and best[0] > 0:
            names[mapping.pid, mapping.start] = _address(best[1])
    return names


def _overlap(a: Placement, b: Placement) -> int:
    ends = [p.mapping.end if p.mapping.end is not None else p.mapping.start + 1 for p in (a, b)]
    return min(ends) - max(a.mapping.start, b.mapping.start)


def _change(key: _Key, old: _Group, new: _Group) -> Change | None:
    before, after = intervals.total(old.parts), intervals.total(new.parts)
    by_node = {}
    for node in sorted({*before, *after}):
        delta = _bytes(after.get(node)) - _bytes(before.get(node))
        if abs(delta) > math.hypot(_width(before.get(node)), _width(after.get(node))):
            by_node[node] = delta
    policies = (old.policy, new.policy) if old.policy and new.policy else ("", "")
    if not by_node and policies[0] == policies[1]:
        return None
    return Change(
        *key,
        sum(share.bytes for share in before.values()),
        sum(share.bytes for share in after.values()),
        by_node,
        *policies,
    )


def _width(share: Share | None) -> int:
    """How far the truth may be from the estimate."""
    return max(share.bytes - share.low, share.high - share.bytes) if share else 0


def _same_processes(
    before: ProcessPlacement, after: ProcessPlacement
) -> list[tuple[Process, Process]]:
    new = {process.pid: process for process in after.processes}
    return [(old, new[old.pid]) for old in before.processes if old.pid in new]


def _counted(
    pairs: Iterable[tuple[Process, Process]], value: Callable[[Process], int | None]
) -> int | None:
    """How much a counter of the processes went up; None where either side lacks it."""
    total = 0
    found = False
    for old, new in pairs:
        a, b = value(old), value(new)
        if a is None or b is None:
            return None
        total += b - a
        found = True
    return total if found else None
