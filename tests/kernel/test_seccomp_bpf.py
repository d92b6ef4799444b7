"""The interpreter of classic BPF against the kernel itself, and its abstract form against it."""

import ctypes
import errno
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numadoctor.kernel.abi import by_name, current_abi
from numadoctor.kernel.seccomp.actions import Action, of_return_value, precedence
from numadoctor.kernel.seccomp.architectures import audit_number
from numadoctor.kernel.seccomp.bpf import (
    BadProgram,
    Instruction,
    TooManyPaths,
    check,
    decode,
    outcomes,
    run,
    seccomp_data,
)
from numadoctor.kernel.seccomp.stack import judge
from numadoctor.kernel.seccomp.tristate import Bits, exactly
from tests.kernel import seccomp
from tests.kernel.child import in_child

# A number that no kernel has: only the filter answers it.
PROBED = 1000
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
op = Instruction

real = pytest.mark.skipif(
    current_abi().name not in ("x86_64", "aarch64", "riscv64"),
    reason="numbers of the ABI's own prctl and syscall are assumed",
)

LOADS = [0x20, 0x80, 0x00, 0x60, 0x81, 0x01, 0x61]
STORES = [0x02, 0x03, 0x07, 0x87]
COUNTS = [0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x84, 0xA4]
JUMPS = [0x05, 0x15, 0x25, 0x35, 0x45]
CODES = [*LOADS, *STORES, *COUNTS, *(c | 8 for c in COUNTS if c != 0x84), *JUMPS,
         *(c | 8 for c in JUMPS if c != 5)]  # fmt: skip

small = st.integers(0, 40)
words = small | st.integers(0, 0xFFFFFFFF) | st.sampled_from([1 << 31, 0xFFFFFFFF, 0x7FFF0000])


@st.composite
def bodies(draw: st.DrawFn, longest: int = 12) -> list[Instruction]:
    """Instructions that the kernel mostly takes: its rules are followed, some of the time."""
    length = draw(st.integers(1, longest))
    body = []
    for place in range(length):
        left = length - place - 1
        code = draw(st.sampled_from(CODES))
        k = draw(words)
        if code == 0x20:
            # All but the instruction pointer, which nobody knows before.
            offsets = small.filter(lambda k: k not in (8, 12))
            k = draw(st.sampled_from([0, 4, *range(16, 64, 4)]) | offsets)
        elif code in (0x60, 0x61, 0x02, 0x03):
            k = draw(st.integers(0, 3))
        elif code == 0x05:
            k = draw(st.integers(0, left))
        elif code in (0x64, 0x74):
            k = draw(st.integers(0, 31) | small)
        jt, jf = (draw(st.integers(0, left)) for _ in range(2)) if code & 7 == 5 else (0, 0)
        body.append(op(code, jt, jf, k))
    return body


def framed(body: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """The body for the probed call; all others are allowed. What it counted comes out as errno."""
    return (
        op(0x20, 0, 0, 0), op(0x15, 1, 0, PROBED), op(0x06, 0, 0, ALLOW),
        *body,
        op(0x54, 0, 0, 0xFFF), op(0x44, 0, 0, ERRNO), op(0x16, 0, 0, 0),
    )  # fmt: skip


def encode(program: Sequence[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def asked(program: Sequence[Instruction], arguments: Sequence[int]) -> Any:
    """What the kernel says: the errno of installing, or the answer to the call."""

    def child() -> tuple[str, int]:
        try:
            seccomp.install_code(encode(program))
        except OSError as error:
            return "refused", error.errno or 0
        libc = ctypes.CDLL(None, use_errno=True)
        ctypes.set_errno(0)
        answered = libc.syscall(ctypes.c_long(PROBED), *map(ctypes.c_ulong, arguments))
        return "answer", ctypes.get_errno() if answered == -1 else 0

    return in_child(child)


def predicted(program: Sequence[Instruction], arguments: Sequence[int]) -> list[Any]:
    try:
        check(tuple(program))
    except BadProgram:
        return ["refused", errno.EINVAL]
    data = seccomp_data(
        PROBED, audit_number(current_abi()), [exactly(a) for a in arguments],
        current_abi().byteorder,
    )  # fmt: skip
    action, number = of_return_value(run(tuple(program), data))
    return ["answer", number] if action is Action.ERRNO else ["SIGSYS"]


@real
@settings(deadline=None)
@given(bodies(), st.lists(st.integers(0, (1 << 64) - 1) | small, min_size=6, max_size=6))
def test_the_kernel_says_the_same(body: list[Instruction], arguments: list[int]) -> None:
    program = framed(body)
    answer = asked(program, arguments)
    # A division by zero ends the program with 0: the thread, here the process, is killed.
    assert (answer if isinstance(answer, list) else [answer]) == predicted(program, arguments)


@real
@pytest.mark.parametrize(
    "body",
    [
        [op(0x20, 0, 0, 64)],
        [op(0x20, 0, 0, 60)],
        [op(0x20, 0, 0, 62)],
        [op(0x28, 0, 0, 0)],  # half a word
        [op(0x94, 0, 0, 3)],  # MOD, which seccomp does not have
        [op(0x34, 0, 0, 0)],
        [op(0x64, 0, 0, 32)],
        [op(0x02, 0, 0, 16)],
        [op(0x60, 0, 0, 0)],  # never written
        [op(0x02, 0, 0, 0), op(0x60, 0, 0, 0)],
        [op(0x15, 0, 1, 7), op(0x02, 0, 0, 0), op(0x60, 0, 0, 0)],  # written on one way only
        [op(0x05, 0, 0, 99)],
        [op(0x15, 99, 0, 0)],
        [op(0x05, 0, 0, 0xFFFFFFFF)],
        [op(0x3C, 0, 0, 0)],  # A / X, which is 0
        [op(0x01, 0, 0, 33), op(0x6C, 0, 0, 0)],  # A << 33
        [op(0x84, 0, 0, 0)],
        [op(0x06, 0, 0, 0x12340000)],  # an action that the kernel does not know
        [op(0x06, 0, 0, ERRNO | 0xFFFF)],
    ],
)
def test_the_kernel_says_the_same_of_rare_things(body: list[Instruction]) -> None:
    program = framed(body)
    answer = asked(program, [1, 2, 3, 4, 5, 6])
    assert (answer if isinstance(answer, list) else [answer]) == predicted(program, range(1, 7))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "0 instructions"),
        (b"1234567", "7 bytes are no whole number"),
        (encode([op(0x20, 0, 0, 0)]), "the last instruction does not return"),
        (encode([op(0x06, 0, 0, 0)] * 4097), "4097 instructions"),
    ],
)
def test_what_is_no_program(data: bytes, told: str) -> None:
    with pytest.raises(BadProgram, match=told):
        decode(data)


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for byteorder in ("little", "big"):
        try:
            program = decode(data, byteorder)
        except BadProgram:
            continue
        assert program[-1].code in (0x06, 0x16)


partly = st.builds(
    lambda value, unknown: Bits(value & ~unknown, unknown),
    st.integers(0, (1 << 64) - 1) | small,
    st.integers(0, (1 << 64) - 1) | small,
)


@given(bodies(), st.lists(partly, min_size=6, max_size=6), st.integers(0, (1 << 64) - 1))
def test_no_answer_is_missed(body: list[Instruction], known: list[Bits], choice: int) -> None:
    """Whatever the unknown bits are, the answer is among those that were found."""
    program = framed(body)
    try:
        check(program)
        found = outcomes(program, seccomp_data(PROBED, 0, known))
    except (BadProgram, TooManyPaths):
        return
    chosen = [exactly(bits.value | bits.unknown & choice) for bits in known]
    try:
        answer = run(program, seccomp_data(PROBED, 0, chosen))
    except TooManyPaths:
        return  # it looked at the instruction pointer
    assert answer in found


def test_ways_that_never_end_are_given_up() -> None:
    ways = []
    for bit in range(30):
        # On each of 30 bits of an argument it counts something else.
        ways += [op(0x20, 0, 0, 16), op(0x45, 0, 2, 1 << bit), op(0x87, 0, 0, 0),
                 op(0x04, 0, 0, 1 << bit), op(0x07, 0, 0, 0)]  # fmt: skip
    program = framed([*ways, op(0x87, 0, 0, 0)])
    check(program)
    verdict = judge([program], "mbind", by_name("x86_64"))
    assert verdict.answer == "allow"  # the frame lets all but the probed call pass
    with pytest.raises(TooManyPaths):
        outcomes(program, seccomp_data(PROBED, 0, [Bits(0, (1 << 64) - 1)] * 6))


RETURNS = {
    0x80000000: (Action.KILL_PROCESS, None),
    0x00000000: (Action.KILL_THREAD, None),
    0x00030000: (Action.TRAP, None),
    0x00050001: (Action.ERRNO, 1),
    0x7FC00000: (Action.NOTIFY, None),
    0x7FF00000: (Action.TRACE, None),
    0x7FFC0000: (Action.LOG, None),
    0x7FFF0000: (Action.ALLOW, None),
}


def test_return_values_and_their_order() -> None:
    assert [of_return_value(value) for value in RETURNS] == list(RETURNS.values())
    assert sorted(RETURNS, key=precedence) == list(RETURNS)


def _answers(value: int) -> tuple[Instruction, ...]:
    return (op(0x06, 0, 0, value),)


@given(st.lists(st.sampled_from([*RETURNS, 0x00050026]), min_size=1, max_size=4))
def test_of_several_filters_the_most_severe_counts(values: list[int]) -> None:
    verdict = judge([_answers(value) for value in values], "mbind", by_name("x86_64"))
    severe = min(map(precedence, values))
    # Among those equally severe the one installed last.
    last = [value for value in values if precedence(value) == severe][-1]
    assert (verdict.action, verdict.errno) == of_return_value(last)


@real
@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([ERRNO | 1, ERRNO | 38, ERRNO, ALLOW, 0x7FFC0000, 0x7FF00000]),
                min_size=1, max_size=4))  # fmt: skip
def test_the_kernel_stacks_filters_in_the_same_way(values: list[int]) -> None:
    def child() -> int:
        for value in values:
            program = (
                op(0x20, 0, 0, 0), op(0x15, 0, 1, 239),
                op(0x06, 0, 0, value), op(0x06, 0, 0, ALLOW),
            )  # fmt: skip
            seccomp.install_code(encode(program))
        libc = ctypes.CDLL(None, use_errno=True)
        ctypes.set_errno(0)
        done = libc.syscall(ctypes.c_long(239), *[ctypes.c_ulong(0)] * 5)
        return ctypes.get_errno() if done == -1 else 0

    if current_abi().name != "x86_64":
        pytest.skip("239 is get_mempolicy on x86_64")
    verdict = judge([_answers(value) for value in values], "get_mempolicy", by_name("x86_64"))
    expected = {"allow": 0, "EPERM": 1, "ENOSYS": 38, "0": 0}[verdict.answer]
    assert in_child(child) == expected


def test_an_argument_that_matters_makes_the_verdict_unknown() -> None:
    def refusing(offset: int, value: int) -> tuple[Instruction, ...]:
        return (op(0x20, 0, 0, offset), op(0x15, 0, 1, value), op(0x06, 0, 0, ERRNO | 1),
                op(0x06, 0, 0, ALLOW))  # fmt: skip

    x86_64 = by_name("x86_64")
    mode, flags_high = 32, 60
    verdict = judge([refusing(mode, 3)], "mbind", x86_64)
    assert verdict.unknown
    assert "EPERM, allow" in verdict.reason
    # No flag of mbind has one of these bits, and modes end before.
    assert judge([refusing(flags_high, 1)], "mbind", x86_64).open
    assert judge([refusing(mode, 0x10000)], "mbind", x86_64).open
    assert judge([refusing(mode, 3)], "mbind", x86_64, [0, 0, 3]).answer == "EPERM"
    assert judge([refusing(mode, 3)], "mbind", x86_64, [0, 0, 2]).open


@pytest.mark.parametrize("name", ["x86_64", "x32", "i386", "aarch64", "s390x", "ppc64le", "mips"])
def test_each_abi_is_judged_by_its_own_number_and_architecture(name: str) -> None:
    abi = by_name(name)
    number = abi.numbers["mbind"] or 0
    program = (
        op(0x20, 0, 0, 4), op(0x15, 0, 2, audit_number(abi)), op(0x20, 0, 0, 0),
        op(0x15, 1, 0, number), op(0x06, 0, 0, 0), op(0x06, 0, 0, ALLOW),
    )  # fmt: skip
    assert judge([program], "mbind", abi).open
    assert judge([program], "move_pages", abi).answer == "SIGSYS"
    other = by_name("aarch64" if name != "aarch64" else "x86_64")
    assert judge([program], "mbind", other).answer == "SIGSYS"


def test_a_call_that_the_abi_lacks_is_unknown() -> None:
    assert judge([_answers(ALLOW)], "mbind", by_name("alpha")).unknown
