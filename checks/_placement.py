"""What the checks of processes share: what they read, whom a mapping serves, how it is written."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from typing import TYPE_CHECKING

from numadoctor.engine.thresholds import threshold
from numadoctor.host import parsers
from numadoctor.model import Evidence, Finding, Target, Undecided, unknown
from numadoctor.model.placement import (
    Attacher,
    Kind,
    Mapping,
    Method,
    Placement,
    Policy,
    Remainder,
    Share,
)
from numadoctor.model.units import amount
from numadoctor.model.words import count, nodes_text
from numadoctor.placement.examination import Examination, examination, printable

if TYPE_CHECKING:
    from numadoctor.host import Host

PROCESS = ("/proc/PID/status", "/proc/PID/stat", "/proc/PID/sched")
"""What is read of each examined process."""

PLACEMENT = (
    *PROCESS,
    "/proc/PID/maps",
    "/proc/PID/numa_maps",
    "/proc/PID/smaps",
    "/.numadoctor/placement.json",
    "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
)
"""What is read where it is asked where memory is; on a live machine move_pages beside it."""

THREADS = (
    "/proc/PID/task",
    "/proc/PID/task/*/status",
    "/proc/PID/task/*/stat",
    "/proc/PID/task/*/numa_maps",
)

GPUS = (
    "/proc/PID/fd",
    "/proc/PID/environ",
    "/proc/PID/cmdline",
    "/proc/driver/nvidia/gpus",
    "/proc/driver/nvidia/gpus/*/information",
    "/sys/bus/pci/devices/*/numa_node",
    "fact nvml",
)
"""What tells which GPUs a process has open, and which of them it uses."""

ASKED = ("/proc/PID/cmdline", "/proc/PID/environ")
"""What tells how a process was started."""

EXACT = "check --exact tells it, and holds the process up for as long as numastat -p does"

# A name in a message; the whole one is in the evidence.
_NAME_LENGTH = 60


class NotExamined(Undecided):
    """None of the processes could be examined; the reason tells it all."""

    def __str__(self) -> str:
        return self.reason


def looked_at(host: "Host", target: Target) -> Examination:
    """The examination of the processes in ``target.together``, their memory measured.

    :raises NotExamined: none of them could be examined
    """
    found = examination(host, target.together)
    if not found.processes:
        problems = [p.problem for p in found.placement.processes if p.problem]
        reason = problems[0] if problems else "no process is left"
        raise NotExamined(f"/proc/{target.together[0].pid}", None, reason)
    return found


def pools(found: Examination, least: str = "judged-mapping") -> list[Placement]:
    """Mappings of memory that processes asked for themselves, large enough to be judged.

    What is too small to be told one by one, and large together (a pool cut into
    slabs), is judged as one mapping of each kind.
    """
    whole = [p for p in found.placement.mappings if p.mapping.kind.is_pool]
    together = [
        _as_mapping(found, rest)
        for rest in found.placement.remainders
        if rest.kind.is_pool and rest.resident >= threshold("large-pool")
    ]
    return [p for p in (*whole, *together) if p.resident >= threshold(least)]


_TOGETHER = "small mappings together"


def _as_mapping(found: Examination, rest: Remainder) -> Placement:
    pids = list(found.processes)
    return Placement(
        mapping=Mapping(pids[0], 0, None, rest.kind, _TOGETHER),
        method=rest.method,
        page_size=found.placement.page_size,
        by_node=rest.by_node,
        resident=rest.resident,
        policy_unknown="too many to be told one by one",
        samples=rest.samples,
        attachers=tuple(Attacher(pid, 0) for pid in pids),
    )


def pids_of(placement: Placement) -> tuple[int, ...]:
    """Who maps it."""
    return tuple(dict.fromkeys((placement.mapping.pid, *(a.pid for a in placement.attachers))))


def name_of(placement: Placement) -> str:
    """A name for a mapping in messages and subjects that stays the same between runs."""
    name = placement.mapping.name.removesuffix(" (deleted)")
    kind = placement.mapping.kind
    if not name or kind in (Kind.HEAP, Kind.STACK):
        return {
            Kind.ANONYMOUS: "private anonymous memory",
            Kind.HEAP: "the heap",
            Kind.STACK: "the stack",
            Kind.HUGETLB: "huge pages",
        }.get(kind, f"{kind.value} memory")
    if kind is Kind.SHARED_ANONYMOUS and name == "/dev/zero":
        return "shared anonymous memory"
    if kind is Kind.SYSV:
        return f"System V segment {name.removeprefix('/')}"
    if kind is Kind.HUGETLB and name == "/anon_hugepage":
        return "huge pages"
    name = printable(name)
    if len(name) > _NAME_LENGTH:
        name = f"{name[: _NAME_LENGTH // 2]}...{name[-_NAME_LENGTH // 2 + 3 :]}"
    return name


def subject_of(found: Examination, placement: Placement) -> str:
    """What a finding about a mapping is about."""
    process = found.processes.get(placement.mapping.pid)
    owner = process.name if process and process.name else "process"
    return f"{owner}: {name_of(placement)}"


def process_text(found: Examination, pid: int) -> str:
    """``pid 4242 vllm``."""
    process = found.processes.get(pid)
    return f"pid {pid} {process.name if process else ''}".rstrip()


def share_text(share: Share) -> str:
    """``77 %``, ``77 % (75 to 79)`` where it was sampled."""
    text = f"{100 * share.fraction:.0f} %"
    low, high = round(100 * share.fraction_low), round(100 * share.fraction_high)
    return text if low == high else f"{text} ({low} to {high})"


def spread_text(by_node: MappingOf[int, Share]) -> str:
    """``node 0 77 %, node 1 23 %``, most first."""
    order = sorted(by_node.items(), key=lambda item: (-item[1].bytes, item[0]))
    shown = [f"node {node} {share_text(share)}" for node, share in order[:4]]
    return ", ".join(shown) + (", ..." if len(order) > 4 else "")


def off(by_node: MappingOf[int, Share], nodes: Iterable[int]) -> float:
    """The share that lies on none of ``nodes``, 0 to 1."""
    near = set(nodes)
    return sum(share.fraction for node, share in by_node.items() if node not in near)


def seen(placement: Placement) -> Evidence:
    """Where the figures of a mapping are from."""
    p, m = placement, placement.mapping
    policy = p.policy.text if p.policy else "policy not read"
    name = f" {m.name}" if m.name else ""
    nodes = " ".join(f"N{node}={amount(b)}" for node, b in p.bytes_by_node.items())
    start = "" if m.name == _TOGETHER else f"{m.start:x} {policy}"
    text = f"{start}{name} {nodes}".strip()
    if p.method is not Method.EXACT:
        text += f" ({p.samples:,} pages asked)"
        return Evidence(f"move_pages of pid {m.pid}", text[:_EVIDENCE])
    return Evidence(f"/proc/{m.pid}/numa_maps", text[:_EVIDENCE])


_EVIDENCE = 240

# More addresses than that are counted.
_NAMED = 4


def host_nodes(host: "Host") -> frozenset[int]:
    """Nodes with CPUs and memory."""
    return frozenset(node.id for node in host.topology.host_nodes)


def gpu_nodes(found: Examination, pids: Iterable[int]) -> frozenset[int]:
    """The nodes with memory of the GPUs that these processes have open.

    :raises Undecided: that cannot be told of one of them
    """
    memory = {node.id for node in found.host.topology.memory_nodes}
    return frozenset(node for pid in pids for node in found.gpus(pid).nodes if node in memory)


def gpus_text(found: Examination, pids: Iterable[int], nodes: Iterable[int] | None = None) -> str:
    """``GPU 0000:c1:00.0 (node 1)``, ``2 GPUs (0000:c1:00.0, 0000:c2:00.0; node 1)``."""
    wanted = None if nodes is None else set(nodes)
    devices = {
        device.address: device
        for pid in pids
        for device in found.gpus(pid).devices
        if wanted is None or device.node in wanted
    }
    places = sorted({d.node for d in devices.values() if d.node is not None})
    if len(devices) == 1:
        return f"GPU {next(iter(devices))} ({nodes_text(places)})"
    shown = ", ".join(list(devices)[:_NAMED]) + (", ..." if len(devices) > _NAMED else "")
    return f"{count(len(devices), 'GPU')} ({shown}; {nodes_text(places)})"


def undecided_processes(
    found: Examination, blind: MappingOf[int, Undecided], what_is_not_known: str
) -> Iterator[Finding]:
    """A finding for each process of which something cannot be told."""
    for pid, error in blind.items():
        process = found.processes.get(pid)
        yield unknown(
            f"{process_text(found, pid)}: {what_is_not_known} cannot be told: {error}",
            subject=f"process {process.name}" if process and process.name else "process",
            evidence=[Evidence(error.path, error.reason)],
        )


def unread_policies(placements: Iterable[Placement]) -> Iterator[Finding]:
    """One finding for the mappings whose policy only a walk of their page tables would tell."""
    unread = [p for p in placements if p.policy is None]
    if unread:
        mappings = "the largest mapping" if len(unread) == 1 else f"{len(unread)} mappings"
        slabs = all(p.mapping.name == _TOGETHER for p in unread)
        yield unknown(
            f"the policy of {mappings} ({amount(total(unread))}) was not read",
            subject="policies that were not read",
            cause=f"{'numadoctor maps --exact --min-size 0 tells each' if slabs else EXACT}.",
            evidence=[Evidence(seen(p).source, p.policy_unknown or "not told") for p in unread[:3]],
        )


def grouped(
    placements: Iterable[Placement], found: Examination
) -> Iterator[tuple[str, list[Placement]]]:
    """Mappings by the subject they have: blocks of one kind are told together."""
    groups: dict[str, list[Placement]] = {}
    for placement in placements:
        groups.setdefault(subject_of(found, placement), []).append(placement)
    yield from groups.items()


def total(placements: Iterable[Placement]) -> int:
    """Their resident bytes."""
    return sum(p.resident for p in placements)


def what(placements: list[Placement]) -> str:
    """``/dev/shm/kv_pool (64 GiB)``, ``6 mappings of private anonymous memory (384 MiB)``."""
    size = amount(total(placements))
    name = name_of(placements[0])
    if len(placements) == 1:
        return f"{name} ({size})"
    return f"{len(placements)} mappings of {name} ({size})"


def are(placements: Sequence[Placement]) -> str:
    """``is`` or ``are``, after ``what`` names them."""
    return "is" if len(placements) == 1 else "are"


def node_list(nodes: Iterable[int]) -> str:
    """``0-1,8``, as numactl takes it."""
    return parsers.format_list(nodes)


def names_nodes(policy: Policy | None) -> bool:
    """Whether the policy says itself where pages belong."""
    return policy is not None and bool(policy.nodes) and policy.understood
