import errno
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import FolderRoot, Host, sysctl_path
from numadoctor.host.parsers import parse_integer
from numadoctor.host.root import ERRORS, FACTS
from numadoctor.model import Denied, Evidence, Malformed, Missing, ParseError, Undecided, Vanished
from tests.memory import MemoryRoot


def host_of(tmp_path: Path, files: dict[str, str | bytes]) -> Host:
    for path, content in files.items():
        place = tmp_path / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return Host(FolderRoot(str(tmp_path)))


@pytest.mark.parametrize("ask", ["read", "list", "link", "text"])
def test_an_answer_is_asked_for_once(ask: str) -> None:
    root = MemoryRoot({"/file": b"x"})
    host = Host(root)
    assert getattr(host, ask)("/file") == getattr(host, ask)("/file")
    assert root.asked == ["/file"]


@pytest.mark.parametrize("ask", ["read", "list", "link", "integer"])
def test_an_error_is_remembered_too(ask: str) -> None:
    root = MemoryRoot({"/file": Denied("/file", errno.EACCES)})
    host = Host(root)
    for _ in range(3):
        with pytest.raises(Denied) as caught:
            getattr(host, ask)("/file")
    # The third raise does not drag the first two along.
    assert len(caught.traceback) <= 6
    assert root.asked == ["/file"]


def test_a_file_that_changes_gives_one_answer() -> None:
    root = MemoryRoot({"/file": b"1"})
    host = Host(root)
    assert host.integer("/file") == 1
    root.files["/file"] = b"2"
    assert host.integer("/file") == 1
    assert host.text("/file") == "1"


def test_reads_tell_all_that_was_asked_for() -> None:
    denied = Denied("/closed", errno.EACCES)
    host = Host(MemoryRoot({"/file": b"x", "/closed": denied}))
    host.read("/file")
    for path in ("/closed", "/absent"):
        with pytest.raises(Undecided):
            host.read(path)
    assert set(host.reads) == {"/file", "/closed", "/absent"}
    assert host.reads["/file"] == b"x"
    assert host.reads["/closed"] is denied
    assert isinstance(host.reads["/absent"], Missing)


def test_parsing_happens_once_a_parser() -> None:
    seen: list[bytes] = []

    def parser(data: bytes) -> int:
        seen.append(data)
        return len(data)

    host = Host(MemoryRoot({"/file": b"123"}))
    assert (host.parse("/file", parser), host.parse("/file", parser)) == (3, 3)
    assert host.parse("/file", parse_integer) == 123
    assert seen == [b"123"]


def test_what_a_parser_refuses_is_malformed() -> None:
    host = Host(MemoryRoot({"/file": b"twelve"}))
    with pytest.raises(Malformed, match=r"cannot understand /file: .*twelve"):
        host.integer("/file")


@given(st.binary())
def test_no_bytes_get_past_the_errors_of_the_model(data: bytes) -> None:
    host = Host(MemoryRoot({"/file": data}))
    asked = [host.integer, host.ids, host.choice, host.text, host.sysctl, host.evidence]
    errors = []
    for ask in asked:
        try:
            ask("/file")
        except Undecided as error:
            errors.append((type(error), error.path))
    assert set(errors) <= {(Malformed, "/file"), (Missing, "/proc/sys//file")}


def test_ready_made_questions(tmp_path: Path) -> None:
    host = host_of(
        tmp_path,
        {
            "/n": "0x10\n",
            "/ids": "0-2,8\n",
            "/choice": "always [madvise] never\n",
            "/text": b" a\xffb\0\n",
            "/proc/sys/vm/swappiness": "60\n",
            "/proc/self/status": "Name:\tnumadoctor\nUid:\t1\t2\t3\t4\n",
            "/proc/7/status": "Name:\tvllm\n",
            "/proc/7/environ": "A=1\0B=x=y\0",
        },
    )
    assert host.integer("/n") == 16
    assert host.ids("/ids") == (0, 1, 2, 8)
    assert host.choice("/choice").selected == "madvise"
    assert host.text("/text") == "a\\xffb"
    assert host.sysctl("vm.swappiness") == 60
    assert host.status().name == "numadoctor"
    assert host.status("/proc/7").name == "vllm"
    assert host.environ("/proc/7") == {"A": "1", "B": "x=y"}
    assert sysctl_path("kernel.numa_balancing") == "/proc/sys/kernel/numa_balancing"


def test_has_tells_absence_from_not_knowing(tmp_path: Path) -> None:
    host = host_of(tmp_path, {"/dir/file": "", ERRORS: json.dumps({"/closed": errno.EACCES})})
    assert host.has("/dir")
    assert not host.has("/absent")
    assert not host.has("/dir/file")
    with pytest.raises(Denied):
        host.has("/closed")


def test_optional_is_none_only_for_what_is_missing() -> None:
    host = Host(MemoryRoot({"/n": "5", "/bad": "?", "/closed": Denied("/closed", errno.EACCES)}))
    assert host.optional(host.integer, "/n") == 5
    assert host.optional(host.integer, "/absent") is None
    with pytest.raises(Malformed):
        host.optional(host.integer, "/bad")
    with pytest.raises(Denied):
        host.optional(host.integer, "/closed")


def test_evidence_is_what_was_read() -> None:
    host = Host(MemoryRoot({"/file": "1\n", "/closed": Denied("/closed", errno.EACCES)}))
    assert host.evidence("/file") == Evidence("/file", "1")
    assert host.evidence("/closed") == Evidence("/closed", "Permission denied")
    assert host.evidence("/absent") == Evidence("/absent", "No such file or directory")


def test_evidence_names_lines_by_their_start() -> None:
    host = Host(
        MemoryRoot({"/status": b"Name:\tx\n  Seccomp:\t2\nSeccomp_filters:\t1\nUid: Seccomp\n"})
    )
    assert host.evidence("/status", "Seccomp:").text == "  Seccomp:\t2"
    assert host.evidence("/status", "Name", "Uid").text == "Name:\tx\nUid: Seccomp"
    assert host.evidence("/status", "Cap", "Mems").text == "no line starts with Cap or Mems"


@pytest.mark.parametrize(("length", "shown"), [(239, 239), (240, 240), (241, 240), (10**6, 240)])
def test_evidence_is_short(length: int, shown: int) -> None:
    text = Host(MemoryRoot({"/file": b"x" * length})).evidence("/file").text
    assert len(text) == shown
    assert text.endswith("...") is (length > shown)


def test_a_fact_of_a_captured_folder_is_its_file(tmp_path: Path) -> None:
    host = host_of(
        tmp_path,
        {
            f"{FACTS}/syscalls.json": '{"mbind": 0}',
            f"{FACTS}/bad.json": "{",
            f"{FACTS}/deep.json": "[" * 100_000,
            f"{FACTS}/latin.json": b'"\xff"',
        },
    )
    assert host.fact("syscalls") == {"mbind": 0}
    assert host.fact("syscalls") is host.fact("syscalls")
    for name in ("bad", "deep", "latin"):
        with pytest.raises(Malformed, match="not JSON"):
            host.fact(name)
    with pytest.raises(Missing, match=r"absent\.json: .*captured folder.*run numadoctor"):
        host.fact("absent")


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"/proc/sys/kernel/hostname": "gpu-07\n"}, "gpu-07"),
        ({"/proc/sys/kernel/hostname": "\n"}, "folder"),
        ({"/etc/x": ""}, "folder"),
    ],
)
def test_the_name_is_the_machines_or_the_folders(
    tmp_path: Path, files: dict[str, str | bytes], name: str
) -> None:
    assert host_of(tmp_path / "folder", files).name == name


def test_a_host_without_a_name() -> None:
    assert Host(MemoryRoot(label="")).name == "this machine"


def test_the_default_host_is_this_machine() -> None:
    host = Host()
    assert host.live
    assert host.name == Path("/proc/sys/kernel/hostname").read_text().strip()
    assert host.topology is host.topology


def test_parse_errors_of_other_kinds_are_not_swallowed() -> None:
    def broken(data: bytes) -> int:
        raise KeyError("a defect of the parser")

    with pytest.raises(KeyError):
        Host(MemoryRoot({"/file": b"x"})).parse("/file", broken)

    def refuses(data: bytes) -> int:
        raise ParseError("number", data, "no")

    with pytest.raises(Malformed):
        Host(MemoryRoot({"/file": b"x"})).parse("/file", refuses)


@pytest.mark.parametrize(
    ("state", "threads", "ended"),
    [("Z (zombie)", 1, True), ("X (dead)", 1, True), ("Z (zombie)", 2, False), ("S", 1, False)],
)
def test_a_process_that_only_its_parent_remembers_has_ended(
    state: str, threads: int, ended: bool
) -> None:
    text = f"Name:\tx\nState:\t{state}\nThreads:\t{threads}\nSeccomp:\t0\n"
    host = Host(MemoryRoot({"/proc/7/status": text.encode()}))
    with pytest.raises(Vanished) if ended else nullcontext():
        assert host.status("/proc/7").seccomp == 0
