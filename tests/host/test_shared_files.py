import mmap
import os
from pathlib import Path

import pytest

from numadoctor.host.shared_files import SHM, shared_files

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
