"""What numadoctor says of a process's surroundings, where real launchers and cgroups made them."""

from typing import Any

from tests.lab import guest_envelope
from tests.lab.guests import Guest, on


def statuses(findings: list[dict[str, Any]], check: str) -> dict[str, str]:
    return {f["subject"]: f["status"] for f in findings if f["id"] == check}


def message(findings: list[dict[str, Any]], check: str) -> str:
    return " ".join(f["message"] for f in findings if f["id"] == check)


@on("x86_64-2n-6.12")
def test_a_process_without_restrictions_passes(guest: Guest) -> None:
    found = guest.run(guest_envelope.check_under)
    assert statuses(found, "E002") == {"memory policy": "pass"}
    assert statuses(found, "E003") == {"process": "pass"}
    assert statuses(found, "E004") == {"process": "pass"}
    assert set(statuses(found, "E001").values()) == {"pass"}
    assert not [f for f in found if f["status"] in ("fail", "error")]


@on("x86_64-2n-6.12")
def test_cpus_and_memory_narrowed_apart(guest: Guest) -> None:
    cpus = ("numactl", "--physcpubind=0-1")
    assert statuses(guest.run(guest_envelope.check_under, *cpus), "E004") == {"process": "warn"}
    both = ("numactl", "--cpunodebind=0", "--membind=0")
    found = guest.run(guest_envelope.check_under, *both)
    assert statuses(found, "E004") == {"process": "pass"}
    assert "bind:0" in message(found, "E004")
    memory = ("numactl", "--membind=1")
    assert statuses(guest.run(guest_envelope.check_under, *memory), "E004") == {"process": "warn"}
    apart = ("numactl", "--cpunodebind=0", "--membind=1")
    assert statuses(guest.run(guest_envelope.check_under, *apart), "E004") == {"process": "fail"}
    spread = ("numactl", "--cpunodebind=0", "--interleave=0-1")
    assert statuses(guest.run(guest_envelope.check_under, *spread), "E004") == {"process": "info"}


@on("x86_64-2n-6.12")
def test_a_node_outside_the_cpuset_is_predicted_and_refused(guest: Guest) -> None:
    files = {"cpuset.mems": "0"}
    wish = "[ -n '' ] && numactl --membind=1 true"
    found = guest.run(guest_envelope.check_in_cgroup, files, wish)
    assert statuses(found, "E003")["process: numactl nodes"] == "fail"
    assert "EINVAL" in message(found, "E003")
    answer = guest.run(guest_envelope.bind_in_cgroup, files, 1)
    assert answer.startswith("1 ")
    assert "<1> is invalid" in answer


@on("x86_64-2n-6.12")
def test_limits_of_a_cgroup(guest: Guest) -> None:
    found = guest.run(guest_envelope.check_in_cgroup, {"memory.max": str(512 << 20)})
    assert statuses(found, "E007") == {"process: memory": "info"}
    found = guest.run(guest_envelope.check_in_cgroup, {"memory.high": str(512 << 20)})
    assert statuses(found, "E007") == {"process: memory.high": "warn"}
