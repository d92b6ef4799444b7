import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.cli.maps import command
from numadoctor.host.root import READ_LIMIT
from numadoctor.model import Missing, TooLarge
from numadoctor.placement import ahead as ahead_module
from numadoctor.placement import walk
from numadoctor.placement.ahead import LIMIT, Ahead, begin
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
        ahead = take(Ahead([path]), path, account)
        waiting.communicate(b"\n")
    assert starts(plain) == starts(gently) == starts(ahead)
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
    assert Ahead([str(file)]).take(str(file)) == text


def test_what_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    for read in (
        lambda path: read_numa_maps(path, Account(), gently=True),
        lambda path: take(Ahead([path]), path, Account()),
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
        take(Ahead([str(file)]), str(file), Account())
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
    there, nothing = tmp_path / "there", str(tmp_path / "nothing")
    there.write_bytes(b"1")
    ahead = Ahead([nothing, str(there)])
    assert nothing in ahead
    assert "other" not in ahead
    for _ in range(2):
        with pytest.raises(Missing):
            take(ahead, nothing, Account())
        assert take(ahead, str(there), Account()) == b"1"


def test_whatever_ends_the_reading_is_told_to_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoRoom:
        def __init__(self, _: int) -> None:
            raise MemoryError

    file = tmp_path / "numa_maps"
    file.write_bytes(b"1")
    monkeypatch.setattr(ahead_module, "Parts", NoRoom)
    ahead = Ahead([str(file), str(tmp_path / "nothing")])
    with pytest.raises(MemoryError):
        ahead.take(str(file))
    # The next one is read all the same.
    with pytest.raises(FileNotFoundError):
        ahead.take(str(tmp_path / "nothing"))


def test_where_no_thread_can_be_had_the_reading_is_done_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = tmp_path / "numa_maps"
    file.write_bytes(b"1")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert Ahead([str(file)]).take(str(file)) == b"1"


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
