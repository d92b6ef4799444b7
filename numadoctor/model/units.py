"""How amounts of memory and sets of ids are written in messages."""

from collections.abc import Iterable

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def amount(count: int) -> str:
    """A count of bytes with a binary unit and one decimal at most: ``2 MiB``, ``71.3 GiB``."""
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        # 1023.96 would be written 1024.0: it belongs to the next unit.
        if round(abs(value), 1) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"


def id_list(ids: Iterable[int]) -> str:
    """Ids as the kernel lists them: ``0-3,8``; empty for none."""
    runs: list[list[int]] = []
    for number in sorted(set(ids)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, ends)) for ends in runs)
