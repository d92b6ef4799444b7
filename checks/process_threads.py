"""Threads: whether they are bound alike, and whether they run where their memory is."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.engine.thresholds import threshold
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Status,
    Target,
    Undecided,
    info,
    passed,
    skip,
    warn,
)
from numadoctor.model.binding import bind
from numadoctor.model.placement import Process, Thread
from numadoctor.model.words import count, nodes_text
from numadoctor.placement.examination import Examination

from ._placement import (
    PLACEMENT,
    THREADS,
    host_nodes,
    looked_at,
    node_list,
    process_text,
    undecided_processes,
)

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "P014",
    name="threads-bound-alike",
    needs=(*PLACEMENT, *THREADS),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def threads_bound_alike(host: "Host", target: Target) -> Iterator[Finding]:
    """Some threads of a process are held to the CPUs or the memory of a node, others are not.

    Why it matters
        sched_setaffinity(2) and set_mempolicy(2) act on one thread. Threads that are started
        later inherit them, those that were there before do not: an engine that binds itself
        after importing its libraries leaves their thread pools (OpenMP, BLAS, gRPC, tokenizer)
        where they were. taskset -p without -a does the same. What such threads touch first
        lies on any node.

    When it is harmless
        Threads that a library binds to single CPUs of the same node on purpose (OMP_PROC_BIND)
        are within the node: that passes. Drivers' helper threads do little.

    Fix
        Bind before the start (numactl, taskset, a cpuset, systemd), so that every thread
        inherits it; or all threads afterwards: taskset -a -cp LIST PID.

    Source
        sched_setaffinity(2), set_mempolicy(2): both act on the calling thread; taskset(1), -a
    """
    found = looked_at(host, target)
    blind: dict[int, Undecided] = {}
    alike: list[tuple[Process, Finding]] = []
    for pid, process in found.processes.items():
        try:
            threads = found.threads(pid)
        except Undecided as error:
            blind[pid] = error
            continue
        finding = _alike(found, process, threads)
        if finding.status is Status.PASS:
            alike.append((process, finding))
        else:
            yield finding
    if alike:
        yield _all_alike(alike)
    yield from undecided_processes(found, blind, "how its threads are bound")


def _all_alike(alike: list[tuple[Process, Finding]]) -> Finding:
    if len(alike) == 1:
        return alike[0][1]
    threads = sum(process.threads or 0 for process, _ in alike)
    return passed(
        f"the {threads} threads of {len(alike)} processes may run on the same nodes, in each of "
        "them",
        subject="processes",
        evidence=[seen for _, finding in alike[:3] for seen in finding.evidence],
    )


def _nodes_of(found: Examination, thread: Thread) -> frozenset[int]:
    cpus = set(thread.cpus or ())
    return frozenset(n.id for n in found.host.topology.host_nodes if cpus.intersection(n.cpus))


def _subject(process: Process) -> str:
    return f"process {process.name}" if process.name else "process"


def _alike(found: Examination, process: Process, threads: tuple[Thread, ...]) -> Finding:
    known = [t for t in threads if t.cpus is not None]
    if not known:
        raise Undecided(f"/proc/{process.pid}/task", None, "no thread tells its allowed CPUs")
    by_nodes = Counter(_nodes_of(found, t) for t in known)
    every = host_nodes(found.host)
    main = next((t for t in known if t.tid == process.pid), known[0])
    policies = Counter(t.policy.text for t in threads if t.policy is not None)
    evidence = [
        Evidence(f"/proc/{process.pid}/task", _told(by_nodes, policies)),
        found.host.evidence(f"/proc/{process.pid}/status", "Cpus_allowed_list"),
    ]
    narrow = [nodes for nodes in by_nodes if nodes < every]
    wide = by_nodes[every]
    if wide and narrow:
        bound = len(known) - wide
        where = nodes_text(sorted(sorted(narrow, key=lambda s: (len(s), sorted(s)))[0]))
        first = _nodes_of(found, main) < every
        others = f" and {bound - 1} more" if bound > 1 else ""
        whose = f"the main thread{others}" if first else f"{bound}"
        return _apart(
            process,
            f"{process_text(found, process.pid)}: {whose} of {count(len(known), 'thread')} "
            f"{'is' if bound == 1 else 'are'} held to {where}, {count(wide, 'other')} may run on "
            f"{nodes_text(sorted(every))}",
            evidence,
            _main_cpus(main),
        )
    bound_policies = [text for text in policies if text.partition(":")[0] != "default"]
    if policies["default"] and bound_policies:
        return _apart(
            process,
            f"{process_text(found, process.pid)}: {count(policies['default'], 'thread')} of "
            f"{len(threads)} have no memory policy, others {bound_policies[0]}",
            evidence,
            _main_cpus(main),
        )
    if len(by_nodes) > 1:
        sets = ", ".join(f"{n} on {nodes_text(sorted(s))}" for s, n in by_nodes.most_common(4))
        return info(
            f"{process_text(found, process.pid)}: threads are held to different nodes: {sets}",
            subject=_subject(process),
            evidence=evidence,
        )
    return passed(
        f"{process_text(found, process.pid)}: "
        f"{'its thread' if len(known) == 1 else f'all {len(known)} threads'} may run on "
        f"{nodes_text(sorted(next(iter(by_nodes))))}",
        subject=_subject(process),
        evidence=evidence,
    )


def _told(by_nodes: Counter[frozenset[int]], policies: Counter[str]) -> str:
    parts = [f"{n} threads: CPUs of {nodes_text(sorted(s))}" for s, n in by_nodes.most_common(4)]
    parts += [f"{n} threads: policy {text}" for text, n in policies.most_common(3)]
    return "; ".join(parts)[:240]


def _main_cpus(main: Thread) -> str:
    return node_list(main.cpus or ())


def _apart(process: Process, message: str, evidence: list[Evidence], cpus: str) -> Finding:
    return warn(
        message,
        subject=_subject(process),
        cause="They were there before the process was bound: affinity and policy are each "
        "thread's own, and inherited only at its start.",
        evidence=evidence,
        fixes=(
            Fix("any", f"taskset -a -cp {cpus} {process.pid}   # all its threads, now"),
            Fix("numactl", "numactl --cpunodebind=N --membind=N COMMAND", needs_restart=True),
            Fix(
                "any",
                "# in the engine: bind before libraries that start threads are loaded",
                needs_restart=True,
            ),
        ),
    )


@check(
    "P015",
    name="threads-near-memory",
    needs=(*PLACEMENT, *THREADS),
    requires=Requires.SEVERAL_NODES,
    scope=Scope.PROCESSES,
)
def threads_near_memory(host: "Host", target: Target) -> Iterator[Finding]:
    """Threads ran away from their memory: they run on nodes that have nearly none of it.

    Why it matters
        The scheduler balances load over all CPUs that a thread may use, and knows little of
        memory. After a busy minute, or beside another instance, the threads of a process
        whose memory is bound to node 0 run on node 1, and each access is remote until they
        happen to come back.

    When it is harmless
        Right after the start. Idle threads stay wherever they ran last: only when most of
        the threads are astray it is told.

    Fix
        Hold the threads to the CPUs of the memory's nodes: numactl --cpunodebind, or
        taskset -a -cp LIST PID for a running process.

    Source
        proc_pid_stat(5), processor; Documentation/scheduler/sched-domains.rst
    """
    found = looked_at(host, target)
    blind: dict[int, Undecided] = {}
    for pid, process in found.processes.items():
        try:
            threads = found.threads(pid)
        except Undecided as error:
            blind[pid] = error
            continue
        yield _near(found, process, threads)
    yield from undecided_processes(found, blind, "where its threads run")


def _near(found: Examination, process: Process, threads: tuple[Thread, ...]) -> Finding:
    subject = _subject(process)
    home = _memory_nodes(found, process.pid)
    node_of = {cpu: n.id for n in found.host.topology.nodes for cpu in n.cpus}
    places = [node_of[t.last_cpu] for t in threads if t.last_cpu in node_of]
    if not places:
        raise Undecided(f"/proc/{process.pid}/task", None, "no thread tells its last CPU")
    if len(places) < threshold("few-threads"):
        return skip(
            f"{process.name or 'the process'} has {count(len(places), 'thread')}",
            subject=subject,
        )
    if not home:
        return skip(
            f"{process.name or 'the process'}: its memory is on all nodes, or there is little",
            subject=subject,
        )
    astray = [node for node in places if node not in home]
    text = f"memory on {nodes_text(sorted(home))}; " + ", ".join(
        f"{number} threads last on node {node}" for node, number in Counter(places).most_common(4)
    )
    evidence = [Evidence(f"/proc/{process.pid}/task/*/stat", text)]
    share = len(astray) / len(places)
    if share <= threshold("threads-astray"):
        return passed(
            f"{process_text(found, process.pid)}: {len(places) - len(astray)} of {len(places)} "
            f"threads ran last where its memory is",
            subject=subject,
            evidence=evidence,
        )
    cpus = [c for n in found.host.topology.nodes if n.id in home for c in n.cpus]
    return warn(
        f"{process_text(found, process.pid)}: {len(astray)} of {len(places)} threads ran last on "
        f"{nodes_text(sorted(set(astray)))}, its memory is on {nodes_text(sorted(home))}",
        subject=subject,
        cause="Nothing holds the threads to their memory, and the scheduler balances load.",
        evidence=evidence,
        fixes=(
            Fix("any", f"taskset -a -cp {node_list(cpus)} {process.pid}"),
            *bind(nodes=home, cpu_nodes=home, by=("numactl",)),
        ),
    )


def _memory_nodes(found: Examination, pid: int) -> frozenset[int]:
    """The nodes with nearly all of a process's own memory; none when those are all nodes."""
    sums: Counter[int] = Counter()
    for p in found.placement.mappings:
        if p.mapping.kind.is_pool and (p.mapping.pid == pid or pid in {a.pid for a in p.attachers}):
            sums.update(p.bytes_by_node)
    whole = sum(sums.values())
    if whole < threshold("judged-mapping"):
        return frozenset()
    home = frozenset(n for n, held in sums.items() if held > threshold("off-node") * whole)
    return home if home and not home >= host_nodes(found.host) else frozenset()
