"""Placements from a sample of pages: whatever the size of a process, it is not held up."""

from collections.abc import Mapping
from typing import NamedTuple

from numadoctor.model import Undecided
from numadoctor.model.placement import Kind, Method, Placement, Policy
from numadoctor.placement import intervals, measure
from numadoctor.placement.huge import huge_page_devices
from numadoctor.placement.measure import Sample
from numadoctor.placement.population import Population
from numadoctor.placement.processes import optional
from numadoctor.placement.segments import Area, Segment, mapped_areas
from numadoctor.placement.shared_policy import SHARED_POLICY_KINDS, shared_policy
from numadoctor.placement.study import Study
from numadoctor.placement.walk import SECONDS_PER_PAGE, task_policy

# Each large mapping is asked about so many pages first, to learn how much of it is there at all.
_PILOT = 100
_PILOT_TOTAL = 10_000

# Pages for each mapping, however small its part of all: between these, so many in total.
_LEAST, _FLOOR, _FLOOR_TOTAL = 16, 100, 20_000

# Pages for all small mappings of a kind together.
_SMALL = 400

# Bytes that a process may grow by from the reading of its status to that of its pages.
_GROWTH = 64 << 20

# Nobody's memory; and devices do not like to be looked at.
_NO_MEMORY = (Kind.DEVICE, Kind.SPECIAL)


class Small(NamedTuple):
    """Mappings that are too small to be told one by one, and their number."""

    population: Population
    mappings: int


class Survey(NamedTuple):
    """What there is to sample, and how much of it is there as far as a first look tells.

    :ivar segments: those that can hold memory
    :ivar pilots: by their index, a first sample of the large ones
    :ivar small: by kind, what is sampled together
    :ivar longest_walk: seconds for which numa_maps would hold a process up for one mapping
    """

    segments: list[Segment]
    pilots: dict[int, Sample]
    small: dict[Kind, list[Small]]
    longest_walk: float


def survey(study: Study) -> Survey:
    """Look at the mappings, and at a few pages of the large ones.

    :raises Denied, Missing, Unreadable: pages cannot be asked about
    """
    areas: list[Area] = []
    small: dict[Kind, list[Small]] = {}
    known: dict[str | None, dict[tuple[int, int], int]] = {}
    for pid in study.pids:
        devices = _huge_page_devices(study, pid, known)
        maps = study.examined[pid].maps
        if maps is None:
            continue
        found, crumbs = mapped_areas(pid, maps, study.page_size, devices, study.min_size)
        areas += filter(_can_hold_memory, found)
        for part in crumbs:
            if _can_hold_memory(part.like):
                together = Small(measure.crumbs_population(part), part.mappings)
                small.setdefault(part.like.kind, []).append(together)
    segments = []
    for segment in study.segments_of(areas):
        if segment.length >= study.min_size:
            segments.append(segment)
        else:
            together = Small(segment.population(), len(segment.areas))
            small.setdefault(segment.widest.kind, []).append(together)
    large = [
        index
        for index, segment in enumerate(segments)
        if _walk(segment, _resident(study, segment)) > study.hold
    ]
    wanted = max(_LEAST, min(_PILOT, _PILOT_TOTAL // max(1, len(large))))
    pilots = {
        index: measure.take(segments[index].population(), wanted, study.random, study.askers)
        for index in large
    }
    walks = [_walk_of(segments[index], pilot, study) for index, pilot in pilots.items()]
    return Survey(segments, pilots, small, max(walks, default=0.0))


def _huge_page_devices(
    study: Study, pid: int, known: dict[str | None, dict[tuple[int, int], int]]
) -> dict[tuple[int, int], int]:
    """As ``huge_page_devices``, once for all processes that see the same mounts."""
    namespace = optional(study.host.link, f"/proc/{pid}/ns/mnt")
    if namespace not in known:
        known[namespace] = huge_page_devices(study.host, pid)
    return known[namespace]


def _can_hold_memory(area: Area) -> bool:
    return area.kind not in _NO_MEMORY and not area.reserved


def _resident(study: Study, segment: Segment) -> int:
    """Bytes of a segment that are resident at most: what all who map it have in memory."""
    resident = [study.examined[pid].process.resident for pid in segment.pids]
    known = [count for count in resident if count is not None]
    return min(segment.length, sum(known)) if len(known) == len(resident) else segment.length


def _most(study: Study, segment: Segment) -> int:
    """The same a moment later: the processes may grow."""
    resident = _resident(study, segment)
    return min(segment.length, resident + resident // 8 + _GROWTH)


def _walk(segment: Segment, resident: int) -> float:
    """Seconds that numa_maps holds a process up for so many bytes of a segment."""
    return resident / segment.widest.page_size * SECONDS_PER_PAGE


def _walk_of(segment: Segment, pilot: Sample, study: Study) -> float:
    """The same, from a first sample: what is not there, and what is huge, takes no time."""
    placement = measure.from_sample(segment, pilot, study.askers, _most(study, segment))
    present = sum(node >= 0 for node in pilot.nodes)
    high = intervals.proportion(present, len(pilot.nodes))[1]
    most = min(_resident(study, segment), int(high * pilot.population.bytes))
    huge = measure.with_states(placement, pilot).thp_bytes or 0
    ordinary = 1 - huge / placement.resident if placement.resident else 1.0
    return _walk(segment, int(most * ordinary))


def sample(study: Study, found: Survey, because: str) -> None:
    """Sample all that ``found`` names.

    :raises Denied, Missing, Unreadable: pages cannot be asked about
    """
    study.method, study.because = Method.SAMPLED, because
    tasks = _task_policies(study)
    for index, wanted in enumerate(_shares_of_sample(study, found)):
        segment, pilot = found.segments[index], found.pilots.get(index)
        if pilot is not None and len(pilot.pages) >= wanted:
            taken = pilot
        else:
            taken = measure.take(segment.population(), wanted, study.random, study.askers)
        placement = measure.from_sample(segment, taken, study.askers, _most(study, segment))
        placement = measure.with_states(placement, taken)
        if study.askers.keys().isdisjoint(segment.pids):
            # All of them ended meanwhile: nothing is known, rather than nothing there.
            continue
        study.keep(_with_policy(study, placement, tasks, found.longest_walk))
    _sample_small(study, found.small)


def _shares_of_sample(study: Study, found: Survey) -> list[int]:
    """How many pages of each segment are to be asked about."""
    weights = [segment.length for segment in found.segments]
    for index, pilot in found.pilots.items():
        # Of one that is nearly empty a part is not to be spent on looking at nothing.
        present = sum(node >= 0 for node in pilot.nodes)
        weights[index] = pilot.bytes_of(max(1, present))
    whole = max(1, sum(weights))
    floor = max(_LEAST, min(_FLOOR, _FLOOR_TOTAL // max(1, len(weights))))
    return [max(floor, study.samples * weight // whole) for weight in weights]


def _task_policies(study: Study) -> dict[int, Policy]:
    """The policy of the main thread of each process, where it can be read."""
    policies = {}
    for pid in study.pids:
        try:
            policy = task_policy(f"/proc/{pid}/numa_maps")
        except Undecided:
            continue
        if policy is not None:
            policies[pid] = policy
        study.set_policy(pid, policy)
    return policies


def _with_policy(
    study: Study, placement: Placement, tasks: Mapping[int, Policy], walk: float
) -> Placement:
    """Adds the policy in force, where it can be told without a walk of page tables."""
    mapping = placement.mapping
    if mapping.kind not in SHARED_POLICY_KINDS:
        reason = f"only numa_maps tells it, and holds the process for about {walk * 1000:.1f} ms"
        return placement._replace(policy_unknown=f"{reason}: --exact")
    policy = shared_policy(mapping, study.page_size)
    if policy is None:
        return placement._replace(policy_unknown="the segment cannot be opened: --exact tells it")
    if policy.mode == "default":
        # It has none of its own: that of the task acts.
        policy = tasks.get(mapping.pid, policy)
    attachers = tuple(attacher._replace(policy=policy) for attacher in placement.attachers)
    return placement._replace(policy=policy, attachers=attachers)


def _sample_small(study: Study, small: Mapping[Kind, list[Small]]) -> None:
    """What is too small to be told one by one is sampled together, by kind and page size."""
    for kind, parts in small.items():
        for size in {part.population.page_size for part in parts}:
            alike = [part for part in parts if part.population.page_size == size]
            population = measure.pooled([part.population for part in alike])
            taken = measure.take(population, _SMALL, study.random, study.askers)
            number = sum(part.mappings for part in alike)
            study.remainders.add(kind, number, taken.method, taken.shares(None), len(taken.pages))
