"""The project under test and what it imports, laid out for a container or a guest.

Both see two folders, whatever their Python: ``PROJECT`` and ``DEPENDENCIES``,
named in ``ENVIRONMENT``. Dependencies that hold compiled code come as Debian
packages of the root file system's architecture instead.
"""

import functools
import shutil
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.lab import cache, debian

PROJECT = "/opt/numadoctor"
DEPENDENCIES = "/opt/dependencies"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": f"{PROJECT}:{DEPENDENCIES}",
    "LC_ALL": "C.UTF-8",
}

_REPOSITORY = Path(__file__).resolve().parents[2]
# As package_dir in setup.cfg has it.
_PACKAGES = {"numadoctor": "numadoctor", "checks": "numadoctor/checks"}
_SAMPLES = "fixtures"
_COMPILED = {"psutil"}  # debian.ROOT_PACKAGES has it
_DEBIAN = {"python_version": "3.11", "extra": ""}  # whose Python the roots hold: Debian 12


def lay_out(into: Path) -> None:
    """Fill a folder with the project as it is when installed, and the lab's guest modules.

    The sample machines are left out: every one of their thousands of files costs a guest time.
    """
    for source, package in _PACKAGES.items():
        _copy(_REPOSITORY / source, into / package)
    samples = into / "numadoctor" / _SAMPLES
    samples.mkdir()
    shutil.copy(_REPOSITORY / _SAMPLES / "__init__.py", samples)
    lab = into / "tests" / "lab"
    lab.mkdir(parents=True)
    for module in (_REPOSITORY / "tests" / "lab").glob("guest_*.py"):
        shutil.copy(module, lab)
    # Filters that refuse calls, which guest modules install too.
    kernel = into / "tests" / "kernel"
    kernel.mkdir()
    shutil.copy(_REPOSITORY / "tests" / "kernel" / "seccomp.py", kernel)
    for folder in (lab, kernel, lab.parent):
        (folder / "__init__.py").touch()
    debian.compile_modules(into.parent, into.name)


@functools.cache
def project() -> Path:
    """A folder with the project as it is installed, made once a session."""
    folder = cache.scratch() / "project"
    lay_out(folder)
    return folder


def dependencies() -> Path:
    """A folder with the pure-Python distributions that the project requires, from the cache."""
    names = sorted(_required() - _COMPILED)
    versions = [[name, metadata.version(name)] for name in names]

    def build(draft: Path) -> None:
        for name in names:
            _copy_distribution(name, draft / "modules")
        debian.compile_modules(draft, "modules")

    return cache.entry("dependencies", [versions, debian.native()], build) / "modules"


def _required() -> set[str]:
    required = map(Requirement, metadata.requires("numadoctor") or [])
    return {one.name for one in required if not one.marker or one.marker.evaluate(_DEBIAN)}


def _copy_distribution(name: str, into: Path) -> None:
    for file in metadata.files(name) or []:
        if ".." in file.parts or "__pycache__" in file.parts:
            continue  # a script in bin/, or compiled for this machine's Python
        if file.suffix == ".so":
            raise RuntimeError(f"{name} holds compiled code: add its Debian package to the root")
        target = into / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file.locate(), target)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".*"))
