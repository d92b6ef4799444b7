"""A plan for people and as JSON: what each instance gets, why, what was given up, how to start."""

from collections.abc import Container, Iterable, Sequence
from typing import Any

from numadoctor.model.plan import Chosen, HugePages, NodeBudget, Proposal, Refusal, Snippet
from numadoctor.model.units import amount, id_list
from numadoctor.report.terminal import Terminal

_LABEL = 10


def render(proposal: Proposal, terminal: Terminal, launchers: Container[str]) -> str:
    """The plan as text, with the commands of these launchers."""
    lines = terminal.wrap(terminal.text(_head(proposal)), 2, 0)
    for chosen in proposal.chosen:
        lines += ["", *_instance(chosen, terminal, launchers)]
    lines += ["", *_nodes(proposal, terminal)]
    if proposal.huge_pages:
        lines += ["", *_huge_pages(proposal.huge_pages, terminal)]
    if proposal.prepare:
        lines += ["", "first, on the machine:"]
        lines += _snippets(proposal.prepare, terminal)
    if proposal.remarks:
        lines.append("")
        for remark in proposal.remarks:
            lines += terminal.wrap(terminal.text(remark), 2, 0)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def render_refusal(refusal: Refusal, terminal: Terminal) -> str:
    """Why there is no plan, as text."""
    head = f"{refusal.host}: no plan: {refusal.reason}"
    lines = terminal.wrap(terminal.text(head), 2, 0)
    for detail in refusal.details:
        lines += terminal.wrap(terminal.text(detail), 4, 2)
    for advice in refusal.advice:
        lines += terminal.wrap(terminal.text(f"what would fit: {advice}"), 4, 2)
    return "\n".join(lines) + "\n"


def _head(proposal: Proposal) -> str:
    count = len(proposal.chosen)
    gpus = {len(chosen.gpus) for chosen in proposal.chosen}
    each = f" of {_number(gpus.pop(), 'GPU')}" if len(gpus) == 1 and max(gpus) else ""
    lost = sum(len(chosen.given_up) for chosen in proposal.chosen)
    told = f"{_number(lost, 'thing')} given up" if lost else "nothing given up"
    guessed = sum(len(chosen.assumed) for chosen in proposal.chosen)
    known = f", {_number(guessed, 'thing')} assumed" if guessed else ""
    best = "; no choice of GPUs is better" if proposal.proven else "; perhaps not the best choice"
    if not any(chosen.gpus for chosen in proposal.chosen):
        best = ""
    return f"{proposal.host}: {_number(count, 'instance')}{each}, {told}{known}{best}"


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _instance(chosen: Chosen, terminal: Terminal, launchers: Container[str]) -> list[str]:
    lines = [terminal.paint(terminal.text(chosen.instance.name), "cyan", bold=True)]
    for label, texts in (
        ("why", chosen.why),
        ("given up", chosen.given_up),
        ("assumed", chosen.assumed),
    ):
        lines += _labelled(label, texts, terminal)
    return lines + _snippets([s for s in chosen.snippets if s.launcher in launchers], terminal)


def _labelled(label: str, texts: Iterable[str], terminal: Terminal) -> list[str]:
    lines: list[str] = []
    for at, text in enumerate(texts):
        start = f"  {label if not at else '':<{_LABEL}}"
        wrapped = terminal.wrap(terminal.text(text), len(start))
        lines += [start + wrapped[0].lstrip(), *wrapped[1:]]
    return lines


def _snippets(snippets: Sequence[Snippet], terminal: Terminal) -> list[str]:
    """Commands stay whole, however wide: one that was broken could not be copied."""
    lines: list[str] = []
    for snippet in snippets:
        lines.append(f"  {terminal.text(snippet.launcher)}")
        lines += [f"    {terminal.text(line)}" for line in snippet.text.split("\n")]
        for note in snippet.notes:
            wrapped = Terminal(terminal.width - 2).wrap(terminal.text(note), 4)
            lines += [f"    # {line.lstrip()}" for line in wrapped]
    return lines


def _nodes(proposal: Proposal, terminal: Terminal) -> list[str]:
    rows = [("node", "kind", "for pools", "planned", "left")]
    for budget in proposal.nodes:
        if budget.left_out and len(proposal.nodes) > _MOST_NODES:
            continue
        have, left = _known(budget)
        rows.append(
            (str(budget.node), budget.kind, have, amount(budget.planned), left)
            if not budget.left_out
            else (str(budget.node), budget.kind, "-", "-", f"- {budget.left_out}")
        )
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    lines = [
        terminal.cut(
            terminal.text(
                f"  {row[0]:>{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  "
                f"{row[3]:>{widths[3]}}  {row[4]}"
            )
        )
        for row in rows
    ]
    if len(proposal.nodes) > _MOST_NODES:
        lines += _left_out(proposal.nodes, terminal)
    kept = id_list(proposal.reserved_cpus) or "none"
    plural = "" if len(proposal.reserved_cpus) == 1 else "s"
    told = f"CPU{plural} {kept}: left to interrupts, the kernel's threads and the router"
    return [*lines, *terminal.wrap(terminal.text(told), 4, 2)]


# Beyond, nodes that get nothing are told together.
_MOST_NODES = 12


def _left_out(nodes: Iterable[NodeBudget], terminal: Terminal) -> list[str]:
    by_reason: dict[str, list[int]] = {}
    for budget in nodes:
        if budget.left_out:
            by_reason.setdefault(budget.left_out, []).append(budget.node)
    lines: list[str] = []
    for reason, ids in by_reason.items():
        plural = "" if len(ids) == 1 else "s"
        told = f"left out: node{plural} {id_list(ids)}: {reason}"
        lines += terminal.wrap(terminal.text(told), 4, 2)
    return lines


def _known(budget: NodeBudget) -> tuple[str, str]:
    if budget.available is None:
        return "unknown", "unknown"
    return amount(budget.available), amount(max(0, budget.available - budget.planned))


def _huge_pages(pages: Iterable[HugePages], terminal: Terminal) -> list[str]:
    lines = []
    for page in pages:
        lack = max(0, page.needed - page.free)
        told = f"{lack} are missing" if lack else "enough"
        text = (
            f"node {page.node}: {page.needed} pages of {amount(page.page_size)} are needed, "
            f"{page.free} are free: {told}"
        )
        lines += terminal.wrap(terminal.text(text), 4, 2)
    return lines


def proposal_data(proposal: Proposal, version: str) -> dict[str, Any]:
    """The plan as JSON data; ``check --expect`` takes it. See docs/schema/plan.schema.json."""
    return {
        "schema_version": 1,
        "tool_version": version,
        "host": proposal.host,
        "fits": True,
        "instances": [_instance_data(chosen) for chosen in proposal.chosen],
        "nodes": [_node_data(budget) for budget in proposal.nodes],
        "reserved_cpus": list(proposal.reserved_cpus),
        "huge_pages": [
            {
                "node": page.node,
                "page_size": page.page_size,
                "needed": page.needed,
                "free": page.free,
                "total": page.total,
            }
            for page in proposal.huge_pages
        ],
        "proven": proposal.proven,
        "compared": proposal.compared,
        "remarks": list(proposal.remarks),
        "prepare": [_snippet_data(snippet) for snippet in proposal.prepare],
    }


def _instance_data(chosen: Chosen) -> dict[str, Any]:
    return {
        **chosen.instance.data,
        "gpu_details": [
            {
                "address": gpu.address,
                "index": gpu.number if gpu.number >= 0 else None,
                "node": gpu.node,
                "node_source": gpu.node_source,
                "model": gpu.model,
            }
            for gpu in chosen.gpus
        ],
        "why": list(chosen.why),
        "given_up": list(chosen.given_up),
        "assumed": list(chosen.assumed),
        "commands": [_snippet_data(snippet) for snippet in chosen.snippets],
    }


def _snippet_data(snippet: Snippet) -> dict[str, Any]:
    return {"launcher": snippet.launcher, "text": snippet.text, "notes": list(snippet.notes)}


def _node_data(budget: NodeBudget) -> dict[str, Any]:
    return {
        "node": budget.node,
        "kind": budget.kind,
        "available_bytes": budget.available,
        "planned_bytes": budget.planned,
        "left_out": budget.left_out or None,
    }


def refusal_data(refusal: Refusal, version: str) -> dict[str, Any]:
    """Why there is no plan, as JSON data."""
    return {
        "schema_version": 1,
        "tool_version": version,
        "host": refusal.host,
        "fits": False,
        "refusal": {
            "reason": refusal.reason,
            "details": list(refusal.details),
            "advice": list(refusal.advice),
        },
    }
