"""The six NUMA system calls, raw: integers and addresses in, result and errno out.

No argument is judged here: the kernel is the judge. Every argument is passed as
the ``long`` or ``unsigned long`` that the kernel takes, so that none is cut to
32 bits by C's calling rules for variadic functions.
"""

import ctypes
import errno
from typing import Final, NamedTuple

from numadoctor.kernel.abi import Abi, current_abi
from numadoctor.kernel.process import libc

_syscall = libc.syscall
_syscall.restype = ctypes.c_long

# Arguments with which a call that reaches the kernel does nothing. No kernel
# answers them with anything but 0, EINVAL or EFAULT (mm/mempolicy.c, mm/migrate.c).
_HARMLESS: Final[dict[str, tuple[int, ...]]] = {
    "mbind": (0, 0, 0, 0, 0, 0),  # an empty range
    "set_mempolicy": (99, 0, 0),  # no such mode
    "get_mempolicy": (0, 0, 0, 0, 0),  # nothing is asked
    "set_mempolicy_home_node": (0, 0, -1, 0),  # no such node
    "move_pages": (0, 0, 0, 0, 0, 0),  # no pages
    "migrate_pages": (0, 0, 0, 0),  # to no node
}


class Answer(NamedTuple):
    """What the kernel (or whoever stands before it) answered.

    :ivar returned: the result; -1 when the call failed
    :ivar errno: why it failed; 0 when it did not
    """

    returned: int
    errno: int


def call(name: str, *arguments: int, abi: Abi | None = None) -> Answer:
    """Makes the call of that name, its arguments as ``unsigned long``.

    A call that the ABI has no number for is answered ENOSYS, as the kernel would.

    :raises UnknownAbi: when this process's ABI is not known and none is given
    """
    number = (abi or current_abi()).numbers[name]
    if number is None:
        return Answer(-1, errno.ENOSYS)
    ctypes.set_errno(0)
    returned = _syscall(ctypes.c_long(number), *map(ctypes.c_ulong, arguments))
    return Answer(returned, ctypes.get_errno() if returned == -1 else 0)


def harmless(name: str) -> Answer:
    """Makes the call in the form that changes nothing, to see who answers it.

    :raises UnknownAbi: when this process's ABI is not known
    """
    return call(name, *_HARMLESS[name])


def mbind(
    start: int, length: int, mode: int, nodemask: int, maxnode: int, flags: int = 0
) -> Answer:
    """``mbind(2)``: the policy of a range of addresses.

    :param start: page-aligned address
    :param length: in bytes
    :param nodemask: address of the mask, 0 for none
    :param maxnode: bits of the mask + 1 (see numadoctor.kernel.nodemask)
    """
    return call("mbind", start, length, mode, nodemask, maxnode, flags)


def set_mempolicy(mode: int, nodemask: int, maxnode: int) -> Answer:
    """``set_mempolicy(2)``: the policy of the calling thread.

    :param nodemask: address of the mask, 0 for none
    :param maxnode: bits of the mask + 1
    """
    return call("set_mempolicy", mode, nodemask, maxnode)


def get_mempolicy(mode: int, nodemask: int, maxnode: int, address: int, flags: int) -> Answer:
    """``get_mempolicy(2)``: the policy of the thread or an address, or the node of a page.

    :param mode: address of an ``int`` for the answer, 0 for none
    :param nodemask: address of a buffer of at least ``maxnode`` - 1 bits, in whole 64-bit units
    """
    return call("get_mempolicy", mode, nodemask, maxnode, address, flags)


def set_mempolicy_home_node(start: int, length: int, home_node: int, flags: int = 0) -> Answer:
    """``set_mempolicy_home_node(2)``, since Linux 5.17: where a bound range is filled first.

    :param length: in bytes
    """
    return call("set_mempolicy_home_node", start, length, home_node, flags)


def move_pages(pid: int, count: int, pages: int, nodes: int, status: int, flags: int = 0) -> Answer:
    """``move_pages(2)``: moves pages, or asks where they are when ``nodes`` is 0.

    :param pid: 0 for this process
    :param count: number of pages
    :param pages: address of an array of addresses
    :param nodes: address of an array of ``int``, 0 to ask only
    :param status: address of an array of ``int`` for the answers
    """
    return call("move_pages", pid, count, pages, nodes, status, flags)


def migrate_pages(pid: int, maxnode: int, old_nodes: int, new_nodes: int) -> Answer:
    """``migrate_pages(2)``: moves all pages of a process from some nodes to others.

    :param pid: 0 for this process
    :param old_nodes: address of a mask
    :param new_nodes: address of a mask
    """
    return call("migrate_pages", pid, maxnode, old_nodes, new_nodes)
