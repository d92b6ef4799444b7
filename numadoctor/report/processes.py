"""The line about the examined processes at the head of a report."""

from collections.abc import Sequence

from numadoctor.model.placement import Method, Process, ProcessPlacement, Share
from numadoctor.model.units import amount


def who(processes: Sequence[Process]) -> str:
    """``pid 4242 vllm (9 processes, 212 threads)``."""
    if not processes:
        return "no process"
    first = processes[0]
    text = f"pid {first.pid} {first.name}".rstrip()
    threads = sum(process.threads or 0 for process in processes)
    counts = [counted(len(processes), "process")] if len(processes) > 1 else []
    counts += [counted(threads, "thread")] if threads > 1 else []
    return f"{text} ({', '.join(counts)})" if counts else text


def counted(number: int, word: str) -> str:
    """``1 thread``, ``1,212 threads``, ``2 processes``."""
    plural = "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{'' if number == 1 else plural}"


def half_width(share: Share) -> float:
    """The greater distance from a share to the ends of its interval, in per cent."""
    return 100 * max(share.fraction - share.fraction_low, share.fraction_high - share.fraction)


def head(placement: ProcessPlacement, gpus: int | None) -> str:
    """Who was examined, what they have, and what looking cost them.

    :param gpus: how many they have open, or None when that is not known
    """
    parts = [who(placement.processes)]
    if gpus:
        parts.append(counted(gpus, "GPU"))
    if all(process.problem for process in placement.processes):
        return ", ".join(parts)
    parts.append(f"{amount(placement.resident)} resident")
    if placement.method is Method.SAMPLED:
        widest = max(map(half_width, placement.nodes.values()), default=0.0)
        parts.append(f"sampled ±{widest:.0f} %" if widest >= 1 else f"sampled ±{widest:.1f} %")
    elif "move_pages" in placement.because:
        parts.append(f"counted by numa_maps ({placement.because})")
    if placement.cost.calls:
        parts.append(f"longest hold of the process {placement.cost.longest * 1000:.2f} ms")
    return ", ".join(parts)
