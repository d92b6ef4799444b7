"""Reports and topologies as JSON. Keys are stable: they may be added, never renamed.

The schemas are in docs/schema/. A report holds no time and no pid of its own:
the same recording gives the same bytes.
"""

import json
from typing import Any

from numadoctor.model import (
    Device,
    Evidence,
    Finding,
    Fix,
    Initiator,
    Location,
    Node,
    Report,
    Suppression,
    Topology,
)

SCHEMA_VERSION = 1


def dump(data: Any) -> str:
    """``data`` as text, ASCII only: no byte of it can act on a terminal or break a pipe."""
    return json.dumps(_valid(data), indent=2) + "\n"


def _valid(data: Any) -> Any:
    r"""``data`` with bytes that were no UTF-8 as ``\udcNN``, which every reader of JSON takes.

    They come as lone surrogates, whose escapes strict readers refuse (RFC 8259, 8.2).
    """
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    if isinstance(data, dict):
        return {_valid(key): _valid(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_valid(item) for item in data]
    return data


def evidence_data(evidence: Evidence) -> dict[str, Any]:
    return {"source": evidence.source, "text": evidence.text}


def fix_data(fix: Fix) -> dict[str, Any]:
    return {
        "launcher": fix.launcher,
        "text": fix.text,
        "needs_root": fix.needs_root,
        "needs_restart": fix.needs_restart,
        "persists": fix.persists,
    }


def _location_data(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return {"file": location.file, "line": location.line, "column": location.column}


def _suppression_data(suppressed: Suppression | None) -> dict[str, Any] | None:
    if suppressed is None:
        return None
    return {
        "kind": suppressed.kind,
        "reason": suppressed.reason,
        "expires": suppressed.expires or None,
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "name": finding.name,
        "status": finding.status.value,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "message": finding.message,
        "cause": finding.cause,
        "evidence": [evidence_data(item) for item in finding.evidence],
        "fixes": [fix_data(fix) for fix in finding.fixes],
        "source": finding.source,
        "fingerprint": finding.fingerprint,
        "location": _location_data(finding.location),
        "suppressed": _suppression_data(finding.suppressed),
    }


def report_data(report: Report, version: str) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "numadoctor": version,
        "host": report.host,
        "target": report.target,
        "summary": report.summary,
        "exit_code": report.exit_code,
        "incomplete": list(report.incomplete),
        "suppressed": report.suppressed,
        "remarks": list(report.remarks),
        "findings": [finding_data(finding) for finding in report.findings],
    }


def _node_data(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "kind": node.kind.value,
        "because": node.because,
        "cpus": list(node.cpus),
        "memory_bytes": node.memory_bytes,
        "free_bytes": node.free_bytes,
        "file_bytes": node.file_bytes,
        "distances": {str(other): distance for other, distance in node.distances.items()},
        "tier": node.tier,
        "hugepages": [
            {"page_size": p.page_size, "total": p.total, "free": p.free, "surplus": p.surplus}
            for p in node.pools
        ],
        "initiators": [_initiator_data(initiator) for initiator in node.initiators],
    }


def _initiator_data(initiator: Initiator) -> dict[str, Any]:
    return {
        "access_class": initiator.access_class,
        "nodes": list(initiator.nodes),
        "read_bandwidth": initiator.read_bandwidth,
        "write_bandwidth": initiator.write_bandwidth,
        "read_latency": initiator.read_latency,
        "write_latency": initiator.write_latency,
    }


def _device_data(device: Device) -> dict[str, Any]:
    return {
        "address": device.address,
        "class": f"0x{device.pci_class:06x}",
        # 0 is nobody's: the file could not be read.
        "vendor": f"0x{device.vendor:04x}" if device.vendor else None,
        "vendor_name": device.vendor_name,
        "device": f"0x{device.device:04x}" if device.device else None,
        "kind": device.kind,
        "node": device.node,
        "node_source": device.node_source,
        "node_step": device.step.value,
        "names": list(device.names),
        "interfaces": list(device.interfaces),
        "rdma": list(device.rdma),
        "path": list(device.path),
        "link": None if device.link is None else device.link._asdict(),
        "driver": device.driver or None,
        "iommu_group": device.iommu_group,
        "physical_function": device.physical_function or None,
        "model": device.model or None,
        "uuid": device.uuid or None,
        "minor": device.minor,
        "memory_nodes": list(device.memory_nodes),
    }


def topology_data(topology: Topology, host: str) -> dict[str, Any]:
    allowed, possible = topology.allowed, topology.possible_nodes
    return {
        "schema_version": SCHEMA_VERSION,
        "host": host,
        "numa": topology.numa,
        "nodes": [_node_data(node) for node in topology.nodes],
        "possible_nodes": None if possible is None else list(possible),
        "cpus": {
            "online": list(topology.online_cpus),
            "present": list(topology.present_cpus),
            "packages": len({c.package for c in topology.cpus if c.package is not None}) or None,
        },
        "allowed": {
            "cpus": None if allowed.cpus is None else list(allowed.cpus),
            "nodes": None if allowed.nodes is None else list(allowed.nodes),
            "source": allowed.source,
        },
        "tiers": {str(tier): list(nodes) for tier, nodes in topology.tiers.items()},
        "devices": [_device_data(device) for device in topology.devices],
        "relations": [
            {"devices": list(pair), "relation": relation}
            for pair, relation in sorted(topology.relations.items())
            if pair[0] < pair[1]
        ],
        "unknown_links": dict(topology.unknown_links),
        "sources": [{"file": s.file, "line": s.line, "format": s.format} for s in topology.sources],
        "remarks": [
            {"path": r.path, "text": r.text, "status": r.status.value} for r in topology.remarks
        ],
    }
