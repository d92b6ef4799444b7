"""A program for x86_64 that makes system calls and nothing else: no library, no start-up.

It runs under profiles that know so few calls that no other program would.
"""

import struct
from collections.abc import Sequence

_BASE = 0x400000
_HEADERS = 64 + 56
_READ, _WRITE, _EXIT = 0, 1, 60
# mov $NUMBER, %rax and the registers of the arguments, as their first two bytes.
_RAX, *_ARGUMENTS = (b"\x48\xb8", b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8",
                     b"\x49\xb9")  # fmt: skip
_SYSCALL = b"\x0f\x05"


def program(calls: Sequence[tuple[int, Sequence[int]]]) -> bytes:
    """An ELF file that makes each call and writes what the kernel returned, eight bytes each.

    It ends when its standard input does.
    """
    code = b"\x48\x81\xec" + struct.pack("<I", 8 * len(calls) + 128)  # sub $SIZE, %rsp
    for place, (number, arguments) in enumerate(calls):
        padded = [*arguments, *[0] * (6 - len(arguments))]
        code += _call(number, padded)
        code += b"\x48\x89\x84\x24" + struct.pack("<I", 8 * place)  # mov %rax, PLACE(%rsp)
    code += b"".join(_move(*pair) for pair in ((_RAX, _WRITE), (_ARGUMENTS[0], 1)))
    code += b"\x48\x89\xe6" + _move(_ARGUMENTS[2], 8 * len(calls)) + _SYSCALL  # mov %rsp, %rsi
    code += _move(_RAX, _READ) + _move(_ARGUMENTS[0], 0) + _SYSCALL  # into the same place
    code += _call(_EXIT, [0] * 6)
    size = _HEADERS + len(code)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 2, 62, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return head + segment + code


def answers(written: bytes) -> list[int]:
    """What the calls of such a program returned; an errno is negative."""
    return [value for (value,) in struct.iter_unpack("<q", written)]


def _call(number: int, arguments: Sequence[int]) -> bytes:
    loaded = (_move(*pair) for pair in zip(_ARGUMENTS, arguments, strict=True))
    return _move(_RAX, number) + b"".join(loaded) + _SYSCALL


def _move(register: bytes, value: int) -> bytes:
    return register + struct.pack("<Q", value & (1 << 64) - 1)
