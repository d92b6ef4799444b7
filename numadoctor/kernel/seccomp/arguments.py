"""What the arguments of the six calls may be, whoever makes the call rightly."""

from collections.abc import Sequence
from typing import Final

from numadoctor.kernel.seccomp.tristate import Bits, any_of, exactly

_ANY: Final = any_of(64)
_MODE: Final = Bits(0, 0xE007)  # MPOL_* up to 7, and the three mode flags
_MASK_BITS: Final = any_of(21)  # at most 8 * page size + 1 bits, of pages of 64 KiB
_PID: Final = any_of(22)  # PID_MAX_LIMIT
_NODE: Final = any_of(16)

# In the order in which the kernel takes them (mm/mempolicy.c, mm/migrate.c).
_ARGUMENTS: Final[dict[str, tuple[tuple[str, Bits], ...]]] = {
    "mbind": (
        ("start", _ANY), ("len", _ANY), ("mode", _MODE), ("nmask", _ANY),
        ("maxnode", _MASK_BITS), ("flags", any_of(3)),
    ),
    "set_mempolicy": (("mode", _MODE), ("nmask", _ANY), ("maxnode", _MASK_BITS)),
    "get_mempolicy": (
        ("policy", _ANY), ("nmask", _ANY), ("maxnode", _MASK_BITS), ("addr", _ANY),
        ("flags", any_of(3)),
    ),
    "set_mempolicy_home_node": (
        ("start", _ANY), ("len", _ANY), ("home_node", _NODE), ("flags", exactly(0)),
    ),
    "move_pages": (
        ("pid", _PID), ("nr_pages", _ANY), ("pages", _ANY), ("nodes", _ANY),
        ("status", _ANY), ("flags", any_of(3)),
    ),
    "migrate_pages": (
        ("pid", _PID), ("maxnode", _MASK_BITS), ("old_nodes", _ANY), ("new_nodes", _ANY),
    ),
}  # fmt: skip


def argument_name(call: str, index: int) -> str:
    """The name that the manual gives it: ``argument 2 (mode)``."""
    known = _ARGUMENTS[call]
    if index < len(known):
        return f"argument {index} ({known[index][0]})"
    return f"argument {index}, which {call} does not have"


def argument_bits(call: str, index: int, given: Sequence[int] | None) -> Bits:
    """What is known of an argument.

    Where the call takes no such argument the register holds anything.

    :param given: the arguments of one call, or None for any call
    """
    if given is not None:
        return exactly(given[index] & (1 << 64) - 1) if index < len(given) else _ANY
    known = _ARGUMENTS[call]
    return known[index][1] if index < len(known) else _ANY
