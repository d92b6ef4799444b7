import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Report,
    Status,
    fail,
    info,
    passed,
    skip,
    unknown,
    warn,
)


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (passed, Status.PASS),
        (info, Status.INFO),
        (warn, Status.WARN),
        (fail, Status.FAIL),
        (unknown, Status.UNKNOWN),
        (skip, Status.SKIP),
    ],
)
def test_each_way_to_say_it_has_its_status(make: Callable[..., Finding], status: Status) -> None:
    found = make("m", subject="node 1", cause="c", evidence=[Evidence("/x", "1")])
    assert found == Finding(status, "m", "node 1", "c", (Evidence("/x", "1"),))
    assert make("m").subject == "machine"


@pytest.mark.parametrize("make", [info, warn, fail, unknown])
def test_fixes_are_kept(make: Callable[..., Finding]) -> None:
    fix = Fix("docker", "--x")
    assert make("m", fixes=iter([fix])).fixes == (fix,)


@given(st.text(st.characters(exclude_categories=())), st.sampled_from(["K001", "E001"]))
def test_a_fingerprint_is_of_id_and_subject(subject: str, id: str) -> None:
    one = Finding(Status.FAIL, "a", subject, id=id)
    other = Finding(Status.PASS, "b", subject, "c", id=id, source="d")
    assert re.fullmatch("[0-9a-f]{16}", one.fingerprint)
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != Finding(Status.FAIL, "a", subject + "x", id=id).fingerprint
    assert one.fingerprint != Finding(Status.FAIL, "a", subject, id="T001").fingerprint


def test_fingerprints_do_not_change_between_versions() -> None:
    assert Finding(Status.FAIL, "a", "node 1", id="K001").fingerprint == "5e6472ec2f959269"


def test_the_summary_has_every_status() -> None:
    report = Report("h", "", (fail("a"), fail("b"), passed("c")), 1, 0.0)
    assert report.summary == {
        "pass": 1, "info": 0, "warn": 0, "fail": 2, "unknown": 0, "skip": 0, "error": 0,
    }  # fmt: skip
    assert report.count(Status.FAIL) == 2
