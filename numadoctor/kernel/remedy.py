"""The fixes for calls that are refused, for each launcher, least privilege first."""

from collections.abc import Iterable
from typing import Final

from numadoctor.model import Fix
from numadoctor.model.binding import cpuset, unit_lines

_CONTAINERS: Final = ("docker", "podman", "compose", "kubernetes")

_PROFILE_BASE: Final = {
    "docker": "Docker's default profile (moby, profiles/seccomp/default.json)",
    "compose": "Docker's default profile (moby, profiles/seccomp/default.json)",
    "podman": "/usr/share/containers/seccomp.json",
    "kubernetes": "the container runtime's default profile",
}
_PROFILE_OPTION: Final = {
    "docker": "--security-opt seccomp=numa.json",
    "podman": "--security-opt seccomp=numa.json",
    "compose": 'security_opt: ["seccomp=./numa.json"]',
    "kubernetes": "securityContext:\n"
    "  seccompProfile: {type: Localhost, localhostProfile: numa.json}",
}
_CAPABILITY_OPTION: Final = {
    "docker": "--cap-add SYS_NICE",
    "podman": "--cap-add SYS_NICE",
    "compose": "cap_add: [SYS_NICE]",
    "kubernetes": 'securityContext:\n  capabilities: {add: ["SYS_NICE"]}',
}


def profile_rule(calls: Iterable[str]) -> str:
    """The entry to put first in the ``syscalls`` list of an OCI seccomp profile.

    Not last: of two rules for a call the first counts (libseccomp), and the
    profile of podman and CRI-O has one that refuses move_pages by name.
    """
    names = ", ".join(f'"{call}"' for call in calls)
    return f'{{"names": [{names}], "action": "SCMP_ACT_ALLOW"}}'


def profile(calls: Iterable[str]) -> tuple[Fix, ...]:
    """A seccomp profile of one's own: opens the calls and grants no capability."""
    rule = profile_rule(calls)
    fixes = []
    for launcher in _CONTAINERS:
        place = " in /var/lib/kubelet/seccomp of each node" if launcher == "kubernetes" else ""
        fixes.append(
            Fix(
                launcher,
                f"{_PROFILE_OPTION[launcher]}\n"
                f'# numa.json{place}: {_PROFILE_BASE[launcher]} with this first in "syscalls":\n'
                f"{rule}",
                needs_root=launcher == "kubernetes",
                needs_restart=True,
                persists=launcher in ("compose", "kubernetes"),
            )
        )
    return tuple(fixes)


def capability() -> tuple[Fix, ...]:
    """CAP_SYS_NICE: only because default profiles list the policy calls for those who have it."""
    return tuple(
        Fix(
            launcher,
            f"{_CAPABILITY_OPTION[launcher]}\n"
            "# opens mbind, set_mempolicy and get_mempolicy where the profile lists them for it "
            "(Docker 18.09, containerd 1.6.16 and newer)",
            needs_restart=True,
            persists=launcher in ("compose", "kubernetes"),
        )
        for launcher in _CONTAINERS
    )


def newer_engine() -> Fix:
    """For profiles that list the calls for no capability at all."""
    return Fix(
        "any",
        "# upgrade the container engine: Docker 18.09, containerd 1.6.16 and newer list the policy "
        "calls for CAP_SYS_NICE",
        needs_root=True,
        needs_restart=True,
        persists=True,
    )


def unit(calls: Iterable[str]) -> Fix:
    """A drop-in that takes the calls out of a systemd unit's filter.

    A line without ``~`` adds to an allow list and takes from a deny list
    (systemd.exec(5), SystemCallFilter=).
    """
    names = list(calls)
    filters = "\n".join(
        f"SystemCallFilter={' '.join(names[at : at + 3])}" for at in range(0, len(names), 3)
    )
    return Fix(
        "systemd",
        "systemctl edit UNIT\n"
        "# below what is there (or remove ~@resources from it):\n"
        f"[Service]\n{filters}",
        needs_root=True,
        needs_restart=True,
        persists=True,
    )


def unit_bound() -> Fix:
    """A unit's policy: systemd sets it before it installs the unit's filter (systemd.exec(5))."""
    return Fix(
        "systemd",
        "\n".join(
            ["systemctl edit UNIT", "# to start it bound:", "[Service]", *unit_lines(nodes="NODES")]
        ),
        needs_root=True,
        needs_restart=True,
        persists=True,
    )


def start_bound(*, policy_works: bool) -> tuple[Fix, ...]:
    """Pages that are placed rightly from the start need not be moved."""
    if policy_works:
        return (
            Fix(
                "numactl",
                "numactl --membind=NODES COMMAND\n"
                "# started bound, the process has no pages to be moved",
                needs_restart=True,
            ),
        )
    return tuple(
        Fix(
            fix.launcher,
            f"{fix.text}\n# started bound, the process has no pages to be moved",
            needs_restart=True,
        )
        for fix in cpuset(nodes="NODES")
        if fix.launcher in _CONTAINERS
    )


def security_module() -> Fix:
    """Where no seccomp filter is in force and the call is refused all the same."""
    return Fix(
        "any",
        "journalctl -k | grep -iE 'apparmor|avc|landlock'\n"
        "# and allow the call in the policy that made the denial",
        needs_root=True,
        persists=True,
    )


def shared_kernel() -> tuple[Fix, ...]:
    """A sandbox with a kernel of its own hides the machine's nodes: there is no finer switch."""
    return (
        Fix("docker", "--runtime runc", needs_restart=True),
        Fix(
            "kubernetes",
            "# remove runtimeClassName, or name a class whose containers share the node's kernel",
            needs_restart=True,
            persists=True,
        ),
    )


def native_program() -> Fix:
    """User-mode emulation passes none of the six calls on."""
    return Fix(
        "any",
        "# run a program (or an image) built for this machine's own architecture",
        needs_restart=True,
    )


def newer_kernel() -> Fix:
    """set_mempolicy_home_node came with Linux 5.17."""
    return Fix(
        "any",
        "# Linux 5.17 or newer; or bind with mbind alone, which needs no home node",
        needs_root=True,
        needs_restart=True,
        persists=True,
    )
