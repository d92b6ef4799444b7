import ctypes
import errno
import mmap
from collections.abc import Callable

import pytest

from numadoctor.kernel import syscalls
from numadoctor.kernel.abi import CALLS, by_name
from numadoctor.kernel.nodemask import GET_MAXNODE, decode, encode, maxnode_for, read_buffer
from numadoctor.kernel.syscalls import Answer

live = pytest.mark.usefixtures("policy_calls")


def test_a_call_the_abi_has_no_number_for_is_answered_without_being_made() -> None:
    alpha = by_name("alpha")
    for name in ("mbind", "set_mempolicy", "get_mempolicy", "set_mempolicy_home_node"):
        assert syscalls.call(name, 0, 0, 0, 0, 0, 0, abi=alpha) == Answer(-1, errno.ENOSYS)


def test_arguments_reach_the_call_in_order_and_full_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[type, int]] = []

    def record(*arguments: "ctypes.c_long | ctypes.c_ulong") -> int:
        seen.extend((type(argument), argument.value) for argument in arguments)
        return 0

    monkeypatch.setattr(syscalls, "_syscall", record)
    top = (1 << 8 * ctypes.sizeof(ctypes.c_ulong)) - 1
    generic = by_name("aarch64")
    made: dict[str, Callable[..., Answer]] = {
        "mbind": syscalls.mbind,
        "set_mempolicy": syscalls.set_mempolicy,
        "get_mempolicy": syscalls.get_mempolicy,
        "set_mempolicy_home_node": syscalls.set_mempolicy_home_node,
        "move_pages": syscalls.move_pages,
        "migrate_pages": syscalls.migrate_pages,
    }
    widths = {
        "mbind": 6,
        "set_mempolicy": 3,
        "get_mempolicy": 5,
        "set_mempolicy_home_node": 4,
        "move_pages": 6,
        "migrate_pages": 4,
    }
    assert set(made) == set(CALLS)
    monkeypatch.setattr(syscalls, "current_abi", lambda: generic)
    for name, function in made.items():
        seen.clear()
        arguments = [top - index for index in range(widths[name])]
        assert function(*arguments) == (0, 0)
        assert seen == [
            (ctypes.c_long, generic.numbers[name]),
            *((ctypes.c_ulong, argument) for argument in arguments),
        ]


@live
def test_errno_is_that_of_the_call_and_zero_after_success() -> None:
    assert syscalls.set_mempolicy(99, 0, 0) == Answer(-1, errno.EINVAL)
    ctypes.set_errno(errno.EIO)
    assert syscalls.get_mempolicy(0, 0, 0, 0, 0) == Answer(0, 0)


@live
def test_a_policy_set_on_a_page_is_read_back() -> None:
    allowed = read_buffer()
    assert syscalls.get_mempolicy(0, ctypes.addressof(allowed), GET_MAXNODE, 0, 4) == (0, 0)
    node = decode(bytes(allowed))[0]
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    mask = encode([node])
    buffer = ctypes.create_string_buffer(mask, len(mask))
    bind = 2
    answer = syscalls.mbind(
        address, mmap.PAGESIZE, bind, ctypes.addressof(buffer), maxnode_for(mask)
    )
    assert answer == (0, 0)
    mode, nodes = ctypes.c_int(-1), read_buffer()
    answer = syscalls.get_mempolicy(
        ctypes.addressof(mode), ctypes.addressof(nodes), GET_MAXNODE, address, 2
    )
    assert answer == (0, 0)
    assert mode.value == bind
    assert decode(bytes(nodes)) == (node,)
    page[0] = 1
    pages, status = (ctypes.c_void_p * 1)(address), (ctypes.c_int * 1)(-1)
    answer = syscalls.move_pages(0, 1, ctypes.addressof(pages), 0, ctypes.addressof(status))
    assert answer == (0, 0)
    assert status[0] == node
