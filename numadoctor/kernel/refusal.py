"""Why the kernel refused a NUMA call: an errno turned into a cause and a next step.

One errno has many causes (EINVAL has eight). Each is found by looking at the
request and, where that is not enough, by asking the kernel something harmless.
"""

import ctypes
import errno
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from numadoctor.kernel import syscalls
from numadoctor.kernel.abi import CALLS
from numadoctor.kernel.forecast import predict_bind
from numadoctor.kernel.nodemask import GET_MAXNODE, Mask, decode, read_buffer, to_text
from numadoctor.kernel.process import has_seccomp_filter, mems_allowed

_MOVE_ALL: Final = 4
_MBIND_FLAGS: Final = 7
_BALANCING, _RELATIVE, _STATIC = 1 << 13, 1 << 14, 1 << 15
_MODE_FLAGS: Final = _BALANCING | _RELATIVE | _STATIC
_DEFAULT, _BIND, _LOCAL = 0, 2, 4
_MEMS_ALLOWED: Final = 4
_SINCE: Final = {
    5: "MPOL_PREFERRED_MANY is there since Linux 5.15",
    6: "MPOL_WEIGHTED_INTERLEAVE is there since Linux 6.9",
}


class Request(NamedTuple):
    """What was asked of the kernel, as far as its answer depends on it.

    :ivar mode: with its flags
    :ivar nodes: the nodes asked for; of ``migrate_pages`` the new ones
    :ivar start: address
    :ivar length: in bytes
    """

    call: str
    mode: int = 0
    nodes: tuple[int, ...] = ()
    start: int = 0
    length: int = 0
    flags: int = 0
    pid: int = 0
    maxnode: int = GET_MAXNODE


class PolicyError(OSError):
    """A NUMA call failed; the subclass says how, ``cause`` why and ``fix`` what helps.

    :ivar call: the call's name
    :ivar cause: why it failed
    :ivar fix: the next step
    """

    def __init__(self, call: str, number: int, cause: str, fix: str) -> None:
        super().__init__(number, cause)
        self.call, self.cause, self.fix = call, cause, fix

    def __str__(self) -> str:
        name = errno.errorcode.get(self.errno or 0, str(self.errno))
        return f"{self.call}: {name}: {self.cause}: {self.fix}"


class Filtered(PolicyError):
    """Somebody refused the call before the kernel saw it."""


class NoNuma(PolicyError):
    """The kernel is built without NUMA."""


class KernelTooOld(PolicyError):
    """The kernel does not know the call, the mode or the flag."""


class EmptyNodeSet(PolicyError):
    """No node is left after the kernel took away those that are not allowed."""


class OutsideCpuset(PolicyError):
    """A node lies outside the cpuset of the process."""


class NoSuchNode(PolicyError):
    """A node is not online, or beyond what the kernel can name."""


class BadRequest(PolicyError):
    """Mode, flags and nodes do not go together."""


class Unaligned(PolicyError):
    """The address is not a multiple of the page size."""


class RangeHole(PolicyError):
    """Part of the range is not mapped."""


class MaskTooShort(PolicyError):
    """The kernel has more nodes than the buffer has bits."""


class Misplaced(PolicyError):
    """Pages are on other nodes and could not be moved (MPOL_MF_STRICT)."""


class NothingBound(PolicyError):
    """The range has no policy that a home node could be added to."""


class NotPermitted(PolicyError):
    """The kernel itself asks for a right that this process lacks."""


class NoSuchProcess(PolicyError):
    """The process has ended, or never was."""


class NoMemory(PolicyError):
    """The kernel has no memory, or no mapping left, for what was asked."""


def refusal(request: Request, number: int) -> PolicyError:
    """The error for a call that failed with that errno."""
    rule = _RULES.get((request.call, number)) or _ANY_CALL.get(number)
    error = rule(request, number) if rule else None
    if error is not None:
        return error
    word = errno.errorcode.get(number, str(number))
    return PolicyError(
        request.call, number, f"the kernel answers {word}", "numadoctor syscalls tells more"
    )


_Rule = Callable[[Request, int], PolicyError | None]


def _filtered(request: Request, number: int) -> PolicyError:
    if has_seccomp_filter():
        who = "a seccomp filter refuses the call"
    else:
        who = "no seccomp filter is in force: a security module or a sandbox refuses the call"
    return Filtered(
        request.call, number, who, "numadoctor syscalls tells the smallest fix for each launcher"
    )


def _missing(request: Request, number: int) -> PolicyError:
    if not _kernel_has_numa():
        return NoNuma(
            request.call,
            number,
            "this kernel is built without NUMA",
            "go on without a policy: all memory is equally far",
        )
    if request.call != "set_mempolicy_home_node":
        return _filtered(request, number)
    cause = "the call is there since Linux 5.17"
    if has_seccomp_filter():
        cause += ", or the seccomp filter does not list it"
        return Filtered(request.call, number, cause, "numadoctor syscalls tells which")
    return KernelTooOld(request.call, number, cause, "bind without a home node")


def _refused_always(request: Request, number: int) -> bool:
    """Whether the call is answered so in its harmless form too, as no kernel does."""
    return request.call in CALLS and syscalls.harmless(request.call).errno == number


def _refused(request: Request, number: int) -> PolicyError:
    """EPERM: a filter's, unless the request is one that needs a right."""
    if _refused_always(request, number):
        return _filtered(request, number)
    if request.flags & _MOVE_ALL:
        return NotPermitted(
            request.call,
            number,
            "MPOL_MF_MOVE_ALL needs CAP_SYS_NICE, for it moves pages that others map too",
            "use MPOL_MF_MOVE, or start the process bound",
        )
    if request.call == "migrate_pages":
        allowed = _mems_allowed()
        if request.pid == 0 and allowed is not None and not set(request.nodes) <= set(allowed):
            return OutsideCpuset(
                request.call,
                number,
                f"node {to_text(request.nodes)} is asked for, Mems_allowed_list is "
                f"{to_text(allowed)}",
                "ask for allowed nodes, or widen the cpuset",
            )
    if request.pid:
        return NotPermitted(
            request.call,
            number,
            f"process {request.pid} is another's (no ptrace right), or a node lies outside its "
            "cpuset",
            "run as its user or with CAP_SYS_PTRACE, and ask for nodes it is allowed",
        )
    return _filtered(request, number)


def _invalid_policy(request: Request, number: int) -> PolicyError | None:
    """EINVAL of set_mempolicy and mbind."""
    call, mode, flags = request.call, request.mode & ~_MODE_FLAGS, request.mode & _MODE_FLAGS
    if error := _invalid_range(request, number):
        return error
    if request.flags & ~_MBIND_FLAGS:
        return BadRequest(
            call,
            number,
            f"flags {request.flags:#x} hold one that does not exist",
            "MPOL_MF_STRICT, MPOL_MF_MOVE and MPOL_MF_MOVE_ALL are all there are",
        )
    if flags & _STATIC and flags & _RELATIVE:
        return BadRequest(
            call,
            number,
            "MPOL_F_STATIC_NODES and MPOL_F_RELATIVE_NODES exclude each other",
            "leave one out",
        )
    if mode in (_DEFAULT, _LOCAL) and (request.nodes or flags):
        return BadRequest(
            call, number, "MPOL_DEFAULT and MPOL_LOCAL take no nodes and no flags", "leave them out"
        )
    if error := _unknown_mode(request, number):
        return error
    return _invalid_nodes(request, number)


def _invalid_range(request: Request, number: int) -> PolicyError | None:
    if request.start % mmap.PAGESIZE:
        return Unaligned(
            request.call,
            number,
            f"address {request.start:#x} is not a multiple of the page size ({mmap.PAGESIZE})",
            "align it; mmap gives aligned addresses, malloc does not",
        )
    if request.start + request.length > 1 << 8 * ctypes.sizeof(ctypes.c_ulong):
        return BadRequest(
            request.call,
            number,
            f"{request.length} bytes from {request.start:#x} go beyond the address space",
            "check the length, which is in bytes",
        )
    return None


def _unknown_mode(request: Request, number: int) -> PolicyError | None:
    """Tries the mode where it harms nothing: on a new page, with a node that is allowed."""
    mode, flags = request.mode & ~_MODE_FLAGS, request.mode & _MODE_FLAGS
    allowed = _mems_allowed()
    if mode in (_DEFAULT, _LOCAL) or not allowed:
        return None
    if _takes(mode, allowed[0]) is False:
        if mode in _SINCE:
            return KernelTooOld(
                request.call, number, _SINCE[mode], "use MPOL_BIND or MPOL_INTERLEAVE"
            )
        return BadRequest(
            request.call, number, f"mode {mode} is unknown to this kernel", "see set_mempolicy(2)"
        )
    if flags & _BALANCING and _takes(mode | _BALANCING, allowed[0]) is False:
        if _takes(_BIND | _BALANCING, allowed[0]):
            cause, fix = "MPOL_F_NUMA_BALANCING goes with MPOL_BIND here", "leave it out"
            return BadRequest(request.call, number, cause, fix)
        cause = "MPOL_F_NUMA_BALANCING is there since Linux 5.12"
        return KernelTooOld(request.call, number, cause, "leave it out")
    return None


def _takes(mode: int, node: int) -> bool | None:
    """Whether mbind takes the mode for a new page and one node; None when it is refused."""
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        first = ctypes.c_char.from_buffer(page)
        mask = Mask([node])
        failed = syscalls.mbind(
            ctypes.addressof(first), mmap.PAGESIZE, mode, mask.address, mask.maxnode
        ).errno
        del first  # or the map cannot be closed
    return {0: True, errno.EINVAL: False}.get(failed)


def _invalid_nodes(request: Request, number: int) -> PolicyError | None:
    call = request.call
    own = mems_allowed()
    if own is not None and any(node >= own.bits for node in request.nodes):
        return NoSuchNode(
            call,
            number,
            f"node {to_text(n for n in request.nodes if n >= own.bits)} is beyond the {own.bits} "
            "that this kernel can name",
            "see /sys/devices/system/node/online",
        )
    if request.mode & _RELATIVE and request.nodes:
        return None
    forecast = predict_bind(request.nodes, _mems_allowed())
    if forecast.errno is None:
        return None
    fix = "widen the cpuset (docker: --cpuset-mems), or ask for a node that is allowed"
    if not request.nodes:
        fix = "name at least one node"
    return EmptyNodeSet(call, number, forecast.because.rstrip("."), fix)


def _invalid_read(request: Request, number: int) -> PolicyError | None:
    """EINVAL of get_mempolicy."""
    if request.maxnode < GET_MAXNODE:
        return MaskTooShort(
            request.call,
            number,
            f"maxnode {request.maxnode} is below the number of nodes this kernel can have",
            f"read {GET_MAXNODE - 1} bits with maxnode {GET_MAXNODE}",
        )
    if request.flags & 3 == 1:
        return BadRequest(
            request.call,
            number,
            "the thread's policy is not MPOL_INTERLEAVE, so there is no next node",
            "ask for the node of an address",
        )
    return None


def _invalid_home(request: Request, number: int) -> PolicyError:
    """EINVAL of set_mempolicy_home_node."""
    return _invalid_range(request, number) or NoSuchNode(
        request.call,
        number,
        f"node {to_text(request.nodes)} is not online",
        "see /sys/devices/system/node/online",
    )


def _invalid_migration(request: Request, number: int) -> PolicyError | None:
    """EINVAL of migrate_pages."""
    return _invalid_nodes(request, number)


def _hole(request: Request, number: int) -> PolicyError:
    gap = _first_gap(request.start, request.start + max(request.length, 1))
    where = f"address {gap:#x}" if gap is not None else "part of the range"
    return RangeHole(
        request.call, number, f"{where} is not mapped", "set the policy of whole mappings only"
    )


def _first_gap(start: int, end: int) -> int | None:
    """The first address of a range that no mapping of this process holds."""
    with suppress(OSError), open("/proc/self/maps", "rb") as maps:
        for line in maps:
            first, last = (int(part, 16) for part in line.split(b" ", 1)[0].split(b"-"))
            if last <= start:
                continue
            if first > start:
                return start
            start = last
            if start >= end:
                return None
        return start
    return None


def _no_memory(request: Request, number: int) -> PolicyError:
    counts = _mapping_count()
    if counts is not None and counts[0] + 2 >= counts[1]:
        cause = (
            f"the policy would split a mapping, and this process has {counts[0]} of the "
            f"{counts[1]} that vm.max_map_count allows"
        )
        fix = "set one policy on one large range instead of many small ones"
        return NoMemory(request.call, number, cause, fix)
    return NoMemory(request.call, number, "the kernel has no memory for it", "free some")


def _mapping_count() -> tuple[int, int] | None:
    """Mappings of this process, and how many it may have."""
    with suppress(OSError, ValueError):
        with open("/proc/self/maps", "rb") as maps:
            count = sum(1 for _ in maps)
        with open("/proc/sys/vm/max_map_count", "rb") as limit:
            return count, int(limit.read())
    return None


def _misplaced(request: Request, number: int) -> PolicyError:
    return Misplaced(
        request.call,
        number,
        f"pages of the range are not on node {to_text(request.nodes)} and could not be moved",
        "add MPOL_MF_MOVE, or set the policy before the first touch",
    )


def _no_process(request: Request, number: int) -> PolicyError:
    return NoSuchProcess(
        request.call, number, f"there is no process {request.pid}", "check the process id"
    )


def _offline(request: Request, number: int) -> PolicyError:
    return NoSuchNode(
        request.call,
        number,
        f"one of node {to_text(request.nodes)} is not online or has no memory",
        "see /sys/devices/system/node/has_memory",
    )


def _outside(request: Request, number: int) -> PolicyError:
    """EACCES of move_pages."""
    if _refused_always(request, number):
        return _filtered(request, number)
    allowed = _mems_allowed()
    listed = "not known" if allowed is None else to_text(allowed)
    return OutsideCpuset(
        request.call,
        number,
        f"node {to_text(request.nodes)} is asked for, Mems_allowed_list is {listed}",
        "ask for allowed nodes, or widen the cpuset",
    )


def _no_policy(request: Request, number: int) -> PolicyError:
    return NothingBound(
        request.call, number, "the range has no policy of its own", "mbind it with MPOL_BIND first"
    )


def _wrong_policy(request: Request, number: int) -> PolicyError:
    return NothingBound(
        request.call,
        number,
        "a home node goes with MPOL_BIND and MPOL_PREFERRED_MANY only",
        "mbind the range with one of them first",
    )


_RULES: Final[dict[tuple[str, int], _Rule]] = {
    ("set_mempolicy", errno.EINVAL): _invalid_policy,
    ("mbind", errno.EINVAL): _invalid_policy,
    ("mbind", errno.EFAULT): _hole,
    ("mbind", errno.EIO): _misplaced,
    ("get_mempolicy", errno.EINVAL): _invalid_read,
    ("get_mempolicy", errno.EFAULT): _hole,
    ("migrate_pages", errno.EINVAL): _invalid_migration,
    ("move_pages", errno.ENODEV): _offline,
    ("move_pages", errno.EACCES): _outside,
    ("set_mempolicy_home_node", errno.EINVAL): _invalid_home,
    ("set_mempolicy_home_node", errno.ENOENT): _no_policy,
    ("set_mempolicy_home_node", errno.EOPNOTSUPP): _wrong_policy,
}
_ANY_CALL: Final[dict[int, _Rule]] = {
    errno.EPERM: _refused,
    errno.EACCES: _filtered,
    errno.ENOSYS: _missing,
    errno.ENOMEM: _no_memory,
    errno.ESRCH: _no_process,
}


def _kernel_has_numa() -> bool:
    # numa_maps is there with CONFIG_NUMA only (fs/proc/base.c). Without /proc
    # nothing speaks against it.
    try:
        with open("/proc/self/numa_maps", "rb"):
            return True
    except FileNotFoundError:
        return not _is_there("/proc/self/maps")
    except OSError:
        return True


def _is_there(path: str) -> bool:
    with suppress(OSError), open(path, "rb"):
        return True
    return False


def _mems_allowed() -> tuple[int, ...] | None:
    buffer = read_buffer()
    answer = syscalls.get_mempolicy(0, ctypes.addressof(buffer), GET_MAXNODE, 0, _MEMS_ALLOWED)
    return decode(bytes(buffer)) if answer.returned == 0 else None
