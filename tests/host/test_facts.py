import json
import os
import subprocess
from pathlib import Path

import pytest

from numadoctor.host import Host
from numadoctor.host.facts import FACTS


@pytest.mark.parametrize("name", sorted(FACTS))
def test_every_fact_can_be_kept_as_json(name: str) -> None:
    answer = FACTS[name]()
    assert json.loads(json.dumps(answer)) == answer


def test_a_fact_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"page_size": 4096}])
    monkeypatch.setitem(FACTS, "sysconf", lambda: next(answers))
    host = Host()
    assert host.fact("sysconf") is host.fact("sysconf")


def test_sysconf() -> None:
    assert FACTS["sysconf"]() == {"page_size": os.sysconf("SC_PAGESIZE"), "user": os.geteuid()}


def program(folder: Path, text: str) -> Path:
    path = folder / "numactl"
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ('[ "$1" = --version ] && echo 2.0.18', "2.0.18"),
        # numactl 2.0.16 and older: an unknown option, and the usage.
        ('echo "usage: numactl [--all | -a]" >&2; exit 1', None),
        ("echo garbage", None),
        ("printf '\\377\\n'", None),
        ("true", None),
        ("cat; echo 2.0.19", "2.0.19"),
    ],
)
def test_the_version_of_numactl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, version: str | None
) -> None:
    path = program(tmp_path, f"#!/bin/sh\n{script}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert FACTS["numactl"]() == {"path": str(path), "version": version}


def test_no_numactl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert FACTS["numactl"]() == {"path": None, "version": None}


def test_a_numactl_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "#!/no/such/interpreter\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert FACTS["numactl"]() == {"path": str(path), "version": None}


def test_a_numactl_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "#!/bin/sh\nsleep 60\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    def hangs(command: list[str], *, timeout: float, **_: object) -> None:
        assert command[0] == str(path)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert FACTS["numactl"]() == {"path": str(path), "version": None}
