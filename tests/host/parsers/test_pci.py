import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import (
    Acs,
    parse_acs,
    parse_bus_id,
    parse_key_values,
    parse_kfd_properties,
    parse_link_speed,
)
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


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("16.0 GT/s PCIe\n", 16.0),
        ("2.5 GT/s", 2.5),
        ("8 GT/s", 8.0),
        ("64.0 GT/s PCIe", 64.0),
        ("Unknown", None),
        ("Unknown speed\n", None),
    ],
)
def test_link_speeds(text: str, speed: float | None) -> None:
    assert parse_link_speed(text.encode()) == speed


@pytest.mark.parametrize("text", ["", "16", "GT/s", "fast GT/s", "16.0 GT/s PCIe x16", "-1 GT/s"])
def test_other_link_speeds_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match="it is not a number of GT/s"):
        parse_link_speed(text.encode())


def test_kfd_properties() -> None:
    text = b"cpu_cores_count 0\nsimd_count 1216\nname x\nunique_id 18446744073709551615\n"
    assert parse_kfd_properties(text) == {
        "cpu_cores_count": 0, "simd_count": 1216, "unique_id": 2**64 - 1,
    }  # fmt: skip


def _space(capabilities: list[tuple[int, int]], size: int = 4096) -> bytes:
    """A configuration space with these extended capabilities (id, control), one after another."""
    space = bytearray(size)
    for number, (identity, control) in enumerate(capabilities):
        at = 0x100 + 16 * number
        following = at + 16 if number + 1 < len(capabilities) else 0
        space[at : at + 4] = (identity | 1 << 16 | following << 20).to_bytes(4, "little")
        space[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(space)


@given(
    st.lists(st.integers(1, 0xC), max_size=8),
    st.integers(0, 0x7F),
    st.lists(st.integers(0xE, 0x40), max_size=8),
)
def test_acs_is_found_among_capabilities(before: list[int], control: int, after: list[int]) -> None:
    others = [(identity, 0x7F) for identity in (*before, *after)]
    listed = [*others[: len(before)], (0xD, control), *others[len(before) :]]
    acs = Acs(bool(control & 4), bool(control & 8), bool(control & 16))
    assert parse_acs(_space(listed)) == acs
    assert acs.redirects == bool(control & 0b11100)
    assert parse_acs(_space(others)) is None


@pytest.mark.parametrize("size", [0, 64, 256])
def test_a_configuration_space_that_was_cut(size: int) -> None:
    with pytest.raises(ParseError, match=f"only {size} bytes of it can be seen"):
        parse_acs(bytes(size))


def test_capabilities_that_lead_in_a_circle() -> None:
    space = bytearray(_space([(1, 0), (2, 0)]))
    space[0x110:0x114] = (2 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    with pytest.raises(ParseError, match="lead nowhere"):
        parse_acs(bytes(space))
