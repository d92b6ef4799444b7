"""The vocabulary: frozen data that every other part speaks in. Imports nothing of ours."""

from typing import TYPE_CHECKING

from numadoctor.model.errors import (
    Denied,
    Malformed,
    Missing,
    OfKernel,
    ParseError,
    TooLarge,
    Undecided,
    Unreadable,
    Vanished,
)
from numadoctor.model.target import Target

if TYPE_CHECKING:
    from numadoctor.model.device import (
        Device,
        Distance,
        Interface,
        PcieLink,
        Step,
        distance,
    )
    from numadoctor.model.finding import (
        Evidence,
        Finding,
        Fix,
        Location,
        Report,
        Severity,
        Status,
        Suppression,
        fail,
        info,
        passed,
        skip,
        unknown,
        warn,
    )
    from numadoctor.model.topology import (
        Allowed,
        Cpu,
        Initiator,
        Node,
        NodeKind,
        Pool,
        Remark,
        Source,
        Topology,
    )

__all__ = [
    "Allowed",
    "Cpu",
    "Denied",
    "Device",
    "Distance",
    "Evidence",
    "Finding",
    "Fix",
    "Initiator",
    "Interface",
    "Location",
    "Malformed",
    "Missing",
    "Node",
    "NodeKind",
    "OfKernel",
    "ParseError",
    "PcieLink",
    "Pool",
    "Remark",
    "Report",
    "Severity",
    "Source",
    "Status",
    "Step",
    "Suppression",
    "Target",
    "TooLarge",
    "Topology",
    "Undecided",
    "Unreadable",
    "Vanished",
    "distance",
    "fail",
    "info",
    "passed",
    "skip",
    "unknown",
    "warn",
]

# What most commands need comes first: a later one is not loaded for it.
_ON_DEMAND = tuple(f"numadoctor.model.{name}" for name in ("finding", "topology", "device"))


def __getattr__(name: str) -> object:
    # Each command does without some of them, and a dataclass takes half a millisecond to make.
    if name in __all__:
        from importlib import import_module

        for module in map(import_module, _ON_DEMAND):
            if hasattr(module, name):
                value: object = getattr(module, name)
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
