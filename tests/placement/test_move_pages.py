import ctypes
import errno
import os
from collections.abc import Callable

import pytest

from numadoctor.kernel.syscalls import Answer
from numadoctor.model import Denied, Missing, Undecided, Unreadable, Vanished
from numadoctor.placement import move_pages as module
from numadoctor.placement.asker import Account
from numadoctor.placement.move_pages import PageAsker

Call = Callable[..., Answer]


class Kernel:
    """Answers move_pages: the node of a page is its number modulo 7. Keeps what was asked."""

    def __init__(self, failing: int = 0, own: int = 0) -> None:
        self.failing, self.own = failing, own
        self.batches: list[tuple[int, int]] = []

    def __call__(self, pid: int, count: int, pages: int, nodes: int, status: int) -> Answer:
        assert nodes == 0  # nothing is ever moved
        if error := self.own if pid == 0 else self.failing:
            return Answer(-1, error)
        self.batches.append((pid, count))
        for index in range(count):
            address = ctypes.c_void_p.from_address(pages + index * ctypes.sizeof(ctypes.c_void_p))
            node = ctypes.c_int.from_address(status + index * ctypes.sizeof(ctypes.c_int))
            node.value = (address.value or 0) // 4096 % 7
        return Answer(0, 0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(module, "move_pages", made)
    return made


def test_pages_are_asked_about_in_small_batches(kernel: Kernel) -> None:
    account = Account()
    asker = PageAsker(7, account, batch=64, pause=0)
    pages = [n * 4096 for n in range(1000, 1150)]
    assert asker.ask(pages) == [n % 7 for n in range(1000, 1150)]
    assert kernel.batches == [(7, 64), (7, 64), (7, 22)]
    assert (account.calls, account.pages) == (3, 150)
    assert 0 < account.longest < 10


def test_nothing_is_asked_with_no_call(kernel: Kernel) -> None:
    assert PageAsker(7).ask([]) == []
    assert kernel.batches == []


def test_there_is_a_pause_between_batches(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    PageAsker(7).ask([0] * 300)
    assert [count for _, count in kernel.batches] == [128, 128, 44]
    assert slept == [module.PAUSE] * 2
    assert 0.0001 <= module.PAUSE <= 0.0002


@pytest.mark.parametrize(
    ("failing", "own", "kind", "told"),
    [
        (errno.ESRCH, 0, Vanished, "No such process"),
        (errno.EINVAL, 0, Vanished, "Invalid"),
        (errno.EPERM, 0, Denied, "not permitted"),
        (errno.EPERM, errno.EPERM, Denied, "a system-call filter refuses move_pages"),
        (errno.ENOSYS, errno.ENOSYS, Missing, "no NUMA support"),
        (errno.ENOMEM, 0, Unreadable, "memory"),
    ],
)
def test_a_refusal_has_a_cause(
    kernel: Kernel, failing: int, own: int, kind: type[Undecided], told: str
) -> None:
    kernel.failing, kernel.own = failing, own
    asker = PageAsker(7)
    with pytest.raises(kind, match=told):
        asker.ask([4096])
    refusal = asker.can_ask()
    assert type(refusal) is kind
    assert "move_pages of pid 7" in str(refusal)


def test_who_may_ask_is_told_so_without_a_look_at_a_page(kernel: Kernel) -> None:
    assert PageAsker(7).can_ask() is None
    assert kernel.batches == [(7, 0)]


def test_addresses_beyond_our_own_pointers_are_not_cut(kernel: Kernel) -> None:
    with pytest.raises(Unreadable, match="32-bit"):
        PageAsker(7).ask([1 << 8 * ctypes.sizeof(ctypes.c_void_p)])
    assert kernel.batches == []


def test_this_process_may_ask_about_itself() -> None:
    refusal = PageAsker(os.getpid()).can_ask()
    if refusal:
        pytest.skip(f"move_pages does not work here: {refusal}")
    buffer = ctypes.create_string_buffer(b"1" * 4096)
    (node,) = PageAsker(0).ask([ctypes.addressof(buffer)])
    assert node >= 0
