"""Nodemasks on a big-endian kernel with 66 nodes: what we encode is what the kernel reads.

Debian has no Python for this guest. Here the masks, their maxnode and the numbers of the calls are
made, for 64-bit and for 32-bit processes; there ``guest_calls.c`` makes the calls.
"""

import errno
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest

from numadoctor.host.parsers.numa_maps import parse_numa_maps
from numadoctor.kernel import abi, nodemask
from numadoctor.kernel.policy import GetFlag, MbindFlag, Mode
from tests.lab import cache, compiled
from tests.lab.guests import Guest, pack
from tests.lab.machines import BIG_ENDIAN

pytestmark = [pytest.mark.lab, pytest.mark.lab_full]

PAGE = 65536
NODES = len(BIG_ENDIAN.nodes)
# The ends of the first words, of 32 and of 64 bits, and of what the machine has.
TELLING = (0, 1, 31, 32, 33, 63, 64, NODES - 1)


class Process:
    """The first process of the guest, and how its architecture lays out memory.

    :param name: of its ABI
    """

    def __init__(self, name: str) -> None:
        self.abi = abi.by_name(name)
        pack(compiled.first_process(name), initrd := cache.scratch() / f"calls-{name}.cpio")
        self.guest = Guest(BIG_ENDIAN, initrd)

    def call(self, name: str, *arguments: int | bytes) -> tuple[int, list[bytes]]:
        """Make a call; its errno, 0 for none, and what its buffers then hold.

        :param arguments: numbers, and the content of buffers that end before an unreadable page
        """
        number = self.abi.numbers[name]
        words = (f"={a.hex()}" if isinstance(a, bytes) else str(a) for a in arguments)
        _, code, *buffers = self.guest.ask(f"call {number} {' '.join(words)}", name)
        return code, [bytes.fromhex(buffer) for buffer in buffers]

    def mask(self, *nodes: int) -> bytes:
        return nodemask.encode(nodes, self.abi.word_size, self.abi.byteorder)

    def nodes(self, mask: bytes) -> tuple[int, ...]:
        return nodemask.decode(mask, self.abi.word_size, self.abi.byteorder)

    def numbers(self, values: Iterable[int], size: int = 4) -> bytes:
        """An array of C's ``int``, or of another size."""
        return b"".join(value.to_bytes(size, self.abi.byteorder) for value in values)

    def policy(self) -> tuple[int, tuple[int, ...]]:
        """Mode and nodes of the process's policy."""
        code, (mode, mask) = self.call(
            "get_mempolicy", bytes(4), bytes(nodemask.GET_BITS // 8), nodemask.GET_MAXNODE, 0, 0
        )
        assert code == 0
        return int.from_bytes(mode, self.abi.byteorder), self.nodes(mask)

    def pages(self, count: int) -> int:
        """The address of that many new pages."""
        start: int = self.guest.ask(f"map {count}", "map")
        return start

    def touch(self, start: int, count: int) -> dict[int, int]:
        """Write to pages; how many are then on which node."""
        self.guest.ask(f"touch {start} {count}", "touch")
        return self.places(start, count)

    def places(self, start: int, count: int) -> dict[int, int]:
        """How many pages are on which node."""
        found: Counter[int] = Counter()
        # A 32-bit process may ask for 16 pages at a time: numadoctor.kernel.policy says why.
        for at in range(0, count, 16):
            found.update(self.statuses(start + at * PAGE, min(16, count - at), 0))
        return dict(found)

    def statuses(self, start: int, count: int, nodes: int | bytes) -> Sequence[int]:
        """What move_pages says of pages."""
        addresses = self.numbers((start + page * PAGE for page in range(count)), self.abi.word_size)
        code, buffers = self.call(
            "move_pages", 0, count, addresses, nodes, bytes(4 * count), MbindFlag.MOVE
        )
        assert code == 0
        status = buffers[-1]
        return [
            int.from_bytes(status[at : at + 4], self.abi.byteorder, signed=True)
            for at in range(0, len(status), 4)
        ]

    def read(self, path: str) -> bytes:
        return bytes.fromhex(self.guest.ask(f"read {path}", path))


@pytest.fixture(scope="module", params=["ppc64", "ppc"])
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    process = Process(request.param)
    yield process
    process.guest.stop()


def test_it_has_its_nodes(process: Process) -> None:
    assert (process.abi.word_size, process.abi.byteorder) == (
        {"ppc64": 8, "ppc": 4}[process.abi.name],
        "big",
    )
    assert process.read("/sys/devices/system/node/has_memory") == b"0-65\n"
    code, (mask,) = process.call(
        "get_mempolicy", 0, bytes(128), nodemask.GET_MAXNODE, 0, GetFlag.MEMS_ALLOWED
    )
    assert (code, process.nodes(mask)) == (0, tuple(range(NODES)))


@pytest.mark.parametrize(
    "nodes", [*((node,) for node in TELLING), (0, 33, 65), (31, 32, 63, 64), tuple(range(NODES))]
)
def test_a_mask_is_read_as_it_was_encoded(process: Process, nodes: tuple[int, ...]) -> None:
    mask = process.mask(*nodes)
    code, _ = process.call("set_mempolicy", Mode.BIND, mask, nodemask.maxnode_for(mask))
    assert (code, process.policy()) == (0, (Mode.BIND, nodes))
    assert process.call("set_mempolicy", Mode.DEFAULT, 0, 0)[0] == 0


@pytest.mark.parametrize("node", TELLING)
def test_pages_lie_where_they_were_bound(process: Process, node: int) -> None:
    start = process.pages(8)
    mask = process.mask(node)
    code, _ = process.call("mbind", start, 8 * PAGE, Mode.BIND, mask, nodemask.maxnode_for(mask), 0)
    assert (code, process.touch(start, 8)) == (0, {node: 8})
    (told,) = (
        line.pages
        for line in parse_numa_maps(process.read("/proc/self/numa_maps")).lines
        if line.start == start
    )
    assert (told.policy, dict(told.nodes)) == (f"bind:{node}", {node: 8})


def test_interleaved_pages_are_split_evenly(process: Process) -> None:
    start = process.pages(4 * NODES)
    mask = process.mask(*range(NODES))
    code, _ = process.call(
        "mbind", start, 4 * NODES * PAGE, Mode.INTERLEAVE, mask, nodemask.maxnode_for(mask), 0
    )
    assert code == 0
    assert process.touch(start, 4 * NODES) == dict.fromkeys(range(NODES), 4)


def test_a_little_endian_mask_names_another_node(process: Process) -> None:
    """The mistake of an array of bytes: accepted, where the machine has that other node."""
    mask = nodemask.encode([0], process.abi.word_size, "little")
    other = {8: 56, 4: 24}[process.abi.word_size]
    start = process.pages(8)
    code, _ = process.call("mbind", start, 8 * PAGE, Mode.BIND, mask, nodemask.maxnode_for(mask), 0)
    assert (code, process.touch(start, 8)) == (0, {other: 8})


def test_maxnode_is_bits_plus_one(process: Process) -> None:
    bits = 8 * process.abi.word_size
    mask = process.mask(0, bits - 1)
    answers = {
        maxnode: process.call("set_mempolicy", Mode.BIND, mask, maxnode)[0]
        for maxnode in (1, bits + 2, 2 * bits)
    }
    assert answers == {1: errno.EINVAL, bits + 2: errno.EFAULT, 2 * bits: errno.EFAULT}
    for maxnode, nodes in ((bits, (0,)), (bits + 1, (0, bits - 1))):
        code, _ = process.call("set_mempolicy", Mode.BIND, mask, maxnode)
        assert (code, process.policy()) == (0, (Mode.BIND, nodes))
    assert process.call("set_mempolicy", Mode.DEFAULT, 0, 0)[0] == 0


def test_pages_are_moved(process: Process) -> None:
    start = process.pages(8)
    mask = process.mask(1)
    bind = process.call("mbind", start, 8 * PAGE, Mode.BIND, mask, nodemask.maxnode_for(mask), 0)
    assert (bind[0], process.touch(start, 8)) == (0, {1: 8})
    assert process.call("mbind", start, 8 * PAGE, Mode.DEFAULT, 0, 0, 0)[0] == 0
    assert process.statuses(start, 8, process.numbers([65] * 8)) == [65] * 8
    assert process.places(start, 8) == {65: 8}
    old, new = process.mask(0, 65), process.mask(63, 64)
    code, _ = process.call("migrate_pages", 0, nodemask.maxnode_for(old), old, new)
    assert (code, process.places(start, 8)) == (0, {64: 8})


def test_a_home_node_is_filled_first(process: Process) -> None:
    start = process.pages(8)
    mask = process.mask(33, 65)
    bind = process.call("mbind", start, 8 * PAGE, Mode.BIND, mask, nodemask.maxnode_for(mask), 0)
    assert bind[0] == 0
    assert process.call("set_mempolicy_home_node", start, 8 * PAGE, 65, 0)[0] == 0
    assert process.touch(start, 8) == {65: 8}
