"""What a profile comes to, by who reads it, who makes the filter and what the call passes."""

import errno
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numadoctor.kernel.abi import CALLS, UnknownAbi, by_name, current_abi, names
from numadoctor.kernel.seccomp import (
    RUNTIMES,
    Action,
    Verdict,
    default_profile_answer,
    evaluate,
    profile_of,
)
from numadoctor.kernel.seccomp.architectures import audit_number, siblings
from numadoctor.kernel.seccomp.bpf import decode
from numadoctor.kernel.seccomp.evaluate import Way
from numadoctor.kernel.seccomp.stack import judge
from tests.kernel import seccomp
from tests.kernel.child import in_child

ALLOW, ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
POLICY = ["mbind", "set_mempolicy", "get_mempolicy"]
NICE = {"names": POLICY, "action": ALLOW, "includes": {"caps": ["CAP_SYS_NICE"]}}
# So that runc finds no NUMA call but the newest newer than the profile.
USUAL = {"names": ["read", "write", "openat", "clone3", "faccessat2"], "action": ALLOW}


def verdict(
    call: str, *rules: dict[str, Any], fields: dict[str, Any] | None = None, **how: Any
) -> Verdict:
    data = {"defaultAction": ERRNO, "syscalls": [USUAL, *rules], **(fields or {})}
    return evaluate(profile_of(data), call, **how)


def answer(call: str, *rules: dict[str, Any], **how: Any) -> str:
    return verdict(call, *rules, **how).answer


def test_a_capability_opens_what_is_listed_for_it() -> None:
    assert answer("mbind", NICE) == "EPERM"
    for name in ("SYS_NICE", "cap_sys_nice", "CAP_SYS_NICE", "ALL"):
        assert answer("mbind", NICE, capabilities=[name]) == "allow"
    assert answer("mbind", NICE, capabilities=["SYS_ADMIN"]) == "EPERM"
    assert answer("move_pages", NICE, capabilities=["SYS_NICE"]) == "EPERM"


def test_the_runtimes_own_capabilities_count_and_can_be_dropped() -> None:
    rule = {"names": POLICY, "action": ALLOW, "includes": {"caps": ["CAP_CHOWN"]}}
    assert answer("mbind", rule) == "allow"
    assert answer("mbind", rule, dropped=["CHOWN"]) == "EPERM"
    assert answer("mbind", rule, dropped=["ALL"]) == "EPERM"
    assert answer("mbind", rule, dropped=["ALL"], capabilities=["CHOWN"]) == "allow"
    mknod = {"names": POLICY, "action": ALLOW, "includes": {"caps": ["CAP_MKNOD"]}}
    assert answer("mbind", mknod, runtime="docker") == "allow"
    assert answer("mbind", mknod, runtime="podman") == "EPERM"


def test_excludes_close_what_a_capability_would_have_left() -> None:
    rule = {"names": POLICY, "action": ALLOW, "excludes": {"caps": ["CAP_SYS_ADMIN"]}}
    assert answer("mbind", rule) == "allow"
    assert answer("mbind", rule, capabilities=["SYS_ADMIN"]) == "EPERM"


@pytest.mark.parametrize(
    ("filters", "arch", "expected"),
    [
        ({"includes": {"arches": ["amd64", "x32"]}}, "x86_64", "allow"),
        ({"includes": {"arches": ["arm64"]}}, "x86_64", "EPERM"),
        ({"includes": {"arches": ["arm64"]}}, "aarch64", "allow"),
        ({"includes": {"arches": ["s390x"]}}, "s390x", "allow"),
        ({"excludes": {"arches": ["amd64"]}}, "x86_64", "EPERM"),
        ({"excludes": {"arches": ["x86"]}}, "x86_64", "allow"),
    ],
)
def test_conditions_on_the_machine(filters: dict[str, Any], arch: str, expected: str) -> None:
    assert answer("mbind", {"names": POLICY, "action": ALLOW, **filters}, arch=arch) == expected


@pytest.mark.parametrize(
    ("filters", "kernel", "expected"),
    [
        ({"includes": {"minKernel": "5.10"}}, "5.10.0-28-amd64", "allow"),
        ({"includes": {"minKernel": "5.10"}}, "5.9.16", "EPERM"),
        ({"includes": {"minKernel": "5.10"}}, "6.1.0", "allow"),
        ({"excludes": {"minKernel": "5.10"}}, "6.1.0", "EPERM"),
        ({"excludes": {"minKernel": "5.10"}}, "4.19.0", "allow"),
        ({"includes": {"minKernel": "5.10"}}, "no version", "unknown"),
    ],
)
def test_conditions_on_the_kernel(filters: dict[str, Any], kernel: str, expected: str) -> None:
    rule = {"names": POLICY, "action": ALLOW, **filters}
    assert answer("mbind", rule, kernel=kernel) == expected
    # Those who do not read the condition count the rule always.
    for runtime in ("podman", "containerd"):
        assert answer("mbind", rule, kernel=kernel, runtime=runtime) == "allow"


def test_containerd_knows_no_includes() -> None:
    assert answer("mbind", NICE, runtime="containerd") == "allow"
    found = verdict("mbind", NICE, runtime="kubernetes")
    assert found.unknown
    assert "containerd with runc: allow" in found.reason
    assert "podman or CRI-O with crun: EPERM" in found.reason
    old_form = {"name": "mbind", "action": ALLOW}
    assert answer("mbind", old_form) == "allow"
    assert answer("mbind", old_form, runtime="containerd") == "EPERM"


def test_errno_by_name_is_podmans() -> None:
    rule = {"names": ["mbind"], "action": ERRNO, "errnoRet": 1, "errno": "ENOSYS"}
    assert answer("mbind", rule, runtime="podman") == "ENOSYS"
    assert answer("mbind", rule, runtime="docker") == "EPERM"
    wrong = {**rule, "errno": "ENOSUCH"}
    assert answer("mbind", wrong, runtime="podman") == "no-start"
    default = {"defaultErrno": "ENOSYS", "defaultErrnoRet": 38}
    assert answer("mbind", fields=default, runtime="podman") == "ENOSYS"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (None, "EPERM"),
        (0, "0"),
        (13, "EACCES"),
        (4094, "4094"),
        (4095, "no-start"),
        (5000, "no-start"),
        (65537, "EPERM"),
    ],
)
def test_errnos(number: int | None, expected: str) -> None:
    rule: dict[str, Any] = {"names": ["mbind"], "action": ERRNO}
    if number is not None:
        rule["errnoRet"] = number
    allowing = {"defaultAction": ALLOW}
    for runtime in ("docker", "podman"):
        assert answer("mbind", rule, fields=allowing, runtime=runtime) == expected


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("SCMP_ACT_ALLOW", "allow"), ("SCMP_ACT_LOG", "allow"), ("SCMP_ACT_KILL", "SIGSYS"),
        ("SCMP_ACT_KILL_THREAD", "SIGSYS"), ("SCMP_ACT_KILL_PROCESS", "SIGSYS"),
        ("SCMP_ACT_TRAP", "SIGSYS"), ("SCMP_ACT_TRACE", "ENOSYS"), ("SCMP_ACT_NOTIFY", "no-start"),
    ],
)  # fmt: skip
def test_actions(action: str, expected: str) -> None:
    rule = {"names": ["mbind"], "action": action}
    assert answer("mbind", rule) == expected
    assert answer("mbind", fields={"defaultAction": action}) == expected


def test_a_supervisor_is_asked_where_there_is_one() -> None:
    rule = {"names": ["mbind"], "action": "SCMP_ACT_NOTIFY"}
    asked = verdict("mbind", rule, fields={"listenerPath": "/run/x.sock"}, runtime="podman")
    assert (asked.action, asked.answer) == (Action.NOTIFY, "notify")


@pytest.mark.parametrize(
    ("fields", "rule", "runtime"),
    [
        ({"architectures": ["SCMP_ARCH_VAX"]}, {}, "docker"),
        ({"defaultAction": "SCMP_ACT_NOTIFY"}, {}, "docker"),
        ({"defaultAction": ALLOW, "defaultErrnoRet": 1}, {}, "podman"),
        ({}, {"names": ["mbind"], "action": ALLOW, "errnoRet": 1}, "podman"),
        ({"defaultAction": None}, USUAL, "docker"),
    ],
)
def test_what_no_container_starts_with(
    fields: dict[str, Any], rule: dict[str, Any], runtime: str
) -> None:
    rules = [rule] if rule else []
    for call in CALLS:
        found = verdict(call, *rules, fields=fields, runtime=runtime)
        assert found.action is Action.NO_START
        assert not found.open


def test_runc_passes_over_an_errno_that_crun_refuses() -> None:
    rule = {"names": ["mbind"], "action": ALLOW, "errnoRet": 1}
    assert answer("mbind", rule, runtime="docker") == "allow"
    assert verdict("mbind", rule, runtime="crio").unknown


def test_an_empty_profile_is_no_filter() -> None:
    empty = profile_of({"defaultAction": "", "syscalls": []})
    assert evaluate(empty, "move_pages").open


# Which rule counts.


def test_the_first_rule_without_conditions_counts() -> None:
    allow, refuse = ({"names": ["mbind"], "action": a, "errnoRet": 38} for a in (ALLOW, ERRNO))
    del allow["errnoRet"]
    assert answer("mbind", allow, refuse) == "allow"
    assert answer("mbind", refuse, allow) == "ENOSYS"
    conditional = {**refuse, "args": [{"index": 0, "op": "SCMP_CMP_EQ", "value": 0}]}
    assert answer("mbind", conditional, allow) == "allow"
    assert answer("mbind", allow, conditional) == "allow"


def test_a_rule_that_changes_nothing_is_passed_over() -> None:
    default = {"names": ["mbind"], "action": ERRNO}
    found = verdict("mbind", default, {"names": ["mbind"], "action": ALLOW})
    assert (found.answer, found.rule) == ("allow", 2)
    assert verdict("mbind", default).rule == 1


def test_the_same_conditions_with_other_actions_are_refused() -> None:
    args = [{"index": 2, "op": "SCMP_CMP_EQ", "value": 3}]
    one = {"names": ["mbind"], "action": ALLOW, "args": args}
    other = {"names": ["mbind"], "action": "SCMP_ACT_TRAP", "args": args}
    assert verdict("mbind", one, other).action is Action.NO_START


def test_what_is_refused_one_way_or_another_is_closed() -> None:
    refusing = {"names": ["mbind"], "action": ERRNO, "errnoRet": 38,
                "args": [condition(2, "EQ", 3)]}  # fmt: skip
    found = verdict("mbind", refusing)
    assert found.unknown
    assert found.closed
    assert not verdict("mbind", {**refusing, "action": ALLOW, "errnoRet": None}).closed
    assert verdict("set_mempolicy_home_node", runtime="kubernetes").closed
    assert not verdict("mbind", NICE, runtime="kubernetes").closed


def test_doubts_about_other_calls_are_none_about_these() -> None:
    """podman's own profile has such rules for socket(), and starts containers every day."""
    socket: list[dict[str, Any]] = [
        {"names": ["socket"], "action": ERRNO, "errnoRet": 22,
         "args": [condition(0, "EQ", 16), condition(2, "EQ", 9)]},
        {"names": ["socket"], "action": ALLOW, "args": [condition(2, "NE", 9)]},
        {"names": ["socket"], "action": ALLOW, "args": [condition(0, "NE", 16)]},
    ]  # fmt: skip
    assert answer("mbind", *socket) == "EPERM"
    for rule in socket:
        rule["names"] = ["move_pages"]
    assert answer("mbind", *socket) == "unknown"


def condition(index: int, operator: str, value: int, two: int = 0) -> dict[str, Any]:
    return {"index": index, "op": f"SCMP_CMP_{operator}", "value": value, "valueTwo": two}


@pytest.mark.parametrize(
    ("call", "args", "expected"),
    [
        ("mbind", [condition(5, "LE", 7)], "allow"),
        ("mbind", [condition(5, "MASKED_EQ", 0xFFFFFFF8, 0)], "allow"),
        ("mbind", [condition(5, "MASKED_EQ", 4, 0)], "unknown"),
        ("mbind", [condition(2, "LT", 0x10000)], "allow"),
        ("mbind", [condition(2, "GT", 0xFFFF)], "EPERM"),
        ("mbind", [condition(2, "EQ", 8)], "EPERM"),
        ("mbind", [condition(2, "EQ", 3)], "unknown"),
        ("mbind", [condition(2, "NE", 3)], "unknown"),
        ("mbind", [condition(0, "GE", 0)], "allow"),
        ("mbind", [condition(0, "MASKED_EQ", 0, 5)], "allow"),
        ("set_mempolicy", [condition(5, "EQ", 0)], "unknown"),
        ("set_mempolicy_home_node", [condition(3, "EQ", 0)], "allow"),
        # Twice the same argument: either is enough.
        ("mbind", [condition(2, "EQ", 3), condition(2, "EQ", 1 << 20)], "unknown"),
        ("mbind", [condition(2, "EQ", 1 << 20), condition(2, "EQ", 1 << 21)], "EPERM"),
        # libseccomp loses one of two such rules, sometimes.
        ("mbind", [condition(5, "LE", 7), condition(5, "GT", 7)], "unknown"),
        ("mbind", [condition(5, "GT", 7), condition(2, "GT", 1 << 20)], "EPERM"),
    ],
)
def test_conditions_are_decided_as_far_as_they_can_be(
    call: str, args: list[dict[str, Any]], expected: str
) -> None:
    found = verdict(call, {"names": [call], "action": ALLOW, "args": args}, runtime="podman")
    assert found.answer == expected
    if expected == "unknown" and len({one["index"] for one in args}) == len(args):
        assert f"argument {args[0]['index']}" in found.reason


# ABIs and architectures.


def test_an_architecture_that_is_not_listed_is_killed() -> None:
    native = {"architectures": ["SCMP_ARCH_X86_64"]}
    allow = {"names": list(CALLS), "action": ALLOW}
    for arch in ("i386", "x32"):
        found = verdict("mbind", allow, fields=native, arch=arch)
        assert found.action is Action.KILL_THREAD
        assert "not among the profile's architectures" in found.reason
    both = {"archMap": [{"architecture": "SCMP_ARCH_X86_64",
                         "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]}]}  # fmt: skip
    for arch in ("x86_64", "i386", "x32"):
        assert answer("mbind", allow, fields=both, arch=arch) == "allow"
    # The map is Docker's: containerd does not read it.
    assert answer("mbind", allow, fields=both, arch="i386", runtime="containerd") == "SIGSYS"
    # The machine's own is always there.
    assert answer("mbind", allow, fields={"architectures": ["SCMP_ARCH_X86"]}) == "allow"


@pytest.mark.parametrize("arch", [name for name in names() if name != "alpha"])
def test_every_abi_and_runtime_has_an_answer(arch: str) -> None:
    data = {"defaultAction": ALLOW, "syscalls": [{"names": ["mbind"], "action": ERRNO}]}
    for runtime in RUNTIMES:
        for call in CALLS:
            found = evaluate(profile_of(data), call, runtime=runtime, arch=arch)
            if arch in ("x86_64", "aarch64", "s390x", "ppc64le", "riscv64"):
                assert found.answer == ("EPERM" if call == "mbind" else "allow")
    assert siblings(arch)[0] == arch


def test_an_unknown_abi_is_refused() -> None:
    with pytest.raises(UnknownAbi):
        verdict("mbind", arch="vax")


# runc's stub.


@pytest.mark.parametrize("listed", [True, False])
def test_runc_answers_enosys_to_calls_newer_than_the_profile(listed: bool) -> None:
    fields = {"architectures": ["SCMP_ARCH_X86_64"]} if listed else {}
    for runtime in ("docker", "containerd"):
        told = "ENOSYS" if listed else "unknown"
        assert answer("set_mempolicy_home_node", fields=fields, runtime=runtime) == told
        assert answer("mbind", fields=fields, runtime=runtime) == "EPERM"
    assert answer("set_mempolicy_home_node", fields=fields, runtime="podman") == "EPERM"


def test_who_knows_the_newest_names_decides() -> None:
    listed = {"architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]}
    newest = {"names": ["cachestat", "fchmodat2"], "action": ALLOW}
    found = verdict("set_mempolicy_home_node", newest, fields=listed)
    assert found.unknown
    assert "libseccomp" in found.reason
    assert answer("mbind", newest, fields=listed) == "EPERM"
    # A profile of old calls alone: even mbind is newer.
    old = profile_of({"defaultAction": ERRNO, "syscalls": [{"names": ["read"], "action": ALLOW}],
                      **listed})  # fmt: skip
    assert evaluate(old, "mbind").answer == "ENOSYS"
    assert evaluate(old, "mbind", arch="i386").unknown  # its table is not whole
    assert evaluate(old, "set_mempolicy_home_node", arch="i386").answer == "ENOSYS"


@pytest.mark.parametrize("action", ["SCMP_ACT_ALLOW", "SCMP_ACT_LOG", "SCMP_ACT_TRACE"])
def test_a_default_that_lets_pass_needs_no_stub(action: str) -> None:
    fields = {"defaultAction": action, "architectures": ["SCMP_ARCH_X86_64"]}
    told = "ENOSYS" if action == "SCMP_ACT_TRACE" else "allow"
    assert answer("set_mempolicy_home_node", fields=fields) == told


# The default profiles.


@pytest.mark.parametrize(
    ("runtime", "version", "capabilities", "answers"),
    [
        ("docker", "18.06.1-ce", ["SYS_NICE"], ["EPERM"] * 3 + ["unknown", "EPERM", "EPERM"]),
        ("docker", "18.09.0", [], ["EPERM"] * 3 + ["unknown", "EPERM", "EPERM"]),
        ("docker", "18.09", ["SYS_NICE"], ["allow"] * 3 + ["unknown", "EPERM", "EPERM"]),
        ("docker", "27.3.1", ["SYS_NICE"], ["allow"] * 4 + ["EPERM", "EPERM"]),
        ("docker", None, ["ALL"], ["allow"] * 3 + ["unknown", "EPERM", "EPERM"]),
        ("containerd", "v1.6.15", ["SYS_NICE"], ["EPERM"] * 3 + ["unknown", "EPERM", "EPERM"]),
        ("containerd", "1.6.16", ["SYS_NICE"], ["allow"] * 3 + ["unknown", "EPERM", "EPERM"]),
        ("podman", "4.3.1", [], ["allow"] * 3 + ["ENOSYS", "EPERM", "EPERM"]),
        ("crio", None, ["SYS_NICE"], ["allow"] * 3 + ["ENOSYS", "EPERM", "EPERM"]),
        ("kubernetes", None, [], ["unknown"] * 4 + ["EPERM", "EPERM"]),
        ("kubernetes", "1.30", ["SYS_NICE"], ["allow"] * 3 + ["unknown", "EPERM", "EPERM"]),
    ],
)
def test_default_profiles(
    runtime: str, version: str | None, capabilities: list[str], answers: list[str]
) -> None:
    found = [default_profile_answer(runtime, version, call, capabilities) for call in CALLS]
    assert [one.answer for one in found] == answers
    assert all(one.reason for one in found)


# Conditions against the kernel: rules are made a program by a plain compiler of the tests' own.

JEQ, JGT, JGE = 0x15, 0x25, 0x35
Code = list[tuple[int, int, int, int]]


def _compare(args: dict[str, Any], over: int) -> Code:
    """Goes on where the condition holds, and jumps over ``over`` instructions where not."""
    low, high = 16 + 8 * args["index"], 20 + 8 * args["index"]
    operator = args["op"].removeprefix("SCMP_CMP_")
    value, mask = args["value"], (1 << 64) - 1
    if operator == "MASKED_EQ":
        value, mask, operator = args["valueTwo"] & value, value, "EQ"
    high_value, low_value = value >> 32, value & 0xFFFFFFFF
    load_high: Code = [(0x20, 0, 0, high), (0x54, 0, 0, mask >> 32)]
    load_low: Code = [(0x20, 0, 0, low), (0x54, 0, 0, mask & 0xFFFFFFFF)]
    if operator == "EQ":
        return [*load_high, (JEQ, 0, 3 + over, high_value), *load_low, (JEQ, 0, over, low_value)]
    if operator == "NE":
        return [*load_high, (JEQ, 0, 3, high_value), *load_low, (JEQ, over, 0, low_value)]
    strictly = {"GT": JGT, "GE": JGE, "LE": JGT, "LT": JGE}[operator]
    if operator in ("GT", "GE"):
        return [*load_high, (JGT, 4, 0, high_value), (JEQ, 0, 3 + over, high_value), *load_low,
                (strictly, 0, over, low_value)]  # fmt: skip
    return [*load_high, (JGT, 4 + over, 0, high_value), (JEQ, 0, 3, high_value), *load_low,
            (strictly, over, 0, low_value)]  # fmt: skip


def compiled(call: str, rules: list[dict[str, Any]], default: int) -> bytes:
    """A program for one call: the rules in their order, then the default."""
    body: Code = []
    for rule in rules:
        block: Code = [(0x06, 0, 0, 0x50000 | rule["errnoRet"])]
        for args in reversed(rule["args"]):
            block = [*_compare(args, len(block)), *block]
        body += block
    body.append((0x06, 0, 0, 0x50000 | default))
    number = current_abi().numbers[call]
    frame: Code = [(0x20, 0, 0, 0), (JEQ, 1, 0, number or 0), (0x06, 0, 0, 0x7FFF0000)]
    return b"".join(struct.pack("=HBBI", *one) for one in [*frame, *body])


numbers = st.sampled_from([0, 1, 2, 7, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 64) - 1]) | (
    st.integers(0, (1 << 64) - 1)
)
conditions = st.builds(
    condition,
    st.integers(0, 5),
    st.sampled_from(["EQ", "NE", "LT", "LE", "GT", "GE", "MASKED_EQ"]),
    numbers,
    numbers,
)


@pytest.mark.skipif(current_abi().byteorder != "little", reason="compiled for little-endian words")
@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(CALLS),
    st.lists(
        st.lists(conditions, min_size=1, max_size=2, unique_by=lambda c: c["index"]), max_size=2
    ),
    st.lists(numbers, min_size=6, max_size=6),
)
def test_conditions_mean_what_the_kernel_does(
    call: str, groups: list[list[dict[str, Any]]], arguments: list[int]
) -> None:
    rules = [
        {"names": [call], "action": ERRNO, "errnoRet": 80 + place, "args": group}
        for place, group in enumerate(groups)
    ]
    default = errno.EXDEV
    code = compiled(call, rules, default)
    machine = current_abi().name

    def ask() -> int:
        from numadoctor.kernel import syscalls

        seccomp.install_code(code)
        return syscalls.call(call, *arguments).errno

    answered = in_child(ask)
    by_filter = judge([decode(code)], call, by_name(machine), arguments)
    assert by_filter.errno == answered
    profile = profile_of(
        {"defaultAction": ERRNO, "defaultErrnoRet": default, "syscalls": [USUAL, *rules]}
    )
    way = Way("common", "crun")
    exact = evaluate(profile, call, runtime=way, arch=machine, arguments=arguments)
    if not exact.unknown and exact.action is not Action.NO_START:
        assert exact.errno == answered
    # What holds for any arguments that are rightly passed need not hold for these.
    assert audit_number(by_name(machine)) > 0


@given(
    st.sampled_from(CALLS),
    st.lists(conditions, min_size=1, max_size=2),
    st.integers(0, (1 << 64) - 1),
)
def test_what_is_decided_for_all_holds_for_each(
    call: str, args: list[dict[str, Any]], choice: int
) -> None:
    from numadoctor.kernel.seccomp.arguments import argument_bits

    rule = {"names": [call], "action": ALLOW, "args": args}
    loosely = verdict(call, rule, runtime="podman")
    passed = []
    for index in range(6):
        bits = argument_bits(call, index, None)
        passed.append(bits.value | bits.unknown & choice)
    exact = verdict(call, rule, runtime="podman", arguments=passed)
    assert exact.unknown <= loosely.unknown
    assert loosely.unknown or loosely.answer == exact.answer
