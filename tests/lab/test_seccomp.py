"""Seccomp profiles judged as files, from outside and from inside of real containers: one answer."""

import errno
import json
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from numadoctor.kernel.abi import by_name, current_abi
from numadoctor.kernel.probe import probe_calls
from numadoctor.kernel.seccomp import Action, Verdict, evaluate, parse_profile
from numadoctor.kernel.seccomp.evaluate import Way
from numadoctor.kernel.seccomp.outlook import Case, opened
from numadoctor.kernel.seccomp.stack import judge
from numadoctor.kernel.seccomp.tracing import Reading, read_filters
from numadoctor.model import Evidence
from tests.lab import containers, project
from tests.lab.containers import Container
from tests.lab.seccomp_profiles import CALLS, Generated, generate

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(current_abi().name != "x86_64", reason="generated for x86_64 alone"),
]

QUICK, ALL = 40, 300
SIDE_BY_SIDE = 2

# The arguments of the forms without side effects, as numadoctor.kernel.syscalls makes them.
ARGUMENTS = {
    "mbind": (0, 0, 0, 0, 0, 0),
    "set_mempolicy": (99, 0, 0),
    "get_mempolicy": (0, 0, 0, 0, 0),
    "set_mempolicy_home_node": (0, 0, (1 << 64) - 1, 0),
    "move_pages": (0, 0, 0, 0, 0, 0),
    "migrate_pages": (0, 0, 0, 0),
}
# Asks, and stays until its standard input closes.
PROGRAM = (
    "import json, sys; from numadoctor.kernel.probe import probe_calls; "
    "print(json.dumps(probe_calls()), flush=True); sys.stdin.read()"
)


def words(probe: dict[str, Any]) -> dict[str, str]:
    """What each call answered, in a word."""
    return {call["name"]: _word(call) for call in probe["calls"]}


def _word(call: dict[str, Any]) -> str:
    assert call["unprobed"] is None, call
    if call["signal"] is not None:
        assert call["signal"] == 31, call
        return "SIGSYS"
    return errno.errorcode.get(call["errno"], str(call["errno"])) if call["errno"] else "0"


@pytest.fixture(scope="module")
def kernel() -> dict[str, str]:
    """What the kernel itself answers."""
    return words(probe_calls())


def expected(verdict: Verdict, own_answer: str) -> str:
    return own_answer if verdict.open else verdict.answer


@dataclass(frozen=True)
class Seen:
    """A container under a profile.

    :ivar words: the calls' answers inside; empty if it did not start
    :ivar reading: the filters of its process, read from outside
    :ivar config: what crun was told
    """

    words: dict[str, str]
    reading: Reading | None
    config: bytes = b""


@contextmanager
def running(container: Container, mark: str) -> Iterator[tuple[int, str, bytes]]:
    """The process of a container that asked and waits.

    Its id here, what it printed, and the config.json that podman wrote for crun.
    """
    with tempfile.TemporaryDirectory(prefix="numadoctor-lab-", dir="/tmp") as storage:
        command = container.command(Path(storage), "python3", "-c", PROGRAM, mark)
        command.insert(command.index("run") + 1, "--interactive")
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            pid = _pid(mark) if line else 0
            configs = list(Path(storage).glob("root/*-containers/*/userdata/config.json"))
            yield pid, line, configs[0].read_bytes() if configs else b""
        finally:
            process.communicate(timeout=containers.TIME_LIMIT)


def _pid(mark: str) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if argv[0].endswith("python3") and argv[1:2] == ["-c"] and mark in argv:
            return int(path.parent.name)
    raise AssertionError(f"no process {mark}")


def look(generated: Generated, folder: Path, *, runc: bool) -> Seen:
    """Start a container under the profile, ask inside, and read its filters from outside."""
    container = Container(generated.write(folder), options=generated.options, runc=runc)
    mark = f"{folder}/{generated.seed}"
    with running(container, mark) as (pid, line, config):
        if not line:
            return Seen({}, None)
        return Seen(words(json.loads(line)), read_filters(pid), config)


def differences(
    generated: Generated, seen: Seen, kernel: dict[str, str], runtime: str
) -> list[str]:
    """Where the file, the container and its filters do not agree."""
    profile = parse_profile(json.dumps(generated.profile).encode())
    wrong = []
    for call in CALLS:

        def static(arguments: tuple[int, ...] | None, call: str = call) -> Verdict:
            return evaluate(
                profile, call, generated.added, Way("common", runtime), "x86_64",
                dropped=generated.dropped, arguments=arguments,
            )  # fmt: skip

        exact, any_arguments = static(ARGUMENTS[call]), static(None)
        if exact.action is Action.NO_START or not seen.words:
            if seen.words or not (exact.unknown or exact.action is Action.NO_START):
                wrong.append(f"{call}: {exact.answer}, and it started: {bool(seen.words)}")
            continue
        told = {"inside": seen.words[call]}
        if not exact.unknown:
            told["file"] = expected(exact, kernel[call])
        if not any_arguments.unknown:
            told["file, any arguments"] = expected(any_arguments, kernel[call])
        if seen.config:
            as_told = parse_profile(seen.config)
            config = evaluate(as_told, call, runtime=Way("oci", runtime), arguments=ARGUMENTS[call])
            if not config.unknown:
                told["config.json"] = expected(config, kernel[call])
        assert seen.reading is not None
        filters = seen.reading.filters
        by_filters = judge(filters, call, by_name("x86_64"), ARGUMENTS[call])
        if not by_filters.unknown:  # it may look at arguments that the call does not have
            told["filters"] = expected(by_filters, kernel[call])
        loosely = judge(filters, call, by_name("x86_64"))
        if not loosely.unknown:
            told["filters, any arguments"] = expected(loosely, kernel[call])
        if len(set(told.values())) > 1:
            wrong.append(f"{call}: {told}; {exact.reason}")
    return wrong


def compare(seeds: range, folder: Path, kernel: dict[str, str], *, runc: bool = False) -> None:
    base = json.loads(containers.podman_profile().read_text())
    profiles = [generate(seed, base) for seed in seeds]
    project.project()  # once, before several ask for it
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        looks = list(pool.map(lambda one: look(one, folder, runc=runc), profiles))
    wrong = [
        f"profile {one.seed} {one.options}: {problem}\n{json.dumps(_shown(one.profile))}"
        for one, seen in zip(profiles, looks, strict=True)
        for problem in differences(one, seen, kernel, "runc" if runc else "crun")
    ]
    assert wrong == [], "\n".join(wrong)
    started = [seen for seen in looks if seen.words]
    assert len(started) > 0.8 * len(profiles)
    assert sum(map(decided, profiles)) > 0.9 * len(CALLS) * len(profiles)
    assert all(seen.config for seen in started)
    answers = {word for seen in started for word in seen.words.values()}
    assert {"EPERM", "SIGSYS", "0", "EINVAL"} <= answers


def decided(generated: Generated) -> int:
    """For how many calls the file alone tells the answer to the form that is tried."""
    profile = parse_profile(json.dumps(generated.profile).encode())
    return sum(
        not evaluate(
            profile, call, generated.added, "podman", "x86_64",
            dropped=generated.dropped, arguments=ARGUMENTS[call],
        ).unknown
        for call in CALLS
    )  # fmt: skip


def _shown(profile: dict[str, Any]) -> dict[str, Any]:
    rules = [rule for rule in profile["syscalls"] if set(rule["names"]) & set(CALLS)]
    return {**profile, "syscalls": rules}


def test_generated_profiles(tmp_path: Path, kernel: dict[str, str]) -> None:
    """The file, the filters from outside and the container itself give the same answers."""
    compare(range(QUICK), tmp_path, kernel)


@pytest.mark.lab_full
@pytest.mark.parametrize("first", range(QUICK, ALL, 65))
def test_many_generated_profiles(first: int, tmp_path: Path, kernel: dict[str, str]) -> None:
    compare(range(first, min(first + 65, ALL)), tmp_path, kernel)


def case_of(text: str, name: str) -> Case:
    return Case(
        parse_profile(text.encode()), name, "podman", "x86_64", (), (), None,
        lambda rule: Evidence(name, str(rule)),
    )  # fmt: skip


@pytest.mark.parametrize("whose", ["docker", "podman", "generated"])
def test_the_emitted_profile_opens_the_calls(
    whose: str, tmp_path: Path, kernel: dict[str, str]
) -> None:
    base = containers.podman_profile().read_text()
    texts = {
        "docker": [containers.docker_profile().read_text()],
        "podman": [base],
        "generated": [json.dumps(generate(n, json.loads(base)).profile) for n in (3, 11, 12)],
    }
    for text in texts[whose]:
        emitted = opened(text, case_of(text, whose))
        (tmp_path / "emitted.json").write_text(emitted)
        container = Container(tmp_path / "emitted.json")
        done = container.run("python3", "-c", PROGRAM)
        assert words(json.loads(done.stdout)) == kernel, emitted
