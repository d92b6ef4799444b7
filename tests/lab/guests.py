"""Boots the lab's machines under QEMU and runs Python functions inside them.

A guest is booted once and serves every test of its machine: a test passes a
function of a ``guest_*`` module to ``Guest.run`` and gets what it returned.
"""

import fnmatch
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache as only_once
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from tests.lab import cache, compiled, debian, guest_facts, project
from tests.lab.guest_init import MARK
from tests.lab.machines import MACHINES, Machine, command

BOOT_LIMIT = 900
"""Seconds a guest may take to come up; it needs 10 to 40, many times that on a busy machine."""

CALL_LIMIT = 600
"""Seconds a function may take, unless the test says otherwise; most need one or two."""

TETHER = ("setpriv", "--pdeathsig", "KILL")
"""Starts a command that ends with whoever started it: a killed pytest leaves no guest."""

_GRACE = 60  # seconds for the guest to report a function that ran out of its time
_LONGEST_REQUEST = 4000  # bytes: a terminal line holds 4095

_P = ParamSpec("_P")
_T = TypeVar("_T")

_INIT = """#!/bin/sh
export {environment}
exec python3 -m tests.lab.guest_init
"""


def on(*patterns: str, quick: Collection[str] | None = None) -> pytest.MarkDecorator:
    """Run a test in a guest of each machine whose name matches: ``@on("x86_64-2n-*", "s390x-*")``.

    The test takes the guest as its argument ``guest``.

    :param quick: of the machines that are not slow, those on which `make lab` runs
        it; on the others only `make lab-full` does. All, if None
    """
    named = {name for pattern in patterns for name in fnmatch.filter(MACHINES, pattern)}
    if unknown := [pattern for pattern in patterns if not fnmatch.filter(MACHINES, pattern)]:
        raise ValueError(f"no machine of the lab is called {', '.join(unknown)}")
    full = {n for n, m in MACHINES.items() if m.slow or (quick is not None and n not in quick)}
    parameters = [
        pytest.param(name, marks=[pytest.mark.lab, *[pytest.mark.lab_full] * (name in full)])
        for name in MACHINES
        if name in named
    ]
    return pytest.mark.parametrize("guest", parameters, indirect=True)


class GuestError(Exception):
    """A function failed inside the guest, or the guest itself did; the message has its console."""


class Guest:
    """A running machine.

    :ivar machine: what it was started as
    """

    def __init__(self, machine: Machine, initrd: Path | None = None) -> None:
        """Start it; ``wait`` until it is up.

        Call this from the main thread: the guest ends with the thread that started it.

        :param initrd: its root file system; the lab's own unless given
        :raises debian.Unavailable: when packages or its kernel are not to be had
        """
        debian.require("guests")
        architecture, package = machine.platform.kernels[machine.kernel]
        if package.startswith("linux-source-"):
            kernel = compiled.kernel(architecture, package)
        else:
            kernel = debian.kernel(architecture, machine.kernel, package)
        initrd = initrd or _initrd(machine.platform.root)
        if machine.modules:
            modules = debian.kernel_modules(architecture, kernel, machine.modules)
            initrd = _with_modules(initrd, modules)
        self.machine = machine
        self._console = ""
        self._partial = b""
        self._started = time.monotonic()
        self._up = False
        self._process = subprocess.Popen(
            [*TETHER, *command(machine, kernel, initrd, _accelerator(architecture))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self) -> "Guest":
        """Return when it is up.

        :raises GuestError: when it does not come up
        """
        if not self._up:
            self._answer(self._started + BOOT_LIMIT, "the boot")
            self._up = True
        return self

    def run(self, function: Callable[_P, _T], *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        """Call a function of a ``guest_*`` module in the guest and return what it returned.

        Arguments and result travel as JSON.

        :raises GuestError: when the function raises, crashes or takes more than ``CALL_LIMIT``
        """
        value: _T = self.call(function, arguments, keywords)
        return value

    def call(
        self,
        function: Callable[..., Any],
        arguments: Iterable[Any] = (),
        keywords: dict[str, Any] | None = None,
        limit: float = CALL_LIMIT,
    ) -> Any:
        """As ``run``, with a time limit in seconds."""
        name = f"{function.__module__}:{function.__qualname__}"
        request = {
            "call": name,
            "arguments": list(arguments),
            "keywords": keywords or {},
            "limit": limit,
        }
        return self.ask(json.dumps(request), name, limit + _GRACE)

    def ask(self, request: str, what: str, limit: float = CALL_LIMIT) -> Any:
        """Send one line to the first process and return the value that it answers.

        :param what: names the request in an error
        :param limit: seconds to wait for the answer
        :raises GuestError: when the answer is an error, or none comes
        """
        line = request.encode() + b"\n"
        if len(line) > _LONGEST_REQUEST:
            raise ValueError(f"a request of {len(line)} bytes is too long for the serial line")
        self.wait()
        if self._process.stdin is None or self._process.poll() is not None:
            raise self._error("is gone")
        with suppress(BrokenPipeError):  # the missing answer tells more
            self._process.stdin.write(line)
            self._process.stdin.flush()
        answer = self._answer(time.monotonic() + limit, what)
        if "error" in answer:
            raise GuestError(f"{self.machine.name}: {answer['error']}")
        return answer["value"]

    def stop(self) -> None:
        """Switch it off."""
        self._process.kill()
        self._process.communicate()

    def _answer(self, end: float, what: str) -> dict[str, Any]:
        while True:
            line, newline, rest = self._partial.partition(b"\n")
            if newline:
                self._partial = rest
                before, mark, content = line.decode(errors="replace").partition(MARK)
                self._console = f"{self._console}{before}\n"[-8000:]
                if mark:
                    return self._decoded(content)
                continue
            more = self._read(end - time.monotonic())
            if not more:
                self.stop()
                raise self._error(
                    f"{'took too long for' if more is None else 'ended during'} {what}"
                )
            self._partial += more

    def _read(self, seconds: float) -> bytes | None:
        """What it prints next; nothing when it has ended, None when the time is up."""
        output = self._process.stdout
        if output is None or not select.select([output], [], [], max(seconds, 0))[0]:
            return None
        return os.read(output.fileno(), 1 << 16)

    def _decoded(self, content: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(content)
        except ValueError:
            raise self._error(f"answered what is not JSON: {content[:500]!r}") from None
        return answer

    def _error(self, what: str) -> GuestError:
        console = re.sub(r"\x1b\[[?\d;]*[A-Za-z]|[^\n\x20-\x7e]", "", self._console)
        return GuestError(f"{self.machine.name} {what}; its console:\n{console[-4000:]}")


class Fleet:
    """The guests of a test session, started before they are needed, one for each core.

    :param order: the machines in the order in which tests will ask for them
    """

    def __init__(self, order: Iterable[Machine]) -> None:
        self._order = list(order)
        self._running: dict[str, Guest] = {}
        self._ahead = max(1, (os.cpu_count() or 1) - 1)

    def guest(self, machine: Machine) -> Guest:
        """The running guest of that machine.

        :raises GuestError: when it does not come up
        :raises debian.Unavailable: when something it needs is not to be had
        """
        if machine in self._order:
            self._order = self._order[self._order.index(machine) + 1 :]
        guest = self._start(machine)
        for following in self._order[: self._ahead]:
            with suppress(debian.Unavailable):  # its own test says so
                self._start(following)
        return guest.wait()

    def stop(self, *machines: Machine) -> None:
        """Switch off those guests, or all of them."""
        for name in [machine.name for machine in machines] or list(self._running):
            if guest := self._running.pop(name, None):
                guest.stop()

    def _start(self, machine: Machine) -> Guest:
        if machine.name not in self._running:
            self._running[machine.name] = Guest(machine)
        return self._running[machine.name]


@only_once
def _initrd(architecture: str) -> Path:
    """The root file system with the project in it, as the kernel unpacks it into memory."""
    # The kernel unpacks several archives in a row, one over the other.
    archive = cache.scratch() / f"initrd-{architecture}"
    with archive.open("wb") as file:
        for part in (_base(architecture), _overlay()):
            with part.open("rb") as content:
                shutil.copyfileobj(content, file)
    return archive


@only_once
def _with_modules(initrd: Path, modules: Path) -> Path:
    """An initrd with the kernel's modules of a folder in /modules."""
    folder = cache.scratch() / modules.name
    shutil.copytree(modules, folder / "modules")
    pack(folder, added := cache.scratch() / f"{modules.name}.cpio")
    archive = cache.scratch() / f"{initrd.name}-{modules.name}"
    with archive.open("wb") as file:
        for part in (initrd, added):
            with part.open("rb") as content:
                shutil.copyfileobj(content, file)
    return archive


def _base(architecture: str) -> Path:
    root = debian.root_file_system(architecture)

    def build(draft: Path) -> None:
        pack(root, draft / "archive")

    return cache.entry(f"initramfs-{architecture}", [root.parent.name], build) / "archive"


@only_once
def _overlay() -> Path:
    folder = cache.scratch() / "overlay"
    shutil.copytree(project.project(), folder / project.PROJECT[1:])
    shutil.copytree(project.dependencies(), folder / project.DEPENDENCIES[1:])
    environment = " ".join(f"{name}={value}" for name, value in project.ENVIRONMENT.items())
    (folder / "init").write_text(_INIT.format(environment=environment))
    (folder / "init").chmod(0o755)
    pack(folder, archive := cache.scratch() / "overlay.cpio")
    return archive


def pack(folder: Path, archive: Path) -> None:
    # Not compressed: an emulated processor takes longer to unpack it than to copy it.
    pack = "find . -print0 | cpio --null --create --format=newc --owner=+0:+0 --quiet"
    with archive.open("wb") as file:
        subprocess.run(["sh", "-c", pack], cwd=folder, stdout=file, check=True)


def _accelerator(architecture: str) -> str:
    wanted = os.environ.get("NUMADOCTOR_LAB_ACCELERATOR")
    return wanted if wanted and architecture == debian.native() else "tcg"


def main(arguments: list[str]) -> int:
    """Show what a numadoctor command says on a machine of the lab, or which machines there are."""
    if not arguments:
        for name, machine in MACHINES.items():
            print(f"{name:22} {'make lab-full' if machine.slow else 'make lab'}")
        return 0
    guest = Guest(MACHINES[arguments[0]])
    try:
        answer = guest.run(guest_facts.numadoctor, *arguments[1:])
    finally:
        guest.stop()
    print(answer["stdout"], end="")
    print(answer["stderr"], end="", file=sys.stderr)
    return int(answer["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
