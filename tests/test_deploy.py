"""What pipelines copy: it is well-formed, names options that there are, and does what it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from numadoctor.cli.gate import FORMATS
from numadoctor.engine.config import read_config
from numadoctor.engine.thresholds import set_thresholds
from tests.cli.programs import numadoctor

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent

COMPOSE = """\
services:
  engine:
    image: engine
    command: vllm serve model --numa-bind
"""


def blocks(page: str, language: str) -> list[str]:
    """The blocks to copy on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)


def shell(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a pipeline's shell does, with this numadoctor on the path."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{folder}/bin:{BIN}:/usr/bin:/bin", **variables},
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a file to judge."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "compose.yaml").write_text(COMPOSE)
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [ROOT / "action.yml", ROOT / ".pre-commit-hooks.yaml", *sorted(DEPLOY.glob("*.y*ml"))],
    ids=lambda path: path.name,
)
def test_yaml_is_yaml(path: Path) -> None:
    assert list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("page", ["gate.md", "formats.md"])
def test_yaml_on_the_pages_is_yaml(page: str) -> None:
    assert blocks(page, "yaml")
    for block in blocks(page, "yaml"):
        yaml.safe_load(block)


def test_the_page_of_settings_holds_settings(tmp_path: Path) -> None:
    (text,) = blocks("configuration.md", "toml")
    (tmp_path / "numadoctor.toml").write_text(text)
    config = read_config(str(tmp_path / "numadoctor.toml"))
    set_thresholds({})
    assert (config.fail_on, config.waivers[0].host) == ("warn", "gpu-*")
    assert config.thresholds
    assert config.severities


def test_every_format_is_on_its_page() -> None:
    table = re.findall(r"^\| `([a-z]+)` \|", (DOCS / "formats.md").read_text(), re.M)
    assert table == list(FORMATS)


def test_the_five_minutes(project: Path) -> None:
    first, then = blocks("gate.md", "sh")
    install, lint = first.strip().split("\n")
    assert "pip install" in install
    done = shell(lint, project)
    assert done.returncode == 0, done.stderr
    assert (project / "numadoctor.xml").exists()
    done = shell(then.replace("lint deploy", "lint deploy --fail-on warn").split("\n")[0], project)
    assert done.returncode == 1
    done = shell(then.replace("lint deploy", "lint deploy --fail-on warn").split("\n")[1], project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in the baseline" in done.stdout


def action(project: Path, **given: str) -> tuple[int, str, dict[str, str]]:
    """Run the steps of action.yml but the installation: exit code, output, outputs."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {name: str(value.get("default", "")) for name, value in loaded["inputs"].items()}
    inputs |= given
    outputs = project / "github-output"
    outputs.write_text("")
    (step,) = [step for step in loaded["runs"]["steps"] if "if" not in step]
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda m: inputs[m[1]], value)
        for name, value in step["env"].items()
    }
    # What is pasted into a script could be one.
    assert "${{" not in step["run"]
    done = shell(step["run"], project, GITHUB_OUTPUT=str(outputs), **variables)
    pairs = (line.split("=", 1) for line in outputs.read_text().splitlines())
    return done.returncode, done.stdout + done.stderr, dict(pairs)


def test_the_action_annotates_and_keeps_reports(project: Path) -> None:
    code, out, outputs = action(project, paths="deploy", args="--fail-on warn")
    assert (code, outputs["exit-code"]) == (1, "1")
    assert "file=deploy/compose.yaml,line=4" in out
    assert json.loads((project / outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert {path.name for path in (project / "numadoctor-reports").iterdir()} == {
        "numadoctor.json", "numadoctor.sarif", "numadoctor.xml",
    }  # fmt: skip


def test_the_action_runs_nothing_that_it_is_given(project: Path) -> None:
    code, _, outputs = action(project, paths="$(touch pwned) `touch pwned` *")
    assert (code, outputs["exit-code"]) == (2, "2")
    assert not (project / "pwned").exists()
    assert action(project, command="syscalls; touch pwned")[0] == 2
    assert not (project / "pwned").exists()


def test_the_action_checks_the_runner(project: Path) -> None:
    code, out, _ = action(project, command="check", args="--sysroot sample:two-socket --select K")
    assert code == 0
    assert "two-socket: fit" in out


def test_the_template_of_gitlab(project: Path) -> None:
    template = yaml.safe_load((DEPLOY / "gitlab.yml").read_text())
    (script,) = template[".numadoctor-lint"]["script"]
    done = shell(script, project, NUMADOCTOR_PATHS="deploy", NUMADOCTOR_ARGS="--fail-on warn")
    assert done.returncode == 1, done.stderr
    reports = template[".numadoctor"]["artifacts"]["reports"]
    assert (project / reports["junit"]).exists()
    (entry,) = json.loads((project / reports["codequality"]).read_text())
    assert entry["location"]["path"] == "deploy/compose.yaml"
    (script,) = template[".numadoctor-check"]["script"]
    done = shell(script, project, NUMADOCTOR_ARGS="--sysroot sample:two-socket --select K")
    assert done.returncode == 0, done.stderr


def test_the_hook(project: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "numadoctor lint"
    pattern = re.compile(hook["files"])
    for name in (
        "compose.yaml",
        "a/b.yml",
        "vllm.service",
        "90-llm.conf",
        "seccomp.json",
        "run.sh",
    ):
        assert pattern.search(name), name
    assert not pattern.search("main.py")
    done = shell(f"{hook['entry']} --fail-on warn deploy/compose.yaml", project)
    assert done.returncode == 1


def test_the_detector_gets_its_codes() -> None:
    config = json.loads((DEPLOY / "node-problem-detector.json").read_text())
    (rule,) = config["rules"]
    conditions = {condition["type"] for condition in config["conditions"]}
    assert rule["condition"] in conditions
    arguments = rule["args"]
    fit = numadoctor(*arguments, "--sysroot", "sample:two-socket")
    assert (fit.code, fit.err) == (0, "")
    assert 0 < len(fit.out.strip()) <= config["pluginConfig"]["max_output_length"]
    broken = numadoctor(*arguments, "--select", "E", "--sysroot", "sample:container-docker")
    assert broken.code == 1


def test_the_pod_asks_with_what_the_engine_has() -> None:
    pod = yaml.safe_load((DEPLOY / "init-container.yaml").read_text())["spec"]
    (init,), (engine,) = pod["initContainers"], pod["containers"]
    assert init["securityContext"] == engine["securityContext"]
    assert init["resources"] == engine["resources"]
    mounts = {mount["name"] for mount in init["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    (config,) = [a for a in init["args"] if a.startswith("/settings/")]
    assert numadoctor(*init["args"], "--sysroot", "sample:two-socket").err.endswith(
        f"{config}: cannot be read: No such file or directory\n"
    )


def test_the_daemonset_examines_a_mounted_root(project: Path) -> None:
    spec = yaml.safe_load((DEPLOY / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"/host", "/textfile", "/features"}
    assert "privileged" not in container["securityContext"]
    script = container["command"][-1].replace("sleep 600", "break")
    for path in ("/textfile", "/features"):
        script = script.replace(path, str(project / path[1:]))
        (project / path[1:]).mkdir()
    done = shell(script.replace("/host", "sample:container-docker"), project)
    assert done.returncode == 0, done.stderr
    assert "numadoctor_findings" in (project / "textfile" / "numadoctor.prom").read_text()
    assert "numadoctor-verdict=" in (project / "features" / "numadoctor").read_text()


@pytest.mark.parametrize(
    ("sample", "select", "code"),
    [
        ("two-socket", "T,G,K", 0),
        ("container-docker", "E", 1),
        ("nope", "K", 0),
    ],
)
def test_the_prolog_drains_for_a_verdict_alone(
    project: Path, sample: str, select: str, code: int
) -> None:
    (project / "bin").mkdir()
    scontrol = project / "bin" / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {project}/drained\n')
    scontrol.chmod(0o755)
    script = (DEPLOY / "slurm-prolog.sh").read_text()
    script = script.replace("/usr/local/bin/numadoctor", "numadoctor")
    script = script.replace("--select T,G,K", f"--select {select} --sysroot sample:{sample}")
    done = subprocess.run(
        ["sh", "-c", script], check=False, capture_output=True,
        env={"PATH": f"{project}/bin:{BIN}:/usr/bin:/bin", "SLURMD_NODENAME": "gpu-07"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    drained = project / "drained"
    assert drained.exists() is bool(code)
    if code:
        assert drained.read_text().startswith(
            "update NodeName=gpu-07 State=DRAIN Reason=numadoctor: not fit: E001 "
        )


def test_the_unit_is_one(tmp_path: Path) -> None:
    (line,) = [
        line for line in blocks("gate.md", "ini")[0].splitlines() if line.startswith("ExecStartPre")
    ]
    unit = (DEPLOY / "engine.service").read_text()
    assert line in unit.splitlines()
    if not Path("/usr/bin/systemd-analyze").exists():
        pytest.skip("no systemd-analyze here")
    program = line.partition("=")[2].split()[0]
    (tmp_path / "engine.service").write_text(
        unit.replace(program, "/bin/true").replace("/usr/local/bin/engine", "/bin/true")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "engine.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
