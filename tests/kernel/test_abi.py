import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.kernel import abi
from numadoctor.kernel.abi import CALLS, UnknownAbi, by_name, current_abi, of_elf
from tests.kernel import compat32
from tests.kernel.child import in_child

# Copied by hand from arch/*/kernel/syscalls/syscall*.tbl and asm-generic/unistd.h:
# mbind, set_mempolicy, get_mempolicy, set_mempolicy_home_node, move_pages, migrate_pages.
NUMBERS: dict[str, tuple[int | None, ...]] = {
    "x86_64": (237, 238, 239, 450, 279, 256),
    "x32": (0x400000ED, 0x400000EE, 0x400000EF, 0x400001C2, 0x40000215, 0x40000100),
    "i386": (274, 276, 275, 450, 317, 294),
    "aarch64": (235, 237, 236, 450, 239, 238),
    "aarch64_be": (235, 237, 236, 450, 239, 238),
    "riscv64": (235, 237, 236, 450, 239, 238),
    "loongarch64": (235, 237, 236, 450, 239, 238),
    "arm": (319, 321, 320, 450, 344, 400),
    "armeb": (319, 321, 320, 450, 344, 400),
    "ppc": (259, 261, 260, 450, 301, 258),
    "ppc64": (259, 261, 260, 450, 301, 258),
    "ppc64le": (259, 261, 260, 450, 301, 258),
    "s390": (268, 270, 269, 450, 310, 287),
    "s390x": (268, 270, 269, 450, 310, 287),
    "mips": (4268, 4270, 4269, 4450, 4308, 4287),
    "mipsel": (4268, 4270, 4269, 4450, 4308, 4287),
    "mips64": (5227, 5229, 5228, 5450, 5267, 5246),
    "mips64el": (5227, 5229, 5228, 5450, 5267, 5246),
    "mipsn32": (6231, 6233, 6232, 6450, 6271, 6250),
    "mipsn32el": (6231, 6233, 6232, 6450, 6271, 6250),
    "sparc": (303, 305, 304, 450, 307, 302),
    "sparc64": (303, 305, 304, 450, 307, 302),
    "parisc": (260, 262, 261, 450, 295, 272),
    "alpha": (None, None, None, None, 472, 449),
}

# Class, data and machine as `readelf -h` shows them, e_flags where they decide.
ELF = [
    ("x86_64", 2, 1, 62, 0),
    ("x32", 1, 1, 62, 0),
    ("i386", 1, 1, 3, 0),
    ("aarch64", 2, 1, 183, 0),
    ("aarch64_be", 2, 2, 183, 0),
    ("riscv64", 2, 1, 243, 0x5),
    ("loongarch64", 2, 1, 258, 0x43),
    ("arm", 1, 1, 40, 0x05000400),
    ("armeb", 1, 2, 40, 0x05800000),
    ("ppc", 1, 2, 20, 0x8000),
    ("ppc64", 2, 2, 21, 1),
    ("ppc64le", 2, 1, 21, 2),
    ("s390", 1, 2, 22, 1),
    ("s390x", 2, 2, 22, 0),
    ("mips", 1, 2, 8, 0x70001007),
    ("mipsel", 1, 1, 8, 0x70001007),
    ("mips64", 2, 2, 8, 0x80000007),
    ("mips64el", 2, 1, 8, 0x80000007),
    ("mipsn32", 1, 2, 8, 0x80000027),
    ("mipsn32el", 1, 1, 8, 0x80000027),
    ("sparc", 1, 2, 2, 0),
    ("sparc", 1, 2, 18, 0x100),
    ("sparc64", 2, 2, 43, 2),
    ("parisc", 1, 2, 15, 0x210),
    ("alpha", 2, 1, 0x9026, 0),
]


def elf(elf_class: int, data: int, machine: int, flags: int = 0) -> bytes:
    """The header of a program as a linker writes it."""
    mark = ">" if data == 2 else "<"
    word = "Q" if elf_class == 2 else "I"
    ident = b"\x7fELF" + bytes([elf_class, data, 1, 0]) + bytes(8)
    return ident + struct.pack(
        f"{mark}HHI3{word}I6H", 2, machine, 1, 0, 64, 0, flags, 64, 56, 9, 64, 30, 29
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_those_of_the_kernel_tables(name: str) -> None:
    found = by_name(name)
    assert tuple(found.numbers[call] for call in CALLS) == NUMBERS[name]
    assert tuple(found.numbers) == CALLS


def test_no_abi_is_missing_or_untested() -> None:
    assert set(abi.names()) == set(NUMBERS) == {name for name, *_ in ELF}


@pytest.mark.parametrize(("name", "elf_class", "data", "machine", "flags"), ELF)
def test_a_program_tells_its_abi(
    name: str, elf_class: int, data: int, machine: int, flags: int
) -> None:
    found = of_elf(elf(elf_class, data, machine, flags))
    assert found.name == name
    assert found.word_size == 4 * elf_class
    assert found.byteorder == ("little" if data == 1 else "big")


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"", "not an ELF"),
        (b'#!/bin/sh\nexec python3 "$@"\n', "not an ELF"),
        (b"\x7fELF", "not an ELF"),
        (elf(2, 1, 62)[:19], "not an ELF"),
        (b"\x7fELF\x03" + elf(2, 1, 62)[5:], "class 3"),
        (b"\x7fELF\x02\x00" + elf(2, 1, 62)[6:], "data 0"),
        (elf(2, 2, 62), "machine 62, 64 bits, big-endian"),
        (elf(1, 1, 183), "machine 183, 32 bits"),  # ILP32 on aarch64: not in the kernel
        (elf(1, 1, 243), "machine 243, 32 bits"),
        (elf(2, 1, 42), "machine 42"),  # SuperH
        (elf(2, 1, 40, 0x05000000), "machine 40, 64 bits"),
        (elf(1, 1, 40, 0), "machine 40"),  # the old ARM ABI has other numbers
        (elf(1, 2, 8)[:39], "cut short"),
        (elf(1, 1, 40, 0x05000000)[:39], "cut short"),
    ],
)
def test_what_is_not_in_the_table_is_refused(header: bytes, why: str) -> None:
    with pytest.raises(UnknownAbi, match=why):
        of_elf(header)


@given(st.binary(max_size=80))
def test_any_bytes_are_an_abi_or_refused(data: bytes) -> None:
    for header in (data, b"\x7fELF" + data):
        try:
            found = of_elf(header)
        except UnknownAbi:
            continue
        assert found.name in NUMBERS


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownAbi, match="unknown ABI 'vax': known are x86_64, x32"):
        by_name("vax")


def test_an_abi_can_be_hashed_compared_and_not_changed() -> None:
    assert len({by_name(name) for name in NUMBERS}) == len(NUMBERS)
    assert by_name("arm") == by_name("arm") != by_name("armeb")
    with pytest.raises(TypeError):
        by_name("arm").numbers["mbind"] = 1  # type: ignore[index]


def test_this_process() -> None:
    found = current_abi()
    assert (found.word_size, found.byteorder) == (struct.calcsize("P"), sys.byteorder)
    with open(sys.executable, "rb") as file:
        assert of_elf(file.read(64)) == found


def test_the_numbers_of_this_process_are_those_of_the_system_headers() -> None:
    headers = list(Path("/usr/include").glob("*/asm/unistd_64.h"))
    if current_abi().name != "x86_64" or not headers:
        pytest.skip("needs the kernel headers of x86_64 (linux-libc-dev)")
    text = headers[0].read_text()
    for call, number in current_abi().numbers.items():
        # Headers older than 5.17 do not know the newest call.
        if call != "set_mempolicy_home_node" or f"__NR_{call} " in text:
            assert f"#define __NR_{call} {number}\n" in text


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "python3"


def test_a_32_bit_process_on_a_64_bit_kernel_uses_its_own_numbers(program: Path) -> None:
    program.write_bytes(elf(1, 1, 3))
    found = current_abi(str(program), pointer_size=4, byteorder="little")
    assert found.name == "i386"
    assert found.numbers["mbind"] == 274


def test_a_program_that_cannot_be_this_process_is_refused(program: Path) -> None:
    program.write_bytes(elf(1, 1, 3))
    with pytest.raises(UnknownAbi, match="is i386, but this process has 64-bit little-endian"):
        current_abi(str(program), pointer_size=8, byteorder="little")
    program.write_bytes(elf(2, 2, 21))
    with pytest.raises(UnknownAbi, match="is ppc64, but"):
        current_abi(f"/{program}", pointer_size=8, byteorder="little")


def test_an_unreadable_program_is_refused(program: Path) -> None:
    with pytest.raises(UnknownAbi, match="No such file or directory"):
        current_abi(str(program))


def test_without_proc_the_interpreter_file_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.open

    def no_proc(path: str, *rest: object) -> object:
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", no_proc)
    assert abi._header("/proc/self/exe")[:4] == b"\x7fELF"
    monkeypatch.setattr(sys, "executable", "/proc/also/gone")
    with pytest.raises(UnknownAbi, match=r"/exe: No such file .*; /proc/also/gone: No"):
        abi._header("/proc/self/exe")


def test_i386_numbers_reach_the_same_calls() -> None:
    """The side-effect-free form of each call answers through the 32-bit gate as through ours."""
    if reason := compat32.why_not():
        pytest.skip(reason)
    numbers = by_name("i386").numbers
    forms = {
        "mbind": (0, 0, 0, 0, 0, 0),
        "set_mempolicy": (99, 0, 0),
        "get_mempolicy": (0, 0, 0, 0, 0),
        "move_pages": (0, 0, 0, 0, 0, 0),
        "migrate_pages": (0, 0, 0, 0),
    }

    def ask() -> object:
        compat = compat32.Compat()
        answers = {}
        for call, form in forms.items():
            number = numbers[call]
            assert number is not None
            answers[call] = compat.call(number, *form)
        return answers

    assert in_child(ask) == {
        "mbind": [0, 0],
        "set_mempolicy": [-1, 22],
        "get_mempolicy": [0, 0],
        "move_pages": [0, 0],
        "migrate_pages": [-1, 22],
    }
