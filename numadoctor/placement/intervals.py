"""Shares of nodes: counted, or sampled with a 95 % interval that is right near 0 and 1 too."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from numadoctor.model.placement import Share

_CONFIDENCE = 0.95


@lru_cache(maxsize=64)
def _z(together: int) -> float:
    """How many standard deviations the interval of one of so many proportions reaches.

    Each may miss the truth that much more seldom that all together hold it
    (Bonferroni). The inverse of the normal distribution, by halving.
    """
    low, high = 0.0, 10.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if math.erfc(middle / math.sqrt(2)) > (1 - _CONFIDENCE) / together:
            low = middle
        else:
            high = middle
    return high


def proportion(hits: int, asked: int, together: int = 1) -> tuple[float, float]:
    """The 95 % interval of a proportion of which ``hits`` of ``asked`` were seen.

    With ``together`` such proportions from one sample, all intervals hold the
    truth at once in 95 % of samples.

    Wilson's score interval with continuity correction: unlike the usual one it
    never is empty at 0 and 1, and it covers the truth in at least 94.9 % of
    samples of 16 and more, whatever the truth is (a test computes that).

    Source: R. G. Newcombe, "Two-sided confidence intervals for the single
    proportion", Statistics in Medicine 17 (1998), method 4.
    """
    if asked == 0:
        return 0.0, 1.0
    p, n, z = hits / asked, asked, _z(together)
    zz = z * z
    middle, width = 2 * n * p + zz, 2 * (n + zz)
    low = (middle - 1 - z * _root(zz - 2 - 1 / n + 4 * p * (n * (1 - p) + 1))) / width
    high = (middle + 1 + z * _root(zz + 2 - 1 / n + 4 * p * (n * (1 - p) - 1))) / width
    return (max(0.0, low) if hits else 0.0), (min(1.0, high) if hits < asked else 1.0)


def _root(value: float) -> float:
    return math.sqrt(max(0.0, value))


def counted(bytes_by_node: Mapping[int, int]) -> dict[int, Share]:
    """Shares of what was counted: their intervals have no width."""
    resident = sum(bytes_by_node.values())
    return {
        node: Share(count, count, count, count / resident, count / resident, count / resident)
        for node, count in sorted(bytes_by_node.items())
        if count
    }


def sampled(hits: Mapping[int, int], asked: int, population: int, most: int) -> dict[int, Share]:
    """Shares drawn from a sample of equally likely pages.

    :param hits: node id to the number of pages seen there
    :param asked: number of pages in the sample, those that were not present too
    :param population: bytes the sample stands for
    :param most: bytes that can be resident at most, from another source
    """
    present, together = sum(hits.values()), max(1, len(hits))
    shares = {}
    for node, seen in sorted(hits.items()):
        low, high = proportion(seen, asked, together)
        estimate = min(round(population * seen / asked), most)
        shares[node] = Share(
            estimate,
            min(round(population * low), estimate),
            max(min(round(population * high), most), estimate),
            seen / present,
            *proportion(seen, present, together),
        )
    return shares


def total(parts: Iterable[Mapping[int, Share]]) -> dict[int, Share]:
    """The sum of shares that were found out independently of each other.

    The distances to the ends of the intervals add up by their squares.

    Source: G. Y. Zou, A. Donner, "Construction of confidence limits about effect
    measures", Statistics in Medicine 27 (2008).
    """
    parts = list(parts)
    if len(parts) == 1:
        return dict(parts[0])
    by_node: dict[int, list[Share]] = {}
    for part in parts:
        for node, share in part.items():
            by_node.setdefault(node, []).append(share)
    sums = {node: _sum(shares) for node, shares in sorted(by_node.items())}
    return {
        node: Share(
            *ends,
            _ratio(ends[0], sum(other[0] for n, other in sums.items() if n != node)),
            _ratio(ends[1], sum(other[2] for n, other in sums.items() if n != node)),
            _ratio(ends[2], sum(other[1] for n, other in sums.items() if n != node)),
        )
        for node, ends in sums.items()
    }


def _sum(shares: list[Share]) -> tuple[int, int, int]:
    middle = sum(share.bytes for share in shares)
    below = math.hypot(*(share.bytes - share.low for share in shares))
    above = math.hypot(*(share.high - share.bytes for share in shares))
    return middle, round(middle - below), round(middle + above)


def _ratio(part: int, rest: int) -> float:
    return part / (part + rest) if part else 0.0
