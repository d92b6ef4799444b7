"""The checks of processes on a real one: all of them run, whatever the machine has.

The topology that they go by is widened to two nodes where the machine has one, so
that none is skipped for that.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run
from numadoctor.engine.targets import find_targets
from numadoctor.host import Host, LiveRoot
from numadoctor.kernel.policy import Mode
from numadoctor.model import Finding, Node, NodeKind, Status
from numadoctor.model.placement import Method
from numadoctor.placement.examination import examination
from tests.lab.guest_victims import MIB, private, shared, threads, victim
from tests.placement.test_live import WHY_NOT

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

CHECKS = [c for c in discover() if c.id[:3] in ("P00", "P01", "P02")]


def two_nodes() -> Host:
    """This machine, with a second node of which nothing is used."""
    host = Host(LiveRoot())
    topology = host.topology
    if len(topology.host_nodes) < 2:
        cpus = topology.online_cpus
        # Half of the CPUs are said to be there, so that threads may run on both.
        first = topology.nodes[0]._replace(cpus=cpus[: len(cpus) // 2 or 1])
        second = Node(99, NodeKind.HOST, cpus[len(cpus) // 2 or 1 :] or (4095,), 64 << 30, 32 << 30)
        host.__dict__["topology"] = topology._replace(nodes=(first, second))
    return host


def memory() -> None:
    """What an engine has: threads, private and shared memory, large enough to be judged."""
    threads(3)
    private(128 * MIB).touch()
    shared(96 * MIB).touch()


@contextmanager
def engine() -> Iterator[int]:
    with victim(memory) as (pid, _):
        yield pid


def judged(pid: int, method: Method | None) -> tuple[Host, list[Finding]]:
    host = two_nodes()
    targets, lines = find_targets(host, [pid], tree=True)
    assert lines == []
    found = examination(host, targets, method)
    report = run(host, CHECKS, targets)
    assert found.measured
    return host, list(report.findings)


@pytest.mark.parametrize("method", [None, Method.EXACT, Method.SAMPLED])
def test_every_check_runs_on_a_live_process(method: Method | None) -> None:
    with engine() as pid:
        host, findings = judged(pid, method)
    assert [f for f in findings if f.status is Status.ERROR] == []
    assert {f.id for f in findings} == {check.id for check in CHECKS}
    # Nothing was read whole for which page tables are walked.
    walked = [path for path in host.reads if path.endswith(("/numa_maps", "/smaps"))]
    assert walked == []


def test_what_a_walk_alone_tells_is_unknown_in_a_sample() -> None:
    with engine() as pid:
        _, findings = judged(pid, Method.SAMPLED)
    (unread,) = [f for f in findings if f.id == "P009" and f.status is Status.UNKNOWN]
    assert "was not read" in unread.message
    assert "--exact" in unread.cause


def test_counted_exactly_nothing_is_left_open() -> None:
    with engine() as pid:
        _, findings = judged(pid, Method.EXACT)
    assert not [f for f in findings if f.id == "P009" and f.status is Status.UNKNOWN]


def test_a_bound_pool_that_nobody_touched_is_still_to_come() -> None:
    with victim(lambda: private(128 * MIB).bind(Mode.BIND, [0]).start) as (pid, _):
        _, findings = judged(pid, Method.EXACT)
    (room,) = [f for f in findings if f.id == "P016"]
    assert room.status is Status.PASS
    assert "128 MiB are to come" in room.message


def test_a_pool_that_may_be_bound_is_unknown_in_a_sample() -> None:
    with victim(lambda: private(128 * MIB).bind(Mode.BIND, [0]).start) as (pid, _):
        _, findings = judged(pid, Method.SAMPLED)
    (room,) = [f for f in findings if f.id == "P016"]
    assert room.status is Status.UNKNOWN
    assert "--exact" in room.cause


def test_all_threads_are_counted() -> None:
    with engine() as pid:
        _, findings = judged(pid, None)
    (found,) = [f for f in findings if f.id == "P014"]
    assert found.status is Status.PASS
    assert "all 4 threads" in found.message


def test_a_process_that_ends_before_it_is_looked_at_is_no_pass() -> None:
    with engine() as pid:
        host = two_nodes()
        targets, _ = find_targets(host, [pid])
    report = run(host, CHECKS, targets)
    told = [f for f in report.findings if f.id not in ("P023", "P024")]
    assert {f.status for f in told} <= {Status.UNKNOWN, Status.SKIP}
    assert any(f.status is Status.UNKNOWN for f in told)
    assert not os.path.exists(f"/proc/{pid}")
