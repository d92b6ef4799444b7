import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model import Device, Report
from numadoctor.report.json import SCHEMA_VERSION, dump, report_data, topology_data
from tests.report.reports import CHARACTERS, FULL, HOSTILE, reports
from tests.schemas import validate

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(CHARACTERS) | HOSTILE,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(CHARACTERS), inner),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_ascii_and_strict_json(data: Any) -> None:
    text = dump(data)
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    # A strict reader takes it: encoding what was read needs no surrogates.
    read = json.loads(text)
    json.dumps(read, ensure_ascii=False).encode()


@given(st.text())
def test_text_comes_back(text: str) -> None:
    assert json.loads(dump({text: [text]})) == {text: [text]}


def test_bytes_that_were_no_utf8_stay_told_apart() -> None:
    assert json.loads(dump(b"a\xff\x80".decode("utf-8", "surrogateescape"))) == r"a\udcff\udc80"


@given(reports())
def test_any_report_follows_the_schema(report: Report) -> None:
    data = json.loads(dump(report_data(report, "1.0")))
    data["exit_code"] = 0 if data["exit_code"] == 2 else data["exit_code"]
    validate("check", data)


def test_the_whole_report() -> None:
    data = json.loads(dump(report_data(FULL, "9.9")))
    assert list(data) == [
        "schema_version", "numadoctor", "host", "target", "summary", "exit_code", "incomplete",
        "suppressed", "remarks", "findings",
    ]  # fmt: skip
    assert (data["schema_version"], data["numadoctor"]) == (SCHEMA_VERSION, "9.9")
    assert (data["host"], data["target"], data["exit_code"]) == ("gpu-07", "pid 4242 vllm", 1)
    assert data["summary"] == {
        "pass": 2, "info": 1, "warn": 2, "fail": 2, "unknown": 4, "skip": 1, "error": 1,
    }  # fmt: skip
    assert data["incomplete"] == ["pid 4343: no such process"]
    first = data["findings"][0]
    assert first["id"] == "E001"
    assert first["status"] == "fail"
    assert first["evidence"][0] == {"source": "system call mbind (237)", "text": "answers EPERM"}
    assert first["fixes"][1] == {
        "launcher": "kubernetes",
        "text": "securityContext:\n  capabilities: {add: [SYS_NICE]}",
        "needs_root": False,
        "needs_restart": True,
        "persists": True,
    }
    assert [f["message"] for f in data["findings"]] == [f.message for f in FULL.findings]


def test_a_report_holds_no_time() -> None:
    slow = Report(FULL.host, FULL.target, FULL.findings, 1, 99.0, FULL.incomplete)
    assert report_data(slow, "1.0") == report_data(FULL, "1.0")


def test_fingerprints_depend_on_id_and_subject_alone() -> None:
    prints = [f["fingerprint"] for f in report_data(FULL, "1.0")["findings"]]
    expected = [(f.id, f.subject) for f in FULL.findings]
    assert len(set(prints)) == len(set(expected))


@pytest.mark.parametrize(
    ("pci_class", "vendor", "shown"),
    [
        (0x030200, 0x10DE, ("0x030200", "0x10de")),
        (0x0, 0x8, ("0x000000", "0x0008")),
        (0x020000, 0, ("0x020000", None)),
    ],
)
def test_ids_of_devices_have_their_width(
    pci_class: int, vendor: int, shown: tuple[str, str | None]
) -> None:
    from numadoctor.host import Host, open_root

    topology = Host(open_root("sample:laptop")).topology
    device = Device("0000:01:00.0", pci_class, vendor, 0x2, "gpu", None, "numa_node is -1")
    data = topology_data(topology._replace(devices=(device,)), "h")
    validate("topology", data)
    (only,) = data["devices"]
    assert (only["class"], only["vendor"], only["device"]) == (*shown, "0x0002")
    assert only["node"] is None
