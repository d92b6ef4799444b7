"""Reads back what ``numadoctor maps -o json`` wrote: to compare it, or to judge it elsewhere."""

import json
from collections.abc import Mapping
from typing import Any

from numadoctor.host.parsers import parse_policy
from numadoctor.model import ParseError
from numadoctor.model.placement import (
    Attacher,
    Cell,
    Cost,
    Kind,
    Method,
    Placement,
    Policy,
    Process,
    ProcessPlacement,
    Remainder,
    Share,
)
from numadoctor.model.placement import Mapping as ModelMapping

_WHAT = "output of numadoctor maps"


def load_placement(data: bytes) -> ProcessPlacement:
    """The placement in a JSON output. What an older output lacks is left at its default.

    Of the output of ``--watch``, a document a line, the last one.

    :raises ParseError: it is none
    """
    try:
        document = json.loads(data)
    except ValueError:
        document = _last_line(data)
    except RecursionError:
        raise ParseError(_WHAT, data[:40], "it is nested too deep") from None
    try:
        return _placement(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ParseError(_WHAT, data[:40], _complaint(error)) from None


def _complaint(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error}"
    told = str(error)
    return told if type(error) is ValueError else f"{type(error).__name__}: {told}"


def _last_line(data: bytes) -> Any:
    lines = data.strip().splitlines()
    try:
        return json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError) as error:
        raise ParseError(_WHAT, data[:40], f"not JSON: {error}") from None


def _placement(document: Any) -> ProcessPlacement:
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    if document["schema_version"] != 1:
        raise ValueError("it has another schema_version than 1")
    cost = document["cost"]
    return ProcessPlacement(
        processes=tuple(map(_process, document["processes"])),
        mappings=tuple(map(_mapping, document["mappings"])),
        remainders=tuple(map(_remainder, document["smaller"])),
        nodes=_shares(document["nodes"]),
        resident=int(document["resident_bytes"]),
        method=Method(document["method"]),
        because=str(document["because"]),
        cost=Cost(cost["calls"], cost["pages"], cost["longest_seconds"], cost["seconds"]),
        page_size=int(document["page_size"]),
        thp_size=_number(document["thp_size"]),
        seed=int(document["seed"]),
        incomplete=_texts(document.get("incomplete")),
        remarks=_texts(document.get("remarks")),
    )


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values or ()))


def _policy(text: Any) -> Policy | None:
    return None if text is None else parse_policy(str(text))


def _shares(nodes: Mapping[str, Any]) -> dict[int, Share]:
    return {
        int(node): Share(
            int(share["bytes"]),
            int(share["low"]),
            int(share["high"]),
            float(share["fraction"]),
            float(share["fraction_low"]),
            float(share["fraction_high"]),
        )
        for node, share in nodes.items()
    }


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _process(document: Any) -> Process:
    get = document.get
    return Process(
        pid=int(document["pid"]),
        name=str(document["name"]),
        uid=_number(get("uid")),
        namespace_pids=tuple(map(int, get("namespace_pids") or ())),
        threads=_number(get("threads")),
        policy=_policy(get("policy")),
        mappings=_number(get("mappings")),
        resident=_number(get("resident_bytes")),
        swapped=_number(document["swapped_bytes"]),
        locked=_number(get("locked_bytes")),
        minor_faults=_number(document["minor_faults"]),
        major_faults=_number(document["major_faults"]),
        migrated_pages=_number(document["migrated_pages"]),
        problem=str(get("problem") or ""),
    )


def _mapping(document: Any) -> Placement:
    get = document.get
    return Placement(
        mapping=ModelMapping(
            int(document["pid"]),
            int(document["start"]),
            _number(document["end"]),
            Kind(document["kind"]),
            str(document["name"]),
            str(get("permissions") or ""),
            int(get("offset") or 0),
            _device(get("device")),
            int(get("inode") or 0),
        ),
        method=Method(document["method"]),
        page_size=int(document["page_size"]),
        by_node=_shares(document["nodes"]),
        resident=int(document["resident_bytes"]),
        policy=_policy(document["policy"]),
        policy_unknown=str(get("policy_unknown") or ""),
        samples=int(get("samples") or 0),
        run_length=_number(get("run_length_bytes")),
        strip=tuple(
            Cell(_counts(cell["nodes"]), int(cell["absent"])) for cell in get("strip") or ()
        ),
        attachers=tuple(map(_attacher, get("attached") or ())),
        zero_bytes=_number(get("zero_bytes")),
        swapped_bytes=_number(get("swapped_bytes")),
        thp_bytes=_number(get("thp_bytes")),
        remarks=_texts(get("remarks")),
    )


def _device(text: Any) -> tuple[int, int]:
    major, _, minor = str(text or "0:0").partition(":")
    return int(major, 16), int(minor, 16)


def _counts(nodes: Mapping[str, Any]) -> dict[int, int]:
    return {int(node): int(count) for node, count in nodes.items()}


def _attacher(document: Any) -> Attacher:
    held = document["bytes_by_node"]
    return Attacher(
        int(document["pid"]),
        int(document["start"]),
        _policy(document["policy"]),
        None if held is None else _counts(held),
    )


def _remainder(document: Any) -> Remainder:
    return Remainder(
        kind=Kind(document["kind"]),
        mappings=int(document["mappings"]),
        method=Method(document["method"]),
        by_node=_shares(document["nodes"]),
        resident=int(document["resident_bytes"]),
        samples=int(document["samples"]),
    )
