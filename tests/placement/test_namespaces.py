"""Live processes in IPC and mount namespaces of their own. On two nodes: tests/lab."""

from typing import Any

import pytest

from tests.lab import guest_namespaces
from tests.lab.guest_victims import MIB
from tests.placement.test_live import WHY_NOT

NO_NAMESPACES = WHY_NOT or guest_namespaces.why_not()
pytestmark = pytest.mark.skipif(bool(NO_NAMESPACES), reason=NO_NAMESPACES)


@pytest.fixture(scope="module")
def found() -> Any:
    return guest_namespaces.alike([0])


def test_numbers_are_those_of_a_namespace(found: Any) -> None:
    # Else there is nothing that could be mistaken for one.
    assert len(set(found["numbers"])) == 1
    assert len(set(found["inodes"])) == 1


@pytest.mark.parametrize("method", ["exact", "sampled"])
@pytest.mark.parametrize("kind", ["sysv", "posix", "memfd"])
def test_each_container_has_its_segment_and_it_counts_once(
    found: Any, kind: str, method: str
) -> None:
    segments = found[method][kind]
    assert sorted(segment["pids"] for segment in segments) == sorted(found["pids"])
    assert [segment["resident"] for segment in segments] == [4 * MIB] * 2
    assert found["remarks"] == []
