"""A feature file for Kubernetes' Node Feature Discovery: labels that a scheduler can ask for.

Put below /etc/kubernetes/node-feature-discovery/features.d/ it gives
``feature.node.kubernetes.io/numadoctor-verdict=fit`` and one label for each check
that does not pass.
"""

import re

from numadoctor.model import Report, Status
from numadoctor.report.verdict import verdict, worst

_LABELLED = (Status.FAIL, Status.ERROR, Status.WARN, Status.UNKNOWN)


def render(report: Report) -> str:
    """``NAME=VALUE`` lines, sorted."""
    labels = {"numadoctor-verdict": _value(verdict(report))}
    for finding in worst(report):
        if finding.status in _LABELLED and finding.id:
            labels.setdefault(f"numadoctor-{_value(finding.id)}", finding.status.value)
    return "".join(f"{name}={value}\n" for name, value in sorted(labels.items()))


def _value(text: str) -> str:
    """``text`` as the value of a label: 63 letters, digits, ``-``, ``_``, ``.`` at most."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")[:63].strip("-_.")
