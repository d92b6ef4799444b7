"""Finds out where the memory of processes is, in the way that fits their size and our rights."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from numadoctor.model import Missing, Target, Undecided
from numadoctor.model.placement import Method, ProcessPlacement
from numadoctor.placement.count import count
from numadoctor.placement.study import Study

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.placement.ahead import Ahead

SAMPLES = 10_000
"""Pages to ask about, over all mappings: 1 % either way for a mapping that has most of them."""

RECORDED = "/.numadoctor/placement.json"
"""Where a captured folder keeps the placement that was measured when it was taken."""

HOLD = 0.00025
"""Seconds for which the walk of one mapping may hold a process up unless asked to be exact."""


def place(
    host: "Host",
    targets: Target | Iterable[Target],
    *,
    method: Method | None = None,
    samples: int = SAMPLES,
    seed: int | None = None,
    min_size: int = 0,
    hold: float = HOLD,
    ahead: "Ahead | None" = None,
) -> ProcessPlacement:
    """Where the memory of one or several processes is, shared segments counted once.

    On a live machine the method is chosen: ``numa_maps`` where no mapping is
    large enough for the walk of its page tables to hold the process up, else a
    sample through ``move_pages``; ``numa_maps`` also where that is refused. A
    captured folder has numa_maps only, or what ``numadoctor maps -o json`` gave
    when it was taken (``RECORDED``). What cannot be read is told in ``incomplete``;
    nothing is raised.

    :param method: EXACT or SAMPLED, to not choose
    :param samples: pages to ask about, over all mappings
    :param seed: of the sample, drawn if None; the same seed asks about the same pages
    :param min_size: bytes; smaller mappings are put together by kind
    :param hold: seconds for which the walk of one mapping may hold a process up, unless EXACT
        was asked for
    :param ahead: files of the processes that are being read already
    """
    study = Study(host, samples=samples, seed=seed, min_size=min_size, hold=hold, ahead=ahead)
    study.examine([targets] if isinstance(targets, Target) else targets)
    if not host.live:
        if recorded := _recorded(host, study):
            return recorded
        count(study, "a captured folder has numa_maps only", gently=False)
    elif method is Method.EXACT:
        count(study, "asked for", gently=False)
    else:
        _choose(study, sampling_only=method is Method.SAMPLED)
    return study.result()


def _recorded(host: "Host", study: Study) -> ProcessPlacement | None:
    """The placement that was measured when a folder was captured, if it is of these processes."""
    from numadoctor.placement.load import load_placement

    try:
        found = host.parse(RECORDED, load_placement)
    except Missing:
        return None
    except Undecided as error:
        study.remarks.append(str(error))
        return None
    return found if {process.pid for process in found.processes} == set(study.examined) else None


def _choose(study: Study, *, sampling_only: bool) -> None:
    from numadoctor.placement.sampling import sample, survey

    try:
        if refusal := study.find_askers():
            raise refusal
        found = survey(study)
        if sampling_only:
            sample(study, found, "asked for")
        elif found.longest_walk > study.hold:
            held = f"{found.longest_walk * 1000:.1f} ms"
            sample(study, found, f"numa_maps would hold a process up for about {held}")
        else:
            count(study, "small enough to count all pages", gently=True)
    except Undecided as error:
        if sampling_only:
            for pid in study.pids:
                study.drop(pid, error)
        else:
            study.restart()
            told = error.reason if "move_pages" in error.reason else f"{error.path}: {error.reason}"
            count(study, told, gently=True)
