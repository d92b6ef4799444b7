"""When lab tests run: ``NUMADOCTOR_LAB=1`` runs them, and lets none of them be skipped."""

import os
from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest

from tests.lab import debian
from tests.lab.guests import Fleet, Guest
from tests.lab.machines import MACHINES

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)

ENABLED = os.environ.get("NUMADOCTOR_LAB") == "1"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lab_full: a slow cell of the lab, run by `make lab-full`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lab = [item for item in items if item.get_closest_marker("lab")]
    if lab and not ENABLED:
        reason = _why_skipped()
        for item in lab:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _without_skip(report) if item.get_closest_marker("lab") else report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _without_skip(report)


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    names = [call.params["guest"] for call in calls if call and "guest" in call.params]
    fleet = Fleet(MACHINES[name] for name in dict.fromkeys(names))
    yield fleet
    fleet.stop()


@pytest.fixture(scope="session")
def guest(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Guest]:
    """A running guest of the machine that ``on`` names; pytest runs its tests in one go."""
    machine = MACHINES[request.param]
    yield fleet.guest(machine)
    fleet.stop(machine)


def _without_skip(report: _Report) -> _Report:
    """A lab that was asked for must not pass because it did nothing."""
    if ENABLED and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"NUMADOCTOR_LAB=1 allows no skip: {reason}"
    return report


def _why_skipped() -> str:
    reason = "starts a container or boots a kernel: needs NUMADOCTOR_LAB=1 (make lab)"
    try:
        absent = debian.missing({name for part in debian.QUICK for name in debian.PACKAGES[part]})
    except debian.Unavailable as error:
        return f"{reason}; {error}"
    return f"{reason} and the packages {' '.join(absent)}" if absent else reason
