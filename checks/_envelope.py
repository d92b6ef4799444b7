"""What the checks of the envelope share: how ids are written, and fixes that can be applied."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from numadoctor.host import parsers
from numadoctor.host.runtime import fitting, read_runtimes
from numadoctor.kernel import remedy
from numadoctor.model import Fix, Missing, Target, Undecided

if TYPE_CHECKING:
    from numadoctor.host import Host


def for_target(host: "Host", target: Target, fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Those of ``fixes`` that can change how the target is started."""
    return fitting(fixes, read_runtimes(host, target.proc))


ON_KERNEL = Fix("any", "run the process on the machine's own kernel", needs_restart=True)


def sandbox_fixes() -> tuple[Fix, ...]:
    """For a sandbox whose kernel in user space places nothing."""
    return (
        *remedy.shared_kernel(),
        Fix("docker", "--cpuset-mems NODE\n# places the sandbox as a whole", needs_restart=True),
    )


def mounts(host: "Host", target: Target) -> tuple[str, tuple[parsers.Mount, ...]]:
    """The file that lists what the target has mounted, and the mounts.

    :raises Undecided: it cannot be read
    """
    path = f"{target.proc}/mounts"
    try:
        return path, host.parse(path, parsers.parse_mounts)
    except Missing:
        # /proc/mounts is a link to self/mounts; captured trees often have it alone.
        if target.pid is not None:
            raise
        return "/proc/mounts", host.parse("/proc/mounts", parsers.parse_mounts)


def mount_of(path: str, table: Iterable[parsers.Mount]) -> parsers.Mount | None:
    """The mount that ``path`` is on: the deepest one above it, of several there the last."""
    best: parsers.Mount | None = None
    for mount in table:
        prefix = mount.point.rstrip("/") + "/"
        inside = f"{path.rstrip('/')}/".startswith(prefix)
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def mount_line(mount: parsers.Mount) -> str:
    """The mount as its line in /proc/mounts."""
    options = ",".join(
        key if value is None else f"{key}={value}" for key, value in mount.options.items()
    )
    return f"{mount.device} {mount.point} {mount.fstype} {options}"


def memory_total(host: "Host") -> int | None:
    """The machine's memory in bytes, or None when it does not tell."""
    try:
        return host.parse("/proc/meminfo", parsers.parse_meminfo).get("MemTotal")
    except Undecided:
        return None


def memlock_fixes() -> tuple[Fix, ...]:
    """No limit on locked memory, with each launcher."""
    return (
        Fix("docker", "--ulimit memlock=-1", needs_restart=True),
        Fix("podman", "--ulimit memlock=-1:-1", needs_restart=True),
        Fix("compose", "ulimits: {memlock: -1}", needs_restart=True, persists=True),
        Fix(
            "kubernetes",
            "securityContext: {capabilities: {add: [IPC_LOCK]}}\n"
            "# or for all containers of the machine, in containerd's unit: LimitMEMLOCK=infinity",
            needs_restart=True,
            persists=True,
        ),
        Fix(
            "systemd",
            "[Service]\nLimitMEMLOCK=infinity",
            needs_root=True,
            needs_restart=True,
            persists=True,
        ),
    )


def shm_fixes(size: object) -> tuple[Fix, ...]:
    """A /dev/shm of ``size`` GiB, with each launcher of containers."""
    return (
        Fix("docker", f"--shm-size {size}g", needs_restart=True),
        Fix("podman", f"--shm-size {size}g", needs_restart=True),
        Fix("compose", f"shm_size: {size}g", needs_restart=True, persists=True),
        Fix(
            "kubernetes",
            f"volumes: [{{name: shm, emptyDir: {{medium: Memory, sizeLimit: {size}Gi}}}}]\n"
            "volumeMounts: [{name: shm, mountPath: /dev/shm}]",
            needs_restart=True,
            persists=True,
        ),
    )
