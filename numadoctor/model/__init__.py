"""The vocabulary: frozen data that every other part speaks in. Imports nothing of ours."""

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
    Report,
    Severity,
    Status,
    fail,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.target import Target
from numadoctor.model.topology import (
    Allowed,
    Cpu,
    Device,
    Initiator,
    Node,
    NodeKind,
    Pool,
    Remark,
    Topology,
)

__all__ = [
    "Allowed", "Cpu", "Denied", "Device", "Evidence", "Finding", "Fix", "Initiator", "Malformed",
    "Missing", "Node", "NodeKind", "ParseError", "Pool", "Remark", "Report", "Severity", "Status",
    "Target", "TooLarge", "Topology", "Undecided", "Unreadable", "Vanished", "fail", "info",
    "passed", "skip", "unknown", "warn",
]
