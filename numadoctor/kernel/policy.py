"""Memory policies: the six calls with names for their modes and flags, and errors that say why.

Every function makes its call at once, in this thread. Where a filter may kill
the caller, ask ``numadoctor.kernel.probe.probe_calls`` first. After a policy is
set it is read back, because the kernel drops nodes without a word.
"""

import ctypes
import enum
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from numadoctor.kernel import syscalls
from numadoctor.kernel.nodemask import (
    GET_MAXNODE,
    WORD_SIZE,
    Mask,
    decode,
    encode,
    read_buffer,
    to_text,
)
from numadoctor.kernel.refusal import PolicyError, Request, refusal
from numadoctor.kernel.syscalls import Answer

__all__ = [
    "Applied",
    "GetFlag",
    "MbindFlag",
    "Mode",
    "ModeFlag",
    "Policy",
    "PolicyError",
    "get_mempolicy",
    "mbind",
    "mems_allowed",
    "migrate_pages",
    "move_pages",
    "next_interleave_node",
    "node_of",
    "pages_on",
    "policy_of",
    "set_mempolicy",
    "set_mempolicy_home_node",
]


class Mode(enum.IntEnum):
    """Modes of a policy (include/uapi/linux/mempolicy.h)."""

    DEFAULT = 0
    PREFERRED = 1
    BIND = 2
    INTERLEAVE = 3
    LOCAL = 4  # since Linux 3.8
    PREFERRED_MANY = 5  # since Linux 5.15
    WEIGHTED_INTERLEAVE = 6  # since Linux 6.9


class ModeFlag(enum.IntFlag):
    """Flags that are added to a mode."""

    NUMA_BALANCING = 1 << 13  # since Linux 5.12
    RELATIVE_NODES = 1 << 14
    STATIC_NODES = 1 << 15


class GetFlag(enum.IntFlag):
    """Flags of ``get_mempolicy``."""

    NODE = 1
    ADDR = 2
    MEMS_ALLOWED = 4


class MbindFlag(enum.IntFlag):
    """Flags of ``mbind``; MOVE and MOVE_ALL also of ``move_pages``."""

    STRICT = 1
    MOVE = 2
    MOVE_ALL = 4


_MODE_FLAGS: Final = int(ModeFlag.NUMA_BALANCING | ModeFlag.RELATIVE_NODES | ModeFlag.STATIC_NODES)
# A 64-bit kernel looks up the pages of a 32-bit process 16 at a time and then steps
# over 32 of them, from 5b1b561ba73c (2021) to "mm/migrate: Fix do_pages_stat in
# 32-bit mode" (2025).
_QUERY_CHUNK: Final = 16 if WORD_SIZE == 4 else 1 << 20
_NO_FLAG: Final = ModeFlag(0)
# As mpol_to_str() of mm/mempolicy.c writes them in numa_maps.
_NAMES: Final = {
    0: "default",
    1: "prefer",
    2: "bind",
    3: "interleave",
    4: "local",
    5: "prefer (many)",
    6: "weighted interleave",
}
_FLAG_NAMES: Final = (
    (ModeFlag.STATIC_NODES, "static"),
    (ModeFlag.RELATIVE_NODES, "relative"),
    (ModeFlag.NUMA_BALANCING, "balancing"),
)


class Policy(NamedTuple):
    """A memory policy.

    :ivar mode: a ``Mode``, or the number of one that is newer than this table
    :ivar nodes: node ids, ascending
    """

    mode: int
    nodes: tuple[int, ...] = ()
    flags: ModeFlag = _NO_FLAG

    @classmethod
    def of(cls, mode: int, nodes: Iterable[int] = (), flags: int = 0) -> "Policy":
        """A policy from numbers, its nodes in order and each once."""
        number = operator.index(mode)
        known = Mode(number) if number in _NAMES else number
        return cls(known, tuple(sorted(set(nodes))), ModeFlag(flags))

    @property
    def raw_mode(self) -> int:
        """Mode and flags as the calls take them."""
        return int(self.mode) | int(self.flags)

    def __str__(self) -> str:
        """As in numa_maps: ``bind=static:0-1``."""
        flags = "|".join(name for flag, name in _FLAG_NAMES if self.flags & flag)
        text = _NAMES.get(int(self.mode), f"mode {int(self.mode)}") + (f"={flags}" if flags else "")
        return f"{text}:{to_text(self.nodes)}" if self.nodes else text


class Applied(NamedTuple):
    """What the kernel made of a policy that it accepted.

    :ivar asked: what was wanted
    :ivar policy: what ``get_mempolicy`` says is in force; None where it is refused
    :ivar nodes: the nodes that pages will come from; None where that is not known
    :ivar because: why ``nodes`` differ from what was asked; empty where they do not
    """

    asked: Policy
    policy: Policy | None
    nodes: tuple[int, ...] | None
    because: str = ""

    @property
    def narrowed(self) -> bool:
        """Whether the kernel uses fewer nodes than were asked for."""
        return self.nodes is not None and len(self.nodes) < len(self.asked.nodes)

    @property
    def dropped(self) -> tuple[int, ...]:
        """Nodes asked for that the kernel left out; those of a relative set have no such name."""
        if self.nodes is None or self.asked.flags & ModeFlag.RELATIVE_NODES:
            return ()
        return tuple(node for node in self.asked.nodes if node not in self.nodes)


def set_mempolicy(mode: int, nodes: Iterable[int] = (), flags: int = 0) -> Applied:
    """Sets the policy of the calling thread, for pages it touches from now on.

    :raises PolicyError: the subclass says why
    :raises ParseError: for an id that is no node id
    """
    policy = Policy.of(mode, nodes, flags)
    mask = Mask(policy.nodes)
    answer = syscalls.set_mempolicy(policy.raw_mode, mask.address, mask.maxnode)
    _check(answer, Request("set_mempolicy", mode=policy.raw_mode, nodes=policy.nodes))
    return _read_back(policy, get_mempolicy)


def mbind(
    start: int,
    length: int,
    mode: int,
    nodes: Iterable[int] = (),
    mode_flags: int = 0,
    flags: int = 0,
) -> Applied:
    """Sets the policy of a range of addresses, for pages touched in it from now on.

    Pages that are there already stay, unless ``flags`` says MOVE.

    :param start: address, a multiple of the page size
    :param length: in bytes; rounded up to whole pages by the kernel
    :raises PolicyError: the subclass says why
    :raises ParseError: for an id that is no node id
    """
    policy = Policy.of(mode, nodes, mode_flags)
    mask = Mask(policy.nodes)
    answer = syscalls.mbind(start, length, policy.raw_mode, mask.address, mask.maxnode, int(flags))
    request = Request(
        "mbind",
        mode=policy.raw_mode,
        nodes=policy.nodes,
        start=start,
        length=length,
        flags=int(flags),
    )
    _check(answer, request)
    if length == 0:
        return Applied(policy, None, None)
    return _read_back(policy, lambda: policy_of(start))


def get_mempolicy(maxnode: int = GET_MAXNODE) -> Policy:
    """The policy of the calling thread.

    :param maxnode: bits to read + 1; the kernel refuses fewer than it has nodes
    :raises PolicyError: the subclass says why
    """
    return _get_policy(0, 0, maxnode)


def policy_of(address: int) -> Policy:
    """The policy that acts at an address: its own, or else the thread's.

    :raises PolicyError: the subclass says why
    """
    return _get_policy(address, GetFlag.ADDR, GET_MAXNODE)


def mems_allowed() -> tuple[int, ...]:
    """The nodes that the cpuset of the calling thread allows.

    :raises PolicyError: the subclass says why
    """
    buffer = read_buffer()
    answer = syscalls.get_mempolicy(
        0, ctypes.addressof(buffer), GET_MAXNODE, 0, GetFlag.MEMS_ALLOWED
    )
    _check(answer, Request("get_mempolicy", flags=int(GetFlag.MEMS_ALLOWED)))
    return decode(bytes(buffer))


def node_of(address: int) -> int:
    """The node of the page at an address of this process. A page not yet there is faulted in.

    :raises PolicyError: the subclass says why
    """
    return _get_node(address, GetFlag.NODE | GetFlag.ADDR)


def next_interleave_node() -> int:
    """The node that the calling thread's next interleaved page comes from.

    :raises PolicyError: its policy is not INTERLEAVE, or the call is refused
    """
    return _get_node(0, GetFlag.NODE)


def move_pages(
    addresses: Sequence[int],
    nodes: Sequence[int],
    *,
    pid: int = 0,
    move_all: bool = False,
) -> tuple[int, ...]:
    """Moves each page to the node beside it; the status of each afterwards.

    :param pid: 0 for this process; another needs the ptrace right
    :param move_all: also pages that other processes map (CAP_SYS_NICE)
    :returns: for each page its node, or a negative errno: ENOENT not present,
        EFAULT a zero page or not mapped, EBUSY busy, EACCES mapped by others
    :raises PolicyError: the subclass says why
    :raises ValueError: when the two sequences differ in length
    """
    if len(addresses) != len(nodes):
        raise ValueError(f"{len(addresses)} pages and {len(nodes)} nodes")
    return _move_pages(addresses, nodes, pid, MbindFlag.MOVE_ALL if move_all else MbindFlag.MOVE)


def pages_on(addresses: Sequence[int], *, pid: int = 0) -> tuple[int, ...]:
    """The node of each page, or a negative errno as in ``move_pages``. Moves nothing.

    The kernel holds the mmap lock for 16 pages at a time; ask for few pages at a
    time of a process that must not be held up.

    :param pid: 0 for this process; another needs the ptrace right
    :raises PolicyError: the subclass says why
    """
    places: list[int] = []
    for at in range(0, len(addresses), _QUERY_CHUNK):
        places += _move_pages(addresses[at : at + _QUERY_CHUNK], None, pid, MbindFlag(0))
    return tuple(places)


def migrate_pages(old: Iterable[int], new: Iterable[int], *, pid: int = 0) -> int:
    """Moves all pages of a process from the old nodes to the new; how many could not be moved.

    :param pid: 0 for this process; another needs the ptrace right
    :raises PolicyError: the subclass says why
    :raises ParseError: for an id that is no node id
    """
    old, new = sorted(set(old)), sorted(set(new))
    # The call takes one maxnode for both masks: the shorter is filled up.
    masks = [encode(nodes) for nodes in (old, new)]
    size = max(map(len, masks))
    buffers = [ctypes.create_string_buffer(mask.ljust(size, b"\0"), max(size, 1)) for mask in masks]
    answer = syscalls.migrate_pages(pid, 8 * size + 1, *map(ctypes.addressof, buffers))
    _check(answer, Request("migrate_pages", nodes=tuple(new), pid=pid))
    return answer.returned


def set_mempolicy_home_node(start: int, length: int, node: int) -> None:
    """Sets the node that a range under BIND or PREFERRED_MANY is filled from first.

    :param start: address, a multiple of the page size
    :param length: in bytes
    :raises PolicyError: the subclass says why
    :raises ParseError: for an id that is no node id
    """
    encode([node])
    answer = syscalls.set_mempolicy_home_node(start, length, node)
    _check(
        answer,
        Request("set_mempolicy_home_node", nodes=(node,), start=start, length=length),
    )


def _check(answer: Answer, request: Request) -> None:
    if answer.returned < 0:
        raise refusal(request, answer.errno)


def _get_policy(address: int, flags: int, maxnode: int) -> Policy:
    mode, buffer = ctypes.c_int(-1), read_buffer()
    answer = syscalls.get_mempolicy(
        ctypes.addressof(mode), ctypes.addressof(buffer), min(maxnode, GET_MAXNODE), address, flags
    )
    _check(answer, Request("get_mempolicy", start=address, flags=int(flags), maxnode=maxnode))
    raw = mode.value
    return Policy.of(raw & ~_MODE_FLAGS, decode(bytes(buffer)), raw & _MODE_FLAGS)


def _get_node(address: int, flags: int) -> int:
    node = ctypes.c_int(-1)
    answer = syscalls.get_mempolicy(ctypes.addressof(node), 0, 0, address, flags)
    _check(answer, Request("get_mempolicy", start=address, flags=int(flags)))
    return node.value


def _move_pages(
    addresses: Sequence[int], nodes: Sequence[int] | None, pid: int, flags: MbindFlag
) -> tuple[int, ...]:
    count = len(addresses)
    pages = (ctypes.c_void_p * count)(*map(operator.index, addresses))
    status = (ctypes.c_int * count)()
    targets = None
    if nodes is not None:
        encode(nodes)
        targets = (ctypes.c_int * count)(*map(operator.index, nodes))
    answer = syscalls.move_pages(
        pid,
        count,
        ctypes.addressof(pages),
        ctypes.addressof(targets) if targets is not None else 0,
        ctypes.addressof(status),
        int(flags),
    )
    _check(
        answer,
        Request("move_pages", nodes=tuple(nodes or ()), pid=pid, flags=int(flags)),
    )
    return tuple(status)


def _read_back(asked: Policy, read: Callable[[], Policy]) -> Applied:
    """What is in force after ``asked`` was accepted."""
    try:
        policy = read()
        allowed = mems_allowed()
    except PolicyError as error:
        return Applied(asked, None, None, f"it cannot be read back: {error.cause}")
    if asked.mode in (Mode.DEFAULT, Mode.LOCAL):
        return Applied(asked, policy, ())
    # A policy with flags is read back as it was asked for, not as it acts
    # (mpol_store_user_nodemask() in mm/mempolicy.c).
    if asked.flags & ModeFlag.RELATIVE_NODES:
        nodes = relative_nodes(asked.nodes, allowed)
    else:
        nodes = tuple(node for node in policy.nodes if node in allowed)
    if asked.mode is Mode.PREFERRED:
        nodes = nodes[:1]
    return Applied(asked, policy, nodes, _why_narrowed(asked, nodes, allowed))


def _why_narrowed(asked: Policy, nodes: tuple[int, ...], allowed: tuple[int, ...]) -> str:
    if len(nodes) >= len(asked.nodes):
        return ""
    if asked.mode is Mode.PREFERRED and nodes == asked.nodes[:1]:
        return f"MPOL_PREFERRED honours the first node only: {to_text(nodes)}"
    return (
        f"asked for node {to_text(asked.nodes)}, Mems_allowed_list is {to_text(allowed)}: "
        f"pages come from node {to_text(nodes)}"
    )


def relative_nodes(asked: Sequence[int], allowed: Sequence[int]) -> tuple[int, ...]:
    """The nodes that MPOL_F_RELATIVE_NODES makes of ``asked``: positions among those allowed.

    Positions beyond the last start again at the first (mpol_relative_nodemask(),
    bitmap_fold() and bitmap_onto() in the kernel).
    """
    places = sorted(allowed)
    return tuple(sorted({places[node % len(places)] for node in asked})) if places else ()
