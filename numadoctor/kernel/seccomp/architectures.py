"""The names that profiles, engines and the kernel have for the ABIs."""

from typing import Final, NamedTuple

from numadoctor.kernel.abi import Abi


class _Names(NamedTuple):
    native: str  # the ABI of the machine's own programs
    scmp: str  # libseccomp's
    engine: str  # in includes.arches
    audit: int  # AUDIT_ARCH_*, what a filter sees


_BIT64, _LITTLE, _N32 = 0x80000000, 0x40000000, 0x20000000

# AUDIT_ARCH_* of include/uapi/linux/audit.h: ELF machine and flags.
_TABLE: Final = {
    "x86_64": _Names("x86_64", "X86_64", "amd64", 62 | _BIT64 | _LITTLE),
    "x32": _Names("x86_64", "X32", "amd64", 62 | _BIT64 | _LITTLE),
    "i386": _Names("x86_64", "X86", "amd64", 3 | _LITTLE),
    "aarch64": _Names("aarch64", "AARCH64", "arm64", 183 | _BIT64 | _LITTLE),
    "aarch64_be": _Names("aarch64_be", "", "arm64", 183 | _BIT64),
    "arm": _Names("aarch64", "ARM", "arm64", 40 | _LITTLE),
    "armeb": _Names("armeb", "", "arm", 40),
    "riscv64": _Names("riscv64", "RISCV64", "riscv64", 243 | _BIT64 | _LITTLE),
    "loongarch64": _Names("loongarch64", "LOONGARCH64", "loong64", 258 | _BIT64 | _LITTLE),
    "ppc": _Names("ppc64", "PPC", "ppc64", 20),
    "ppc64": _Names("ppc64", "PPC64", "ppc64", 21 | _BIT64),
    "ppc64le": _Names("ppc64le", "PPC64LE", "ppc64le", 21 | _BIT64 | _LITTLE),
    "s390": _Names("s390x", "S390", "s390x", 22),
    "s390x": _Names("s390x", "S390X", "s390x", 22 | _BIT64),
    "mips": _Names("mips64", "MIPS", "mips64", 8),
    "mipsel": _Names("mips64el", "MIPSEL", "mipsel64", 8 | _LITTLE),
    "mips64": _Names("mips64", "MIPS64", "mips64", 8 | _BIT64),
    "mips64el": _Names("mips64el", "MIPSEL64", "mipsel64", 8 | _BIT64 | _LITTLE),
    "mipsn32": _Names("mips64", "MIPS64N32", "mips64", 8 | _BIT64 | _N32),
    "mipsn32el": _Names("mips64el", "MIPSEL64N32", "mipsel64", 8 | _BIT64 | _LITTLE | _N32),
    "sparc": _Names("sparc64", "", "sparc64", 2),
    "sparc64": _Names("sparc64", "", "sparc64", 43 | _BIT64),
    "parisc": _Names("parisc", "PARISC", "parisc", 15),
    "alpha": _Names("alpha", "", "alpha", 0x9026 | _BIT64 | _LITTLE),
}

NATIVE: Final = {name: names.native for name, names in _TABLE.items()}
"""By ABI, that of the machine's own programs: i386 programs run on x86_64 machines."""

SCMP_ARCHITECTURES: Final = frozenset(
    f"SCMP_ARCH_{name}"
    for name in (
        *(names.scmp for names in _TABLE.values() if names.scmp),
        "PARISC64", "M68K", "SH", "SHEB", "NATIVE",
    )
)  # fmt: skip
"""What libseccomp knows."""


def scmp_name(abi: Abi) -> str:
    """What libseccomp calls it, or a name that no profile holds."""
    return f"SCMP_ARCH_{_TABLE[abi.name].scmp or abi.name}"


def engine_name(abi: Abi) -> str:
    """What stands in ``includes.arches``: the machine, not the process."""
    return _TABLE[abi.name].engine


def audit_number(abi: Abi) -> int:
    """AUDIT_ARCH_* of the ABI: ``arch`` of struct seccomp_data."""
    return _TABLE[abi.name].audit


def siblings(name: str) -> tuple[str, ...]:
    """The ABIs of one machine that the table holds, ``name`` first."""
    return (name, *(other for other in _TABLE if other != name and NATIVE[other] == NATIVE[name]))
