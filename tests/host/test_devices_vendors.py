import re
from pathlib import Path

import numadoctor.host.devices.vendors
from numadoctor.host.devices.vendors import device_kind, vendor_name, vendors

TABLE = Path(numadoctor.host.devices.vendors.__file__).with_name("vendors.tsv")


def test_the_table_is_well_formed() -> None:
    lines = [line for line in TABLE.read_text().splitlines() if line[:1] != "#"]
    kind = "(gpu|accelerator|nic|storage|other)"
    line = re.compile(rf"[0-9a-f]{{4}}\t[^\t]+(\t[0-9a-f]{{4}}(/[0-9a-f]{{4}})?={kind})*")
    assert [text for text in lines if not line.fullmatch(text)] == []
    ids = [text[:4] for text in lines]
    assert len(set(ids)) == len(ids) == len(vendors())


def test_names() -> None:
    assert vendor_name(0x10DE) == "NVIDIA"
    assert vendor_name(0x1DA3) == "Habana"
    assert vendor_name(0xFFFF) == ""


def test_chips_of_management_controllers_are_no_gpus() -> None:
    # ASPEED, Matrox, Huawei's iBMC; a Huawei NPU stays an accelerator.
    assert {device_kind(0x030000, vendor) for vendor in (0x1A03, 0x102B, 0x19E5)} == {"other"}
    assert device_kind(0x120000, 0x19E5, 0xD802) == "accelerator"


def test_one_device_of_a_vendor_by_its_id() -> None:
    assert device_kind(0x088000, 0x1D0F, 0x7164) == "accelerator"
    assert device_kind(0x088000, 0x1D0F, 0x1234) == "other"
    assert device_kind(0x020000, 0x1D0F, 0xEFA2) == "nic"
    # QuickAssist computes nothing for a model; Xeon Phi has the same class.
    assert device_kind(0x0B4000, 0x8086, 0x4940) == "other"
    assert device_kind(0x0B4000, 0x8086, 0x2250) == "accelerator"
