"""Containers, guests, sandboxes and jobs are told apart by what they leave behind."""

from pathlib import Path

import pytest

from numadoctor.host import FolderRoot, Host
from numadoctor.host.runtime import clues_readable, fitting, read_runtimes
from numadoctor.model import Fix, Missing
from tests.trees import Tree

CGROUP = "/proc/self/cgroup"
MOUNTINFO = "/proc/self/mountinfo"
BARE = {CGROUP: "0::/user.slice/user-1000.slice/session-3.scope\n"}
HOSTS_MOUNT = "500 490 8:1 /var/lib/docker/containers/3f/hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"
ROOT_MOUNT = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


def overlay(upper: str) -> str:
    return (
        f"490 400 0:60 / / rw - overlay overlay rw,lowerdir=/l,upperdir={upper}/diff,workdir=/w\n"
    )


def host_of(tmp_path: Path, files: dict[str, str], links: dict[str, str] | None = None) -> Host:
    tree = Tree(files={"/proc/uptime": "1 1\n", **files}, links=links or {})
    return Host(FolderRoot(str(tree.build(tmp_path / "root"))))


RECOGNISED: list[tuple[str, dict[str, str], str, str]] = [
    ("docker by its files", {"/.dockerenv": "", MOUNTINFO: HOSTS_MOUNT}, "Docker", "container"),
    (
        "docker by its mark and an overlay",
        {"/.dockerenv": "", "/proc/self/mounts": "overlay / overlay rw,upperdir=/u/diff 0 0\n"},
        "Docker",
        "container",
    ),
    ("docker, no mountinfo", {"/.dockerenv": ""}, "Docker", "container"),
    (
        "an image in a virtual machine",
        {"/.dockerenv": "", MOUNTINFO: ROOT_MOUNT},
        "a Docker image",
        "image",
    ),
    ("docker v1", {CGROUP: "4:memory:/docker/3f2c61aa90de\n"}, "Docker", "container"),
    (
        "docker v2",
        {CGROUP: "0::/system.slice/docker-3f2c61aa90de.scope\n"},
        "Docker",
        "container",
    ),
    ("docker overlay", {MOUNTINFO: overlay("/var/lib/docker/overlay2/9")}, "Docker", "container"),
    (
        "docker overlay, mounts alone",
        {"/proc/self/mounts": "overlay / overlay rw,upperdir=/x/docker/overlay2/9/diff 0 0\n"},
        "Docker",
        "container",
    ),
    ("podman", {"/run/.containerenv": 'engine="podman-4.3.1"\n'}, "podman", "container"),
    (
        "podman cgroup",
        {CGROUP: "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-a.scope\n"},
        "podman",
        "container",
    ),
    (
        "kubernetes by its variable",
        {"/proc/self/environ": "A=1\\0KUBERNETES_SERVICE_HOST=10.96.0.1\\0"},
        "Kubernetes",
        "container",
    ),
    (
        "kubernetes by its cgroup",
        {CGROUP: "0::/kubepods.slice/kubepods-podab.slice/cri-containerd-12.scope\n"},
        "Kubernetes",
        "container",
    ),
    (
        "kubernetes by its hosts file",
        {MOUNTINFO: "7 6 8:1 /var/lib/kubelet/pods/ab/etc-hosts /etc/hosts rw - ext4 a rw\n"},
        "Kubernetes",
        "container",
    ),
    (
        "containerd",
        {MOUNTINFO: overlay("/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/1")},
        "containerd",
        "container",
    ),
    ("lxc", {"/run/systemd/container": "lxc\n"}, "LXC", "container"),
    (
        "lxcfs",
        {MOUNTINFO: "7 6 0:40 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw\n"},
        "LXC",
        "container",
    ),
    ("nspawn", {"/run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn", "container"),
    (
        "apptainer",
        {"/proc/self/environ": "APPTAINER_CONTAINER=/x.sif\\0"},
        "Apptainer",
        "container",
    ),
    (
        "gvisor of old",
        {"/proc/version": "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"},
        "gVisor",
        "sandbox",
    ),
    (
        "gvisor",
        {"/proc/version": "Linux version 4.19.0-gvisor #1 SMP Sun Jan 10 15:06:54 PST 2016\n"},
        "gVisor",
        "sandbox",
    ),
    (
        "wsl 2",
        {"/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@x) #1 SMP\n"},
        "WSL",
        "guest",
    ),
    (
        "kata by its options",
        {"/proc/cmdline": "root=/dev/pmem0p1 systemd.unit=kata-containers.target quiet\n"},
        "Kata Containers",
        "guest",
    ),
    (
        "kata by its root",
        {MOUNTINFO: "7 6 0:30 /x/rootfs / rw - virtiofs kataShared rw\n"},
        "Kata Containers",
        "guest",
    ),
    (
        "a service",
        {CGROUP: "0::/system.slice/vllm.service\n"},
        "systemd service vllm.service",
        "service",
    ),
    ("slurm v2", {CGROUP: "0::/system.slice/slurmstepd.scope/job_7/step_0\n"}, "Slurm", "job"),
    ("slurm v1", {CGROUP: "3:cpuset:/slurm/uid_1000/job_7/step_0\n"}, "Slurm", "job"),
    ("slurm variable", {"/proc/self/environ": "SLURM_JOB_ID=7\\0"}, "Slurm", "job"),
]


@pytest.mark.parametrize(
    ("files", "name", "kind"), [case[1:] for case in RECOGNISED], ids=[c[0] for c in RECOGNISED]
)
def test_is_recognised(tmp_path: Path, files: dict[str, str], name: str, kind: str) -> None:
    runtimes = read_runtimes(host_of(tmp_path, files))
    assert (name, kind) in [(found.name, found.kind) for found in runtimes]
    found = next(r for r in runtimes if r.name == name)
    assert found.hides_placement is (kind in ("guest", "sandbox", "emulation"))
    assert found.evidence.source in files


@pytest.mark.parametrize(
    "files",
    [
        BARE,
        {CGROUP: "0::/system.slice/ssh.service\n"},
        {CGROUP: "0::/user.slice/user-1000.slice/user@1000.service\n"},
        {CGROUP: "0::/system.slice/docker.service\n"},
        {CGROUP: "0::/system.slice/docker-cleanup.timer\n"},
        # What the daemon and the kubelet mount on the machine itself.
        {
            MOUNTINFO: ROOT_MOUNT
            + "70 22 0:50 / /var/lib/docker/overlay2/9/merged rw - overlay overlay rw,upperdir=/var"
            "/lib/docker/overlay2/9/diff\n"
            "71 22 8:1 /var/lib/kubelet/pods/ab/x /var/lib/kubelet/pods/ab/y rw - ext4 a rw\n"
        },
        {"/proc/version": "Linux version 6.12.0 (gcc 14) #1 SMP PREEMPT_DYNAMIC\n"},
    ],
)
def test_the_machine_itself_is_no_container(tmp_path: Path, files: dict[str, str]) -> None:
    assert read_runtimes(host_of(tmp_path, files)) == ()


@pytest.mark.parametrize(
    ("program", "emulated"),
    [
        ("/usr/bin/qemu-aarch64-static", True),
        ("/usr/libexec/qemu-binfmt/qemu-ppc64le", True),
        ("/usr/bin/qemu-system-x86_64", False),
        ("/usr/bin/python3.12", False),
    ],
)
def test_user_mode_emulation_is_seen_through_thread_self(
    tmp_path: Path, program: str, emulated: bool
) -> None:
    host = host_of(
        tmp_path,
        BARE,
        {"/proc/self/exe": "/usr/bin/python3", "/proc/thread-self/exe": program},
    )
    assert [r.name for r in read_runtimes(host)] == (["qemu-user"] if emulated else [])


def test_another_process_is_looked_at_through_its_own_root(tmp_path: Path) -> None:
    host = host_of(
        tmp_path,
        {
            "/.dockerenv": "",
            "/proc/42/cgroup": "0::/\n",
            "/proc/42/root/run/.containerenv": "",
        },
    )
    assert [r.name for r in read_runtimes(host, "/proc/42")] == ["podman"]


DOCKER, POD = Fix("docker", "--cpuset-mems 0"), Fix("kubernetes", "a pod field")
NUMACTL, UNIT = Fix("numactl", "numactl --membind=0"), Fix("systemd", "NUMAMask=0")
ALL = (DOCKER, POD, NUMACTL, UNIT)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (BARE, ALL),
        ({"/.dockerenv": "", MOUNTINFO: ROOT_MOUNT}, ALL),
        ({"/.dockerenv": ""}, (DOCKER, NUMACTL)),
        # The engine below a pod is not for the user to start.
        ({"/.dockerenv": "", CGROUP: "4:memory:/kubepods/pod1/2\n"}, (POD, NUMACTL)),
        ({CGROUP: "0::/system.slice/vllm.service\n"}, (NUMACTL, UNIT)),
    ],
)
def test_only_fixes_that_can_be_applied_are_offered(
    tmp_path: Path, files: dict[str, str], expected: tuple[Fix, ...]
) -> None:
    assert fitting(ALL, read_runtimes(host_of(tmp_path, files))) == expected


def test_some_fix_is_better_than_none(tmp_path: Path) -> None:
    assert fitting([UNIT], read_runtimes(host_of(tmp_path, {"/.dockerenv": ""}))) == (UNIT,)


def test_nothing_to_go_by_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(Missing) as caught:
        clues_readable(host_of(tmp_path, {}))
    assert caught.value.path == CGROUP
    assert clues_readable(host_of(tmp_path / "b", {"/proc/self/mounts": "a / ext4 rw 0 0\n"}))
