"""Placements from numa_maps: the kernel counts all pages, and walks all page tables for that."""

from collections.abc import Sequence
from contextlib import suppress

from numadoctor.host.parsers import (
    GroupedNumaMaps,
    parse_grouped_numa_maps,
    parse_numa_maps,
    parse_policy,
)
from numadoctor.model import Missing, Undecided, Unreadable
from numadoctor.model.placement import Method, Placement
from numadoctor.placement import intervals, measure
from numadoctor.placement.processes import optional, understood
from numadoctor.placement.segments import Area, Crumbs, Segment, counted_areas
from numadoctor.placement.study import Study

_NODES = "/sys/devices/system/node"

# In mappings of that size it is worth a look how the nodes alternate along them.
_PATTERN_BYTES = 4 << 20
_PATTERN_PAGES = 1000
_PATTERN_MAPPINGS = 32

# Transparent huge pages by whose they are, as smaps names them.
_HUGE = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")


def count(study: Study, because: str, *, gently: bool) -> None:
    """Count the pages of all processes of ``study``.

    :param gently: hold each process for one mapping at a time only; slower
    """
    study.method, study.because = Method.EXACT, because
    areas: list[Area] = []
    for pid in study.pids:
        try:
            numa = _numa_maps(study, pid, gently)
        except Undecided as error:
            study.drop(pid, _why_missing(study, pid, error))
            continue
        if numa.unknown:
            words = ", ".join(numa.unknown[:5])
            study.remarks.append(f"numa_maps of pid {pid} holds what is not understood: {words}")
        # The first mapping is the program's own: what shows there is the task's policy.
        policy = parse_policy(numa.groups[0].pages.policy) if numa.groups else None
        study.set_policy(pid, policy)
        maps = study.examined[pid].maps
        if maps is None:
            study.remarks.append("without maps, shared memory counts once for each process")
        found, crumbs = counted_areas(pid, maps, numa, study.page_size, study.min_size)
        areas += found
        _add_crumbs(study, crumbs)
    counted = [(_of_segment(study, segment), segment) for segment in study.segments_of(areas)]
    counted.sort(key=lambda pair: -pair[0].resident)
    for rank, (placement, segment) in enumerate(counted):
        if rank < _PATTERN_MAPPINGS and placement.resident >= _PATTERN_BYTES:
            placement = _with_pattern(study, placement, segment)
        study.keep(placement)


def _numa_maps(study: Study, pid: int, gently: bool) -> GroupedNumaMaps:
    path = f"/proc/{pid}/numa_maps"
    if not study.host.live:
        return study.host.parse(path, parse_numa_maps).grouped
    read = study.read(path, gently=gently)
    if isinstance(read, bytes):
        return understood(path, read, parse_numa_maps).grouped
    return parse_grouped_numa_maps(read)


def _why_missing(study: Study, pid: int, error: Undecided) -> Undecided:
    """A numa_maps that is not there need not mean that the process is gone."""
    found = study.examined[pid]
    if not isinstance(error, Missing) or (found.maps is None and found.process.threads is None):
        return error
    if not study.host.live:
        return Unreadable(error.path, None, "the captured folder does not hold it")
    if optional(study.host.has, _NODES) is False:
        return Unreadable(error.path, None, "this kernel has no NUMA support")
    return error


def _add_crumbs(study: Study, crumbs: Sequence[Crumbs]) -> None:
    for part in crumbs:
        shares = intervals.counted(measure.counted_crumbs(part))
        study.remainders.add(part.like.kind, part.mappings, Method.EXACT, shares, 0)


def _of_segment(study: Study, segment: Segment) -> Placement:
    placement = measure.counted(segment)
    if not placement.mapping.kind.is_pool or not measure.is_told_apart(segment):
        return placement
    # Each process has touched a part of it: counts cannot be added up, pages can be asked for.
    if study.may_ask():
        with suppress(Undecided):
            sample = measure.take(segment.population(), study.samples, study.random, study.askers)
            seen = measure.from_sample(segment, sample, study.askers)
            return seen._replace(policy=placement.policy, attachers=placement.attachers)
    remark = "at least: what the process with most of it has in its page tables"
    return placement._replace(remarks=(remark,))


def _with_pattern(study: Study, placement: Placement, segment: Segment) -> Placement:
    """Adds how the nodes alternate along a large mapping, which numa_maps does not tell."""
    if placement.samples or not placement.mapping.length:
        return placement
    if not study.host.live:
        return _with_smaps(study, placement)
    if not study.may_ask():
        return placement
    try:
        sample = measure.take(segment.population(), _PATTERN_PAGES, study.random, study.askers)
        return measure.with_states(measure.with_pattern(placement, sample, study.askers), sample)
    except Undecided:
        return placement


def _with_smaps(study: Study, placement: Placement) -> Placement:
    """Adds what a captured smaps tells of swap and transparent huge pages."""
    from numadoctor.host.parsers import parse_smaps

    mapping = placement.mapping
    try:
        smaps = study.host.parse(f"/proc/{mapping.pid}/smaps", parse_smaps)
    except Undecided:
        return placement
    for entry in smaps.entries:
        if entry.mapping.start == mapping.start:
            sizes = entry.sizes
            huge = [sizes[key] for key in _HUGE if key in sizes]
            return placement._replace(
                swapped_bytes=sizes.get("Swap"), thp_bytes=sum(huge) if huge else None
            )
    return placement
