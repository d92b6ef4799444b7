"""The numbers of the six NUMA system calls, by the ABI of the process that makes them.

A number belongs to an ABI, not to a machine: a 32-bit Python on an x86_64
kernel must use the i386 numbers. So the ABI is read from the program this
process runs, never from ``uname``, and one that is not in the table is refused.
"""

import functools
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

ByteOrder = Literal["little", "big"]

CALLS: Final = (
    "mbind",
    "set_mempolicy",
    "get_mempolicy",
    "set_mempolicy_home_node",
    "move_pages",
    "migrate_pages",
)
"""The six calls, in the order in which reports show them."""


class UnknownAbi(Exception):
    """The ABI of this process is not in the table, so no call is made at all."""


@dataclass(frozen=True)
class Abi:
    """How one kind of process calls the kernel.

    :ivar name: what the kernel or QEMU calls it: ``x86_64``, ``ppc64le``, ``mipsn32el``
    :ivar word_size: bytes of an ``unsigned long``: 4 or 8
    :ivar byteorder: of a word in memory
    :ivar numbers: system-call number by name; None where the ABI has no such call
    """

    name: str
    word_size: int
    byteorder: ByteOrder
    numbers: Mapping[str, int | None] = field(hash=False)


_EM_SPARC, _EM_386, _EM_MIPS, _EM_PARISC = 2, 3, 8, 15
_EM_SPARC32PLUS, _EM_PPC, _EM_PPC64, _EM_S390 = 18, 20, 21, 22
_EM_ARM, _EM_SPARCV9, _EM_X86_64, _EM_AARCH64 = 40, 43, 62, 183
_EM_RISCV, _EM_LOONGARCH, _EM_ALPHA = 243, 258, 0x9026

_ELF_DATA: Final[Mapping[int, ByteOrder]] = {1: "little", 2: "big"}
_EF_MIPS_ABI2 = 0x20  # n32; its absence from a 32-bit file means o32
_EF_ARM_EABIMASK = 0xFF000000  # zero in a file of the old ABI, whose numbers differ

# Numbers in the order mbind, get_mempolicy, set_mempolicy, migrate_pages,
# move_pages, set_mempolicy_home_node. Sources: arch/*/kernel/syscalls/*.tbl and
# include/uapi/asm-generic/unistd.h; glibc's arch-syscall.h lists agree.
_ORDER = (
    "mbind",
    "get_mempolicy",
    "set_mempolicy",
    "migrate_pages",
    "move_pages",
    "set_mempolicy_home_node",
)
_X32_BIT = 0x40000000
_GENERIC = (235, 236, 237, 238, 239, 450)
_ARM = (319, 320, 321, 400, 344, 450)
_PPC = (259, 260, 261, 258, 301, 450)
_S390 = (268, 269, 270, 287, 310, 450)
_SPARC = (303, 304, 305, 302, 307, 450)
_MIPS_O32 = (4268, 4269, 4270, 4287, 4308, 4450)
_MIPS_N64 = (5227, 5228, 5229, 5246, 5267, 5450)
_MIPS_N32 = (6231, 6232, 6233, 6250, 6271, 6450)

# Name, ELF machines, word size in bytes, byte order, numbers.
_TABLE: tuple[tuple[str, tuple[int, ...], int, ByteOrder, tuple[int | None, ...]], ...] = (
    ("x86_64", (_EM_X86_64,), 8, "little", (237, 239, 238, 256, 279, 450)),
    (
        "x32",
        (_EM_X86_64,),
        4,
        "little",
        tuple(_X32_BIT | number for number in (237, 239, 238, 256, 533, 450)),
    ),
    ("i386", (_EM_386,), 4, "little", (274, 275, 276, 294, 317, 450)),
    ("aarch64", (_EM_AARCH64,), 8, "little", _GENERIC),
    ("aarch64_be", (_EM_AARCH64,), 8, "big", _GENERIC),
    ("riscv64", (_EM_RISCV,), 8, "little", _GENERIC),
    ("loongarch64", (_EM_LOONGARCH,), 8, "little", _GENERIC),
    ("arm", (_EM_ARM,), 4, "little", _ARM),
    ("armeb", (_EM_ARM,), 4, "big", _ARM),
    ("ppc", (_EM_PPC,), 4, "big", _PPC),
    ("ppc64", (_EM_PPC64,), 8, "big", _PPC),
    ("ppc64le", (_EM_PPC64,), 8, "little", _PPC),
    ("s390", (_EM_S390,), 4, "big", _S390),
    ("s390x", (_EM_S390,), 8, "big", _S390),
    ("mips", (_EM_MIPS,), 4, "big", _MIPS_O32),
    ("mipsel", (_EM_MIPS,), 4, "little", _MIPS_O32),
    ("mips64", (_EM_MIPS,), 8, "big", _MIPS_N64),
    ("mips64el", (_EM_MIPS,), 8, "little", _MIPS_N64),
    ("mipsn32", (_EM_MIPS,), 4, "big", _MIPS_N32),
    ("mipsn32el", (_EM_MIPS,), 4, "little", _MIPS_N32),
    ("sparc", (_EM_SPARC, _EM_SPARC32PLUS), 4, "big", _SPARC),
    ("sparc64", (_EM_SPARCV9,), 8, "big", _SPARC),
    ("parisc", (_EM_PARISC,), 4, "big", (260, 261, 262, 272, 295, 450)),
    # Alpha's table points the policy calls at sys_ni_syscall.
    ("alpha", (_EM_ALPHA,), 8, "little", (None, None, None, 449, 472, None)),
)


def _in_report_order(numbers: tuple[int | None, ...]) -> Mapping[str, int | None]:
    by_name = dict(zip(_ORDER, numbers, strict=True))
    return MappingProxyType({call: by_name[call] for call in CALLS})


_ABIS: Final = {
    name: Abi(name, word_size, byteorder, _in_report_order(numbers))
    for name, _, word_size, byteorder, numbers in _TABLE
}

_BY_ELF: Final[Mapping[tuple[int, int, ByteOrder], str]] = {
    (machine, word_size, byteorder): name
    for name, machines, word_size, byteorder, _ in _TABLE
    if not name.startswith("mipsn32")
    for machine in machines
}


def names() -> tuple[str, ...]:
    """The ABIs in the table."""
    return tuple(_ABIS)


def by_name(name: str) -> Abi:
    """The ABI of that name.

    :raises UnknownAbi: when the table has none
    """
    try:
        return _ABIS[name]
    except KeyError:
        raise UnknownAbi(f"unknown ABI {name!r}: known are {', '.join(_ABIS)}") from None


def of_elf(header: bytes) -> Abi:
    """The ABI of a program, from the first 64 bytes of its file.

    Decided by class, data, machine and, where that is not enough, e_flags (man 5 elf).

    :raises UnknownAbi: when it is not an ELF file or not in the table
    """
    if len(header) < 20 or header[:4] != b"\x7fELF":
        raise UnknownAbi("not an ELF program: its system-call numbers are not known")
    word_size = {1: 4, 2: 8}.get(header[4])
    byteorder = _ELF_DATA.get(header[5])
    if word_size is None or byteorder is None:
        raise UnknownAbi(f"ELF class {header[4]} with data {header[5]} is no known ABI")
    mark = "<" if byteorder == "little" else ">"
    (machine,) = struct.unpack_from(f"{mark}H", header, 18)
    name = _BY_ELF.get((machine, word_size, byteorder))
    if (machine, word_size) in ((_EM_MIPS, 4), (_EM_ARM, 4)):
        if len(header) < 40:
            raise UnknownAbi("ELF header cut short: its flags decide the ABI")
        (flags,) = struct.unpack_from(f"{mark}I", header, 36)
        if machine == _EM_MIPS and flags & _EF_MIPS_ABI2:
            name = "mipsn32" if byteorder == "big" else "mipsn32el"
        if machine == _EM_ARM and not flags & _EF_ARM_EABIMASK:
            name = None
    if name is None:
        raise UnknownAbi(
            f"ELF machine {machine}, {8 * word_size} bits, {byteorder}-endian is not in the table"
            " of NUMA system-call numbers: no call is made"
        )
    return _ABIS[name]


def current_abi(
    exe: str = "/proc/self/exe",
    *,
    pointer_size: int = struct.calcsize("P"),
    byteorder: str = sys.byteorder,
) -> Abi:
    """The ABI of this process.

    Read from the program file (``sys.executable`` where /proc is not mounted)
    and cross-checked with what the interpreter knows of itself: a file that
    cannot be this process's own is refused.

    :param exe: the program file
    :param pointer_size: bytes of a pointer in this process
    :param byteorder: of a word in this process
    :raises UnknownAbi: when it cannot be read, is not in the table, or does not fit
    """
    return _current(exe, pointer_size, byteorder)


@functools.lru_cache(maxsize=16)
def _current(exe: str, pointer_size: int, byteorder: str) -> Abi:
    abi = of_elf(_header(exe))
    if (abi.word_size, abi.byteorder) != (pointer_size, byteorder):
        raise UnknownAbi(
            f"{exe} is {abi.name}, but this process has {8 * pointer_size}-bit {byteorder}-endian"
            " words: its system-call numbers are not known"
        )
    return abi


def _header(exe: str) -> bytes:
    reasons = []
    for path in (exe, sys.executable) if exe == "/proc/self/exe" else (exe,):
        try:
            with open(path, "rb") as file:
                return file.read(64)
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
    raise UnknownAbi(f"cannot read the program of this process ({'; '.join(reasons)})")
