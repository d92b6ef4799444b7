"""What counts of a report: the severities, waivers and baseline of a site applied to it."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING

from numadoctor.engine.config import Config
from numadoctor.engine.exitcodes import exit_code
from numadoctor.engine.runner import rank
from numadoctor.engine.waivers import apply_waivers
from numadoctor.model import Finding, Report, Severity

if TYPE_CHECKING:
    from numadoctor.engine.baseline import Baseline


def settle(report: Report, config: Config, baseline: "Baseline | None", today: date) -> Report:
    """The report with what is waived or known marked so, and the exit code that is left."""
    findings = [_with_severity(finding, config.severities) for finding in report.findings]
    findings, remarks = apply_waivers(findings, config.waivers, report.host, today)
    findings.sort(key=rank)
    if baseline is not None:
        from numadoctor.engine.baseline import apply_baseline

        findings, about_baseline = apply_baseline(findings, baseline)
        remarks += about_baseline
    code = exit_code(
        findings,
        fail_on=report.fail_on,
        strict=report.strict,
        incomplete=bool(report.incomplete),
    )
    return replace(
        report,
        findings=tuple(findings),
        exit_code=int(code),
        remarks=(*report.remarks, *remarks),
    )


def _with_severity(finding: Finding, severities: Mapping[str, Severity]) -> Finding:
    for word, severity in severities.items():
        if word.upper() == finding.id or word.lower() == finding.name:
            return replace(finding, severity=severity)
    return finding


def today() -> date:
    """The day in UTC, so that a waiver ends everywhere at once.

    That of SOURCE_DATE_EPOCH where it is set: a report can be made again later.
    """
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    if told.isdecimal() and len(told) < 12:
        return datetime.fromtimestamp(int(told), timezone.utc).date()
    return datetime.now(timezone.utc).date()
