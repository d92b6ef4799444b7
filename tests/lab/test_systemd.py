"""Units judged as files and as running services, in a guest whose first process is systemd."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.lab import cache, debian, guest_systemd, project
from tests.lab.guests import Guest, pack
from tests.lab.machines import MACHINES

pytestmark = pytest.mark.lab

CALLS = ("mbind", "set_mempolicy", "get_mempolicy", "set_mempolicy_home_node", "move_pages",
         "migrate_pages")  # fmt: skip

UNIT = "[Service]\nExecStart=/bin/busybox sleep 100000\n"
FILTERED = f"{UNIT}SystemCallFilter=~@resources\nSystemCallErrorNumber=EPERM\n"
BOUND = f"{UNIT}NUMAPolicy=bind\nNUMAMask=1\nCPUAffinity=2-3\n"
CPUS_ALONE = f"{UNIT}CPUAffinity=0-1\n"

AGENT = """[Unit]
DefaultDependencies=no
After=local-fs.target

[Service]
Type=simple
Environment={environment}
ExecStart=/usr/bin/python3 -m tests.lab.guest_agent
StandardInput=tty-force
StandardOutput=tty
StandardError=journal
TTYPath=/dev/ttyS0
"""
PARAMETERS = (
    "systemd.unit=agent.service",
    "systemd.show_status=no",
    "systemd.log_target=null",
    "systemd.firstboot=no",
)


def initrd() -> Path:
    """The root file system: the lab's, systemd on top, the project, and the agent's unit."""
    layers = [
        debian.root_file_system("amd64"),
        debian.on_top("amd64", ("systemd", "systemd-sysv")),
        _project(),
    ]
    # The kernel unpacks several archives in a row, one over the other.
    archive = cache.scratch() / "initrd-systemd"
    with archive.open("wb") as file:
        for place, layer in enumerate(layers):
            pack(layer, part := cache.scratch() / f"systemd-{place}.cpio")
            file.write(part.read_bytes())
            part.unlink()
    return archive


def _project() -> Path:
    folder = cache.scratch() / "systemd-project"
    shutil.copytree(project.project(), folder / project.PROJECT[1:])
    shutil.copytree(project.dependencies(), folder / project.DEPENDENCIES[1:])
    (folder / "init").symlink_to("usr/lib/systemd/systemd")
    units = folder / "etc/systemd/system"
    units.mkdir(parents=True)
    environment = " ".join(f"{name}={value}" for name, value in project.ENVIRONMENT.items())
    (units / "agent.service").write_text(AGENT.format(environment=environment))
    (folder / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    return folder


@pytest.fixture(scope="module")
def systemd() -> Iterator[Guest]:
    machine = MACHINES["x86_64-2n-6.12"]
    guest = Guest(replace(machine, parameters=(*machine.parameters, *PARAMETERS)), initrd())
    try:
        yield guest.wait()
    finally:
        guest.stop()


def linted(unit: str, folder: Path) -> list[dict[str, Any]]:
    """What ``lint`` says of the unit as a file."""
    from numadoctor.cli import cli

    path = folder / "engine.service"
    path.write_text(unit)
    run = CliRunner().invoke(
        cli, ["lint", str(path), "-o", "json", "--fail-on", "never"], standalone_mode=False
    )
    findings: list[dict[str, Any]] = json.loads(run.stdout)["findings"]
    return findings


def of(findings: list[dict[str, Any]], check: str) -> set[str]:
    return {finding["status"] for finding in findings if finding["id"] == check}


def with_lines(unit: str, fix: str) -> str:
    """The unit with the lines that a fix prints, as ``systemctl edit`` would add them."""
    lines = [line for line in fix.splitlines() if re.match(r"[A-Z][A-Za-z]+=", line)]
    assert lines, fix
    return unit + "".join(f"{line}\n" for line in lines)


def test_a_filter_without_resources_x86_64(systemd: Guest, tmp_path: Path) -> None:
    pid = systemd.run(guest_systemd.start, "filtered", FILTERED)
    plain = systemd.run(guest_systemd.calls, pid)
    assert plain["source"] == "status"
    assert {verdict for verdict, _ in plain["calls"].values()} == {"undecided"}

    seen = systemd.run(guest_systemd.calls, pid, "--stop-thread")
    assert seen["source"] == "filters"
    assert 0 < seen["stopped_ms"] < 2000  # an emulated processor
    shut = {name for name, (verdict, _) in seen["calls"].items() if verdict == "filtered"}
    assert shut == set(CALLS) - {"get_mempolicy"}
    assert {answer for _, answer in seen["calls"].values()} == {"EPERM", "allow"}
    assert seen["works"] is False

    # The file tells the same.
    (finding,) = [one for one in linted(FILTERED, tmp_path) if one["id"] == "D003"]
    assert finding["status"] == "info"  # no fault, as nothing in the unit asks for the calls
    told = re.findall("|".join(sorted(CALLS, key=len, reverse=True)), finding["message"])
    assert set(told[:-1]) == shut
    assert "get_mempolicy still works" in finding["message"]

    # The lines that the fix prints open the calls, and end the finding.
    (fix,) = [text for text in seen["fixes"] if "SystemCallFilter=" in text]
    fixed = with_lines(FILTERED, fix)
    assert of(linted(fixed, tmp_path), "D003") == {"pass"}
    systemd.run(guest_systemd.stop, "filtered")
    pid = systemd.run(guest_systemd.start, "mended", fixed)
    seen = systemd.run(guest_systemd.calls, pid, "--stop-thread")
    assert {verdict for verdict, _ in seen["calls"].values()} == {"reached"}
    assert seen["works"] is True
    systemd.run(guest_systemd.stop, "mended")


@pytest.mark.lab_full
def test_a_bound_unit_passes_x86_64(systemd: Guest, tmp_path: Path) -> None:
    pid = systemd.run(guest_systemd.start, "bound", BOUND)
    seen = systemd.run(guest_systemd.calls, pid)
    assert seen["source"] == "status"  # no filter at all: that is to be seen
    assert {verdict for verdict, _ in seen["calls"].values()} == {"reached"}
    findings = systemd.run(guest_systemd.checked, pid, "E004")
    assert of(findings, "E004") == {"pass"}
    assert "bind:1" in findings[0]["message"]
    assert of(linted(BOUND, tmp_path), "D005") <= {"pass", "info"}
    systemd.run(guest_systemd.stop, "bound")


@pytest.mark.lab_full
def test_cpus_alone_warn_and_the_printed_lines_end_it_x86_64(
    systemd: Guest, tmp_path: Path
) -> None:
    pid = systemd.run(guest_systemd.start, "cpus", CPUS_ALONE)
    assert of(systemd.run(guest_systemd.checked, pid, "E004"), "E004") == {"warn"}
    systemd.run(guest_systemd.stop, "cpus")

    findings = linted(CPUS_ALONE, tmp_path)
    assert of(findings, "D005") == {"warn"}
    (fix, *_) = [
        fix["text"] for finding in findings if finding["id"] == "D005"
        for fix in finding["fixes"] if fix["launcher"] == "systemd"
    ]  # fmt: skip
    fixed = with_lines(CPUS_ALONE, fix).replace("=NODES", "=0")
    assert of(linted(fixed, tmp_path), "D005") <= {"pass", "info"}
    pid = systemd.run(guest_systemd.start, "mended", fixed)
    assert of(systemd.run(guest_systemd.checked, pid, "E004"), "E004") == {"pass"}
    systemd.run(guest_systemd.stop, "mended")
