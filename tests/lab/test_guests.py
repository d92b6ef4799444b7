"""numadoctor on real kernels: what it says of a machine is what QEMU was told to build."""

import json
from typing import Any

from tests.lab import guest_facts
from tests.lab.guests import Guest, on
from tests.lab.machines import MIB, Machine, Node

WITH_NODES = ("x86_64-*", "aarch64-*", "ppc64le-*", "i386-*", "s390x-1n-*")
# Word size, byte order, and page size unless the machine's name has another.
PROCESSES = {
    "x86_64": (8, "little", 4096),
    "aarch64": (8, "little", 4096),
    "ppc64le": (8, "little", 65536),
    "i386": (4, "little", 4096),
    "s390x": (8, "big", 4096),
}


def numadoctor(guest: Guest, *arguments: str) -> Any:
    """The JSON that a numadoctor command prints in the guest, which has to end with 0."""
    answer = guest.run(guest_facts.numadoctor, *arguments, "-o", "json")
    assert answer["stderr"] == ""
    assert answer["exit_code"] == 0, answer["stdout"]
    return json.loads(answer["stdout"])


def kind(node: Node) -> set[str]:
    """The kinds that a node may rightly be given, from what it was built of."""
    if node.cpus:
        return {"host"} if node.memory else {"cpu-only"}
    # Nothing in a guest tells memory without CPUs apart, unless a tier makes it slow.
    return {"memory-only", "cxl"} if node.memory else {"empty"}


def assert_memory(machine: Machine, told: dict[int, int]) -> None:
    """What the nodes have is what they were built of, less what the kernel keeps before it counts.

    That is the page structures (a 64th), and on any node the kernel's image, a bounce buffer for
    devices (64 MiB) and at times the initramfs: not more than 192 MiB in all.
    """
    built = {number: node.memory * MIB for number, node in enumerate(machine.nodes)}
    for number, memory in told.items():
        assert memory <= built[number], f"node {number}"
        assert memory >= built[number] * 31 // 32 - 192 * MIB, f"node {number}"
        assert bool(memory) == bool(built[number]), f"node {number}"
    assert sum(told.values()) >= sum(built.values()) * 31 // 32 - 192 * MIB


@on("*")
def test_guest_is_what_it_claims(guest: Guest) -> None:
    process = guest.run(guest_facts.process)
    platform = guest.machine.name.partition("-")[0]
    word, byteorder, page = PROCESSES[platform]
    if guest.machine.kernel.endswith("-16k"):
        page = 16384
    assert (process["word"], process["byteorder"], process["page"]) == (word, byteorder, page)
    assert process["kernel"].startswith(guest.machine.kernel.partition("-")[0] + ".")
    assert process["nodes"] == bool(guest.machine.nodes)


@on(*WITH_NODES)
def test_topology(guest: Guest) -> None:
    machine = guest.machine
    told = numadoctor(guest, "topology")
    assert told["numa"] is True
    nodes = {node["id"]: node for node in told["nodes"]}
    assert sorted(nodes) == list(range(len(machine.nodes)))
    for number, node in nodes.items():
        built = machine.nodes[number]
        assert node["cpus"] == machine.cpus(number), f"node {number}"
        assert node["kind"] in kind(built), f"node {number}"
        assert node["distances"] == {
            str(other): machine.distance(number, other) for other in nodes
        }, f"node {number}"
    assert_memory(machine, {number: node["memory_bytes"] for number, node in nodes.items()})
    # QEMU tells an s390 kernel of no sockets, which then takes each CPU for one.
    sockets = machine.platform.root != "s390x"
    if sockets and len({node.cpus for node in machine.nodes} - {0}) == 1:
        assert told["cpus"]["packages"] == sum(1 for node in machine.nodes if node.cpus)
    all_cpus = [cpu for number in nodes for cpu in machine.cpus(number)]
    assert told["allowed"]["cpus"] == all_cpus
    with_memory = [number for number in nodes if machine.nodes[number].memory]
    assert told["allowed"]["nodes"] == with_memory


@on("x86_64-tiers-*")
def test_slow_tier(guest: Guest) -> None:
    """The node without CPUs, slow by the HMAT, is a tier of its own below the others."""
    told = numadoctor(guest, "topology")
    (fast, slow) = sorted((int(tier), nodes) for tier, nodes in told["tiers"].items())
    assert (fast[1], slow[1]) == ([0, 1], [2])
    assert told["nodes"][2]["kind"] == "cxl"


@on(*WITH_NODES)
def test_syscalls(guest: Guest) -> None:
    told = numadoctor(guest, "syscalls")
    verdicts = {call["name"]: call["verdict"] for call in told["calls"]}
    assert verdicts == dict.fromkeys(
        (
            "mbind",
            "set_mempolicy",
            "get_mempolicy",
            "set_mempolicy_home_node",
            "move_pages",
            "migrate_pages",
        ),
        "reached",
    )
    assert told["abi"] == guest.machine.name.partition("-")[0]


@on("*")
def test_check_has_no_error(guest: Guest) -> None:
    answer = guest.run(guest_facts.numadoctor, "check", "-o", "json")
    assert answer["stderr"] == ""
    told = json.loads(answer["stdout"])
    assert answer["exit_code"] == told["exit_code"]
    assert answer["exit_code"] in (0, 1)
    assert [finding for finding in told["findings"] if finding["status"] == "error"] == []
    assert any(finding["status"] != "skip" for finding in told["findings"])


@on("s390x-none-*")
def test_kernel_without_numa(guest: Guest) -> None:
    told = numadoctor(guest, "topology")
    assert (told["numa"], told["nodes"]) == (False, [])
    told = numadoctor(guest, "syscalls")
    assert told["numa"] is False
    assert {(call["verdict"], call["errno"]) for call in told["calls"]} == {("absent", "ENOSYS")}
    assert {call["status"] for call in told["calls"]} == {"skip"}
