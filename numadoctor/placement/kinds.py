"""What a mapping is of, from the name and the flags the kernel gives it."""

from numadoctor.model.placement import Kind

_DELETED = " (deleted)"
_WEIGHTS = (
    ".safetensors", ".gguf", ".ggml", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".npy", ".npz",
    ".msgpack", ".tensors",
)  # fmt: skip
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/opt/conda/lib/", "/nix/store/", "/etc/", "/var/cache/")
_SHARED_MEMORY = ("/dev/shm/", "/run/shm/")

# Smaller files with such endings are configuration, indexes, optimiser state.
_WEIGHTS_BYTES = 16 << 20
# No program or data file of a system comes near that; weights do.
_LARGE_FILE_BYTES = 256 << 20


def kind_of(name: str, *, length: int, shared: bool, program: bool, huge: bool) -> Kind:
    """The kind of a mapping.

    :param name: as /proc/PID/maps gives it
    :param length: bytes
    :param shared: it is mapped MAP_SHARED
    :param program: the file is mapped executable somewhere in the process
    :param huge: its pages come from a huge page pool
    """
    path = name.removesuffix(_DELETED)
    if huge or path == "/anon_hugepage" or path.startswith("/dev/hugepages"):
        return Kind.HUGETLB
    if name.startswith("["):
        return _bracketed(name)
    if not name.startswith("/"):
        # Files of the kernel's own file systems have names like anon_inode:[perf_event].
        return Kind.DEVICE if name else Kind.ANONYMOUS
    if path == "/dev/zero":
        # A private mapping of the device is private anonymous memory (mmap_zero() in
        # drivers/char/mem.c); shared anonymous memory has the name, and no file of that name.
        return Kind.SHARED_ANONYMOUS if shared or name != path else Kind.ANONYMOUS
    # /SYSV and the key in eight hexadecimal digits: newseg() in ipc/shm.c.
    if path.startswith("/SYSV") and len(path) == 13:
        return Kind.SYSV
    if path.startswith("/memfd:"):
        return Kind.MEMFD
    if path.startswith(_SHARED_MEMORY):
        return Kind.POSIX
    if path.startswith(("/dev/", "/dmabuf:", "/drm ", "/proc/", "/sys/")):
        return Kind.DEVICE
    return _file(path, length, program)


def _bracketed(name: str) -> Kind:
    if name == "[heap]":
        return Kind.HEAP
    # Linux 3.2 to 4.4 named the thread: [stack:1234].
    if name == "[stack]" or name.startswith("[stack:"):
        return Kind.STACK
    # Names given with prctl(PR_SET_VMA_ANON_NAME), since Linux 5.17.
    if name.startswith("[anon_shmem:"):
        return Kind.SHARED_ANONYMOUS
    return Kind.ANONYMOUS if name.startswith("[anon:") else Kind.SPECIAL


def _file(path: str, length: int, program: bool) -> Kind:
    # libc.so, libc.so.6
    _, dot, version = path.rpartition("/")[2].partition(".so")
    if program or (dot and version.replace(".", "0").isdecimal()) or path.endswith(".so"):
        return Kind.LIBRARY
    if path.endswith(_WEIGHTS) and length >= _WEIGHTS_BYTES:
        return Kind.MODEL
    if length >= _LARGE_FILE_BYTES and not path.startswith(_SYSTEM):
        return Kind.MODEL
    return Kind.FILE
