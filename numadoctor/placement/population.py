"""What a sample is drawn from: the pages of a private mapping, of a shared segment with all who
attach it, or of many small mappings together.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.placement.asker import ABSENT, Asker

if TYPE_CHECKING:
    from random import Random


class Piece(NamedTuple):
    """Consecutive pages of a population that are mapped at consecutive addresses.

    :ivar first: number of its first page in the population
    :ivar pages: their number
    :ivar address: of the first page
    """

    first: int
    pages: int
    address: int


class Population(NamedTuple):
    """Pages numbered from 0, and where processes have them mapped.

    :ivar page_size: bytes
    :ivar pages: their number
    :ivar layers: pid to its pieces by ascending first page; those of one process do not overlap
    """

    page_size: int
    pages: int
    layers: Mapping[int, tuple[Piece, ...]]

    @property
    def bytes(self) -> int:
        return self.pages * self.page_size

    def locate(self, pid: int, pages: Sequence[int]) -> tuple[list[int], list[int]]:
        """Which of ``pages`` that process maps, by index, and their addresses there."""
        pieces = self.layers[pid]
        firsts = [piece.first for piece in pieces]
        indices: list[int] = []
        addresses: list[int] = []
        for index, page in enumerate(pages):
            first, count, address = pieces[bisect_right(firsts, page) - 1]
            if first <= page < first + count:
                indices.append(index)
                addresses.append(address + (page - first) * self.page_size)
        return indices, addresses

    def ask(self, pages: Sequence[int], askers: Mapping[int, Asker]) -> list[int]:
        """The node of each page, or a negative errno.

        A page that is not present for one process may be for another that
        maps it: all are asked until one has it.
        """
        answers = [ABSENT] * len(pages)
        unseen: list[int] = list(range(len(pages)))
        for pid in self.layers:
            if pid not in askers or not unseen:
                continue
            indices, addresses = self.locate(pid, [pages[index] for index in unseen])
            for place, answer in zip(indices, askers[pid].ask(addresses), strict=True):
                answers[unseen[place]] = answer
            unseen = [index for index in unseen if answers[index] < 0]
        return answers


# Multiples of the periods that interleaving over nodes by one page, by weights or by 64 KiB has.
# None is larger than a huge page, or the sample would be spread less evenly over those.
_BALANCES = (480, 240, 60, 12, 4, 2)


def draw(pages: int, wanted: int, random: "Random") -> list[int]:
    """``wanted`` of the numbers below ``pages``, ascending; all of them if there are no more.

    One from about each of ``wanted`` equal parts, every number being equally
    likely. The remainders by a number with many divisors are dealt out like
    cards: so the share of an interleaved mapping, whose nodes alternate, comes
    out nearly exact instead of by luck.
    """
    if pages <= wanted:
        return list(range(pages))
    balance = next((b for b in _BALANCES if 2 * b <= wanted and 16 * b <= pages), 1)
    remainders: list[int] = []
    drawn = []
    for part in range(wanted):
        # A page on the border of two parts belongs to both by halves: it may be drawn twice.
        place = min(int((part + random.random()) * pages / wanted), pages - 1)
        block = place - place % balance
        if not remainders:
            remainders = list(range(balance))
            random.shuffle(remainders)
        page = block + remainders.pop()
        # The last block may lack its end.
        drawn.append(page if page < pages else random.randrange(block, pages))
    return sorted(drawn)
