from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.engine.config import Config
from numadoctor.engine.settle import settle, today
from numadoctor.engine.waivers import SUPPRESSIBLE, Waiver, apply_waivers
from numadoctor.model import Report, Severity, Status
from tests.report.reports import HOSTILE, findings, reports
from tests.report.reports import finding as made

DAY = date(2026, 11, 30)
REASON = "measured"


def waived(waiver: Waiver, status: Status = Status.FAIL, **more: str) -> tuple[bool, list[str]]:
    host = more.pop("host", "gpu-07")
    one = made(status, "K001", "m", **more)
    (marked,), remarks = apply_waivers([one], [waiver], host, DAY)
    assert marked.status is status
    return marked.suppressed is not None, remarks


@pytest.mark.parametrize(
    ("waiver", "holds"),
    [
        (Waiver("K001", REASON), True),
        (Waiver("k001", REASON), True),
        (Waiver("x", REASON), True),
        (Waiver("K002", REASON), False),
        (Waiver("K001", REASON, subject="node *"), True),
        (Waiver("K001", REASON, subject="node"), False),
        (Waiver("K001", REASON, subject="NODE *"), False),
        (Waiver("K001", REASON, host="gpu-0?"), True),
        (Waiver("K001", REASON, host="gpu-1*"), False),
        (Waiver("K001", REASON, expires=DAY), True),
        (Waiver("K001", REASON, expires=DAY - timedelta(1)), False),
        (Waiver("K001", REASON, expires=DAY + timedelta(1)), True),
    ],
)
def test_what_a_waiver_is_about(waiver: Waiver, holds: bool) -> None:
    assert waived(waiver, subject="node 1")[0] is holds


@pytest.mark.parametrize("status", Status)
def test_a_pass_needs_no_waiver_and_a_crash_gets_none(status: Status) -> None:
    assert waived(Waiver("K001", REASON), status)[0] is (status in SUPPRESSIBLE)


def test_an_expired_waiver_fires_again_and_says_so() -> None:
    holds, (remark,) = waived(Waiver("K001", REASON, host="gpu-*", expires=date(2026, 1, 31)))
    assert not holds
    assert remark == (
        "waiver of K001, host gpu-* expired on 2026-01-31: what it covered counts again: measured"
    )


def test_an_expired_waiver_of_nothing_is_no_news() -> None:
    assert waived(Waiver("K001", REASON, subject="x", expires=date(2026, 1, 31)))[1] == [
        "waiver of K001, subject x is not used: nothing here matches it"
    ]


def test_an_unused_waiver_is_told_where_its_check_looked() -> None:
    assert waived(Waiver("K001", REASON), Status.PASS)[1] == [
        "waiver of K001 is not used: nothing here matches it"
    ]
    # Of another host, or of a check that did not run: it may be of use elsewhere.
    assert waived(Waiver("K001", REASON, host="cpu-*"))[1] == []
    assert waived(Waiver("K002", REASON))[1] == []


def test_a_later_waiver_stands_in_for_one_that_expired() -> None:
    old, new = Waiver("K001", "old", expires=date(2026, 1, 1)), Waiver("K001", "new")
    (marked,), remarks = apply_waivers([made(Status.WARN, "K001", "m")], [old, new], "h", DAY)
    assert marked.suppressed is not None
    assert marked.suppressed.reason == "new"
    assert len(remarks) == 1


WAIVERS = st.lists(
    st.builds(
        Waiver,
        id=st.sampled_from(["K001", "T001", "X999", "nope"]),
        reason=HOSTILE,
        subject=st.sampled_from(["*", "[", "a*", "[!a]*"]) | HOSTILE,
        host=st.sampled_from(["*", "gpu-*", "["]) | HOSTILE,
        expires=st.none() | st.dates(),
    ),
    max_size=4,
)


@given(st.lists(findings(), max_size=5), WAIVERS, HOSTILE)
def test_waivers_only_ever_suppress(found: list[object], waivers: list[Waiver], host: str) -> None:
    before = [replace(f, suppressed=None) for f in found]  # type: ignore[type-var]
    after, remarks = apply_waivers(before, waivers, host, DAY)  # type: ignore[arg-type]
    assert [replace(f, suppressed=None) for f in after] == before
    for finding in after:
        if finding.suppressed:
            assert finding.status in SUPPRESSIBLE
            assert finding.suppressed.kind == "waiver"
    assert len(remarks) <= len(waivers)


# Settled.


@given(reports())
def test_settling_without_settings_changes_no_finding(report: Report) -> None:
    settled = settle(report, Config(), None, DAY)
    assert sorted(map(repr, settled.findings)) == sorted(map(repr, report.findings))
    assert settle(settled, Config(), None, DAY) == settled


@given(reports(), WAIVERS)
def test_waiving_makes_no_exit_code_worse(report: Report, waivers: list[Waiver]) -> None:
    plain = settle(report, Config(), None, DAY)
    waived = settle(report, Config(waivers=tuple(waivers)), None, DAY)
    # 1 outranks 3: what is left when a failure is waived may be that not all was seen.
    order = {0: 0, 3: 1, 1: 2}
    assert order[waived.exit_code] <= order[plain.exit_code]


def test_what_is_waived_does_not_count() -> None:
    report = Report("gpu-07", "", (made(Status.FAIL, "K001", "m"),), 1, 0.0)
    settled = settle(report, Config(waivers=(Waiver("K001", REASON),)), None, DAY)
    assert (settled.exit_code, settled.suppressed, settled.count(Status.FAIL)) == (0, 1, 0)


def test_severities_order_the_report() -> None:
    report = Report(
        "h", "", (made(Status.FAIL, "K001", "m"), made(Status.FAIL, "T001", "m")), 1, 0.0
    )
    config = Config(severities={"t001": Severity.HIGH})
    assert [f.id for f in settle(report, config, None, DAY).findings] == ["T001", "K001"]


def test_the_day_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1798675200")
    assert today() == date(2026, 12, 31)
    for nonsense in ("", "x", "-1", "9" * 30):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", nonsense)
        assert today() >= date(2026, 1, 1)
