"""How amounts of memory are written in messages."""

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
