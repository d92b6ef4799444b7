import errno
from typing import Any

import pytest

from numadoctor.kernel.abi import CALLS
from numadoctor.kernel.outlook import examine, kernel_has_numa
from numadoctor.model import Denied, Evidence, Missing, Status, Undecided
from tests.kernel import answers
from tests.kernel.answers import Runtime, effect, features, page, probe

EPERM, ENOSYS = errno.EPERM, errno.ENOSYS
NODES = "/sys/devices/system/node"


class FakeHost:
    """A host of which a test says what is there."""

    def __init__(
        self,
        facts: dict[str, Any],
        status: answers.Status | None = None,
        folders: tuple[str, ...] = (NODES, "/sys/devices/system"),
        proc: tuple[str, ...] = ("numa_maps", "status"),
        denied: bool = False,
    ) -> None:
        self._facts, self._status, self._folders = facts, status, folders
        self._proc, self._denied = proc, denied
        self.asked: list[str] = []

    def fact(self, name: str) -> Any:
        self.asked.append(name)
        if name not in self._facts:
            raise Missing(name)
        return self._facts[name]

    def has(self, path: str) -> bool:
        if self._denied:
            raise Denied(path, EPERM)
        return path in self._folders

    def list(self, path: str) -> tuple[str, ...]:
        return self._proc

    def text(self, path: str) -> str:
        raise Missing(path)

    def status(self, proc: str) -> answers.Status:
        if self._status is None:
            raise Denied(f"{proc}/status", EPERM)
        return self._status

    def evidence(self, path: str, *containing: str) -> Evidence:
        return Evidence(path, "as read")


FILTER = answers.Status(seccomp=2)


def headline(seen: Any, status: answers.Status | None = FILTER, **how: Any) -> tuple[str, Any, Any]:
    facts = {"syscalls": seen, **how.pop("facts", {})}
    outlook = examine(FakeHost(facts, status, **how), how.pop("runtimes", ()))
    return outlook.headline, outlook.status, outlook.works


def test_all_reached() -> None:
    assert headline(probe(), answers.Status(seccomp=0)) == (
        "Here NUMA placement works: all six calls reach the kernel.",
        Status.PASS,
        True,
    )


def test_docker() -> None:
    facts = {"syscalls": probe(every=EPERM)}
    outlook = examine(FakeHost(facts, FILTER), [Runtime("Docker", "container")])
    assert outlook.headline == (
        "In this container NUMA placement does not work: seccomp refuses 6 of 6 calls."
    )
    assert (outlook.status, outlook.works, outlook.abi) == (Status.FAIL, False, "x86_64")


def test_podman() -> None:
    seen = probe(move_pages=EPERM, migrate_pages=EPERM, set_mempolicy_home_node=ENOSYS)
    assert headline(seen) == (
        "Here NUMA placement works; seccomp refuses move_pages, migrate_pages; "
        "not decided: set_mempolicy_home_node.",
        Status.UNKNOWN,
        True,
    )
    newer = {"features": features(MADV_COLLAPSE=True)}
    assert headline(seen, facts=newer) == (
        "Here NUMA placement works; "
        "seccomp refuses set_mempolicy_home_node, move_pages, migrate_pages.",
        Status.INFO,
        True,
    )


def test_old_kernel() -> None:
    assert headline(probe(set_mempolicy_home_node=ENOSYS), answers.Status(seccomp=0)) == (
        "Here NUMA placement works; the kernel lacks set_mempolicy_home_node.",
        Status.INFO,
        True,
    )


def test_part_only() -> None:
    assert headline(probe(get_mempolicy=EPERM)) == (
        "Here NUMA placement works in part only: seccomp refuses 1 of 6 calls.",
        Status.FAIL,
        False,
    )


def test_emulation() -> None:
    assert headline(probe(every=ENOSYS), answers.Status(seccomp=0))[0] == (
        "Here NUMA placement does not work: user-mode emulation lacks 6 of 6 calls."
    )


def test_no_effect() -> None:
    facts = {"effect": effect(page("mbind", 1, 0))}
    text, status, works = headline(probe(), answers.Status(seccomp=0), facts=facts)
    assert text.startswith("Here NUMA placement has no effect: ")
    assert (status, works) == (Status.WARN, False)


def test_a_sandbox_without_nodes_says_nothing_of_the_machine() -> None:
    seen = FakeHost(
        {"syscalls": probe()}, answers.Status(seccomp=0), ("/sys/devices/system",), ("status",)
    )
    outlook = examine(seen, [Runtime("gVisor", "sandbox")])
    assert (outlook.status, outlook.works, outlook.numa) == (Status.WARN, False, None)
    assert "no effect" in outlook.headline


def test_not_asked() -> None:
    seen: dict[str, Any] = {"abi": None, "unprobed": "no table", "calls": []}
    text, status, works = headline(seen)
    assert text.startswith("Whether NUMA placement works here is not decided: mbind,")
    assert (status, works) == (Status.UNKNOWN, None)


def test_without_numa() -> None:
    how: dict[str, Any] = {"folders": ("/sys/devices/system",), "proc": ("status",)}
    assert headline(probe(every=ENOSYS), **how) == (
        "This kernel has no NUMA support: there is nothing to place.",
        Status.SKIP,
        None,
    )


@pytest.mark.parametrize(
    ("folders", "proc", "numa"),
    [
        ((NODES, "/sys/devices/system"), (), True),
        (("/sys/devices/system",), ("numa_maps",), True),  # hidden by the container
        (("/sys/devices/system",), ("status",), False),
        ((), ("status",), None),  # no sysfs: nothing can be told from its absence
    ],
)
def test_whether_the_kernel_has_numa(
    folders: tuple[str, ...], proc: tuple[str, ...], numa: bool | None
) -> None:
    assert kernel_has_numa(FakeHost({}, None, folders, proc)) is numa


def test_a_denied_folder_tells_nothing_of_numa() -> None:
    host = FakeHost({"syscalls": probe(every=ENOSYS)}, None, denied=True)
    assert kernel_has_numa(host) is None
    outlook = examine(host)
    assert {call.verdict.value for call in outlook.calls} == {"undecided"}
    assert outlook.evidence[-1].source == NODES


def test_features_are_probed_only_where_they_decide_something() -> None:
    host = FakeHost({"syscalls": probe(every=EPERM)}, FILTER)
    examine(host)
    assert host.asked == ["syscalls", "effect"]
    host = FakeHost({"syscalls": probe(set_mempolicy_home_node=ENOSYS)}, FILTER)
    examine(host)
    assert "features" in host.asked


def test_evidence_says_whether_the_capability_is_there() -> None:
    for capabilities, word in ((0, "no"), (answers.SYS_NICE, "yes"), (None, "not known")):
        status = answers.Status(seccomp=2, cap_bnd=capabilities)
        outlook = examine(FakeHost({"syscalls": probe()}, status))
        assert Evidence("CAP_SYS_NICE in the bounding set", word) in outlook.evidence


def test_fixes_are_those_that_fit() -> None:
    host = FakeHost({"syscalls": probe(every=EPERM)}, FILTER)
    outlook = examine(host, (), lambda fixes: tuple(f for f in fixes if f.launcher == "docker"))
    launchers = {fix.launcher for call in outlook.calls for fix in call.fixes}
    assert launchers == {"docker"}


def test_without_a_probe_there_is_no_outlook() -> None:
    with pytest.raises(Undecided):
        examine(FakeHost({}, FILTER))


def test_the_calls_come_in_the_order_of_reports() -> None:
    outlook = examine(FakeHost({"syscalls": probe()}, FILTER))
    assert [call.name for call in outlook.calls] == list(CALLS)
