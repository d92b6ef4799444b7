"""A file for the textfile collector of Prometheus' node exporter.

No series holds a time: the exporter tells the file's own
(``node_textfile_mtime_seconds``).
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.model import Finding, Report, Status
from numadoctor.report import plain
from numadoctor.report.verdict import verdict

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

_TOLD = (Status.FAIL, Status.ERROR, Status.WARN, Status.UNKNOWN)


def render(report: Report, version: str) -> str:
    """The exposition format 0.0.4.

    :raises ImportError: prometheus_client is not installed
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(report, version))
    return generate_latest(registry).decode()


class _Collector:
    def __init__(self, report: Report, version: str) -> None:
        self.report, self.version = report, version

    def collect(self) -> "Iterator[GaugeMetricFamily]":
        report = self.report
        yield _family(
            "info",
            "The version that wrote this, the examined machine, and the verdict.",
            [((self.version, report.host, verdict(report)), 1)],
            ("version", "examined", "verdict"),
        )
        yield _family("exit_code", "0 fit, 1 findings, 3 incomplete.", [((), report.exit_code)])
        yield _family(
            "findings",
            "Findings that count, by status.",
            [((status,), count) for status, count in report.summary.items()],
            ("status",),
        )
        yield _family(
            "suppressed", "Findings that are waived or in the baseline.", [((), report.suppressed)]
        )
        yield _family(
            "incomplete",
            "Targets that could not be examined.",
            [((), len(report.incomplete))],
        )
        yield _family(
            "check_findings",
            "Findings that count, by check and status.",
            _by_check(report),
            ("id", "name", "severity", "status"),
        )
        yield _family(
            "finding",
            "Findings that count and are not passes; waived ones with why.",
            _each(report),
            ("id", "name", "subject", "status", "severity", "fingerprint", "suppressed"),
        )


def _family(
    name: str,
    text: str,
    samples: list[tuple[tuple[str, ...], int]],
    labels: tuple[str, ...] = (),
) -> "GaugeMetricFamily":
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"numadoctor_{name}", text, labels=labels)
    for values, figure in samples:
        family.add_metric([plain.line(value) for value in values], figure)
    return family


def _by_check(report: Report) -> list[tuple[tuple[str, ...], int]]:
    counting = (f for f in report.findings if f.suppressed is None)
    keys = ((f.id, plain.line(f.name), f.severity.value, f.status.value) for f in counting)
    return sorted(Counter(keys).items())


def _each(report: Report) -> list[tuple[tuple[str, ...], int]]:
    """A finding to how often it was made: two of the same labels would be no valid file."""
    found = Counter(_labels(finding) for finding in report.findings if finding.status in _TOLD)
    return sorted(found.items())


def _labels(finding: Finding) -> tuple[str, ...]:
    return (
        finding.id,
        plain.line(finding.name),
        plain.line(finding.subject),
        finding.status.value,
        finding.severity.value,
        finding.fingerprint,
        finding.suppressed.kind if finding.suppressed else "",
    )
