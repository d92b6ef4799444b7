import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.engine.baseline import Baseline, apply_baseline, baseline_data, read_baseline
from numadoctor.engine.files import BadFile
from numadoctor.engine.runner import rank
from numadoctor.engine.waivers import SUPPRESSIBLE
from numadoctor.model import Finding, Location, Status, Suppression
from numadoctor.report.json import dump
from tests.engine.complaints import suppress_and_keep
from tests.report.reports import finding, findings
from tests.schemas import validate


def kept(found: list[Finding], folder: Path) -> Baseline:
    """What is read after it was written."""
    file = folder / "baseline.json"
    text = dump(baseline_data(found, "1.0"))
    validate("baseline", json.loads(text))
    file.write_text(text)
    return read_baseline(str(file))


def new(found: list[Finding], baseline: Baseline) -> list[Finding]:
    marked, _ = apply_baseline(sorted(found, key=rank), baseline)
    return [f for f in marked if f.status in SUPPRESSIBLE and not f.suppressed]


def known(id: str, status: Status = Status.FAIL, subject: str = "machine") -> Finding:
    return finding(status, id, "m", subject=subject)


@given(st.lists(findings(), max_size=6), st.randoms())
def test_nothing_is_new_after_all_was_written_down(found: list[Finding], random: Any) -> None:
    found = [replace(f, suppressed=None) for f in found]
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        baseline = kept(found, Path(folder))
    again = list(found)
    random.shuffle(again)
    assert new(again, baseline) == []
    assert apply_baseline(again, baseline)[1] == []


@given(st.lists(findings(), max_size=4), findings())
def test_one_more_is_new(found: list[Finding], more: Finding) -> None:
    found = [replace(f, suppressed=None) for f in found]
    more = replace(more, suppressed=None, status=Status.FAIL, id="D999")
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        baseline = kept(found, Path(folder))
    assert new([*found, more], baseline) == [more]


def test_it_survives_restarts(tmp_path: Path) -> None:
    def process(pid: int, address: str, container: str) -> Finding:
        return known("P001", subject=f"process {pid} /dev/shm/psm_{address[:8]} at 0x7f{address} "
                     f"of /docker/{container}")  # fmt: skip

    before = process(4242, "3fa900000000", "3f" * 32)
    after = process(977, "11b200ff0000", "ab" * 32)
    assert new([after], kept([before], tmp_path)) == []


def test_two_of_a_kind_are_two(tmp_path: Path) -> None:
    baseline = kept([known("K001")], tmp_path)
    assert len(new([known("K001"), known("K001")], baseline)) == 1


@pytest.mark.parametrize(
    ("before", "now", "is_new"),
    [
        (Status.WARN, Status.WARN, False),
        (Status.WARN, Status.FAIL, True),
        (Status.FAIL, Status.WARN, False),
        (Status.UNKNOWN, Status.UNKNOWN, False),
        (Status.FAIL, Status.UNKNOWN, True),
        (Status.UNKNOWN, Status.WARN, True),
    ],
)
def test_worse_is_new(tmp_path: Path, before: Status, now: Status, is_new: bool) -> None:
    baseline = kept([known("K001", before)], tmp_path)
    assert bool(new([known("K001", now)], baseline)) is is_new


def test_the_worst_finding_gets_the_entry_it_needs(tmp_path: Path) -> None:
    baseline = kept([known("K001", Status.WARN), known("K001", Status.FAIL)], tmp_path)
    assert new([known("K001", Status.FAIL), known("K001", Status.WARN)], baseline) == []
    assert len(new([known("K001", Status.FAIL), known("K001", Status.FAIL)], baseline)) == 1


def test_what_is_gone_is_told(tmp_path: Path) -> None:
    baseline = kept([known("K001"), known("K002")], tmp_path)
    _, remarks = apply_baseline([finding(Status.PASS, "K001", "fine")], baseline)
    # K002 did not run: nobody knows.
    assert remarks == [
        f"1 finding is gone that {baseline.file} knows: --write-baseline writes it anew"
    ]


def test_waived_findings_are_not_written_and_known_ones_are(tmp_path: Path) -> None:
    waiver, before = Suppression("waiver", "r"), Suppression("baseline", "b")
    found = [
        replace(known("K001"), suppressed=waiver),
        replace(known("K002"), suppressed=before),
        known("K003"),
        known("K004", Status.PASS),
        known("K005", Status.ERROR),
    ]
    assert [entry.id for entry in kept(found, tmp_path).entries] == ["K002", "K003"]


def test_files_with_the_same_fault_are_told_apart(tmp_path: Path) -> None:
    a, b = (replace(known("D001"), location=Location(f, 3)) for f in ("a.yaml", "b.yaml"))
    moved = replace(a, location=Location("./a.yaml", 99, 7))
    baseline = kept([a], tmp_path)
    assert new([moved], baseline) == []
    assert new([b], baseline) == [b]


def test_the_same_findings_give_the_same_bytes() -> None:
    found = [known("K002"), known("K001", subject="b"), known("K001", subject="a")]
    assert dump(baseline_data(found, "1")) == dump(baseline_data(found[::-1], "1"))


ENTRY = {"fingerprint": "0" * 16, "id": "K001", "status": "fail"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "no baseline: not JSON"),
        ("[" * 100_000, "no baseline: it holds a number or a nesting"),
        ("9" * 10_000, "no baseline: it holds a number or a nesting"),
        ("[]", "no baseline: schema_version 1 is expected"),
        ({"schema_version": 2, "findings": []}, "no baseline: schema_version 1 is expected"),
        ({"schema_version": 1}, "findings: a list is expected"),
        ({"schema_version": 1, "findings": [1]}, "findings[0]: an object is expected"),
        (
            {"schema_version": 1, "findings": [ENTRY, {**ENTRY, "id": 5}]},
            "findings[1].id: text is expected",
        ),
        (
            {"schema_version": 1, "findings": [{**ENTRY, "status": "pass"}]},
            "findings[0].status: one of fail, warn, unknown is expected",
        ),
        (
            {"schema_version": 1, "findings": [{**ENTRY, "status": "bad\n"}]},
            "findings[0].status: one of",
        ),
    ],
)
def test_what_is_no_baseline(tmp_path: Path, data: object, message: str) -> None:
    file = tmp_path / "b.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(BadFile) as raised:
        read_baseline(str(file))
    assert str(raised.value).startswith(f"{file}: {message}")
    assert "\n" not in str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["schema_version", "findings", "id", "status", "fingerprint"]), inner
        )
    ),
    max_leaves=10,
)


@given(JSON, st.booleans())
def test_any_json_is_a_baseline_or_is_complained_of(data: object, versioned: bool) -> None:
    import tempfile

    if versioned:
        data = {"schema_version": 1, "findings": data}
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm") as file:
        json.dump(data, file)
        file.flush()
        with suppress_and_keep() as complaints:
            baseline = read_baseline(file.name)
            assert all(entry.status in SUPPRESSIBLE for entry in baseline.entries)
        assert all("\n" not in complaint for complaint in complaints)
