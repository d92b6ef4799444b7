"""The sdist, the wheel that is built from it, and that wheel in a bare virtual environment."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from numadoctor import __version__
from numadoctor.host import sample_names

ROOT = Path(__file__).parents[1]
PARTS = ("numadoctor", "checks", "fixtures")
FILES = ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")


@dataclass(frozen=True)
class Built:
    """What a release consists of."""

    sdist: Path
    wheel: Path
    source: Path


def files_of(source: Path, part: str) -> set[str]:
    """The files below a folder of the project, by their path in it."""
    return {
        str(path.relative_to(source / part))
        for path in (source / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _builds_wheels() -> bool:
    """Whether the setuptools that is installed needs no help, which would be fetched."""
    try:
        release = metadata.version("setuptools").split(".")
    except metadata.PackageNotFoundError:
        return False
    return tuple(map(int, release[:2])) >= (70, 1)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built from a copy: setuptools leaves things behind where it builds."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("out")
    for part in PARTS:
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(ROOT / part, source / part, symlinks=True, ignore=ignore)
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(source)]
    if _builds_wheels():
        command.append("--no-isolation")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist, wheel, source)


@pytest.fixture(scope="module")
def names(built: Built) -> set[str]:
    with zipfile.ZipFile(built.wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds this wheel, and click, and no more."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check",
         "install", "--quiet", "--no-deps", "--no-index", "--no-compile", built.wheel],
        check=True,
    )  # fmt: skip
    spec = importlib.util.find_spec("click")
    assert spec is not None
    assert spec.origin is not None
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "click").symlink_to(Path(spec.origin).parent)
    return folder / "bin"


def run(bare: Path, *arguments: str, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COLUMNS"))}
    done = subprocess.run(
        [bare / "numadoctor", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_sdist_holds_all_sources(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    for part in ("numadoctor", "checks", "fixtures"):
        missing = {f"{part}/{name}" for name in files_of(built.source, part)} - found
        assert missing == set()
    assert {"setup.cfg", "pyproject.toml", "README.md", "LICENSE"} <= found


def test_the_wheel_holds_the_package_and_no_more(built: Built, names: set[str]) -> None:
    expected = {f"numadoctor/{name}" for name in files_of(built.source, "numadoctor")}
    for part in ("checks", "fixtures"):
        expected |= {f"numadoctor/{part}/{name}" for name in files_of(built.source, part)}
    info = {name for name in names if name.startswith(f"numadoctor-{__version__}.dist-info/")}
    assert names - info == expected
    assert "numadoctor/py.typed" in names
    assert any(name.endswith("LICENSE") for name in info)
    assert not any(name.startswith("tests") for name in names)


def test_sample_hosts_are_whole(names: set[str]) -> None:
    assert sample_names()
    for name in sample_names():
        assert f"numadoctor/fixtures/{name}/root/.numadoctor/facts/syscalls.json" in names
    # A PCI address has colons, and a wheel no symbolic links.
    assert any("/devices/" in name and ":" in name for name in names)
    assert any(name.endswith("/.numadoctor/links.json") for name in names)


def test_the_metadata(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        told = archive.read(f"numadoctor-{__version__}.dist-info/METADATA").decode()
        scripts = archive.read(f"numadoctor-{__version__}.dist-info/entry_points.txt").decode()
    for line in ("Name: numadoctor", f"Version: {__version__}", "Requires-Python: >=3.10"):
        assert f"\n{line}\n" in told
    required = [line for line in told.splitlines() if line.startswith("Requires-Dist: ")]
    runtime = {line.split()[1].partition(">")[0] for line in required if "extra ==" not in line}
    assert runtime == {"click", "psutil", "pyroute2", "tabulate", "tomli"}
    assert "numadoctor = numadoctor.__main__:main" in scripts


def test_it_works_where_nothing_else_is(bare: Path, tmp_path: Path) -> None:
    topology = json.loads(
        run(bare, "topology", "--sysroot", "sample:two-socket", "-o", "json", cwd=tmp_path)
    )
    assert [node["id"] for node in topology["nodes"]] == [0, 1]
    assert {device["node"] for device in topology["devices"]} == {0, 1}
    listed = json.loads(run(bare, "list", "-o", "json", cwd=tmp_path))
    assert listed["samples"] == list(sample_names())
    assert {"E001", "K001", "T001"} <= {check["id"] for check in listed["checks"]}
    assert run(bare, "check", "--sysroot", "sample:two-socket", cwd=tmp_path).startswith(
        "two-socket: fit · "
    )
    assert run(bare, "--version", cwd=tmp_path) == f"numadoctor, version {__version__}\n"
