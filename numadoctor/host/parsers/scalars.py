"""Files that hold one value: a number, a flag, a word, a choice among words."""

import re
from typing import NamedTuple

from numadoctor.host.parsers._text import BLANK, decode, error, integer, quoted, words

_HEX = re.compile(rb"(?:0[xX])?([0-9a-fA-F]{1,16})")
_SIZE = re.compile(rb"([0-9]{1,18})([kKmMgGtTpP]?)[bB]?")
_BRACKETED = re.compile(rb"\[([^\[\]]+)\]")
_FLAGS = {
    **dict.fromkeys((b"1", b"y", b"yes", b"on", b"true", b"enabled"), True),
    **dict.fromkeys((b"0", b"n", b"no", b"off", b"false", b"disabled"), False),
}


class Choice(NamedTuple):
    """A setting with a fixed set of values.

    :ivar selected: the value in force
    :ivar options: all values that can be chosen, in the file's order
    """

    selected: str
    options: tuple[str, ...]


def parse_text(data: bytes) -> str:
    r"""The text without blanks and NULs around it; bytes that are not UTF-8 become ``\xNN``."""
    return decode(data.strip(BLANK))


def parse_words(data: bytes) -> tuple[str, ...]:
    """The words between blanks and NULs."""
    return tuple(map(decode, words(data)))


def parse_integer(data: bytes) -> int:
    """One whole number of at most 64 bits, decimal or with a 0x prefix, with or without a sign.

    :raises ParseError: anything else, an empty file too
    """
    return integer("number", data)


def parse_hex(data: bytes) -> int:
    """One hexadecimal number of at most 64 bits; the 0x prefix (PCI class, vendor) may be missing.

    :raises ParseError: anything else, an empty file too
    """
    match = _HEX.fullmatch(data.strip(BLANK))
    if not match:
        raise error("hexadecimal number", data, "it is not one")
    return int(match[1], 16)


def parse_size(data: bytes) -> int:
    """A size in bytes as boot options, mount options and hugetlb files write it.

    ``2M``, ``2MB`` and ``2048kB`` are 2097152; a number without a suffix is in bytes. What people
    write is read by ``numadoctor.model.units.parse_amount``, which takes more.

    Source: memparse() in lib/cmdline.c; mem_fmt() in mm/hugetlb_cgroup.c.

    :raises ParseError: anything else
    """
    match = _SIZE.fullmatch(data.strip(BLANK))
    if not match:
        raise error("size", data, "it is not a number with one of the suffixes K, M, G, T, P")
    exponent = b"kmgtp".index(match[2].lower()) + 1 if match[2] else 0
    return int(match[1]) << (10 * exponent)


def parse_weight(data: bytes) -> int:
    """A node's weight for weighted interleave, 1 to 255.

    Source: Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave.

    :raises ParseError: not a number in that range
    """
    weight = integer("weight", data)
    if not 1 <= weight <= 255:
        raise error("weight", data, "it is not between 1 and 255")
    return weight


def parse_flag(data: bytes) -> bool:
    """A switch: Y/N, 1/0, true/false, on/off or enabled/disabled, in any case.

    :raises ParseError: anything else, an empty file too
    """
    word = data.strip(BLANK).lower()
    if word not in _FLAGS:
        raise error("flag", data, f"{quoted(word)} is neither on nor off")
    return _FLAGS[word]


def parse_choice(data: bytes) -> Choice:
    """A choice as sysfs shows it, ``always [madvise] never``; a single bare word is selected.

    Source: Documentation/admin-guide/mm/transhuge.rst.

    :raises ParseError: no word, several words and no bracket, or several brackets
    """
    names, selected = [], []
    for word in words(data):
        bracketed = _BRACKETED.fullmatch(word)
        names.append(decode(bracketed[1] if bracketed else word))
        if bracketed:
            selected.append(names[-1])
    if len(names) == 1:
        selected = names
    if len(selected) != 1:
        raise error("choice", data, f"{len(selected)} of {len(names)} words are selected")
    return Choice(selected[0], tuple(names))
