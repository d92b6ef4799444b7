"""Debian packages for any architecture, unpacked without root: root file systems and kernels.

apt resolves and downloads with a package state of the lab's own, so that a
foreign architecture needs no change to this machine, and nothing is installed.
The archives are the ones that this machine's apt is set up with.
"""

import functools
import inspect
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab import cache

PACKAGES = {
    "containers": (
        "crun",
        "debian-archive-keyring",
        "golang-github-containers-common",  # podman's seccomp profile
        "golang-github-docker-docker-dev",  # Docker's
        "podman",
        "runc",
    ),
    "guests": (
        "cpio",
        "debian-archive-keyring",
        "qemu-system-arm",
        "qemu-system-misc",  # s390x
        "qemu-system-ppc",
        "qemu-system-x86",
    ),
    "compilers": (  # of the kernels that Debian does not build
        "bc",
        "bison",
        "flex",
        "gcc",
        "gcc-powerpc-linux-gnu",
        "gcc-powerpc64-linux-gnu",
        "gcc-s390x-linux-gnu",
        "libc6-dev",
        "libc6-dev-powerpc-cross",
        "libc6-dev-ppc64-cross",
        "make",
        "xz-utils",
    ),
}
"""What must be installed here, by the part of the lab that needs it."""

QUICK = ("containers", "guests")
"""The parts that ``make lab`` needs; ``make lab-full`` needs all."""

ROOT_PACKAGES = ("python3", "python3-psutil", "numactl", "busybox-static")
"""What a root file system holds, with all that these depend on."""

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_HOUR = 3600
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_LOADERS = {"amd64": "lib64/ld-linux-x86-64.so.2", "arm64": "lib/ld-linux-aarch64.so.1"}
# Every file costs a guest time: its kernel unpacks them all into memory.
_LEFT_OUT = ("./usr/share/*", "./usr/lib/*/gconv/*", "./usr/lib/python3*/lib2to3/*")


class Unavailable(Exception):
    """Something the lab needs is not to be had on this machine; the message says what and why."""


def missing(packages: Iterable[str]) -> list[str]:
    """Those of the packages that are not installed."""
    if shutil.which("dpkg-query") is None:
        raise Unavailable("the lab needs Debian's dpkg and apt, and this machine has none")
    form = "${Package} ${db:Status-Status}\n"
    command = ["dpkg-query", "--show", f"--showformat={form}", *packages]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    return sorted(set(packages) - installed)


def require(part: str) -> None:
    """Refuse to go on while a package of that part of the lab is missing.

    :raises Unavailable: naming the packages
    """
    if absent := missing(PACKAGES[part]):
        raise Unavailable(f"not installed: {' '.join(absent)} (make lab-packages installs them)")


def file_of(package: str, ending: str) -> Path:
    """The one file of an installed package whose path ends so.

    :raises Unavailable: when it is not there
    """
    listed = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines():
        if line.endswith(ending):
            return Path(line)
    raise Unavailable(f"package {package} is not installed, or has no {ending}")


@functools.cache
def native() -> str:
    """Debian's name for this machine's architecture."""
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Archive:
    """The Debian archives as one architecture sees them."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture
        self._state = cache.folder() / f"apt-{architecture}"

    def newest(self, pattern: str) -> str:
        """The package with the highest version in its name that matches the regular expression.

        :raises Unavailable: when there is none
        """
        with self._updated():
            names = self._apt("apt-cache", "pkgnames").split()
            found = [name for name in names if re.fullmatch(pattern, name)]
            if not found:
                suites = " ".join(sorted(set(re.findall(r"\S+(?= main)", self._sources))))
                raise Unavailable(f"no {self.architecture} package {pattern} in {suites}")
            return max(found, key=_version_key)

    def download(self, package: str, into: Path) -> Path:
        """Fetch one package and return its file."""
        with self._updated():
            self._apt("apt-get", "download", package, cwd=into)
        (file,) = into.glob("*.deb")
        return file

    def download_closure(self, packages: Sequence[str], into: Path) -> list[Path]:
        """Fetch the packages and all that they depend on."""
        (into / "partial").mkdir(parents=True)
        with self._updated():
            where = f"-oDir::Cache::archives={into}"
            self._apt("apt-get", "install", "--yes", "--download-only", where, *packages)
        return sorted(into.glob("*.deb"))

    @contextmanager
    def _updated(self) -> Iterator[None]:
        with cache.lock(f"apt-{self.architecture}"):
            stamp = self._state / "updated"
            if not stamp.exists() or time.time() - stamp.stat().st_mtime > _HOUR:
                for name in ("lists/partial", "cache/archives/partial", "empty"):
                    (self._state / name).mkdir(parents=True, exist_ok=True)
                (self._state / "status").touch()
                (self._state / "sources.list").write_text(self._sources)
                # One suite of several may fail (a mirror in the middle of its own update):
                # what the others have is used, and what is then missing is named.
                self._apt("apt-get", "update", check=False)
                stamp.touch()
            yield

    @functools.cached_property
    def _sources(self) -> str:
        form = f"deb [signed-by={_KEYRING}] $(REPO_URI) $(RELEASE) $(COMPONENT)"
        command = ["apt-get", "indextargets", "--format", form]
        listed = subprocess.run(
            [*command, "Created-By: Packages", "Origin: Debian"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        lines = {line for line in listed.splitlines() if line.endswith(" main")}
        if not lines:
            raise Unavailable("apt has no Debian archive in its lists: run apt-get update")
        return "".join(f"{line}\n" for line in sorted(lines))

    def _apt(
        self, program: str, *arguments: str, cwd: Path | None = None, check: bool = True
    ) -> str:
        options = {
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Debug::NoLocking": "true",
            "Dir::Cache": self._state / "cache",
            "Dir::Etc::PreferencesParts": self._state / "empty",
            "Dir::Etc::SourceList": self._state / "sources.list",
            "Dir::Etc::SourceParts": self._state / "empty",
            "Dir::State": self._state,
            "Dir::State::Lists": self._state / "lists",
            "Dir::State::Status": self._state / "status",
        }
        command = [program, "-q", *(f"-o{name}={value}" for name, value in options.items())]
        done = subprocess.run(
            [*command, *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise Unavailable(f"{program} {' '.join(arguments)}: {done.stderr.strip()[-500:]}")
        return done.stdout


def root_file_system(architecture: str) -> Path:
    """An unpacked minimal Debian with Python, from the cache.

    ``packages`` beside it names what is in it. Where this machine can run it,
    its modules are compiled and their source is left out.
    """

    def build(draft: Path) -> None:
        debs = Archive(architecture).download_closure(ROOT_PACKAGES, draft / "debs")
        root = draft / "root"
        for name in _MERGED:
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        for deb in debs:
            _unpack(deb, root)
        for name in ("dev", "etc", "opt", "proc", "run", "sys", "tmp"):
            (root / name).mkdir(exist_ok=True)
        (root / "bin/sh").symlink_to("busybox")
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (draft / "packages").write_text("".join(f"{deb.name}\n" for deb in debs))
        shutil.rmtree(draft / "debs")
        if compile_modules(root, "usr/lib", interpreter=root if architecture == native() else None):
            _drop_sources(root / "usr/lib")

    how = (root_file_system, compile_modules, _drop_sources, _unpack)
    inputs = [ROOT_PACKAGES, _LEFT_OUT, *(inspect.getsource(function) for function in how)]
    return cache.entry(f"root-{architecture}", inputs, build) / "root"


def on_top(architecture: str, packages: Sequence[str]) -> Path:
    """A folder with what further packages add to the root file system, from the cache."""
    plain = root_file_system(architecture)
    there = set((plain.parent / "packages").read_text().split())

    def build(draft: Path) -> None:
        debs = Archive(architecture).download_closure(packages, draft / "debs")
        root = draft / "root"
        for name in _MERGED:
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        for deb in debs:
            if deb.name not in there:
                _unpack(deb, root)
        shutil.rmtree(draft / "debs")

    inputs = [list(packages), plain.parent.name]
    return cache.entry("-".join(("on-top", architecture, *packages)), inputs, build) / "root"


def kernel(architecture: str, version: str, pattern: str) -> Path:
    """The kernel image of the newest package whose name matches, from the cache.

    :param version: names it in the cache
    :raises Unavailable: when this machine's archives have none
    """

    def build(draft: Path) -> None:
        archive = Archive(architecture)
        deb = archive.download(archive.newest(pattern), draft)
        _unpack(deb, draft, "./boot/vmlinu[xz]-*")
        deb.unlink()

    kept = cache.entry(f"kernel-{architecture}-{version}", [pattern], build)
    (image,) = kept.glob("boot/vmlinu*")
    return image


def kernel_modules(architecture: str, image: Path, names: Sequence[str]) -> Path:
    """A folder with these modules of a kernel, by file name (``virtio_net.ko.xz``), from the cache.

    :param image: what ``kernel`` returned; its name holds the version
    :raises Unavailable: when this machine's archives no longer have that kernel
    """
    version = image.name.partition("-")[2]

    def build(draft: Path) -> None:
        archive = Archive(architecture)
        package = archive.newest(rf"linux-image-{re.escape(version)}(-unsigned)?")
        deb = archive.download(package, draft)
        _unpack(deb, draft / "all", *(f"./*/{name}.ko*" for name in names))
        deb.unlink()
        for module in (draft / "all").rglob("*.ko*"):
            module.rename(draft / module.name)
        shutil.rmtree(draft / "all")

    return cache.entry(f"modules-{architecture}", [version, *names], build)


def compile_modules(root: Path, below: str, interpreter: Path | None = None) -> bool:
    """Compile the Python modules of a folder under ``root``, for the root file systems' Python.

    That Python runs right out of its folder, through its own loader: a compiled
    module fits one version, and this machine's may be another. All root file
    systems come from one release, so the native one compiles for all of them.

    :param interpreter: the native root file system; the cached one unless given
    :returns: False where no root file system's Python runs on this machine
    """
    if native() not in _LOADERS:
        return False  # a guest then compiles what it imports
    own = interpreter or root_file_system(native())
    (libraries,) = (own / "usr/lib").glob("*-linux-gnu")
    loader = [str(own / _LOADERS[native()]), "--library-path", str(libraries)]
    python = [*loader, str(own / "usr/bin/python3"), "-I"]
    options = ["-m", "compileall", "-q", "-s", str(root), "-p", "/"]
    # Not by time stamp: a copy or an archive may round it.
    options += ["--invalidation-mode", "unchecked-hash"]
    done = subprocess.run(
        [*python, *options, str(root / below)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"cannot compile below {root}: {done.stdout}{done.stderr}")
    return True


def _drop_sources(folder: Path) -> None:
    """Put each compiled module where Python looks for one without source (PEP 3147)."""
    for compiled in folder.rglob("__pycache__/*.pyc"):
        name = compiled.name.partition(".")[0]
        module = compiled.parent.parent / name
        compiled.rename(module.with_suffix(".pyc"))
        module.with_suffix(".py").unlink()
    for emptied in folder.rglob("__pycache__"):
        emptied.rmdir()


def _unpack(deb: Path, into: Path, *members: str) -> None:
    into.mkdir(exist_ok=True)
    select = ["--wildcards", *(f"--exclude={name}" for name in _LEFT_OUT), *members]
    # Packages of a release without merged /usr still ship /bin and /lib.
    untar = ["tar", "-x", "-C", str(into), "--keep-directory-symlink", "--no-same-owner", *select]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as tar:
        subprocess.run(untar, stdin=tar.stdout, check=True)
    if tar.returncode:
        raise RuntimeError(f"{deb} cannot be unpacked")


def _version_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def main() -> None:
    """Print the packages that ``make lab`` has to install, or, with ``full``, ``make lab-full``."""
    parts = PACKAGES if sys.argv[1:] == ["full"] else QUICK
    print(*missing({name for part in parts for name in PACKAGES[part]}))


if __name__ == "__main__":
    main()
