"""What a NUMA system call comes to in the process that makes it."""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from numadoctor.model.finding import Evidence, Fix, Status


class Verdict(str, enum.Enum):
    """Where a call ends. The values are keys of the JSON output."""

    REACHED = "reached"  # the kernel itself answered
    FILTERED = "filtered"  # somebody refused it before the kernel saw it
    ABSENT = "absent"  # whoever answered does not have it
    NO_EFFECT = "no-effect"  # accepted, and nothing came of it
    UNDECIDED = "undecided"  # what was seen allows more than one reading


class CallVerdict(NamedTuple):
    """The verdict on one call.

    :ivar number: its number in this process's ABI, None where that has none
    :ivar status: how much it matters: a refused ``mbind`` fails, a refused
        ``move_pages`` is worth knowing
    :ivar answer: what the call gave, in a word: ``0``, ``EPERM``, ``SIGSYS``, ``none``
    :ivar errno: its name, or None when the call succeeded or never answered
    :ivar blocked_by: who stands in the way, or None
    :ivar because: how that is known, in a sentence or two
    :ivar fixes: least privilege first
    """

    name: str
    number: int | None
    verdict: Verdict
    status: Status
    answer: str
    errno: str | None
    blocked_by: str | None
    because: str
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()


class Outlook(NamedTuple):
    """All calls together: will NUMA placement work here?

    :ivar headline: one sentence that tells the whole story
    :ivar works: whether a policy can be set and takes effect; None when undecided
        or when there is nothing to place
    :ivar numa: whether the kernel has NUMA, None when that cannot be told
    :ivar abi: the ABI whose numbers were used, None when it is not known
    :ivar evidence: what all verdicts rest on
    :ivar source: where the answers come from: ``probe`` (the calls were made), ``profile``,
        ``filters`` (of a running process), ``config`` (its runtime's config.json) or
        ``status`` (all that could be seen of it)
    :ivar others: by other ABIs that the machine runs, the answer by call, where they differ
    :ivar stopped: seconds for which a thread of the examined process stood still, at most
    """

    headline: str
    status: Status
    works: bool | None
    numa: bool | None
    abi: str | None
    calls: tuple[CallVerdict, ...]
    evidence: tuple[Evidence, ...] = ()
    source: str = "probe"
    others: Mapping[str, Mapping[str, str]] = {}
    stopped: float | None = None
