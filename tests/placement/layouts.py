"""Made-up processes whose every page has a known place, for the sampler to find out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from numadoctor.placement.asker import ABSENT
from numadoctor.placement.population import Piece, Population

PAGE = 4096
PAGES = 1 << 20  # 4 GiB


@dataclass
class Layout:
    """Answers as a process would whose page n is on node ``node_of(n)``.

    :ivar start: address of page 0
    :ivar asked: the pages that were asked about
    """

    node_of: Callable[[int], int]
    start: int = 0
    asked: list[int] = field(default_factory=list)

    def ask(self, addresses: Sequence[int]) -> list[int]:
        pages = [(address - self.start) // PAGE for address in addresses]
        self.asked += pages
        return [self.node_of(page) for page in pages]


def population(pages: int = PAGES, pid: int = 1, start: int = 0) -> Population:
    """All pages of one mapping."""
    return Population(PAGE, pages, {pid: (Piece(0, pages, start),)})


def scattered(page: int) -> int:
    """33 % on node 0, page by page as if by chance."""
    return int((page * 2654435761 >> 7) % 100 >= 33)


LAYOUTS: dict[str, Callable[[int], int]] = {
    "interleaved over 2": lambda page: page % 2,
    "interleaved over 4": lambda page: (0, 1, 4, 250)[page % 4],
    "weighted 3 to 1": lambda page: int(page % 4 == 3),
    "two halves": lambda page: int(page >= PAGES // 2),
    "huge pages in turn": lambda page: page // 512 % 2,
    "64 KiB in turn": lambda page: page // 16 % 2,
    "1 GiB in turn": lambda page: (page >> 18) % 2,
    "scattered": scattered,
    "a quarter present": lambda page: page % 2 if page < PAGES // 4 else ABSENT,
    "on one node": lambda page: 8,
    "nearly on one node": lambda page: int(page % 997 == 5),
}
