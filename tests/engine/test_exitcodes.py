import itertools
from pathlib import Path

import pytest

from numadoctor.engine.exitcodes import FAIL_ON, ExitCode, exit_code
from numadoctor.model import Finding, Status

ROOT = Path(__file__).parents[2]

# Read from the top: the first row whose condition holds gives the code.
TABLE = [
    ("fail is there, --fail-on fail or warn", 1),
    ("warn is there, --fail-on warn", 1),
    ("a target is missing, a check crashed", 3),
    ("unknown is there, --strict", 3),
    ("anything else", 0),
]


def expected(statuses: set[str], fail_on: str, strict: bool, incomplete: bool) -> int:
    holds = [
        "fail" in statuses and fail_on in ("fail", "warn"),
        "warn" in statuses and fail_on == "warn",
        incomplete or "error" in statuses,
        "unknown" in statuses and strict,
        True,
    ]
    return TABLE[holds.index(True)][1]


SETS = [
    set(chosen)
    for size in range(len(Status) + 1)
    for chosen in itertools.combinations([status.value for status in Status], size)
]


@pytest.mark.parametrize("fail_on", FAIL_ON)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("incomplete", [False, True])
def test_every_combination(fail_on: str, strict: bool, incomplete: bool) -> None:
    assert len(SETS) == 2 ** len(Status)
    for statuses in SETS:
        findings = [Finding(Status(status), "x") for status in statuses]
        code = exit_code(findings, fail_on=fail_on, strict=strict, incomplete=incomplete)
        assert code == expected(statuses, fail_on, strict, incomplete), statuses


def test_the_codes_are_those_the_design_promises() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0, "FINDINGS": 1, "USAGE": 2, "INCOMPLETE": 3,
    }  # fmt: skip
    assert FAIL_ON == ("fail", "warn", "never")


def test_the_documentation_has_each_code_and_its_meaning() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    told = {row[0].strip("| "): (row[1], row[2].rstrip(" |")) for row in rows[1:]}
    assert told == {str(code.value): (code.name, code.meaning) for code in ExitCode}
