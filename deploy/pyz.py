"""Builds numadoctor.pyz: one file that any Python from 3.10 on runs, with nothing installed.

``python deploy/pyz.py FILE``. It holds numadoctor and the pure-Python packages that it
uses, from the environment of the Python that runs this; packages that need compiling
are left out, and what needs them says so. The same sources and packages give the same
bytes.
"""

import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "numadoctor": "numadoctor",
    "checks": "numadoctor/checks",
    "fixtures": "numadoctor/fixtures",
}
# Those of an extra are taken where they are installed.
NEEDED = ("click", "pyroute2", "tabulate")
WELCOME = ("tomli", "PyYAML", "prometheus-client", "nvidia-ml-py", "Jinja2", "MarkupSafe")

# What an older Python can read, too: it is to say what is wanted.
MAIN = """\
import sys

if sys.version_info < (3, 10):
    sys.stderr.write("numadoctor: needs Python 3.10 or later, not %d.%d\\n" % sys.version_info[:2])
    sys.exit(2)

from numadoctor.__main__ import main

main()
"""
# A zip file cannot hold an earlier one (MS-DOS time).
EPOCH = (1980, 1, 1, 0, 0, 0)


def own_files() -> Iterator[tuple[str, bytes]]:
    """The project itself, its checks and its sample hosts."""
    for folder, place in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{place}/{path.relative_to(ROOT / folder).as_posix()}", path.read_bytes()


def package_files(name: str) -> Iterator[tuple[str, bytes]]:
    """The Python files of an installed package, and its licence."""
    distribution = metadata.distribution(name)
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if file.parts[0] == ".." or "__pycache__" in file.parts or not path.is_file():
            continue
        if file.parts[0].endswith(".dist-info"):
            if path.name.upper().startswith(("LICEN", "NOTICE", "COPYING", "AUTHORS")):
                licence = f"licenses/{name}-{distribution.version}/{path.name}"
                yield licence, path.read_bytes()
        elif path.suffix in (".py", ".typed"):
            yield file.as_posix(), path.read_bytes()


def build(target: Path) -> None:
    """Write the file, executable.

    :raises PackageNotFoundError: a package that it needs is not installed
    """
    files = {"__main__.py": MAIN.encode(), **dict(own_files())}
    files["licenses/numadoctor/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    for name in (*NEEDED, *WELCOME):
        try:
            files.update(package_files(name))
        except metadata.PackageNotFoundError:
            if name in NEEDED:
                raise
            print(f"without {name}, which is not installed", file=sys.stderr)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w") as archive:
            for name, data in sorted(files.items()):
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.external_attr = 0o644 << 16
                entry.create_system = 3
                archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=9)
    target.chmod(0o755)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
