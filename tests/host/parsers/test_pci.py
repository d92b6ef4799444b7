import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import parse_bus_id, parse_key_values
from numadoctor.model import ParseError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("00000008:01:00.0", "0008:01:00.0"),
        ("0000:C1:1F.7\n", "0000:c1:1f.7"),
        ("c1:00.0", "0000:c1:00.0"),
        ("1:2.3", "0000:01:02.3"),
        ("FFFFFFFF:FF:1f.7", "ffffffff:ff:1f.7"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert parse_bus_id(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c1",
        "00:c1:00",
        "0000:c1:00",
        "0000:c1:00.8",
        "0000:c1:20.0",
        "0000:1c1:00.0",
        ":c1:00.0",
        "000000000:c1:00.0",
        "0000:c1:00.00",
        "0000:\uff11:00.0",
        "0000:c1:00.0/..",
        "0000:g1:00.0",
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match=r"it is not domain:bus:device\.function"):
        parse_bus_id(text)


@given(st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
def test_every_spelling_of_an_address_is_one(
    domain: int, bus: int, device: int, function: int
) -> None:
    nvml = f"{domain:08X}:{bus:02X}:{device:02X}.{function}"
    sysfs = parse_bus_id(nvml)
    assert parse_bus_id(sysfs) == sysfs
    assert [int(part, 16) for part in sysfs.replace(".", ":").split(":")] == [
        domain,
        bus,
        device,
        function,
    ]
    head, *rest = sysfs.split(":")
    assert len(head) == max(4, len(f"{domain:x}"))
    assert [len(part) for part in rest] == [2, 4]


def test_driver_files() -> None:
    text = b"Model: \t\t NVIDIA H100\nBus Location: \t 0000:c1:00.0\nNode:      255\nNode: 3\nend\n"
    assert parse_key_values(text) == {
        "Model": "NVIDIA H100",
        "Bus Location": "0000:c1:00.0",
        "Node": "255",
    }


def test_uevent_files() -> None:
    text = b"DRIVER=nvme\nPCI_SLOT_NAME=0000:01:00.0\n=x\nMODALIAS=pci:v1\n\0"
    assert parse_key_values(text, b"=") == {
        "DRIVER": "nvme",
        "PCI_SLOT_NAME": "0000:01:00.0",
        "MODALIAS": "pci:v1",
    }
