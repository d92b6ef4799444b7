"""What only a process of its own shows: streams, signals, terminals, imports, completion."""

import functools
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from numadoctor import __version__
from numadoctor.checks import FAMILY
from numadoctor.cli import COMMANDS
from numadoctor.host import sample_names
from numadoctor.report.terminal import columns
from tests.cli.programs import COMMAND, PAINT, environment, numadoctor, on_terminal
from tests.engine.plugins import plugin, write

FIT = ("check", "--sysroot", "sample:two-socket")
BROKEN = ("check", "--sysroot", "sample:container-docker")
SCRIPT = Path(sys.executable).parent / "numadoctor"


def test_the_script_and_the_module_are_one() -> None:
    module = numadoctor("--version")
    assert module.out == f"numadoctor, version {__version__}\n"
    script = subprocess.run([SCRIPT, "--version"], capture_output=True, text=True, check=True)
    assert script.stdout == module.out
    assert numadoctor("chek").err.startswith("Usage: numadoctor [OPTIONS]")


# Streams.


@pytest.mark.parametrize("arguments", [(*BROKEN, "-v"), ("list",), ("explain", "K001")])
def test_a_reader_that_left_is_no_error(arguments: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = numadoctor(*arguments, stdout=write_end)
    os.close(write_end)
    # The verdict stays the verdict: a pipeline with pipefail must not take it for a pass.
    assert done.code == (1 if arguments[0] == "check" else 0)
    assert done.err == ""


def test_help_whose_reader_left_is_quiet() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = numadoctor("-h", stdout=write_end)
    os.close(write_end)
    assert (done.code in (0, 1), done.err) == (True, "")


def test_head_gets_the_verdict() -> None:
    command = f"set -o pipefail; {' '.join((*COMMAND, *BROKEN, '-v'))} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.stdout.startswith("3f2c61aa90de: not fit · ")
    assert (done.returncode, done.stderr) == (1, "")


def closed(descriptor: int) -> dict[str, Any]:
    stream = {1: "stdout", 2: "stderr"}[descriptor]
    return {stream: None, "preexec_fn": lambda: os.close(descriptor)}


def test_a_closed_standard_output_is_told() -> None:
    done = numadoctor(*FIT, **closed(1))
    assert done.code == 2
    assert done.err == "Error: cannot write to standard output: it is closed\n"


def test_a_closed_standard_output_does_not_matter_for_files(tmp_path: Path) -> None:
    done = numadoctor(*FIT, "-o", f"json={tmp_path / 'r'}", **closed(1))
    assert (done.code, done.err) == (0, "")
    assert json.loads((tmp_path / "r").read_text())["exit_code"] == 0


def test_a_closed_standard_error_changes_nothing() -> None:
    assert numadoctor(*BROKEN, **closed(2)).code == 1
    done = numadoctor("chek", **closed(2))
    assert (done.code, done.out) == (2, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = numadoctor(*FIT, stdout=full)
    assert done.code == 2
    assert done.err == "Error: cannot write to standard output: No space left on device\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("chek",), 2),
        (("check", "--select", "Q"), 2),
        (("maps", "--sysroot", "/nowhere/at/all", "1"), 2),
        (BROKEN, 1),
    ],
)
def test_a_standard_error_that_is_full_changes_nothing(
    arguments: tuple[str, ...], code: int
) -> None:
    with open("/dev/full", "w") as full:
        assert numadoctor(*arguments, stderr=full).code == code


def test_an_existing_fifo_is_written_and_stays_one(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    done = numadoctor(*FIT, "-o", f"json={fifo}")
    reader.join()
    assert (done.code, done.err) == (0, "")
    assert json.loads(read[0])["exit_code"] == 0
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_standard_error_can_be_the_file() -> None:
    done = numadoctor(*FIT, "-o", "json=/dev/stderr")
    assert (done.code, done.out) == (0, "")
    assert json.loads(done.err)["exit_code"] == 0


def test_a_file_bound_into_a_container_is_written_in_place(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("old")
    (tmp_path / "report").write_text("")
    mount = 'mount --bind outside report && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    probe = subprocess.run([*command, "true"], cwd=tmp_path, capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no bind mounts in a namespace of one's own here")
    done = subprocess.run(
        [*command, *COMMAND, *FIT, "-o", "json=report"],
        cwd=tmp_path,
        capture_output=True,
        env=environment(PYTHONPATH=os.getcwd()),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((tmp_path / "outside").read_text())["exit_code"] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["outside", "report"]


@pytest.mark.parametrize("home", ["", "/proc/nowhere", "/dev/null"])
def test_no_home_is_needed(home: str) -> None:
    assert numadoctor(*FIT, env={"HOME": home}).code == 0


def test_nothing_is_written_where_it_runs(tmp_path: Path) -> None:
    done = numadoctor(
        *FIT, env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": os.getcwd()},
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0
    assert list(tmp_path.iterdir()) == []


# Languages and widths.


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
)
def test_ascii_where_the_terminal_is_not_utf8(env: dict[str, str]) -> None:
    done = numadoctor(*BROKEN, env=env)
    assert (done.code, done.err) == (1, "")
    assert done.out.isascii()
    assert done.out.startswith("3f2c61aa90de: not fit . ")


@pytest.mark.parametrize("arguments", [("topology", *FIT[1:]), ("explain", "K001"), ("list",)])
def test_every_command_can_do_without_more_than_ascii(arguments: tuple[str, ...]) -> None:
    done = numadoctor(*arguments, env={"PYTHONIOENCODING": "ascii"})
    assert (done.code, done.err) == (0, "")
    assert done.out.isascii()


def holds_a_command(line: str) -> bool:
    """Whether the line is one of a fix, which is to be copied and so not broken."""
    return any(command in line for command in commands())


@functools.cache
def commands() -> tuple[str, ...]:
    data = json.loads(numadoctor(*BROKEN, "-o", "json").out)
    texts = [fix["text"] for finding in data["findings"] for fix in finding["fixes"]]
    return tuple(line for text in texts for line in text.splitlines() if line[0] not in "#{")


def test_utf8_where_it_is() -> None:
    assert "·" in numadoctor(*BROKEN).out


@pytest.mark.parametrize(
    "command", [BROKEN, ("topology", *FIT[1:]), ("explain", "K001"), ("list",)]
)
def test_forty_columns_are_enough(command: tuple[str, ...]) -> None:
    done = numadoctor(*command, env={"COLUMNS": "40"})
    wide = [line for line in done.out.splitlines() if columns(line) > 40]
    if command is BROKEN:
        wide = [line for line in wide if not holds_a_command(line)]
    if command[0] == "explain":
        # Paths and blocks, likewise.
        wide = [line for line in wide if not line.startswith(("  /", "      "))]
    assert wide == []


@pytest.mark.parametrize("width", [60, 100])
def test_a_terminal_is_filled_and_coloured(width: int) -> None:
    written = on_terminal(*BROKEN, columns=width)
    assert "\x1b[1;31m" in written
    plain = PAINT.sub("", written)
    assert "\x1b" not in plain
    lines = plain.splitlines()
    assert lines[0].startswith("3f2c61aa90de: not fit")
    told = [line for line in lines if not holds_a_command(line)]
    assert max(map(columns, told)) <= width
    assert max(map(columns, told)) > width - 12


def test_no_colour_on_a_terminal_that_has_none() -> None:
    assert "\x1b" not in on_terminal(*BROKEN, columns=80, env={"NO_COLOR": "1"})
    assert "\x1b" not in on_terminal(*BROKEN, columns=80, env={"TERM": "dumb"})


# Signals and crashes.


def test_an_interrupt_ends_it_quietly(tmp_path: Path) -> None:
    started = tmp_path / "started"
    body = f"import time; open({str(started)!r}, 'w').close(); time.sleep(600); yield"
    write(tmp_path / "checks", slow=plugin(body=body))
    process = subprocess.Popen(
        [*COMMAND, *FIT, "--select", "X001", "--checks-dir", tmp_path / "checks"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        # A shell that runs the tests in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err.strip()) == (2, b"", b"numadoctor: interrupted")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("KeyboardInterrupt", "interrupted"),
        ("MemoryError", "crashed: MemoryError (NUMADOCTOR_DEBUG=1 shows the traceback)"),
        ("ImportError('a\\n\\x1b[31m\\u2028b')",
         "crashed: ImportError a [31m b (NUMADOCTOR_DEBUG=1 shows the traceback)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("module", ["click", "numadoctor.cli.common", "numadoctor.placement.ahead"])
def test_what_ends_it_while_it_is_loaded_is_one_line(module: str, error: str, told: str) -> None:
    program = (
        "import sys\nclass Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: raise {error}\n"
        "from numadoctor.__main__ import main\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['numadoctor', 'maps', '--exact', '999999999']\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env=environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"numadoctor: {told}\n")


CRASH = "import numadoctor.host.host as h; h.Host.name = property(lambda self: 1 / 0); "
MAIN = "from numadoctor.cli import main; main(['topology', '--sysroot', 'sample:laptop'])"


def test_a_crash_of_ours_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH + MAIN], capture_output=True, text=True,
        env=environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "numadoctor: crashed: ZeroDivisionError: division by zero "
        "(NUMADOCTOR_DEBUG=1 shows the traceback)\n"
    )


def test_the_traceback_is_there_for_who_asks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH + MAIN], capture_output=True, text=True,
        env=environment(NUMADOCTOR_DEBUG="1"), check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" in done.stderr


# What is imported.


def imported(*arguments: str) -> set[str]:
    """The modules that the command has loaded when it ends."""
    program = (
        "import sys\nfrom numadoctor.cli import main\n"
        f"try: main({list(arguments)!r})\n"
        "finally: print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode in (0, 1)
    return set(done.stderr.split())


def third_party(modules: set[str]) -> set[str]:
    roots = {name.partition(".")[0] for name in modules}
    return {
        root
        for root in roots - set(sys.stdlib_module_names) - {"numadoctor", "__main__"}
        # The finders of editable installs and .pth files.
        if not root.startswith(("_", "sitecustomize"))
    }


def test_commands_load_what_they_need_and_no_more() -> None:
    assert third_party(imported("check")) == {"click"}
    assert third_party(imported("syscalls")) == {"click"}
    assert third_party(imported("list")) == {"click"}
    assert third_party(imported("topology", "-o", "json")) == {"click"}
    assert third_party(imported("topology")) >= {"click", "tabulate"}
    assert "psutil" not in imported("topology")


def test_help_and_completion_load_no_engine() -> None:
    modules = imported("--help")
    assert third_party(modules) == {"click"}
    assert not any(name.startswith("numadoctor.checks.") for name in modules)


def test_check_leaves_slow_modules_of_the_standard_library_alone() -> None:
    slow = {"importlib.metadata", "email", "asyncio", "urllib.request", "http.client", "tempfile"}
    assert imported("check", "--sysroot", "sample:two-socket") & slow == set()


# Shell completion: docs/commands/README.md tells how to switch it on.


def complete(line: str) -> list[str]:
    """What bash would offer at the end of ``line``, through click's script in a real bash."""
    words = line.split(" ")
    script = f"""
        source <(_NUMADOCTOR_COMPLETE=bash_source numadoctor)
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1}
        _numadoctor_completion numadoctor
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env=environment(PATH=f"{SCRIPT.parent}:{os.environ['PATH']}"),
        check=True,
    )
    return done.stdout.split()


def test_completion() -> None:
    assert complete("numadoctor ") == sorted(COMMANDS)
    assert complete("numadoctor ch") == ["check"]
    assert complete("numadoctor check --fail-") == ["--fail-on"]
    assert complete("numadoctor check --fail-on ") == ["fail", "warn", "never"]
    assert complete("numadoctor explain k00") == [f"K00{n}" for n in range(1, 10)]
    assert complete("numadoctor check --sysroot sample:two") == ["sample:two-socket"]
    assert complete("numadoctor check --sysroot sample:") == [f"sample:{n}" for n in sample_names()]


def topics(modules: set[str]) -> set[str]:
    """The first words of the modules of built-in checks."""
    names = (m.removeprefix("numadoctor.checks.") for m in modules if "numadoctor.checks." in m)
    return {name.partition("_")[0] for name in names} - {""}


def test_commands_load_the_families_of_checks_that_they_may_run(tmp_path: Path) -> None:
    compose = tmp_path / "compose.yaml"
    compose.write_text("services: {engine: {image: vllm/vllm-openai}}\n")
    machine = imported("check")
    assert topics(machine) == {topic for topic in FAMILY if topic != "deployment"}
    assert not [name for name in machine if name.startswith("numadoctor.lint")]
    assert "numadoctor.kernel.seccomp" not in machine
    assert topics(imported("check", "--select", "K001,k014")) == {"kernel"}
    assert topics(imported("explain", "T010")) == {"topology"}
    # One of its modules has a function that they share.
    assert topics(imported("lint", str(compose))) == {"deployment", "envelope"}
    assert topics(imported("list")) == set(FAMILY)
