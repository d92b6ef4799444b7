import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import parse_policy
from numadoctor.model import ParseError
from numadoctor.model.placement import Attacher, Cell, Kind, Process, Share
from numadoctor.placement.difference import difference
from numadoctor.placement.group import by_kind
from numadoctor.placement.load import load_placement
from numadoctor.report.json import dump
from numadoctor.report.maps import data
from tests.placement.made import GIB, mapping, whole

PLACEMENT = whole(
    mapping(Kind.SYSV, {0: GIB, 8: GIB}, name="/SYSV00000000 (deleted)", policy="interleave:0,8"),
    mapping(shares={0: Share(GIB, GIB // 2, 2 * GIB, 1.0, 0.9, 1.0)}, policy=None),
    processes=(Process(4242, "vllm", minor_faults=5, swapped=None),),
)
TEXT = dump(data(PLACEMENT, by_kind(PLACEMENT), "gpu-07", "0.1.0")).encode()


def test_what_was_written_is_read_back() -> None:
    read = load_placement(TEXT)
    assert read.nodes.keys() == PLACEMENT.nodes.keys()
    assert read.resident == PLACEMENT.resident
    assert [m.by_node for m in read.mappings] == [m.by_node for m in PLACEMENT.mappings]
    assert [m.mapping.name for m in read.mappings] == [m.mapping.name for m in PLACEMENT.mappings]
    assert [m.policy and m.policy.text for m in read.mappings] == ["interleave:0,8", None]
    assert read.processes[0].minor_faults == 5
    assert difference(PLACEMENT, read).changes == ()


def test_of_the_output_of_watch_the_last_look_counts() -> None:
    line = json.dumps(json.loads(TEXT)).encode()
    first = line.replace(b'"resident_bytes": ', b'"resident_bytes": 1')
    assert load_placement(first + b"\n" + line + b"\n").resident == PLACEMENT.resident


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"not json",
        b"{}\n{}\nx",
        b"[" * 100_000,
        TEXT.replace(b'"schema_version": 1', b'"schema_version": 2'),
        TEXT.replace(b'"kind": "sysv"', b'"kind": "odd"'),
        TEXT.replace(b'"page_size": 4096', b'"page_size": 1e999', 1),
        TEXT.replace(b'"processes": [', b'"processes": [7, '),
    ],
)
def test_other_text_is_refused_in_one_line(text: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        load_placement(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@given(st.data())
def test_damaged_text_is_read_or_refused(draws: st.DataObject) -> None:
    start = draws.draw(st.integers(0, len(TEXT)))
    end = draws.draw(st.integers(start, min(len(TEXT), start + 20)))
    middle = draws.draw(st.sampled_from([b"", b"1", b"null", b'"x"', b"{}", b"[]", b"-1", b"\xff"]))
    with suppress(ParseError):
        load_placement(TEXT[:start] + middle + TEXT[end:])


def test_what_checks_judge_by_is_read_back_as_it_was() -> None:
    policy = parse_policy("interleave:0-1")
    pool = mapping(Kind.HUGETLB, {0: GIB, 1: GIB}, name="/dev/hugepages/kv", page_size=2 << 20)
    pool = pool._replace(
        mapping=pool.mapping._replace(permissions="rw-s", device=(0, 0x2B), inode=12, offset=4096),
        policy=policy,
        run_length=2 << 20,
        strip=(Cell({0: 3, 1: 2}, 1), Cell({}, 5)),
        attachers=(Attacher(7, 4096, policy, {0: GIB, 1: GIB}), Attacher(8, 8192)),
        zero_bytes=0,
        swapped_bytes=4096,
        thp_bytes=0,
        remarks=("at least",),
    )
    process = Process(
        7, "vllm", 1000, (7, 1), 40, policy, 65_000, GIB, 4096, 8192, 5, 6, 7, problem="denied"
    )
    before = whole(
        pool, processes=(process,), incomplete=("pid 7: denied",), remarks=("without maps",)
    )
    after = load_placement(dump(data(before, by_kind(before), "gpu-07", "0.1.0")).encode())
    assert after.mappings == before.mappings
    assert after.processes == before.processes
    assert (after.incomplete, after.remarks) == (before.incomplete, before.remarks)


def test_an_older_output_is_read_without_what_it_lacks() -> None:
    document = json.loads(TEXT)
    for one in document["mappings"]:
        for key in ("attached", "strip", "run_length_bytes", "thp_bytes", "device", "inode"):
            del one[key]
    read = load_placement(json.dumps(document).encode())
    assert read.resident == PLACEMENT.resident
    assert read.mappings[0].attachers == ()
