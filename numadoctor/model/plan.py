"""A plan: what each instance of an engine is to have, why, and how to start it that way.

Not loaded by ``numadoctor.model`` itself: most commands do without it. Named tuples, whose
classes are made in a tenth of the time. None means "not stated": of such a part nothing is
expected.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class PoolPolicy(str, enum.Enum):
    """The memory policy of an instance's pool, in the words of numactl and the allocator."""

    LOCAL = "local"  # first touch: no policy
    PREFERRED = "preferred"
    BIND = "bind"
    INTERLEAVE = "interleave"
    WEIGHTED = "weighted-interleave"

    @property
    def is_strict(self) -> bool:
        """Whether memory that is not on its nodes cannot be had at all."""
        return self is PoolPolicy.BIND

    @property
    def spreads(self) -> bool:
        """Whether the pool goes round over its nodes, page by page."""
        return self in (PoolPolicy.INTERLEAVE, PoolPolicy.WEIGHTED)


class PoolBacking(str, enum.Enum):
    """What a pool is made of."""

    PRIVATE = "private"  # anonymous, of one process
    SHARED = "shared"  # anonymous, shared with children
    POSIX = "posix"  # a file in /dev/shm
    SYSV = "sysv"
    MEMFD = "memfd"
    HUGETLB = "hugetlb"  # pages of a huge page pool, however they are asked for


class Instance(NamedTuple):
    """What one instance is to have.

    :ivar gpus: PCI addresses, UUIDs or indices in bus order
    :ivar pool_size: of its pool in host memory, in bytes
    :ivar page_size: of the pool's pages, in bytes
    :ivar nodes: memory nodes of the pool
    :ivar shares: node id to bytes of the pool there, where they are not equal
    :ivar nics: PCI addresses, network interfaces or RDMA devices
    :ivar match: text that its command line holds and those of the others do not, or empty
    """

    name: str
    gpus: tuple[str, ...] | None = None
    pool_size: int | None = None
    backing: PoolBacking | None = None
    page_size: int | None = None
    policy: PoolPolicy | None = None
    nodes: tuple[int, ...] | None = None
    cpus: tuple[int, ...] | None = None
    nics: tuple[str, ...] | None = None
    shares: Mapping[int, int] = MappingProxyType({})
    match: str = ""

    @property
    def needs(self) -> dict[int, int]:
        """Node id to bytes of the pool there, in whole pages; empty if that is not stated."""
        if self.shares:
            return dict(self.shares)
        if not self.pool_size or not self.nodes:
            return {}
        unit = self.page_size or 1
        each, rest = divmod(-(-self.pool_size // unit), len(self.nodes))
        return {
            node: (each + (place < rest)) * unit for place, node in enumerate(sorted(self.nodes))
        }

    @property
    def data(self) -> dict[str, Any]:
        """As JSON data under the names that a person writes; what is not stated is null."""
        return {
            "name": self.name,
            "gpus": _listed(self.gpus),
            "pool_size": self.pool_size,
            "backing": self.backing.value if self.backing else None,
            "page_size": self.page_size,
            "policy": self.policy.value if self.policy else None,
            "nodes": _listed(self.nodes),
            "cpus": _listed(self.cpus),
            "nics": _listed(self.nics),
            "shares": {str(node): size for node, size in self.shares.items()} or None,
            "match": self.match or None,
        }


def _listed(values: tuple[Any, ...] | None) -> list[Any] | None:
    return None if values is None else list(values)


class Plan(NamedTuple):
    """What a deployment intends.

    :ivar source: the file it came from, or the command that made it
    """

    instances: tuple[Instance, ...]
    source: str = "plan"


class PlannedGpu(NamedTuple):
    """A GPU of the machine as a plan names it.

    :ivar number: its place among the GPUs of its model in bus order, or -1: of another model
    :ivar node: None where unknown
    :ivar uuid: as its driver tells it, or empty
    """

    address: str
    number: int
    node: int | None
    node_source: str
    model: str = ""
    uuid: str = ""


class Snippet(NamedTuple):
    """How to start an instance, or to prepare the machine, for one launcher.

    :ivar notes: what it cannot do, or what to bear in mind, one sentence each
    """

    launcher: str
    text: str
    notes: tuple[str, ...] = ()


class HugePages(NamedTuple):
    """Huge pages that a node must have for the plan. Counts of pages.

    :ivar free: there now, that nobody holds
    :ivar total: in the pool of the node, so many are to be in it if the plan is to work
    """

    node: int
    page_size: int
    needed: int
    free: int
    total: int


class Chosen(NamedTuple):
    """An instance, and how it came to be so.

    :ivar why: a sentence for each choice
    :ivar given_up: what is less than ideal, and why it could not be had
    :ivar assumed: what is not known and was taken for something
    """

    instance: Instance
    gpus: tuple[PlannedGpu, ...]
    why: tuple[str, ...]
    given_up: tuple[str, ...]
    assumed: tuple[str, ...]
    snippets: tuple[Snippet, ...] = ()


class NodeBudget(NamedTuple):
    """What a plan takes of a node. Bytes; ``available`` is None where it cannot be read.

    :ivar available: free and reclaimable, less what the kernel keeps
    :ivar left_out: why its memory is not used, or empty
    """

    node: int
    kind: str
    available: int | None
    planned: int
    left_out: str = ""


class Proposal(NamedTuple):
    """The plan that was chosen for a machine.

    :ivar reserved_cpus: left to interrupts, the kernel's threads and the router
    :ivar proven: no other choice of GPUs is better; False where not all could be looked at
    :ivar compared: how many choices of GPUs were compared
    :ivar remarks: on the machine, one sentence each
    :ivar prepare: commands for the machine, before anything starts
    """

    host: str
    chosen: tuple[Chosen, ...]
    nodes: tuple[NodeBudget, ...]
    reserved_cpus: tuple[int, ...]
    huge_pages: tuple[HugePages, ...]
    proven: bool
    compared: int
    remarks: tuple[str, ...] = ()
    prepare: tuple[Snippet, ...] = ()

    @property
    def plan(self) -> Plan:
        """The plan alone, as ``check --expect`` takes it."""
        return Plan(tuple(one.instance for one in self.chosen))

    @property
    def assumed(self) -> bool:
        """Whether something was taken for known that is not."""
        return any(one.assumed for one in self.chosen)


class Refusal(NamedTuple):
    """Why there is no plan.

    :ivar reason: what does not fit, with the numbers: one sentence
    :ivar details: the numbers in full, one line each
    :ivar advice: what would fit, one line each
    """

    host: str
    reason: str
    details: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
