"""Judges where the pages of a pool are against what was wanted of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from numadoctor.allocator.backing import Backing
from numadoctor.kernel.nodemask import to_text
from numadoctor.model import Evidence, Finding, Fix, fail, info, passed, warn
from numadoctor.model.placement import Kind, Placement
from numadoctor.model.units import amount

if TYPE_CHECKING:
    from numadoctor.allocator.pool import Pool

KINDS: Mapping[Backing, Kind] = {
    Backing.PRIVATE: Kind.ANONYMOUS,
    Backing.SHARED: Kind.SHARED_ANONYMOUS,
    Backing.POSIX: Kind.POSIX,
    Backing.SYSV: Kind.SYSV,
    Backing.MEMFD: Kind.MEMFD,
    Backing.HUGETLB: Kind.HUGETLB,
    Backing.HUGETLB_MEMFD: Kind.HUGETLB,
    Backing.HUGETLB_SYSV: Kind.HUGETLB,
}

# The kernel interleaves by the offset in the mapping, so the shares are exact
# to the page. Under transparent huge pages the unit is 2 MiB (32 or 512 MiB on
# arm64), and what is left at the ends of the mapping shifts a share by a unit.
_SLACK_UNITS = 2


def expected_shares(
    mode: str, nodes: tuple[int, ...], weights: Mapping[int, int]
) -> dict[int, float]:
    """Node id to the fraction that should lie there; empty for modes that promise none."""
    if mode == "interleave":
        return {node: 1 / len(nodes) for node in nodes}
    if mode == "weighted-interleave":
        total = sum(weights.get(node, 1) for node in nodes)
        return {node: weights.get(node, 1) / total for node in nodes}
    return {}


def judge(pool: "Pool", placement: Placement) -> list[Finding]:
    """What the placement comes to: at least one finding."""
    if not placement.resident:
        return [info("nothing of the pool has been touched yet", subject="pool")]
    findings = [_judge_mode(pool, placement)]
    if placement.resident < pool.length:
        missing = pool.length - placement.resident
        findings.append(info(f"{amount(missing)} of the pool are not in yet", subject="pool"))
    return findings


def _judge_mode(pool: "Pool", placement: Placement) -> Finding:
    shown = describe(placement)
    evidence = [Evidence(f"placement of the pool, {placement.method.value}", shown)]
    mode, nodes = pool.effective_mode, pool.effective_nodes
    if mode == "first-touch":
        return info(
            f"left to first touch: {shown}",
            subject="pool",
            cause="Which node it lies on was decided by the CPUs of the threads that touched it.",
            evidence=evidence,
        )
    strays = {n: b for n, b in placement.bytes_by_node.items() if n not in nodes}
    if strays:
        return _strayed(pool, strays, evidence)
    shares = expected_shares(mode, nodes, pool.weights)
    uneven = _uneven(placement, shares)
    if uneven:
        return warn(
            f"{mode} over node {to_text(nodes)} is uneven: {shown}",
            subject="pool",
            cause=f"Node {to_text(uneven)} had no free page left while the pool was brought in; "
            "the kernel took the next node in its list.",
            evidence=evidence,
            fixes=(Fix("any", f"free memory on node {to_text(uneven)} first, or a smaller pool"),),
        )
    if shares and len(nodes) > 1 and not _spread(pool, placement):
        return warn(
            f"{mode} is even in total but not along the pool: runs of "
            f"{amount(placement.run_length or 0)} on one node",
            subject="pool",
            cause="Blocks that are read together come from one memory controller.",
            evidence=evidence,
            fixes=(Fix("any", "set the policy before the first touch"),),
        )
    return passed(f"{mode} over node {to_text(nodes)}: {shown}", subject="pool", evidence=evidence)


def _strayed(pool: "Pool", strays: Mapping[int, int], evidence: list[Evidence]) -> Finding:
    told = ", ".join(f"{amount(count)} on node {node}" for node, count in strays.items())
    make = fail if pool.effective_mode == "bind" else warn
    return make(
        f"{told}, outside node {to_text(pool.effective_nodes)} of the pool's policy",
        subject="pool",
        cause="These pages were there before the policy was set, were moved since, or the nodes "
        "of the policy were full.",
        evidence=evidence,
        fixes=(
            Fix("any", "set the policy before the first touch; check the free memory per node"),
        ),
    )


def _uneven(placement: Placement, shares: Mapping[int, float]) -> list[int]:
    """The nodes that got less than their share, beyond what the unit of interleaving explains."""
    unit = _unit(placement)
    return [
        node
        for node, share in shares.items()
        if placement.bytes_by_node.get(node, 0) < share * placement.resident - _SLACK_UNITS * unit
    ]


def _unit(placement: Placement) -> int:
    """The bytes that stay together: a page, or a transparent huge page where there are some."""
    if not placement.thp_bytes and (placement.run_length or 0) <= 2 * placement.page_size:
        return placement.page_size
    return max(placement.run_length or 0, placement.page_size)


def _spread(pool: "Pool", placement: Placement) -> bool:
    """Whether every stretch of the pool is on several nodes."""
    if placement.run_length is None:
        return True
    # Halves, the usual fault, give runs of half the pool.
    return placement.run_length * 8 <= placement.resident or placement.resident <= 64 << 20


def describe(placement: Placement) -> str:
    """``node 0 50.0 % (8192 pages), node 1 50.0 % (8192 pages)``."""
    parts = []
    for node, share in sorted(placement.by_node.items()):
        pages = share.bytes // placement.page_size
        parts.append(f"node {node} {100 * share.fraction:.1f} % ({pages} pages)")
    return ", ".join(parts) or "nothing"
