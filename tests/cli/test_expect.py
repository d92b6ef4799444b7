"""``numadoctor check --expect``: a plan that was printed, written by hand, or hostile."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from numadoctor.host import sample_names
from tests.cli.programs import numadoctor
from tests.cli.test_plan import run

OURS = "P050,P051,P052,P053,P054,P055,P060,P061,P062,P063"


def expected(file: Path | str, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = run("check", "--expect", str(file), "--select", OURS, *arguments, "-o", "json")
    assert (done.code, done.err) == (code, "")
    findings: list[dict[str, Any]] = json.loads(done.out)["findings"]
    return findings


def statuses(findings: list[dict[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in findings:
        found.setdefault(finding["id"], set()).add(finding["status"])
    return found


@pytest.mark.parametrize("name", sample_names())
def test_a_plan_for_a_sample_fits_the_sample(name: str, tmp_path: Path) -> None:
    """Whatever plan says about a machine, the checks of the plan agree."""
    file, root = tmp_path / "plan.json", f"sample:{name}"
    made = run("plan", "--sysroot", root, "--pool-size", "1GiB", "-o", f"json={file}")
    if made.code:
        done = run("check", "--expect", str(file), "--sysroot", root)
        assert (done.code, done.out) == (2, "")
        assert "there is none to expect" in done.err
        return
    arguments = ("check", "--expect", str(file), "--select", OURS, "--sysroot", root)
    findings = json.loads(run(*arguments, "-o", "json").out)["findings"]
    wrong = [f for f in findings if f["status"] in ("fail", "warn", "error")]
    # The policy calls of a container are refused: no plan helps.
    assert [f["message"] for f in wrong if f["id"] != "P055"] == []
    assert not wrong or name == "container-docker"


def test_without_a_plan_the_checks_say_so() -> None:
    done = run("check", "--sysroot", "sample:two-socket", "--select", OURS, "-o", "json")
    for finding in json.loads(done.out)["findings"]:
        assert finding["status"] == "skip"


def test_standard_input(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("instances: [{pool_size: 600GiB, policy: bind, nodes: 1}]\n")
    with plan.open() as stream:
        done = subprocess.run(
            [sys.executable, "-m", "numadoctor", "check", "--expect", "-", "--select", "P051",
             "--sysroot", "sample:two-socket"],
            stdin=stream, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "600 GiB are planned on node 1: 409.6 GiB are free" in done.stdout
    assert "standard input" in done.stdout


def test_the_machine_is_left_out_when_processes_are_named(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("[[instances]]\nname = 'a'\ncpus = '0-1023'\n")
    found = expected(plan, "--pid", str(os.getpid()))
    assert statuses(found)["P051"] == {"skip"}
    assert statuses(found)["P061"] == {"pass"}
    assert "planned" not in statuses(found)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("plan.yaml", "instances: [{gpuz: 1}]", 'line 1, column 14, instances[0]: "gpuz" is no'),
        ("plan.toml", "a = ]", "line 1, column 5: no TOML"),
        ("plan.json", "[", "line 1, column 2: no JSON"),
        ("plan.yaml", "\x1b[31m", "plan.yaml"),
        ("plan.json", '{"instances": [{"name": "\\u001b[31m\\u202e", "nodes": "x"}]}', "nodes"),
    ],
)
def test_a_plan_that_is_none_is_refused_in_one_line(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    done = numadoctor("check", "--expect", file)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert "\x1b" not in done.err


def test_no_such_file() -> None:
    done = numadoctor("check", "--expect", "/nowhere/plan.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.err == "Error: /nowhere/plan.yaml: cannot be read: No such file or directory\n"


@pytest.mark.skipif(not shutil.which("taskset"), reason="util-linux is not installed")
def test_the_printed_command_line_starts_a_process_that_passes(tmp_path: Path) -> None:
    """On this machine, whatever it is: the CPUs. The lab shows policies and pages."""
    file = tmp_path / "plan.json"
    sleeper = shlex.join([sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"])
    made = run("plan", "--gpus-per-instance", "0", "--command", sleeper, "-o", f"json={file}")
    if made.code:
        pytest.skip("this machine has no nodes, or no CPU to spare")
    (instance,) = json.loads(file.read_text())["instances"]
    line = next(c["text"] for c in instance["commands"] if c["launcher"] == "taskset")
    with subprocess.Popen(shlex.split(line), stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        found = expected(file, "--pid", str(started.pid))
        started.kill()
    assert statuses(found)["P061"] == {"pass"}
    other = json.loads(file.read_text())
    other["instances"][0]["cpus"] = [4095]
    file.write_text(json.dumps(other))
    with subprocess.Popen(shlex.split(line), stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        found = expected(file, "--pid", str(started.pid), code=1)
        started.kill()
    assert statuses(found)["P061"] == {"fail"}


@pytest.mark.parametrize("name", sample_names())
def test_a_plan_for_another_machine_crashes_no_check(name: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        "[[instances]]\ngpus = '0,7,0000:ff:00.0'\nnics = 'mlx5_9'\npool_size = '9TiB'\n"
        "policy = 'bind'\nnodes = '0,1,250'\ncpus = '0-2,200'\n"
        "[[instances]]\nbacking = 'hugetlb'\npool_size = '1GiB'\npage_size = '16MiB'\nnodes = 1\n"
        "policy = 'weighted-interleave'\nshares = {1 = 1073741824}\ncpus = 0\n"
        "[[instances]]\nbacking = 'hugetlb'\npool_size = '3GiB'\n"
        "[[instances]]\nbacking = 'posix'\npool_size = '8TiB'\n[[instances]]\n"
    )
    found = expected(file, "--sysroot", f"sample:{name}", code=1)
    assert "error" not in {finding["status"] for finding in found}
    assert {"P050", "P051", "P054"} <= {f["id"] for f in found if f["status"] == "fail"}
