"""numadoctor.pyz in a bare container: a Python of the distribution, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.containers import Container, docker_profile

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "numadoctor.pyz"
    subprocess.run([sys.executable, ROOT / "deploy" / "pyz.py", target], check=True)
    return target


@pytest.mark.parametrize("options", [(), ("--cap-add=SYS_NICE",), ("--cap-drop=ALL",)])
def test_it_says_what_the_package_says(pyz: Path, options: tuple[str, ...]) -> None:
    """Isolated and without site-packages, as nobody, on a root file system that is read-only."""
    mounted = (f"--volume={pyz}:/numadoctor.pyz:ro", "--read-only", "--env=HOME=/nonexistent")
    container = Container(docker_profile(), (*options, *mounted), user=65534)
    ours = container.run("python3", "-I", "-S", "/numadoctor.pyz", "syscalls", "-o", "json")
    assert ours.stderr == ""
    theirs = container.run("python3", "-m", "numadoctor", "syscalls", "-o", "json")
    assert (ours.returncode, json.loads(ours.stdout)) == (
        theirs.returncode, json.loads(theirs.stdout),
    )  # fmt: skip


def test_the_gate_stops_in_the_container_itself(pyz: Path) -> None:
    container = Container(docker_profile(), (f"--volume={pyz}:/numadoctor.pyz:ro",))
    done = container.run(
        "python3", "-I", "-S", "/numadoctor.pyz", "check", "--select", "E001", "-o", "tap"
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("TAP version 14\n1..1\n")
    assert "\nnot ok 1 - E001 numa-calls\n" in done.stdout
