"""GitHub's annotations and GitLab's code quality report."""

import json
import re
from dataclasses import replace
from pathlib import PurePosixPath

from hypothesis import given

from numadoctor.model import Location, Report, Severity, Status
from numadoctor.report.github import render as github
from numadoctor.report.gitlab import render as gitlab
from tests.report.reports import GATE, finding, reports

_COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^,:]*)(?:,[a-z]+=[^,:]*)*)::(.*)")


def unescaped(text: str) -> str:
    """As the runner does it: percent last."""
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


@given(reports())
def test_each_line_is_one_command(report: Report) -> None:
    for line in github(report).splitlines():
        match = _COMMAND.fullmatch(line)
        assert match, line
        properties = dict(part.split("=", 1) for part in match[2].split(","))
        assert set(properties) <= {"file", "line", "col", "title"}
        assert properties["title"]
        for number in ("line", "col"):
            assert properties.get(number, "1").isdecimal()


def test_a_place_and_all_that_is_said() -> None:
    first, *rest = github(GATE).splitlines()
    match = _COMMAND.fullmatch(first)
    assert match
    assert match[1] == "error"
    assert match[2] == "file=deploy/compose.yaml,line=12,col=5,title=D001 x"
    assert unescaped(match[3]) == (
        "service engine: Docker's default profile refuses mbind\n"
        "The file gives the container no CAP_SYS_NICE.\n"
        "fix for compose (restart):\n"
        "    cap_add:\n"
        "      - SYS_NICE"
    )
    # A name with commas and colons, a line end that would begin a command of its own.
    assert any("file=odd name%2C\\xdcff \\x1b[31m%3A100%25.yaml," in line for line in rest)
    assert sum(line.startswith("::error::no") for line in rest) == 0


def test_what_is_waived_is_no_annotation() -> None:
    text = github(GATE)
    assert "K001" not in text
    assert "1 waived, 1 in the baseline" in text
    assert text.count("::notice") == 2


@given(reports())
def test_gitlab_has_what_it_demands(report: Report) -> None:
    entries = json.loads(gitlab(report))
    prints = [entry["fingerprint"] for entry in entries]
    assert len(set(prints)) == len(prints)
    for entry in entries:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
        path = entry["location"]["path"]
        assert path
        assert not path.startswith("./")
        assert entry["location"]["lines"]["begin"] >= 1
    shown = (Status.FAIL, Status.ERROR, Status.WARN, Status.UNKNOWN)
    assert len(entries) == sum(f.status in shown and not f.suppressed for f in report.findings)


def test_gitlab_severities() -> None:
    def severity(status: Status, harm: Severity) -> str:
        one = replace(finding(status, "K001", "m"), severity=harm)
        (entry,) = json.loads(gitlab(Report("h", "", (one,), 1, 0.0)))
        return str(entry["severity"])

    assert [severity(Status.FAIL, harm) for harm in Severity] == ["critical", "major", "minor"]
    assert [severity(Status.WARN, harm) for harm in Severity] == ["major", "minor", "minor"]
    assert severity(Status.UNKNOWN, Severity.HIGH) == "info"
    assert severity(Status.ERROR, Severity.LOW) == "blocker"


def test_gitlab_paths() -> None:
    placed = replace(finding(Status.FAIL, "D001", "m"), location=Location("./a/b.yaml", 7))
    entry, other = json.loads(
        gitlab(Report("rack/7", "", (placed, finding(Status.FAIL, "K001", "m")), 1, 0.0))
    )
    assert entry["location"] == {"path": "a/b.yaml", "lines": {"begin": 7}}
    # Found on a machine: the path is demanded, so the machine is told.
    assert not PurePosixPath(other["location"]["path"]).is_absolute()
    assert other["location"] == {"path": "rack_7", "lines": {"begin": 1}}
