import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from numadoctor.cli import main
from tests.cli.programs import Done, environment, in_process
from tests.lab.guest_victims import MIB, private, shared, victim
from tests.placement.captured import engine
from tests.placement.test_live import WHY_NOT
from tests.schemas import validate
from tests.trees import Tree

LIVE = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
Run = Callable[..., Done]

# The keys that were promised to other programs.
PROCESS_KEYS = {"pid", "name"}
MAPPING_KEYS = {
    "start", "end", "kind", "name", "policy", "page_size", "bytes_by_node", "method", "samples",
    "run_length_bytes", "attachers",
}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("COLUMNS", "NO_COLOR", "NUMADOCTOR_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: in_process(capsys, main, "maps", *arguments)


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    files = {path: text for path, text in engine().items() if path != "/proc"}
    return Tree(files=files).build(tmp_path / "host")


def as_json(done: Done, code: int = 0) -> Any:
    assert (done.code, done.err) == (code, "")
    data = json.loads(done.out)
    validate("maps", data)
    return data


def test_a_captured_process_with_its_descendants(run: Run, captured: Path) -> None:
    done = run("10", "--sysroot", captured)
    assert (done.code, done.err) == (0, "")
    first = done.out.splitlines()[0]
    assert "pid 10 engine (3 processes, 9 threads): 280.1 MiB resident" in first
    assert "/dev/shm/pool" in done.out
    assert "interleave:0-1" in done.out


def test_a_captured_process_alone(run: Run, captured: Path) -> None:
    data = as_json(run("10", "--no-tree", "--sysroot", captured, "-o", "json"))
    assert data["pid"] == 10
    assert [process["pid"] for process in data["processes"]] == [10]
    assert data["nodes"].keys() == {"0", "1"}
    assert data["nodes"]["0"].keys() >= {"bytes", "low", "high"}
    for process in data["processes"]:
        assert process.keys() >= PROCESS_KEYS
    assert len(data["mappings"]) == 4
    for mapping in data["mappings"]:
        assert mapping.keys() >= MAPPING_KEYS


@pytest.mark.parametrize(
    ("options", "pids"),
    [
        (["--name", "port 1[12]"], [11, 12]),
        (["--unit", "engine", "--no-tree"], [1, 10, 11, 12]),
        (["--cgroup", "/system.slice", "--no-tree"], [1, 10, 11, 12]),
        (["11"], [11, 12]),
        (["11", "10"], [11, 12, 10]),
    ],
)
def test_processes_are_chosen_in_many_ways(
    run: Run, captured: Path, options: list[str], pids: list[int]
) -> None:
    code = 3 if 1 in pids else 0  # of init nothing was captured
    data = as_json(run(*options, "--sysroot", captured, "-o", "json"), code)
    assert [process["pid"] for process in data["processes"]] == pids


def test_rows_by_kind_and_by_node(run: Run, captured: Path) -> None:
    kind = run("10", "--by", "kind", "--sysroot", captured).out
    assert "mappings" in kind
    assert "[heap]" not in kind
    node = run("10", "--by", "node", "--sysroot", captured).out
    assert "posix" in node
    assert "[heap]" not in node


def test_small_mappings_are_told_by_kind(run: Run, captured: Path) -> None:
    text = run("10", "--min-size", "64M", "--sysroot", captured).out
    assert "[anon:weights]" not in text
    assert "smaller" in text
    data = as_json(run("10", "--min-size", "64M", "--sysroot", captured, "-o", "json"))
    assert [mapping["name"] for mapping in data["mappings"]] == ["/dev/shm/pool"]


def test_what_is_not_there_is_incomplete(run: Run, captured: Path) -> None:
    done = run("999", "--sysroot", captured)
    assert done.code == 3
    assert "not examined: pid 999: no such process" in done.out
    done = run("--name", "nothing-like-it", "--sysroot", captured)
    assert done.code == 3
    assert "not examined: no process matches nothing-like-it" in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a PID"),
        (["1", "--exact", "--sampled"], "exclude each other"),
        (["1", "--min-size", "much"], "much"),
        (["0"], "0"),
        (["--name", "("], "bad name pattern"),
        (["--container", "web"], "bad container id"),
        (["1", "--watch", "1", "--sysroot", "sample:two-socket"], "nothing changes"),
        (["1", "--by", "size"], "size"),
        (["--diff", "/nonexistent", "/nonexistent"], "nonexistent"),
        (["--diff", "/etc/passwd", "/etc/passwd"], "bad output of numadoctor maps"),
    ],
)
def test_wrong_use_is_said_in_one_line(run: Run, arguments: list[str], told: str) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_two_outputs_are_compared(run: Run, captured: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("before", "after")]
    assert run("10", "--sysroot", captured, "-o", f"json={files[0]}").code == 0
    numa = captured / "proc/10/numa_maps"
    numa.write_text(numa.read_text().replace("N1=2048", "N0=1024 N1=1024"))
    assert run("10", "--sysroot", captured, "-o", f"json={files[1]}").code == 0
    text = run("--diff", *files).out
    assert "4 MiB moved between nodes" in text
    assert "[anon:weights]: node 0 +4 MiB, node 1 -4 MiB" in text
    data = json.loads(run("--diff", *files, "-o", "json").out)
    (change,) = data["changes"]
    assert change["bytes_by_node"] == {"0": 4 * MIB, "1": -4 * MIB}


@LIVE
def test_a_live_process_counted_and_sampled(run: Run) -> None:
    with victim(lambda: shared(8 * MIB).touch().start) as (pid, start):
        for option, methods in (("--exact", {"exact"}), ("--sampled", {"sampled", "per-page"})):
            data = as_json(run(str(pid), option, "--seed", "3", "-o", "json"))
            (pool,) = (m for m in data["mappings"] if m["start"] == start)
            assert pool["method"] in methods
            assert pool["kind"] == "shared-anonymous"
            assert pool["bytes_by_node"] == {"0": 8 * MIB}
            assert data["seed"] == 3


@LIVE
def test_numbers_of_the_sample_can_be_set(run: Run) -> None:
    with victim(lambda: private(64 * MIB).touch().start) as (pid, start):
        found = []
        for samples in ("100", "5000"):
            options = ["--sampled", "--samples", samples, "--min-size", "1M"]
            data = as_json(run(str(pid), *options, "-o", "json"))
            (own,) = (m for m in data["mappings"] if m["start"] <= start < m["end"])
            found.append(own["samples"])
    assert found[0] < found[1]


def lines_of(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


@LIVE
def test_watching_tells_what_grew_and_ends_with_the_process() -> None:
    code = (
        "import mmap, sys, time\n"
        "sys.stdin.readline()\n"
        "pool = mmap.mmap(-1, 32 << 20)\n"
        "pool.write(b'1' * (32 << 20))\n"
        "sys.stdin.readline()\n"
    )
    target = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True)
    watch = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "numadoctor",
            "maps",
            str(target.pid),
            "--watch",
            "0.3",
            "-o",
            "json",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert target.stdin is not None
    (first,) = lines_of(watch, 1)
    target.stdin.write("\n")
    target.stdin.flush()
    seen = json.loads(first)["resident_bytes"]
    grown = seen
    deadline = time.monotonic() + 60
    while grown < seen + 30 * MIB and time.monotonic() < deadline:
        (line,) = lines_of(watch, 1)
        grown = json.loads(line)["resident_bytes"]
    assert grown >= seen + 30 * MIB
    target.stdin.close()
    target.wait(30)
    assert watch.wait(60) == 0


@LIVE
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_cleanly_with_a_sum(number: int) -> None:
    with victim(lambda: shared(8 * MIB).touch().start) as (pid, _):
        watch = subprocess.Popen(
            [sys.executable, "-m", "numadoctor", "maps", str(pid), "--watch", "0.2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            # What a shell starts in the background inherits that Ctrl-C is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert watch.stdout is not None
        for line in watch.stdout:
            # The second look has been told.
            if " s: " in line and "resident" in line and "pid" not in line:
                break
        watch.send_signal(number)
        rest, errors = watch.communicate(timeout=60)
    assert watch.returncode == 0
    assert errors == ""
    # On a busy machine the process may have grown meanwhile: then its mappings follow.
    assert any(line.startswith("in all, ") for line in rest.splitlines())


@LIVE
def test_watching_waits_for_a_process_to_start() -> None:
    name = f"numadoctor-test-{os.getpid()}-{time.monotonic_ns()}"
    watch = subprocess.Popen(
        [sys.executable, "-m", "numadoctor", "maps", "--name", name, "--watch", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert watch.stderr is not None
    assert "waiting for a process to start" in watch.stderr.readline()
    code = "import sys; sys.stdin.readline()"
    target = subprocess.Popen([sys.executable, "-c", code, name], stdin=subprocess.PIPE, text=True)
    (first,) = lines_of(watch, 1)
    assert f"pid {target.pid}" in first
    target.communicate("\n", 30)
    rest, _ = watch.communicate(timeout=60)
    assert watch.returncode == 0
    assert "in all, " in rest


def test_watching_what_is_not_there_is_incomplete(run: Run) -> None:
    assert run(str(2**22 + 1), "--watch", "1").code == 3


@pytest.mark.parametrize("by", ["mapping", "kind", "node"])
def test_of_what_is_not_examined_nothing_is_told(run: Run, by: str) -> None:
    done = run(str(2**22 + 1), "--by", by)
    assert done.code == 3
    assert "not examined: " in done.out
    assert "0 B" not in done.out
    assert "counted" not in done.out
