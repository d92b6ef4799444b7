"""What is said of a profile's rules against the filters that libseccomp itself makes of them.

Machines without the library skip these; the containers of the lab show the same.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numadoctor.kernel.abi import CALLS, by_name, current_abi
from numadoctor.kernel.seccomp import Action, evaluate, profile_of
from numadoctor.kernel.seccomp.evaluate import Way
from numadoctor.kernel.seccomp.stack import judge
from tests.kernel import libseccomp

LIBRARY = libseccomp.load()
CRUN = Way("oci", "crun")

pytestmark = pytest.mark.skipif(
    LIBRARY is None or current_abi().name != "x86_64",
    reason="compares with libseccomp, for x86_64 and its sisters",
)

numbers = st.sampled_from([0, 1, 2, 3, 7, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 64) - 1])
errnos = st.sampled_from([0, 1, 13, 38, 4094, 4095, 5000])


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    takes_errno = draw(st.booleans())
    kinds = ["ERRNO", "TRACE"] if takes_errno else ["ALLOW", "KILL", "KILL_PROCESS", "TRAP", "LOG"]
    rule: dict[str, Any] = {
        "names": draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True)),
        "action": f"SCMP_ACT_{draw(st.sampled_from(kinds))}",
    }
    if takes_errno and draw(st.booleans()):
        rule["errnoRet"] = draw(errnos)
    if draw(st.integers(0, 2)) == 0:
        operators = st.sampled_from(["EQ", "EQ", "MASKED_EQ", "NE", "LT", "LE", "GT", "GE"])
        rule["args"] = [
            {"index": draw(st.integers(0, 5)), "op": f"SCMP_CMP_{draw(operators)}",
             "value": draw(numbers), "valueTwo": draw(numbers)}
            for _ in range(draw(st.integers(1, 2)))
        ]  # fmt: skip
    return rule


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_TRACE"]),
    st.lists(rules(), max_size=6),
    st.sampled_from(
        [[], ["SCMP_ARCH_X86"], ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]]
    ),
    st.integers(0, 1 << 32),
)
def test_libseccomp_makes_of_a_profile_what_is_said_of_it(
    default: str, entries: list[dict[str, Any]], architectures: list[str], seed: int
) -> None:
    profile = profile_of(
        {"defaultAction": default, "syscalls": entries, "architectures": architectures}
    )
    assert LIBRARY is not None
    try:
        program = libseccomp.crun(LIBRARY, profile)
    except libseccomp.Refused:
        for call in CALLS:
            refused = evaluate(profile, call, runtime=CRUN)
            assert refused.unknown or refused.action is Action.NO_START
        return
    random = Random(seed)
    for arch in ("x86_64", "i386", "x32"):
        for call in CALLS:
            passed = [random.choice((0, 1, 2, 3, 1 << 31, (1 << 64) - 1)) for _ in range(6)]
            for arguments in (passed, None):
                said = evaluate(profile, call, runtime=CRUN, arch=arch, arguments=arguments)
                found = judge([program], call, by_name(arch), arguments)
                if not (said.unknown or found.unknown):
                    assert (said.action, said.errno) == (found.action, found.errno), said


@pytest.mark.parametrize(
    "name",
    ["x86_64", "i386", "x32", "aarch64", "riscv64", "arm", "ppc64le", "s390x", "mips64", "mipsel"],
)
def test_the_numbers_are_libseccomps(name: str) -> None:
    """Those by which runc finds a call newer than a profile."""
    from numadoctor.kernel.seccomp.architectures import audit_number
    from numadoctor.kernel.seccomp.numbers import _HOME_NODE, _offset, _table

    assert LIBRARY is not None
    abi = by_name(name)
    token = 0x4000003E if name == "x32" else audit_number(abi)
    known = 0
    for call, number in _table(abi).items():
        told = LIBRARY.seccomp_syscall_resolve_name_arch(token, call.encode())
        if told == -1:  # a name that this version does not know
            assert number - _offset(abi) > _HOME_NODE, call
        elif told >= 0:  # below 0 stand calls that the architecture does not have
            assert told == number, call
            known += 1
    assert known > 20
