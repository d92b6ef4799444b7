"""Classic BPF as seccomp has it: what is a program, and what it answers.

Programs are checked as the kernel checks them (seccomp_check_filter and
bpf_check_classic). They have no backward jumps, so they end. ``run`` gives the
answer to one call; ``outcomes`` all the answers that arguments which are known
in part can lead to.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from numadoctor.kernel.seccomp.tristate import Bits, any_of, exactly

LONGEST: Final = 4096
"""Instructions of a program (BPF_MAXINSNS)."""

DATA_SIZE: Final = 64
"""Bytes of struct seccomp_data: nr, arch, instruction_pointer, args[6]."""

_CELLS: Final = 16  # BPF_MEMWORDS
_WORD: Final = 0xFFFFFFFF
_MOST_STEPS: Final = 50_000

# include/uapi/linux/bpf_common.h
_LD_ABS, _LD_LEN, _LD_IMM, _LD_MEM = 0x20, 0x80, 0x00, 0x60
_LDX_LEN, _LDX_IMM, _LDX_MEM = 0x81, 0x01, 0x61
_ST, _STX, _TAX, _TXA = 0x02, 0x03, 0x07, 0x87
_RET_K, _RET_A = 0x06, 0x16
_JA = 0x05
_X_SOURCE: Final = 0x08
_ADD, _SUB, _MUL, _DIV, _OR, _AND, _LSH, _RSH, _NEG, _XOR = (
    0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x84, 0xA4,
)  # fmt: skip
_JEQ, _JGT, _JGE, _JSET = 0x15, 0x25, 0x35, 0x45

_ARITHMETIC: Final = (_ADD, _SUB, _MUL, _DIV, _OR, _AND, _LSH, _RSH, _XOR)
_JUMPS: Final = (_JEQ, _JGT, _JGE, _JSET)
_CODES: Final = frozenset(
    (
        _LD_ABS, _LD_LEN, _LD_IMM, _LD_MEM, _LDX_LEN, _LDX_IMM, _LDX_MEM, _ST, _STX, _TAX, _TXA,
        _RET_K, _RET_A, _JA, _NEG,
        *_ARITHMETIC, *(code | _X_SOURCE for code in _ARITHMETIC),
        *_JUMPS, *(code | _X_SOURCE for code in _JUMPS),
    )
)  # fmt: skip


class Instruction(NamedTuple):
    """One of struct sock_filter.

    :ivar jt: instructions to jump over where a condition holds
    :ivar jf: and where it does not
    """

    code: int
    jt: int
    jf: int
    k: int


Program = tuple[Instruction, ...]


class BadProgram(ValueError):
    """The kernel would not take this program as a filter."""


class TooManyPaths(Exception):
    """More ways through the program than are worth following."""


def decode(data: bytes, byteorder: str = "little") -> Program:
    """The program in an array of struct sock_filter.

    :raises BadProgram: the kernel would refuse it
    """
    if len(data) % 8:
        raise BadProgram(f"{len(data)} bytes are no whole number of instructions")
    mark = "<" if byteorder == "little" else ">"
    program = tuple(Instruction(*fields) for fields in struct.iter_unpack(f"{mark}HBBI", data))
    check(program)
    return program


def check(program: Program) -> None:
    """Refuse what the kernel refuses.

    :raises BadProgram: naming the instruction
    """
    if not 0 < len(program) <= LONGEST:
        raise BadProgram(f"{len(program)} instructions: 1 to {LONGEST} are allowed")
    for place, instruction in enumerate(program):
        if reason := _fault(instruction, place, len(program)):
            raise BadProgram(f"instruction {place} ({instruction.code:#x}): {reason}")
    if program[-1].code not in (_RET_K, _RET_A):
        raise BadProgram("the last instruction does not return")
    _check_cells(program)


def _fault(instruction: Instruction, place: int, length: int) -> str:
    code, jt, jf, k = instruction
    if code not in _CODES:
        return "not one that seccomp knows"
    if code == _LD_ABS and (k >= DATA_SIZE or k % 4):
        return f"reads at {k}, which is no word of the {DATA_SIZE} bytes"
    if code == _DIV and k == 0:
        return "divides by 0"
    if code in (_LSH, _RSH) and k >= 32:
        return f"shifts by {k}"
    if code in (_LD_MEM, _LDX_MEM, _ST, _STX) and k >= _CELLS:
        return f"cell {k} of {_CELLS}"
    if code == _JA and k >= length - place - 1:
        return "jumps beyond the end"
    if _is_jump(code) and place + 1 + max(jt, jf) >= length:
        return "jumps beyond the end"
    return ""


def _is_jump(code: int) -> bool:
    return code & ~_X_SOURCE in _JUMPS


def _check_cells(program: Program) -> None:
    """A cell is read only where every way to it has written it (check_load_and_stores)."""
    written = [-1] * len(program)  # -1: no way leads here yet but the one before
    valid = 0
    for place, (code, jt, jf, k) in enumerate(program):
        valid &= written[place]
        if code in (_ST, _STX):
            valid |= 1 << k
        elif code in (_LD_MEM, _LDX_MEM) and not valid >> k & 1:
            raise BadProgram(f"instruction {place} reads cell {k} before it is written")
        elif code == _JA:
            written[place + 1 + k] &= valid
            valid = -1
        elif _is_jump(code):
            written[place + 1 + jt] &= valid
            written[place + 1 + jf] &= valid
            valid = -1


def seccomp_data(
    number: int, arch: int, arguments: Sequence[Bits], byteorder: str = "little"
) -> tuple[Bits, ...]:
    """The sixteen words of struct seccomp_data; the instruction pointer is not known.

    :param arch: AUDIT_ARCH_*
    :param arguments: six, of 64 bits
    """
    words = [exactly(number & _WORD), exactly(arch), any_of(32), any_of(32)]
    for argument in arguments:
        halves = [argument & _WORD, (argument >> 32) & _WORD]
        words += halves if byteorder == "little" else halves[::-1]
    return tuple(words)


class _State(NamedTuple):
    place: int
    a: Bits
    x: Bits
    cells: tuple[Bits, ...]


_ZERO: Final = exactly(0)


def run(program: Program, data: Sequence[Bits]) -> int:
    """What a program answers to one call: the filter's return value.

    :param data: all words known (``seccomp_data`` leaves the instruction pointer open)
    :raises TooManyPaths: it depends on a word that is not known
    """
    found = outcomes(program, data)
    if len(found) > 1:
        raise TooManyPaths("the answer depends on what is not known")
    return next(iter(found))


def outcomes(program: Program, data: Sequence[Bits]) -> frozenset[int]:
    """All the return values that the words of ``data`` can lead to.

    Never fewer than there are. There may be more: that a condition held is
    not remembered for the next one.

    :param program: a checked one
    :raises TooManyPaths: there are more ways than are worth following
    """
    found: set[int] = set()
    waiting = [_State(0, _ZERO, _ZERO, (_ZERO,) * _CELLS)]
    seen = set(waiting)
    for _ in range(_MOST_STEPS):
        if not waiting:
            return frozenset(found)
        state = waiting.pop()
        step = _step(program[state.place], state, data)
        if isinstance(step, int):
            found.add(step)
            continue
        for following in step:
            # Straight on there is one way; only where ways meet is it worth remembering.
            if len(step) > 1:
                if following in seen:
                    continue
                seen.add(following)
            waiting.append(following)
    raise TooManyPaths(f"more than {_MOST_STEPS} steps")


def _step(instruction: Instruction, state: _State, data: Sequence[Bits]) -> "int | list[_State]":
    """The return value, or the states that may follow."""
    code, jt, jf, k = instruction
    place, a, x, cells = state
    follow = place + 1
    if code == _LD_ABS:
        return [_State(follow, data[k // 4], x, cells)]
    if _is_jump(code):
        answer = _compare(code & ~_X_SOURCE, a, x if code & _X_SOURCE else exactly(k))
        ways = {True: (jt,), False: (jf,), None: (jt, jf)}[answer]
        return [_State(follow + way, a, x, cells) for way in dict.fromkeys(ways)]
    if code == _RET_K:
        return k
    if code == _JA:
        return [_State(follow + k, a, x, cells)]
    if code == _RET_A:
        if not a.known:
            raise TooManyPaths("it returns what is not known")
        return a.value
    return _move_or_count(instruction, state)


def _move_or_count(instruction: Instruction, state: _State) -> "int | list[_State]":
    code, _, _, k = instruction
    place, a, x, cells = state
    if code in (_LD_IMM, _LD_LEN, _LD_MEM):
        a = {_LD_IMM: exactly(k), _LD_LEN: exactly(DATA_SIZE)}.get(code) or cells[k]
    elif code in (_LDX_IMM, _LDX_LEN, _LDX_MEM):
        x = {_LDX_IMM: exactly(k), _LDX_LEN: exactly(DATA_SIZE)}.get(code) or cells[k]
    elif code in (_ST, _STX):
        cells = (*cells[:k], a if code == _ST else x, *cells[k + 1 :])
    elif code == _TAX:
        x = a
    elif code == _TXA:
        a = x
    elif code == _NEG:
        a = exactly(-a.value & _WORD) if a.known else any_of(32)
    else:
        by = x if code & _X_SOURCE else exactly(k)
        if code & ~_X_SOURCE == _DIV and by == _ZERO:
            return 0  # the program ends there (bpf_convert_filter)
        a = _count(code & ~_X_SOURCE, a, by)
    return [_State(place + 1, a, x, cells)]


def _compare(code: int, a: Bits, b: Bits) -> bool | None:
    if code == _JSET:
        if a.value & b.value:
            return True
        return None if a.most & b.most else False
    if not b.known:
        if code == _JEQ and (a.value ^ b.value) & ~(a.unknown | b.unknown):
            return False
        return None
    if code == _JEQ:
        return a.equals(b.value)
    return a.greater(b.value) if code == _JGT else a.at_least(b.value)


def _count(code: int, a: Bits, b: Bits) -> Bits:
    if a.known and b.known:
        return exactly(_arithmetic(code, a.value, b.value) & _WORD)
    if code == _AND:
        ones = a.value & b.value
        return Bits(ones, (a.most & b.most) & ~ones)
    if code == _OR:
        ones = a.value | b.value
        return Bits(ones, (a.unknown | b.unknown) & ~ones)
    if code == _XOR:
        unknown = a.unknown | b.unknown
        return Bits((a.value ^ b.value) & ~unknown, unknown)
    if code in (_LSH, _RSH) and b.known:
        count = b.value & 31
        if code == _RSH:
            return a >> count
        return Bits(a.value << count & _WORD, a.unknown << count & _WORD)
    return any_of(32)


def _arithmetic(code: int, a: int, b: int) -> int:
    if code == _ADD:
        return a + b
    if code == _SUB:
        return a - b
    if code == _MUL:
        return a * b
    if code == _DIV:
        return a // b
    if code == _OR:
        return a | b
    if code == _AND:
        return a & b
    if code == _XOR:
        return a ^ b
    return a << (b & 31) if code == _LSH else a >> (b & 31)
