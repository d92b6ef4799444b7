"""The lab's own rules, without a container or a guest."""

import fcntl
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.child import in_child
from tests.lab import cache, debian, guest_init, guests, project
from tests.lab.guests import Fleet, Guest, GuestError, on
from tests.lab.machines import BIG_ENDIAN, LOCAL, MACHINES, Machine, command

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).parents[2]


def options(line: list[str], name: str) -> list[str]:
    return [value for option, value in itertools.pairwise(line) if option == name]


@pytest.mark.parametrize("machine", [*MACHINES.values(), BIG_ENDIAN], ids=lambda m: m.name)
def test_command_line_builds_the_machine(machine: Machine) -> None:
    line = command(machine, Path("/k"), Path("/i"))
    assert machine.kernel in machine.platform.kernels
    assert machine.name.endswith(machine.kernel)
    cpus = options(line, "-smp")[0].partition(",")[0]
    if machine.nodes:
        assert options(line, "-m") == [str(sum(node.memory for node in machine.nodes))]
        assert cpus == str(sum(node.cpus for node in machine.nodes))
    if not machine.nodes or machine.platform.root == "s390x":  # which QEMU gives no nodes
        assert len(machine.nodes) <= 1
        assert options(line, "-numa") == []
        return
    given = [
        cpu
        for first, last in re.findall(r"node,.*cpus=(\d+)-(\d+)", "\n".join(line))
        for cpu in range(int(first), int(last) + 1)
    ]
    assert given == list(range(int(cpus)))
    distances = {
        (int(source), int(destination)): int(value)
        for source, destination, value in re.findall(
            r"dist,src=(\d+),dst=(\d+),val=(\d+)", "\n".join(line)
        )
    }
    assert len(distances) == len(machine.nodes) ** 2
    for (source, destination), value in distances.items():
        assert value == distances[destination, source]
        assert (value == LOCAL) == (source == destination)
    with_cpus = [bool(node.cpus) for node in machine.nodes]
    assert with_cpus == sorted(with_cpus, reverse=True)
    assert len(options(line, "-object")) == sum(1 for node in machine.nodes if node.memory)


def test_command_line_in_full() -> None:
    line = command(MACHINES["x86_64-2n-6.12"], Path("/k"), Path("/i"))
    assert shlex.join(line) == (
        "qemu-system-x86_64 -machine q35 -cpu max -accel tcg -nographic -nodefaults -no-reboot"
        " -serial stdio -kernel /k -initrd /i -append 'console=ttyS0 loglevel=1 panic=-1'"
        " -smp 4,sockets=2 -m 2048"
        " -object memory-backend-ram,id=memory0,size=1024M"
        " -numa node,nodeid=0,memdev=memory0,cpus=0-1"
        " -object memory-backend-ram,id=memory1,size=1024M"
        " -numa node,nodeid=1,memdev=memory1,cpus=2-3"
        " -numa dist,src=0,dst=0,val=10 -numa dist,src=0,dst=1,val=21"
        " -numa dist,src=1,dst=0,val=21 -numa dist,src=1,dst=1,val=10"
    )


def test_on_selects_by_name_and_marks_the_slow() -> None:
    marks = {
        parameter.values[0]: {mark.name for mark in parameter.marks}
        for parameter in on("x86_64-*n-6.1", "s390x-none-*").args[1]
    }
    assert marks == {
        "x86_64-1n-6.1": {"lab", "lab_full"},
        "x86_64-2n-6.1": {"lab", "lab_full"},
        "x86_64-4n-6.1": {"lab"},
        "x86_64-8n-6.1": {"lab", "lab_full"},
        "s390x-none-6.1": {"lab"},
    }
    with pytest.raises(ValueError, match="no machine of the lab is called vax"):
        on("x86_64-*", "vax")


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMADOCTOR_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def writes(text: str) -> Callable[[Path], None]:
    def build(draft: Path) -> None:
        (draft / "file").write_text(text)

    return build


@pytest.mark.usefixtures("cache_folder")
def test_cache_builds_once_for_the_same_inputs() -> None:
    first = cache.entry("thing", [1], writes("first"))
    assert cache.entry("thing", [1], writes("again")) == first
    assert (first / "file").read_text() == "first"
    other = cache.entry("thing", [2], writes("other"))
    assert (other / "file").read_text() == "other"
    assert (first / "file").read_text() == "first"


def test_failed_build_leaves_nothing(cache_folder: Path) -> None:
    def build(draft: Path) -> None:
        (draft / "half").touch()
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        cache.entry("thing", [1], build)
    assert [path.name for path in cache_folder.iterdir()] == ["thing.lock"]
    assert (cache.entry("thing", [1], writes("now")) / "file").read_text() == "now"


@pytest.mark.usefixtures("cache_folder")
def test_entry_that_nobody_uses_makes_room() -> None:
    old = cache.entry("thing", [1], writes("old"))
    used = cache.entry("thing", [2], writes("used"))
    apart = cache.entry("thing-else", [1], writes("of another kind"))
    for path in (old, apart):
        os.utime(path, (0, 0))
    cache.entry("thing", [3], writes("new"))
    assert [path.exists() for path in (old, used, apart)] == [False, True, True]


def session(ending: str) -> tuple[str, list[str]]:
    """The folder of a session that ends so, and all that are left after it."""
    program = (
        "import os\nfrom tests.lab import cache\nprint(cache.scratch().name, flush=True)\n" + ending
    )
    name = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    ).stdout.strip()
    return name, [path.name for path in cache.folder().glob("session-*")]


@pytest.mark.usefixtures("cache_folder")
def test_folder_of_a_killed_session_is_removed_by_the_next() -> None:
    (cache.folder() / "session-of-another").mkdir()
    with (cache.folder() / "session-of-another" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        name, left = session("")
        assert left == ["session-of-another"]
        name, left = session("os.kill(os.getpid(), 9)")
        assert sorted(left) == sorted([name, "session-of-another"])
        assert session("")[1] == ["session-of-another"]
    assert session("")[1] == []


def test_versions_are_compared_as_numbers() -> None:
    names = ["linux-6.12.9+deb12-x", "linux-6.12.117+deb12-x", "linux-6.12.20-x"]
    assert max(names, key=debian._version_key) == "linux-6.12.117+deb12-x"


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="not a Debian system")
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert debian.missing(["dpkg", "no-such-package"]) == ["no-such-package"]
    monkeypatch.setitem(debian.PACKAGES, "guests", ("dpkg", "no-such-package"))
    with pytest.raises(debian.Unavailable, match=r"not installed: no-such-package \(make"):
        debian.require("guests")


def test_lab_that_was_asked_for_skips_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMADOCTOR_LAB", "1")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    pytester.makeini("[pytest]\nmarkers = lab")
    pytester.makeconftest("from tests.lab.conftest import *")
    pytester.makepyfile(
        test_within="import pytest\n@pytest.mark.lab\ndef test_it():\n    pytest.skip('not here')",
        test_other="import pytest\ndef test_it():\n    pytest.skip('harmless')",
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*allows no skip: *not here*"])

    pytester.makepyfile(
        test_module="import pytest\npytest.skip('not even there', allow_module_level=True)"
    )
    result = pytester.runpytest_subprocess("test_module.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*allows no skip: *not even there*"])


def test_lab_is_skipped_by_name_without_its_packages(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMADOCTOR_LAB", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    pytester.makeini("[pytest]\nmarkers = lab")
    pytester.makeconftest(
        "from tests.lab import debian\n"
        "debian.missing = lambda packages: ['podman']\n"
        "from tests.lab.conftest import *"
    )
    pytester.makepyfile("import pytest\n@pytest.mark.lab\ndef test_it():\n    raise SystemExit")
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*NUMADOCTOR_LAB=1*and the packages podman*"])


GUEST = r"""
import json, sys, time
print("firmware noise \x1b[2J", flush=True)
print("no newline before the mark: @numadoctor-lab " + json.dumps({"ready": {}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    what = request["arguments"][0]
    if what == "echo":
        print("[1.0] noise of the kernel\r")
        answer = json.dumps({"value": request})
    elif what == "raise":
        answer = json.dumps({"error": "Traceback: it went wrong"})
    elif what == "garble":
        answer = '{"value": [ 12.3] BUG: over it'
    elif what == "die":
        sys.exit("Kernel panic - not syncing")
    elif what == "hang":
        time.sleep(600)
    print("@numadoctor-lab " + answer + "\r", flush=True)
"""


def asked(what: str, more: int = 0) -> dict[str, int]:
    raise AssertionError("runs in a guest")


@pytest.fixture
def imitate(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a program stand in for QEMU."""

    def install(program: str) -> None:
        monkeypatch.setattr(debian, "require", lambda part: None)
        monkeypatch.setattr(debian, "kernel", lambda *arguments: Path("/k"))
        monkeypatch.setattr(guests, "_initrd", lambda architecture: Path("/i"))
        imitation = [sys.executable, "-c", program]
        monkeypatch.setattr(guests, "command", lambda *arguments: imitation)

    return install


@pytest.fixture
def guest(imitate: Callable[[str], None]) -> Guest:
    imitate(GUEST)
    return Guest(MACHINES["x86_64-2n-6.12"])


def test_call_travels_and_noise_does_not_matter(guest: Guest) -> None:
    assert guest.run(asked, "echo", more=3) == {
        "call": f"{__name__}:asked",
        "arguments": ["echo"],
        "keywords": {"more": 3},
        "limit": guests.CALL_LIMIT,
    }
    with pytest.raises(GuestError, match="it went wrong"):
        guest.run(asked, "raise")
    assert guest.call(asked, ["echo"], limit=7)["limit"] == 7
    with pytest.raises(ValueError, match="too long for the serial line"):
        guest.run(asked, "x" * 5000)
    guest.stop()


def test_garbled_answer_is_an_error(guest: Guest) -> None:
    with pytest.raises(GuestError, match=r"(?s)not JSON: .*BUG.*firmware noise"):
        guest.run(asked, "garble")
    guest.stop()


def test_guest_that_dies_shows_its_console(guest: Guest) -> None:
    with pytest.raises(GuestError, match=r"(?s)ended during .*asked.*Kernel panic"):
        guest.run(asked, "die")
    with pytest.raises(GuestError, match="is gone"):
        guest.run(asked, "echo")
    guest.stop()


def test_guest_that_hangs_is_stopped(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "_GRACE", 0)
    guest.wait()
    with pytest.raises(GuestError, match=r"took too long for .*asked"):
        guest.call(asked, ["hang"], limit=0.2)
    assert guest._process.poll() is not None


def test_guest_that_does_not_boot(
    imitate: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "BOOT_LIMIT", 0.2)
    imitate("import time; time.sleep(600)")
    silent = Guest(MACHINES["x86_64-2n-6.12"])
    with pytest.raises(GuestError, match=r"x86_64-2n-6\.12 took too long for the boot"):
        silent.wait()
    monkeypatch.setattr(guests, "BOOT_LIMIT", 60)
    imitate("raise SystemExit('no such machine type')")
    with pytest.raises(GuestError, match=r"(?s)ended during the boot.*no such machine type"):
        Guest(MACHINES["x86_64-2n-6.12"]).wait()


def test_next_guest_starts_while_one_is_used(
    imitate: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(GUEST)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    one, two, three = (machine for machine in list(MACHINES.values())[:3])
    fleet = Fleet([one, two, three])
    first = fleet.guest(one)
    assert set(fleet._running) == {one.name, two.name}
    assert fleet.guest(one) is first
    fleet.stop(one)
    assert first._process.poll() is not None
    fleet.guest(two)
    assert set(fleet._running) == {two.name, three.name}
    left = list(fleet._running.values())
    fleet.stop()
    assert all(guest._process.poll() is not None for guest in left)


def test_killed_session_leaves_no_guest(tmp_path: Path) -> None:
    """The guest ends with the process that started it, however that one ends."""
    program = (
        "import subprocess, time\n"
        f"child = subprocess.Popen([*{guests.TETHER!r}, 'sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    session = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert session.stdout is not None
    child = int(session.stdout.readline())
    while Path(f"/proc/{child}/comm").read_text() != "sleep\n":
        time.sleep(0.01)
    session.kill()
    session.wait()
    assert vanishes(child)


def vanishes(pid: int) -> bool:
    for _ in range(6000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def fork_fails() -> str:
    """A function for a guest; what it forks raises."""
    if os.fork() == 0:
        raise RuntimeError("raised in the fork")
    os.wait()
    return "the function's own"


def leave_without_a_word() -> None:
    os._exit(0)


def test_an_answer_is_that_of_the_function_itself() -> None:
    """A request ends in an answer, whatever the function does: the first process may not die."""

    def call(function: Callable[[], object]) -> object:
        name = f"{__name__}:{function.__name__}"
        return in_child(lambda: guest_init.call(name, [], {}, 600))

    assert call(fork_fails) == {"value": "the function's own"}
    assert call(leave_without_a_word) == {
        "error": f"{__name__}:leave_without_a_word: \n",
    }


def test_guest_modules_are_importable_where_they_run() -> None:
    """A guest has the standard library, the project and what it requires, and nothing else."""
    allowed = {"numadoctor", "tests"} | set(sys.stdlib_module_names) | project._required()
    for module in (REPOSITORY / "tests" / "lab").glob("guest_*.py"):
        for name in re.findall(r"(?m)^\s*(?:from|import) (\w+)", module.read_text()):
            assert name in allowed, f"{module.name} imports {name}"
