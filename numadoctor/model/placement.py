"""Where the memory of processes is: mappings, policies, and shares of nodes with their intervals.

Not loaded by ``numadoctor.model`` itself: commands that look at no process do
without it. Named tuples, as immutable as frozen dataclasses: the classes are
made in a tenth of the time, and a process may have 65,000 mappings.
"""

import enum
from collections.abc import Mapping as MappingOf
from typing import NamedTuple


class Kind(str, enum.Enum):
    """What a mapping is of."""

    ANONYMOUS = "private-anonymous"
    HEAP = "heap"
    STACK = "stack"
    SHARED_ANONYMOUS = "shared-anonymous"  # MAP_SHARED without a file: /dev/zero (deleted)
    SYSV = "sysv"  # shmget: /SYSV<key> (deleted)
    POSIX = "posix"  # shm_open: a file in /dev/shm
    MEMFD = "memfd"
    HUGETLB = "hugetlb"  # pages of a huge page pool, however they were asked for
    LIBRARY = "library"  # programs and libraries
    MODEL = "model-file"  # model weights: a large mapped file
    FILE = "file"  # any other file
    DEVICE = "device"
    SPECIAL = "special"  # provided by the kernel: [vdso]

    @property
    def is_pool(self) -> bool:
        """Memory the process asked for itself: its placement is the process's own doing."""
        return self in _POOLS

    @property
    def is_file(self) -> bool:
        """Page cache: it lies where whoever read the file first had it put."""
        return self in (Kind.LIBRARY, Kind.MODEL, Kind.FILE)


_POOLS = (
    Kind.ANONYMOUS, Kind.HEAP, Kind.SHARED_ANONYMOUS, Kind.SYSV, Kind.POSIX, Kind.MEMFD,
    Kind.HUGETLB,
)  # fmt: skip


class Method(str, enum.Enum):
    """How it was found out where the pages of a mapping are."""

    SAMPLED = "sampled"  # move_pages asked about some pages
    EXACT = "exact"  # numa_maps: the kernel counted all pages
    PER_PAGE = "per-page"  # every page was asked about


class Policy(NamedTuple):
    """A memory policy.

    :ivar text: as the kernel writes it: ``bind=static:0-1``
    :ivar mode: default, local, prefer, prefer (many), bind, interleave, weighted interleave
    :ivar flags: static, relative, balancing
    :ivar nodes: those it names; not all of them if ``cut``
    :ivar cut: the kernel may have cut the text at 64 bytes
    :ivar understood: False for a form that is not known; then only ``text`` is to be relied on
    """

    text: str
    mode: str
    flags: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    cut: bool = False
    understood: bool = True

    @property
    def is_default(self) -> bool:
        """First touch: on the node of the CPU that touches a page first."""
        return self.mode in ("default", "local")


class Share(NamedTuple):
    """How much of something lies on one node. Sampled shares have a 95 % interval.

    :ivar bytes: resident there; estimated if sampled
    :ivar low: the least that is in the interval; equal to ``bytes`` if counted
    :ivar high: the most that is in the interval; equal to ``bytes`` if counted
    :ivar fraction: of the resident memory, 0 to 1
    """

    bytes: int
    low: int
    high: int
    fraction: float
    fraction_low: float
    fraction_high: float


class Mapping(NamedTuple):
    """A range of addresses of one process.

    :ivar start: first address
    :ivar end: the address after the last, or None when it is not known
    :ivar permissions: ``rw-s``; empty when not known
    :ivar offset: in the file, in bytes
    :ivar device: (major, minor) of the file system
    :ivar inode: 0 for memory without a file
    :ivar name: path, ``[heap]``, ``[anon:NAME]``, or empty
    """

    pid: int
    start: int
    end: int | None
    kind: Kind
    name: str = ""
    permissions: str = ""
    offset: int = 0
    device: tuple[int, int] = (0, 0)
    inode: int = 0

    @property
    def length(self) -> int | None:
        """Bytes of address space."""
        return None if self.end is None else self.end - self.start


class Attacher(NamedTuple):
    """A mapping of a shared segment by one process.

    :ivar policy: the one in force there, or None when it was not read
    :ivar bytes_by_node: node id to bytes that this process has in its page tables, if counted
    """

    pid: int
    start: int
    policy: Policy | None = None
    bytes_by_node: MappingOf[int, int] | None = None


class Cell(NamedTuple):
    """A part of the strip of a mapping: the pages seen there by node, and those not present."""

    nodes: MappingOf[int, int]
    absent: int = 0


class Placement(NamedTuple):
    """Where the pages of a mapping are; of a shared segment, once for all who attach it.

    :ivar policy: the one in force, or None when it was not read (``policy_unknown`` says why)
    :ivar page_size: in bytes, that of hugetlb pages for such
    :ivar by_node: node id to what lies there
    :ivar resident: bytes present
    :ivar samples: pages that were asked about
    :ivar run_length: consecutive bytes that stay on one node, on average, or None when not known
    :ivar strip: equal parts of the mapping in order, or empty when not known
    :ivar zero_bytes: only read so far, so that the shared page of zeros stands for them, or None
    :ivar swapped_bytes: swapped out, or None when not known
    :ivar thp_bytes: in transparent huge pages, or None when not known
    :ivar remarks: what to bear in mind about these figures
    """

    mapping: Mapping
    method: Method
    page_size: int
    by_node: MappingOf[int, Share]
    resident: int
    policy: Policy | None = None
    policy_unknown: str = ""
    samples: int = 0
    run_length: int | None = None
    strip: tuple[Cell, ...] = ()
    attachers: tuple[Attacher, ...] = ()
    zero_bytes: int | None = None
    swapped_bytes: int | None = None
    thp_bytes: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def bytes_by_node(self) -> dict[int, int]:
        return {node: share.bytes for node, share in self.by_node.items()}

    @property
    def fullest(self) -> int | None:
        """The node with most of it, or None when nothing is resident."""
        return max(self.by_node, key=lambda node: self.by_node[node].bytes, default=None)


class Remainder(NamedTuple):
    """Mappings of one kind that are too small to be listed, together.

    :ivar mappings: their number
    """

    kind: Kind
    mappings: int
    method: Method
    by_node: MappingOf[int, Share]
    resident: int
    samples: int = 0


class Thread(NamedTuple):
    """One thread. None where it could not be read.

    :ivar cpus: that it may run on
    :ivar nodes: that its cpuset allows memory from
    :ivar last_cpu: on which it ran last
    :ivar policy: its task policy
    """

    tid: int
    name: str
    cpus: tuple[int, ...] | None = None
    nodes: tuple[int, ...] | None = None
    last_cpu: int | None = None
    policy: Policy | None = None


class Process(NamedTuple):
    """One examined process. None where it could not be read; amounts in bytes.

    :ivar uid: real user id
    :ivar namespace_pids: its ids in nested pid namespaces, outermost first
    :ivar policy: task policy of its main thread
    :ivar mappings: their number
    :ivar resident: RSS and hugetlb pages
    :ivar minor_faults: page faults since its start that needed no reading
    :ivar problem: why it could not be examined, or empty
    """

    pid: int
    name: str
    uid: int | None = None
    namespace_pids: tuple[int, ...] = ()
    threads: int | None = None
    policy: Policy | None = None
    mappings: int | None = None
    resident: int | None = None
    swapped: int | None = None
    locked: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    migrated_pages: int | None = None
    problem: str = ""


class Cost(NamedTuple):
    """What the examination cost the examined processes.

    :ivar calls: system calls that took a process's mmap lock
    :ivar pages: that were asked about one by one
    :ivar longest: seconds of the longest of those calls: no mmap waited longer
    :ivar seconds: wall time of the examination
    """

    calls: int = 0
    pages: int = 0
    longest: float = 0.0
    seconds: float = 0.0


class ProcessPlacement(NamedTuple):
    """Where the memory of a process, or of a tree of processes, is.

    :ivar mappings: by resident bytes, most first; shared segments once
    :ivar remainders: the mappings smaller than asked for, by kind
    :ivar nodes: node id to what lies there in all
    :ivar method: the one that was used for the large mappings
    :ivar because: why that one was chosen
    :ivar page_size: of ordinary pages, in bytes
    :ivar thp_size: of transparent huge pages, in bytes, or None where the kernel has none
    :ivar seed: of the sample
    :ivar incomplete: what could not be examined, one line each
    :ivar remarks: what to bear in mind about the figures
    """

    processes: tuple[Process, ...]
    mappings: tuple[Placement, ...]
    remainders: tuple[Remainder, ...]
    nodes: MappingOf[int, Share]
    resident: int
    method: Method
    because: str
    cost: Cost
    page_size: int
    thp_size: int | None = None
    seed: int = 0
    incomplete: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def pid(self) -> int | None:
        """The first of the processes."""
        return self.processes[0].pid if self.processes else None


class Change(NamedTuple):
    """How one thing changed between two looks. Amounts in bytes.

    :ivar name: of the mapping, or its first address where it has none
    :ivar before: resident; 0 when it was not there
    :ivar after: resident; 0 when it is no longer there
    :ivar by_node: node id to what came to it (negative: left it)
    :ivar policy_before: text; empty when not known
    :ivar policy_after: text; empty when not known
    """

    kind: Kind
    name: str
    before: int
    after: int
    by_node: MappingOf[int, int]
    policy_before: str = ""
    policy_after: str = ""

    @property
    def moved(self) -> int:
        """Bytes that left a node while others gained as much."""
        gained = sum(delta for delta in self.by_node.values() if delta > 0)
        lost = -sum(delta for delta in self.by_node.values() if delta < 0)
        return min(gained, lost)


class Difference(NamedTuple):
    """What changed between two looks at the same processes.

    Changes that the intervals of a sample explain are left out. Counters are None where
    either look lacks them.

    :ivar nodes: node id to bytes before and after
    :ivar changes: most bytes first
    :ivar started: pids that are new
    :ivar ended: pids that are gone
    :ivar minor_faults: page faults in between, of processes that were there both times
    """

    before: int
    after: int
    nodes: MappingOf[int, tuple[int, int]]
    changes: tuple[Change, ...]
    started: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    minor_faults: int | None = None
    major_faults: int | None = None
    swapped: int | None = None
    migrated_pages: int | None = None
