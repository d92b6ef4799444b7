"""i386 system calls from a 64-bit x86 process, by the interrupt gate (int 0x80).

The kernel treats such a call as one of a 32-bit process: i386 numbers, 32-bit
pointers, 4-byte words in nodemasks. So the compat path is tried without a
32-bit Python.
"""

import ctypes
import errno
import mmap
import platform
import struct
from typing import Final

MAP_32BIT: Final = 0x40

# push rbx, rbp, rdi; eax, ebx, ecx, edx, esi, ebp, edi from the array at rdi;
# int 0x80; pop rdi, rbp, rbx; ret
_CODE = bytes.fromhex(
    "53 55 57 8b07 8b5f04 8b4f08 8b570c 8b7710 8b6f18 8b7f14 cd80 5f 5d 5b c3".replace(" ", "")
)
_SYS_GETPID: Final = 20


class Compat:
    """A caller of i386 system calls. ``memory`` is a low page that such calls can reach."""

    def __init__(self) -> None:
        self._page = mmap.mmap(
            -1,
            mmap.PAGESIZE,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC,
        )
        self._page.write(_CODE)
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self._function = kind(ctypes.addressof(ctypes.c_char.from_buffer(self._page)))

    def call(self, number: int, *arguments: int) -> tuple[int, int]:
        """The result and the errno."""
        padded = [number, *arguments, *[0] * (6 - len(arguments))]
        registers = struct.pack("=7I", *(value & 0xFFFFFFFF for value in padded))
        buffer = ctypes.create_string_buffer(registers, len(registers))
        returned = int(self._function(ctypes.addressof(buffer)))
        return (-1, -returned) if -4096 < returned < 0 else (returned, 0)


def why_not() -> str:
    """Why compat calls cannot be tried here, or an empty string when they can.

    The first call is made in a child: a kernel without IA32_EMULATION kills it.
    """
    if platform.machine() != "x86_64" or struct.calcsize("P") != 8:
        return "int 0x80 is x86 only"
    from tests.kernel.child import in_child

    answer = in_child(lambda: Compat().call(_SYS_GETPID)[0])
    return "" if isinstance(answer, int) and answer > 0 else "this kernel has no IA32_EMULATION"


def low_pages(count: int) -> int:
    """Address of ``count`` new zeroed pages below 4 GiB; they stay until the process ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(
        None,
        ctypes.c_size_t(count * mmap.PAGESIZE),
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT,
        -1,
        ctypes.c_long(0),
    )
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), errno.errorcode[ctypes.get_errno()])
    return int(address)
