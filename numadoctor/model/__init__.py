"""The vocabulary: frozen data that every other part speaks in. Imports nothing of ours."""

from typing import TYPE_CHECKING

from numadoctor.model.errors import (
    Denied,
    Malformed,
    Missing,
    ParseError,
    TooLarge,
    Undecided,
    Unreadable,
    Vanished,
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


def __getattr__(name: str) -> object:
    # `numadoctor syscalls` does without the topology, and its classes take as
    # long to make as all the rest.
    if name in __all__:
        from numadoctor.model import device, topology

        return getattr(topology if hasattr(topology, name) else device, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
