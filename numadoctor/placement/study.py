"""What the parts of one examination share: settings, the processes, and what was found so far."""

import os
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from numadoctor.host.living import own_pid
from numadoctor.model import Target, Undecided, Vanished
from numadoctor.model.placement import Method, Placement, Policy, ProcessPlacement
from numadoctor.placement import intervals
from numadoctor.placement.asker import ABSENT, Account, Asker
from numadoctor.placement.measure import Remainders
from numadoctor.placement.processes import OF_THE_KERNEL, Examined, examine, optional, with_maps
from numadoctor.placement.segments import Area, Segment, segments_of

if TYPE_CHECKING:
    from random import Random

    from numadoctor.host import Host
    from numadoctor.placement.ahead import Ahead, Grouped
    from numadoctor.placement.move_pages import PageAsker


_THP_SIZE = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"

# Pools are at least that long; buffers and stacks are shorter.
_POOL_LENGTH = 64 << 20


def _is_still_to_come(placement: Placement) -> bool:
    """Whether it is a pool that has, or may have, its nodes, and next to no page so far."""
    mapping, policy = placement.mapping, placement.policy
    return (
        (mapping.length or 0) >= _POOL_LENGTH
        and mapping.kind.is_pool
        and mapping.permissions[:1] != "-"
        and (policy is None or bool(policy.nodes))
    )


class _LastingAsker:
    """An asker that outlives its process: what ended holds no page."""

    def __init__(self, study: "Study", asker: "PageAsker") -> None:
        self._study, self._asker = study, asker

    def ask(self, addresses: Sequence[int]) -> list[int]:
        try:
            return self._asker.ask(addresses)
        except Vanished as error:
            self._study.drop(self._asker.pid, error)
            return [ABSENT] * len(addresses)


class Study:
    """One examination under way.

    :ivar examined: pid to what was read of the process; those with a ``problem`` are left alone
    :ivar askers: pid to whom to ask about its pages; empty where that is refused
    :ivar method: the one that was used for the large mappings, ``because`` of this
    """

    def __init__(
        self,
        host: "Host",
        *,
        samples: int,
        seed: int | None,
        min_size: int,
        hold: float,
        ahead: "Ahead | None" = None,
    ) -> None:
        self.begin = time.perf_counter()
        self.host = host
        self.samples = samples
        self.seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        self.min_size = min_size
        self.hold = hold
        self.page_size = _page_size(host)
        self.account = Account()
        self.examined: dict[int, Examined] = {}
        self._ahead = ahead
        self.askers: dict[int, Asker] = {}
        self._asked_whether = False
        self.placements: list[Placement] = []
        self.remainders = Remainders()
        self.remarks: list[str] = []
        self.method = Method.EXACT
        self.because = ""

    @cached_property
    def random(self) -> "Random":
        from random import Random

        return Random(self.seed)

    @property
    def pids(self) -> list[int]:
        """The processes that can be examined."""
        return [pid for pid, found in self.examined.items() if not found.process.problem]

    def read(self, path: str, *, gently: bool) -> "bytes | Grouped":
        """numa_maps of a live process; of one that was read ahead, its lines put together."""
        from numadoctor.placement.walk import read_numa_maps, take

        if self._ahead and path == self._ahead.path:
            return take(self._ahead, self.account)
        return read_numa_maps(path, self.account, gently=gently)

    def examine(self, targets: Iterable[Target]) -> None:
        """Read what is to be known of each before its pages are looked for."""
        for target in targets:
            pid = own_pid(self.host) if target.pid is None else target.pid
            found = self.examined.setdefault(pid, examine(self.host, pid, target))
            if not found.process.problem:
                self.examined[pid] = with_maps(self.host, found)

    def drop(self, pid: int, error: Undecided) -> None:
        """A process can no longer be examined; what is known of it stays."""
        self.examined[pid] = self.examined[pid].failed(error)
        self.askers.pop(pid, None)

    def set_policy(self, pid: int, policy: Policy | None) -> None:
        """Tell the task policy of a process."""
        found = self.examined[pid]
        self.examined[pid] = found._replace(process=found.process._replace(policy=policy))

    def find_askers(self) -> Undecided | None:
        """Make an asker for each process; what is in the way if they may not be asked about."""
        from numadoctor.placement.move_pages import PageAsker

        self._asked_whether = True
        for pid in self.pids:
            asker = PageAsker(pid, self.account)
            refusal = asker.can_ask()
            if isinstance(refusal, Vanished):
                self.drop(pid, refusal)
            elif refusal:
                self.askers.clear()
                return refusal
            else:
                self.askers[pid] = _LastingAsker(self, asker)
        return None

    def may_ask(self) -> bool:
        """Whether single pages can be asked about, beside the counting."""
        if self.host.live and not self._asked_whether:
            self.find_askers()
        return bool(self.askers)

    def segments_of(self, areas: Iterable[Area]) -> list[Segment]:
        """What the areas belong to; told, where that is not certain."""
        found = segments_of(areas, self._ipc_namespace)
        numbered: dict[object, list[int]] = {}
        for area in (area for segment in found for area in segment.areas):
            if area.backing.is_sysv:
                numbered.setdefault(area.backing.identity, []).append(area.pid)
        for pids in numbered.values():
            untold = sorted({pid for pid in pids if self._ipc_namespace(pid) is None})
            if untold and len(set(pids)) > 1:
                self.remarks.append(
                    "System V segments with one number may be several, or several one: "
                    f"/proc/PID/ns/ipc is not to be had of {', '.join(map(str, untold))}"
                )
        return found

    def _ipc_namespace(self, pid: int) -> str | None:
        """As ``/proc/PID/ns/ipc`` names it: ``ipc:[4026531839]``.

        What a process attached before it changed its namespace counts to the new one: nothing
        in /proc tells of the old.
        """
        return optional(self.host.link, f"/proc/{pid}/ns/ipc")

    def restart(self) -> None:
        """Forget what was found, to look for it in another way."""
        self.placements, self.remainders = [], Remainders()

    def keep(self, placement: Placement) -> None:
        """Add a placement to the result: by itself, or with others of its kind when small."""
        length = placement.mapping.length
        size = placement.resident if length is None else min(length, placement.resident)
        if size >= self.min_size or _is_still_to_come(placement):
            self.placements.append(placement)
        else:
            self.remainders.add_placement(placement)

    def result(self) -> ProcessPlacement:
        mappings = tuple(sorted(self.placements, key=lambda p: (-p.resident, p.mapping.start)))
        remainders = self.remainders.result()
        shares = [p.by_node for p in mappings] + [r.by_node for r in remainders]
        nodes = intervals.total(shares)
        gone = [found for found in self.examined.values() if found.ended and found.descendant]
        if gone:
            # A thread of the kernel has no memory and, as one that ended, nothing to examine.
            kernel = sum(found.process.problem == OF_THE_KERNEL for found in gone)
            if kernel:
                self.remarks.append(f"no memory of their own: {_descendants(kernel)}")
            if len(gone) > kernel:
                self.remarks.append(f"{_descendants(len(gone) - kernel)} ended meanwhile")
        kept = [found.process for found in self.examined.values() if found not in gone]
        return ProcessPlacement(
            processes=tuple(kept),
            mappings=mappings,
            remainders=remainders,
            nodes=nodes,
            resident=sum(share.bytes for share in nodes.values()),
            method=self.method,
            because=self.because,
            cost=self.account.cost(time.perf_counter() - self.begin),
            page_size=self.page_size,
            thp_size=optional(self.host.integer, _THP_SIZE),
            seed=self.seed,
            incomplete=tuple(
                f"pid {process.pid}{process.name and ' ' + process.name}: {process.problem}"
                for process in kept
                if process.problem
            ),
            remarks=tuple(dict.fromkeys(self.remarks)),
        )


def _page_size(host: "Host") -> int:
    """Of ordinary pages, in bytes; 4096 where a captured folder does not tell."""
    try:
        return int(host.fact("sysconf")["page_size"])
    except (Undecided, KeyError, TypeError, ValueError):
        return 4096


def _descendants(number: int) -> str:
    return "1 descendant" if number == 1 else f"{number} descendants"
