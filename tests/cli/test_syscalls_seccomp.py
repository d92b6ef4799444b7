"""`numadoctor syscalls` on profiles and running processes: nothing is run, little is stopped."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from numadoctor.cli import main
from numadoctor.kernel.abi import CALLS
from numadoctor.kernel.seccomp import tracing
from tests.kernel import seccomp
from tests.kernel.test_seccomp_tracing import needs_root, victim
from tests.trees import Tree

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/schema/syscalls.schema.json").read_text())

NICE = {"names": ["mbind", "set_mempolicy", "get_mempolicy"], "action": "SCMP_ACT_ALLOW",
        "includes": {"caps": ["CAP_SYS_NICE"]}}  # fmt: skip
USUAL = {"names": ["read", "clone3", "faccessat2"], "action": "SCMP_ACT_ALLOW"}
PROFILE = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
    "syscalls": [USUAL, NICE],
}
ARCH = ("--arch", "x86_64")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(PROFILE, indent=1))
    return path


def run(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["syscalls", *options])
    assert isinstance(caught.value.code, int)
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


def as_json(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run(capsys, *options, "-o", "json")
    assert err == ""
    data: dict[str, Any] = json.loads(out)
    Draft202012Validator(SCHEMA).validate(data)
    assert data["exit_code"] == code
    return code, data


def answers(data: dict[str, Any]) -> dict[str, str]:
    return {call["name"]: call["answer"] for call in data["calls"]}


def test_a_profile(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = as_json(capsys, "--seccomp-profile", str(profile), *ARCH)
    assert code == 1
    assert data["source"] == "profile"
    assert data["works"] is False
    assert set(answers(data).values()) == {"EPERM", "ENOSYS"}
    assert data["other_abis"]["x32"] == dict.fromkeys(CALLS, "SIGSYS")
    mbind = next(call for call in data["calls"] if call["name"] == "mbind")
    texts = [fix["text"] for fix in mbind["fixes"]]
    assert any("SYS_NICE" in text for text in texts)
    assert any("--emit-profile" in text for text in texts)
    assert {fix["launcher"] for fix in mbind["fixes"]} == {"docker", "compose", "any"}
    assert mbind["evidence"][0]["source"].startswith(f"{profile}:2")


def test_a_capability(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--seccomp-profile", str(profile), *ARCH)
    code, data = as_json(capsys, *options, "--cap", "SYS_NICE")
    assert code == 0
    assert data["works"] is True
    assert answers(data)["mbind"] == "allow"
    assert answers(data)["move_pages"] == "EPERM"
    fixes = [fix["text"] for call in data["calls"] for fix in call["fixes"]]
    assert not any("--cap-add" in text for text in fixes)
    code, data = as_json(capsys, *options, "--cap=SYS_NICE", "--cap-drop=ALL")
    assert answers(data)["mbind"] == "allow"
    code, data = as_json(capsys, *options, "--runtime", "kubernetes")
    assert answers(data)["mbind"] == "unknown"
    assert run(capsys, *options, "--runtime", "kubernetes", "--strict")[0] == 3


@pytest.mark.parametrize("options", [(), ("-v",)])
def test_the_text_fits_the_screen(
    options: tuple[str, ...],
    profile: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(profile.parent)
    _, text, _ = run(capsys, "--seccomp-profile", "p.json", *ARCH, *options)
    assert text.startswith("With p.json under docker NUMA placement does not work: seccomp refuses")
    assert "Judged from the profile; nothing was run." in text
    assert "x32 programs get SIGSYS for all six." in text
    assert max(map(len, text.splitlines())) <= 80
    assert "privileged" not in text


def test_a_container_that_would_not_start(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile.write_text(json.dumps({**PROFILE, "defaultErrnoRet": 5000}))
    code, text, _ = run(capsys, "--seccomp-profile", str(profile), *ARCH)
    assert code == 1
    assert "no container starts: libseccomp refuses the errno 5000" in " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--seccomp-profile", "missing.json"), "does not exist"),
        (("--seccomp-profile", "bad.json"), "bad.json: line 2 column 3: not JSON"),
        (("--seccomp-profile", "odd.json"), "odd.json: line 1 column 19: defaultAction: unknown"),
        (("--seccomp-profile", "p.json", "--runtime", "lxc"), "'lxc' is not one of"),
        (("--seccomp-profile", "p.json", "--arch", "vax"), "unknown ABI 'vax'"),
        (("--seccomp-profile", "p.json", "--cap", "7"), "'7' is no capability"),
        (("--seccomp-profile", "p.json", "--kernel", "new"), "'new' is no kernel version"),
        (("--seccomp-profile", "p.json", "--pid", "1"), "exclude each other"),
        (("--seccomp-profile", "p.json", "--sysroot", "/"), "exclude each other"),
        (("--stop-thread",), "--stop-thread needs --pid"),
        (("--cap", "SYS_NICE"), "name what to look at: --seccomp-profile."),
        (("--emit-profile",), "name what to look at: --seccomp-profile, --pid or --runtime."),
        (("--emit-profile", "--runtime", "containerd"), "--pid of a container's process finds"),
        (("--pid", "1", "--cap", "SYS_NICE"), "leave the other options out"),
        (("--pid", "0"), "0 is not in the range"),
    ],
)
def test_wrong_use_is_told_in_a_line(
    options: tuple[str, ...],
    told: str,
    profile: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(profile.parent)
    Path("bad.json").write_text('{\n  defaultAction: "SCMP_ACT_ALLOW"}')
    Path("odd.json").write_text('{"defaultAction": "SCMP_ACT_PERHAPS"}')
    code, out, err = run(capsys, *options)
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
    assert "Traceback" not in err


def test_the_emitted_profile_and_nothing_else(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--seccomp-profile", str(profile), *ARCH, "--emit-profile")
    assert (code, err) == (0, "")
    assert json.loads(out)["syscalls"][1:] == PROFILE["syscalls"]
    profile.write_text(out)
    code, data = as_json(capsys, "--seccomp-profile", str(profile), *ARCH)
    assert code == 0
    assert set(answers(data).values()) == {"allow"}
    assert data["status"] == "pass"


# A process, by what a captured tree shows of it.

CONTAINER = "0123456789abcdef" * 4
BUNDLE = f"/run/containerd/io.containerd.runtime.v2.task/moby/{CONTAINER}/config.json"


def process(folder: Path, seccomp_mode: int, filters: int = 1, config: str = "") -> str:
    files = {
        "/proc/7/status": f"Name:\tvllm\nPid:\t7\nCapBnd:\t00000000a80425fb\n"
        f"Seccomp:\t{seccomp_mode}\nSeccomp_filters:\t{filters}\n",
        "/proc/7/comm": "vllm\n",
        "/proc/7/cgroup": f"0::/system.slice/docker-{CONTAINER}.scope\n",
        "/sys/devices/system/node/online": "0-1\n",
    }
    if config:
        files[BUNDLE] = config
    return str(Tree(files=files).build(folder))


OCI = json.dumps(
    {
        "process": {"capabilities": {"bounding": ["CAP_CHOWN"]}},
        "linux": {
            "seccomp": {
                "defaultAction": "SCMP_ACT_ERRNO",
                "architectures": ["SCMP_ARCH_X86_64"],
                "syscalls": [{**USUAL}, {"names": ["get_mempolicy"], "action": "SCMP_ACT_ALLOW"}],
            }
        },
    }
)


@pytest.mark.parametrize(
    ("mode", "filters", "config", "source", "answer"),
    [
        (0, 0, "", "status", "allow"),
        (1, 0, "", "status", "SIGSYS"),
        (2, 1, "", "status", "unknown"),
        (2, 1, "{not json", "status", "unknown"),
        (2, 1, OCI, "config", "EPERM"),
    ],
)
def test_a_process_is_judged_by_what_can_be_had(
    mode: int,
    filters: int,
    config: str,
    source: str,
    answer: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = process(tmp_path / "root", mode, filters, config)
    code, data = as_json(capsys, "--pid", "7", "--sysroot", root, *ARCH)
    assert code == {"allow": 0, "unknown": 0}.get(answer, 1)
    assert (data["source"], answers(data)["mbind"]) == (source, answer)
    assert data["stopped_ms"] is None
    if answer == "unknown":
        assert run(capsys, "--pid", "7", "--sysroot", root, *ARCH, "--strict")[0] == 3


def test_what_a_second_filter_may_refuse_is_not_called_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (
        as_json(capsys, "--pid=7", "--sysroot", process(tmp_path / str(n), 2, n, OCI), *ARCH)[1]
        for n in (1, 2)
    )
    assert answers(one)["get_mempolicy"] == "allow"
    assert answers(two)["get_mempolicy"] == "unknown"
    assert answers(two)["mbind"] == "EPERM"  # what one refuses stays refused


def test_a_filter_that_the_runtime_did_not_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unconfined container whose program filters itself: config.json says nothing of it."""
    root = process(tmp_path / "root", 2, 1, json.dumps({"linux": {"namespaces": []}}))
    _, data = as_json(capsys, "--pid=7", "--sysroot", root, *ARCH)
    assert set(answers(data).values()) == {"unknown"}
    assert "of its own" in data["calls"][0]["because"]


def test_the_containers_own_profile_is_where_the_change_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = process(tmp_path / "root", 2, 1, OCI)
    code, out, err = run(capsys, "--pid=7", "--sysroot", root, *ARCH, "--emit-profile")
    assert (code, err) == (0, "")
    emitted = json.loads(out)
    assert emitted["syscalls"][0]["names"] == [c for c in CALLS if c != "get_mempolicy"]
    assert emitted["syscalls"][1:] == json.loads(OCI)["linux"]["seccomp"]["syscalls"]
    bare = process(tmp_path / "bare", 2)
    code, _, err = run(capsys, "--pid=7", "--sysroot", bare, *ARCH, "--emit-profile")
    assert code == 3
    assert "no container runtime keeps one" in err


def test_a_process_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--pid", str(0x3FFFFF))
    assert (code, out) == (3, "")
    assert str(0x3FFFFF) in err


# Live ones.


@needs_root
def test_the_filters_of_a_live_process(capsys: pytest.CaptureFixture[str]) -> None:
    def prepare() -> None:
        seccomp.install(seccomp.PODMAN)
        seccomp.install({"mbind": seccomp.refuse(38)})

    with victim(prepare) as (pid, _):
        code, data = as_json(capsys, "--pid", str(pid), "--stop-thread")
        _, text, _ = run(capsys, "--pid", str(pid), "--stop-thread")
        _, plain = as_json(capsys, "--pid", str(pid))
    assert (code, data["source"]) == (1, "filters")
    assert answers(data) == {
        "mbind": "ENOSYS",
        "set_mempolicy": "allow",
        "get_mempolicy": "allow",
        "set_mempolicy_home_node": "ENOSYS",
        "move_pages": "EPERM",
        "migrate_pages": "EPERM",
    }
    assert {c["verdict"] for c in data["calls"]} == {"reached", "filtered"}
    assert 0 < data["stopped_ms"] < 1000
    assert "One thread stood still for " in " ".join(text.split())
    assert plain["source"] == "status"
    assert plain["stopped_ms"] is None


def test_without_the_right_the_next_best_is_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_in_vain", lambda: "reading needs CAP_SYS_ADMIN")
    with victim() as (pid, _):
        code, data = as_json(capsys, "--pid", str(pid), "--stop-thread")
    assert code == 0
    assert (data["source"], data["stopped_ms"]) == ("status", None)
    assert any("needs CAP_SYS_ADMIN" in item["text"] for item in data["evidence"])
    assert {call["verdict"] for call in data["calls"]} == {"undecided"}


def test_the_plain_command_loads_nothing_of_this() -> None:
    program = (
        "import sys\nfrom numadoctor.cli import main\n"
        "try:\n    main(['syscalls', '-o', 'json'])\nfinally:\n"
        "    print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not [name for name in done.stderr.split() if "seccomp" in name]


def test_it_needs_the_standard_library_and_click_alone(profile: Path) -> None:
    program = (
        "import sys\nfrom numadoctor.cli import main\n"
        f"try:\n    main(['syscalls', '--seccomp-profile', {str(profile)!r}])\nfinally:\n"
        "    print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"yaml", "psutil", "pyroute2", "tabulate", "jinja2", "ctypes.util"}
    assert "click" in loaded
