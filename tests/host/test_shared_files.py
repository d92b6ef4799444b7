import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from numadoctor.host.parsers import parse_mounts
from numadoctor.host.shared_files import SHM, _folders, _hidden, shared_files

MIB = 1 << 20


@pytest.fixture
def segment() -> Path:
    if not os.access(SHM, os.W_OK):
        pytest.skip(f"{SHM} cannot be written")
    return Path(SHM) / f"numadoctor-test-segment-{os.getpid()}"


def told(path: Path) -> dict[str, object] | None:
    return next((one for one in shared_files()["files"] if one["path"] == str(path)), None)


def test_a_file_is_used_while_it_is_open_or_mapped(segment: Path) -> None:
    try:
        with segment.open("wb+") as stream:
            stream.truncate(2 * MIB)
            assert told(segment) == {
                "path": str(segment), "bytes": 2 * MIB, "uid": os.getuid(), "used": True,
            }  # fmt: skip
            area = mmap.mmap(stream.fileno(), 2 * MIB)
        found = told(segment)
        assert found is not None
        assert found["used"] is True
        area.close()
        found = told(segment)
        assert found is not None
        assert found["used"] is False
    finally:
        segment.unlink()


def test_small_files_and_other_things_are_left_out(segment: Path) -> None:
    try:
        segment.write_bytes(b"lock")
        assert told(segment) is None
        segment.unlink()
        os.mkfifo(segment)
        assert told(segment) is None
    finally:
        segment.unlink()


def test_who_could_not_be_looked_into_is_counted() -> None:
    found = shared_files()
    assert found["unread"] >= 0
    assert all(set(one) == {"path", "bytes", "uid", "used"} for one in found["files"])


@pytest.mark.parametrize(
    ("mounts", "folders"),
    [
        (b"", [SHM]),
        (b"t / tmpfs rw 0 0\n", [SHM]),
        (b"o / overlay rw 0 0\n", []),
        (b"o / overlay rw 0 0\nd /dev devtmpfs rw 0 0\n", [SHM]),
        (b"b / btrfs rw 0 0\ns /dev/shm tmpfs rw 0 0\nh /huge hugetlbfs rw 0 0\n", [SHM, "/huge"]),
        (b"s /dev/shm tmpfs rw 0 0\nb /dev/shm btrfs rw 0 0\n", []),
    ],
)
def test_files_of_disks_are_no_memory(mounts: bytes, folders: list[str]) -> None:
    assert _folders(parse_mounts(mounts)) == folders


@pytest.mark.parametrize(
    ("option", "user", "hidden"),
    [
        ("hidepid=2", 1000, True),
        ("hidepid=invisible,gid=9", 1000, True),
        ("hidepid=ptraceable", 1000, True),
        ("hidepid=1", 1000, False),  # listed, and cannot be read: counted
        ("noexec", 1000, False),
        ("hidepid=2", 0, False),
    ],
)
def test_processes_that_proc_hides_may_use_a_file(
    option: str, user: int, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[4026531836]")
    mounts = parse_mounts(f"proc /proc proc rw,{option} 0 0\n".encode())
    assert bool(_hidden(mounts)) is hidden


def test_from_a_pid_namespace_not_all_processes_are_seen() -> None:
    command = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    probe = subprocess.run([*command, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no pid namespace of one's own here")
    code = "from numadoctor.host.shared_files import shared_files; print(shared_files()['hidden'])"
    told = subprocess.check_output([*command, sys.executable, "-c", code], text=True)
    assert "pid namespace" in told
    assert _hidden(()) == "" or os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
