import pytest

from numadoctor.model.placement import Kind
from numadoctor.placement.kinds import kind_of

SMALL, LARGE = 1 << 20, 1 << 32


def kind(name: str, length: int = SMALL, **flags: bool) -> Kind:
    wanted = {"shared": False, "program": False, "huge": False, **flags}
    return kind_of(name, length=length, **wanted)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", Kind.ANONYMOUS),
        ("[anon:kv pool]", Kind.ANONYMOUS),
        ("[anon_shmem:pool]", Kind.SHARED_ANONYMOUS),
        ("[heap]", Kind.HEAP),
        ("[stack]", Kind.STACK),
        ("[stack:1234]", Kind.STACK),
        ("[vdso]", Kind.SPECIAL),
        ("[vvar_vclock]", Kind.SPECIAL),
        ("/dev/zero", Kind.ANONYMOUS),
        ("/dev/zero (deleted)", Kind.SHARED_ANONYMOUS),
        ("/SYSV00000000 (deleted)", Kind.SYSV),
        ("/SYSVdeadbeef", Kind.SYSV),
        ("/SYSV/config", Kind.FILE),
        ("/dev/shm/kv_pool", Kind.POSIX),
        ("/dev/shm/kv_pool (deleted)", Kind.POSIX),
        ("/memfd:pool (deleted)", Kind.MEMFD),
        ("/anon_hugepage (deleted)", Kind.HUGETLB),
        ("/dev/hugepages/pool", Kind.HUGETLB),
        ("/dev/hugepages-1G/pool", Kind.HUGETLB),
        ("/dev/nvidia0", Kind.DEVICE),
        ("/dev/nvidia-uvm", Kind.DEVICE),
        ("anon_inode:[io_uring]", Kind.DEVICE),
        ("/dmabuf:", Kind.DEVICE),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", Kind.LIBRARY),
        ("/opt/libtorch_cuda.so", Kind.LIBRARY),
        ("/usr/lib/libtorch_cuda.so (deleted)", Kind.LIBRARY),
        ("/etc/ld.so.cache", Kind.FILE),
        ("/data/tokenizer.model", Kind.FILE),
        ("/data/small.bin", Kind.FILE),
    ],
)
def test_kinds_by_name(name: str, expected: Kind) -> None:
    assert kind(name) is expected


@pytest.mark.parametrize(
    ("name", "length", "expected"),
    [
        ("/models/model-00001-of-00030.safetensors", 32 << 20, Kind.MODEL),
        ("/models/llama.gguf", LARGE, Kind.MODEL),
        ("/models/weights-without-ending", LARGE, Kind.MODEL),
        ("/opt/libtorch_cuda.so", LARGE, Kind.LIBRARY),
        ("/usr/lib/locale/locale-archive", LARGE, Kind.FILE),
        ("/models/config.bin", SMALL, Kind.FILE),
    ],
)
def test_large_mapped_files_are_weights_unless_they_are_of_the_system(
    name: str, length: int, expected: Kind
) -> None:
    assert kind(name, length) is expected


def test_flags_decide_where_the_name_does_not() -> None:
    assert kind("/SYSV00000000 (deleted)", huge=True) is Kind.HUGETLB
    assert kind("/mnt/huge/pool", huge=True) is Kind.HUGETLB
    assert kind("/usr/bin/python3.11", program=True) is Kind.LIBRARY
    assert kind("/dev/zero", shared=True) is Kind.SHARED_ANONYMOUS


def test_pools_are_what_the_process_asked_for() -> None:
    assert Kind.SYSV.is_pool
    assert Kind.HUGETLB.is_pool
    assert not Kind.MODEL.is_pool
    assert Kind.MODEL.is_file
    assert not Kind.STACK.is_file
