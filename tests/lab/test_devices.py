"""Devices on the nodes of a real kernel: where QEMU put them is where numadoctor finds them."""

import json
from typing import Any

from tests.lab import guest_devices, guest_facts
from tests.lab.guests import Guest, on

MODULES = ["failover", "net_failover", "virtio_net"]


def topology(guest: Guest) -> dict[str, dict[str, Any]]:
    """The devices that ``numadoctor topology`` tells, by address."""
    answer = guest.run(guest_facts.numadoctor, "topology", "-o", "json")
    assert (answer["exit_code"], answer["stderr"]) == (0, "")
    return {device["address"]: device for device in json.loads(answer["stdout"])["devices"]}


def one(devices: dict[str, dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The one device with these values."""
    found = [d for d in devices.values() if all(d[key] == wanted[key] for key in wanted)]
    assert len(found) == 1, (wanted, devices)
    return found[0]


@on("x86_64-devices-*")
def test_devices_are_on_the_nodes_they_were_put_on(guest: Guest) -> None:
    devices = topology(guest)
    # By vendor: Intel, Red Hat (virtio), Red Hat (QEMU), AMD.
    placed = {
        (device["kind"], device["vendor"], device["node"], device["node_step"])
        for device in devices.values()
    }
    assert placed == {
        ("nic", "0x8086", 0, "sysfs"),
        ("gpu", "0x1af4", 0, "sysfs"),
        ("nic", "0x1af4", 1, "sysfs"),
        ("storage", "0x1b36", 1, "sysfs"),
        ("gpu", "0x1002", 1, "sysfs"),
        # On the root bus, where QEMU's firmware tells no node.
        ("nic", "0x8086", None, "unknown"),
    } | {
        # The SATA controller of the q35 board itself.
        (d["kind"], d["vendor"], d["node"], d["node_step"])
        for d in devices.values()
        if d["path"] == ["pci0000:00"] and d["kind"] == "storage"
    }
    told = guest.run(guest_devices.attributes)
    for address, device in devices.items():
        raw = int(told[address]["numa_node"])
        assert device["node"] == (raw if raw >= 0 else None)
        assert told[address]["path"].split("/")[3:-1] == device["path"]
    assert one(devices, kind="storage", vendor="0x1b36")["driver"] == "nvme"
    assert one(devices, kind="storage", vendor="0x1b36")["names"] == ["nvme0"]


@on("x86_64-devices-*")
def test_a_device_that_says_nothing_below_a_bridge_that_does(guest: Guest) -> None:
    """numa_node of a device is written over, which kernels allow (and call a firmware bug)."""
    gpu = one(topology(guest), vendor="0x1002")
    answer = guest.run(guest_devices.topology_with, gpu["address"], -1)
    assert answer["written"] == "-1"
    devices = {d["address"]: d for d in json.loads(answer["stdout"])["devices"]}
    found = devices[gpu["address"]]
    assert (found["node"], found["node_step"]) == (1, "bridge")
    assert found["node_source"] == f"parent bridge {gpu['path'][-1]}"


@on("x86_64-devices-*")
def test_a_nic_in_another_network_namespace(guest: Guest) -> None:
    loaded = guest.run(guest_devices.load, MODULES)
    assert set(loaded.values()) <= {0, 17}
    nic = one(topology(guest), kind="nic", vendor="0x1af4")
    (name,) = nic["interfaces"]
    told = guest.run(guest_devices.interfaces, name)
    assert told["before"] == {"lo": "", name: nic["address"]}
    assert told["here"] == {"lo": ""}
    assert told["there"] == {"lo": "", name: nic["address"]}
    assert told["names"] == sorted(["lo", name])
    (line,) = told["nobody"]
    assert "CAP_SYS_ADMIN" in line or "Permission denied" in line or "permitted" in line
    findings = json.loads(told["check"]["stdout"])["findings"]
    assert {finding["id"] for finding in findings} == {"G006"}
    assert "does not have" not in told["check"]["stdout"]
    assert any("on node 1" in finding["message"] for finding in findings), findings


@on("x86_64-devices-*")
def test_checks_of_devices_end_without_an_error(guest: Guest) -> None:
    answer = guest.run(guest_facts.numadoctor, "check", "--select", "G", "-o", "json", "-v")
    findings = json.loads(answer["stdout"])["findings"]
    assert {finding["id"] for finding in findings} >= {f"G{n:03}" for n in range(1, 14)}
    assert [finding for finding in findings if finding["status"] == "error"] == []
    unknown = [f for f in findings if f["id"] == "G001" and f["status"] == "warn"]
    assert any("cannot be told" in finding["message"] for finding in unknown), findings
