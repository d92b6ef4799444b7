"""Where the memory of processes is, for people and as JSON data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numadoctor.model.placement import (
    Cell,
    Kind,
    Method,
    Placement,
    Process,
    ProcessPlacement,
    Remainder,
    Share,
)
from numadoctor.model.units import amount, id_list
from numadoctor.report.processes import half_width, who
from numadoctor.report.terminal import Terminal, columns

BY = ("mapping", "kind", "node")

# What fits a screen; JSON has all.
_ROWS = 40
# More nodes than that get a column together, not each its own.
_NODE_COLUMNS = 4
_BAR = 24
_STRIP, _STRIP_WIDTH = 24, 100  # cells; columns of a terminal that has room for them

_LEAST_NAME = 12

# A node that has that much of the pages in a cell of a strip gives the cell its name.
_CLEAR = 0.9

_NODE_NAMES = "0123456789abcdefghijklmnopqrstuvwyz"


def render(
    placement: ProcessPlacement,
    kinds: Sequence[Remainder],
    host: str,
    terminal: Terminal,
    *,
    by: str = "mapping",
) -> str:
    """The placement as text that fits ``terminal``.

    :param kinds: the same memory, by kind
    :param by: a row for each mapping, kind or node
    """
    lines = [*terminal.wrap(terminal.text(_headline(placement, host)), 2, 0)]
    if not _unexamined(placement):
        lines += terminal.wrap(terminal.text(_how(placement)), 2, 0)
    for line in placement.incomplete:
        lines += terminal.wrap(terminal.text(f"not examined: {line}"), 2, 0)
    if placement.nodes:
        lines += ["", *_bars(placement.nodes, terminal)]
        if by == "mapping":
            lines += ["", *_by_mapping(placement, terminal)]
        else:
            table = _by_node if by == "node" else _by_kind
            lines += ["", *table(placement, kinds, terminal)]
    lines += _notes(placement, terminal)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _unexamined(placement: ProcessPlacement) -> bool:
    """Whether nothing is known, which is another thing than no memory."""
    return not placement.nodes and all(process.problem for process in placement.processes)


def _headline(placement: ProcessPlacement, host: str) -> str:
    if _unexamined(placement):
        unknown = ": not known" if placement.processes else ""
        return f"{host}: {who(placement.processes)}{unknown}"
    shares = ", ".join(
        f"node {node} {_percent(share)}" for node, share in _largest_first(placement.nodes)[:4]
    )
    more = len(placement.nodes) - 4
    told = f", {shares}{f', {more} more nodes' if more > 0 else ''}" if shares else ""
    return f"{host}: {who(placement.processes)}: {amount(placement.resident)} resident{told}"


def _how(placement: ProcessPlacement) -> str:
    cost = placement.cost
    longest = f"longest {cost.longest * 1000:.2f} ms" if cost.calls else ""
    if placement.method is Method.SAMPLED:
        width = max((half_width(share) for share in placement.nodes.values()), default=0.0)
        asked = f"{cost.pages:,} pages asked about in {cost.calls:,} calls"
        return f"sampled, ±{width:.1f} %: {asked}, {longest}; {placement.because}"
    read = f"{cost.calls:,} reads under its mmap lock, {longest}; " if cost.calls else ""
    return f"counted by numa_maps: {read}{placement.because}"


def _percent(share: Share) -> str:
    return f"{100 * share.fraction:.0f} %"


def _largest_first(nodes: Mapping[int, Share]) -> list[tuple[int, Share]]:
    return sorted(nodes.items(), key=lambda item: (-item[1].bytes, item[0]))


def _bars(nodes: Mapping[int, Share], terminal: Terminal) -> list[str]:
    label = max(len(f"node {node}") for node in nodes)
    lines = []
    for node, share in nodes.items():
        bar = "█" * round(_BAR * share.fraction)
        interval = ""
        if share.low != share.high:
            interval = f"  ({amount(share.low)} to {amount(share.high)})"
        text = f"{f'node {node}':<{label}}  {bar:·<{_BAR}}  {amount(share.bytes):>10}"
        lines.append(terminal.cut(terminal.text(f"{text}  {_percent(share):>5}{interval}")))
    return lines


def _by_mapping(placement: ProcessPlacement, terminal: Terminal) -> list[str]:
    """A row for each mapping, and one for the smaller ones of each kind."""
    nodes = list(placement.nodes)
    shown = placement.mappings[:_ROWS]
    names = _node_names(nodes)
    # Column by column, those that would say nothing left out.
    extra: list[tuple[str, Callable[[Placement], str]]] = []
    if len(nodes) > 1:
        extra.append(("run", _run))
        if terminal.width >= _STRIP_WIDTH:
            extra.append(("along the mapping", lambda p: _strip(p.strip, names)))
    if any(_huge(p, placement.thp_size) for p in shown):
        extra.append(("huge pages", lambda p: _huge(p, placement.thp_size)))
    if terminal.width >= _STRIP_WIDTH and any(len(p.attachers) > 1 for p in shown):
        extra.append(("procs", lambda p: str(len({a.pid for a in p.attachers}) or 1)))
    extra.append(("name", _name))
    rows = [["resident", "kind", "policy", *_headings(nodes), *(title for title, _ in extra)]]
    for p in shown:
        row = [amount(p.resident), _label(p.mapping.kind), p.policy.text if p.policy else "?"]
        row += _shares(p.by_node, nodes, p.method)
        rows.append([*row, *(cell(p) for _, cell in extra)])
    for r in placement.remainders:
        row = [amount(r.resident), _label(r.kind), f"{r.mappings:,} smaller"]
        row += _shares(r.by_node, nodes, r.method)
        rows.append([*row, *[""] * len(extra)])
    lines = _table(rows, {0, *range(3, 3 + len(_headings(nodes)))}, terminal)
    if hidden := len(placement.mappings) - len(shown):
        lines.append(f"and {hidden:,} more mappings (--min-size, or -o json for all)")
    if len(nodes) > 1 and terminal.width >= _STRIP_WIDTH:
        told = ", ".join(f"{name} node {node}" for node, name in names.items())
        lines += ["", *terminal.wrap(terminal.text(f"along: {told}, × several, · none"), 2, 0)]
    return lines


def _by_kind(
    placement: ProcessPlacement, kinds: Sequence[Remainder], terminal: Terminal
) -> list[str]:
    """A row for each kind of mapping."""
    nodes = list(placement.nodes)
    rows = [["resident", "kind", "mappings", *_headings(nodes)]]
    for kind in kinds:
        row = [amount(kind.resident), _label(kind.kind), f"{kind.mappings:,}"]
        rows.append([*row, *_shares(kind.by_node, nodes, kind.method)])
    return _table(rows, {0, *range(2, len(rows[0]))}, terminal)


def _label(kind: Kind) -> str:
    """A kind in few letters: the tables are wide enough."""
    return kind.value.replace("private-anonymous", "anonymous").replace("-anonymous", " anon")


def _headings(nodes: Sequence[int]) -> list[str]:
    """Of the columns for nodes: one for each, or one for all where there are many."""
    return [f"node {node}" for node in nodes] if len(nodes) <= _NODE_COLUMNS else ["nodes"]


def _shares(by_node: Mapping[int, Share], nodes: Sequence[int], method: Method) -> list[str]:
    """The cells below ``_headings``."""
    if len(nodes) <= _NODE_COLUMNS:
        return [_share(by_node.get(node), method) for node in nodes]
    largest = _largest_first(by_node)
    told = ", ".join(f"{node}: {_share(share, method)}" for node, share in largest[:3])
    return [told + (f", {len(largest) - 3} more" if len(largest) > 3 else "")]


def _share(share: Share | None, method: Method) -> str:
    if share is None or not share.bytes:
        return "-"
    if method is not Method.SAMPLED:
        return _percent(share)
    return f"{100 * share.fraction:.0f} ±{half_width(share):.0f} %"


def _run(placement: Placement) -> str:
    """Run length, where there is more than one node to alternate between."""
    if placement.run_length is None:
        return "?" if len(placement.by_node) > 1 else "-"
    return amount(placement.run_length) if len(placement.by_node) > 1 else "-"


def _huge(placement: Placement, thp_size: int | None) -> str:
    """Pages of a pool, or transparent ones, in their own size; empty without any."""
    if placement.mapping.kind is Kind.HUGETLB:
        count = placement.resident // placement.page_size
        return f"{count:,} × {amount(placement.page_size)}"
    if not placement.thp_bytes or not thp_size:
        return ""
    return f"{placement.thp_bytes // thp_size:,} × {amount(thp_size)} thp"


def _name(placement: Placement) -> str:
    swapped = f"[swapped: {amount(placement.swapped_bytes)}] " if placement.swapped_bytes else ""
    return f"{swapped}{placement.mapping.name or f'{placement.mapping.start:x}'}"


def _node_names(nodes: Sequence[int]) -> dict[int, str]:
    """A character for each node, its digit where all have one."""
    if all(node < 10 for node in nodes):
        return {node: str(node) for node in nodes}
    names = _NODE_NAMES[10:] + _NODE_NAMES[:10]
    return {node: names[rank] if rank < len(names) else "?" for rank, node in enumerate(nodes)}


def _strip(strip: Sequence[Cell], names: Mapping[int, str]) -> str:
    """The strip in at most _STRIP characters."""
    count = min(_STRIP, len(strip))
    parts = [strip[i * len(strip) // count : (i + 1) * len(strip) // count] for i in range(count)]
    return "".join(_cell(part, names) for part in parts)


def _cell(cells: Iterable[Cell], names: Mapping[int, str]) -> str:
    seen: dict[int, int] = {}
    for cell in cells:
        for node, count in cell.nodes.items():
            seen[node] = seen.get(node, 0) + count
    if not seen:
        return "·"
    node = max(seen, key=lambda n: seen[n])
    clear = seen[node] >= _CLEAR * sum(seen.values())
    return names.get(node, "?") if clear else "×"


def _by_node(
    placement: ProcessPlacement, kinds: Sequence[Remainder], terminal: Terminal
) -> list[str]:
    """A row for each node: how much of each kind lies there."""
    held = [kind for kind in kinds if kind.resident]
    rows = [["node", "resident", *(_label(kind.kind) for kind in held)]]
    for node, share in placement.nodes.items():
        cells = [kind.by_node.get(node) for kind in held]
        told = [amount(cell.bytes) if cell and cell.bytes else "-" for cell in cells]
        rows.append([str(node), amount(share.bytes), *told])
    return _table(rows, set(range(len(rows[0]))), terminal)


def _table(rows: list[list[str]], right: set[int], terminal: Terminal) -> list[str]:
    """Rows in columns, each line cut to the terminal; of the last column the ends are kept."""
    # tabulate takes longer to load than a process with 40,000 mappings to be read.
    shown = [[terminal.text(cell) for cell in row] for row in rows]
    widths = [max(columns(row[i]) for row in shown) for i in range(len(rows[0]))]
    room = max(_LEAST_NAME, terminal.width - sum(widths[:-1]) - 2 * len(widths[:-1]))
    if len(rows[0]) - 1 not in right:
        for row in shown:
            row[-1] = _end(row[-1], room, terminal)
        widths[-1] = max(columns(row[-1]) for row in shown)
    lines = []
    for row in shown:
        cells = []
        for i, cell in enumerate(row):
            padding = " " * (widths[i] - columns(cell))
            cells.append(padding + cell if i in right else cell + padding)
        lines.append(terminal.cut("  ".join(cells).rstrip()))
    return lines


def _end(text: str, width: int, terminal: Terminal) -> str:
    """The end of a name: of a path it tells more than the beginning."""
    if columns(text) <= width:
        return text
    end = text[-(width - len(terminal.ellipsis)) :]
    while columns(end) > width - len(terminal.ellipsis):
        end = end[1:]
    return terminal.ellipsis + end


def _notes(placement: ProcessPlacement, terminal: Terminal) -> list[str]:
    """Who shares what, unknown policies, and remarks."""
    notes = list(placement.remarks)
    for p in placement.mappings[:_ROWS]:
        pids = {attacher.pid for attacher in p.attachers}
        if len(pids) > 1 and p.mapping.kind.is_pool:
            notes.append(f"{p.mapping.name} is mapped by pids {id_list(pids)}")
    reasons = {p.policy_unknown for p in placement.mappings[:_ROWS] if p.policy_unknown}
    notes += [f"policy ?: {reason}" for reason in sorted(reasons)]
    for p in placement.mappings[:_ROWS]:
        notes += [f"{p.mapping.name or f'{p.mapping.start:x}'}: {remark}" for remark in p.remarks]
    lines = [line for note in notes for line in terminal.wrap(terminal.text(note), 2, 0)]
    return ["", *lines] if lines else []


def data(
    placement: ProcessPlacement, kinds: Sequence[Remainder], host: str, version: str
) -> dict[str, Any]:
    """The placement as JSON data; docs/schema/maps.schema.json describes it."""
    cost = placement.cost
    return {
        "schema_version": 1,
        "numadoctor": version,
        "host": host,
        "pid": placement.pid,
        "method": placement.method.value,
        "because": placement.because,
        "page_size": placement.page_size,
        "thp_size": placement.thp_size,
        "seed": placement.seed,
        "cost": {
            "calls": cost.calls,
            "pages": cost.pages,
            "longest_seconds": round(cost.longest, 6),
            "seconds": round(cost.seconds, 6),
        },
        "resident_bytes": placement.resident,
        "processes": [_process_data(process) for process in placement.processes],
        "nodes": _shares_data(placement.nodes),
        "mappings": [_mapping_data(p) for p in placement.mappings],
        "smaller": [_remainder_data(r) for r in placement.remainders],
        "kinds": [_remainder_data(r) for r in kinds],
        "incomplete": list(placement.incomplete),
        "remarks": list(placement.remarks),
    }


def _shares_data(nodes: Mapping[int, Share]) -> dict[str, Any]:
    return {
        str(node): {
            "bytes": share.bytes,
            "low": share.low,
            "high": share.high,
            "fraction": round(share.fraction, 6),
            "fraction_low": round(share.fraction_low, 6),
            "fraction_high": round(share.fraction_high, 6),
        }
        for node, share in nodes.items()
    }


def _process_data(process: Process) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "name": process.name,
        "uid": process.uid,
        "namespace_pids": list(process.namespace_pids),
        "threads": process.threads,
        "policy": process.policy.text if process.policy else None,
        "mappings": process.mappings,
        "resident_bytes": process.resident,
        "swapped_bytes": process.swapped,
        "locked_bytes": process.locked,
        "minor_faults": process.minor_faults,
        "major_faults": process.major_faults,
        "migrated_pages": process.migrated_pages,
        "problem": process.problem,
    }


def _mapping_data(placement: Placement) -> dict[str, Any]:
    p, m = placement, placement.mapping
    return {
        "pid": m.pid,
        "start": m.start,
        "end": m.end,
        "kind": m.kind.value,
        "name": m.name,
        "permissions": m.permissions,
        "offset": m.offset,
        "device": f"{m.device[0]:02x}:{m.device[1]:02x}",
        "inode": m.inode,
        "policy": p.policy.text if p.policy else None,
        "policy_unknown": p.policy_unknown,
        "page_size": p.page_size,
        "resident_bytes": p.resident,
        "bytes_by_node": {str(node): count for node, count in p.bytes_by_node.items()},
        "nodes": _shares_data(p.by_node),
        "method": p.method.value,
        "samples": p.samples,
        "run_length_bytes": p.run_length,
        "strip": [
            {"nodes": {str(n): count for n, count in cell.nodes.items()}, "absent": cell.absent}
            for cell in p.strip
        ],
        "attachers": list(dict.fromkeys(a.pid for a in p.attachers)),
        "attached": [
            {
                "pid": a.pid,
                "start": a.start,
                "policy": a.policy.text if a.policy else None,
                "bytes_by_node": None
                if a.bytes_by_node is None
                else {str(node): count for node, count in a.bytes_by_node.items()},
            }
            for a in p.attachers
        ],
        "zero_bytes": p.zero_bytes,
        "swapped_bytes": p.swapped_bytes,
        "thp_bytes": p.thp_bytes,
        "remarks": list(p.remarks),
    }


def _remainder_data(remainder: Remainder) -> dict[str, Any]:
    return {
        "kind": remainder.kind.value,
        "mappings": remainder.mappings,
        "method": remainder.method.value,
        "samples": remainder.samples,
        "resident_bytes": remainder.resident,
        "nodes": _shares_data(remainder.by_node),
    }
