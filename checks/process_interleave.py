"""Interleaved pools: evenly, along their length, in every attacher, and not the whole process."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Node,
    Target,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.placement import Kind, Placement
from numadoctor.model.units import amount
from numadoctor.placement.examination import Examination

from ._placement import (
    PLACEMENT,
    looked_at,
    node_list,
    pools,
    seen,
    spread_text,
    subject_of,
    unread_policies,
    what,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

_NODES = "/sys/devices/system/node"
_WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"


@check(
    "P010",
    name="interleave-even",
    needs=(
        *PLACEMENT,
        f"{_NODES}/node*/meminfo",
        f"{_NODES}/node*/hugepages/*",
        f"{_WEIGHTS}/node*",
    ),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def interleave_even(host: "Host", target: Target) -> Iterator[Finding]:
    """An interleaved pool is not spread as its policy says, since a node was full.

    Why it matters
        Interleaving takes the nodes in turn, and passes on to the next when one has no free
        page: page cache of a model file, or another instance, fills one node, and most of the
        pool ends up on the other. The fuller memory controller then sets the pace of all.

    When it is harmless
        While the pool is still being filled, a part may be ahead. Weighted interleaving is
        compared with its weights.

    Fix
        Make room on the full node before the prefault: drop the page cache there, reserve
        huge pages per node, start instances one after the other. What is there can be
        evened out with mbind and MPOL_MF_MOVE.

    Source
        interleave_nodes() and weighted_interleave_nodes() in mm/mempolicy.c;
        Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave
    """
    found = looked_at(host, target)
    large = pools(found)
    spread = [p for p in large if _is_interleaved(p) and p.policy and len(p.policy.nodes) > 1]
    uneven = []
    for placement in spread:
        expected = _expected(host, placement)
        deviations = {n: _fraction(placement, n) - share for n, share in expected.items()}
        if max(map(abs, deviations.values())) > threshold("interleave-deviation"):
            uneven.append(placement)
            yield _uneven(found, placement, min(deviations, key=lambda n: deviations[n]))
    yield from unread_policies(large)
    if spread and not uneven:
        yield passed(
            f"{what(spread) if len(spread) == 1 else f'{len(spread)} pools'}: spread as the policy "
            f"says, {spread_text(spread[0].by_node)}",
            evidence=[seen(p) for p in spread[:3]],
        )
    elif not spread and not any(p.policy is None for p in large):
        yield skip("no pool is interleaved")


def _is_interleaved(placement: Placement) -> bool:
    policy = placement.policy
    return policy is not None and "interleave" in policy.mode and not policy.cut


def _fraction(placement: Placement, node: int) -> float:
    share = placement.by_node.get(node)
    return share.fraction if share else 0.0


def _expected(host: "Host", placement: Placement) -> dict[int, float]:
    """Node id to the share that the policy gives it."""
    nodes = placement.policy.nodes if placement.policy else ()
    weights = dict.fromkeys(nodes, 1)
    if placement.policy and placement.policy.mode.startswith("weighted"):
        weights = {
            node: host.parse(f"{_WEIGHTS}/node{node}", parsers.parse_weight) for node in nodes
        }
    whole = sum(weights.values()) or 1
    return {node: weight / whole for node, weight in weights.items()}


def _is_full(node: Node) -> bool:
    free, memory = node.free_bytes, node.memory_bytes or 0
    return free is not None and free <= threshold("bound-room") * memory


def _uneven(found: Examination, placement: Placement, least: int) -> Finding:
    host, policy = found.host, placement.policy
    node = host.topology.node(least)
    huge = placement.mapping.kind is Kind.HUGETLB
    path = f"{_NODES}/node{least}/meminfo"
    evidence = [seen(placement), host.evidence(path, f"Node {least} MemT", f"Node {least} MemF")]
    state = "what was free there when the pool was touched cannot be told any more"
    if node and huge:
        free = next((p.free for p in node.pools if p.page_size == placement.page_size), 0)
        if not free:
            state = f"node {least} has no free huge page of {amount(placement.page_size)}"
    elif node and _is_full(node):
        state = f"node {least} is full: {amount(node.free_bytes or 0)} free"
    return warn(
        f"{what([placement])} is {policy.text if policy else ''}, and lies unevenly: "
        f"{spread_text(placement.by_node)}; {state}",
        subject=subject_of(found, placement),
        cause=f"Node {least} had no page when its turn came, and the kernel took the next node. "
        "The fullest node sets the pace.",
        evidence=evidence,
        fixes=(
            Fix("sysctl", "sysctl -w vm.drop_caches=1", needs_root=True),
            Fix(
                "any",
                f"# make room on node {least} (numactl -H), then start again and prefault",
                needs_restart=True,
            ),
        ),
    )


@check(
    "P011",
    name="interleave-pattern",
    needs=PLACEMENT,
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def interleave_pattern(host: "Host", target: Target) -> Iterator[Finding]:
    """A pool is even over the nodes in total, but not along its length.

    Why it matters
        A pool whose first half is on node 0 and whose second half is on node 1 shows 50 % and
        50 % in every tool. But a block of a KV cache is a few MiB, so each block is behind one
        memory controller, and requests whose blocks lie in one half use one half of the
        bandwidth. Interleaving is for blocks: what counts is how many consecutive bytes
        stay on one node.

    When it is harmless
        When the halves belong to different workers, each near its own. With huge pages of
        1 GiB no shorter run is possible; that is told (info).

    Fix
        Interleave the whole pool with one mbind before any page of it is touched, or let
        prefault threads of all nodes touch it in turn, page by page.

    Source
        mbind(2), MPOL_INTERLEAVE; Documentation/admin-guide/mm/numa_memory_policy.rst
    """
    found = looked_at(host, target)
    split = [p for p in pools(found) if _is_split(p) and not p.mapping.kind.is_file]
    if not split:
        yield skip("no pool is spread over several nodes")
        return
    fine, dark = [], []
    for placement in split:
        if placement.run_length is None:
            dark.append(placement)
        elif placement.run_length > threshold("run-length"):
            yield _long_runs(found, placement, placement.run_length)
        else:
            fine.append(placement)
    if dark:
        yield unknown(
            f"{what(dark) if len(dark) == 1 else f'{len(dark)} pools'}: how the nodes alternate "
            "along the mapping is not known",
            subject="pattern of pools",
            cause="numa_maps gives totals alone. On the machine itself numadoctor asks about "
            "single pages (move_pages); a folder may hold what it saw as "
            ".numadoctor/placement.json.",
            evidence=[seen(p) for p in dark[:3]],
        )
    if fine:
        longest = max(p.run_length or 0 for p in fine)
        yield passed(
            f"{what(fine) if len(fine) == 1 else f'{len(fine)} pools'}: nodes alternate every "
            f"{amount(longest)} at the most, on average",
            evidence=[seen(p) for p in fine[:3]],
        )


def _is_split(placement: Placement) -> bool:
    """Whether a second node has a part worth a word."""
    shares = sorted((s.fraction for s in placement.by_node.values()), reverse=True)
    return len(shares) > 1 and shares[1] > threshold("off-node")


def _long_runs(found: Examination, placement: Placement, run: int) -> Finding:
    message = (
        f"{what([placement])}: {spread_text(placement.by_node)} in total, but {amount(run)} on "
        "end stay on one node"
    )
    evidence = [seen(placement), _along(placement)]
    if placement.page_size >= run / 2:
        return info(
            f"{message}, as its pages of {amount(placement.page_size)} do",
            subject=subject_of(found, placement),
            evidence=evidence,
        )
    nodes = node_list(placement.by_node)
    return warn(
        message,
        subject=subject_of(found, placement),
        cause="Blocks are not spread: each lies behind one memory controller, and requests whose "
        "blocks are in one part use the bandwidth of one node.",
        evidence=evidence,
        fixes=(
            Fix(
                "any",
                f"# one mbind(pool, MPOL_INTERLEAVE, nodes {nodes}) before any page is touched",
                needs_restart=True,
            ),
            Fix("lightllm", "LIGHTLLM_ENABLE_NUMA_INTERLEAVE=1", needs_restart=True),
            Fix("numactl", f"numactl --interleave={nodes} COMMAND", needs_restart=True),
        ),
    )


def _along(placement: Placement) -> Evidence:
    """The node that most pages of each part of the mapping are on."""
    cells = []
    for cell in placement.strip:
        most: Mapping[int, int] = cell.nodes
        cells.append(str(max(most, key=lambda n: most[n])) if most else ".")
    text = " ".join(cells) or "not told"
    return Evidence(f"move_pages of pid {placement.mapping.pid}", f"nodes along it: {text}"[:240])
