import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from numadoctor import __version__
from numadoctor.cli import COMMANDS, cli, main
from numadoctor.engine.discovery import discover
from numadoctor.host import sample_names
from tests.cli.programs import Done, in_process
from tests.engine.plugins import plugin, write
from tests.trees import copy_sample

Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("COLUMNS", "NO_COLOR", "NUMADOCTOR_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: in_process(capsys, main, *arguments)


def one_line(done: Done, code: int = 2) -> str:
    """The one line that says what was wrong; nothing may be on standard output."""
    assert (done.code, done.out) == (code, "")
    lines = [line for line in done.err.splitlines() if line]
    usage = [line for line in lines if line.startswith(("Usage: ", "Try "))]
    (message,) = [line for line in lines if line not in usage]
    return message


FIT = ["check", "--sysroot", "sample:two-socket"]
BROKEN = ["check", "--sysroot", "sample:container-docker"]


# Help.


def test_version(run: Run) -> None:
    assert run("--version") == Done(0, f"numadoctor, version {__version__}\n", "")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command(run: Run, flag: str) -> None:
    done = run(flag)
    assert (done.code, done.err) == (0, "")
    words = " ".join(done.out.split())
    for name, line in COMMANDS.items():
        assert f"{name} {line}" in words
    assert "0 nothing found, 1 something found, 2 usage error or crash, 3 incomplete" in words


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_the_help_that_the_list_shows(run: Run, name: str) -> None:
    command = importlib.import_module(f"numadoctor.cli.{name}").command
    assert isinstance(command, click.Command)
    assert command.name == name
    assert (command.help or "").partition("\n")[0] == COMMANDS[name]
    for flag in ("-h", "--help"):
        done = run(name, flag)
        assert (done.code, done.err) == (0, "")
        assert COMMANDS[name] in " ".join(done.out.split())


def test_there_is_no_command_that_the_list_lacks() -> None:
    folder = Path(str(importlib.import_module("numadoctor.cli").__file__)).parent
    modules = {path.stem for path in folder.glob("*.py")}
    commands = {
        name
        for name in modules - {"__init__"}
        if isinstance(
            getattr(importlib.import_module(f"numadoctor.cli.{name}"), "command", None),
            click.Command,
        )
    }
    assert commands == set(COMMANDS)
    assert cli.list_commands(click.Context(cli)) == sorted(COMMANDS)


def test_every_option_says_what_it_does() -> None:
    for name in COMMANDS:
        command = importlib.import_module(f"numadoctor.cli.{name}").command
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts}"


def test_no_command_shows_the_help(run: Run) -> None:
    done = run()
    assert "Commands:" in done.out + done.err


# Used wrongly.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chek"], "Error: No such command 'chek'. Did you mean check?"),
        (["xyzzy"], "Error: No such command 'xyzzy'."),
        (["check", "--nope"], "No such option"),
        (["check", "extra"], "unexpected extra argument"),
        (["check", "--select", "K00"], 'Error: no check "K00": did you mean '),
        (["check", "--ignore", "numa-balancng"], "did you mean numa-balancing"),
        (["check", "--select", "K001,,Q9"], 'Error: no check "Q9"'),
        (["explain", "K999"], 'Error: no check "K999"'),
        (["explain"], "Missing argument"),
        (["check", "--pid", "0"], "0 is not in the range x>=1"),
        (["check", "--pid", "abc"], "'abc' is not a valid integer"),
        (["check", "--pid", "-1"], "-1 is not in the range"),
        (["check", "--fail-on", "info"], "'info' is not one of"),
        (["check", "--checks-dir", "/no/such/folder"], "/no/such/folder"),
        (["check", "-o", "xml"], "'xml' is not one of text, json"),
        (["check", "-o", "json="], "'json=' names no file"),
        (["check", "-o", "text", "-o", "json"], "only one format can go to standard output"),
        (["topology", "-o", "json", "-o", "json"], "only one format"),
        (["check", "--sysroot", "sample:nope"], "sample:nope: no such sample; there are "),
        (["check", "--sysroot", "/no/such/folder"], "/no/such/folder: No such file"),
        (["topology", "--sysroot", "/etc/passwd"], "/etc/passwd: Not a directory"),
        (["check", "--sysroot", ""], "--sysroot : names no folder"),
        (["check", "--sysroot", "/no/\x1b[31m\u202efolder"], "\\x202efolder"),
    ],
)
def test_one_line_says_what_was_wrong(run: Run, arguments: list[str], message: str) -> None:
    told = one_line(run(*arguments))
    assert message in told
    assert told.isprintable()


def test_sysroots_that_cannot_be_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (("empty", "the folder is empty"), ("loop", "Too many levels")):
        told = one_line(run("check", "--sysroot", tmp_path / name))
        assert f"{tmp_path / name}: {reason}" in told


def test_a_captured_folder_with_broken_errors_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".numadoctor").mkdir()
    (tmp_path / ".numadoctor" / "errors.json").write_text('{"/x": 99999}')
    assert "no errno" in one_line(run("check", "--sysroot", tmp_path))


def test_a_sysroot_without_sysfs_is_incomplete(run: Run, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    told = one_line(run("topology", "--sysroot", tmp_path), code=3)
    assert "/sys/devices/system/node" in told
    done = run("check", "--sysroot", tmp_path, "--strict")
    assert done.code == 3
    assert "not decided" in done.out.splitlines()[0]


# Verdicts.


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (FIT, 0),
        ([*FIT, "--strict"], 0),
        ([*FIT, "--fail-on", "warn"], 0),
        (BROKEN, 1),
        ([*BROKEN, "--fail-on", "never"], 0),
        ([*BROKEN, "--fail-on", "never", "--strict"], 3),
        ([*BROKEN, "--ignore", "E", "--fail-on", "warn"], 0),
        (["check", "--sysroot", "sample:vm-no-vnuma"], 0),
        (["check", "--sysroot", "sample:vm-no-vnuma", "--fail-on", "warn"], 1),
    ],
)
def test_exit_codes(run: Run, arguments: list[str], code: int) -> None:
    done = run(*arguments)
    assert (done.code, done.err) == (code, "")
    assert done.out.splitlines()[-1].endswith(f"exit {code}")


def test_selection(run: Run) -> None:
    data = json.loads(run(*FIT, "--select", "k001, T", "--ignore", "T002", "-o", "json").out)
    ids = {finding["id"] for finding in data["findings"]}
    assert "K001" in ids
    assert "T001" in ids
    assert "T002" not in ids
    assert {i[0] for i in ids - {"K001"}} == {"T"}


def test_a_vanished_pid_is_told_and_the_machine_is_examined(run: Run) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    done = run("check", "--pid", str(pid), "--fail-on", "never")
    assert (done.code, done.err) == (3, "")
    lines = done.out.splitlines()
    assert lines[0].partition(": ")[2].startswith("examination incomplete")
    assert [line for line in lines if str(pid) in line] == [
        f"not examined: pid {pid}: no such process"
    ]


def test_a_living_pid_is_named(run: Run) -> None:
    done = run("check", "--pid", str(os.getpid()), "--fail-on", "never", "-o", "json")
    data = json.loads(done.out)
    assert data["target"].startswith(f"pid {os.getpid()} ")
    assert data["incomplete"] == []


def test_verbose_tells_what_passed(run: Run) -> None:
    assert "\nPassed\n" not in run(*FIT).out
    assert "\nPassed\n" in run(*FIT, "-v").out


def test_colour_can_be_had_and_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run(*BROKEN).out
    assert "\x1b" not in run(*BROKEN, "--no-color").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" in run(*BROKEN, "--color").out


# Plugins.


def test_a_sites_own_check(run: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        rules=plugin(
            "X001", "site-rule", 'from numadoctor.model import fail\n    yield fail("no good")'
        ),
    )
    arguments = ["--checks-dir", str(tmp_path)]
    done = run(*FIT, *arguments)
    assert done.code == 1
    assert "FAIL  X001  no good" in done.out
    listed = run("list", *arguments)
    assert "\nX  checks from elsewhere\nX001  site-rule: A site's own rule.\n" in listed.out
    explained = run("explain", "site-rule", *arguments)
    assert explained.out.startswith("X001  site-rule: A site's own rule.\n")
    assert "\nWhy it matters\n  It does.\n" in explained.out


def test_a_broken_plugin_is_one_error_and_the_rest_runs(run: Run, tmp_path: Path) -> None:
    write(tmp_path, bad="raise SystemExit(0)")
    done = run(*FIT, "--checks-dir", tmp_path, "-v")
    assert done.code == 3
    assert done.out.count("ERROR") == 1
    # The file's name may be longer than a line: it is broken anywhere.
    assert "bad.py:cannotbeloaded:SystemExit:0" in "".join(done.out.split())
    assert "K001" in done.out
    listed = run("list", "--checks-dir", tmp_path)
    assert listed.code == 3
    assert "not loaded:" in listed.out
    unknown = one_line(run("check", "--checks-dir", str(tmp_path), "--select", "X001"))
    assert "SystemExit" in unknown


def test_what_a_plugin_prints_is_not_in_the_json(run: Run, tmp_path: Path) -> None:
    write(tmp_path, loud="print('loading')\n" + plugin(body='print("running"); yield passed("x")'))
    done = run(*FIT, "--checks-dir", tmp_path, "-o", "json")
    assert json.loads(done.out)["exit_code"] == 0
    assert done.err == "loading\nrunning\n"


def test_a_file_of_a_gigabyte_is_unknown_and_the_rest_runs(run: Run, tmp_path: Path) -> None:
    copy_sample("two-socket", tmp_path)
    with open(tmp_path / "proc/sys/kernel/numa_balancing", "wb") as file:
        file.truncate(1 << 30)
    data = json.loads(run("check", "--sysroot", tmp_path, "-o", "json").out)
    (found,) = [f for f in data["findings"] if f["id"] == "K001"]
    assert found["status"] == "unknown"
    assert "numa_balancing: larger than 64 MiB" in found["message"]
    assert data["summary"]["pass"] > 20
    assert data["summary"]["error"] == 0


# list and explain.


def test_list_names_every_check_and_sample(run: Run) -> None:
    done = run("list")
    assert done.code == 0
    words = " ".join(done.out.split())
    for check in discover():
        assert f"{check.id} {check.name}: {check.summary}" in words
    assert all(name in words.split() for name in sample_names())


def test_explain_several(run: Run) -> None:
    done = run("explain", "k001", "T001")
    assert done.code == 0
    for title in ("Why it matters", "When it is harmless", "Fix", "Source", "Looks at"):
        assert done.out.count(f"\n{title}\n") == 2
    assert done.out.startswith("K001  ")
    assert "\nT001  " in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_explain_keeps_blocks_as_they_are(run: Run) -> None:
    assert "\n      sysctl -w kernel.numa_balancing=0\n" in run("explain", "K001").out


# Files.


def test_several_outputs_at_once(run: Run, tmp_path: Path) -> None:
    json_file, text_file = tmp_path / "r.json", tmp_path / "r.txt"
    done = run(*BROKEN, "-o", "text", "-o", f"json={json_file}", "-o", f"text={text_file}")
    assert done.code == 1
    assert done.out.startswith("3f2c61aa90de: not fit")
    assert json.loads(json_file.read_text())["exit_code"] == 1
    # The file is not on this terminal: it has its own width and no colour.
    assert text_file.read_text().startswith("3f2c61aa90de: not fit")
    assert "\x1b" not in text_file.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.txt"]


def test_an_output_file_alone_leaves_the_screen_empty(run: Run, tmp_path: Path) -> None:
    done = run(*FIT, "-o", f"json={tmp_path / 'r'}")
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize("folder", ["tmp_path", "scratch"])  # on a disk; below /dev/shm
def test_a_file_is_replaced_whole_and_keeps_its_permissions(
    run: Run, request: pytest.FixtureRequest, folder: str
) -> None:
    file: Path = request.getfixturevalue(folder) / "r.json"
    file.write_text("old" * 100_000)
    file.chmod(0o600)
    inode = file.stat().st_ino
    assert run(*FIT, "-o", f"json={file}").code == 0
    assert json.loads(file.read_text())["exit_code"] == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_ino != inode


def test_a_link_keeps_pointing_where_it_did(run: Run, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    (tmp_path / "new.json").symlink_to("not-yet.json")
    for name in ("link.json", "new.json"):
        assert run(*FIT, "-o", f"json={tmp_path / name}").code == 0
        assert (tmp_path / name).is_symlink()
        assert json.loads((tmp_path / name).read_text())["exit_code"] == 0


def test_a_planted_temporary_name_is_not_followed(run: Run, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file = tmp_path / "r.json"
    (tmp_path / f".numadoctor.{os.getpid()}.tmp").symlink_to(victim)
    told = one_line(run(*FIT, "-o", f"json={file}"))
    assert f"cannot write {file}: File exists" in told
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["absent/r.json", "folder", "file/r.json", "n" * 300])
def test_a_place_that_cannot_be_written(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    told = one_line(run(*FIT, "-o", f"json={tmp_path / name}"))
    assert told.startswith(f"Error: cannot write {tmp_path / name}: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
