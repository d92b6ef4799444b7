"""Policies that reach too few or too far: attachers of huge pages, and whole processes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.model import Evidence, Finding, Fix, Target, Undecided, passed, skip, unknown, warn
from numadoctor.model.placement import Attacher, Kind, Placement
from numadoctor.model.words import count, listed, nodes_text
from numadoctor.placement.examination import Examination

from ._placement import (
    EXACT,
    GPUS,
    PLACEMENT,
    gpus_text,
    looked_at,
    process_text,
    subject_of,
    undecided_processes,
    what,
)

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "P012",
    name="hugetlb-attachers",
    needs=PLACEMENT,
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def hugetlb_attachers(host: "Host", target: Target) -> Iterator[Finding]:
    """Processes that share huge pages have different policies for them.

    Why it matters
        The policy of tmpfs, System V and memfd segments belongs to the segment: who attaches
        it later has it too. That of huge pages (hugetlbfs, SHM_HUGETLB, MFD_HUGETLB) does
        not: it belongs to each mapping, so a worker that attaches an interleaved pool and
        touches a page of it that nobody touched before gets that page from its own node.

    When it is harmless
        When the creator has touched all of the pool before anybody attaches it.

    Fix
        Let each attacher call mbind on its mapping before it touches it, or prefault the
        whole pool in the creator.

    Source
        hugetlb_vm_ops has no set_policy (mm/hugetlb.c), unlike shmem_vm_ops (mm/shmem.c)
    """
    found = looked_at(host, target)
    shared = [
        p
        for p in found.placement.mappings
        if p.mapping.kind is Kind.HUGETLB and len({a.pid for a in p.attachers}) > 1
    ]
    if not shared:
        yield skip("no huge pages are shared by the processes")
        return
    for placement in shared:
        yield _attachers(found, placement)


def _attachers(found: Examination, placement: Placement) -> Finding:
    subject = subject_of(found, placement)
    known = [a for a in placement.attachers if a.policy is not None]
    # Each attacher is told of its own line.
    shown = [
        Evidence(f"/proc/{a.pid}/numa_maps", f"{a.start:x} {a.policy.text if a.policy else '?'}")
        for a in placement.attachers[:6]
    ]
    with_policy = [a for a in known if a.policy and not a.policy.is_default]
    without = [a for a in known if a.policy and a.policy.is_default]
    texts = {a.policy.text for a in with_policy if a.policy}
    if with_policy and (without or len(texts) > 1):
        return _differs(found, placement, with_policy, without, shown)
    if len(known) < len(placement.attachers):
        return unknown(
            f"{what([placement])}: the policies of those who share it were not read",
            subject=subject,
            cause=f"{EXACT}.",
            evidence=shown,
        )
    text = next(iter(texts), "default")
    return passed(
        f"{what([placement])}: {text} in all {len({a.pid for a in known})} processes that share it",
        subject=subject,
        evidence=shown,
    )


def _differs(
    found: Examination,
    placement: Placement,
    with_policy: list[Attacher],
    without: list[Attacher],
    shown: list[Evidence],
) -> Finding:
    first = with_policy[0]
    policy = first.policy.text if first.policy else ""
    others = without or with_policy[1:]
    names = listed(dict.fromkeys(process_text(found, a.pid) for a in others[:4]))
    theirs = others[0].policy.text if others[0].policy else ""
    rest = f" and {len(others) - 4} more" if len(others) > 4 else ""
    return warn(
        f"{what([placement])} is {policy} in {process_text(found, first.pid)}, but {theirs} in "
        f"{names}{rest}",
        subject=subject_of(found, placement),
        cause="The policy of huge pages is each mapping's own: what these processes touch first "
        "lies where their policy says.",
        evidence=shown,
        fixes=(
            Fix("any", "# mbind in each attacher before its first touch", needs_restart=True),
            Fix("any", "# or touch the whole pool in its creator", needs_restart=True),
        ),
    )


@check(
    "P013",
    name="interleave-everything",
    needs=(*PLACEMENT, *GPUS),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def interleave_everything(host: "Host", target: Target) -> Iterator[Finding]:
    """A process with GPUs interleaves all of its memory, pinned buffers and heaps included.

    Why it matters
        numactl --interleave=all in front of an engine spreads everything: every second page
        of a GPU's pinned buffers, of thread stacks and of the heap is on the other node. The
        pool gains, since GPUs of both nodes read it; the buffers of one GPU lose.

    When it is harmless
        When the process is little more than its pool.

    Fix
        Interleave the pool alone: mbind on its mapping, or the engine's own option; leave
        the process at the default policy, or bind it to its GPU's node.

    Source
        numactl(8), --interleave; set_mempolicy(2): the policy of a task counts for all of
        its later allocations
    """
    found = looked_at(host, target)
    blind: dict[int, Undecided] = {}
    judged = 0
    for pid, process in found.processes.items():
        try:
            if not found.gpus(pid).devices:
                continue
        except Undecided as error:
            blind[pid] = error
            continue
        judged += 1
        policy = process.policy
        shown = [Evidence(f"/proc/{pid}/numa_maps", policy.text if policy else "not read")]
        subject = f"process {process.name}" if process.name else "process"
        if policy is None:
            yield unknown(
                f"{process_text(found, pid)}: its policy was not read",
                subject=subject,
                evidence=shown,
            )
        elif "interleave" in policy.mode and len(policy.nodes) > 1:
            gpus = gpus_text(found, [pid])
            yield warn(
                f"{process.name or 'the process'} interleaves all its memory over "
                f"{nodes_text(policy.nodes)}, the pinned buffers of {gpus} too",
                subject=subject,
                cause="The pool gains by it; of the buffers of each GPU every second page is on "
                "the other node.",
                evidence=[*shown, *found.gpus(pid).evidence[:3]],
                fixes=(
                    Fix("lightllm", "LIGHTLLM_ENABLE_NUMA_INTERLEAVE=1", needs_restart=True),
                    Fix(
                        "any",
                        "# leave out numactl --interleave; mbind the pool alone",
                        needs_restart=True,
                    ),
                ),
            )
        else:
            yield passed(
                f"{process.name or 'the process'} does not interleave all its memory: "
                f"{policy.text}",
                subject=subject,
                evidence=shown,
            )
    yield from undecided_processes(found, blind, "which GPUs it uses")
    if not judged and not blind:
        yield skip(f"none of {count(len(found.processes), 'process', 'processes')} has a GPU open")
