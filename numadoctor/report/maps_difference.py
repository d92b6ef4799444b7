"""What changed between two looks at the memory of processes, for people and as JSON data."""

from typing import Any

from numadoctor.model.placement import Change, Difference
from numadoctor.model.units import amount
from numadoctor.report.terminal import Terminal

# What fits a screen; JSON has all.
_ROWS = 20


def render(difference: Difference, title: str, terminal: Terminal) -> str:
    """The difference as text that fits ``terminal``; its first line tells the whole story."""
    lines = terminal.wrap(terminal.text(f"{title}: {', '.join(_summary(difference))}"), 2, 0)
    shown = difference.changes[:_ROWS]
    for change in shown:
        lines.append(terminal.cut(terminal.text(f"  {_change(change)}")))
    hidden = len(difference.changes) - len(shown)
    if hidden:
        lines.append(f"  and {hidden:,} more (-o json has all)")
    return "\n".join(lines) + "\n"


def _summary(difference: Difference) -> list[str]:
    told = [_signed(difference.after - difference.before) + " resident"]
    told += [
        f"node {node} {_signed(after - before)}"
        for node, (before, after) in difference.nodes.items()
        if after != before
    ]
    if moved := sum(change.moved for change in difference.changes):
        told.append(f"{amount(moved)} moved between nodes")
    if difference.minor_faults is not None:
        told.append(f"{difference.minor_faults:,} minor faults")
    if difference.major_faults:
        told.append(f"{difference.major_faults:,} major faults")
    if difference.swapped:
        told.append(f"{_signed(difference.swapped)} swapped")
    if difference.migrated_pages:
        told.append(f"{difference.migrated_pages:,} pages migrated by NUMA balancing")
    told += [f"pid {pid} started" for pid in difference.started[:3]]
    told += [f"pid {pid} ended" for pid in difference.ended[:3]]
    return told


def _signed(count: int) -> str:
    return f"{'-' if count < 0 else '+'}{amount(abs(count))}"


def _change(change: Change) -> str:
    grown = _signed(change.after - change.before)
    nodes = ", ".join(f"node {node} {_signed(delta)}" for node, delta in change.by_node.items())
    text = f"{grown:>10}  {change.kind.value}  {change.name}"
    if not change.before or not change.after:
        text += " (new)" if not change.before else " (gone)"
    if nodes:
        text += f": {nodes}"
    if change.policy_before != change.policy_after:
        text += f"; policy {change.policy_before} became {change.policy_after}"
    return text


def data(difference: Difference, **more: Any) -> dict[str, Any]:
    """The difference as JSON data."""
    return {
        "schema_version": 1,
        **more,
        "resident_bytes": {"before": difference.before, "after": difference.after},
        "nodes": {
            str(node): {"before": before, "after": after}
            for node, (before, after) in difference.nodes.items()
        },
        "changes": [
            {
                "kind": change.kind.value,
                "name": change.name,
                "before": change.before,
                "after": change.after,
                "bytes_by_node": {str(node): delta for node, delta in change.by_node.items()},
                "moved_bytes": change.moved,
                "policy_before": change.policy_before,
                "policy_after": change.policy_after,
            }
            for change in difference.changes
        ],
        "started": list(difference.started),
        "ended": list(difference.ended),
        "minor_faults": difference.minor_faults,
        "major_faults": difference.major_faults,
        "swapped_bytes": difference.swapped,
        "migrated_pages": difference.migrated_pages,
    }
