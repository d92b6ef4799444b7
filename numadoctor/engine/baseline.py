"""Baselines: what was found before, so that only what is new counts.

A baseline is a JSON file under version control: sorted, without a time, one entry
a finding. A finding that is worse than its entry is new.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from numadoctor.engine.files import BadFile, read_text
from numadoctor.engine.waivers import SUPPRESSIBLE
from numadoctor.model import Finding, Status, Suppression

SCHEMA_VERSION = 1

# What an entry covers: its own status, and what is less bad. Not to know is neither.
_COVERS = {
    Status.FAIL: (Status.FAIL, Status.WARN),
    Status.WARN: (Status.WARN,),
    Status.UNKNOWN: (Status.UNKNOWN,),
}


@dataclass(frozen=True)
class Entry:
    """One finding that a baseline knows."""

    fingerprint: str
    id: str
    status: Status


@dataclass(frozen=True)
class Baseline:
    """The content of a baseline file.

    :ivar file: where it was read
    """

    file: str
    entries: tuple[Entry, ...]


def baseline_data(findings: Iterable[Finding], version: str) -> dict[str, Any]:
    """What ``--write-baseline`` writes, as JSON data: all that would count but for a baseline."""
    kept = [
        finding
        for finding in findings
        if finding.status in SUPPRESSIBLE
        and (finding.suppressed is None or finding.suppressed.kind == "baseline")
    ]
    entries = [
        {
            "id": finding.id,
            "subject": finding.subject,
            "status": finding.status.value,
            "fingerprint": finding.fingerprint,
            "message": finding.message,
        }
        for finding in kept
    ]
    entries.sort(key=lambda entry: tuple(entry.values()))
    return {"schema_version": SCHEMA_VERSION, "numadoctor": version, "findings": entries}


def read_baseline(file: str) -> Baseline:
    """The baseline in ``file``.

    :raises BadFile: it cannot be read, or is no baseline
    """
    text = read_text(file)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadFile(file, f"no baseline: not JSON: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits; nested too deep
        raise BadFile(file, "no baseline: it holds a number or a nesting of no sane size") from None
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        raise BadFile(file, f"no baseline: schema_version {SCHEMA_VERSION} is expected")
    entries = data.get("findings")
    if not isinstance(entries, list):
        raise BadFile(file, "findings: a list is expected")
    return Baseline(file, tuple(_entry(file, number, e) for number, e in enumerate(entries)))


def _entry(file: str, number: int, entry: object) -> Entry:
    place = f"findings[{number}]"
    if not isinstance(entry, dict):
        raise BadFile(file, f"{place}: an object is expected")
    for key in ("fingerprint", "id", "status"):
        if not isinstance(entry.get(key), str):
            raise BadFile(file, f"{place}.{key}: text is expected")
    try:
        status = Status(entry["status"])
        _COVERS[status]
    except (ValueError, KeyError):
        known = ", ".join(status.value for status in _COVERS)
        raise BadFile(file, f"{place}.status: one of {known} is expected") from None
    return Entry(entry["fingerprint"], entry["id"], status)


def apply_baseline(
    findings: Iterable[Finding], baseline: Baseline
) -> tuple[list[Finding], list[str]]:
    """The findings, those that the baseline knows marked so; and what is to be told about it.

    :param findings: worst first
    """
    findings = list(findings)
    left: dict[str, list[Entry]] = {}
    for entry in baseline.entries:
        left.setdefault(entry.fingerprint, []).append(entry)
    known = Suppression("baseline", f"known to {baseline.file}")
    marked = [
        replace(finding, suppressed=known)
        if finding.suppressed is None and _take(left.get(finding.fingerprint, []), finding.status)
        else finding
        for finding in findings
    ]
    present = {finding.fingerprint for finding in findings if finding.status in SUPPRESSIBLE}
    ran = {finding.id for finding in findings}
    gone = sum(
        entry.id in ran and entry.fingerprint not in present
        for entries in left.values()
        for entry in entries
    )
    if not gone:
        return marked, []
    told = "1 finding is gone" if gone == 1 else f"{gone} findings are gone"
    return marked, [f"{told} that {baseline.file} knows: --write-baseline writes it anew"]


def _take(entries: list[Entry], status: Status) -> bool:
    """Use up the least entry that covers ``status``."""
    covering = [entry for entry in entries if status in _COVERS[entry.status]]
    if not covering:
        return False
    entries.remove(min(covering, key=lambda entry: len(_COVERS[entry.status])))
    return True
