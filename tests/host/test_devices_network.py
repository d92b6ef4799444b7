import errno
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.host.devices import network
from numadoctor.host.devices.network import in_own_namespace, names_without_rights, read_interfaces
from numadoctor.model import Denied, Interface, Missing, Undecided
from tests.host.machines import Changes, TreeRoot
from tests.trees import fact

NIC = "0000:99:00.0"
SYSFS: Changes = {
    "/sys/devices/pci0000:97/0000:97:03.0/0000:99:00.0/net/ib4/operstate": "up\n",
    "/sys/devices/pci0000:97/0000:97:03.0/0000:99:00.0/net/ib4/speed": "400000\n",
    "/sys/devices/virtual/net/bond0/operstate": "down\n",
    "/sys/devices/virtual/net/bond0/speed": "-1\n",
    "/sys/devices/virtual/net/bond0/uevent": "DEVTYPE=bond\nINTERFACE=bond0\nIFINDEX=4\n",
    "/sys/devices/virtual/net/bond0/lower_ib4/x": "",
    "/sys/class/net/bonding_masters": "bond0\n",
}
LINKS = {
    "/sys/class/net/ib4": "../../devices/pci0000:97/0000:97:03.0/0000:99:00.0/net/ib4",
    "/sys/class/net/bond0": "../../devices/virtual/net/bond0",
    "/sys/bus/virtio/devices/virtio2": "../../../devices/pci0000:00/0000:00:03.0/virtio2",
}


def links(*entries: dict[str, Any], **more: Any) -> str:
    plain = {"state": "UP", "parent": None, "bus": None, "kind": None, "link": None, "master": None}
    told = [{**plain, **entry} for entry in entries]
    return json.dumps({"unavailable": None, "denied": False, "links": told, **more})


def host(files: Changes, more_links: dict[str, str] | None = None) -> Host:
    return Host(TreeRoot({**SYSFS, **files}, {**LINKS, **(more_links or {})}))


def test_sysfs_where_nothing_else_was_captured() -> None:
    assert read_interfaces(host({})) == (
        Interface("bond0", "", "down", "bond", ("ib4",), None),
        Interface("ib4", NIC, "up", "", (), 400000),
    )


def test_netlink() -> None:
    told = links(
        {"index": 1, "name": "lo", "state": "UNKNOWN"},
        {"index": 2, "name": "ib4", "parent": NIC, "bus": "pci", "master": 4},
        {"index": 3, "name": "eth0", "parent": "virtio2", "bus": "virtio"},
        {"index": 4, "name": "bond0", "kind": "bond", "state": "DOWN"},
        {"index": 5, "name": "bond0.7", "kind": "vlan", "link": 4},
    )
    assert read_interfaces(host({fact("links"): told})) == (
        Interface("bond0", "", "down", "bond", ("ib4",), None),
        Interface("bond0.7", "", "up", "vlan", ("bond0",), None),
        Interface("eth0", "0000:00:03.0", "up", "", (), None),
        Interface("ib4", NIC, "up", "", (), 400000),
        Interface("lo", "", "unknown", "", (), None),
    )


def test_kernels_before_5_14_do_not_name_the_parent() -> None:
    (found,) = read_interfaces(host({fact("links"): links({"index": 2, "name": "ib4"})}))
    assert found.device == NIC


NAMESPACES = {"/proc/self/ns/net": "net:[4026531840]", "/proc/7/ns/net": "net:[4026532999]"}


def test_another_namespace() -> None:
    told = links({"index": 2, "name": "ib4", "parent": NIC})
    found = host(
        {fact("links.7"): told, "/proc/7/net/dev": "a\nb\n  ib4: 1 2\n    lo: 0\n"}, NAMESPACES
    )
    assert not in_own_namespace(found, "/proc/7")
    # What sysfs shows here says nothing of the interfaces there.
    assert read_interfaces(found, "/proc/7") == (Interface("ib4", NIC, "up", "", (), None),)
    assert names_without_rights(found, "/proc/7") == ("ib4", "lo")


def test_another_namespace_without_rights_is_unknown() -> None:
    refused = json.dumps({"unavailable": "Operation not permitted", "denied": True, "links": []})
    with pytest.raises(Denied, match="CAP_SYS_ADMIN"):
        read_interfaces(host({fact("links.7"): refused}, NAMESPACES), "/proc/7")
    with pytest.raises(Missing):
        read_interfaces(host({}, NAMESPACES), "/proc/7")
    denied: Changes = {"/proc/8/ns/net": Denied("/proc/8/ns/net", errno.EACCES)}
    with pytest.raises(Missing):
        read_interfaces(host(denied, NAMESPACES), "/proc/8")


def test_a_captured_folder_without_namespaces_has_one() -> None:
    assert in_own_namespace(host({}), "/proc/7")
    assert [interface.name for interface in read_interfaces(host({}), "/proc/7")] == [
        "bond0",
        "ib4",
    ]


def test_netlink_of_the_calling_process() -> None:
    answer = network.ask()
    assert json.loads(json.dumps(answer)) == answer
    assert answer["unavailable"] is None
    assert "lo" in [entry["name"] for entry in answer["links"]]


def test_a_process_that_is_not_there() -> None:
    answer = network.ask(2**22 + 1)
    assert answer["links"] == []
    assert answer["unavailable"]


VALUE = st.none() | st.integers(-2, 5) | st.text(max_size=6)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["index", "name", "parent", "bus", "link", "master"]), VALUE
        ),
        max_size=3,
    )
)
def test_any_recording_is_understood_or_undecided(entries: list[dict[str, Any]]) -> None:
    told = json.dumps({"links": entries})
    try:
        found = read_interfaces(host({fact("links.7"): told}, NAMESPACES), "/proc/7")
    except Undecided:
        return
    assert len(found) == len(entries)
