"""/proc/PID/numa_maps: the memory policy of each mapping, and the nodes its pages lie on."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

from numadoctor.host.parsers._addresses import Table
from numadoctor.host.parsers._text import count, decode, quoted
from numadoctor.host.parsers.lists import MAX_ID, parse_list
from numadoctor.model.errors import ParseError
from numadoctor.model.placement import Policy

# mpol_to_str() writes into 64 bytes, the last of them NUL: a text of this length may lack its end.
_POLICY_LENGTH = 63

# More than any kernel writes; what a forged folder holds beyond that is not repeated.
_LONGEST_POLICY = 128

# The longer ones first: "prefer" begins "prefer (many)", too.
_MODES = (
    "weighted interleave",
    "prefer (many)",
    "interleave",
    "default",
    "prefer",
    "local",
    "bind",
)
_FLAGS = ("static", "relative", "balancing")

# The four characters that seq_path() is asked to escape there. It does not escape the backslash.
_ESCAPES = ((rb"\040", b" "), (rb"\011", b"\t"), (rb"\012", b"\n"), (rb"\075", b"="))

_COUNTS = {
    name.encode(): name
    for name in ("anon", "dirty", "mapped", "mapmax", "swapcache", "active", "writeback")
}


class NumaMapsPages(NamedTuple):
    """What a line of numa_maps says after its address. Counts are in pages of ``page_size``.

    A named tuple, since a process may have 65,000 lines; lines that say the
    same share one.

    :ivar policy: as the kernel wrote it; ``parse_policy`` takes it apart
    :ivar file: the mapped file, ``/dev/zero (deleted)`` for shared anonymous memory
    :ivar area: ``heap``, ``stack`` or empty
    :ivar huge: the mapping is of hugetlb pages
    :ivar counts: anon, dirty, mapped, mapmax, swapcache, active, writeback; those that are there
    :ivar nodes: node id to the number of pages on it
    :ivar page_size: bytes, or None on kernels before Linux 3.15, which do not tell
    :ivar unknown: the words that are not understood
    """

    policy: str
    file: str | None = None
    area: str = ""
    huge: bool = False
    counts: Mapping[str, int] = {}
    nodes: Mapping[int, int] = {}
    page_size: int | None = None
    unknown: tuple[str, ...] = ()


class NumaMapsLine(NamedTuple):
    """One mapping of numa_maps.

    :ivar start: its first address
    """

    start: int
    pages: NumaMapsPages


class SameLines(NamedTuple):
    """Lines of numa_maps that say the same.

    :ivar number: of the lines
    :ivar addresses: where each begins, hexadecimal, with blanks between
    """

    pages: NumaMapsPages
    number: int
    addresses: bytes

    @property
    def starts(self) -> tuple[int, ...]:
        """The first address of each."""
        return tuple(map(int, self.addresses.split(), repeat(16)))


class GroupedNumaMaps(NamedTuple):
    """A numa_maps file by what its lines say. Of a process with 65,000 mappings few are looked at.

    :ivar groups: as the first line of each comes in the file
    :ivar unknown: lines, and words of lines, that were not understood, each once
    """

    groups: tuple[SameLines, ...]
    unknown: tuple[str, ...] = ()


class NumaMaps(Table[NumaMapsPages]):
    """A numa_maps file."""

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Lines, and words of lines, that were not understood, each once."""
        words = (word for pages in self.meanings.values() for word in pages.unknown)
        return tuple(dict.fromkeys((*super().unknown, *words)))

    @cached_property
    def grouped(self) -> GroupedNumaMaps:
        """The lines by what they say."""
        found: dict[bytes, list[bytes]] = {}
        for address, text in zip(self.heads[0], self.texts, strict=True):
            found.setdefault(text, []).append(address)
        groups = (
            SameLines(self.meanings[text], len(addresses), b" ".join(addresses))
            for text, addresses in found.items()
        )
        return GroupedNumaMaps(tuple(groups), self.unknown)

    @property
    def pages(self) -> tuple[NumaMapsPages, ...]:
        """What is said of each mapping."""
        return self.values

    @property
    def lines(self) -> tuple[NumaMapsLine, ...]:
        return tuple(map(NumaMapsLine, self.starts, self.pages))


def parse_policy(text: str) -> Policy:
    """A memory policy as numa_maps, mount options and cpuset tools write it.

    ``interleave:0-1``, ``bind=static|balancing:0,2``, ``weighted interleave:0-3``,
    ``prefer (many):0``, ``default``; before Linux 2.6.26 ``interleave=0-1``. Of
    a list that may have been cut at 64 bytes the last id is left out.

    Source: mpol_to_str() in mm/mempolicy.c.
    """
    mode = next((m for m in _MODES if text == m or text.startswith((f"{m}:", f"{m}="))), None)
    name = text.partition(":")[0].partition("=")[0] if mode is None else mode
    flags, colon, listed = text[len(name) :].partition(":")
    words = tuple(word for word in flags.lstrip("=").split("|") if word)
    if not colon and words and words[0][0].isdecimal():
        words, listed = (), flags.lstrip("=")
    cut = len(text.encode("utf-8", "backslashreplace")) >= _POLICY_LENGTH
    nodes = _nodes(listed, cut)
    understood = mode is not None and nodes is not None and set(words) <= set(_FLAGS)
    return Policy(text, name, words, nodes or (), cut, understood)


def _nodes(listed: str, cut: bool) -> tuple[int, ...] | None:
    """The ids in a list of which the last part may be cut; None when it is no list."""
    parts = listed.split(",") if listed else []
    end = parts.pop() if cut and parts else ""
    # "12-1" may have been "12-15": of a range the first id is whole, a lone id may not be.
    first, dash, rest = end.partition("-")
    if (end and not first.isdecimal()) or (rest and not rest.isdecimal()):
        return None
    if dash:
        parts.append(first)
    if not all(parts):
        return None
    try:
        return parse_list(",".join(parts).encode("utf-8", "backslashreplace"))
    except ParseError:
        return None


def _policy_words(words: list[bytes]) -> int:
    """How many words the policy at the beginning of a line has."""
    second = words[1] if len(words) > 1 else b""
    two = (words[0] == b"weighted" and second.startswith(b"interleave")) or (
        words[0] == b"prefer" and second.startswith(b"(many)")
    )
    return 2 if two else 1


def _name(value: bytes) -> str:
    if b"\\" in value:
        for escape, character in _ESCAPES:
            value = value.replace(escape, character)
    return decode(value)


def _pages(text: bytes) -> NumaMapsPages | None:
    words = text.split(b" ")
    if not words[0]:
        return None
    first = _policy_words(words)
    file: str | None = None
    area, huge, page_size = "", False, None
    counts: dict[str, int] = {}
    nodes: dict[int, int] = {}
    unknown: list[str] = []
    for word in words[first:]:
        key, equals, value = word.partition(b"=")
        number = count(value) if equals else None
        if number is not None and key in _COUNTS:
            counts[_COUNTS[key]] = number
        elif number is not None and (node := _node(key)) is not None:
            nodes[node] = number
        elif number and key == b"kernelpagesize_kB":
            page_size = number * 1024
        elif equals and key == b"file" and file is None:
            file = _name(value)
        elif word == b"huge":
            huge = True
        # Linux 3.2 to 4.4 named the thread of a stack: stack:1234.
        elif word == b"heap" or word == b"stack" or word.startswith(b"stack:"):
            area = decode(word[:5]).rstrip(":")
        elif word:
            unknown.append(decode(word))
    policy = decode(b" ".join(words[:first])[:_LONGEST_POLICY])
    return NumaMapsPages(policy, file, area, huge, counts, nodes, page_size, tuple(unknown))


def _node(key: bytes) -> int | None:
    """The id in ``N8``, or None."""
    node = count(key[1:]) if key[:1] == b"N" and len(key) <= 6 else None
    return node if node is not None and node <= MAX_ID else None


def parse_numa_maps(data: bytes) -> NumaMaps:
    """/proc/PID/numa_maps, or that of a thread.

    A mapping without own policy shows that of the task. Words that are not
    understood are kept beside the others, and told in ``unknown``, as are
    lines without address or policy.

    Source: show_numa_map() in fs/proc/task_mmu.c.

    :raises ParseError: there is text and no line of it can be understood
    """
    return NumaMaps("numa_maps", data, _pages)


def parse_grouped_numa_maps(lines: Iterable[tuple[bytes, int, bytes]]) -> GroupedNumaMaps:
    """The same, of lines that were put together by what they say.

    :param lines: what they say after their address, their number, and their addresses as
        ``SameLines`` has them
    """
    groups: list[SameLines] = []
    unknown: dict[str, None] = {}
    for text, number, addresses in lines:
        pages = _pages(text)
        if pages is None:
            unknown[quoted(text)] = None
            continue
        groups.append(SameLines(pages, number, addresses))
        unknown.update(dict.fromkeys(pages.unknown))
    return GroupedNumaMaps(tuple(groups), tuple(unknown))
