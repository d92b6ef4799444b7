"""numadoctor as its users have it.

What `make` installs is editable: each start of Python then loads a module that finds the sources,
which takes longer than Python itself. Users do not pay that.
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
_PARTS = ("numadoctor", "checks", "fixtures")


@contextmanager
def installed() -> Iterator[Path]:
    """The folder of programs of an environment with numadoctor; the packages that it needs are
    those of the environment that runs this.
    """
    with TemporaryDirectory() as folder:
        # setuptools leaves things behind where it builds.
        source = Path(folder, "source")
        for part in _PARTS:
            shutil.copytree(ROOT / part, source / part, symlinks=True)
        for file in ROOT.iterdir():
            if file.is_file():
                shutil.copy(file, source)
        environment = Path(folder, "environment")
        venv.create(environment, symlinks=True)
        programs = environment / "bin"
        where = [
            programs / "python",
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
        ]
        own = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
        Path(own, "needed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--python", programs / "python", "install"),
                *("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"),
                source,
            ],
            check=True,
        )
        yield programs
