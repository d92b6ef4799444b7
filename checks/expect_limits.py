"""The pools of a plan against limits and system calls, before anything starts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import check
from numadoctor.host import parsers
from numadoctor.host.cgroup import read_cgroup
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Missing,
    Severity,
    Target,
    Undecided,
    fail,
    info,
    passed,
    unknown,
    warn,
)
from numadoctor.model.plan import Instance, Plan, PoolBacking, PoolPolicy
from numadoctor.model.units import amount, page_size_text

from ._envelope import memlock_fixes, mount_line, mount_of, mounts, shm_fixes
from ._expect import PLAN, before_a_start, huge_page_size, named, stated, subject

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "P053",
    name="planned-limits",
    needs=(
        PLAN,
        "/proc/meminfo",
        "/proc/PID/cgroup",
        "/proc/PID/mounts",
        "/proc/PID/limits",
        "/proc/PID/status",
        "/sys/fs/cgroup/*/cgroup.controllers",
        "/sys/fs/cgroup/*/memory.*",
        "/sys/fs/cgroup/*/hugetlb.*",
    ),
    severity=Severity.HIGH,
)
def planned_limits(host: "Host", target: Target) -> Iterator[Finding]:
    """Limits of cgroup, /dev/shm and locked memory against the planned pools.

    Why it matters
        A cgroup's limit on huge pages, and the size of /dev/shm, act when a page is
        touched: the pool can be created and mapped, and the process gets SIGBUS in the
        middle of its prefault. A limit on memory ends in the cgroup's OOM killer. All
        three know nothing of nodes, and are looked at where numadoctor runs: run it where
        the engine will run.

    When it is harmless
        If the engine starts in another container or service than numadoctor, its
        limits are others. Memory pinned by the CUDA driver and huge pages do not count as
        locked.

    Fix
        Raise the limit where the engine is started:

            docker run --shm-size 65g --ulimit memlock=-1 ...
            resources: {limits: {hugepages-2Mi: 64Gi, memory: 96Gi}}

    Source
        Documentation/admin-guide/cgroup-v2.rst, "HugeTLB", "Memory"; tmpfs(5); getrlimit(2)
    """
    plan = before_a_start(host)
    if isinstance(plan, Finding):
        yield plan
        return
    for instance in plan.instances:
        if not instance.pool_size:
            continue
        yield from named(instance, _limits(host, target, plan, instance))


def _limits(host: "Host", target: Target, plan: Plan, instance: Instance) -> Iterator[Finding]:
    size = huge_page_size(host, instance)
    yield _cgroup(host, plan, instance, size)
    if instance.backing is PoolBacking.POSIX:
        yield _shm(host, target, plan, instance)
    if size is None:
        yield from _locked(host, target, plan, instance)


def _cgroup(host: "Host", plan: Plan, instance: Instance, page_size: int | None) -> Finding:
    cgroup = read_cgroup(host, "/proc/self")
    about = f"{subject(instance)}: cgroup"
    evidence = [stated(plan, instance, "pool_size", "backing", "page_size")]
    wanted = instance.pool_size or 0
    if page_size:
        unit = f"{page_size_text(page_size)}B"
        touched, reserved = (
            cgroup.limit(f"hugetlb.{unit}.{v2}", "hugetlb", f"hugetlb.{unit}.{v1}")
            # Reservations have a limit of their own since Linux 5.7.
            for v2, v1 in (("max", "limit_in_bytes"), ("rsvd.max", "rsvd.limit_in_bytes"))
        )
        found = min(filter(None, (touched, reserved)), default=None)
        after = "the process gets SIGBUS at the first page beyond it"
        if found is not None and found == reserved:
            after = "mmap answers ENOMEM, since pages are reserved then"
    else:
        found = cgroup.limit("memory.max", "memory", "memory.limit_in_bytes")
        after = "the cgroup's OOM killer ends it"
    if found is None:
        return passed("no limit of the cgroup is below its pool", subject=about,
                      evidence=[*evidence, host.evidence("/proc/self/cgroup")])  # fmt: skip
    limit, path = found
    evidence.append(host.evidence(path))
    name = path.rpartition("/")[2]
    if limit >= wanted:
        return passed(
            f"its pool of {amount(wanted)} fits the {amount(limit)} of {name}",
            subject=about,
            evidence=evidence,
        )
    return fail(
        f"its pool is {amount(wanted)}, and {name} allows {amount(limit)}",
        subject=about,
        cause=f"When the pool is {'mapped' if 'mmap' in after else 'touched'}, {after}.",
        evidence=evidence,
        fixes=_raise(page_size, wanted, path),
    )


def _raise(page_size: int | None, wanted: int, path: str) -> tuple[Fix, ...]:
    gib = max(1, -(-wanted >> 30))
    if page_size:
        unit = f"hugepages-{page_size_text(page_size)}i"
        first = Fix("kubernetes", f"resources: {{limits: {{{unit}: {gib}Gi}}}}", False, True, True)
    else:
        first = Fix("kubernetes", f"resources: {{limits: {{memory: {gib}Gi}}}}\n# and what the "
                    "engine needs beside the pool", False, True, True)  # fmt: skip
    return (
        first,
        Fix("any", f"echo {wanted} > {path}", needs_root=True),
        Fix("any", "in the plan, a pool_size that fits the limit"),
    )


def _shm(host: "Host", target: Target, plan: Plan, instance: Instance) -> Finding:
    path, table = mounts(host, target)
    mount = mount_of("/dev/shm", table)
    about = f"{subject(instance)}: /dev/shm"
    evidence = [stated(plan, instance, "pool_size", "backing")]
    wanted = instance.pool_size or 0
    if mount is None or mount.fstype not in ("tmpfs", "devtmpfs"):
        raise Undecided(path, None, "it lists no file system in memory that /dev/shm is on")
    evidence.append(Evidence(path, mount_line(mount)))
    text = mount.options.get("size")
    size = parsers.parse_size(text.encode()) if text else _half(host)
    if size >= wanted:
        return passed(
            f"its pool of {amount(wanted)} fits the {amount(size)} of /dev/shm",
            subject=about,
            evidence=evidence,
        )
    gib = -(-wanted >> 30) + 1
    return fail(
        f"its pool is {amount(wanted)}, and /dev/shm has {amount(size)}",
        subject=about,
        cause="The segment can be created and mapped: the process gets SIGBUS when it touches "
        "what is beyond.",
        evidence=evidence,
        fixes=(
            *shm_fixes(gib),
            Fix("any", f"mount -o remount,size={gib}g /dev/shm", needs_root=True),
        ),
    )


def _half(host: "Host") -> int:
    """The kernel's default for a tmpfs: half of the machine's memory.

    :raises Missing: the machine does not tell how much it has
    """
    total = host.parse("/proc/meminfo", parsers.parse_meminfo).get("MemTotal")
    if total is None:
        raise Missing("/proc/meminfo", None, "it has no MemTotal")
    return total // 2


_CAP_IPC_LOCK = 14


def _locked(host: "Host", target: Target, plan: Plan, instance: Instance) -> Iterator[Finding]:
    """Registering the pool with an RDMA adapter counts as locking it."""
    if not instance.nics:
        return
    path = f"{target.proc}/limits"
    limits = host.parse(path, parsers.parse_limits)
    limit = limits["Max locked memory"].soft if "Max locked memory" in limits else None
    able = (host.status(target.proc).cap_eff or 0) >> _CAP_IPC_LOCK & 1
    evidence = [stated(plan, instance, "pool_size", "nics"), host.evidence(path, "Max locked")]
    about = f"{subject(instance)}: locked memory"
    wanted = instance.pool_size or 0
    if limit is None or limit >= wanted or able:
        yield passed("its pool may be registered for RDMA", subject=about, evidence=evidence)
        return
    yield warn(
        f"its pool is {amount(wanted)}, and {amount(limit)} may be locked: it cannot be registered "
        "with its NICs",
        subject=about,
        cause="ibv_reg_mr answers ENOMEM beyond the limit. What the CUDA driver pins does not "
        "count.",
        evidence=evidence,
        fixes=memlock_fixes(),
    )


@check(
    "P055",
    name="planned-policy-calls",
    needs=(
        PLAN,
        "fact syscalls",
        "fact effect",
        "fact features",
        "fact numactl",
        "/proc/self/status",
        "/proc/version",
        "/sys/devices/system/node",
    ),
    severity=Severity.HIGH,
)
def planned_policy_calls(host: "Host", target: Target) -> Iterator[Finding]:
    """Whether the system calls that a planned memory policy needs get to the kernel from here.

    Why it matters
        Under a default container profile set_mempolicy and mbind answer EPERM. numactl ends
        then, and the engine with it; engines that set the policy themselves go on
        without. Better known before the start. See E001 for each call.

    When it is harmless
        A plan that binds can be kept by a cpuset from outside (docker --cpuset-mems), which
        needs no call. numactl is needed only by who sets the policy with it.

    Fix
        Open the calls with the least privilege, or bind from outside:

            numadoctor syscalls --emit-profile > numa.json
            docker run --security-opt seccomp=numa.json ...

    Source
        set_mempolicy(2), mbind(2); seccomp(2); numactl(8)
    """
    plan = before_a_start(host)
    if isinstance(plan, Finding):
        yield plan
        return
    quiet = (None, PoolPolicy.LOCAL)
    needing = [one for one in plan.instances if one.policy not in quiet]
    if not needing:
        return
    evidence = [stated(plan, one, "policy", "nodes") for one in needing[:2]]
    yield from _calls(host, evidence)
    yield _numactl(host, evidence)


def _calls(host: "Host", shown: list[Evidence]) -> Iterator[Finding]:
    from numadoctor.host.runtime import fitting, read_runtimes
    from numadoctor.kernel.outlook import examine
    from numadoctor.model.calls import Verdict

    runtimes = read_runtimes(host)
    outlook = examine(host, runtimes, lambda fixes: fitting(fixes, runtimes))
    for call in outlook.calls:
        if call.name not in ("mbind", "set_mempolicy"):
            continue
        evidence = [*shown, *call.evidence][:5]
        if call.verdict is Verdict.REACHED:
            yield passed(f"{call.name} reaches the kernel", subject=call.name, evidence=evidence)
        elif call.verdict is Verdict.UNDECIDED:
            yield unknown(
                f"whether {call.name} works here is not decided (answer: {call.answer})",
                subject=call.name,
                cause=call.because,
                evidence=evidence,
            )
        else:
            yield fail(
                f"{call.name}, which the planned policy needs, does not work here: {call.answer}",
                subject=call.name,
                cause=call.because,
                evidence=evidence,
                fixes=call.fixes or (Fix("docker", "--cpuset-mems NODES", needs_restart=True),),
            )


def _numactl(host: "Host", shown: list[Evidence]) -> Finding:
    numactl = host.fact("numactl")
    path = numactl.get("path") if isinstance(numactl, dict) else None
    seen = Evidence("numactl on the PATH", str(path or "not found"))
    if path:
        return passed("numactl is there", subject="numactl", evidence=[*shown, seen])
    return info(
        "numactl is not installed here: an engine that does not set the policy itself cannot be "
        "started with it",
        subject="numactl",
        cause="systemd (NUMAPolicy=) and cpusets do without it.",
        evidence=[*shown, seen],
        fixes=(Fix("any", "install the package numactl in the image or on the machine",
                   needs_root=True),),
    )  # fmt: skip
