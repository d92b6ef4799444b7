"""The kinds of memory a pool can be made of, each mapped in one piece and cleaned up by itself.

What other processes attach to has no name where it can do without: its maker
unlinks it at once, so that nothing is left behind, not even by SIGKILL.
"""

import ctypes
import enum
import errno
import mmap
import os
import sys
from typing import Final, Protocol

from numadoctor.kernel.process import libc

_MAP_HUGETLB: Final = 0x40000  # include/uapi/asm-generic/mman-common.h
_MAP_HUGE_SHIFT: Final = 26
_MFD_HUGETLB: Final = 4  # include/uapi/linux/memfd.h
_SHM_HUGETLB: Final = 0o4000  # include/uapi/linux/shm.h
_IPC_PRIVATE, _IPC_CREAT, _IPC_RMID = 0, 0o1000, 0

libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
libc.shmdt.argtypes = [ctypes.c_void_p]

SHM: Final = "/dev/shm"
NAME_PREFIX: Final = "numadoctor-"


class Backing(str, enum.Enum):
    """What a pool is made of."""

    PRIVATE = "private"  # anonymous, of this process alone
    SHARED = "shared"  # anonymous, shared with children
    POSIX = "posix"  # a file in /dev/shm
    SYSV = "sysv"  # shmget
    MEMFD = "memfd"
    HUGETLB = "hugetlb"  # anonymous and private, of the huge page pool
    HUGETLB_MEMFD = "hugetlb-memfd"  # the same, shared through a memfd
    HUGETLB_SYSV = "hugetlb-sysv"

    @property
    def is_hugetlb(self) -> bool:
        """Whether its pages come from a huge page pool."""
        return self.value.startswith("hugetlb")

    @property
    def is_sysv(self) -> bool:
        """Whether it is a System V segment."""
        return self in (Backing.SYSV, Backing.HUGETLB_SYSV)

    @property
    def attachable(self) -> bool:
        """Whether another process can attach to it by a handle."""
        return self not in (Backing.PRIVATE, Backing.SHARED, Backing.HUGETLB)


class Region(Protocol):
    """Mapped memory. Closing it unmaps it.

    :ivar address: of its first byte
    :ivar length: in bytes
    :ivar where: what another process opens it by: a path below /proc, or a
        System V id; empty for memory that cannot be attached
    """

    address: int
    length: int
    where: str

    def view(self) -> memoryview: ...
    def close(self) -> None: ...


class MappedRegion:
    """A region that Python's own mmap holds, which refuses to unmap while a view is in use."""

    def __init__(self, fd: int, length: int, flags: int, *, keep_fd: bool = False) -> None:
        self._map = mmap.mmap(fd, length, flags, mmap.PROT_READ | mmap.PROT_WRITE)
        # The borrowed object lives for this expression only: an export that
        # stayed would keep the mapping from being closed.
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.length = length
        self._fd = fd if keep_fd else -1
        self.where = f"/proc/{os.getpid()}/fd/{fd}" if keep_fd else ""

    def view(self) -> memoryview:
        return memoryview(self._map)

    def close(self) -> None:
        """Unmap it.

        :raises BufferError: a view of it is still in use
        """
        self._map.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SysvRegion:
    """A System V segment, marked for removal as soon as it is attached.

    Linux lets others attach to such a segment by its id for as long as
    somebody is attached (shmctl(2)), and removes it with the last.

    :raises OSError: ENOSPC or EINVAL beyond kernel.shmmni, shmall or shmmax
    """

    def __init__(self, identifier: int, length: int, *, remove: bool) -> None:
        self.where = str(identifier)
        self.length = length
        address = libc.shmat(identifier, None, 0)
        number = ctypes.get_errno()
        if remove:
            libc.shmctl(identifier, _IPC_RMID, None)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise OSError(number, f"shmat: {os.strerror(number)}")
        self.address = address
        self._array = (ctypes.c_char * length).from_address(address)
        self._unused = sys.getrefcount(self._array)
        self._open = True

    def view(self) -> memoryview:
        return memoryview(self._array).cast("B")

    def close(self) -> None:
        """Detach.

        :raises BufferError: a view of it is still in use
        """
        if not self._open:
            return
        # Every view holds a reference to the array it was made from; the
        # memory would be gone under it.
        if sys.getrefcount(self._array) > self._unused:
            raise BufferError("cannot close exported pointers exist")
        libc.shmdt(self.address)
        self._open = False


def allocate(backing: Backing, length: int, page_size: int, name: str = "") -> Region:
    """Map ``length`` bytes of ``backing``; nothing of it is touched.

    :param length: in bytes, a multiple of ``page_size``
    :param page_size: in bytes; that of the huge pages for hugetlb backings
    :param name: of a POSIX segment that is to be found by it; it stays in
        /dev/shm until the pool is closed, and after a crash
    :raises OSError: the kernel refuses: ENOMEM (no huge page free, address
        space), ENOSPC, EEXIST (the name is taken), EINVAL (page size)
    """
    huge = (page_size.bit_length() - 1) << _MAP_HUGE_SHIFT if backing.is_hugetlb else 0
    if backing is Backing.PRIVATE:
        return MappedRegion(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if backing is Backing.SHARED:
        return MappedRegion(-1, length, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    if backing is Backing.HUGETLB:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_HUGETLB | huge
        return MappedRegion(-1, length, flags)
    if backing.is_sysv:
        flags = _IPC_CREAT | 0o600 | (_SHM_HUGETLB | huge if backing.is_hugetlb else 0)
        identifier = libc.shmget(_IPC_PRIVATE, length, flags)
        if identifier < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"shmget: {os.strerror(number)}")
        return SysvRegion(identifier, length, remove=True)
    fd = _open(backing, huge, name)
    try:
        os.ftruncate(fd, length)
        return MappedRegion(fd, length, mmap.MAP_SHARED, keep_fd=True)
    except BaseException:
        os.close(fd)
        if name:
            os.unlink(f"{SHM}/{NAME_PREFIX}{name}")
        raise


def _open(backing: Backing, huge: int, name: str) -> int:
    if backing is Backing.POSIX and not name:
        # O_TMPFILE: a file that never had a name leaves none behind.
        return os.open(SHM, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    if backing is Backing.POSIX:
        path = f"{SHM}/{NAME_PREFIX}{name}"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        lock(fd)
        return fd
    flags = os.MFD_CLOEXEC | (_MFD_HUGETLB | huge if backing.is_hugetlb else 0)
    return os.memfd_create("numadoctor-pool", flags)


def lock(fd: int) -> bool:
    """Hold a segment as in use: the lock goes with the last process that has it open.

    :returns: False if somebody else holds it
    """
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            return False
        raise
    return True


def attach(backing: Backing, where: str, length: int) -> Region:
    """Map what another process allocated.

    :param where: its region's ``where``, or the path of a named segment
    :raises OSError: it is gone (ENOENT, EINVAL, EIDRM) or not ours (EACCES)
    """
    if backing.is_sysv:
        if (size := _segment_size(int(where))) < length:
            raise OSError(errno.EINVAL, f"segment {where} has {size} bytes, not {length}")
        return SysvRegion(int(where), length, remove=False)
    fd = os.open(where, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size < length:
            raise OSError(errno.EINVAL, f"{where} is shorter than the {length} bytes of the pool")
        if where.startswith(SHM):
            lock(fd)
        return MappedRegion(fd, length, mmap.MAP_SHARED, keep_fd=True)
    except BaseException:
        os.close(fd)
        raise


def _segment_size(identifier: int) -> int:
    # Not shmctl: the layout of its answer differs from ABI to ABI.
    with open("/proc/sysvipc/shm", encoding="ascii") as table:
        columns = next(table).split()
        size, where = columns.index("size"), columns.index("shmid")
        for line in table:
            row = line.split()
            if int(row[where]) == identifier:
                return int(row[size])
    raise OSError(errno.EINVAL, f"there is no segment {identifier}")
