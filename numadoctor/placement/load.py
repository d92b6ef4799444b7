"""Reads back what ``numadoctor maps -o json`` wrote."""

import json
from collections.abc import Mapping
from typing import Any

from numadoctor.host.parsers import parse_policy
from numadoctor.model import ParseError
from numadoctor.model.placement import (
    Cost,
    Kind,
    Method,
    Placement,
    Process,
    ProcessPlacement,
    Remainder,
    Share,
)
from numadoctor.model.placement import Mapping as ModelMapping

_WHAT = "output of numadoctor maps"


def load_placement(data: bytes) -> ProcessPlacement:
    """The placement in a JSON output: what is needed to compare it with another.

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
        raise ParseError(_WHAT, data[:40], f"{type(error).__name__}: {error}") from None


def _last_line(data: bytes) -> Any:
    lines = data.strip().splitlines()
    try:
        return json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError) as error:
        raise ParseError(_WHAT, data[:40], f"not JSON: {error}") from None


def _placement(document: Any) -> ProcessPlacement:
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
    )


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
    return Process(
        pid=int(document["pid"]),
        name=str(document["name"]),
        minor_faults=_number(document["minor_faults"]),
        major_faults=_number(document["major_faults"]),
        swapped=_number(document["swapped_bytes"]),
        migrated_pages=_number(document["migrated_pages"]),
    )


def _mapping(document: Any) -> Placement:
    policy = document["policy"]
    return Placement(
        mapping=ModelMapping(
            int(document["pid"]),
            int(document["start"]),
            _number(document["end"]),
            Kind(document["kind"]),
            str(document["name"]),
        ),
        method=Method(document["method"]),
        page_size=int(document["page_size"]),
        by_node=_shares(document["nodes"]),
        resident=int(document["resident_bytes"]),
        policy=None if policy is None else parse_policy(str(policy)),
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
