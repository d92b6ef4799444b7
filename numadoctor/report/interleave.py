"""What ``numadoctor interleave`` shows: two pools beside each other, page by page."""

from typing import TYPE_CHECKING, Any, NamedTuple

from numadoctor.model import Finding, Status, Topology
from numadoctor.model.placement import Placement
from numadoctor.model.units import amount
from numadoctor.report.fixes import fix_lines
from numadoctor.report.json import SCHEMA_VERSION, finding_data
from numadoctor.report.terminal import Terminal

if TYPE_CHECKING:
    from numadoctor.allocator.prefault import Prefaulted

_INDENT = 12


class Sample(NamedTuple):
    """One pool, brought in and looked at.

    :ivar mode: what was asked for
    :ivar effective_mode: what was in force
    :ivar length: in bytes
    :ivar placement: None where it could not be told; ``findings`` say why
    """

    mode: str
    effective_mode: str
    length: int
    prefaulted: "Prefaulted"
    placement: Placement | None
    findings: tuple[Finding, ...]


class Comparison(NamedTuple):
    """All that the command found out.

    :ivar size: asked for, in bytes
    :ivar errors: why a pool could not be had
    """

    host: str
    topology: Topology
    size: int
    backing: str
    samples: tuple[Sample, ...]
    errors: tuple[Finding, ...]


def headline(comparison: Comparison) -> str:
    """What it comes to, in one line."""
    if comparison.errors:
        return f"{comparison.host}: {comparison.errors[-1].message}"
    placed = comparison.samples[-1]
    worst = [f for f in placed.findings if f.status in (Status.FAIL, Status.WARN, Status.UNKNOWN)]
    if worst:
        return f"{comparison.host}: {worst[0].message}"
    if not comparison.topology.numa:
        return f"{comparison.host}: this kernel has no NUMA support: there is nothing to place"
    if len(comparison.topology.memory_nodes) < 2:
        return (
            f"{comparison.host}: the calls work; with one NUMA node, where the pages are cannot "
            "differ"
        )
    return f"{comparison.host}: {placed.mode} works: {placed.findings[-1].message}"


def render(comparison: Comparison, terminal: Terminal) -> str:
    """The comparison as text."""
    lines = terminal.wrap(terminal.text(headline(comparison)), 2, 0)
    if comparison.samples:
        lines += ["", *_table(comparison, terminal)]
    told = [f for sample in comparison.samples for f in sample.findings]
    for finding in (*comparison.errors, *told):
        if finding.status in (Status.FAIL, Status.WARN, Status.UNKNOWN):
            lines += ["", *_finding(finding, terminal)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _table(comparison: Comparison, terminal: Terminal) -> list[str]:
    from tabulate import tabulate

    rows = []
    for sample in comparison.samples:
        rate = f"{sample.prefaulted.rate / 2**30:.2f} GiB/s"
        # The policy names the mode where the mode is in force.
        first = [sample.mode if sample.mode == "first-touch" else "placed"]
        first += [_policy(sample), rate, _run(sample)]
        for node, pages, share in _shares(sample):
            rows.append([*first, node, pages, share])
            first = [""] * len(first)
    headers = ["pool", "policy", "prefault", "run", "node", "pages", "share"]
    table = tabulate(
        rows,
        headers,
        tablefmt="plain",
        disable_numparse=True,
        colalign=["left", "left", "right", "right", "right", "right", "right"],
    )
    about = f"{amount(comparison.size)} each, {comparison.backing}, pages of " + ", ".join(
        sorted({amount(s.placement.page_size) for s in comparison.samples if s.placement}) or ["?"]
    )
    return [*(terminal.cut(terminal.text(line)) for line in (about, "", *table.splitlines()))]


def _policy(sample: Sample) -> str:
    policy = sample.placement.policy if sample.placement else None
    return policy.text if policy else "?"


def _run(sample: Sample) -> str:
    run = sample.placement.run_length if sample.placement else None
    return amount(run) if run else "?"


def _shares(sample: Sample) -> list[tuple[str, str, str]]:
    placement = sample.placement
    if placement is None or not placement.by_node:
        return [("?", "?", "?")]
    return [
        (str(node), str(share.bytes // placement.page_size), f"{100 * share.fraction:.1f} %")
        for node, share in sorted(placement.by_node.items())
    ]


def _finding(finding: Finding, terminal: Terminal) -> list[str]:
    label = {Status.UNKNOWN: "?"}.get(finding.status, finding.status.value.upper())
    lines = terminal.wrap(terminal.text(finding.message), _INDENT)
    lines[0] = label.ljust(_INDENT) + lines[0].lstrip()
    lines += terminal.wrap(terminal.text(finding.cause), _INDENT) if finding.cause else []
    fixes = fix_lines(finding.fixes, terminal, _INDENT)
    if fixes:
        fixes[0] = "      fix".ljust(_INDENT) + fixes[0].lstrip()
    return lines + fixes


def data(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "host": comparison.host,
        "numa": comparison.topology.numa,
        "nodes": [node.id for node in comparison.topology.nodes],
        "size": comparison.size,
        "backing": comparison.backing,
        "pools": [_sample_data(sample) for sample in comparison.samples],
        "findings": [finding_data(finding) for finding in comparison.errors],
    }


def _sample_data(sample: Sample) -> dict[str, Any]:
    placement = sample.placement
    return {
        "mode": sample.mode,
        "effective_mode": sample.effective_mode,
        "length": sample.length,
        "policy": placement.policy.text if placement and placement.policy else None,
        "page_size": placement.page_size if placement else None,
        "method": placement.method.value if placement else None,
        "bytes_by_node": {str(n): b for n, b in placement.bytes_by_node.items()}
        if placement
        else None,
        "run_length_bytes": placement.run_length if placement else None,
        "prefault": {
            "seconds": sample.prefaulted.seconds,
            "bytes_per_second": sample.prefaulted.rate,
            "threads": sample.prefaulted.threads,
            "method": sample.prefaulted.method,
        },
        "findings": [finding_data(finding) for finding in sample.findings],
    }
