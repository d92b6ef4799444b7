"""numadoctor.pyz: one file, run by a Python that has nothing else."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from numadoctor import __version__
from numadoctor.engine.discovery import discover
from numadoctor.host import sample_names
from tests.cli.programs import Done

ROOT = Path(__file__).parents[1]


def build(target: Path) -> Path:
    """Write the file as ``make pyz`` does."""
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "pyz.py", target],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def pyz(in_memory: Path) -> Path:
    return build(in_memory / "numadoctor.pyz")


@pytest.fixture
def run(pyz: Path, tmp_path: Path) -> "Runner":
    return Runner(pyz, tmp_path)


class Runner:
    """Runs the file isolated, without site-packages, in an empty home and an empty folder."""

    def __init__(self, pyz: Path, folder: Path) -> None:
        self.pyz, self.folder = pyz, folder

    def __call__(self, *arguments: str, flags: tuple[str, ...] = ("-I", "-S")) -> Done:
        done = subprocess.run(
            [sys.executable, *flags, self.pyz, *arguments],
            capture_output=True, text=True, check=False, cwd=self.folder,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)


def test_it_is_the_same_each_time(pyz: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again" / "numadoctor.pyz")
    first, second = (hashlib.sha256(p.read_bytes()).hexdigest() for p in (pyz, again))
    assert first == second
    assert os.access(again, os.X_OK)


def test_what_is_in_it(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    assert names == sorted(names)
    assert not any(name.endswith((".so", ".pyc")) for name in names)
    for package in ("click", "tabulate", "pyroute2", "tomli", "yaml", "prometheus_client"):
        assert any(name.startswith((f"{package}/", f"{package}.py")) for name in names), package
    for package in ("click", "PyYAML", "numadoctor"):
        assert any(name.startswith(f"licenses/{package}") for name in names), package
    assert not any(name.startswith(("tests/", "numpy/")) for name in names)


def test_the_version(run: Runner) -> None:
    assert run("--version") == Done(0, f"numadoctor, version {__version__}\n", "")


def test_syscalls_needs_nothing(run: Runner) -> None:
    done = run("syscalls", "-o", "json")
    assert (done.code in (0, 1), done.err) == (True, "")
    assert {call["name"] for call in json.loads(done.out)["calls"]} >= {"mbind", "move_pages"}


def test_it_does_not_write_where_it_runs(run: Runner) -> None:
    run("syscalls")
    run("check", "--sysroot", "sample:two-socket")
    assert list(run.folder.iterdir()) == []


def test_all_checks_and_samples_are_there(run: Runner) -> None:
    listed = json.loads(run("list", "-o", "json").out)
    assert [check["id"] for check in listed["checks"]] == [check.id for check in discover()]
    assert listed["samples"] == list(sample_names())
    assert listed["problems"] == []


@pytest.mark.parametrize("sample", ["two-socket", "container-docker", "gpu-memory-nodes"])
@pytest.mark.parametrize("command", ["check", "topology", "syscalls"])
def test_samples_are_read_as_from_files(run: Runner, command: str, sample: str) -> None:
    arguments = (command, "--sysroot", f"sample:{sample}", "-o", "json")
    installed = subprocess.run(
        [sys.executable, "-m", "numadoctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run(*arguments) == Done(installed.returncode, installed.stdout, "")


def test_a_sample_that_is_not_there(run: Runner) -> None:
    done = run("check", "--sysroot", "sample:nope")
    assert done.code == 2
    assert "sample:nope: no such sample; there are all-distances-10" in done.err


def test_settings_and_formats_work(run: Runner) -> None:
    (run.folder / "numadoctor.toml").write_text(
        '[[waivers]]\nid = "E001"\nreason = "known"\nexpires = 2999-01-01\n'
    )
    done = run(
        "check", "--sysroot", "sample:container-docker", "--select", "E001",
        "-o", "prometheus=x.prom", "-o", "sarif=x.sarif", "-o", "junit",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert "waived until 2999-01-01: known" in done.out
    assert 'suppressed="waiver"' in (run.folder / "x.prom").read_text()
    assert '"ruleId": "E001"' in (run.folder / "x.sarif").read_text()


def test_a_package_that_is_missing_is_named(run: Runner, tmp_path: Path) -> None:
    """As where the file was built without an extra."""
    smaller = tmp_path / "smaller.pyz"
    with zipfile.ZipFile(run.pyz) as whole, zipfile.ZipFile(smaller, "w") as part:
        for name in whole.namelist():
            if not name.startswith(("prometheus_client/", "tabulate")):
                part.writestr(name, whole.read(name))
    run = Runner(smaller, tmp_path)
    for arguments, package in (
        (("check", "--sysroot", "sample:two-socket", "-o", "prometheus"), "numadoctor[metrics]"),
        (("topology", "--sysroot", "sample:two-socket"), "tabulate"),
    ):
        done = run(*arguments)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("numadoctor: this needs ")
        assert package in done.err
        assert done.err.count("\n") == 1


def test_it_runs_with_the_usual_flags(run: Runner) -> None:
    assert run("explain", "K001", flags=()).out.startswith("K001  numa-balancing")


def test_an_older_python_is_told_what_is_wanted(run: Runner) -> None:
    program = "import runpy, sys; sys.version_info = (3, 9, 1); runpy.run_path(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, run.pyz],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "numadoctor: needs Python 3.10 or later, not 3.9\n"
