"""JUnit XML: what CI systems show as tests. One test case a check; only a pass passes."""

from typing import TYPE_CHECKING

from numadoctor.model import Report
from numadoctor.report import plain
from numadoctor.report.cases import Case, Outcome, cases

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# Outcome to the element that tells it; a passing case has none.
_ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.BROKEN: "error",
    Outcome.TOLERATED: "skipped",
    Outcome.UNDECIDED: "skipped",
    Outcome.INAPPLICABLE: "skipped",
}
_COUNTERS = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def render(report: Report) -> str:
    """The report as one test suite, named after the host."""
    from xml.etree import ElementTree

    found = cases(report)
    told = [_ELEMENTS.get(case.outcome) for case in found]
    counts = {"tests": str(len(found))}
    counts |= {name: str(told.count(element)) for name, element in _COUNTERS.items()}
    suites = ElementTree.Element("testsuites", {"name": "numadoctor", **counts})
    host = plain.line(report.host)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": host, "hostname": host, **counts})
    if report.target:
        properties = ElementTree.SubElement(suite, "properties")
        target = {"name": "target", "value": plain.line(report.target)}
        ElementTree.SubElement(properties, "property", target)
    for case in found:
        _add(suite, case)
    if report.remarks:
        remarks = ElementTree.SubElement(suite, "system-out")
        remarks.text = "\n".join(map(plain.line, report.remarks))
    ElementTree.indent(suites)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(suites, encoding="unicode")
        + "\n"
    )


def _add(suite: "Element", case: Case) -> None:
    from xml.etree import ElementTree

    attributes = {
        "classname": f"numadoctor.{case.family}".rstrip("."),
        "name": plain.line(case.title),
    }
    place = next((f.location for f in case.findings if f.location), None)
    if place is not None:
        attributes["file"] = plain.line(place.file)
        attributes |= {"line": str(place.line)} if place.line else {}
    element = ElementTree.SubElement(suite, "testcase", attributes)
    name = _ELEMENTS.get(case.outcome)
    if name is not None:
        first, *more = case.reason.split("\n")
        message = plain.line(first) + (f" (and {len(more)} more)" if more else "")
        result = ElementTree.SubElement(element, name, {"message": message})
        if name != "skipped":
            result.set("type", "finding" if name == "failure" else "incomplete")
        result.text = "\n\n".join(map(plain.told, case.findings)) or plain.lines(case.reason)
