import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host, LiveRoot
from numadoctor.model import ParseError
from numadoctor.placement.window import (
    Counts,
    Window,
    begin,
    dump_window,
    end,
    load_window,
)

COUNT = st.none() | st.integers(0, 1 << 60)
COUNTS = st.builds(Counts, COUNT, COUNT, COUNT, COUNT)
WINDOWS = st.builds(
    Window,
    st.floats(0.001, 1e6),
    st.dictionaries(st.integers(1, 1 << 22), COUNTS, max_size=5),
    st.dictionaries(st.sampled_from(["pswpin", "numa_pages_migrated"]), st.integers(0, 1 << 60)),
)


@given(window=WINDOWS)
def test_what_was_dumped_is_loaded(window: Window) -> None:
    assert load_window(dump_window(window).encode()) == window


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ParseError):
        load_window(data)


@given(
    document=st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["seconds", "processes", "minor_faults", "7"]), inner)
        ),
        max_leaves=10,
    )
)
def test_other_json_is_a_window_or_refused(document: object) -> None:
    try:
        window = load_window(json.dumps(document).encode())
    except ParseError:
        return
    assert window.seconds > 0


@pytest.mark.parametrize(
    "text",
    [
        b'{"seconds": 0, "processes": {}}',
        b'{"seconds": 1e999, "processes": {}}',
        b'{"seconds": 1, "processes": {"7": {"minor_faults": -1}}}',
        b'{"seconds": 1, "processes": [7]}',
        b'{"seconds": 1, "processes": {}, "machine": {"pswpin": -1}}',
        b'{"seconds": 1, "processes": {}, "machine": [1]}',
        b"[" * 100_000,
    ],
)
def test_what_makes_no_sense_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError):
        load_window(text)


def test_counters_that_run_backwards_add_nothing() -> None:
    assert Counts(5, None, 7, 2).since(Counts(9, 1, None, 1)) == Counts(0, None, None, 1)


def test_own_faults_are_seen() -> None:
    host = Host(LiveRoot())
    first = begin(host, [os.getpid()])
    before = time.monotonic()
    held = [bytearray(1 << 22) for _ in range(4)]
    window = end(host, first, 0.05)
    assert len(held) == 4
    assert window.seconds >= 0.05
    assert time.monotonic() - before >= 0.04
    # 16 MiB are at least 8 huge pages.
    assert (window.processes[os.getpid()].minor_faults or 0) >= 8


def test_who_is_gone_is_not_in_the_window() -> None:
    host = Host(LiveRoot())
    assert end(host, begin(host, [1 << 22]), 0.0).processes == {}
