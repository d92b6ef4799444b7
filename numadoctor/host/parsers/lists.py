"""Sets of CPUs and nodes as the kernel writes them: lists (``0-3,8``) and hexadecimal maps."""

import re
from collections.abc import Iterable

from numadoctor.host.parsers._text import BLANK, error, quoted, words
from numadoctor.model.units import id_list

# The largest id that is believed: eight times the kernel's largest NR_CPUS (8192 on x86_64),
# and far above its 1024 nodes. Without a bound one line could ask for any amount of memory.
MAX_ID = 1 << 16

_RANGE = re.compile(rb"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10})/([0-9]{1,10}))?)?")
_FLAG = re.compile(rb"[a-z_]+,")
_WORD_DIGITS = 8


def _ids(mask: int) -> tuple[int, ...]:
    return tuple(bit for bit, digit in enumerate(reversed(f"{mask:b}")) if digit == "1")


def _strided(first: int, last: int, used: int, group: int) -> int:
    """A mask with the first ``used`` bits of each ``group`` from ``first`` to ``last``."""
    width = last - first + 1
    bits, span = (1 << min(used, width)) - 1, group
    while span < width:
        bits |= bits << span
        span *= 2
    return (bits & ((1 << width) - 1)) << first


def _part(data: bytes, part: bytes) -> int:
    """The mask of one part of a list."""
    match = _RANGE.fullmatch(part)
    if not match:
        reason = "is not a number, a range or a range with a stride"
        if b"-" not in part:
            reason = "is not a number"
        raise error("list", data, f"{quoted(part)} {reason}")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    used, group = (1, 1) if match[3] is None else (int(match[3]), int(match[4]))
    if last < first:
        raise error("list", data, f"{quoted(part)} is a range in reverse")
    if last > MAX_ID:
        raise error("list", data, f"{quoted(part)} goes beyond {MAX_ID}")
    if group == 0 or used > group:
        raise error("list", data, f"{quoted(part)} takes {used} of every {group}")
    return _strided(first, last, used, group)


def parse_list(data: bytes) -> tuple[int, ...]:
    """The ids in a list in the kernel's format, ascending, each once.

    ``0-3,8`` is (0, 1, 2, 3, 8), a blank file is (), and ``0-7:2/4`` takes the
    first two of every four: (0, 1, 4, 5). Parts are separated by commas or blanks.

    Source: bitmap_parselist() and bitmap_print_list() in lib/bitmap.c.

    :raises ParseError: a part is not a range, is one in reverse, or goes beyond MAX_ID
    """
    mask = 0
    for part in words(data.replace(b",", b" ")):
        mask |= _part(data, part)
    return _ids(mask)


def parse_isolcpus(data: bytes) -> tuple[int, ...]:
    """The CPUs in the value of the boot option ``isolcpus=``, which may begin with flags.

    Source: housekeeping_isolcpus_setup() in kernel/sched/isolation.c; it skips
    flags that it does not know.

    :raises ParseError: as parse_list
    """
    rest = data.lstrip(BLANK)
    while flag := _FLAG.match(rest):
        rest = rest[flag.end() :]
    return parse_list(rest)


def format_list(ids: Iterable[int]) -> str:
    """The ids as a list in the kernel's format: the inverse of parse_list."""
    return id_list(ids)


def _hex_words(data: bytes) -> list[bytes]:
    """The checked words of a map, highest first, without a 0x prefix."""
    text = data.strip(BLANK)
    if text[:2] in (b"0x", b"0X"):
        text = text[2:]
    parts = text.split(b",")
    for part in parts:
        if not re.fullmatch(rb"[0-9a-fA-F]+", part):
            raise error("map", data, f"{quoted(part)} is not a hexadecimal number")
        if len(parts) > 1 and len(part) > _WORD_DIGITS:
            raise error("map", data, f"{quoted(part)} is longer than a word of 32 bits")
    return parts


def parse_map(data: bytes) -> tuple[int, ...]:
    """The ids in a bit map in the kernel's format, ascending.

    Hexadecimal words of 32 bits separated by commas, the lowest last; words may
    lack leading zeros. A number without commas may have any width and a 0x prefix.

    Source: bitmap_print_to_pagebuf() in lib/bitmap.c (``%*pb``); proc(5), Cpus_allowed.

    :raises ParseError: a word is not hexadecimal or too long, the map is empty
        (the kernel never writes an empty one), or a bit lies beyond MAX_ID
    """
    parts = _hex_words(data)
    mask = int(b"".join(part.rjust(_WORD_DIGITS, b"0") for part in parts), 16)
    if mask.bit_length() > MAX_ID + 1:
        raise error("map", data, f"it goes beyond bit {MAX_ID}")
    return _ids(mask)


def mask_digits(data: bytes) -> int:
    """The number of hexadecimal digits in a map; four times that is the width in bits.

    :raises ParseError: as parse_map
    """
    return sum(map(len, _hex_words(data)))


def numbered(names: Iterable[str], prefix: str) -> tuple[int, ...]:
    """The ids of the directory entries ``PREFIX<number>``, ascending: node0, node8 is (0, 8).

    Entries of other forms (``node``, ``cpufreq``, ``node01``) are left out.
    """
    pattern = re.compile(re.escape(prefix) + r"(0|[1-9][0-9]{0,9})")
    return tuple(sorted({int(match[1]) for name in names if (match := pattern.fullmatch(name))}))
