"""What is learnt from files of another process: policies of segments, swap, huge pages, devices."""

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from numadoctor.host import Host
from numadoctor.kernel.policy import Mode, PolicyError
from numadoctor.model import Missing
from numadoctor.model.placement import Kind, Mapping
from numadoctor.placement import pagemap
from numadoctor.placement.huge import huge_page_devices
from numadoctor.placement.pagemap import Pagemap, PageStates
from numadoctor.placement.shared_policy import shared_policy
from tests.lab import guest_victims as victims
from tests.lab.guest_victims import MIB, PAGE, Memory
from tests.memory import MemoryRoot
from tests.placement.test_live import WHY_NOT

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def mapping_of(memory: Memory, kind: Kind) -> Mapping:
    """The line of maps that begins there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, offset, device, inode, *name = line.split(maxsplit=5)
        start, end = (int(part, 16) for part in addresses.split("-"))
        if start == memory.start:
            major, minor = (int(part, 16) for part in device.split(":"))
            return Mapping(
                os.getpid(), start, end, kind, name[0] if name else "", "rw-s", int(offset, 16),
                (major, minor), int(inode),
            )  # fmt: skip
    raise LookupError(f"{memory.start:x}")


def bound(memory: Memory, mode: Mode) -> Memory:
    try:
        return memory.bind(mode, [0])
    except PolicyError as error:
        pytest.skip(f"no policy can be set here: {error}")


@pytest.fixture
def segment() -> tuple[Memory, Mapping]:
    memory = victims.posix(f"numadoctor-{os.getpid()}", 4 * MIB)
    mapping = mapping_of(memory, Kind.POSIX)
    return memory, mapping


@pytest.fixture(autouse=True)
def _nothing_is_left() -> None:
    for file in Path("/dev/shm").glob(f"numadoctor-{os.getpid()}"):
        file.unlink()


def test_the_policy_of_a_segment_shows_in_our_own_mapping(
    segment: tuple[Memory, Mapping],
) -> None:
    memory, mapping = segment
    policy = shared_policy(mapping, PAGE)
    assert policy is not None
    assert policy.mode == "default"
    bound(memory, Mode.INTERLEAVE)
    policy = shared_policy(mapping, PAGE)
    assert policy is not None
    assert policy.text == "interleave:0"
    # Looking brought no page in.
    assert os.stat(mapping.name).st_blocks == 0


def test_a_policy_on_a_part_is_mixed(segment: tuple[Memory, Mapping]) -> None:
    memory, mapping = segment
    bound(memory.part(0, 1, 2), Mode.BIND)
    assert shared_policy(mapping, PAGE) is None


def test_a_memfd_is_found_among_the_open_files() -> None:
    memory = victims.memfd("numadoctor-test", 2 * MIB)
    bound(memory, Mode.BIND)
    policy = shared_policy(mapping_of(memory, Kind.MEMFD), PAGE)
    assert policy is not None
    assert policy.text == "bind:0"


def test_another_file_of_the_same_name_is_not_taken_for_it(
    segment: tuple[Memory, Mapping],
) -> None:
    _, mapping = segment
    assert shared_policy(mapping._replace(inode=mapping.inode + 1, end=None), PAGE) is None
    assert shared_policy(mapping._replace(device=(255, 255), end=None), PAGE) is None


def test_a_link_or_a_pipe_of_that_name_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "nothing"):
        mapping = Mapping(os.getpid(), 0, None, Kind.POSIX, str(tmp_path / name))
        assert shared_policy(mapping, PAGE) is None


def test_pages_that_are_neither_swapped_nor_huge() -> None:
    memory = victims.private(MIB).touch()
    with Pagemap(os.getpid(), PAGE) as pages:
        found = pages.count(range(memory.start, memory.start + MIB, PAGE))
        assert found.swapped == 0
        assert found.huge in (0, None)  # None before Linux 6.7
        assert pages.count([]).swapped == 0


def test_a_kernel_without_the_call_still_tells_of_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagemap, "_PAGEMAP_SCAN", 0x1234)
    memory = victims.private(MIB).touch()
    with Pagemap(os.getpid(), PAGE) as pages:
        assert pages.count([memory.start]) == PageStates(0, None)


def test_what_is_no_mapping_is_not_told() -> None:
    with Pagemap(os.getpid(), PAGE) as pages:
        assert pages.count([1 << 62]) in (PageStates(None, None), PageStates(0, 0))


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(Missing):
        Pagemap(2**22 + 1, PAGE)


def test_huge_pages_of_mounts_are_known_by_their_device() -> None:
    files = {
        "/proc/7/mountinfo": (
            "30 25 0:26 / /dev/hugepages rw - hugetlbfs hugetlbfs rw,pagesize=2M\n"
            "31 25 0:27 / /mnt/1G rw - hugetlbfs none rw,pagesize=1024M\n"
            "32 25 0:28 / /mnt/odd rw - hugetlbfs none rw,pagesize=much\n"
            "33 25 0:29 / /tmp rw - tmpfs tmpfs rw,size=1G\n"
        )
    }
    assert huge_page_devices(Host(MemoryRoot(files)), 7) == {(0, 26): 2 << 20, (0, 27): 1 << 30}
    assert huge_page_devices(Host(MemoryRoot()), 7) == {}


def test_huge_pages_without_a_mount_are_known_by_their_device() -> None:
    devices = huge_page_devices(Host(), os.getpid())
    pools = Path("/sys/kernel/mm/hugepages")
    sizes = {int(pool.name[10:-2]) << 10 for pool in pools.iterdir()} if pools.exists() else set()
    assert set(devices.values()) == sizes


def test_huge_page_devices_where_memfd_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refused)
    assert (0, 0) not in huge_page_devices(Host(), os.getpid())


def test_a_page_is_where_its_address_says() -> None:
    # The victims' own arithmetic, on which the tests of placement rest.
    whole = Memory(0x10000, 16 * PAGE)
    assert (whole.part(1, 2, 4).start, whole.part(1, 2, 4).length) == (0x10000 + 4 * PAGE, 4 * PAGE)
    assert ctypes.sizeof(ctypes.c_void_p) * 8 in (32, 64)
    assert mmap.PAGESIZE == PAGE
