"""What the process runs inside of: containers, guests, sandboxes, emulation, services, jobs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.host.runtime import Runtime, clues_readable, read_runtimes
from numadoctor.kernel import remedy
from numadoctor.model import Finding, Fix, Target, info, passed, warn
from numadoctor.model.words import listed

from ._envelope import ON_KERNEL, sandbox_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "E009",
    name="runtime",
    needs=(
        "/proc/PID/cgroup",
        "/proc/PID/mountinfo",
        "/proc/PID/mounts",
        "/proc/PID/environ",
        "/proc/PID/exe",
        "/proc/version",
        "/proc/cmdline",
        "/.dockerenv",
        "/run/.containerenv",
        "/run/systemd/container",
    ),
    scope=Scope.PROCESS,
)
def runtime(host: "Host", target: Target) -> Iterator[Finding]:
    """Recognises the container, sandbox, guest, emulator, service or job that the process is in.

    Why it matters
        It decides who can change what: the CPUs and nodes of a pod are the kubelet's, those
        of a container its engine's, those of a job Slurm's. And it decides whether placement
        reaches the machine at all. gVisor and qemu-user answer the NUMA calls themselves;
        WSL and Kata Containers have a kernel of their own, whose nodes are not the
        machine's: a policy set inside moves memory between nodes of the guest, of which
        there is one unless the hypervisor was told otherwise.

    When it is harmless
        Containers that share the machine's kernel (Docker, podman, Kubernetes, LXC) cost
        nothing as such: their memory is the machine's. What their profiles refuse is told
        by E001, what their cgroups limit by E003 and E007.

    Fix
        For placement that has an effect: run on the machine's own kernel (--runtime runc, no
        runtimeClassName), or give the guest virtual nodes and bind them on the host.

    Source
        systemd's "Container Interface"; podman-run(1), /run/.containerenv; cgroups(7);
        pkg/sentry/kernel/version.go of gVisor; linux-user/syscall.c of QEMU
    """
    runtimes = read_runtimes(host, target.proc)
    hiding = [found for found in runtimes if found.hides_placement]
    others = [found for found in runtimes if not found.hides_placement]
    for found in hiding:
        yield _hides(target, found)
    if others:
        yield info(
            f"runs in {listed([_described(found) for found in others])}",
            subject=target.subject,
            evidence=[found.evidence for found in others],
        )
    if not runtimes and clues_readable(host, target.proc):
        yield passed(
            "runs on the machine itself: no container, sandbox, service or job is recognised",
            subject=target.subject,
            evidence=(host.evidence(f"{target.proc}/cgroup"),),
        )


def _described(found: Runtime) -> str:
    if found.kind == "image":
        return f"the root file system of {found.name} without its engine"
    return {"job": "a {} job", "service": "{}"}.get(found.kind, "{}").format(found.name)


def _hides(target: Target, found: Runtime) -> Finding:
    cause = {
        "sandbox": "It answers the NUMA calls itself and takes memory from wherever the host gives "
        "it: no policy that is set here reaches the machine.",
        "emulation": "It passes none of the six NUMA calls on; they are answered ENOSYS.",
        "guest": "It has a kernel of its own: nodes seen here are the guest's, and which node of "
        "the machine its memory lies on is decided outside.",
    }[found.kind]
    return warn(
        f"{target.subject} runs in {found.name}: placement made here does not reach the machine",
        subject=f"{target.subject} in {found.name}",
        cause=cause,
        evidence=(found.evidence,),
        fixes=_FIXES.get(found.name, _FIXES_OF_KIND[found.kind]),
    )


_FIXES = {
    "WSL": (Fix("any", "run it on Linux that is installed on the machine", needs_restart=True),),
}
_FIXES_OF_KIND = {
    "sandbox": sandbox_fixes(),
    "emulation": (remedy.native_program(),),
    "guest": (
        *(fix for fix in remedy.shared_kernel() if fix.launcher == "kubernetes"),
        Fix(
            "any",
            "# bind the hypervisor's process on the host: numactl --membind=NODE, or its cgroup",
            needs_root=True,
            needs_restart=True,
        ),
        ON_KERNEL,
    ),
}
