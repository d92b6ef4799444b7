import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model.fingerprint import fingerprint, stable
from tests.report.reports import HOSTILE


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        ("machine", "machine"),
        ("process vllm", "process vllm"),
        ("process 4242", "process *"),
        ("pid 4242 vllm", "pid * vllm"),
        ("thread 17 of pid=9", "thread * of pid=*"),
        ("/proc/4242/numa_maps", "/proc/*/numa_maps"),
        ("/proc/4242/task/4250/status", "/proc/*/task/*/status"),
        ("7f3c12a00000-7f3d12a00000 [heap]", "* [heap]"),
        ("0x7f3c12a00000", "*"),
        ("/dev/shm/psm_3fa91b22", "/dev/shm/psm_*"),
        ("/dev/shm/torch_4242_1803", "/dev/shm/torch_*"),
        ("/dev/shm/sem.mp-a1B2c3D4", "/dev/shm/sem.mp-*"),
        ("/dev/shm/nccl-Xy12zQ", "/dev/shm/nccl-*"),
        (f"docker-{'ab' * 32}.scope", "docker-*.scope"),
        ("kubepods-pod0b54fb1c_8a1b_4c3d_9e2f_0123456789ab.slice",
         "kubepods-pod*.slice"),
        ("pod 0b54fb1c-8a1b-4c3d-9e2f-0123456789ab", "pod *"),
        # Names that stay.
        ("gpu 0000:c1:00.0", "gpu 0000:c1:00.0"),
        ("node 250", "node 250"),
        ("/SYSV00a1b2c3", "/SYSV00a1b2c3"),
        ("mask 00000000,00000003", "mask 00000000,00000003"),
        ("hugepages-1048576kB", "hugepages-1048576kB"),
        ("/dev/shm/kv_pool", "/dev/shm/kv_pool"),
        ("deploy/compose.yaml service engine", "deploy/compose.yaml service engine"),
    ],
)  # fmt: skip
def test_what_is_dealt_out_anew_is_left_out(subject: str, told: str) -> None:
    assert stable(subject) == told


@given(HOSTILE, HOSTILE, HOSTILE)
def test_any_text_has_a_fingerprint(check: str, subject: str, file: str) -> None:
    found = fingerprint(check, subject, file)
    assert len(found) == 16
    assert int(found, 16) >= 0
    assert fingerprint(check, subject, file) == found


@given(st.integers(1, 4_194_304), st.integers(1, 4_194_304))
def test_pids_do_not_matter(one: int, other: int) -> None:
    assert fingerprint("P001", f"pid {one} engine") == fingerprint("P001", f"pid {other} engine")


def test_parts_do_not_run_together() -> None:
    assert len({
        fingerprint("K001", "a", "b"), fingerprint("K001", "ab"), fingerprint("K001a", "", "b"),
        fingerprint("K001", "a"), fingerprint("K001", "b", "a"),
    }) == 5  # fmt: skip


def test_a_file_is_the_same_however_it_was_named() -> None:
    names = ["deploy/a.yaml", "./deploy/a.yaml", "deploy//a.yaml", "deploy/./a.yaml"]
    assert len({fingerprint("D001", name, name) for name in names}) == 1
    assert len({fingerprint("D001", f"{name} service x", name) for name in names}) == 1
    assert fingerprint("D001", "x", "deploy/a.yaml") != fingerprint("D001", "x", "a.yaml")
