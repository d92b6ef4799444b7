"""From which figure on a check speaks: every such figure with its reason, in one table.

A site may set others (``[thresholds]`` in numadoctor.toml): ``set_thresholds``.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from numadoctor.model import ParseError
from numadoctor.model.units import MOST_BYTES, parse_amount


class Threshold(NamedTuple):
    """A figure from which on something is worth a word.

    :ivar value: the default
    :ivar unit: bytes, share (0 to 1), times, processes, per second, ...
    :ivar reason: why that and no other
    """

    value: float
    unit: str
    reason: str


_MIB = 1 << 20

THRESHOLDS: Mapping[str, Threshold] = MappingProxyType(
    {
        "judged-mapping": Threshold(
            64 * _MIB,
            "bytes",
            "engines take their pools and pinned buffers in blocks of that size and more; what is "
            "smaller is interpreters and libraries, of which every process has hundreds",
        ),
        "large-pool": Threshold(
            1024 * _MIB,
            "bytes",
            "a pool that fills in milliseconds is filled by one thread, and seldom read by others",
        ),
        "large-private": Threshold(
            8192 * _MIB,
            "bytes",
            "interpreters, tokenizers and staging buffers hold a few GiB that their thread alone "
            "uses; private memory beyond that is a pool",
        ),
        "off-node": Threshold(
            0.1,
            "share",
            "remote memory takes about twice as long: a tenth of it costs 10 % of the time, which "
            "an A/B run shows; less drowns in noise",
        ),
        "off-node-most": Threshold(
            0.5, "share", "with most of a pool on the other node, the link between them decides"
        ),
        "interleave-deviation": Threshold(
            0.1,
            "share",
            "the fullest node sets the pace: 60 to 40 over two nodes loses a sixth of what 50 to "
            "50 gives; a sample of 1,000 pages is sure to 3 %",
        ),
        "run-length": Threshold(
            16 * _MIB,
            "bytes",
            "a block of a KV cache is a few MiB at most: with longer runs each lies behind one "
            "memory controller; interleaving by pages or huge pages stays far below",
        ),
        "slow-memory": Threshold(
            64 * _MIB, "bytes", "less than a block of a pool there is no pool there"
        ),
        "bound-room": Threshold(
            0.02,
            "share",
            "below that much free memory the kernel reclaims all the time (watermarks are 0.1 % "
            "to 1 %), and a bound process has no other node to go to",
        ),
        "mappings-used": Threshold(
            0.8, "share", "an allocator that splits mappings uses up the rest within one request"
        ),
        "mappings-failing": Threshold(
            0.95, "share", "a few hundred mappings are left: a thread's stack takes two"
        ),
        "swapped": Threshold(
            16 * _MIB, "bytes", "pages of start-up code that nobody reads again are no loss"
        ),
        "migration-rate": Threshold(
            100,
            "pages per second",
            "0.4 MiB/s: each of them stops the thread that meets it for some 10 microseconds",
        ),
        "fault-rate": Threshold(
            10_000,
            "faults per second",
            "at about 0.5 microseconds a fault, 0.5 % of a CPU; a server that is warm has hundreds",
        ),
        "major-fault-rate": Threshold(
            10, "faults per second", "each waits for a disk: 0.1 ms to 10 ms for one request"
        ),
        "warm-up": Threshold(
            600, "seconds", "weights of hundreds of GB are loaded within ten minutes"
        ),
        "window": Threshold(
            0.25, "seconds", "the shortest in which rates of hundreds a second can be told"
        ),
        "threads-astray": Threshold(
            0.5, "share", "idle helpers may be anywhere; most of the threads may not"
        ),
        "few-threads": Threshold(
            4, "threads", "helpers of a runtime (signals, timers) do no work on memory"
        ),
        "huge-pages-missing": Threshold(
            0.5, "share", "half of a pool in small pages has most of its misses in the TLB there"
        ),
        "leftover": Threshold(64 * _MIB, "bytes", "less is no reason why the next start fails"),
    }
)

_in_force: dict[str, float] = {}


def threshold(name: str) -> float:
    """The figure in force: a site's own, or the default."""
    return _in_force.get(name, THRESHOLDS[name].value)


def set_thresholds(values: Mapping[str, object]) -> Mapping[str, float]:
    """Use these figures instead of the defaults; those not named go back to the default.

    :param values: name to a number; of bytes also as people write them (``2GiB``)
    :returns: the figures as numbers
    :raises ParseError: there is no such threshold, or the figure is none that makes sense
    """
    taken = {}
    for name, value in values.items():
        known = THRESHOLDS.get(name)
        if known is None:
            raise ParseError("threshold", name, f"there is none; there are {', '.join(THRESHOLDS)}")
        taken[name] = _figure(name, value, known.unit)
    _in_force.clear()
    _in_force.update(taken)
    return MappingProxyType(taken)


def _figure(name: str, value: object, unit: str) -> float:
    def wrong(reason: str) -> ParseError:
        return ParseError("threshold", f"{name} = {value}", reason)

    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong("a number from 0 on is expected")
    if isinstance(value, int) and abs(value) > MOST_BYTES:
        # Without the number: Python refuses to write one of thousands of digits.
        raise ParseError("threshold", name, "it is too large" if value > 0 else "it is below 0")
    if unit == "bytes":
        try:
            # A number is read as text is: one with a part of a byte is a mistake.
            return float(parse_amount(str(value)))
        except ParseError as error:
            raise wrong(error.reason) from None
    if isinstance(value, str) or not 0 <= value < math.inf:
        raise wrong("a number from 0 on is expected")
    if unit == "share" and value > 1:
        raise wrong("a share is between 0 and 1")
    return float(value)
