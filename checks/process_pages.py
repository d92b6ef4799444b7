"""Pages that do not lie where the policy of their mapping says."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Status,
    Target,
    info,
    passed,
    skip,
    warn,
)
from numadoctor.model.placement import Kind, Placement
from numadoctor.model.units import amount, page_size_folder
from numadoctor.model.words import nodes_text
from numadoctor.placement.examination import Examination

from ._placement import (
    PLACEMENT,
    grouped,
    looked_at,
    names_nodes,
    node_list,
    off,
    pools,
    seen,
    spread_text,
    total,
    unread_policies,
    what,
)

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "P009",
    name="policy-and-pages",
    needs=(*PLACEMENT, "/sys/devices/system/node/node*/hugepages/*"),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def policy_and_pages(host: "Host", target: Target) -> Iterator[Finding]:
    """Pages lie on nodes that the policy of their mapping does not name.

    Why it matters
        A policy acts on pages that are faulted in after it was set. What was touched
        before stays where it is, and so does what came from another attacher. A preferred
        node is a wish: when it has no free page, or no free huge page, the kernel takes
        another node and says nothing.

    When it is harmless
        Less than 64 MiB of a heap and of tables of libraries, touched before the process
        bound itself: that is told (info). Page cache is not judged here (P003, P005).

    Fix
        Set the policy before the first touch. For what is there already: mbind with
        MPOL_MF_MOVE in the process, or migratepages(8) from outside. For huge pages,
        reserve them on the node that is asked for:

            echo 16 > /sys/devices/system/node/node5/hugepages/hugepages-2048kB/nr_hugepages

    Source
        mbind(2), MPOL_MF_MOVE; dequeue_hugetlb_folio_nodemask() in mm/hugetlb.c;
        Documentation/admin-guide/mm/hugetlbpage.rst
    """
    found = looked_at(host, target)
    mappings = [p for p in found.placement.mappings if p.mapping.kind.is_pool]
    placed = [
        p
        for p in mappings
        if p.resident and names_nodes(p.policy) and p.policy and not p.policy.cut
    ]
    strays = [p for p in placed if off(p.by_node, _named(p)) > threshold("off-node")]
    told = [_stray(found, subject, alike) for subject, alike in grouped(strays, found)]
    yield from told
    large = pools(found)
    yield from unread_policies(large)
    right = [p for p in placed if p not in strays]
    if right and all(finding.status is Status.INFO for finding in told):
        yield passed(
            f"{what(right) if len(right) == 1 else f'{len(right)} mappings'} with a policy of "
            "their own nodes are on these nodes",
            evidence=[seen(p) for p in right[:3]],
        )
    elif not placed and not any(p.policy is None for p in large):
        yield skip("no policy in force names a node")


def _named(placement: Placement) -> tuple[int, ...]:
    return placement.policy.nodes if placement.policy else ()


def _stray(found: Examination, subject: str, alike: list[Placement]) -> Finding:
    largest = max(alike, key=lambda p: p.resident)
    policy = largest.policy
    wanted = _named(largest)
    text = policy.text if policy else ""
    huge = largest.mapping.kind is Kind.HUGETLB
    cause, evidence = "", [seen(p) for p in alike[:3]]
    if huge:
        without, more = _without_huge_pages(found, wanted, largest.page_size)
        evidence += more
        if without:
            cause = (
                f"{nodes_text(without)} {'has' if len(without) == 1 else 'have'} no free huge page "
                f"of {amount(largest.page_size)}: the kernel took those of another node."
            )
    cause = cause or (
        "They were touched before the policy was set, or by another process, or the node was "
        "full: a policy moves nothing that is there."
    )
    message = f"{what(alike)}: the policy is {text}, the pages are on "
    message += spread_text(largest.by_node)
    if not huge and total(alike) < threshold("judged-mapping"):
        return info(
            message,
            subject=subject,
            cause="That little is what the program had touched before it was bound: its heap, and "
            "tables of its libraries.",
            evidence=evidence,
        )
    return warn(
        message,
        subject=subject,
        cause=cause,
        evidence=evidence,
        fixes=_bring_pages(largest, wanted, huge),
    )


def _without_huge_pages(
    found: Examination, wanted: tuple[int, ...], page_size: int
) -> tuple[list[int], list[Evidence]]:
    without, evidence = [], []
    for id in wanted:
        node = found.host.topology.node(id)
        free = next((p.free for p in node.pools if p.page_size == page_size), 0) if node else 0
        if not free:
            without.append(id)
            path = f"hugepages/{page_size_folder(page_size)}/free_hugepages"
            evidence.append(found.host.evidence(f"/sys/devices/system/node/node{id}/{path}"))
    return without, evidence


def _bring_pages(placement: Placement, wanted: tuple[int, ...], huge: bool) -> tuple[Fix, ...]:
    pid, there = placement.mapping.pid, sorted(set(placement.by_node) - set(wanted))
    if huge:
        pages = -(-placement.resident // placement.page_size // max(1, len(wanted)))
        size = page_size_folder(placement.page_size)
        return tuple(
            Fix(
                "sysfs",
                f"echo {pages} > /sys/devices/system/node/node{node}/hugepages/{size}/nr_hugepages",
                needs_root=True,
                needs_restart=True,
            )
            for node in wanted
        )
    return (
        Fix("any", "# set the policy before the first touch, or mbind(..., MPOL_MF_MOVE)"),
        Fix(
            "any",
            f"migratepages {pid} {node_list(there)} {node_list(wanted)}\n"
            "# of all its memory there, and holds the process up meanwhile",
        ),
    )
