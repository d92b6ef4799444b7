"""What the examples cannot show: other processes than the caller, and parts of the checks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.checks._envelope import mount_of
from numadoctor.checks.envelope_allowed import allowed_cpus_and_nodes, narrowed_apart
from numadoctor.checks.envelope_binders import two_binders
from numadoctor.checks.envelope_calls import numa_calls
from numadoctor.engine.discovery import discover
from numadoctor.engine.registry import Check
from numadoctor.engine.runner import run
from numadoctor.host import FolderRoot, Host, LiveRoot
from numadoctor.host.parsers import Mount
from numadoctor.model import Finding, ParseError, Status, Target
from numadoctor.placement.threads import read_policy
from numadoctor.placement.walk import first_policy
from tests.trees import Tree

ENGINE = Target(77, "engine")


def findings(host: Host, check: Check, target: Target = ENGINE) -> list[Finding]:
    return list(run(host, [check], [target]).findings)


def worst(host: Host, check: Check, target: Target = ENGINE) -> Finding:
    return findings(host, check, target)[0]


def two_socket(scratch: Path, **files: str) -> Host:
    """The sample server with a process 77; ``files`` are those of its /proc folder."""
    tree = Tree(base="two-socket", files={f"/proc/77/{name}": text for name, text in files.items()})
    return Host(FolderRoot(str(tree.build(scratch / "root"))))


def status(seccomp: int = 0, resident: int = 14336, cpus: str = "ffffffff") -> str:
    return (
        f"Name:\tengine\nPPid:\t1\nVmRSS:\t{resident} kB\nSeccomp:\t{seccomp}\n"
        f"CapBnd:\t0\nCpus_allowed:\t{cpus}\nMems_allowed:\t3\n"
    )


def test_calls_of_another_process_are_not_judged_by_those_of_the_caller(scratch: Path) -> None:
    host = two_socket(scratch, status=status(seccomp=2), cgroup="4:memory:/docker/3f2c61aa\n")
    found = worst(host, numa_calls)
    assert (found.status, found.subject) == (Status.UNKNOWN, "process engine")
    assert found.fixes[0].text == "docker exec CONTAINER numadoctor syscalls"
    assert not any("nsenter -" in fix.text for fix in found.fixes)


def test_a_process_without_a_filter_is_told_from_outside(scratch: Path) -> None:
    found = worst(two_socket(scratch, status=status(seccomp=0)), numa_calls)
    assert found.status is Status.INFO
    assert "no seccomp filter" in found.message


def test_without_a_seccomp_line_nothing_is_claimed(scratch: Path) -> None:
    host = two_socket(scratch, status="Name:\tengine\nMems_allowed:\t3\n")
    assert worst(host, numa_calls).status is Status.UNKNOWN


POLICY = "55d0a000 default file=/usr/bin/engine mapped=9 N0=9 kernelpagesize_kB=4\n"


def test_the_policy_of_a_large_process_is_read_too(scratch: Path) -> None:
    host = two_socket(scratch, status=status(resident=1 << 31, cpus="00ff00ff"), numa_maps=POLICY)
    assert worst(host, narrowed_apart).status is Status.WARN


def test_of_a_live_process_one_line_of_numa_maps_is_read() -> None:
    host, path = Host(LiveRoot()), f"/proc/{os.getpid()}/numa_maps"
    if not os.path.exists(path):
        pytest.skip("this kernel has no NUMA support")
    assert read_policy(host, path) == first_policy(Path(path).read_bytes())
    assert path not in host.reads


def test_an_environment_is_never_cited_whole(scratch: Path) -> None:
    secret = "HF_TOKEN=hf_secret\\0OMP_PROC_BIND=close\\0SLURM_CPU_BIND_TYPE=cores\\0"
    host = two_socket(scratch, status=status(cpus="00ff00ff"), environ=secret, cmdline="x\\0")
    for check in discover():
        if check.family == "E":
            assert "hf_secret" not in repr(findings(host, check)), check.id


@pytest.mark.parametrize(
    ("environment", "far"),
    [
        ("", 4),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3", 0),
        ("CUDA_VISIBLE_DEVICES=3,4", 1),
        ("CUDA_VISIBLE_DEVICES=", 0),
        ("CUDA_VISIBLE_DEVICES=-1", 0),
        # CUDA takes the list up to the first entry that names nothing.
        ("CUDA_VISIBLE_DEVICES=0,99,7", 0),
        ("CUDA_VISIBLE_DEVICES=7,6,5", 3),
    ],
)
def test_only_gpus_that_the_process_uses_are_missed(
    scratch: Path, environment: str, far: int
) -> None:
    host = two_socket(
        scratch, status=status(cpus="00ff00ff"), environ=f"A=1\\0{environment}\\0", cmdline="x\\0"
    )
    found = findings(host, allowed_cpus_and_nodes)
    assert sum(f.status is Status.WARN for f in found) == far


modes = st.sampled_from(["default", "bind", "prefer (many)", "weighted interleave", "local"])


@given(modes, st.sets(st.integers(0, 99), max_size=4), st.sampled_from(["", "=static"]))
def test_the_first_policy_of_numa_maps(mode: str, nodes: set[int], flags: str) -> None:
    listed = ",".join(map(str, sorted(nodes)))
    policy = mode + flags + (f":{listed}" if nodes else "")
    line = f"55d0a000 {policy} file=/usr/bin/a\\040b anon=1 N0=1\n7ffe0000 default stack\n"
    found = first_policy(line.encode())
    assert (found.text, found.mode, found.nodes) == (policy, mode, tuple(sorted(nodes)))


@given(st.binary(max_size=60))
def test_any_numa_maps_is_survived(data: bytes) -> None:
    try:
        first_policy(data)
    except ParseError:
        return
    assert len(data.partition(b"\n")[0].replace(b"\0", b"").split()) > 1


POINTS = ["/", "/tmp", "/tmp/a", "/var", "/var/tmp", "/tmpfs", "/home/a b"]


@given(st.lists(st.sampled_from(POINTS), max_size=6), st.sampled_from([*POINTS, "/tmp/a/b/c"]))
def test_the_mount_of_a_path_is_the_deepest_and_last(points: list[str], path: str) -> None:
    table = [Mount(str(number), point, "ext4", {}) for number, point in enumerate(points)]
    above = {str(Path(path)), *map(str, Path(path).parents)}
    expected = max(
        (m for m in table if m.point in above),
        key=lambda m: (len(m.point), int(m.device)),
        default=None,
    )
    assert mount_of(path, table) == expected


def test_this_machine_gets_an_answer_from_every_check_of_the_envelope() -> None:
    host = Host(LiveRoot())
    for check in discover():
        if check.family == "E":
            for finding in findings(host, check, Target()):
                assert finding.status is not Status.ERROR, finding


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_live_process_of_another_kind_of_mask_is_seen() -> None:
    """A child bound to one CPU, asked about from outside, against what the kernel told it."""
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os, sys; os.sched_setaffinity(0, [{one}]); print('set', flush=True); "
        "sys.stdin.read()"
    )
    environment = {**os.environ, "OMP_PROC_BIND": "close", "KMP_AFFINITY": "compact"}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        host, target = Host(LiveRoot()), Target(child.pid, "child")
        allowed = worst(host, allowed_cpus_and_nodes, target)
        binders = worst(host, two_binders, target)
        child.communicate()
    if host.topology.numa:
        assert f"CPU {one} " in allowed.message or "all 1 online" in allowed.message
    assert binders.status is Status.WARN
    assert "KMP_AFFINITY=compact" in binders.message
