"""What the process may use of the machine: CPUs, memory nodes, and who narrows them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from numadoctor.engine import Requires, Scope, check
from numadoctor.host import parsers
from numadoctor.host.allowed import read_allowed
from numadoctor.host.binders import Binder, read_binders
from numadoctor.host.cgroup import read_cgroup
from numadoctor.kernel.forecast import predict_bind
from numadoctor.model import (
    Allowed,
    Evidence,
    Finding,
    Fix,
    Missing,
    Target,
    Topology,
    Undecided,
    fail,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.binding import bind, cpuset, numactl_options
from numadoctor.model.words import cpus_text, nodes_text

from ._devices import usage_of
from ._envelope import for_target

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.model.placement import Policy


def _allowed(host: "Host", target: Target) -> Allowed:
    """What the target may use.

    :raises Undecided: neither its status nor its cpuset can be read
    """
    topology = host.topology
    nodes = tuple(node.id for node in topology.nodes)
    try:
        host.status(target.proc)
    except Missing:
        if read_cgroup(host, target.proc).cpuset is None:
            raise
    return read_allowed(host, target.proc, topology.online_cpus, nodes)


def _seen(host: "Host", target: Target, allowed: Allowed) -> list[Evidence]:
    if allowed.source.endswith("/status"):
        return [host.evidence(allowed.source, "Cpus_allowed_list", "Mems_allowed_list")]
    cgroup = read_cgroup(host, target.proc)
    return [host.evidence(cgroup.cpuset_file(what)) for what in ("cpus", "mems")]


@check(
    "E003",
    name="allowed-cpus-and-nodes",
    needs=(
        "/proc/PID/status",
        "/proc/PID/environ",
        "/proc/PID/cmdline",
        "/proc/PID/fd",
        "/sys/class/kfd/kfd/topology/nodes/*/properties",
        "/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties",
        "/sys/fs/cgroup/*/cpuset.*",
        "/sys/devices/system/cpu/online",
        "/sys/bus/pci/devices/*/numa_node",
        "fact nvml",
    ),
    requires=Requires.NUMA,
    scope=Scope.PROCESS,
)
def allowed_cpus_and_nodes(host: "Host", target: Target) -> Iterator[Finding]:
    """Tells which CPUs and memory nodes the process may use, and what was asked for beyond them.

    Why it matters
        A cpuset is a hard border. The kernel drops the nodes of a memory policy that
        lie outside of it without a word, and answers EINVAL when none is left, so
        --membind=1 under a cpuset of node 0 fails on a machine whose node 1 is in
        perfect health. CPUs are cut in the same way: sched_setaffinity(2) keeps what is
        allowed and answers EINVAL when that is nothing. A GPU whose node has no CPU in
        the set is fed across the socket link by every thread of the job.

    When it is harmless
        A process that is meant to have half of the machine sees half of it: that is told
        (info) and nothing more. GPUs that the process does not use are left out where
        CUDA_VISIBLE_DEVICES or the devices of the container say which it does.

    Fix
        Ask for what is allowed, or widen the set where the process is started: never
        both by hand in two places. In Kubernetes the CPU, memory and topology managers
        choose the set; a pod gets its GPUs, CPUs and memory from one node with the
        topology manager's policy single-numa-node and integer CPU requests.

    Source
        cpuset(7); set_mempolicy(2) and sched_setaffinity(2); mpol_set_nodemask() in
        mm/mempolicy.c and __sched_setaffinity() in kernel/sched/syscalls.c
    """
    allowed = _allowed(host, target)
    evidence = _seen(host, target, allowed)
    if allowed.cpus is None or allowed.nodes is None:
        what = "CPUs" if allowed.cpus is None else "memory nodes"
        yield unknown(
            f"which {what} the {target.subject} may use cannot be told from {allowed.source}",
            subject=target.subject,
            evidence=evidence,
        )
        return
    yield _what_is_allowed(host.topology, target, allowed, evidence)
    yield from _asked_beyond(host, target, allowed, evidence)
    yield from _gpus_without_cpus(host, target, allowed.cpus, evidence)


def _what_is_allowed(
    topology: Topology, target: Target, allowed: Allowed, evidence: list[Evidence]
) -> Finding:
    cpus, nodes = allowed.cpus or (), allowed.nodes or ()
    online = topology.online_cpus
    offline = sorted(set(topology.present_cpus) - set(online))
    tail = f"; {cpus_text(offline)} {'is' if len(offline) == 1 else 'are'} offline"
    all_cpus = set(cpus) >= set(online)
    all_memory = set(nodes) >= {node.id for node in topology.memory_nodes}
    on_nodes = [node.id for node in topology.nodes if set(node.cpus) & set(cpus)]
    some_cpus = (
        f"{cpus_text(cpus)} ({len(cpus)} of {len(online)} online, on {nodes_text(on_nodes)})"
    )
    text = (
        f"may use {f'all {len(cpus)} online CPUs' if all_cpus else some_cpus} and the memory of "
        f"{nodes_text(nodes)}{'' if all_memory else ' alone'}{tail if offline else ''}"
    )
    if all_cpus and all_memory:
        return passed(text, subject=target.subject, evidence=evidence)
    return info(
        text,
        subject=target.subject,
        cause="The rest of the machine is there, and not for this process: its cpuset or "
        "affinity leaves it out.",
        evidence=evidence,
    )


def _asked_beyond(
    host: "Host", target: Target, allowed: Allowed, evidence: list[Evidence]
) -> Iterator[Finding]:
    """What launchers and engines were told to use and the process may not."""
    try:
        binders = read_binders(host, target.proc)
    except Undecided:
        return
    for binder in binders:
        if binder.name == "Slurm":
            # Its variables tell what slurmd did, and are inherited by steps with other masks.
            continue
        asked = Evidence(binder.source, binder.setting)
        if binder.nodes:
            yield from _nodes_beyond(host, target, allowed, binder, [asked, *evidence])
        cpus = _asked_cpus(host.topology, binder)
        if cpus - set(allowed.cpus or ()):
            yield _cpus_beyond(host, target, allowed, binder, cpus, [asked, *evidence])


def _asked_cpus(topology: Topology, binder: Binder) -> set[int]:
    if binder.cpus:
        return set(binder.cpus)
    named = set(binder.cpu_nodes or ())
    return {cpu for node in topology.nodes if node.id in named for cpu in node.cpus}


def _nodes_beyond(
    host: "Host", target: Target, allowed: Allowed, binder: Binder, evidence: list[Evidence]
) -> Iterator[Finding]:
    memory = [node.id for node in host.topology.memory_nodes]
    forecast = predict_bind(binder.nodes or (), allowed.nodes, memory)
    if not forecast.errno and not forecast.narrowed:
        return
    asked = f"{binder.name} was asked for {nodes_text(forecast.asked)} ({binder.setting})"
    mine = allowed.nodes or ()
    within = f"numactl {numactl_options(nodes=mine)} COMMAND\n# what is allowed here"
    fixes: tuple[Fix, ...] = (Fix("numactl", within, needs_restart=True),)
    if absent := sorted(set(forecast.not_allowed) - {node.id for node in host.topology.nodes}):
        asked += f", this machine has no {nodes_text(absent)}"
    else:
        # No cpuset can be widened by a node that is not there.
        fixes += forecast.fixes
    subject = f"{target.subject}: {binder.name} nodes"
    if forecast.errno:
        yield fail(
            f"{asked}, and may use {nodes_text(allowed.nodes or ())}: the policy will be answered "
            f"{forecast.errno}",
            subject=subject,
            cause=forecast.because,
            evidence=evidence,
            fixes=for_target(host, target, fixes),
        )
        return
    yield warn(
        f"{asked}; only {nodes_text(forecast.effective or ())} will take effect",
        subject=subject,
        cause=f"{forecast.because} numactl itself refuses such a list as a whole.",
        evidence=evidence,
        fixes=for_target(host, target, fixes),
    )


def _cpus_beyond(
    host: "Host",
    target: Target,
    allowed: Allowed,
    binder: Binder,
    asked: set[int],
    evidence: list[Evidence],
) -> Finding:
    mine = set(allowed.cpus or ())
    rest, online = asked & mine, set(host.topology.online_cpus)
    beyond = asked - mine
    absent = beyond - online
    why = "exist and are not allowed here" if not absent else "are not all online"
    text = (
        f"{binder.name} was asked for {cpus_text(sorted(asked))} ({binder.setting}); of these "
        f"{cpus_text(sorted(beyond))} {why} (allowed: {parsers.format_list(mine)})"
    )
    subject = f"{target.subject}: {binder.name} CPUs"
    fixes = for_target(host, target, (_ask_within(mine), *_more_cpus(asked | mine)))
    if rest:
        return warn(
            f"{text}: only {cpus_text(sorted(rest))} can be used",
            subject=subject,
            cause="The kernel keeps those CPUs of a mask that the cpuset allows and says nothing "
            "of the others; the threads share what is left.",
            evidence=evidence,
            fixes=fixes,
        )
    return fail(
        text,
        subject=subject,
        cause="A mask without one allowed CPU is answered EINVAL: the process ends, or runs on "
        "unbound, by how it takes the error.",
        evidence=evidence,
        fixes=fixes,
    )


def _ask_within(cpus: set[int]) -> Fix:
    return Fix("any", f"ask for CPUs out of {parsers.format_list(cpus)}", needs_restart=True)


def _more_cpus(cpus: set[int]) -> tuple[Fix, ...]:
    return (
        *_given_cpus(cpus),
        Fix(
            "kubernetes",
            f"resources: {{limits: {{cpu: {len(cpus)}}}}}\n"
            "# whole CPUs, requests equal to limits (Guaranteed); the kubelet chooses which",
            needs_restart=True,
            persists=True,
        ),
        Fix(
            "slurm",
            f"sbatch --cpus-per-task={len(cpus)}\n# or --exclusive; Slurm chooses which",
            needs_restart=True,
        ),
    )


def _given_cpus(cpus: set[int]) -> tuple[Fix, ...]:
    """Both of what may hold a process to CPUs in a unit: its cpuset, and its affinity."""
    return (*cpuset(cpus), *bind(cpus, by=("systemd",)))


def _gpus_without_cpus(
    host: "Host", target: Target, cpus: tuple[int, ...], evidence: list[Evidence]
) -> Iterator[Finding]:
    topology = host.topology
    if set(cpus) >= set(topology.online_cpus):
        return
    gpus = usage_of(host, target)
    far = [
        (gpu, node)
        for gpu in gpus.devices
        if gpu.node is not None
        and (node := topology.node(gpu.node))
        and node.cpus
        and not set(node.cpus) & set(cpus)
    ]
    nodes = {node.id for _, node in far}
    if far and not gpus.certain:
        yield info(
            f"no local CPU in this job for {len(far)} GPUs on {nodes_text(sorted(nodes))}; which "
            "GPUs it uses cannot be told",
            subject=f"{target.subject}: GPUs",
            evidence=[*gpus.evidence, *evidence],
        )
        return
    fixes = for_target(host, target, _bring_together(topology, cpus, nodes))
    for gpu, node in far:
        yield warn(
            f"no local CPU in this job for GPU {gpu.address}: it is on node {node.id} "
            f"({cpus_text(node.cpus)}), the job may use {cpus_text(cpus)}",
            subject=f"gpu {gpu.address}",
            cause="Every thread that feeds the GPU, and every page that such a thread touches "
            "first, is on the other side of the socket link. The GPU itself is in order.",
            evidence=[
                host.evidence(f"/sys/bus/pci/devices/{gpu.address}/numa_node"),
                *gpus.evidence,
                *evidence,
            ],
            fixes=fixes,
        )


def _bring_together(topology: Topology, cpus: tuple[int, ...], nodes: set[int]) -> tuple[Fix, ...]:
    """Give the job the CPUs of ``nodes`` as well, or leave it without their GPUs."""
    more = {cpu for node in topology.nodes if node.id in nodes for cpu in node.cpus}
    wanted = more.union(cpus)
    on = [node.id for node in topology.nodes if wanted & set(node.cpus)]
    return (
        Fix("any", "leave those GPUs out: CUDA_VISIBLE_DEVICES=…", needs_restart=True),
        *_given_cpus(wanted),
        *bind(wanted, cpu_nodes=on, by=("kubernetes",)),
        Fix("slurm", "sbatch --gres-flags=enforce-binding", needs_restart=True),
    )


@check(
    "E004",
    name="cpus-and-memory-narrowed-apart",
    needs=("/proc/PID/status", "/proc/PID/numa_maps", "/sys/fs/cgroup/*/cpuset.*"),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESS,
)
def narrowed_apart(host: "Host", target: Target) -> Iterator[Finding]:
    """The CPUs of the process are narrowed to some nodes and its memory is not, or the reverse.

    Why it matters
        CPUs alone do not keep memory local. With the default policy a page comes from
        the node of the thread that touches it first only while that node has free pages:
        page cache of earlier jobs and model files fills nodes, and from then on new pages
        come from the other node, silently (numa_miss counts them). One start of an
        engine is fast and the next is not. The reverse is worse: memory held to one node
        under CPUs of two makes half of the threads remote for good.

    When it is harmless
        A process whose own memory policy (numactl --membind, mbind) names the same nodes
        is bound after all: the policy is read from the first line of numa_maps, for which
        one small mapping is walked. Interleaving on purpose under narrowed CPUs is told and
        no more. taskset alone around a tool that uses little memory is fine.

    Fix
        Give the memory the same nodes as the CPUs, in the same place:

            docker run --cpuset-cpus 0-15 --cpuset-mems 0 ...

        needs no capability in the container, for the engine sets it from outside. A
        cpuset does not spill: leave room on the node, or use --preferred.

    Source
        cpuset(7); numa(7); Documentation/admin-guide/mm/numa_memory_policy.rst;
        systemd.exec(5), NUMAPolicy=
    """
    topology = host.topology
    host_nodes = {node.id for node in topology.host_nodes}
    if len(host_nodes) < 2:
        yield skip(
            f"{nodes_text(sorted(host_nodes))} has both CPUs and memory: the two cannot part",
            subject=target.subject,
        )
        return
    allowed = _allowed(host, target)
    if allowed.cpus is None or allowed.nodes is None:
        raise Undecided(allowed.source, None, "it does not tell the allowed CPUs and nodes")
    place = _Place(
        cpus=frozenset(
            node.id for node in topology.host_nodes if set(node.cpus) & set(allowed.cpus)
        ),
        memory=frozenset(allowed.nodes) & host_nodes,
        all=frozenset(host_nodes),
        numbers=allowed.cpus,
    )
    yield _judge(host, target, place, _seen(host, target, allowed))


class _Place(NamedTuple):
    """Host nodes: those whose CPUs may be used, those whose memory may be, and all of them.

    :ivar numbers: the CPUs themselves
    """

    cpus: frozenset[int]
    memory: frozenset[int]
    all: frozenset[int]
    numbers: tuple[int, ...]


def _judge(host: "Host", target: Target, place: _Place, evidence: list[Evidence]) -> Finding:
    if not place.cpus & place.memory:
        return _disjoint(host, target, place, place.memory, evidence)
    if not place.cpus <= place.memory:
        return _memory_narrowed(host, target, place, place.memory, evidence)
    if place.memory <= place.cpus:
        return _as_wide(host, target, place, evidence)
    policy = _task_policy(host, target)
    if isinstance(policy, Undecided):
        return unknown(
            f"{_cpus_at(place)}, its cpuset allows the memory of {nodes_text(sorted(place.memory))}"
            f"; whether its memory policy makes up for that: {policy}",
            subject=target.subject,
            evidence=[*evidence, Evidence(policy.path, policy.reason)],
        )
    seen = [*evidence, Evidence(f"{target.proc}/numa_maps", policy.text)]
    if policy.is_default:
        return _cpus_narrowed(host, target, place, seen)
    if policy.mode == "bind" and not policy.cut:
        effective = frozenset(policy.nodes) & place.memory
        if not effective & place.cpus:
            return _disjoint(host, target, place, effective, seen)
        if effective <= place.cpus:
            return passed(
                f"{_cpus_at(place)}, and its memory policy is {policy.text}",
                subject=target.subject,
                evidence=seen,
            )
    return info(
        f"{_cpus_at(place)}, and its memory policy {policy.text} reaches further",
        subject=target.subject,
        cause="Somebody chose this policy; numadoctor takes it as meant.",
        evidence=seen,
    )


def _cpus_at(place: _Place) -> str:
    return f"its CPUs are those of {nodes_text(sorted(place.cpus))}"


def _as_wide(host: "Host", target: Target, place: _Place, evidence: list[Evidence]) -> Finding:
    """CPUs and cpuset agree; a policy of the process may yet narrow its memory."""
    policy = _task_policy(host, target)
    if not isinstance(policy, Undecided):
        evidence = [*evidence, Evidence(f"{target.proc}/numa_maps", policy.text)]
        effective = frozenset(policy.nodes) & place.memory
        narrowed = policy.mode == "bind" and not policy.cut and effective
        if narrowed and not place.cpus & effective:
            return _disjoint(host, target, place, effective, evidence)
        if narrowed and not place.cpus <= effective:
            return _memory_narrowed(host, target, place, effective, evidence)
    return passed(
        f"CPUs and memory are both of {nodes_text(sorted(place.cpus))}",
        subject=target.subject,
        evidence=evidence,
    )


def _cpus_narrowed(
    host: "Host", target: Target, place: _Place, evidence: list[Evidence]
) -> Finding:
    mine, others = sorted(place.cpus), sorted(place.memory - place.cpus)
    both = nodes_text(sorted(place.memory))
    return warn(
        f"CPUs are narrowed to {nodes_text(mine)}, memory is not ({both}, policy default)",
        subject=target.subject,
        cause=f"Memory is local only while {nodes_text(mine)} has free pages; after that new pages "
        f"come from {nodes_text(others)} without a word.",
        evidence=evidence,
        fixes=for_target(host, target, bind(nodes=mine)),
    )


def _memory_narrowed(
    host: "Host",
    target: Target,
    place: _Place,
    memory: frozenset[int],
    evidence: list[Evidence],
) -> Finding:
    remote = sorted(place.cpus - memory)
    return warn(
        f"memory is narrowed to {nodes_text(sorted(memory))}, CPUs are not "
        f"({nodes_text(sorted(place.cpus))})",
        subject=target.subject,
        cause=f"Threads on {nodes_text(remote)} have no local memory: each access of theirs goes "
        "over the socket link, for as long as the process lives.",
        evidence=evidence,
        fixes=for_target(host, target, _same_nodes(host, sorted(memory))),
    )


def _same_nodes(host: "Host", nodes: list[int]) -> tuple[Fix, ...]:
    """Give the process the CPUs of ``nodes``."""
    cpus = [cpu for node in host.topology.nodes if node.id in nodes for cpu in node.cpus]
    return bind(cpus, nodes, cpu_nodes=nodes)


def _disjoint(
    host: "Host",
    target: Target,
    place: _Place,
    memory: frozenset[int],
    evidence: list[Evidence],
) -> Finding:
    return fail(
        f"CPUs are of {nodes_text(sorted(place.cpus))} and memory is of "
        f"{nodes_text(sorted(memory))} alone",
        subject=target.subject,
        cause="Not one access is local.",
        evidence=evidence,
        fixes=for_target(
            host,
            target,
            _same_nodes(host, sorted(memory)) if memory else bind(nodes=place.cpus),
        ),
    )


def _task_policy(host: "Host", target: Target) -> "Policy | Undecided":
    """The memory policy of the process, or why it is not known."""
    from numadoctor.placement.threads import read_policy

    try:
        return read_policy(host, f"{target.proc}/numa_maps")
    except Undecided as error:
        return error
