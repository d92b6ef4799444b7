"""What stands between a process and the machine: containers, guests, sandboxes, emulation, jobs.

Recognised from what each of them leaves in /proc and in the root of its file
system. It decides which fixes can be applied at all (``--cpuset-mems`` means
nothing in a pod) and whether placement made here reaches the machine.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import Evidence, Fix, Undecided

# Files that a container engine mounts over those of the image.
_MOUNTED_BY_ENGINES = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")

# The date that every gVisor kernel calls itself built at
# (pkg/sentry/kernel/version.go), whatever release it claims to be.
_GVISOR_DATE = "Sun Jan 10 15:06:54 PST 2016"

# QEMU's other programs, which run machines and not processes.
_NOT_USER_EMULATION = ("qemu-system", "qemu-kvm", "qemu-ga", "qemu-img", "qemu-nbd")

# Units in which somebody's shell runs: they say nothing of the process.
_SESSIONS = ("user@", "ssh", "getty@", "serial-getty@", "cron", "atd.", "gdm", "sddm", "lightdm")
_ENGINE_UNITS = ("docker.", "containerd.", "crio.", "podman.", "slurmd.", "kubelet.")

_LAUNCHERS_OF_ENGINES = frozenset(
    ("docker", "compose", "podman", "kubernetes", "systemd", "slurm", "lxc")
)


class Runtime(NamedTuple):
    """One thing that a process was started by or runs inside of.

    :ivar name: as people call it: ``Docker``, ``gVisor``
    :ivar kind: container, image (a container's root file system and no container),
        guest (a kernel of its own), sandbox (a kernel in user space), emulation,
        service or job
    :ivar launchers: those of ``Fix`` that can change how the process is started
    :ivar evidence: what it was recognised by
    """

    name: str
    kind: str
    launchers: frozenset[str]
    evidence: Evidence

    @property
    def hides_placement(self) -> bool:
        """Whether a memory policy set inside does not reach the machine's nodes."""
        return self.kind in ("guest", "sandbox", "emulation")


def read_runtimes(host: Host, proc: str = "/proc/self") -> tuple[Runtime, ...]:
    """What the process at ``proc`` runs inside of, each once; empty when on the machine itself.

    What cannot be read gives no clue; where nothing at all can be read there is
    none either (see ``clues_readable``).
    """
    found: dict[str, Runtime] = {}
    for runtime in _clues(host, proc):
        found.setdefault(runtime.name, runtime)
    return tuple(found.values())


def clues_readable(host: Host, proc: str = "/proc/self") -> bool:
    """Whether one of the two files that every container leaves its mark in can be read.

    :raises Undecided: neither can; the error is that of /proc/PID/cgroup
    """
    try:
        host.parse(f"{proc}/cgroup", parsers.parse_proc_cgroup)
    except Undecided as error:
        if not _mounts(host, proc)[1]:
            raise error from None
    return True


def fitting(fixes: Iterable[Fix], runtimes: Iterable[Runtime]) -> tuple[Fix, ...]:
    """The fixes that can be applied to a process started by ``runtimes``.

    All of them where no launcher was recognised, for the process may yet be
    started by any, and where none would be left.
    """
    known, offered = _launchers(runtimes), tuple(fixes)
    chosen = tuple(
        fix for fix in offered if fix.launcher in known or fix.launcher not in _LAUNCHERS_OF_ENGINES
    )
    return chosen if known and chosen else offered


def _launchers(runtimes: Iterable[Runtime]) -> frozenset[str]:
    known = frozenset[str]().union(*(runtime.launchers for runtime in runtimes))
    # The engine below a pod is the kubelet's: nobody starts that container by hand.
    return frozenset({"kubernetes"}) if "kubernetes" in known else known


def _clues(host: Host, proc: str) -> Iterator[Runtime]:
    root = other_root(proc)
    yield from _from_kernel(host)
    yield from _from_program(host, proc)
    yield from _from_environment(host, proc)
    yield from _from_files(host, proc, root)
    yield from _from_mounts(host, proc)
    yield from _from_cgroup(host, proc)


def _runtime(name: str, kind: str, launchers: str, source: str, text: str) -> Runtime:
    return Runtime(name, kind, frozenset(launchers.split()), Evidence(source, text[:200]))


def _text(host: Host, path: str) -> str:
    """The text of the file, or nothing where there is none to be had."""
    try:
        return host.text(path)
    except Undecided:
        return ""


def _present(host: Host, path: str) -> bool:
    try:
        host.read(path)
    except Undecided:
        return False
    return True


def _from_kernel(host: Host) -> Iterator[Runtime]:
    version = _text(host, "/proc/version")
    if _GVISOR_DATE in version:
        yield _runtime("gVisor", "sandbox", "", "/proc/version", version)
    if "icrosoft" in version:
        yield _runtime("WSL", "guest", "", "/proc/version", version)
    options = _text(host, "/proc/cmdline")
    if "kata-containers.target" in options:
        yield _runtime("Kata Containers", "guest", "", "/proc/cmdline", options)


def _from_program(host: Host, proc: str) -> Iterator[Runtime]:
    # qemu-user answers for /proc/self/exe in the name of the program that it
    # runs; it does not think of thread-self.
    paths = ["/proc/thread-self/exe"] if proc == "/proc/self" else []
    for path in (*paths, f"{proc}/exe"):
        try:
            program = host.link(path)
        except Undecided:
            continue
        name = program.rpartition("/")[2]
        if name.startswith("qemu-") and not name.startswith(_NOT_USER_EMULATION):
            yield _runtime("qemu-user", "emulation", "", path, program)


# Variable, name, kind, launchers.
_VARIABLES = (
    ("KUBERNETES_SERVICE_HOST", "Kubernetes", "container", "kubernetes"),
    ("SLURM_JOB_ID", "Slurm", "job", "slurm"),
    ("APPTAINER_CONTAINER", "Apptainer", "container", ""),
    ("SINGULARITY_CONTAINER", "Apptainer", "container", ""),
)

# What stands in the variable ``container`` and in /run/systemd/container
# (systemd's CONTAINER_INTERFACE document).
_CONTAINER_NAMES = {
    "docker": ("Docker", "docker compose"),
    "podman": ("podman", "podman"),
    "lxc": ("LXC", "lxc"),
    "lxc-libvirt": ("LXC", "lxc"),
    "systemd-nspawn": ("systemd-nspawn", "systemd"),
    "oci": ("an OCI runtime", ""),
}


def _from_environment(host: Host, proc: str) -> Iterator[Runtime]:
    try:
        environment = host.environ(proc)
    except Undecided:
        return
    path = f"{proc}/environ"
    for variable, name, kind, launchers in _VARIABLES:
        if variable in environment:
            yield _runtime(name, kind, launchers, path, f"{variable}={environment[variable]}")
    if value := environment.get("container"):
        yield from _named_container(value, path, f"container={value}")


def _named_container(value: str, source: str, text: str) -> Iterator[Runtime]:
    name, launchers = _CONTAINER_NAMES.get(value, (value, ""))
    yield _runtime(name, "container", launchers, source, text)


def _from_files(host: Host, proc: str, root: str) -> Iterator[Runtime]:
    yield from _from_docker_mark(host, proc, f"{root}/.dockerenv")
    mark = f"{root}/run/.containerenv"
    if _present(host, mark):
        yield _runtime("podman", "container", "podman", mark, host.text(mark) or "(empty)")
    path = f"{root}/run/systemd/container"
    if value := _text(host, path):
        yield from _named_container(value, path, value)


def _from_docker_mark(host: Host, proc: str, mark: str) -> Iterator[Runtime]:
    if not _present(host, mark):
        return
    _, mounts = _mounts(host, proc)
    signs = [f"{m.point} is mounted over" for m in mounts if m.point in _MOUNTED_BY_ENGINES]
    signs += ["/ is an overlay" for m in mounts if m.point == "/" and m.fstype == "overlay"]
    if signs or not mounts:
        text = ", and ".join(["present", *signs[:1]])
        yield _runtime("Docker", "container", "docker compose", mark, text)
        return
    # Virtual machines and chroots made from an image keep the file.
    yield _runtime("a Docker image", "image", "", mark, "present, but no engine mounted anything")


class _Mount(NamedTuple):
    """What mountinfo and mounts both tell, and the root, which mountinfo alone does."""

    point: str
    fstype: str
    device: str
    options: dict[str, str | None]
    root: str = ""


def _mounts(host: Host, proc: str) -> tuple[str, tuple[_Mount, ...]]:
    """The file that was read and the mounts in it; none where there is no file to be read."""
    try:
        found = host.parse(f"{proc}/mountinfo", parsers.parse_mountinfo)
        return f"{proc}/mountinfo", tuple(
            _Mount(m.point, m.fstype, m.device, m.super_options, m.root) for m in found
        )
    except Undecided:
        pass
    try:
        listed = host.parse(f"{proc}/mounts", parsers.parse_mounts)
        return f"{proc}/mounts", tuple(
            _Mount(m.point, m.fstype, m.device, m.options) for m in listed
        )
    except Undecided:
        return "", ()


# A part of the root overlay's options, name, launchers.
_OVERLAYS = (
    ("/docker/overlay2/", "Docker", "docker compose"),
    ("/docker/rootfs/overlayfs/", "Docker", "docker compose"),
    ("io.containerd.snapshotter", "containerd", ""),
    ("/containers/storage/overlay", "podman or CRI-O", ""),
)


def _from_mounts(host: Host, proc: str) -> Iterator[Runtime]:
    path, mounts = _mounts(host, proc)
    for mount in mounts:
        shown = f"{mount.root} on {mount.point} type {mount.fstype} from {mount.device}".lstrip()
        if mount.device == "kataShared":
            yield _runtime("Kata Containers", "guest", "", path, shown)
        # On the machine itself the kubelet's mounts are below its own folder.
        if "/kubelet/pods/" in mount.root and not mount.point.startswith("/var/lib/kubelet"):
            yield _runtime("Kubernetes", "container", "kubernetes", path, shown)
        if mount.fstype == "fuse.lxcfs" and mount.point.startswith("/proc/"):
            yield _runtime("LXC", "container", "lxc", path, shown)
    tops = [mount for mount in mounts if mount.point == "/"]
    if tops and tops[-1].fstype == "overlay":
        options = ",".join(f"{key}={value}" for key, value in tops[-1].options.items())
        for part, name, launchers in _OVERLAYS:
            if part in options:
                text = f"/ is an overlay of folders in …{part}…"
                yield _runtime(name, "container", launchers, path, text)


# Parts of the path that must all be there, name, kind, launchers.
_CGROUPS = (
    (("/kubepods",), "Kubernetes", "container", "kubernetes"),
    (("/docker/",), "Docker", "container", "docker compose"),
    (("/docker-", ".scope"), "Docker", "container", "docker compose"),
    (("/libpod",), "podman", "container", "podman"),
    (("/cri-containerd-",), "containerd", "container", ""),
    (("/crio-",), "CRI-O", "container", ""),
    (("/lxc.payload",), "LXC", "container", "lxc"),
    (("/lxc/",), "LXC", "container", "lxc"),
    (("/machine.slice/systemd-nspawn",), "systemd-nspawn", "container", "systemd"),
    (("/slurm", "/job_"), "Slurm", "job", "slurm"),
)


def _from_cgroup(host: Host, proc: str) -> Iterator[Runtime]:
    path = f"{proc}/cgroup"
    try:
        memberships = host.parse(path, parsers.parse_proc_cgroup)
    except Undecided:
        return
    for membership in memberships:
        text = f"{membership.hierarchy}:{','.join(membership.controllers)}:{membership.path}"
        for parts, name, kind, launchers in _CGROUPS:
            if all(part in membership.path for part in parts):
                yield _runtime(name, kind, launchers, path, text)
        leaf = membership.path.rpartition("/")[2]
        foreign = leaf.startswith((*_SESSIONS, *_ENGINE_UNITS))
        if leaf.endswith(".service") and not foreign:
            yield _runtime(f"systemd service {leaf}", "service", "systemd", path, text)


def other_root(proc: str) -> str:
    """What stands before a path that the process at ``proc`` sees; nothing for the caller.

    The root of another process is behind a link that only those who may trace
    it can follow.
    """
    return "" if proc == "/proc/self" else f"{proc}/root"
