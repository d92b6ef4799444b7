"""``numadoctor check`` of processes: whom it examines, once for all checks, and what it says."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from numadoctor.cli import main
from numadoctor.placement import placing
from tests.cli.programs import Done, environment, in_process
from tests.lab.guest_victims import MIB, private, victim
from tests.placement.captured import engine
from tests.placement.test_live import WHY_NOT
from tests.schemas import validate
from tests.trees import Tree

LIVE = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("COLUMNS", "NO_COLOR", "NUMADOCTOR_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: in_process(capsys, main, "check", *arguments)


def captured(folder: Path, errors: dict[str, int] | None = None) -> Path:
    """Two sockets and the engine of three processes that share a pool."""
    files = {path: text for path, text in engine().items() if path != "/proc"}
    tree = Tree(base="two-socket", files=files, errors=errors or {})
    return tree.build(folder / "host")


def report(done: Done, code: int = 0) -> Any:
    assert (done.code, done.err) == (code, "")
    data = json.loads(done.out)
    validate("check", data)
    return data


def test_the_tree_of_a_process_is_examined_together(run: Run, scratch: Path) -> None:
    done = run("--pid", "10", "--sysroot", captured(scratch), "--select", "P")
    assert (done.code, done.err) == (0, "")
    head = " ".join(done.out.splitlines()[1].split())
    assert head == "pid 10 engine (3 processes, 9 threads), 280.1 MiB resident"


def test_without_the_tree_it_is_one(run: Run, scratch: Path) -> None:
    done = run("--pid", "10", "--no-tree", "--sysroot", captured(scratch), "--select", "P")
    assert "pid 10 engine (3 threads)" in done.out


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (("--name", "^other$"), "pid 20 other"),
        (("--unit", "engine", "--no-tree"), "pid 1 init (4 processes"),
        (("--cgroup", "/docker"), "pid 20 other"),
        (("--container", "0123456789ab"), "pid 20 other"),
    ],
)
def test_processes_are_chosen_as_for_maps(
    run: Run, scratch: Path, options: tuple[str, ...], first: str
) -> None:
    done = run(*options, "--sysroot", captured(scratch), "--select", "P017")
    # Of some of them there is no numa_maps: that is told, and they are named all the same.
    assert first in " ".join(done.out.split())


def test_a_choice_that_finds_nobody_is_incomplete(run: Run, scratch: Path) -> None:
    done = run("--name", "nobody-has-this-name", "--sysroot", captured(scratch))
    assert done.code == 3
    assert "not examined: no process matches nobody-has-this-name" in done.out


def test_a_pattern_that_is_none_is_a_usage_error(run: Run, scratch: Path) -> None:
    done = run("--name", "(", "--sysroot", captured(scratch))
    assert done.code == 2
    assert "name pattern" in done.err


def test_memory_is_measured_once_for_all_checks(
    run: Run, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    place = placing.place

    def counting(host: Any, targets: Any, **settings: Any) -> Any:
        calls.append(len(targets))
        return place(host, targets, **settings)

    monkeypatch.setattr(placing, "place", counting)
    folder = captured(scratch)
    run("--pid", "10", "--sysroot", folder)
    assert calls == [3]
    run("--pid", "10", "--sysroot", folder, "--select", "K,T")
    assert calls == [3]


def test_without_rights_a_line_for_each_process_and_exit_3(run: Run, scratch: Path) -> None:
    errors = {f"/proc/{pid}/{file}": 13 for pid in (10, 11, 12) for file in ("maps", "numa_maps")}
    folder = captured(scratch, errors)
    done = run("--pid", "10", "--sysroot", folder, "--select", "P")
    assert (done.code, done.err) == (3, "")
    text = " ".join(done.out.split())
    for pid in (10, 11, 12):
        assert text.count(f"not examined: pid {pid} engine: cannot read /proc/{pid}/maps") == 1
    assert "run as the same user or with CAP_SYS_PTRACE" in text
    of_processes = ("--select", "P", "--ignore", "P023,P024", "-o", "json")
    data = report(run("--pid", "10", "--sysroot", folder, *of_processes), 3)
    assert len(data["incomplete"]) == 3
    assert data["summary"]["pass"] == data["summary"]["error"] == 0


def test_of_several_one_that_is_denied_hides_nothing(run: Run, scratch: Path) -> None:
    folder = captured(scratch, {"/proc/12/maps": 13})
    data = report(run("--pid", "10", "--sysroot", folder, "--select", "P", "-o", "json"), 3)
    assert data["incomplete"] == [
        "pid 12 engine: cannot read /proc/12/maps: Permission denied (process of uid 1000): "
        "run as the same user or with CAP_SYS_PTRACE"
    ]
    assert data["summary"]["pass"] > 3


def test_without_a_process_the_checks_of_processes_do_not_apply(run: Run) -> None:
    data = report(run("--sysroot", "sample:two-socket", "--select", "P001,P016", "-o", "json"))
    assert {finding["status"] for finding in data["findings"]} == {"skip"}
    assert "no process was named" in data["findings"][0]["message"]


def test_what_workers_have_in_common_is_told_once(run: Run, scratch: Path) -> None:
    folder = captured(scratch)
    data = report(run("--pid", "10", "--sysroot", folder, "--select", "E", "-o", "json"))
    told = [(f["id"], f["subject"], f["message"]) for f in data["findings"]]
    assert len(told) == len(set(told))


def test_the_same_folder_gives_the_same_bytes(run: Run, scratch: Path) -> None:
    folder = captured(scratch)
    outputs = {run("--pid", "10", "--sysroot", folder, "-o", "json").out for _ in range(2)}
    assert len(outputs) == 1


def test_a_recorded_placement_is_judged_as_it_was_measured(run: Run, scratch: Path) -> None:
    folder = captured(scratch)
    recorded = in_maps(folder)
    for mapping in recorded["mappings"]:
        mapping["method"], mapping["samples"] = "sampled", 1000
    kept = folder / ".numadoctor" / "placement.json"
    kept.write_text(json.dumps({**recorded, "method": "sampled"}))
    done = run("--pid", "10", "--sysroot", folder, "--select", "P")
    assert "sampled ±" in done.out
    # Of other processes it says nothing.
    done = run("--pid", "11", "--sysroot", folder, "--select", "P")
    assert "sampled ±" not in done.out


def in_maps(folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "numadoctor", "maps", "10", "--sysroot", folder, "-o", "json"],
        capture_output=True,
        env=environment(),
        check=True,
    )
    return json.loads(done.stdout)


@contextmanager
def idle() -> Iterator[int]:
    with victim(lambda: private(64 * MIB).touch().start) as (pid, _):
        yield pid


@LIVE
def test_a_live_process(run: Run) -> None:
    with idle() as pid:
        data = report(run("--pid", str(pid), "--select", "P", "-o", "json"))
    assert data["summary"]["error"] == data["summary"]["fail"] == 0
    assert data["target"].startswith(f"pid {pid} ")
    assert "resident" in data["target"]
    assert "longest hold of the process" in data["target"]


@LIVE
def test_a_live_process_counted_page_by_page(run: Run) -> None:
    with idle() as pid:
        done = run("--pid", str(pid), "--select", "P", "--exact")
    assert done.code == 0
    assert "sampled" not in done.out.splitlines()[1]


@LIVE
def test_another_users_process_live(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    # The first run loads all modules: nobody may not enter the folders of root's Python.
    program = (
        "import contextlib, io, os, unicodedata, sys, numadoctor.cli as cli\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    cli.main(sys.argv[1:])\n"
        "os.setgroups([]); os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3)\n"
        "cli.main(sys.argv[1:])\n"
    )
    with idle() as pid:
        done = subprocess.run(
            [sys.executable, "-c", program, "check", "--pid", str(pid), "--select", "P"],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
    assert (done.returncode, done.stderr) == (3, "")
    text = " ".join(done.stdout.split())
    assert text.count(f"not examined: pid {pid}") == 1
    assert "(process of uid 0): run as the same user or with CAP_SYS_PTRACE" in text
