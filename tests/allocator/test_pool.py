"""The pool on this machine: every backing, attach, prefault, refusal, and nothing left behind."""

import ctypes
import errno
import json
import mmap
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.allocator import Backing, Handle, Pool, PoolError, pinning
from numadoctor.allocator.backing import NAME_PREFIX, SHM
from numadoctor.allocator.leftovers import find_leftovers, in_use
from numadoctor.allocator.pool import deadly_calls
from numadoctor.model import Status
from tests.kernel import seccomp
from tests.kernel.child import in_child

MIB = 1 << 20
PLAIN = [b for b in Backing if not b.is_hugetlb]


def segments(length: int) -> list[str]:
    """Shared memory of this length that can be seen; others on this machine may have some too."""
    sysv = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    found = [line for line in sysv if line.split()[3] == str(length)]
    for entry in os.scandir(SHM):
        with suppress(FileNotFoundError):
            if entry.stat().st_size == length:
                found.append(entry.path)
    return found


def mapped() -> list[range]:
    """The address ranges of this process; neighbours may have grown together."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [range(*(int(end, 16) for end in line.split()[0].split("-"))) for line in lines]


@pytest.mark.parametrize("backing", PLAIN)
def test_pool_is_mapped_writable_and_gone_when_closed(backing: Backing) -> None:
    # A length that nobody else's memory has.
    size = 4 * MIB + os.getpid() % 997 * mmap.PAGESIZE + 1
    with Pool(size, backing=backing) as pool:
        assert pool.length % pool.page_size == 0
        assert size <= pool.length < size + pool.page_size
        assert pool.prefault(2).length == pool.length
        assert pool.placement().resident == pool.length
        view = pool.buffer
        assert len(view) == pool.length
        view[-3:] = b"end"
        assert ctypes.string_at(pool.address + pool.length - 3, 3) == b"end"
        with pytest.raises(BufferError):
            pool.close()
        view.release()
        pooled = range(pool.address, pool.address + pool.length)
    assert not any(pooled.start in m and pooled[-1] in m for m in mapped())
    assert segments(pool.length) == []


@pytest.mark.parametrize("backing", [b for b in PLAIN if b.attachable])
def test_another_program_attaches_by_the_handle(backing: Backing) -> None:
    code = (
        "import json, sys\n"
        "from numadoctor.allocator import Handle, Pool\n"
        "with Pool.attach(Handle.of(json.loads(sys.argv[1]))) as pool:\n"
        "    view = pool.buffer\n"
        "    print(bytes(view[:5]).decode())\n"
        "    view[:5] = b'WORLD'\n"
        "    view.release()\n"
    )
    with Pool(MIB, backing=backing) as pool:
        view = pool.buffer
        view[:5] = b"hello"
        line = [sys.executable, "-c", code, json.dumps(pool.handle.data())]
        assert subprocess.check_output(line, text=True).strip() == "hello"
        assert bytes(view[:5]) == b"WORLD"
        view.release()
        gone = pool.handle
    with pytest.raises(PoolError) as caught:
        Pool.attach(gone)
    assert caught.value.finding.status is Status.FAIL
    assert "cannot be attached" in caught.value.finding.message


@pytest.mark.parametrize("backing", [Backing.PRIVATE, Backing.SHARED])
def test_memory_without_a_name_has_no_handle(backing: Backing) -> None:
    with Pool(MIB, backing=backing) as pool, pytest.raises(ValueError, match="attached"):
        _ = pool.handle


def test_named_pool_is_found_by_its_name_and_guards_it() -> None:
    name = f"test-{os.getpid()}"
    path = f"{SHM}/{NAME_PREFIX}{name}"
    with Pool(MIB, name=name) as pool:
        assert pool.handle.where == path
        assert in_use(path)
        with pytest.raises(PoolError, match="in use"):
            Pool(MIB, name=name)
        with Pool.attach(pool.handle) as other:
            assert other.length == pool.length
    assert not os.path.exists(path)


def test_named_pool_of_a_killed_process_is_found() -> None:
    name = f"test-left-{os.getpid()}"
    path = f"{SHM}/{NAME_PREFIX}{name}"
    code = (
        "import os, sys\nfrom numadoctor.allocator import Pool\n"
        "pool = Pool(1 << 20, name=sys.argv[1])\nos.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, name], check=False).returncode == -9
    try:
        os.mkdir(f"{path}-folder")
        found = [leftover.path for leftover in find_leftovers()]
        assert path in found
        assert f"{path}-folder" not in found
        with pytest.raises(PoolError) as caught:
            Pool(MIB, name=name)
        assert "left its pool behind" in caught.value.finding.message
        assert caught.value.finding.fixes[0].text == f"rm {path}"
    finally:
        os.unlink(path)
        os.rmdir(f"{path}-folder")


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 201, "a\0b"])
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="bad pool name"):
        Pool(MIB, name=name)


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        Pool(0)
    with pytest.raises(ValueError, match="bad mode"):
        Pool(MIB, mode="scatter")
    with pytest.raises(ValueError, match="there is no node 1023"):
        Pool(MIB, nodes=[1023])
    with pytest.raises(ValueError, match="only a posix pool"):
        Pool(MIB, backing="memfd", name="x")
    with pytest.raises(ValueError, match="no huge pages of 3 MiB"):
        Pool(MIB, backing="hugetlb", huge_page_size=3 * MIB)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"backing": "tape"},
        {**dict.fromkeys(("backing", "where", "mode"), "memfd"), "length": "x"},
    ],
)
def test_bad_handles_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="bad pool handle"):
        Handle.of(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
MEMFD = Handle("memfd", "/proc/self/fd/0", 8192, 4096, "bind", (0, 3))


@given(data=st.fixed_dictionaries({}, optional=dict.fromkeys(MEMFD.data(), JSON)))
def test_any_data_is_a_handle_or_refused(data: dict[str, object]) -> None:
    for mixed in (data, {**MEMFD.data(), **data}):
        with suppress(ValueError):
            handle = Handle.of(mixed)
            assert Handle.of(json.loads(json.dumps(handle.data()))) == handle


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 0},
        {"length": -4096},
        {"length": 4097},
        {"length": 1 << 70},
        {"page_size": 0},
        {"page_size": 3},
        {"mode": "scatter"},
        {"nodes": "01"},
        {"nodes": [-1]},
        {"nodes": [1 << 70]},
        {"where": "/proc/self/fd/0\0"},
        {"backing": "sysv"},
        {"backing": "sysv", "where": "-1"},
        {"backing": "private"},
    ],
)
def test_a_handle_that_describes_no_pool_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="bad pool handle"):
        Handle.of({**MEMFD.data(), **wrong})


@pytest.mark.parametrize("backing", [b for b in PLAIN if b.attachable])
def test_a_pool_shorter_than_its_handle_says_is_not_attached(backing: Backing) -> None:
    # The rest would be no memory: SIGBUS, or SIGSEGV.
    with Pool(MIB, backing=backing) as pool:
        longer = replace(pool.handle, length=2 * MIB)
        with pytest.raises(PoolError, match="cannot be attached"):
            Pool.attach(longer)


def test_pool_larger_than_the_machine_is_refused_before_it_is_touched() -> None:
    with pytest.raises(PoolError) as caught:
        Pool(1 << 50, backing="memfd")
    assert "than the" in caught.value.finding.message
    assert caught.value.finding.evidence


@pytest.mark.usefixtures("policy_calls")
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_filtered_mbind_leaves_a_usable_pool(number: int) -> None:
    def look() -> list[str]:
        seccomp.install({"mbind": seccomp.refuse(number)})
        with Pool(MIB, backing="memfd") as pool:
            pool.prefault()
            return [pool.effective_mode, *(f"{f.status.value} {f.message}" for f in pool.verify())]

    mode, first, *_ = in_child(look)
    assert mode == "first-touch"
    assert first.startswith("warn interleave could not be set, the pool is left to first touch")


@pytest.mark.usefixtures("policy_calls")
def test_filter_that_kills_leaves_the_process_alive() -> None:
    def look() -> list[str]:
        deadly_calls.cache_clear()
        seccomp.install({"mbind": seccomp.KILL_PROCESS, "move_pages": seccomp.KILL_PROCESS})
        with Pool(MIB, backing="memfd") as pool:
            pool.prefault()
            return [pool.effective_mode, *(f"{f.status.value} {f.message}" for f in pool.verify())]

    mode, first, second = in_child(look)
    assert mode == "first-touch"
    assert "a system-call filter kills who calls mbind" in first
    assert second.startswith("unknown where the pool is cannot be told")


@pytest.mark.usefixtures("policy_calls")
def test_policy_is_set_before_the_first_touch() -> None:
    with Pool(MIB, backing="private") as pool:
        assert pool.placement().resident == 0
        assert pool.applied is not None
        assert str(pool.applied.policy).startswith("interleave:")
        assert [f.status for f in pool.verify()] == [Status.INFO]


def test_progress_ends_at_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr("numadoctor.allocator.prefault._CHUNK", MIB)
    with Pool(15 * MIB, backing="private") as pool:
        pool.prefault(2, lambda done, length: told.append((done, length)))
        assert told[-1] == (pool.length, pool.length)
        assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("backing", ["private", "memfd"])
def test_touching_brings_every_page_in_and_keeps_content(
    backing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a kernel without MADV_POPULATE_WRITE (before Linux 5.14).
    monkeypatch.setattr("numadoctor.allocator.prefault._can_populate", lambda _advice: False)
    monkeypatch.setattr("numadoctor.allocator.prefault._CHUNK", MIB)
    content = bytes(range(256))
    with Pool(5 * MIB, backing=backing) as pool:
        pool.buffer[-256:] = content
        done = pool.prefault(2)
        assert done.method == "touch"
        assert pool.placement().resident == pool.length
        assert bytes(pool.buffer[-256:]) == content


def test_lock_beyond_the_limit_is_a_finding() -> None:
    def look() -> list[str]:
        import resource

        # A process with CAP_IPC_LOCK is not bound by the limit.
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        with Pool(MIB, backing="private") as pool:
            return [str(pool.lock()), *(f.message for f in pool.findings)]

    locked, message = in_child(look)
    assert locked == "False"
    assert "RLIMIT_MEMLOCK 64 KiB" in message


def test_lock_within_the_limit() -> None:
    with Pool(32768, backing="private") as pool:
        assert pool.lock() is True
        assert pool.findings == []


def test_without_cuda_registration_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "_runtime", lambda: None)
    with Pool(MIB) as pool:
        assert pool.register_with_cuda() is False
        assert "libcudart" in pool.findings[-1].message


def test_cuda_without_a_gpu_is_told() -> None:
    if pinning._runtime() is None or os.path.exists("/dev/nvidiactl"):
        pytest.skip("needs libcudart on a machine without a GPU")
    with Pool(MIB) as pool:
        assert pool.register_with_cuda() is False
        assert pool.findings[-1].status is Status.WARN
        assert "could not be registered with CUDA: " in pool.findings[-1].message


def test_cuda_runtime_gets_the_address_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    class Runtime:
        def cudaHostRegister(self, *arguments: object) -> int:  # noqa: N802
            calls.append(arguments)
            return 0

        def cudaHostUnregister(self, *arguments: object) -> int:  # noqa: N802
            calls.append(arguments)
            return 0

    monkeypatch.setattr(pinning, "_runtime", Runtime)
    with Pool(MIB) as pool:
        assert pool.register_with_cuda() is True
        address = pool.address
    (register, unregister) = calls
    assert [getattr(argument, "value", argument) for argument in register] == [address, MIB, 1]
    assert getattr(unregister[0], "value", None) == address


def test_numpy_sees_the_memory_itself() -> None:
    numpy = pytest.importorskip("numpy")
    with Pool(MIB, backing="memfd") as pool:
        array = pool.numpy("uint32")
        array[:] = 7
        assert ctypes.c_uint32.from_address(pool.address + MIB - 4).value == 7
        assert array.ctypes.data == pool.address
        del array, numpy
