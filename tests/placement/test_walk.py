import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.cli.maps import command
from numadoctor.host.parsers import parse_grouped_numa_maps, parse_numa_maps
from numadoctor.host.root import READ_LIMIT
from numadoctor.model import Missing, TooLarge
from numadoctor.placement import ahead as ahead_module
from numadoctor.placement import walk
from numadoctor.placement.ahead import LIMIT, Ahead, begin, group
from numadoctor.placement.asker import Account
from numadoctor.placement.walk import read_numa_maps, take, task_policy

OWN = "/proc/self/numa_maps"
NUMA = pytest.mark.skipif(not Path(OWN).exists(), reason="this kernel has no NUMA support")


def starts(text: bytes) -> list[bytes]:
    """The addresses: counts may change between two reads, mappings do not."""
    return [line.split()[0] for line in text.splitlines()]


@NUMA
def test_every_way_of_reading_gives_the_same_mappings() -> None:
    account = Account()
    # A process that waits: this one maps and unmaps while it reads.
    line = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        path = f"/proc/{waiting.pid}/numa_maps"
        plain = read_numa_maps(path, account, gently=False)
        few = account.calls
        gently = read_numa_maps(path, account, gently=True)
        grouped = take(Ahead(path), account)
        waiting.communicate(b"\n")
    assert starts(plain) == starts(gently)
    assert not isinstance(grouped, bytes)
    assert sorted(starts(plain)) == sorted(b" ".join(group[2] for group in grouped).split())
    assert plain.endswith(b"\n")
    assert b"\0" not in plain
    # A line at a time or two.
    assert account.calls - few > len(starts(plain)) / 2
    assert few < 10
    assert account.longest > 0


def test_a_long_file_comes_in_many_parts(tmp_path: Path) -> None:
    text = b"".join(b"%012x default anon=1 N0=1 kernelpagesize_kB=4\n" % n for n in range(30_000))
    file = tmp_path / "numa_maps"
    file.write_bytes(text)
    assert read_numa_maps(str(file), Account(), gently=False) == text
    addresses = b" ".join(b"%012x" % n for n in range(30_000))
    said = b"default anon=1 N0=1 kernelpagesize_kB=4"
    assert Ahead(str(file)).take() == [(said, 30_000, addresses)]


def test_what_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    for read in (
        lambda path: read_numa_maps(path, Account(), gently=True),
        lambda path: take(Ahead(path), Account()),
        task_policy,
    ):
        with pytest.raises(Missing) as caught:
            read(str(tmp_path / "nothing"))
        assert caught.value.errno == errno.ENOENT


def test_a_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "READ_LIMIT", 1 << 20)
    monkeypatch.setattr(ahead_module, "LIMIT", 1 << 20)
    file = tmp_path / "endless"
    file.write_bytes(b"x" * (2 << 20))
    with pytest.raises(TooLarge):
        read_numa_maps(str(file), Account(), gently=False)
    with pytest.raises(TooLarge):
        take(Ahead(str(file)), Account())
    assert LIMIT == READ_LIMIT


def test_the_policy_of_a_task_is_that_of_its_first_mapping(tmp_path: Path) -> None:
    file = tmp_path / "numa_maps"
    file.write_text("00400000 bind:1 file=/bin/x\n10000000 default\n")
    policy = task_policy(str(file))
    assert policy is not None
    assert policy.text == "bind:1"
    for nothing in ("", "what is this\n"):
        file.write_text(nothing)
        assert task_policy(str(file)) is None


@NUMA
def test_the_policy_of_this_task() -> None:
    policy = task_policy(f"/proc/{os.getpid()}/task/{os.getpid()}/numa_maps")
    assert policy is not None
    assert policy.understood


def test_reading_ahead_keeps_the_error_for_whoever_asks(tmp_path: Path) -> None:
    ahead = Ahead(str(tmp_path / "nothing"))
    for _ in range(2):
        with pytest.raises(Missing):
            take(ahead, Account())


def refuse(*_: object) -> int:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize("call", ["fork", "memfd_create"])
def test_where_no_process_can_be_had_the_file_is_read_when_it_is_asked_for(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "numa_maps"
    file.write_bytes(b"1")
    monkeypatch.setattr(os, call, refuse)
    assert Ahead(str(file)).take() == b"1"


@pytest.mark.parametrize("end", [MemoryError, KeyboardInterrupt, SystemExit])
def test_whatever_ends_the_other_process_the_file_is_read_and_nothing_is_seen_of_it(
    end: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    parent = os.getpid()

    class Ends(ahead_module.Parts):
        def next(self) -> bytes:
            if os.getpid() != parent:
                raise end
            return super().next()

    file = tmp_path / "numa_maps"
    file.write_bytes(b"1")
    monkeypatch.setattr(ahead_module, "Parts", Ends)
    assert Ahead(str(file)).take() == b"1"
    assert capfd.readouterr() == ("", "")


def test_who_ignores_the_end_of_children_gets_the_file_too(tmp_path: Path) -> None:
    file = tmp_path / "numa_maps"
    file.write_bytes(b"7f00 default\n")
    former = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert Ahead(str(file)).take() == [(b"default", 1, b"7f00")]
    finally:
        signal.signal(signal.SIGCHLD, former)


_LINES = st.lists(
    st.builds(
        b" ".join,
        st.tuples(
            st.sampled_from(
                [b"7f00", b"0", b"00400000", b"f" * 16, b"f" * 17, b"7F00", b"-1", b""]
            ),
            st.sampled_from([b"default", b"bind:0 N0=1", b" ", b"", b"x y=\xff", b"a\0"]),
        ),
    )
    | st.sampled_from([b"", b"default", b"7f00"]),
    max_size=6,
)


@given(_LINES, st.booleans())
def test_lines_put_together_say_what_the_parser_reads(written: list[bytes], ended: bool) -> None:
    data = b"\n".join(written) + (b"\n" if ended else b"")
    grouped = group(data)
    if grouped is None:
        return
    assert parse_grouped_numa_maps(grouped) == parse_numa_maps(data).grouped


def test_a_file_of_the_kernel_is_put_together() -> None:
    data = b"7f00 default N0=1\n7f10 bind:0\n7f20 default N0=1\n"
    assert group(data) == [(b"default N0=1", 2, b"7f00 7f20"), (b"bind:0", 1, b"7f10")]


# No process has such an id: the highest is 2 ** 22 (include/linux/threads.h).
_PIDS = [str(2**22 + number) for number in range(1, 4)]
_WORDS = st.sampled_from(
    ["--exact", "--sampled", "--exact=", "--tree", "--seed", "--diff", "--name", "-o", "json",
     "--help", "--", "0", "-1", "+1", "²", "1e3", "9" * 40, "", *_PIDS]
)  # fmt: skip


def _begun(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes whose reading begins for a command line."""
    pids: list[int] = []
    monkeypatch.setattr(ahead_module, "_begun", {})
    begin(arguments)
    pids += ahead_module._begun
    return pids


@given(st.lists(_WORDS, max_size=4))
def test_reading_begins_before_a_command_line_is_understood_only_if_it_asks_for_it(
    arguments: list[str],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        pids = _begun(arguments, monkeypatch)
    if not pids:
        return
    context: click.Context = command.make_context("maps", list(arguments))
    assert list(context.params["pids"]) == pids
    assert context.params["exact"]
    assert not context.params["sampled"]
    assert context.params["sysroot"] is None


@pytest.mark.parametrize("arguments", [["--exact", _PIDS[0]], [_PIDS[0], "--exact"]])
def test_what_was_begun_is_taken_over_once(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (pid,) = _begun(arguments, monkeypatch)
    begun = ahead_module._begun[pid]
    assert Ahead.of_process(pid) is begun
    assert Ahead.of_process(pid) is not begun
