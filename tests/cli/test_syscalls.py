import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from numadoctor.cli import cli, main
from numadoctor.kernel.abi import CALLS
from tests.kernel import answers, seccomp
from tests.kernel.answers import DOCKER_CAPS, SYS_NICE, effect, page, probe
from tests.trees import Tree, fact

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/schema/syscalls.schema.json").read_text())
EPERM, ENOSYS = errno.EPERM, errno.ENOSYS

CASES: dict[str, tuple[Any, int, int]] = {
    # Name: probe, Seccomp, capabilities.
    "plain": (probe(), 0, DOCKER_CAPS),
    "docker": (probe(every=EPERM), 2, DOCKER_CAPS),
    "docker-sys-nice": (probe(move_pages=EPERM, migrate_pages=EPERM), 2, DOCKER_CAPS | SYS_NICE),
    "old-docker": (probe(every=EPERM), 2, DOCKER_CAPS | SYS_NICE),
    "podman": (
        probe(move_pages=EPERM, migrate_pages=EPERM, set_mempolicy_home_node=ENOSYS),
        2,
        DOCKER_CAPS,
    ),
    "systemd": (probe(**{n: EPERM for n in CALLS if n != "get_mempolicy"}), 2, DOCKER_CAPS),
    "default-errno": (probe(every=ENOSYS), 2, DOCKER_CAPS),
    "emulation": (probe(every=ENOSYS), 0, DOCKER_CAPS),
    "killed": (probe(every="SIGSYS"), 2, DOCKER_CAPS),
    "guard": (probe(every=errno.EACCES), 0, DOCKER_CAPS),
    "malformed": ({"calls": [{"name": "mbind", "errno": "1"}, 7]}, 2, DOCKER_CAPS),
}


def tree(folder: Path, seen: Any, seccomp_mode: int, capabilities: int, **facts: Any) -> Path:
    """A captured host with two nodes and that probe."""
    status = (
        f"Name:\tx\nCapBnd:\t{capabilities:016x}\nNoNewPrivs:\t0\nSeccomp:\t{seccomp_mode}\n"
        "Seccomp_filters:\t1\nMems_allowed:\t3\nMems_allowed_list:\t0-1\n"
    )
    files = {
        "/proc/self/status": status,
        "/proc/version": "Linux version 5.15.0\n",
        "/sys/devices/system/node/online": "0-1\n",
        fact("syscalls"): json.dumps(seen),
    }
    files |= {fact(name): json.dumps(value) for name, value in facts.items()}
    return Tree(files=files).build(folder)


def run(capsys: pytest.CaptureFixture[str], sysroot: Path | str, *options: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main(["syscalls", "--sysroot", str(sysroot), *options])
    assert isinstance(caught.value.code, int)
    captured = capsys.readouterr()
    assert captured.err == ""
    return caught.value.code, captured.out


@pytest.mark.parametrize("case", CASES)
def test_output_fits_the_screen_and_the_schema(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree(tmp_path / "root", *CASES[case])
    for options in ((), ("-v",)):
        code, text = run(capsys, root, *options)
        assert max(map(len, text.splitlines())) <= 80, text
        assert text.isascii()
        assert all(f"\n{name} " in text for name in CALLS)
        assert "privileged" not in text
    json_code, shown = run(capsys, root, "-o", "json")
    data = json.loads(shown)
    Draft202012Validator(SCHEMA).validate(data)
    assert json_code == code == data["exit_code"]
    assert text.splitlines()[0] in data["headline"]
    assert [call["name"] for call in data["calls"]] == list(CALLS)
    assert sum(data["summary"].values()) == 6


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    ("case", "options", "code"),
    [
        ("plain", (), 0),
        ("plain", ("--strict", "--fail-on", "warn"), 0),
        ("docker", (), 1),
        ("docker", ("--fail-on", "never"), 0),
        ("docker", ("--fail-on", "never", "--strict"), 0),
        ("docker-sys-nice", ("--strict",), 0),
        ("podman", (), 0),
        ("podman", ("--strict",), 3),
        ("systemd", (), 1),
        ("emulation", (), 1),
        ("killed", (), 1),
        ("malformed", (), 0),
        ("malformed", ("--strict",), 3),
    ],
)
def test_exit_codes(
    case: str,
    options: tuple[str, ...],
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tree(tmp_path / "root", *CASES[case])
    assert run(capsys, root, *options)[0] == code


def test_no_effect_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    landed = effect(page("mbind", 1, 0), page("set_mempolicy", 1, 0))
    root = tree(tmp_path / "root", probe(), 0, DOCKER_CAPS, effect=landed)
    assert run(capsys, root)[0] == 0
    code, text = run(capsys, root, "--fail-on", "warn")
    assert code == 1
    assert "no-effect" in text
    assert "asked for node 1, page on node 0" in text


def test_a_kernel_without_numa_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "sample:no-numa", "--strict", "--fail-on", "warn")
    assert code == 0
    assert text.startswith("This kernel has no NUMA support: there is nothing to place.\n")
    assert "\nfix" not in text


def test_verdict_first_then_the_table_then_why_then_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = run(capsys, tree(tmp_path / "root", *CASES["docker"]))
    places = [
        text.index("NUMA placement does not work: seccomp refuses 6 of 6 calls."),
        text.index("call                     answer  verdict   who"),
        text.index("mbind                    EPERM   filtered  seccomp filter"),
        text.index("\nwhy "),
        text.index("Seccomp: 2 |"),
        text.index("CAP_SYS_NICE in the bounding set: no"),
        text.index("\nfix   least privilege first"),
    ]
    assert places == sorted(places)
    assert places[0] < 20
    docker = text[text.index("\n  docker ") : text.index("\n  podman ")]
    order = ["--cpuset-mems", "--security-opt seccomp=", "--cap-add SYS_NICE"]
    assert [docker.index(option) for option in order] == sorted(map(docker.index, order))
    # The rule is the same for each launcher and stands there once.
    assert text.count('"action": "SCMP_ACT_ALLOW"') == 1
    assert text.count("# the entry above") == 3


def test_the_rule_as_printed_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(capsys, tree(tmp_path / "root", *CASES["docker"]))
    rule = text[text.index('{"names"') : text.index("}", text.index('{"names"')) + 1]
    assert json.loads(rule)["names"] == list(CALLS)


def test_why_a_call_passes_is_told_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree(tmp_path / "root", *CASES["plain"])
    assert "why" not in run(capsys, root)[1]
    text = run(capsys, root, "-v")[1]
    assert "EINVAL is right for what was asked" in text
    assert "system call mbind (237): answers 0" in text


def test_hostile_recordings_reach_the_terminal_defused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = probe()
    seen["calls"][0]["unprobed"] = "\x1b]0;owned\x07\u202e" + "x" * 5000
    root = tree(tmp_path / "root", seen, 2, DOCKER_CAPS)
    status = root / "proc/self/status"
    status.write_bytes(status.read_bytes().replace(b"Mems_allowed_list:\t0-1", b"Seccomp:\x1b[31m"))
    _, text = run(capsys, root, "-v")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b]0;owned" in text
    assert len(text) < 4000


def test_a_tree_without_a_probe_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree(tmp_path / "root", *CASES["plain"])
    (root / fact("syscalls")[1:]).unlink()
    with pytest.raises(SystemExit) as caught:
        main(["syscalls", "--sysroot", str(root)])
    assert caught.value.code == 3
    assert "a captured folder does not hold it" in capsys.readouterr().err


def test_several_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree(tmp_path / "root", *CASES["docker"])
    file = tmp_path / "out.json"
    code, text = run(capsys, root, "-o", f"json={file}", "-o", "text")
    assert code == json.loads(file.read_text())["exit_code"] == 1
    assert text.startswith("Here NUMA")


def test_help_is_that_of_the_list_of_commands() -> None:
    from numadoctor.cli import COMMANDS
    from numadoctor.cli.syscalls import command

    assert command.help == COMMANDS["syscalls"]
    assert isinstance(cli, click.Group)


def _live(rules: Mapping[str, int], *options: str, python: str = "") -> Any:
    """The command in a process of its own, under a real filter."""
    program = (
        f"from tests.kernel import seccomp\nseccomp.install({dict(rules)!r})\n{python}\n"
        f"from numadoctor.cli import main\nmain(['syscalls', *{options!r}])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def _live_verdicts(rules: Mapping[str, int], **how: str) -> tuple[int, dict[str, str], Any]:
    result = _live(rules, "-o", "json", **how)
    assert result.stderr == ""
    data = json.loads(result.stdout)
    Draft202012Validator(SCHEMA).validate(data)
    return result.returncode, {c["name"]: c["verdict"] for c in data["calls"]}, data


@pytest.mark.usefixtures("policy_calls")
def test_live_without_a_filter() -> None:
    code, verdicts, data = _live_verdicts({})
    assert code == 0
    assert data["works"] is True
    assert {verdicts[name] for name in CALLS if name != "set_mempolicy_home_node"} == {"reached"}


@pytest.mark.usefixtures("policy_calls")
def test_live_as_a_user_without_capabilities() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    # The first run loads all modules: nobody may not enter the folders of root's Python.
    change = (
        "import contextlib, io, os, numadoctor.cli as first\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    first.main(['syscalls', '-o', 'json'])\n"
        "os.setgroups([]); os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3)"
    )
    code, verdicts, _ = _live_verdicts({}, python=change)
    assert code == 0
    assert {verdicts[name] for name in CALLS if name != "set_mempolicy_home_node"} == {"reached"}


@pytest.mark.usefixtures("policy_calls")
@pytest.mark.parametrize(
    ("rules", "code", "shut"),
    [
        (seccomp.DOCKER, 1, set(CALLS)),
        (seccomp.DOCKER_SYS_NICE, 0, {"move_pages", "migrate_pages"}),
        (seccomp.SYSTEMD, 1, set(CALLS) - {"get_mempolicy"}),
        (seccomp.DEFAULT_ENOSYS, 1, set(CALLS)),
        (seccomp.actions(CALLS, seccomp.KILL_PROCESS), 1, set(CALLS)),
    ],
)
def test_live_under_a_filter(rules: dict[str, int], code: int, shut: set[str]) -> None:
    found_code, verdicts, data = _live_verdicts(rules)
    assert found_code == code
    assert {name for name, verdict in verdicts.items() if verdict == "filtered"} == shut
    blockers = {call["blocked_by"] for call in data["calls"] if call["name"] in shut}
    assert blockers == {"seccomp filter"}


@pytest.mark.usefixtures("policy_calls")
def test_live_as_in_podman() -> None:
    code, verdicts, _ = _live_verdicts(seccomp.PODMAN)
    assert code == 0
    assert verdicts["mbind"] == "reached"
    assert verdicts["move_pages"] == "filtered"
    # By what else the kernel has it is known whether the call is missing or refused.
    assert verdicts["set_mempolicy_home_node"] in ("filtered", "absent", "undecided")


def test_it_needs_the_standard_library_and_click_alone() -> None:
    program = (
        "import sys\nfrom numadoctor.cli import main\n"
        "try:\n    main(['syscalls', '-o', 'json'])\nfinally:\n"
        "    print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    loaded = {name.partition(".")[0] for name in result.stderr.split()}
    assert "click" in loaded
    foreign = {name for name in loaded if not name.startswith("_") and name != "numadoctor"}
    allowed = set(sys.stdlib_module_names) | {"click", "typing_extensions", "numadoctor"}
    # An editable install leaves its finder behind, the interpreter its site customisation.
    foreign -= {"sitecustomize", "usercustomize"}
    assert foreign <= allowed


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_of_the_terminal(encoding: str, tmp_path: Path) -> None:
    root = tree(tmp_path / "root", *CASES["docker"])
    result = subprocess.run(
        [sys.executable, "-m", "numadoctor", "syscalls", "--sysroot", str(root)],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout.decode("ascii").startswith("Here NUMA placement does not work")


def test_answers_module_matches_a_real_probe(policy_calls: Callable[[], None]) -> None:
    """The written answers that the tests above rest on are those a kernel gives."""
    from numadoctor.kernel.probe import probe_calls

    real = {call["name"]: (call["returned"], call["errno"]) for call in probe_calls()["calls"]}
    newest = "set_mempolicy_home_node"
    assert {name: real[name] for name in CALLS if name != newest} == {
        name: answers.REACHED[name] for name in CALLS if name != newest
    }
