"""The part of ``numadoctor syscalls`` that looks at filters and makes no call."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from numadoctor.cli.common import open_host
from numadoctor.model import Evidence, Missing

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.runtime import Runtime
    from numadoctor.kernel.seccomp.outlook import Case
    from numadoctor.kernel.seccomp.position import Step
    from numadoctor.kernel.seccomp.profile import Profile
    from numadoctor.kernel.seccomp.running import Running
    from numadoctor.model.calls import Outlook

_FILTERED = 2

# Where a runtime's default profile lies as a file. Docker and containerd hold theirs inside.
_DEFAULT_FILES = {
    "docker": ("/usr/share/gocode/src/github.com/docker/docker/profiles/seccomp/default.json",),
    "podman": ("/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json"),
    "crio": ("/etc/crio/seccomp.json", "/etc/containers/seccomp.json",
             "/usr/share/containers/seccomp.json"),
}  # fmt: skip
_PACKAGED = "it comes with the package containers-common"
_WHERE = {
    "docker": "get profiles/seccomp/default.json of moby, at the version of your Docker",
    "containerd": "--pid of a container's process finds what it was given",
    "kubernetes": "--pid of a container's process finds what it was given",
    "podman": _PACKAGED,
    "crio": _PACKAGED,
}
_LONGEST_EVIDENCE = 200


@dataclass(frozen=True)
class Asked:
    """The options, as they were given."""

    profile: str | None
    runtime: str | None
    caps: tuple[str, ...]
    dropped: tuple[str, ...]
    arch: str | None
    kernel: str | None
    pid: int | None
    stop_thread: bool
    sysroot: str | None

    def check(self, emit: bool) -> None:
        """Refuse options that do not go together.

        :raises click.UsageError: naming them
        """
        if self.profile and (self.pid or self.sysroot):
            other = "--pid" if self.pid else "--sysroot"
            raise click.UsageError(f"--seccomp-profile and {other} exclude each other.")
        if self.stop_thread and not self.pid:
            raise click.UsageError("--stop-thread needs --pid.")
        if self.stop_thread and self.sysroot:
            raise click.UsageError("--stop-thread needs a live process: leave --sysroot out.")
        if self.pid and any((self.runtime, self.caps, self.dropped, self.kernel)):
            raise click.UsageError("--pid looks at what is in force: leave the other options out.")
        if not (self.profile or self.pid or (emit and self.runtime)):
            needed = "--seccomp-profile" + (", --pid or --runtime" if emit else "")
            raise click.UsageError(f"name what to look at: {needed}.")
        self._check_names()

    def _check_names(self) -> None:
        import re

        from numadoctor.kernel.abi import UnknownAbi, by_name

        for name in (*self.caps, *self.dropped):
            if not re.fullmatch("[A-Za-z_]{3,40}", name):
                raise click.UsageError(f"{name!r} is no capability: SYS_NICE is one, and ALL.")
        if self.kernel and not re.match(r"\d+\.\d+", self.kernel):
            raise click.UsageError(f"{self.kernel!r} is no kernel version: 5.15 is one.")
        if self.arch:
            try:
                by_name(self.arch)
            except UnknownAbi as error:
                raise click.UsageError(str(error)) from None

    def outlook(self) -> "Outlook":
        """What the profile, or what is in force in the process, comes to."""
        if self.pid:
            return self._outlook_of_process(self.pid)
        from numadoctor.kernel.seccomp.outlook import of_profile

        return of_profile(self._case()[0])

    def emitted(self) -> str:
        """The profile that opens the calls.

        :raises click.UsageError: there is no profile to begin with, or no change helps
        """
        from numadoctor.kernel.seccomp.outlook import opened
        from numadoctor.kernel.seccomp.profile import ProfileError

        case, text = self._case()
        try:
            text = opened(text, case)
        except ProfileError as error:
            raise click.UsageError(f"{case.name}: {error}") from None
        return text if text.endswith("\n") else f"{text}\n"

    def _case(self) -> "tuple[Case, str]":
        """The profile and where it is to be used; and its text."""
        from numadoctor.kernel.seccomp.evaluate import Way
        from numadoctor.kernel.seccomp.outlook import Case
        from numadoctor.kernel.seccomp.position import value_at
        from numadoctor.kernel.seccomp.profile import path_text

        runtime: str | Way = self.runtime or "docker"
        if self.pid:
            name, content, maker = _profile_of_process(self._host(), self.pid)
            runtime = Way("oci", maker)
        else:
            name = self.profile or _default_file(self.runtime or "docker")
            content = _read(name)
        profile, text = _parsed(name, content)

        def evidence(rule: int | None) -> Evidence:
            step: tuple[Step, ...] = ("defaultAction",) if rule is None else ("syscalls", rule)
            line, value = value_at(text, (*profile.steps, *step))
            return Evidence(f"{name}:{line}", f"{path_text(step)}: {value}"[:_LONGEST_EVIDENCE])

        case = Case(
            profile, name, runtime, self._arch(), self.caps, self.dropped, self.kernel, evidence
        )
        return case, text

    def _host(self) -> "Host":
        return open_host(self.sysroot)

    def _arch(self) -> str:
        from numadoctor.kernel.abi import UnknownAbi, current_abi

        try:
            return self.arch or current_abi().name
        except UnknownAbi as error:
            raise click.UsageError(f"{error}: --arch names another") from None

    def _outlook_of_process(self, pid: int) -> "Outlook":
        from numadoctor.host.runtime import fitting
        from numadoctor.kernel.seccomp.running import examine

        host = self._host()
        pid = _thread(host, pid)
        process = self._running(host, pid)
        launchers = self._runtimes(host, pid)
        return examine(host, process, lambda fixes: fitting(fixes, launchers))

    def _runtimes(self, host: "Host", pid: int) -> "tuple[Runtime, ...]":
        from numadoctor.host.runtime import read_runtimes

        return read_runtimes(host, f"/proc/{pid}")

    def _running(self, host: "Host", pid: int) -> "Running":
        """The process, and the best that can be had of what stands before its calls."""
        from dataclasses import replace

        from numadoctor.kernel.abi import by_name
        from numadoctor.kernel.seccomp.running import Running, abi_of
        from numadoctor.kernel.seccomp.tracing import NotRead, read_filters

        status = host.status(f"/proc/{pid}")
        own = by_name(self._arch()) if self.arch or not host.live else abi_of(pid)
        process = Running(pid, own, status, runtimes=self._runtimes(host, pid))
        if status.seccomp != _FILTERED:
            return process
        if self.stop_thread:
            try:
                return replace(process, reading=read_filters(pid))
            except NotRead as error:
                process = replace(process, unread=str(error))
        return _with_config(host, process)


def _thread(host: "Host", pid: int) -> int:
    """The thread to look at: filters are a thread's own, and a first one may have ended.

    :raises Undecided: it is none of a process, has ended, or may not be looked at
    """
    from numadoctor.host.living import living_thread, process_of

    return living_thread(host, pid) if process_of(host, pid) == pid else pid


def _with_config(host: "Host", process: "Running") -> "Running":
    from dataclasses import replace

    from numadoctor.kernel.seccomp.containers import find_config
    from numadoctor.kernel.seccomp.profile import ProfileError, parse_profile

    config = find_config(host, process.pid)
    if config is None:
        return process
    try:
        profile = parse_profile(config.content)
    except ProfileError as error:
        return replace(process, unread=f"{config.path}: {error}")
    return replace(process, config=config, profile=profile)


def _profile_of_process(host: "Host", pid: int) -> tuple[str, bytes, str]:
    """The path of the config.json of a process, the profile in it, and who makes the filter."""
    from numadoctor.kernel.seccomp.containers import find_config
    from numadoctor.kernel.seccomp.emit import section

    pid = _thread(host, pid)
    config = find_config(host, pid)
    if config is None:
        raise Missing(
            f"config.json of process {pid}",
            reason="no container runtime keeps one for it here",
            hint="give the profile itself with --seccomp-profile",
        )
    profile, text = _parsed(config.path, config.content)
    content = section(text, profile.steps)
    return config.path, content.encode(), config.runtime or "crun"


def _parsed(name: str, content: bytes) -> "tuple[Profile, str]":
    from numadoctor.kernel.seccomp.profile import ProfileError, parse_profile

    try:
        return parse_profile(content), content.decode("utf-8-sig")
    except ProfileError as error:
        raise click.UsageError(f"{name}: {error}") from None


def _read(name: str) -> bytes:
    from numadoctor.host.given import read_given
    from numadoctor.kernel.seccomp.profile import LONGEST

    try:
        return read_given(name, LONGEST)
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror}") from None


def _default_file(runtime: str) -> str:
    """The file that holds the default profile of a runtime on this machine.

    :raises click.UsageError: it keeps none, with where to get it
    """
    for path in _DEFAULT_FILES.get(runtime, ()):
        if os.path.exists(path):
            return path
    raise click.UsageError(
        f"{runtime} keeps its default profile in no file here: {_WHERE[runtime]}; "
        "give it with --seccomp-profile."
    )
