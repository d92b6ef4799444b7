import errno
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from numadoctor.kernel import probe, process
from numadoctor.kernel.abi import CALLS, UnknownAbi, current_abi
from numadoctor.kernel.probe import probe_calls, probe_effect, probe_features
from tests.kernel import seccomp
from tests.kernel.child import in_child

MODES = {"MPOL_PREFERRED_MANY", "MPOL_WEIGHTED_INTERLEAVE", "MPOL_F_NUMA_BALANCING"}
ADVICE = {"MADV_POPULATE_WRITE", "MADV_COLLAPSE"}
live = pytest.mark.usefixtures("policy_calls")


def under(rules: Mapping[str, int], ask: Callable[[], Any] = probe_calls) -> Any:
    """What ``ask`` finds in a process with that seccomp filter."""

    def run() -> Any:
        seccomp.install(rules)
        return ask()

    return in_child(run)


def as_nobody(ask: Callable[[], Any]) -> Any:
    """What ``ask`` finds in a process without any capability."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")

    def run() -> Any:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        return ask()

    return in_child(run)


def answers(found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {call["name"]: (call["errno"], call["signal"]) for call in found["calls"]}


@live
def test_without_a_filter_the_kernel_is_reached() -> None:
    found = probe_calls()
    assert found["abi"] == current_abi().name
    assert found["unprobed"] is None
    assert [call["name"] for call in found["calls"]] == list(CALLS)
    assert {call["name"]: call["number"] for call in found["calls"]} == current_abi().numbers
    expected = {
        "mbind": (0, 0),
        "set_mempolicy": (-1, errno.EINVAL),
        "get_mempolicy": (0, 0),
        "move_pages": (0, 0),
        "migrate_pages": (-1, errno.EINVAL),
    }
    shown = {call["name"]: (call["returned"], call["errno"]) for call in found["calls"]}
    home_node = shown.pop("set_mempolicy_home_node")
    assert shown == expected
    assert home_node in ((-1, errno.EINVAL), (-1, errno.ENOSYS))  # ENOSYS before 5.17
    assert json.loads(json.dumps(found)) == found


@live
def test_a_process_without_any_capability_may_make_all_six_calls() -> None:
    assert answers(as_nobody(probe_calls)) == answers(probe_calls())


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (seccomp.DOCKER, dict.fromkeys(CALLS, errno.EPERM)),
        (seccomp.DOCKER_SYS_NICE, dict.fromkeys(("move_pages", "migrate_pages"), errno.EPERM)),
        (
            seccomp.PODMAN,
            {
                "move_pages": errno.EPERM,
                "migrate_pages": errno.EPERM,
                "set_mempolicy_home_node": errno.ENOSYS,
            },
        ),
        (
            seccomp.SYSTEMD,
            dict.fromkeys([name for name in CALLS if name != "get_mempolicy"], errno.EPERM),
        ),
        (seccomp.DEFAULT_ENOSYS, dict.fromkeys(CALLS, errno.ENOSYS)),
        ({"mbind": seccomp.refuse(errno.EACCES)}, {"mbind": errno.EACCES}),
    ],
)
def test_each_call_is_told_as_the_filter_answers_it(
    rules: dict[str, int], refused: dict[str, int]
) -> None:
    found = answers(under(rules))
    assert {name: found[name] for name in refused} == {
        name: (number, None) for name, number in refused.items()
    }
    untouched = [name for name in CALLS if name not in rules]
    here = answers(probe_calls())
    assert {name: found[name] for name in untouched} == {name: here[name] for name in untouched}


@pytest.mark.parametrize("action", [seccomp.KILL_PROCESS, seccomp.KILL_THREAD, seccomp.TRAP])
def test_a_filter_that_kills_costs_one_call_each(action: int) -> None:
    killing = ("mbind", "get_mempolicy", "migrate_pages")
    found = answers(under(seccomp.actions(killing, action)))
    assert {name: found[name] for name in killing} == dict.fromkeys(killing, (None, signal.SIGSYS))
    here = answers(probe_calls())
    assert {n: found[n] for n in CALLS if n not in killing} == {
        n: here[n] for n in CALLS if n not in killing
    }


def test_a_handler_for_sigsys_does_not_make_a_trapped_call_look_answered() -> None:
    def ask() -> Any:
        signal.signal(signal.SIGSYS, lambda *_: None)
        seccomp.install({"mbind": seccomp.TRAP})
        return probe_calls()

    assert answers(in_child(ask))["mbind"] == (None, signal.SIGSYS)


def test_a_supervisor_that_never_answers_is_not_waited_for() -> None:
    def ask() -> Any:
        seccomp.install_silent(["set_mempolicy"])
        return probe_calls(time_limit=0.3)

    calls = {call["name"]: call for call in in_child(ask)["calls"]}
    assert calls["set_mempolicy"]["unprobed"] == "no answer within 0.3 s; the probe was ended"
    assert calls["set_mempolicy"]["errno"] is None
    assert all(calls[name]["unprobed"] is None for name in CALLS if name != "set_mempolicy")


def test_in_an_unknown_abi_no_call_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Any:
        raise UnknownAbi("no table for this machine")

    monkeypatch.setattr(probe, "current_abi", unknown)
    monkeypatch.setattr(probe, "run_steps", None)
    found = probe_calls()
    assert found["abi"] is None
    assert {call["unprobed"] for call in found["calls"]} == {"no table for this machine"}
    assert probe_effect() == {"unprobed": "no table for this machine", "pages": []}
    features = probe_features()
    assert {feature["available"] for feature in features.values()} == {None}
    assert {feature["reason"] for feature in features.values()} == {"no table for this machine"}


@live
def test_effect_finds_each_page_where_it_was_asked_for() -> None:
    found = probe_effect()
    nodes = probe._allowed_nodes()
    assert [(page["call"], page["node"]) for page in found["pages"]] == [
        (call, node) for node in nodes for call in ("mbind", "set_mempolicy")
    ]
    assert all(page["observed"] == page["node"] for page in found["pages"])
    assert json.loads(json.dumps(found)) == found


@live
@pytest.mark.parametrize(
    ("closed", "method"),
    [
        ((), "move_pages"),
        (("move_pages",), "get_mempolicy"),
        (("move_pages", "get_mempolicy"), "numa_maps"),
    ],
)
def test_effect_is_seen_by_whatever_way_is_open(closed: tuple[str, ...], method: str) -> None:
    rules = seccomp.actions(closed, seccomp.refuse(errno.EPERM))
    pages = under(rules, probe_effect)["pages"]
    assert {page["method"] for page in pages} == {method}
    assert all(page["observed"] == page["node"] for page in pages)
    # The same without any capability, where the process's own files in /proc matter.

    def ask() -> Any:
        seccomp.install(rules)
        return probe_effect()

    assert as_nobody(ask)["pages"] == pages


def test_effect_of_a_refused_call_is_its_errno() -> None:
    pages = under({"mbind": seccomp.refuse(errno.EPERM)}, lambda: probe_effect([0]))["pages"]
    assert (pages[0]["call"], pages[0]["errno"], pages[0]["observed"]) == ("mbind", 1, None)
    pages = under({"mbind": seccomp.KILL_PROCESS}, lambda: probe_effect([0]))["pages"]
    assert (pages[0]["call"], pages[0]["signal"]) == ("mbind", signal.SIGSYS)


@live
def test_effect_of_a_node_that_is_not_there_is_einval() -> None:
    pages = probe_effect([1023])["pages"]
    assert {page["errno"] for page in pages} == {errno.EINVAL}


def test_effect_without_known_nodes_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_allowed_nodes", tuple)
    assert probe_effect() == {"unprobed": "the allowed nodes are not known", "pages": []}
    features = probe_features()
    assert {features[name]["reason"] for name in MODES} == {"the allowed nodes are not known"}


def test_the_child_that_fills_a_node_is_the_first_to_go() -> None:
    """As nobody too, whose files in /proc belong to root while it may not be dumped."""

    def ask() -> Any:
        process.prctl(process.PR_SET_DUMPABLE, 0)
        probe._be_first_to_go()
        dumpable = process.prctl(process.PR_GET_DUMPABLE)
        with open("/proc/self/oom_score_adj", "rb") as file:
            return [int(file.read()), dumpable]

    assert in_child(ask) == [1000, 0]
    if os.geteuid() == 0:
        assert as_nobody(ask) == [1000, 0]


@live
def test_features_agree_with_the_release_of_a_mainline_kernel() -> None:
    """The release is no proof for a vendor's kernel, so only a clear contradiction fails."""
    features = probe_features()
    assert set(features) == MODES | ADVICE | {"set_mempolicy_home_node"}
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    since = {
        "MPOL_F_NUMA_BALANCING": (5, 12),
        "MADV_POPULATE_WRITE": (5, 14),
        "MPOL_PREFERRED_MANY": (5, 15),
        "set_mempolicy_home_node": (5, 17),
        "MPOL_WEIGHTED_INTERLEAVE": (6, 9),
    }
    for name, release in since.items():
        if (major, minor) >= release:
            assert features[name]["available"] is True, name
    assert json.loads(json.dumps(features)) == features


@live
def test_a_mode_and_an_advice_that_do_not_exist_are_not_available() -> None:
    nodes = probe._allowed_nodes()
    assert in_child(lambda: probe._try_mode(77, nodes)) == [False, errno.EINVAL]
    assert in_child(lambda: probe._try_advice(7777)) == [False, errno.EINVAL]


def test_behind_a_filter_a_feature_is_unknown_and_not_missing() -> None:
    features = under(seccomp.DOCKER, probe_features)
    for name in (*MODES, "set_mempolicy_home_node"):
        assert features[name] == {
            "available": None,
            "errno": errno.EPERM,
            "reason": "the call is answered EPERM",
        }
    features = under(seccomp.DEFAULT_ENOSYS, probe_features)
    assert features["set_mempolicy_home_node"]["available"] is None
    features = under(seccomp.actions(CALLS, seccomp.KILL_PROCESS), probe_features)
    assert {features[name]["reason"] for name in MODES} == {
        "trying it ended the probe with signal 31"
    }


def test_enosys_without_a_filter_is_the_kernels_own_word(monkeypatch: pytest.MonkeyPatch) -> None:
    from numadoctor.kernel.syscalls import Answer

    monkeypatch.setattr(
        "numadoctor.kernel.syscalls.call", lambda *_, **__: Answer(-1, errno.ENOSYS)
    )
    if "Seccomp:\t0" not in Path("/proc/self/status").read_text():
        pytest.skip("a seccomp filter is in force here")
    assert probe._try_home_node() == (False, errno.ENOSYS)


@live
def test_probes_leave_the_policy_of_this_process_alone() -> None:
    def policies() -> set[str]:
        return {line.split()[1] for line in Path("/proc/self/numa_maps").read_text().splitlines()}

    before = policies()
    probe_effect()
    probe_features()
    assert policies() == before
