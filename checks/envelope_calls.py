"""Which NUMA calls work here, whether they have an effect, and numactl, which makes them."""

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numadoctor.engine import Requires, Scope, check
from numadoctor.host.runtime import Runtime, fitting, read_runtimes
from numadoctor.kernel.outlook import examine
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Malformed,
    Severity,
    Status,
    Target,
    Undecided,
    fail,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.calls import CallVerdict, Verdict
from numadoctor.model.words import nodes_text

from ._envelope import ON_KERNEL, for_target, sandbox_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "E001",
    name="numa-calls",
    needs=(
        "fact syscalls",
        "fact effect",
        "fact features",
        "/proc/PID/status",
        "/proc/version",
        "/sys/devices/system/node",
    ),
    scope=Scope.PROCESS,
    severity=Severity.HIGH,
)
def numa_calls(host: "Host", target: Target) -> Iterator[Finding]:
    """Gives a verdict on each of the six NUMA system calls: who stands in the way, what helps.

    Why it matters
        A process without any capability may call mbind, set_mempolicy and get_mempolicy:
        the kernel answers them 0, EINVAL, EFAULT or ENOMEM, never EPERM, except to
        MPOL_MF_MOVE_ALL. So EPERM is the word of a filter. Engines meet it in silence:
        they go on without a policy, and the KV pool lies where its first toucher ran.
        Each call has a gate of its own, so each is tried, in a forked child, with
        arguments that change nothing; ENOSYS is told apart by the node directories and
        the Seccomp line (a kernel without NUMA, an old one, a filter, an emulator).

    When it is harmless
        A kernel without NUMA has nothing to place: skipped. move_pages, migrate_pages and
        set_mempolicy_home_node are closed in every default container profile; pages that
        are placed rightly from the start need none of them, so that is told (info).

    Fix
        The smallest fix that opens all six is a seccomp profile that lists them, with no
        capability at all. SYS_NICE helps under Docker and containerd only because their
        profiles list the three policy calls for it, and opens neither move_pages nor
        migrate_pages. The fix of each finding is for the launcher that was recognised.

        The calls of another process cannot be tried from outside. Run numadoctor where it
        runs: docker exec and kubectl exec apply the container's filter. nsenter does not:
        it enters the namespaces and leaves the filter behind.

    Source
        mbind(2), set_mempolicy(2), get_mempolicy(2), move_pages(2), migrate_pages(2),
        set_mempolicy_home_node(2); mm/mempolicy.c; seccomp(2); profiles/seccomp in moby
    """
    runtimes = read_runtimes(host, target.proc)
    if target.pid is not None:
        yield _from_outside(host, target, runtimes)
        return
    outlook = examine(host, runtimes, lambda fixes: fitting(fixes, runtimes))
    for call in outlook.calls:
        yield Finding(
            call.status,
            _told(call),
            subject=call.name,
            cause=call.because,
            evidence=call.evidence,
            fixes=call.fixes or _last_resort(call),
        )


def _told(call: CallVerdict) -> str:
    by = f" by a {call.blocked_by}" if call.blocked_by else ""
    return {
        Verdict.REACHED: f"{call.name} reaches the kernel",
        Verdict.FILTERED: f"{call.name} is refused ({call.answer}){by}",
        Verdict.ABSENT: f"{call.name} is not there ({call.answer}): {call.blocked_by}",
        Verdict.NO_EFFECT: f"{call.name} is accepted and has no effect: {call.blocked_by}",
        Verdict.UNDECIDED: f"whether {call.name} works is not decided (answer: {call.answer})",
    }[call.verdict]


def _last_resort(call: CallVerdict) -> tuple[Fix, ...]:
    if call.status not in (Status.WARN, Status.FAIL):
        return ()
    return (
        Fix(
            "any",
            "place memory from outside (cpuset of the container or service), or run the process "
            "directly on the machine's kernel",
            needs_restart=True,
        ),
    )


def _from_outside(host: "Host", target: Target, runtimes: tuple[Runtime, ...]) -> Finding:
    status = host.status(target.proc)
    evidence = (host.evidence(f"{target.proc}/status", "Seccomp", "CapBnd", "Mems_allowed_list"),)
    if status.seccomp == 0:
        return info(
            "no seccomp filter acts on this process: its NUMA calls reach the kernel, unless a "
            "security module refuses them",
            subject=target.subject,
            evidence=evidence,
        )
    why = "its seccomp filter" if status.seccomp else "whether it has a seccomp filter"
    return unknown(
        f"which NUMA calls this process can make is not decided: {why} cannot be tried from "
        "outside",
        subject=target.subject,
        cause="numadoctor must be run where the process runs: exec into its container. nsenter "
        "does not take the filter along.",
        evidence=evidence,
        fixes=fitting(_look_inside(), runtimes),
    )


def _look_inside() -> tuple[Fix, ...]:
    return (
        Fix("docker", "docker exec CONTAINER numadoctor syscalls"),
        Fix("podman", "podman exec CONTAINER numadoctor syscalls"),
        Fix("compose", "docker compose exec SERVICE numadoctor syscalls"),
        Fix("kubernetes", "kubectl exec POD -- numadoctor syscalls"),
        Fix(
            "systemd",
            "systemd-run --pipe --wait -p SystemCallFilter='(as in the unit)' numadoctor syscalls",
            needs_root=True,
        ),
    )


@check(
    "E002",
    name="placement-effect",
    needs=("fact effect", "/proc/version"),
    severity=Severity.HIGH,
)
def placement_effect(host: "Host", target: Target) -> Iterator[Finding]:
    """Asks for a page on each allowed node and looks where it landed.

    Why it matters
        A call that succeeds need not do anything. gVisor answers 0 to mbind and
        set_mempolicy and takes memory from wherever the host gives it; other sandboxes and
        emulators do the same. Every tool then reports success, numactl too, and nothing
        is placed. So one private page is bound to each node with mbind, one is taken
        under set_mempolicy, both are touched and looked up again.

    When it is harmless
        Where only one node is allowed a page cannot land elsewhere: that says nothing for
        or against, and is skipped, unless a sandbox is recognised. Calls that are refused
        are told by E001 and left out here.

    Fix
        Run the process on the machine's own kernel, or place it from outside: a cpuset of
        the sandbox's own process on the host (--cpuset-mems) acts on all of its memory.

    Source
        mbind(2), get_mempolicy(2) with MPOL_F_NODE | MPOL_F_ADDR, move_pages(2);
        pkg/sentry/syscalls/linux/sys_mempolicy.go of gVisor
    """
    runtimes = read_runtimes(host, target.proc)
    effect = host.fact("effect")
    pages = _pages(effect)
    if reason := effect.get("unprobed"):
        raise Undecided("effect probe", None, str(reason))
    astray = [p for p in pages if p["observed"] is not None and p["observed"] != p["node"]]
    landed = [p for p in pages if p["observed"] is not None and p["observed"] == p["node"]]
    sandbox = next((r for r in runtimes if r.kind in ("sandbox", "emulation")), None)
    for page in astray:
        yield warn(
            f"a page asked for on node {page['node']} with {page['call']} landed on node "
            f"{page['observed']}",
            subject=f"{page['call']} on node {page['node']}",
            cause="The call was accepted and had no effect: something between this process and "
            "the kernel answers in its place" + (f" ({sandbox.name})." if sandbox else "."),
            evidence=(_seen(page), *((sandbox.evidence,) if sandbox else ())),
            fixes=for_target(host, target, (*sandbox_fixes(), ON_KERNEL)),
        )
    if not astray:
        yield _without_strays(host, target, pages, landed, sandbox)


def _pages(effect: Any) -> list[dict[str, Any]]:
    """The pages of the effect probe.

    :raises Malformed: a recording holds something else
    """
    pages = effect.get("pages") if isinstance(effect, dict) else None
    keys = {"call", "node", "observed", "errno"}
    if not isinstance(pages, list) or any(
        not isinstance(page, dict) or not keys <= page.keys() for page in pages
    ):
        raise Malformed("effect", None, "it does not hold what the effect probe gives")
    return pages


def _seen(page: dict[str, Any]) -> Evidence:
    where = f"node {page['observed']}" if page["observed"] is not None else "not looked up"
    if page["errno"]:
        where = f"refused, {errno.errorcode.get(page['errno'], page['errno'])}"
    method = f" ({page['method']})" if page.get("method") else ""
    return Evidence(f"{page['call']}, MPOL_BIND to node {page['node']}", where + method)


def _without_strays(
    host: "Host",
    target: Target,
    pages: list[dict[str, Any]],
    landed: list[dict[str, Any]],
    sandbox: Runtime | None,
) -> Finding:
    evidence = [_seen(page) for page in pages]
    nodes = sorted({page["node"] for page in landed})
    if sandbox and landed:
        return warn(
            f"memory policies are accepted and have no effect in {sandbox.name}",
            subject="memory policy",
            cause="It shows one node of its own, so that every page seems to be where it was "
            "asked for; where it lies on the machine is not up to this process.",
            evidence=[sandbox.evidence, *evidence],
            fixes=for_target(host, target, (*sandbox_fixes(), ON_KERNEL)),
        )
    unseen = [page for page in pages if page["observed"] is None and not page["errno"]]
    if not landed and unseen:
        return unknown(
            "pages were bound and could not be looked up: whether binding has an effect is open",
            subject="memory policy",
            evidence=evidence,
        )
    if not landed:
        return skip(
            "no call that places memory is open here (E001 says why)",
            subject="memory policy",
            evidence=evidence,
        )
    if len(nodes) == 1 and len({page["node"] for page in pages}) == 1:
        return skip(
            f"{nodes_text(nodes)} alone is allowed: a page cannot land elsewhere",
            subject="memory policy",
            evidence=evidence,
        )
    calls = " and ".join(dict.fromkeys(page["call"] for page in landed))
    return passed(
        f"pages asked for on {nodes_text(nodes)} landed there, by {calls}",
        subject="memory policy",
        evidence=evidence,
    )


# numactl 2.0.18 turned --membind and --preferred into MPOL_PREFERRED_MANY's
# checks, which kernels before 5.15 answer EINVAL; 2.0.19 asks the kernel first.
_BROKEN_BEFORE_PREFERRED_MANY = "2.0.18"


@check(
    "E008",
    name="numactl",
    needs=("fact numactl", "fact features"),
    requires=Requires.SEVERAL_NODES,
)
def numactl(host: "Host", target: Target) -> Iterator[Finding]:
    """Checks that numactl is there and works with this kernel.

    Why it matters
        SGLang and vLLM bind their workers by starting them under numactl, and where it is
        not installed they go on unbound, with a line in the log at most. numactl 2.0.18
        answers every --membind and --preferred with a false EINVAL on kernels without
        MPOL_PREFERRED_MANY (before Linux 5.15): the node is there, and the message says it
        is not. --interleave works there.

    When it is harmless
        An engine that calls mbind itself needs no numactl, and neither does a process that
        is placed from outside (cpuset, NUMAPolicy= of systemd).

    Fix
        Install it in the image, or a newer one:

            apt-get install numactl

        To see what is in force do not ask numactl --show: where get_mempolicy is refused
        it prints "policy: default" and exits 0. /proc/self/numa_maps tells.

    Source
        numactl(8); numactl's releases 2.0.18 and 2.0.19; "mm/mempolicy: add
        MPOL_PREFERRED_MANY for multiple preferred nodes" (Linux 5.15)
    """
    fact = host.fact("numactl")
    if not isinstance(fact, dict) or "path" not in fact:
        raise Malformed("numactl", None, "it does not hold what the search for numactl gives")
    path, version = fact["path"], fact.get("version")
    seen = (Evidence("numactl", f"{path or 'not on the PATH'}, version {version or 'not told'}"),)
    if path is None:
        yield warn(
            "numactl is not on the PATH",
            subject="numactl",
            cause="Engines that bind their workers through it (SGLang, vLLM) go on unbound "
            "without an error.",
            evidence=seen,
            fixes=(
                Fix("any", "apt-get install numactl, or dnf install numactl", True, False, True),
                Fix(
                    "docker", "RUN apt-get update && apt-get install -y numactl", False, True, True
                ),
            ),
        )
    elif version == _BROKEN_BEFORE_PREFERRED_MANY:
        yield _with_broken_release(host, path, seen)
    else:
        told = f"numactl {version}" if version else "a numactl that does not tell its version"
        yield passed(f"{told} is at {path}", subject="numactl", evidence=seen)


def _with_broken_release(host: "Host", path: str, seen: tuple[Evidence, ...]) -> Finding:
    feature = host.fact("features").get("MPOL_PREFERRED_MANY", {})
    available, reason = feature.get("available"), feature.get("reason")
    probe = Evidence("set_mempolicy with MPOL_PREFERRED_MANY", str(reason or available))
    if available is None:
        return unknown(
            f"numactl 2.0.18 fails on kernels without MPOL_PREFERRED_MANY; whether this is one "
            f"is not decided: {reason or 'it was not tried'}",
            subject="numactl",
            evidence=(*seen, probe),
        )
    if available:
        return passed(
            f"numactl 2.0.18 is at {path}, and this kernel has MPOL_PREFERRED_MANY",
            subject="numactl",
            evidence=(*seen, probe),
        )
    return fail(
        "numactl 2.0.18 answers every --membind and --preferred with a false EINVAL here",
        subject="numactl",
        cause="It asks for MPOL_PREFERRED_MANY, which this kernel does not have. The nodes are in "
        "order, and --interleave works.",
        evidence=(*seen, probe),
        fixes=(
            Fix("any", "install numactl 2.0.19 or newer, or 2.0.16", True, False, True),
            Fix("any", "taskset -c CPUS COMMAND, and the default policy", needs_restart=True),
            Fix("any", "Linux 5.15 or newer", True, True, True),
        ),
    )
