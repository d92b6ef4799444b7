"""What the lab compiles for itself: kernels that Debian does not build, and a first process in C.

``kernels/ARCHITECTURE.config`` lists what a kernel has. Whatever that list does
not name is left out, so compiling takes a tenth of what Debian's takes.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab import cache, debian

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class _Target:
    """How a kernel is made.

    :ivar name: what the kernel calls the architecture
    :ivar goal: what make is asked for
    :ivar image: the file to boot, in the folder of the build
    """

    name: str
    goal: str
    image: str


_TARGETS = {
    "ppc64": _Target("powerpc", "vmlinux", "vmlinux"),
    "s390x": _Target("s390", "bzImage", "arch/s390/boot/bzImage"),
}
_COMPILERS = {
    "ppc": "powerpc-linux-gnu-",
    "ppc64": "powerpc64-linux-gnu-",
    "s390x": "s390x-linux-gnu-",
}


def kernel(architecture: str, package: str) -> Path:
    """The kernel that a source package (``linux-source-6.1``) makes, from the cache.

    :raises debian.Unavailable: when a compiler or the package is not to be had, or the source
        does not know what ``kernels/`` asks of it
    """
    debian.require("compilers")
    target = _TARGETS[architecture]
    wanted = (_HERE / "kernels" / f"{architecture}.config").read_text()

    def build(draft: Path) -> None:
        work = draft / "work"
        source = _source(package, work)
        (work / "wanted").write_text(wanted)
        make = ["make", f"--directory={source}", f"ARCH={target.name}"]
        make += [f"CROSS_COMPILE={_COMPILERS[architecture]}", f"--jobs={os.cpu_count() or 1}"]
        _run([*make, f"KCONFIG_ALLCONFIG={work / 'wanted'}", "allnoconfig"])
        had = (source / ".config").read_text().splitlines()
        if lost := [line for line in wanted.splitlines() if line and line not in had]:
            raise debian.Unavailable(f"{package} for {architecture} drops {' '.join(lost)}")
        _run([*make, target.goal])
        shutil.copy(source / target.image, draft / "kernel")
        shutil.rmtree(work)

    return cache.entry(f"kernel-{architecture}-{package}", [wanted], build) / "kernel"


def first_process(architecture: str) -> Path:
    """A folder for an initramfs: ``guest_calls.c`` as the first process, from the cache.

    :raises debian.Unavailable: when the compiler is not installed
    """
    debian.require("compilers")
    source = _HERE / "guest_calls.c"
    compiler = [f"{_COMPILERS[architecture]}gcc", "-static", "-O2", "-Wall", "-Werror"]

    def build(draft: Path) -> None:
        (draft / "root").mkdir()
        _run([*compiler, "-o", str(draft / "root" / "init"), str(source)])

    inputs = [compiler, source.read_text()]
    return cache.entry(f"first-process-{architecture}", inputs, build) / "root"


def _source(package: str, into: Path) -> Path:
    """The kernel's source, unpacked: 1.4 GB."""
    into.mkdir()
    deb = debian.Archive(debian.native()).download(package, into)
    _run(["dpkg-deb", "--extract", str(deb), str(into)])
    _run(["tar", "-x", "-C", str(into), "-f", str(into / "usr/src" / f"{package}.tar.xz")])
    return into / package


def _run(command: list[str]) -> None:
    # make lab-full is a make itself: its own flags are not for the kernel's.
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command,
        env=own | {"LC_ALL": "C"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}")
