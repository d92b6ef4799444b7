import errno
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.kernel.abi import CALLS
from numadoctor.kernel.facts import HOME_NODE, MOVING, PLACING
from numadoctor.kernel.verdict import judge
from numadoctor.model import Evidence, Status
from numadoctor.model.calls import CallVerdict, Verdict
from tests.kernel import answers
from tests.kernel.answers import DOCKER_CAPS, SYS_NICE, Runtime, effect, features, page, probe

EPERM, ENOSYS = errno.EPERM, errno.ENOSYS
FILTER = answers.Status(seccomp=2)
FILTER_SYS_NICE = answers.Status(seccomp=2, cap_bnd=DOCKER_CAPS | SYS_NICE)
NO_FILTER = answers.Status(seccomp=0)
GVISOR = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"


def by_name(calls: tuple[CallVerdict, ...]) -> dict[str, CallVerdict]:
    assert [call.name for call in calls] == list(CALLS)
    return {call.name: call for call in calls}


def verdicts(calls: tuple[CallVerdict, ...]) -> dict[str, str]:
    return {call.name: call.verdict.value for call in calls}


def text(call: CallVerdict) -> str:
    fixes = [f"{fix.launcher}: {fix.text}" for fix in call.fixes]
    return "\n".join([call.because, str(call.blocked_by), *fixes])


def everything(calls: tuple[CallVerdict, ...]) -> str:
    return "\n".join(map(text, calls))


def test_reached() -> None:
    calls = judge(probe(), NO_FILTER, numa=True)
    assert set(verdicts(calls).values()) == {"reached"}
    assert {call.status for call in calls} == {Status.PASS}
    assert {call.blocked_by for call in calls} == {None}
    assert not any(call.fixes for call in calls)
    found = by_name(calls)
    assert (found["mbind"].answer, found["mbind"].errno) == ("0", None)
    assert (found["set_mempolicy"].answer, found["set_mempolicy"].errno) == ("EINVAL", "EINVAL")
    assert found["mbind"].number == 237


def test_case_1_docker_without_sys_nice() -> None:
    calls = judge(probe(every=EPERM), FILTER, numa=True)
    assert set(verdicts(calls).values()) == {"filtered"}
    assert {call.blocked_by for call in calls} == {"seccomp filter"}
    found = by_name(calls)
    for name in PLACING:
        call = found[name]
        assert call.status is Status.FAIL
        assert call.errno == "EPERM"
        docker = [fix.text for fix in call.fixes if fix.launcher == "docker"]
        # The profile grants nothing and comes first; the capability opens these three too.
        assert docker[0].startswith("--security-opt seccomp=")
        assert docker[1].startswith("--cap-add SYS_NICE")
        assert "which the bounding set lacks" in call.because
    for name in (*MOVING, HOME_NODE):
        assert found[name].status is Status.INFO
        assert "--cap-add" not in text(found[name])
    assert "privileged" not in everything(calls)


def test_the_profile_rule_names_all_that_is_shut_and_is_json() -> None:
    calls = judge(probe(every=EPERM), FILTER, numa=True)
    fix = next(fix for fix in calls[0].fixes if fix.launcher == "docker")
    rule = json.loads(fix.text.splitlines()[-1])
    assert rule == {"names": list(CALLS), "action": "SCMP_ACT_ALLOW"}
    calls = judge(probe(move_pages=EPERM), FILTER, numa=True)
    fix = next(fix for fix in by_name(calls)["move_pages"].fixes if fix.launcher == "podman")
    assert json.loads(fix.text.splitlines()[-1])["names"] == ["move_pages"]


def test_case_2_sys_nice_is_there_already() -> None:
    calls = judge(probe(every=EPERM), FILTER_SYS_NICE, numa=True)
    found = by_name(calls)
    for name in PLACING:
        assert "CAP_SYS_NICE is in the bounding set" in found[name].because
        assert "upgrade the container engine" in text(found[name])
        assert "--security-opt seccomp=" in text(found[name])
    assert "--cap-add" not in everything(calls)
    assert "capabilities: {add" not in everything(calls)


def test_case_3_only_the_moving_calls_are_closed() -> None:
    calls = judge(probe(move_pages=EPERM, migrate_pages=EPERM), FILTER_SYS_NICE, numa=True)
    assert verdicts(calls) == {
        **dict.fromkeys((*PLACING, HOME_NODE), "reached"),
        **dict.fromkeys(MOVING, "filtered"),
    }
    for name in MOVING:
        call = by_name(calls)[name]
        assert call.status is Status.INFO
        assert "for no capability" in call.because
        assert call.fixes[0].launcher == "numactl"
        assert "--membind" in call.fixes[0].text
        assert "SYS_NICE" not in text(call).replace("CAP_SYS_NICE is", "")
    # Where set_mempolicy is shut too, numactl cannot bind and the cpuset must.
    shut = by_name(judge(probe(every=EPERM), FILTER, numa=True))["move_pages"]
    assert "numactl" not in text(shut)
    assert shut.fixes[0].text.startswith("--cpuset-mems")


def test_case_4_podman() -> None:
    seen = probe(move_pages=EPERM, migrate_pages=EPERM, set_mempolicy_home_node=ENOSYS)
    calls = judge(seen, FILTER, numa=True)
    assert verdicts(calls) == {
        **dict.fromkeys(PLACING, "reached"),
        **dict.fromkeys(MOVING, "filtered"),
        HOME_NODE: "undecided",
    }
    home_node = by_name(calls)[HOME_NODE]
    assert "older than 5.17, or the seccomp filter" in home_node.because
    assert home_node.status is Status.UNKNOWN
    assert not any(call.status is Status.FAIL for call in calls)


@pytest.mark.parametrize(
    ("known", "verdict", "blocked_by"),
    [
        ({"MPOL_WEIGHTED_INTERLEAVE": True}, "filtered", "seccomp filter"),
        ({"MADV_COLLAPSE": True}, "filtered", "seccomp filter"),
        ({"MPOL_PREFERRED_MANY": False}, "absent", "kernel without this call"),
        ({"MADV_POPULATE_WRITE": False}, "absent", "kernel without this call"),
        ({"MPOL_PREFERRED_MANY": True, "MADV_POPULATE_WRITE": True}, "undecided", None),
        ({"MADV_COLLAPSE": False, "MPOL_WEIGHTED_INTERLEAVE": False}, "undecided", None),
        ({"MADV_COLLAPSE": None, "MPOL_PREFERRED_MANY": None}, "undecided", None),
    ],
)
def test_what_else_the_kernel_has_decides_about_the_newest_call(
    known: dict[str, Any], verdict: str, blocked_by: str | None
) -> None:
    seen = probe(set_mempolicy_home_node=ENOSYS, move_pages=EPERM, migrate_pages=EPERM)
    call = by_name(judge(seen, FILTER, numa=True, features=features(**known)))[HOME_NODE]
    assert (call.verdict.value, call.blocked_by) == (verdict, blocked_by)


def test_without_a_filter_the_newest_call_is_missing_from_the_kernel() -> None:
    call = by_name(judge(probe(set_mempolicy_home_node=ENOSYS), NO_FILTER, numa=True))[HOME_NODE]
    assert call.verdict is Verdict.ABSENT
    assert call.status is Status.INFO
    assert "5.17" in text(call)


def test_case_6_kernel_without_numa() -> None:
    for status in (NO_FILTER, FILTER):
        calls = judge(probe(every=ENOSYS), status, numa=False)
        assert set(verdicts(calls).values()) == {"absent"}
        assert {call.status for call in calls} == {Status.SKIP}
        assert {call.blocked_by for call in calls} == {"kernel without NUMA"}
        assert not any(call.fixes for call in calls)


def test_a_filter_before_a_kernel_without_numa_costs_nothing() -> None:
    calls = judge(probe(every=EPERM), FILTER, numa=False)
    assert set(verdicts(calls).values()) == {"filtered"}
    assert {call.status for call in calls} == {Status.SKIP}
    assert not any(call.fixes for call in calls)


def test_case_7_default_errno_of_the_filter() -> None:
    calls = judge(probe(every=ENOSYS), FILTER, numa=True)
    assert set(verdicts(calls).values()) == {"filtered"}
    assert {call.blocked_by for call in calls} == {"seccomp filter"}
    assert {by_name(calls)[name].status for name in PLACING} == {Status.FAIL}
    assert all("A kernel with NUMA has this call" in call.because for call in calls)
    assert "--cap-add" not in everything(calls)


def test_case_8_gvisor() -> None:
    seen = effect(page("mbind", 1, 0), page("set_mempolicy", 1, 0))
    calls = judge(probe(), NO_FILTER, numa=True, banner=GVISOR, effect=seen)
    assert set(verdicts(calls).values()) == {"no-effect"}
    assert {call.status for call in calls} == {Status.WARN}
    mbind = by_name(calls)["mbind"]
    assert "gVisor" in mbind.because
    assert Evidence("effect probe", "mbind: asked for node 1, page on node 0") in mbind.evidence
    # The one node of the sandbox makes the effect look right: the banner decides.
    calls = judge(probe(), NO_FILTER, numa=True, banner=GVISOR, effect=effect(page("mbind", 0, 0)))
    assert by_name(calls)["mbind"].verdict is Verdict.NO_EFFECT


def test_gvisor_refuses_and_lacks_calls_itself() -> None:
    seen = probe(move_pages=EPERM, migrate_pages=ENOSYS)
    found = by_name(judge(seen, NO_FILTER, numa=None, banner=GVISOR))
    assert found["move_pages"].verdict is Verdict.FILTERED
    assert found["migrate_pages"].verdict is Verdict.ABSENT
    assert {found[name].blocked_by for name in MOVING} == {"sandbox (gVisor)"}
    named = judge(probe(), NO_FILTER, numa=True, runtimes=[Runtime("Some sandbox", "sandbox")])
    assert {call.blocked_by for call in named} == {"sandbox (Some sandbox)"}


def test_a_page_on_another_node_is_no_effect_whoever_did_it() -> None:
    seen = effect(page("mbind", 0, 0), page("mbind", 1, 0), page("set_mempolicy", 1, 1))
    found = by_name(judge(probe(), NO_FILTER, numa=True, effect=seen))
    assert found["mbind"].verdict is Verdict.NO_EFFECT
    assert found["mbind"].status is Status.WARN
    assert "asked for on node 1 is on node 0" in found["mbind"].because
    assert found["set_mempolicy"].verdict is Verdict.REACHED
    assert "asked for on node 1 are there" in found["set_mempolicy"].because


def test_a_page_that_could_not_be_looked_up_proves_nothing() -> None:
    for seen in (effect(page("mbind", 1, None)), effect(page("mbind", 1, None, errno.EINVAL))):
        found = by_name(judge(probe(), NO_FILTER, numa=True, effect=seen))
        assert found["mbind"].verdict is Verdict.REACHED
        assert found["mbind"].because == "The kernel itself answered."


def test_a_filter_that_looks_at_arguments_is_found_by_the_effect_probe() -> None:
    seen = effect(page("mbind", 0, None, EPERM), page("mbind", 1, None, EPERM))
    mbind = by_name(judge(probe(), FILTER, numa=True, effect=seen))["mbind"]
    assert (mbind.verdict, mbind.status) == (Verdict.FILTERED, Status.FAIL)
    assert "a real one (MPOL_BIND) gives EPERM" in mbind.because
    assert any('"mbind"' in fix.text for fix in mbind.fixes)
    killed = {**page("mbind", 0, None), "signal": 31}
    mbind = by_name(judge(probe(), FILTER, numa=True, effect=effect(killed)))["mbind"]
    assert "gives SIGSYS" in mbind.because
    # One node that answers otherwise is the kernel speaking.
    seen = effect(page("mbind", 0, None, EPERM), page("mbind", 1, 1))
    assert by_name(judge(probe(), FILTER, numa=True, effect=seen))["mbind"].verdict is (
        Verdict.REACHED
    )


def test_case_9_systemd_unit() -> None:
    shut = {name: EPERM for name in CALLS if name != "get_mempolicy"}
    calls = judge(probe(**shut), FILTER, numa=True)
    assert verdicts(calls) == {
        **dict.fromkeys(CALLS, "filtered"),
        "get_mempolicy": "reached",
    }
    mbind = by_name(calls)["mbind"]
    assert mbind.status is Status.FAIL
    assert "~@resources" in mbind.because
    assert [fix.launcher for fix in mbind.fixes] == ["systemd"]
    assert "SystemCallFilter=mbind set_mempolicy set_mempolicy_home_node" in mbind.fixes[0].text
    assert (mbind.fixes[0].needs_root, mbind.fixes[0].persists) == (True, True)
    assert "NUMAPolicy=bind" in text(by_name(calls)["move_pages"])


def test_sigsys_is_a_filter() -> None:
    calls = judge(probe(every="SIGSYS"), FILTER, numa=True)
    assert set(verdicts(calls).values()) == {"filtered"}
    assert {call.answer for call in calls} == {"SIGSYS"}
    assert {call.errno for call in calls} == {None}
    assert "systemd" in {fix.launcher for fix in calls[0].fixes}
    other = judge(probe(mbind="SIGKILL"), FILTER, numa=True)
    assert by_name(other)["mbind"].verdict is Verdict.UNDECIDED
    assert "ended by SIGKILL" in by_name(other)["mbind"].because


def test_without_seccomp_another_guard_refuses() -> None:
    for number in (EPERM, errno.EACCES):
        call = by_name(judge(probe(mbind=number), NO_FILTER, numa=True))["mbind"]
        assert call.verdict is Verdict.FILTERED
        assert call.blocked_by == "security module or sandbox"
        assert "seccomp=" not in text(call)
        assert "journalctl" in text(call)


def test_an_unreadable_status_leaves_the_kind_of_filter_open() -> None:
    call = by_name(judge(probe(mbind=EPERM), None, numa=True))["mbind"]
    assert call.verdict is Verdict.FILTERED
    assert call.blocked_by == "seccomp filter or security module"
    call = by_name(judge(probe(mbind=ENOSYS), None, numa=True))["mbind"]
    assert call.verdict is Verdict.UNDECIDED


def test_user_mode_emulation() -> None:
    calls = judge(probe(every=ENOSYS), NO_FILTER, numa=True)
    assert set(verdicts(calls).values()) == {"absent"}
    assert {call.blocked_by for call in calls} == {"emulation (user-mode emulation)"}
    assert by_name(calls)["mbind"].status is Status.FAIL
    assert all("qemu-user" in call.because for call in calls)
    # In a container the filter is the emulator's own, and says nothing.
    calls = judge(
        probe(every=ENOSYS), FILTER, numa=True, runtimes=[Runtime("qemu-user", "emulation")]
    )
    assert {call.blocked_by for call in calls} == {"emulation (qemu-user)"}
    assert "seccomp=" not in everything(calls)


def test_enosys_is_undecided_where_numa_is_not_known() -> None:
    calls = judge(probe(every=ENOSYS), FILTER, numa=None)
    assert set(verdicts(calls).values()) == {"undecided"}
    # A policy call that was answered proves a kernel with NUMA.
    found = by_name(judge(probe(move_pages=ENOSYS), FILTER, numa=None))
    assert found["move_pages"].verdict is Verdict.FILTERED
    found = by_name(judge(probe(move_pages=ENOSYS), NO_FILTER, numa=None))
    assert found["move_pages"].verdict is Verdict.ABSENT
    assert "without page migration" in found["move_pages"].because
    found = by_name(judge(probe(mbind=ENOSYS), NO_FILTER, numa=True))
    assert found["mbind"].verdict is Verdict.UNDECIDED


def test_odd_answers() -> None:
    found = by_name(judge(probe(mbind=errno.EIO), FILTER, numa=True))
    assert found["mbind"].verdict is Verdict.FILTERED
    found = by_name(judge(probe(mbind=errno.EIO), NO_FILTER, numa=True))
    assert found["mbind"].verdict is Verdict.UNDECIDED
    # A trapped call whose handler returned shows its own number.
    seen = probe()
    seen["calls"][0] |= {"returned": 237}
    assert by_name(judge(seen, FILTER, numa=True))["mbind"].verdict is Verdict.UNDECIDED


def test_what_could_not_be_asked_is_undecided() -> None:
    seen = probe()
    seen["calls"][0] |= {"returned": None, "errno": None, "unprobed": "cannot fork: EAGAIN"}
    mbind = by_name(judge(seen, NO_FILTER, numa=True))["mbind"]
    assert (mbind.verdict, mbind.status, mbind.answer) == (
        Verdict.UNDECIDED,
        Status.UNKNOWN,
        "none",
    )
    assert "cannot fork: EAGAIN" in mbind.because


def test_what_was_read_is_cited_with_each_verdict() -> None:
    read = Evidence("/proc/self/status", "Seccomp:\t2")
    for call in judge(probe(every=EPERM), FILTER, numa=True, evidence=[read]):
        assert call.evidence[0].source == f"system call {call.name} ({call.number})"
        assert call.evidence[0].text == "answers EPERM"
        assert call.evidence[-1] == read


numbers = st.one_of(st.none(), st.integers(-2, 200))
records = st.fixed_dictionaries(
    {
        "name": st.sampled_from([*CALLS, "other"]),
        "number": numbers,
        "returned": st.sampled_from([0, -1, None, 237]),
        "errno": st.sampled_from([0, 1, 13, 14, 22, 38, 5, None]),
        "signal": st.sampled_from([None, None, None, 31, 9, 99]),
        "unprobed": st.sampled_from([None, None, None, "why"]),
    }
)
probes = st.builds(lambda calls: {"abi": "x86_64", "calls": calls}, st.lists(records, max_size=8))
statuses = st.one_of(
    st.none(),
    st.builds(
        answers.Status,
        st.sampled_from([None, 0, 1, 2, 7]),
        st.sampled_from([None, 0, DOCKER_CAPS, DOCKER_CAPS | SYS_NICE]),
    ),
)
pages = st.builds(
    page,
    st.sampled_from(["mbind", "set_mempolicy", "x"]),
    st.integers(0, 2),
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([None, 1, 22, 38]),
)
effects = st.one_of(st.none(), st.builds(lambda found: effect(*found), st.lists(pages, max_size=4)))
known = st.dictionaries(
    st.sampled_from(["MPOL_WEIGHTED_INTERLEAVE", "MPOL_PREFERRED_MANY", HOME_NODE]),
    st.sampled_from([True, False, None]),
)
banners = st.sampled_from(["", GVISOR, "Linux version 6.12.0"])


@given(probes, statuses, st.sampled_from([True, False, None]), banners, effects, known)
def test_no_verdict_says_more_than_is_known(
    seen: dict[str, Any],
    status: answers.Status | None,
    numa: bool | None,
    banner: str,
    landed: Any,
    has: dict[str, Any],
) -> None:
    calls = judge(seen, status, numa=numa, banner=banner, effect=landed, features=features(**has))
    asked = {r["name"]: r for r in seen["calls"]}
    for call in calls:
        record = asked.get(call.name)
        answered = (
            record is not None
            and record["unprobed"] is None
            and record["signal"] is None
            and record["errno"] in (0, 14, 22)
            and record["returned"] in (0, -1)
        )
        if call.verdict in (Verdict.REACHED, Verdict.NO_EFFECT):
            assert answered
        if record is None or record["unprobed"]:
            assert call.verdict is Verdict.UNDECIDED
        if call.verdict is Verdict.UNDECIDED:
            assert call.status is Status.UNKNOWN
        assert (call.status is Status.PASS) == (call.verdict is Verdict.REACHED)
        if call.verdict is Verdict.FILTERED and call.status is not Status.SKIP:
            assert call.fixes
            assert call.blocked_by
        shown = text(call)
        assert "privileged" not in shown
        assert "run as root" not in shown
        granting = "--cap-add" in shown or "capabilities: {add" in shown
        if granting:
            assert call.name in PLACING
            assert status is None or not (status.cap_bnd or 0) & SYS_NICE
        if numa is False:
            assert not call.fixes
        assert call.because.endswith(".")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["calls", "pages", "name", "errno", "mbind", "available", "node"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(json_values, json_values, json_values)
def test_a_recording_by_others_never_breaks_the_judge(seen: Any, landed: Any, has: Any) -> None:
    calls = judge(seen, FILTER, numa=True, effect=landed, features=has)
    assert all(call.verdict is not Verdict.REACHED for call in calls)
