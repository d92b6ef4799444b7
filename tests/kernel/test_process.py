import os
from pathlib import Path

import pytest

from numadoctor.kernel import process
from tests.kernel import seccomp
from tests.kernel.child import in_child


def _line(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")


def test_mems_allowed_is_that_of_the_status_file() -> None:
    listed = _line("Mems_allowed_list:")
    if not listed:
        pytest.skip("this kernel has no cpusets")
    expected = set()
    for part in listed.split(","):
        first, _, last = part.partition("-")
        expected |= set(range(int(first), int(last or first) + 1))
    found = process.mems_allowed()
    assert found is not None
    assert set(found.nodes) == expected
    assert found.bits == 4 * len(_line("Mems_allowed:").replace(",", ""))


def test_without_proc_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(builtins, "open", gone)
    assert process.mems_allowed() is None


def test_a_filter_is_seen() -> None:
    def ask() -> list[bool]:
        before = process.has_seccomp_filter()
        seccomp.install({})
        return [before, process.has_seccomp_filter()]

    assert in_child(ask) == [_line("Seccomp:") == "2", True]


def test_prctl_passes_its_argument() -> None:
    def ask() -> list[int]:
        process.prctl(process.PR_SET_DUMPABLE, 0)
        off = process.prctl(process.PR_GET_DUMPABLE)
        process.prctl(process.PR_SET_DUMPABLE, 1)
        return [off, process.prctl(process.PR_GET_DUMPABLE), process.prctl(-1), os.getpid() > 0]

    assert in_child(ask) == [0, 1, -1, True]
