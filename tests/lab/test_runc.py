"""What runc adds to a profile, in containers that it makes: ENOSYS for calls newer than all named.

The file, the filter read from outside and the answers inside must be the same.
"""

import errno
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from numadoctor.kernel.abi import by_name, current_abi
from numadoctor.kernel.probe import probe_calls
from numadoctor.kernel.seccomp import evaluate, parse_profile
from numadoctor.kernel.seccomp.evaluate import Way
from numadoctor.kernel.seccomp.stack import judge
from numadoctor.kernel.seccomp.tracing import Reading, read_filters
from tests.kernel import libseccomp
from tests.lab import containers, elf, project
from tests.lab.containers import Container
from tests.lab.seccomp_profiles import CALLS
from tests.lab.test_seccomp import ARGUMENTS, compare, expected, words

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(current_abi().name != "x86_64", reason="profiles and program are x86_64's"),
]

PODMAN_WITH_RUNC = Way("common", "runc")
AUDIT_ARCH_X86_64 = 0xC000003E
SIDE_BY_SIDE = 2

# The newest call that a profile names: below move_pages (279), below set_mempolicy_home_node (450)
# and above. With less than openat (257) runc itself does not come to the start of the program.
NEWEST = (257, 278, 279, 281, 334, 448, 449, 450)
ARCHITECTURES: tuple[list[str], ...] = (
    ["SCMP_ARCH_X86_64"],
    ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    [],
)
DEFAULTS: tuple[dict[str, Any], ...] = (
    {"defaultAction": "SCMP_ACT_ERRNO"},
    {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": errno.EACCES},
    {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": errno.ENOSYS},
    {"defaultAction": "SCMP_ACT_LOG"},
)


@pytest.fixture(scope="module")
def kernel() -> dict[str, str]:
    """What the kernel itself answers."""
    return words(probe_calls())


@pytest.fixture(scope="module")
def library() -> CDLL:
    """The libseccomp that runc uses."""
    found = libseccomp.load()
    assert found is not None
    return found


@dataclass(frozen=True)
class Case:
    newest: int
    profile: dict[str, Any]


def cases(library: CDLL) -> list[Case]:
    """Profiles that allow what podman's does, up to a call, and some of the NUMA calls up to it."""
    base = json.loads(containers.podman_profile().read_text())
    allowed = {
        name
        for rule in base["syscalls"]
        for name in rule["names"]
        if rule["action"] == "SCMP_ACT_ALLOW" and name not in CALLS
    }
    own = by_name("x86_64").numbers

    def number(name: str) -> int:
        found: int = library.seccomp_syscall_resolve_name_arch(AUDIT_ARCH_X86_64, name.encode())
        return found

    random = Random(1)
    made = []
    for place, newest in enumerate(NEWEST * len(ARCHITECTURES)):
        known = sorted(name for name in allowed if 0 <= number(name) <= newest)
        numa = [
            call
            for call in CALLS
            if (own[call] or 0) <= newest and (own[call] == newest or random.random() < 0.4)
        ]
        rules = [
            {"names": known, "action": "SCMP_ACT_ALLOW"},
            *({"names": [call], **random.choice(_ACTIONS)} for call in numa),
        ]
        architectures = ARCHITECTURES[place // len(NEWEST)]
        default = DEFAULTS[random.choice((0, 0, 1, 2, 3))]
        made.append(Case(newest, {**default, "architectures": architectures, "syscalls": rules}))
    return made


_ACTIONS: tuple[dict[str, Any], ...] = (
    {"action": "SCMP_ACT_ALLOW"},
    {"action": "SCMP_ACT_ERRNO", "errnoRet": errno.EBUSY},
)


@dataclass(frozen=True)
class Seen:
    """What became of a case: the answers inside, the filters, and what the command says of them."""

    words: dict[str, str]
    filters: Reading
    command: dict[str, str]


def look(case: Case, folder: Path) -> Seen:
    path = folder / f"{case.newest}-{id(case)}.json"
    path.write_text(json.dumps(case.profile))
    probe = folder / "probe"
    container = Container(
        path,
        # runc installs the filter last, so that its own start may make newer calls.
        options=("--security-opt=no-new-privileges", f"--volume={probe}:/probe:ro"),
        runc=True,
    )
    with tempfile.TemporaryDirectory(prefix="numadoctor-lab-", dir="/tmp") as storage:
        command = container.command(Path(storage), "/probe", path.name)
        command.insert(command.index("run") + 1, "--interactive")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            written = process.stdout.read(8 * len(CALLS))
            if len(written) < 8 * len(CALLS):
                _, complaint = process.communicate(timeout=containers.TIME_LIMIT)
                raise AssertionError(f"{case}: {complaint[-800:]!r}")
            pid = _pid(path.name)
            filters = read_filters(pid)
            said = subprocess.run(
                [sys.executable, "-m", "numadoctor", "syscalls", "--pid", str(pid),
                 "--stop-thread", "-o", "json"],
                capture_output=True,
                check=False,
            )  # fmt: skip
            process.communicate(timeout=containers.TIME_LIMIT)
    answers = dict(zip(CALLS, map(_word, elf.answers(written)), strict=True))
    told = {call["name"]: call["answer"] for call in json.loads(said.stdout)["calls"]}
    return Seen(answers, filters, told)


def _word(returned: int) -> str:
    return errno.errorcode[-returned] if returned < 0 else "0"


def _pid(mark: str) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"/probe", mark.encode()]:
                return int(path.parent.name)
        except OSError:
            continue
    raise AssertionError(f"no process {mark}")


def differences(case: Case, seen: Seen, kernel: dict[str, str]) -> list[str]:
    profile = parse_profile(json.dumps(case.profile).encode())
    filters = seen.filters.filters
    wrong = []
    for call in CALLS:
        said = evaluate(profile, call, runtime=PODMAN_WITH_RUNC, arguments=ARGUMENTS[call])
        told = {
            "inside": seen.words[call],
            "filter": expected(
                judge(filters, call, by_name("x86_64"), ARGUMENTS[call]), kernel[call]
            ),
            "--pid": kernel[call] if seen.command[call] == "allow" else seen.command[call],
        }
        if not said.unknown:
            told["file"] = expected(said, kernel[call])
        if len(set(told.values())) > 1:
            wrong.append(f"{call}: {told}; {said.reason}")
        # Programs of the machine's other ABIs were not run: the filter tells of them.
        for arch in ("i386", "x32"):
            file = evaluate(profile, call, runtime=PODMAN_WITH_RUNC, arch=arch)
            found = judge(filters, call, by_name(arch))
            if not (file.unknown or found.unknown or file.same_as(found)):
                wrong.append(f"{arch} {call}: file {file.answer}, filter {found.answer}")
    return wrong


def test_calls_newer_than_the_profile_are_answered_enosys(
    tmp_path: Path, kernel: dict[str, str], library: CDLL
) -> None:
    numbers = by_name("x86_64").numbers
    program = elf.program([(numbers[call] or 0, ARGUMENTS[call]) for call in CALLS])
    (tmp_path / "probe").write_bytes(program)
    (tmp_path / "probe").chmod(0o755)
    project.project()  # once, before several ask for it
    made = cases(library)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        looks = list(pool.map(lambda case: look(case, tmp_path), made))
    wrong = [
        f"newest {case.newest}, {_shown(case)}: {problem}"
        for case, seen in zip(made, looks, strict=True)
        for problem in differences(case, seen, kernel)
    ]
    assert wrong == [], "\n".join(wrong)
    # Whose default action is no ENOSYS has it from runc.
    stub = {
        call
        for case, seen in zip(made, looks, strict=True)
        if case.profile.get("defaultErrnoRet") != errno.ENOSYS
        for call in CALLS
        if seen.words[call] == "ENOSYS"
    }
    assert stub == {"move_pages", "set_mempolicy_home_node"}


def _shown(case: Case) -> str:
    rules = [rule for rule in case.profile["syscalls"] if set(rule["names"]) & set(CALLS)]
    return json.dumps({**case.profile, "syscalls": rules})


def test_generated_profiles(tmp_path: Path, kernel: dict[str, str]) -> None:
    """Profiles with conditions and capabilities, as those that crun is given in test_seccomp."""
    compare(range(20), tmp_path, kernel, runc=True)
