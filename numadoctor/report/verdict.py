"""What a whole report comes to: a verdict in a few words, and the line that tells it."""

from numadoctor.model import Finding, Report, Status

# Harm first; what was not looked at before what was.
_ORDER = (
    Status.FAIL, Status.ERROR, Status.WARN, Status.UNKNOWN, Status.INFO, Status.PASS, Status.SKIP,
)  # fmt: skip


def verdict(report: Report) -> str:
    """What the whole report comes to, in a few words."""
    if report.count(Status.FAIL):
        return "not fit"
    if report.count(Status.ERROR) or report.incomplete:
        return "examination incomplete"
    if report.count(Status.WARN):
        return "fit, with warnings"
    return _verdict_of_the_harmless(report)


def _verdict_of_the_harmless(report: Report) -> str:
    found = {finding.status for finding in report.findings}
    if found & {Status.FAIL, Status.WARN}:
        return "fit, with exceptions"  # that are waived, or known
    if Status.UNKNOWN in found and Status.PASS in found:
        return "fit as far as seen"
    if not found & {Status.PASS, Status.INFO}:
        return "not decided" if Status.UNKNOWN in found else "nothing to examine"
    return "fit"


def headline(report: Report) -> str:
    """The line that can be pasted into a chat and tells the whole story."""
    return f"{report.host}: {verdict(report)} · {counts(report) or 'no check ran'}"


def counts(report: Report) -> str:
    """How many problems, warnings and so on there are; empty where there is nothing to count."""
    kinds = {"waiver": 0, "baseline": 0}
    for finding in report.findings:
        if finding.suppressed:
            kinds[finding.suppressed.kind] += 1
    told = [
        (report.count(Status.FAIL), "problem", "problems"),
        (report.count(Status.ERROR), "crashed check", "crashed checks"),
        (report.count(Status.WARN), "warning", "warnings"),
        (kinds["waiver"], "waived", "waived"),
        (kinds["baseline"], "in the baseline", "in the baseline"),
        (report.count(Status.PASS), "passed", "passed"),
        (report.count(Status.UNKNOWN), "not decided", "not decided"),
    ]
    return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in told if n)


def worst(report: Report) -> list[Finding]:
    """The findings that count, the worst first."""
    counting = (finding for finding in report.findings if finding.suppressed is None)
    return sorted(counting, key=lambda finding: _ORDER.index(finding.status))
