"""XML: lstopo and NCCL, whole, damaged, hostile; and lstopo itself on captured machines."""

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.evidence import hwloc, nccl
from numadoctor.evidence.pasted import Pasted, Refused
from numadoctor.evidence.recognise import recognise
from numadoctor.evidence.xml import read_xml
from numadoctor.host import parsers
from tests.evidence.pastes import HWLOC, NCCL

CAPTURED = Path(__file__).parents[3] / "shared" / "hosts"


def one(text: str) -> Pasted:
    (pasted,), refused = recognise(text.encode())
    assert refused == ()
    return pasted


def test_lstopo() -> None:
    pasted = one("some words\n\n" + HWLOC + "\nmore words\n")
    assert [(n.id, n.cpus, n.memory_bytes) for n in pasted.nodes] == [
        (0, (0, 1), 4096),
        (8, (2, 3), 8192),
    ]
    assert pasted.nodes[1].distances == {0: 41, 8: 10}
    assert pasted.allowed == ((0, 1, 2, 3), (0, 8))
    assert pasted.online == (0, 1, 2, 3)
    gpu, nic = pasted.devices
    assert (gpu.address, gpu.kind, gpu.nodes) == ("0000:18:00.0", "gpu", (0,))
    assert gpu.path == nic.path == ("pci0000:10", "0000:10:01.0")
    assert (nic.kind, nic.names, nic.vendor) == ("nic", ("mlx5_0",), 0x15B3)


def test_nccl() -> None:
    pasted = one(NCCL)
    assert [(n.id, n.cpus) for n in pasted.nodes] == [(0, tuple(range(10)))]
    assert [(d.address, d.kind, d.nodes, d.names) for d in pasted.devices] == [
        ("0000:18:00.0", "gpu", (0,), ()),
        ("0000:19:00.0", "nic", (0,), ("mlx5_0",)),
        ("0000:98:00.0", "gpu", None, ()),
    ]


@pytest.mark.parametrize("text", [HWLOC, NCCL])
@given(data=st.data())
def test_a_document_that_is_cut_or_has_lost_lines(text: str, data: st.DataObject) -> None:
    lines = text.splitlines(keepends=True)
    cut = text[: data.draw(st.integers(0, len(text) - 20))]
    assert recognise(cut.encode())[0] == ()
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    whole = {node.id: node for node in one(text).nodes}
    for pasted in recognise("".join(lines).encode())[0]:
        for node in pasted.nodes:
            assert set(node.cpus or ()) <= set(whole[node.id].cpus or ())


BOMB = """<!DOCTYPE {0} [
 <!ENTITY a "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa">
 <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
]>
<{0} name="&b;"></{0}>
"""
OUTSIDE = '<!DOCTYPE {0} [\n<!ENTITY x SYSTEM "file:///etc/passwd">\n]>\n<{0}>&x;</{0}>\n'


@pytest.mark.parametrize("text", [BOMB, OUTSIDE])
@pytest.mark.parametrize("root", ["topology", "system"])
def test_entities_are_refused(text: str, root: str) -> None:
    found, refused = recognise(text.format(root).encode())
    assert found == ()
    assert len(refused) == 1
    assert "entity" in refused[0].reason or "document type" in refused[0].reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<topology>" * 200, "more elements"),
        (f"<topology a='{'x' * 70000}'/>", "longer value"),
        ("<topology><a></topology>", "not well-formed"),
        ("<topology/>", "no machine"),
    ],
)
def test_a_document_beyond_reason(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        hwloc.parse(text, 1)


def test_lines_are_those_of_the_pasted_text() -> None:
    assert read_xml("<a>\n<b/>\n</a>", 10).children[0].line == 11
    broken = "words\n" * 4 + NCCL.replace("0000:18:00.0", "nonsense")
    assert [refusal.line for refusal in recognise(broken.encode())[1]] == [8]


@given(st.text(max_size=200))
def test_any_text_as_a_document(text: str) -> None:
    for parse in (hwloc.parse, nccl.parse):
        for document in (text, f"<topology><object type='Machine'>{text}</object></topology>"):
            with contextlib.suppress(Refused):
                parse(document, 1)


def expected() -> dict[str, Any]:
    path = CAPTURED / "expected.json"
    return json.loads(path.read_text()) if path.exists() else {}


EXPECTED = expected()


@pytest.mark.skipif(
    not EXPECTED or not shutil.which("lstopo-no-graphics"),
    reason="needs the captured machines and lstopo, which is asked here what they are",
)
@pytest.mark.parametrize(
    "archive",
    [
        "128ia64-17n4s2c.tar.bz2",  # a node without CPUs
        "16amd64-8n2c.tar.bz2",
        "32amd64-4s2n4c-cgroup2.tar.bz2",  # six nodes of eight are allowed
        "fakeheteromemtiers.tar.bz2",  # nodes that are near the same CPUs
        "nvidiagpunumanodes.tar.bz2",
    ],
)
def test_lstopo_on_captured_machines(archive: str, scratch: Path) -> None:
    told = EXPECTED[archive]
    with tarfile.open(CAPTURED / archive) as tar:
        if hasattr(tarfile, "fully_trusted_filter"):
            tar.extraction_filter = tarfile.fully_trusted_filter
        tar.extractall(scratch)
    for flags in ([], ["--export-xml-flags", "v1"]):
        done = subprocess.run(
            ["lstopo-no-graphics", "--whole-io", "--of", "xml", *flags],
            env={
                **os.environ,
                "HWLOC_FSROOT": str(scratch / told["folder"]),
                "HWLOC_THISSYSTEM": "0",
                "HWLOC_COMPONENTS": "linux,stop",
            },
            capture_output=True,
            text=True,
            check=True,
        )
        is_told(one(done.stdout), told)


@pytest.mark.skipif(
    not EXPECTED or not shutil.which("lscpu"),
    reason="needs the captured machines and lscpu, which is asked here what they are",
)
@pytest.mark.parametrize(
    "archive", ["16amd64-8n2c.tar.bz2", "fakeheteromemtiers.tar.bz2", "nvidiagpunumanodes.tar.bz2"]
)
def test_lscpu_on_captured_machines(archive: str, scratch: Path) -> None:
    told = EXPECTED[archive]
    with tarfile.open(CAPTURED / archive) as tar:
        if hasattr(tarfile, "fully_trusted_filter"):
            tar.extraction_filter = tarfile.fully_trusted_filter
        tar.extractall(scratch)
    done = subprocess.run(
        ["lscpu", "--sysroot", str(scratch / told["folder"])],
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    nodes = {node.id: node.cpus for node in one(done.stdout).nodes}
    expected = {int(node): tuple(facts["cpus"]) for node, facts in told["nodes"].items()}
    assert nodes == expected


def is_told(pasted: Pasted, told: dict[str, Any]) -> None:
    allowed = set(told.get("allowed_cpus", range(parsers.MAX_ID)))
    nodes = {int(node): facts for node, facts in told["nodes"].items()}
    assert len(pasted.nodes) > 1
    for node in pasted.nodes:
        facts = nodes[node.id]
        assert node.memory_bytes == facts["memory_bytes"]
        # hwloc 2 gives both nodes that are near the same CPUs a subtype.
        assert node.cpus is not None or node.id in (2, 9)
        if node.cpus is not None:
            assert set(node.cpus) == set(facts["cpus"]) & allowed
        columns = dict(zip(sorted(nodes), facts["distance"], strict=False))
        assert all(columns.get(to) == d for to, d in node.distances.items())
    assert all(node.distances for node in pasted.nodes)


def test_links_between_the_gpus_of_a_topology_of_nccl() -> None:
    """Of two GPUs both have to tell; through switches the end with fewer links counts."""
    switches = [f'<nvlink target="0000:0{n}:00.0" count="{n}" tclass="0x068000"/>' for n in (4, 5)]
    links = {
        "10": '<nvlink target="0000:20:00.0" count="4" tclass="0x030200"/>',
        "20": '<nvlink target="0000:10:00.0" count="3" tclass="0x030200"/>',
        "30": "".join(switches),
        "40": switches[0],
        "50": '<xgmi target="0000:60:00.0" count="1" tclass="0x120000"/>',
        "60": '<xgmi target="0000:50:00.0" count="1" tclass="0x120000"/>',
        "70": '<nvlink target="0000:10:00.0" count="4" tclass="0x030200"/>',
    }
    text = '<system version="1"><cpu numaid="0">\n' + "\n".join(
        f'<pci busid="0000:{bus}:00.0" class="0x030200"><gpu dev="{n}" sm="90">{inside}</gpu></pci>'
        for n, (bus, inside) in enumerate(links.items())
    )
    pasted = one(text + "\n</cpu></system>\n")
    told = {("10", "20"): "NV3", ("30", "40"): "NV4", ("50", "60"): "XGMI"}
    told |= {(other, bus): word for (bus, other), word in told.items()}
    assert pasted.relations == {
        (f"0000:{bus}:00.0", f"0000:{other}:00.0"): word for (bus, other), word in told.items()
    }


def test_no_machine_has_so_many_gpus() -> None:
    gpus = "".join(
        f'<pci busid="{n:04x}:00:00.0"><gpu dev="0"><nvlink target="" count="9" tclass="0x068000"/>'
        "</gpu></pci>"
        for n in range(300)
    )
    assert nccl.parse(f"<system><cpu>{gpus}</cpu></system>", 1).relations == {}
