"""How amounts of memory and sets of ids are written, in messages and by people."""

import re
from collections.abc import Iterable
from typing import Final

from numadoctor.model.errors import ParseError

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

# ASCII: else the sign of kelvin is a K and other scripts have digits, too.
_AMOUNT = re.compile(
    r"([0-9]{1,40})(?:\.([0-9]{1,40}))?\s*(?:([KMGTPE])i?)?B?", re.ASCII | re.IGNORECASE
)
_PREFIXES = "KMGTPE"

MOST_BYTES: Final = 1 << 60
"""1 EiB; processors address less: 4 PiB (52 bits) at the time of writing."""


def amount(count: int) -> str:
    """A count of bytes with a binary unit and one decimal at most: ``2 MiB``, ``71.3 GiB``."""
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        # 1023.96 would be written 1024.0: it belongs to the next unit.
        if round(abs(value), 1) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"


def page_size_text(size: int) -> str:
    """A size of pages in the fewest digits: 2097152 is ``2M``, 65536 is ``64K``.

    So boot options write it; cgroup files add B (mem_fmt() in mm/hugetlb_cgroup.c), Kubernetes i.
    """
    shift = next((s for s in range(60, 0, -10) if size >= 1 << s and not size % (1 << s)), 0)
    return f"{size >> shift}{' KMGTPE'[shift // 10].strip()}"


def page_size_folder(size: int) -> str:
    """The directory in which the kernel has the pool of a page size: ``hugepages-2048kB``."""
    return f"hugepages-{size >> 10}kB"


def parse_amount(text: str, most: int = MOST_BYTES) -> int:
    """The bytes that people mean by ``64GiB``, ``64 GB``, ``1.5t``, ``68719476736``.

    A number, with a decimal point if a unit follows, then B or nothing, or one of K, M, G, T, P
    and E with i, B or iB behind it or nothing; in any case, with or without blanks. Every unit is
    a power of 1024, as docker, podman, Compose, systemd, numactl, Slurm and the kernel read them;
    what is left below one byte is dropped, as docker drops it. Other formats have readers of
    their own: ``parsers.parse_size`` (the kernel's files), ``lint.quantity`` (Kubernetes, whose G
    is 10**9).

    Source: github.com/docker/go-units, size.go (RAMInBytes); systemd.syntax(7); numactl(8);
    sbatch(1), --mem.

    :param most: the largest that makes sense
    :raises ParseError: anything else, what is larger, and a part of one byte
    """
    match = _AMOUNT.fullmatch(text.strip())
    if not match:
        negative = text.strip().startswith("-")
        raise ParseError(
            "size", text, "it is below 0" if negative else "write it as 64GiB, or in bytes"
        )
    whole, part = match[1], match[2] or ""
    unit = 1 << 10 * (_PREFIXES.index(match[3].upper()) + 1) if match[3] else 1
    scaled: int = int(whole + part) * unit
    scale: int = 10 ** len(part)
    if (part and unit == 1) or 0 < scaled < scale:
        raise ParseError("size", text, "a part of a byte")
    if scaled > most * scale:
        raise ParseError("size", text, "more than any machine has")
    return scaled // scale


def id_list(ids: Iterable[int]) -> str:
    """Ids as the kernel lists them: ``0-3,8``; empty for none."""
    runs: list[list[int]] = []
    for number in sorted(set(ids)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, ends)) for ends in runs)
