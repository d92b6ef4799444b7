"""How counts, ids and enumerations are written in messages."""

from collections.abc import Iterable

from numadoctor.model.units import id_list


def nodes_text(nodes: Iterable[int]) -> str:
    """``node 0``, ``nodes 0-1``, ``no node``."""
    return _ids_text(nodes, "node")


def cpus_text(cpus: Iterable[int]) -> str:
    """``CPU 0``, ``CPUs 0-7,16-23``, ``no CPU``."""
    return _ids_text(cpus, "CPU")


def _ids_text(ids: Iterable[int], word: str) -> str:
    members = set(ids)
    if not members:
        return f"no {word}"
    return f"{word}{'' if len(members) == 1 else 's'} {id_list(members)}"


def count(number: int, one: str, many: str = "") -> str:
    """``1 page``, ``2,048 pages``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(texts: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *head, last = texts
    return f"{', '.join(head)} and {last}" if head else last
