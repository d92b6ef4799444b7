import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import NcclCpu, NcclDevice, NcclLink, parse_nccl_topology
from numadoctor.model import ParseError
from tests.host.parsers.samples import NCCL


def test_a_dump_of_nccl() -> None:
    topology = parse_nccl_topology(NCCL)
    assert topology.cpus == (
        NcclCpu(0, tuple(range(16)), "0000ffff", 2),
        NcclCpu(None, None, "", 16),
    )
    switch = "0000:15:01.0"
    assert topology.devices == (
        NcclDevice(switch, 0, (), 0x060400, 32.0, 16, line=3),
        NcclDevice(
            "0000:18:00.0",
            0,
            (switch,),
            0x030200,
            32.0,
            16,
            0,
            3,
            line=4,
            links=(NcclLink("nvlink", "", 18, 0x068000),),
        ),
        NcclDevice("0000:17:00.0", 0, (switch,), 0x020700, None, 16, nets=("mlx5_0",), line=9),
    )
    assert [device.is_gpu for device in topology.devices] == [False, True, False]


@pytest.mark.parametrize(
    ("element", "link"),
    [
        (
            '<nvlink target="00000000:3B:00.0" count="4" tclass="0x030200"/>',
            NcclLink("nvlink", "0000:3b:00.0", 4, 0x030200),
        ),
        ('<xgmi target="0000:26:00.0" count="1"/>', NcclLink("xgmi", "0000:26:00.0", 1)),
        ('<nvlink target="fffffff:ffff:ff" count="١"/>', NcclLink("nvlink", "", 0)),
        ('<nvlink count="99999" tclass="wide"/>', NcclLink("nvlink", "", 0)),
    ],
)
def test_links_of_a_gpu(element: str, link: NcclLink) -> None:
    text = f'<system><cpu><pci busid="0:1:0.0"><gpu dev="0">{element}</gpu></pci></cpu></system>'
    (device,) = parse_nccl_topology(text.encode()).devices
    assert device.links == (link,)
    # Outside of a device it belongs to nothing.
    assert parse_nccl_topology(f"<system>{element}</system>".encode()).devices == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not XML"),
        ("<system>", "not XML"),
        ("<graph/>", 'line 1: the first element is not "system"'),
        ('<system><pci busid="18:00"/></system>', "it is not domain:bus:device.function"),
        ("<system><cpu><pci/></cpu></system>", "it is not domain:bus:device.function"),
        ('<system>\n<cpu affinity="wide"/></system>', "line 2: bad"),
        ('<system><cpu numaid="one"/></system>', "numaid is not a number"),
        ('<system><cpu numaid="\u0661"/></system>', "numaid is not a number"),
        ('<!DOCTYPE s [<!ENTITY a "b">]><system version="&a;"/>', "a document type is in it"),
        ('<!DOCTYPE system SYSTEM "file:///etc/passwd"><system/>', "a document type is in it"),
        ('<?xml version="1.0" encoding="no-such"?><system/>', ""),
        ("<system>" + "<pci busid='0:0:0.0'>" * 80 + "</pci>" * 80 + "</system>", "so many parts"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_nccl_topology(text.encode())
    assert reason in str(error.value)


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 300),
            st.sets(st.integers(0, 200), min_size=1),
            st.lists(st.integers(0, 255), max_size=3),
        ),
        max_size=4,
    )
)
def test_every_machine_is_read_back(cpus: list[tuple[int, set[int], list[int]]]) -> None:
    text = "<system>"
    for node, members, buses in cpus:
        mask = f"{sum(1 << cpu for cpu in members):x}"
        words = [mask[max(0, end - 8) : end] for end in range(len(mask), 0, -8)][::-1]
        text += f'<cpu numaid="{node}" affinity="{",".join(words)}">'
        text += "".join(f'<pci busid="0000:{bus:02X}:00.0"/>' for bus in buses) + "</cpu>"
    topology = parse_nccl_topology(f"{text}</system>".encode())
    assert [(cpu.node, cpu.cpus) for cpu in topology.cpus] == [
        (None if node < 0 else node, tuple(sorted(members))) for node, members, _ in cpus
    ]
    assert [(device.cpu, device.address) for device in topology.devices] == [
        (at, f"0000:{bus:02x}:00.0") for at, (_, _, buses) in enumerate(cpus) for bus in buses
    ]
