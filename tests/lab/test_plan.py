"""What a plan prints starts processes that ``check --expect`` then passes; others it does not."""

from typing import Any

import pytest

from tests.lab import guest_plan
from tests.lab.guests import Guest, on

QUICK = {"x86_64-2n-6.12"}


def told(findings: list[dict[str, Any]]) -> str:
    return "\n".join(f"{f['id']} {f['status']} {f['subject']}: {f['message']}" for f in findings)


def statuses(findings: list[dict[str, Any]], id: str) -> list[str]:
    return [finding["status"] for finding in findings if finding["id"] == id]


@pytest.mark.parametrize(
    ("instances", "mode", "policy"),
    [(2, "auto", "--membind=1"), (1, "interleave", "--interleave=0-1"), (2, "preferred", "")],
)
@on("x86_64-2n-*", quick=QUICK)
def test_the_printed_command_lines_do_as_planned(
    guest: Guest, instances: int, mode: str, policy: str
) -> None:
    done = guest.call(guest_plan.as_planned, (instances, mode, "numactl"), limit=600)
    assert done["planned"]["exit_code"] == 0, done["planned"]
    assert policy in done["lines"][-1]
    before, running = done["before"], done["running"]
    assert not {"fail", "error"} & {finding["status"] for finding in before}, told(before)
    assert statuses(before, "P051") == ["pass"] * 2, told(before)
    assert statuses(before, "P054") == ["pass"] * 2 * instances, told(before)
    for id in ("P061", "P062", "P063"):
        assert statuses(running, id) == ["pass"] * instances, told(running)
    assert not {"fail", "warn", "error", "unknown"} & {f["status"] for f in running}, told(running)


@on("x86_64-2n-*", quick=QUICK)
def test_taskset_sets_the_cpus_and_no_policy(guest: Guest) -> None:
    done = guest.call(guest_plan.as_planned, (2, "auto", "taskset"), limit=600)
    running = done["running"]
    assert statuses(running, "P061") == ["pass", "pass"], told(running)
    assert statuses(running, "P062") == ["fail", "fail"], told(running)
    # First touch by CPUs of the node: the pages are where they belong, by chance.
    assert statuses(running, "P063") == ["pass", "pass"], told(running)


@on("x86_64-2n-*", quick=QUICK)
def test_a_process_that_was_started_otherwise_fails(guest: Guest) -> None:
    done = guest.call(
        guest_plan.as_planned, (1, "interleave", "numactl"), {"disobey": True}, limit=600
    )
    running = done["running"]
    assert statuses(running, "P062") == ["fail"], told(running)
    assert {"warn", "fail"} & set(statuses(running, "P063")), told(running)


@on("x86_64-2n-*", quick=QUICK)
def test_too_few_huge_pages_on_one_node_are_told_before_the_start(guest: Guest) -> None:
    """Node 0 has enough for both halves of the pool: the kernel would let it be mapped."""
    done = guest.call(guest_plan.too_few_huge_pages, ({"0": 16, "1": 4},), limit=600)
    assert done["planned"]["exit_code"] == 0, done["planned"]
    before = done["before"]
    assert before["exit_code"] == 1, told(before["findings"])
    pages = {f["subject"]: f["status"] for f in before["findings"] if f["id"] == "P052"}
    assert pages == {"node 0: 2MB pages": "pass", "node 1: 2MB pages": "fail"}
    # The plan's own commands for the machine make the start good.
    assert done["prepared"]["exit_code"] == 0, told(done["prepared"]["findings"])
    assert statuses(done["prepared"]["findings"], "P052") == ["pass"] * 2
    running = done["running"]
    assert running["exit_code"] == 0, told(running["findings"])
    for id in ("P062", "P063"):
        assert statuses(running["findings"], id) == ["pass"], told(running["findings"])


@pytest.mark.parametrize("node", [0, 1])
@on("x86_64-2n-*", quick=QUICK)
def test_huge_pages_on_the_wrong_node_are_told_after_the_start(guest: Guest, node: int) -> None:
    done = guest.call(guest_plan.bound_to, (node, 1), limit=600)
    # Both nodes have the pages: nothing is wrong before.
    assert done["before"]["exit_code"] == 0, told(done["before"]["findings"])
    running = done["running"]
    wrong = node != 1
    assert running["exit_code"] == int(wrong), told(running["findings"])
    for id in ("P062", "P063"):
        assert statuses(running["findings"], id) == ["fail" if wrong else "pass"], told(
            running["findings"]
        )
