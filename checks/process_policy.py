"""Memory policies of processes: what was asked for, what is in force, what the pages say."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.host.binders import Binder, read_binders
from numadoctor.kernel.forecast import wider_cpuset
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Target,
    Undecided,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.binding import bind
from numadoctor.model.placement import Policy
from numadoctor.model.words import nodes_text
from numadoctor.placement.examination import Examination, printable

from ._placement import (
    ASKED,
    PLACEMENT,
    THREADS,
    are,
    grouped,
    host_nodes,
    looked_at,
    name_of,
    names_nodes,
    node_list,
    pools,
    seen,
    undecided_processes,
    what,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

# Of a command line no more is repeated in a message.
_SETTING_LENGTH = 100

# Engines that bind their workers themselves: what was asked of the parent shows in a child.
_BIND_WORKERS = ("vLLM", "SGLang")


@check(
    "P007",
    name="policy-asked",
    needs=(*PLACEMENT, *THREADS, *ASKED),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def policy_asked(host: "Host", target: Target) -> Iterator[Finding]:
    """A memory policy was asked for, by option or variable, and is not in force.

    Why it matters
        Engines take a failed binding lightly: numactl is not in the image, the container's
        seccomp filter refuses the call, the variable is spelled otherwise in this version.
        A line in a log says so, and the engine runs on unbound. Everybody believes that it
        is bound, for the option stands in the deployment.

    When it is harmless
        When another mechanism (a cpuset, systemd) holds the process to the same nodes.

    Fix
        See why it was not applied: `numadoctor syscalls` in the same container, and the
        engine's log. Or bind from outside: docker --cpuset-cpus --cpuset-mems needs
        neither numactl nor a capability in the container.

    Source
        numactl(8); vLLM, "NUMA binding" (--numa-bind); SGLang server arguments
        (--numa-node); LightLLM, LIGHTLLM_ENABLE_NUMA_INTERLEAVE
    """
    found = looked_at(host, target)
    asked, blind = _all_asked(found)
    yield from undecided_processes(found, blind, "what it was asked to do")
    if not asked:
        if not blind:
            yield skip("no option or variable of the processes asks for a memory policy")
        return
    for pid, binder in asked:
        yield _applied(found, pid, binder)


def _all_asked(found: Examination) -> tuple[list[tuple[int, Binder]], dict[int, Undecided]]:
    """Who asked for a policy, each setting once, and the processes that do not tell."""
    asked: dict[tuple[str, str], tuple[int, Binder]] = {}
    blind: dict[int, Undecided] = {}
    for pid in found.processes:
        try:
            binders = read_binders(found.host, f"/proc/{pid}")
        except Undecided as error:
            blind[pid] = error
            continue
        for binder in binders:
            engine = binder.name in _BIND_WORKERS and "--numa" in binder.setting
            if (binder.memory and binder.name == "numactl") or binder.pool or engine:
                told = binder._replace(setting=printable(binder.setting[:_SETTING_LENGTH]))
                asked.setdefault((told.name, told.setting), (pid, told))
    return list(asked.values()), blind


def _applied(found: Examination, pid: int, binder: Binder) -> Finding:
    process = found.processes[pid]
    subject = f"{process.name or 'process'}: {binder.name}"
    asked = Evidence(binder.source, binder.setting)
    if binder.pool:
        return _pool_applied(found, binder, subject, asked)
    policies = _policies(found, pid, binder)
    shown = [Evidence(f"/proc/{p}/numa_maps", policy.text) for p, policy in policies[:3]]
    if in_force := [policy for _, policy in policies if not policy.is_default]:
        return passed(
            f"{binder.setting} of {binder.name} is in force: {in_force[0].text}",
            subject=subject,
            evidence=[asked, *shown],
        )
    if not policies:
        return unknown(
            f"{binder.setting} was asked for; the policy in force could not be read",
            subject=subject,
            evidence=[asked],
        )
    held = _held_to(found, [p for p, _ in policies])
    where = "its threads may run on all nodes"
    if held:
        where = f"its CPUs alone are held to {nodes_text(held)}"
    return warn(
        f"{binder.setting} was asked for and is not in force: the policy is default"
        + ("" if held is None else f", {where}"),
        subject=subject,
        cause="numactl is missing in its image, or a system-call filter refused the policy; the "
        "log of the engine and `numadoctor syscalls` inside of its container tell which.",
        evidence=[asked, *shown],
        fixes=_bind_anyway(found, binder),
    )


def _policies(found: Examination, pid: int, binder: Binder) -> list[tuple[int, Policy]]:
    """The policies in force of whom the setting acts on."""
    pids = list(found.processes) if binder.name in _BIND_WORKERS else [pid]
    return [(p, policy) for p in pids if (policy := found.policy(p)) is not None]


def _held_to(found: Examination, pids: list[int]) -> tuple[int, ...] | None:
    """The nodes whose CPUs these processes are held to; () for all, None when not known."""
    try:
        nodes = frozenset[int]().union(*(found.cpu_nodes(pid) for pid in pids))
    except Undecided:
        return None
    return tuple(sorted(nodes)) if nodes < host_nodes(found.host) else ()


def _pool_applied(found: Examination, binder: Binder, subject: str, asked: Evidence) -> Finding:
    large = pools(found)
    spread = [p for p in large if p.policy and "interleave" in p.policy.mode]
    if spread:
        return passed(
            f"{binder.setting} is in force: {name_of(spread[0])} is "
            f"{spread[0].policy.text if spread[0].policy else ''}",
            subject=subject,
            evidence=[asked, seen(spread[0])],
        )
    unread = [p for p in large if p.policy is None]
    if unread or not large:
        why = f"the policy of {what(unread)} was not read" if unread else "no pool is there yet"
        return unknown(f"{binder.setting} was asked for; {why}", subject=subject, evidence=[asked])
    return warn(
        f"{binder.setting} was asked for, and no pool is interleaved: {name_of(large[0])} is "
        f"{large[0].policy.text if large[0].policy else ''}",
        subject=subject,
        cause="The engine asked for it could not, or does not know the setting in this version.",
        evidence=[asked, seen(large[0])],
        fixes=_bind_anyway(found, binder),
    )


def _bind_anyway(found: Examination, binder: Binder) -> tuple[Fix, ...]:
    nodes = binder.nodes or binder.cpu_nodes or tuple(sorted(host_nodes(found.host)))
    policy = "interleave" if binder.pool or "interleave" in binder.setting else "bind"
    return (
        Fix("any", "numadoctor syscalls   # in the container: which call is refused"),
        *bind(nodes=nodes, by=("docker",)),
        *bind(nodes=nodes, policy=policy, by=("numactl",)),
    )


@check(
    "P008",
    name="effective-nodes",
    needs=(*PLACEMENT, *ASKED),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def effective_nodes(host: "Host", target: Target) -> Iterator[Finding]:
    """The policy in force names fewer nodes than were asked for.

    Why it matters
        The kernel drops the nodes of a policy that the cpuset does not allow, or that have
        no memory, and says nothing; when the cpuset changes later, it changes the policies
        with it. An interleave over two nodes of which one is left is no interleave: all
        of the pool is on one node, and mbind returned 0.

    When it is harmless
        When the process was meant to have those nodes alone.

    Fix
        Widen the cpuset to the nodes that were asked for (docker --cpuset-mems, the
        kubelet's memory manager), or ask for what is allowed.

    Source
        mpol_set_nodemask() and mpol_rebind_policy() in mm/mempolicy.c; cpuset(7)
    """
    found = looked_at(host, target)
    asked, blind = _all_asked(found)
    yield from undecided_processes(found, blind, "what it was asked to do")
    told = [*_narrowed(found, asked), *_alone(found)]
    yield from told
    named = [(pid, b) for pid, b in asked if b.nodes and names_nodes(found.policy(pid))]
    if not told and named:
        pid, binder = named[0]
        policy = found.policy(pid)
        yield passed(
            f"the policy {policy.text if policy else ''} names what was asked for: "
            f"{binder.setting}",
            evidence=[Evidence(binder.source, binder.setting), _policy_seen(found, pid)],
        )
    elif not told and not blind:
        yield skip("no nodes were asked for, or no policy with nodes is in force (see P007)")


def _policy_seen(found: Examination, pid: int) -> Evidence:
    policy = found.policy(pid)
    return Evidence(f"/proc/{pid}/numa_maps", policy.text if policy else "not read")


def _narrowed(found: Examination, asked: list[tuple[int, Binder]]) -> Iterator[Finding]:
    for pid, binder in asked:
        policy = found.policy(pid)
        if not binder.nodes or policy is None or not names_nodes(policy) or policy.cut:
            continue
        missing = sorted(set(binder.nodes) - set(policy.nodes))
        # --preferred honours the first node of its list alone.
        if not missing or not set(policy.nodes) <= set(binder.nodes) or policy.mode == "prefer":
            continue
        yield warn(
            f"{nodes_text(binder.nodes)} were asked for ({binder.setting}), in force is "
            f"{policy.text}: without {nodes_text(missing)}",
            subject=f"{found.processes[pid].name or 'process'}: {binder.name}",
            cause="The cpuset does not allow the rest, or it has no memory; the kernel drops such "
            "nodes without a word.",
            evidence=[
                Evidence(binder.source, binder.setting),
                _policy_seen(found, pid),
                found.host.evidence(f"/proc/{pid}/status", "Mems_allowed_list"),
            ],
            fixes=_widen(binder.nodes, policy.nodes),
        )


def _widen(asked: tuple[int, ...], effective: tuple[int, ...]) -> tuple[Fix, ...]:
    return (
        *wider_cpuset(asked),
        Fix(
            "any",
            f"ask for what is allowed: {node_list(effective)}",
            needs_restart=True,
        ),
    )


def _alone(found: Examination) -> Iterator[Finding]:
    """Interleaving over one node, whoever asked for it."""
    large = [
        p
        for p in found.placement.mappings
        if p.policy
        and "interleave" in p.policy.mode
        and len(p.policy.nodes) == 1
        and not p.policy.cut
        and p.mapping.kind.is_pool
    ]
    every = sorted(host_nodes(found.host))
    if len(every) < 2:
        return
    for subject, alike in grouped(large, found):
        policy = alike[0].policy
        yield warn(
            f"{what(alike)} {are(alike)} interleaved over one node: "
            f"{policy.text if policy else ''}",
            subject=subject,
            cause=f"The machine has {nodes_text(every)}; the others were dropped from the policy, "
            "by the cpuset or by who set it.",
            evidence=[
                *(seen(p) for p in alike[:2]),
                found.host.evidence(f"/proc/{alike[0].mapping.pid}/status", "Mems_allowed_list"),
            ],
            fixes=_widen(tuple(every), policy.nodes if policy else ()),
        )
