"""Files that a person names: no FIFO that nobody writes to keeps a command waiting."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from numadoctor.host.given import read_given

# Each way to name a file.
_NAMED = [
    ("check", "--sysroot", "sample:two-socket", "--no-config", "--expect"),
    ("check", "--sysroot", "sample:two-socket", "--config"),
    ("check", "--sysroot", "sample:two-socket", "--no-config", "--baseline"),
    ("topology", "--from"),
    ("syscalls", "--seccomp-profile"),
    ("maps", "--diff", os.devnull),
]


def test_a_fifo_without_a_writer_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_given(str(tmp_path / "fifo"), 10) == b""


def test_what_is_larger_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * ((1 << 20) + 1))
    assert len(read_given(str(file), (1 << 20) + 1)) == (1 << 20) + 1
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_given(str(file), 1 << 20)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(OSError, match="no file can have this name"):
        read_given("a\0b", 10)


def test_a_dash_is_standard_input_where_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "-").write_bytes(b"file")
    monkeypatch.chdir(tmp_path)
    assert read_given("-", 10) == b"file"
    with open(os.devnull) as empty:
        monkeypatch.setattr(sys, "stdin", empty)
        assert read_given("-", 10, dash=True) == b""
    # As Python has it where a program is started without one.
    monkeypatch.setattr(sys, "stdin", None)
    assert read_given("-", 10, dash=True) == b""


def test_who_writes_late_is_waited_for(tmp_path: Path) -> None:
    read, write = os.pipe()

    def late() -> None:
        time.sleep(0.2)
        os.write(write, b"late")
        os.close(write)

    writer = threading.Thread(target=late)
    writer.start()
    assert read_given(f"/dev/fd/{read}", 10) == b"late"
    writer.join()
    assert os.get_blocking(read)
    os.close(read)


@pytest.mark.parametrize("command", _NAMED, ids=" ".join)
@pytest.mark.parametrize("kind", ["fifo", "endless", "folder", "loop"])
def test_no_file_keeps_a_command_busy(tmp_path: Path, command: tuple[str, ...], kind: str) -> None:
    file = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "endless":
        file = Path("/dev/zero")
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(file)
    arguments = [str(file) if word == os.devnull else word for word in command]
    done = subprocess.run(
        [sys.executable, "-m", "numadoctor", *arguments, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    told = done.stderr.strip().splitlines()[-1] if done.stderr else ""
    if kind == "fifo" and "--config" in command:  # no settings, as in an empty file
        assert done.returncode == 0
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert told.startswith("Error: ")
    assert "Traceback" not in done.stderr
