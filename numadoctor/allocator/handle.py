"""What another process attaches to a pool by."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from numadoctor.allocator.backing import Backing
from numadoctor.allocator.modes import checked_mode
from numadoctor.kernel.nodemask import MAX_NODE_ID


@dataclass(frozen=True)
class Handle:
    """What another process needs to attach to a pool. Plain data: pass it as JSON.

    :ivar where: a path or a System V id, good for as long as a process has the pool
    :ivar length: in bytes, as ``page_size``
    :raises ValueError: it describes no pool
    """

    backing: str
    where: str
    length: int
    page_size: int
    mode: str
    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        backing, size = Backing(self.backing), self.page_size
        checked_mode(self.mode)
        if not backing.attachable:
            raise ValueError(f"{self.backing} memory cannot be attached to")
        if backing.is_sysv and not (self.where.isascii() and self.where.isdigit()):
            raise ValueError(f"{self.where!r} is no System V id")
        if "\0" in self.where:
            raise ValueError(f"{self.where!r} is no path")
        if size <= 0 or size & (size - 1):
            raise ValueError(f"{size} bytes are no page size")
        if not 0 < self.length < 1 << 63 or self.length % size:
            raise ValueError(f"{self.length} bytes are no whole pages of {size}")
        if absurd := [node for node in self.nodes if not 0 <= node <= MAX_NODE_ID]:
            raise ValueError(f"{absurd[0]} is no node id")

    def data(self) -> dict[str, Any]:
        """As JSON data."""
        return {**asdict(self), "nodes": list(self.nodes)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Handle":
        """From JSON data.

        :raises ValueError: it is no handle
        """
        try:
            nodes = data["nodes"]
            if not isinstance(nodes, list | tuple):
                raise TypeError("nodes is no list")
            return cls(
                str(data["backing"]),
                str(data["where"]),
                int(data["length"]),
                int(data["page_size"]),
                str(data["mode"]),
                tuple(int(node) for node in nodes),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"bad pool handle: {error}") from None
