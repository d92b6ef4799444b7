"""Runs a command in a real container: podman with crun or runc, no image registry, nothing left.

The root file system is the lab's minimal Debian; the container writes to an
overlay that vanishes with it.
"""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab import debian, project
from tests.lab.guests import TETHER

TIME_LIMIT = 600
"""Seconds a container may take; it needs about one, many times that on a busy machine."""

UNCONFINED = "unconfined"

# The outer shell is the first process of a namespace of its own, so whatever podman
# leaves (conmon, mounts) ends with it. Where cgroup v1 and v2 are mounted together,
# podman takes the machine for a v1 one and fails over the v2 mount: hide it.
_SHELL = """
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified || exit; fi
"""
_RUN = 'exec "$@"'

# podman lets crun alone do without control groups. runc does, too, where it may not write to them.
_RUNC_SHELL = """
while read -r _ _ _ _ point _; do
    case $point in /sys/fs/cgroup*) mount -o remount,bind,ro "$point" || exit;; esac
done < /proc/self/mountinfo
"""
_RUNC_AS_CRUN = """#!/bin/sh
for word; do
    shift
    case $word in
        --cgroup-manager) skip=1;;  # of crun
        *) [ "$skip" ] || set -- "$@" "$word"; skip=;;
    esac
done
exec runc --rootless=true --root={state} "$@"
"""
_NAMESPACE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


@dataclass(frozen=True)
class Container:
    """How a container is confined.

    :ivar seccomp: a profile, ``UNCONFINED``, or None for the engine's own
    :ivar options: further ones for podman: ``--cap-add=SYS_NICE``, ``--cap-drop=ALL``
    :ivar user: the uid that the command runs as
    :ivar runc: runc makes it, and not crun
    """

    seccomp: Path | str | None = None
    options: tuple[str, ...] = ()
    user: int = 0
    runc: bool = False

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run the command inside, with the project importable, and return what it printed.

        :raises debian.Unavailable: when packages are missing
        :raises RuntimeError: when podman cannot start it
        """
        # Not below TMPDIR: podman takes no runroot of more than 50 characters.
        with tempfile.TemporaryDirectory(prefix="numadoctor-lab-", dir="/tmp") as storage:
            return _run(self.command(Path(storage), *command))

    def command(self, storage: Path, *command: str) -> list[str]:
        """What runs the command inside, leaving nothing behind.

        :param storage: an empty folder, not below TMPDIR
        :raises debian.Unavailable: when packages are missing
        """
        debian.require("containers")
        shell = _SHELL + (_RUNC_SHELL if self.runc else "") + _RUN
        isolated = [*TETHER, *_NAMESPACE, "sh", "-c", shell, "sh"] if os.geteuid() == 0 else []
        return [*isolated, *self._engine(storage), *command]

    def _runtime(self, storage: Path) -> str:
        if not self.runc:
            return "crun"
        program = storage / "crun"
        program.write_text(_RUNC_AS_CRUN.format(state=storage / "runc"))
        program.chmod(0o755)
        return str(program)

    def _engine(self, storage: Path) -> list[str]:
        own = [f"--root={storage}/root", f"--runroot={storage}/run", f"--tmpdir={storage}/tmp"]
        options = ["--rm", "--network=none", "--cgroups=disabled", f"--user={self.user}"]
        # podman raises limits by default, which a machine with lower ones refuses.
        options += ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
        if self.seccomp is not None:
            options.append(f"--security-opt=seccomp={self.seccomp}")
        options += self.options
        options += [f"--env={name}={value}" for name, value in project.ENVIRONMENT.items()]
        options += [f"--volume={project.project()}:{project.PROJECT}:ro"]
        options += [f"--volume={project.dependencies()}:{project.DEPENDENCIES}:ro"]
        root = debian.root_file_system(debian.native())
        own.append(f"--runtime={self._runtime(storage)}")
        return ["podman", *own, "run", *options, "--rootfs", f"{root}:O"]


def docker_profile() -> Path:
    """Docker's default seccomp profile, as Debian ships it."""
    package = "golang-github-docker-docker-dev"
    return debian.file_of(package, "/profiles/seccomp/default.json")


def podman_profile() -> Path:
    """The default seccomp profile of podman and CRI-O."""
    return debian.file_of("golang-github-containers-common", "/seccomp.json")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    if done.returncode in (125, 126, 127):  # podman's own, see podman-run(1)
        raise RuntimeError(f"podman cannot run {shlex.join(command)}: {done.stderr.strip()[-800:]}")
    return done
