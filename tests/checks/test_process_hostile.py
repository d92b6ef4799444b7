"""Whatever /proc says of a process, its checks judge it or say that they cannot."""

import errno
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run
from numadoctor.host import Host, open_root
from numadoctor.host.root import Root
from numadoctor.model import Denied, Missing, Status, Target, Undecided
from tests.host.parsers.samples import EDITS, damaged

CHECKS = [check for check in discover() if check.id[:3] in ("P00", "P01", "P02")]
SAMPLE = open_root("sample:two-socket")
TOPOLOGY = Host(SAMPLE).topology

POLICIES = st.sampled_from(
    [
        "default", "local", "bind:0", "bind:1", "bind:7", "bind=static:0-1", "prefer:0", "prefer:9",
        "prefer (many):0-1", "interleave:0", "interleave:0-1", "interleave:0-1,9",
        "weighted interleave:0-1", "interleave:" + "0," * 30, "sideways:3", "bind:",
    ]
)  # fmt: skip
NAMES = st.sampled_from(
    [
        "", "[heap]", "[stack]", "/dev/shm/kv pool", "/SYSV00000000 (deleted)",
        "/dev/zero (deleted)", "/dev/hugepages/kv",
        "/anon_hugepage (deleted)", "/usr/lib/libc.so.6",
        "/models/a.safetensors", "/memfd:x\x1b[2J\nP001 (deleted)", "/dev/nvidia0", "[anon:pool]",
    ]
)  # fmt: skip
PAGES = st.dictionaries(st.sampled_from([0, 1, 2, 7]), st.integers(0, 1 << 24), max_size=3)
Made = tuple[str, str, dict[int, int], bool, bool]
MAPPING = st.tuples(NAMES, POLICIES, PAGES, st.booleans(), st.booleans())


class Overlay:
    """The files of a process over a sample host."""

    live, label = False, "overlay"

    def __init__(self, base: Root, files: Mapping[str, bytes | Undecided]) -> None:
        self.base, self.files = base, files

    def read(self, path: str, limit: int = 1 << 26) -> bytes:
        found = self.files.get(path)
        if isinstance(found, Undecided):
            raise found
        return self.base.read(path, limit) if found is None else found

    def list(self, path: str) -> tuple[str, ...]:
        if path.startswith("/proc/7/"):
            return tuple(self.read(path).decode("latin-1").split())
        return self.base.list(path)

    def link(self, path: str) -> str:
        return self.read(path).decode("latin-1")


def octal(name: str) -> str:
    for character, escape in ((" ", "\\040"), ("\n", "\\012"), ("=", "\\075")):
        name = name.replace(character, escape)
    return name


def process(mappings: list[Made]) -> dict[str, bytes]:
    maps, numa = [], []
    for number, (name, policy, pages, shared, huge) in enumerate(mappings):
        start = 0x7F0000000000 + (number << 38)
        size = max(1, sum(pages.values())) << (21 if huge else 12)
        inode = number + 5 if shared or name.startswith("/") else 0
        told = name.replace("\n", "\\012")
        maps.append(f"{start:x}-{start + size:x} rw-{'ps'[shared]} 00000000 00:1a {inode} {told}")
        file = f" file={octal(name)}" if name.startswith("/") else ""
        nodes = " ".join(f"N{node}={count}" for node, count in pages.items())
        kb = 2048 if huge else 4
        numa.append(
            f"{start:x} {policy}{file}{' huge' if huge else ''} {nodes} kernelpagesize_kB={kb}"
        )
    status = "Name:\tx\\ny\nPid:\t7\nVmRSS:\t900 kB\nVmSwap:\t99999 kB\nCpus_allowed_list:\t0-9\n"
    stat = f"7 (x) S 1 {'0 ' * 46}\n"
    return {
        "/proc/7/status": status.encode(),
        "/proc/7/stat": stat.encode(),
        "/proc/7/maps": "\n".join(maps).encode() + b"\n",
        "/proc/7/numa_maps": "\n".join(numa).encode() + b"\n",
        "/proc/7/cmdline": b"vllm\0--numa-bind\0--mlock\0",
        "/proc/7/environ": b"LIGHTLLM_ENABLE_NUMA_INTERLEAVE=1\0",
        "/proc/7/fd": b"0 9",
        "/proc/7/fd/0": b"/dev/null",
        "/proc/7/fd/9": b"/dev/nvidia4",
        "/proc/7/task": b"7 8",
        "/proc/7/task/7/status": status.encode(),
        "/proc/7/task/7/stat": stat.encode(),
        "/proc/7/task/8/status": status.replace("0-9", "0-31").encode(),
        "/proc/7/task/8/stat": stat.encode(),
        "/.numadoctor/window.json": b'{"seconds": 1, "processes": {"7": {"minor_faults": 99999, '
        b'"major_faults": 9, "migrated_pages": 500}}}',
    }


def judge(files: Mapping[str, bytes | Undecided]) -> None:
    host = Host(Overlay(SAMPLE, files))
    host.__dict__["topology"] = TOPOLOGY
    report = run(host, CHECKS, [Target(7, "x")])
    assert {f.id for f in report.findings} == {check.id for check in CHECKS}
    for finding in report.findings:
        assert finding.status is not Status.ERROR, finding.message
        assert "\n" not in finding.message
        assert len(finding.message) < 600
        if finding.status in (Status.WARN, Status.FAIL):
            assert finding.fixes
            assert finding.evidence


@given(mappings=st.lists(MAPPING, min_size=1, max_size=6))
def test_any_placement_is_judged(
    mappings: list[Made],
) -> None:
    judge(process(mappings))


FILES = sorted(process([]))
ENGINE = process(
    [
        ("", "default", {0: 1 << 19}, False, False),
        ("/dev/shm/x", "bind:0", {1: 1 << 19}, True, False),
    ]
)


@given(path=st.sampled_from(FILES), edits=EDITS)
def test_a_damaged_file_is_no_crash(path: str, edits: bytes) -> None:
    judge({**ENGINE, path: damaged(ENGINE[path], edits)})


@given(gone=st.sets(st.sampled_from(FILES)), denied=st.sets(st.sampled_from(FILES)))
def test_what_is_missing_or_denied_is_unknown(gone: set[str], denied: set[str]) -> None:
    files: dict[str, bytes | Undecided] = dict(ENGINE)
    files |= {path: Missing(path, errno.ENOENT) for path in gone}
    files |= {path: Denied(path, errno.EACCES) for path in denied}
    judge(files)
