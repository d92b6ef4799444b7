"""CPUs and memory nodes that files name: bound together, there, and not taken twice."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.host import parsers
from numadoctor.lint.bindings import (
    CPU_NODES,
    CPUS,
    NODES,
    Binding,
    bindings,
    binds_memory,
    of_unit,
    places_pool,
)
from numadoctor.lint.documents import Document
from numadoctor.lint.engines import is_engine
from numadoctor.lint.workloads import Workload
from numadoctor.model import (
    Finding,
    Fix,
    ParseError,
    Severity,
    Undecided,
    fail,
    passed,
    warn,
)
from numadoctor.model.binding import compose_update, docker_options, unit_lines
from numadoctor.model.words import cpus_text, nodes_text

from ._deployment import (
    CONTAINERS,
    edit,
    for_each,
    ids,
    in_file,
    known_ids,
    launcher,
    seen,
    undecided,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

# A list of nodes with more members than any machine has sockets is a list of CPUs.
_MANY_NODES = 16


@check(
    "D005",
    name="cpus-bound-memory-not",
    needs=CONTAINERS,
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def cpus_bound_memory_not(host: "Host | None", document: Document) -> Iterator[Finding]:
    """CPUs are bound to a part of the machine, and memory is left to chance.

    Why it matters
        A cpuset, CPUAffinity=, taskset or numactl --cpunodebind decide where threads run.
        Memory then comes from the node of the CPU that touches it first, but only as long as
        that node has free memory: page cache of the model's files fills it, and the rest of
        the pool lies on the other node without a word.

    When it is harmless
        With few and small processes on an empty machine, or where the CPUs span all nodes.

    Fix
        Bind memory where the CPUs are bound: `--cpuset-mems` for Docker and podman,
        `--membind` for numactl, and for a unit

            [Service]
            NUMAPolicy=bind
            NUMAMask=0

        Compose has a key for CPUs (cpuset) and none for nodes: bind in the command
        (numactl), or with docker update before the start.

    Source
        cpuset(7); numactl(8); systemd.exec(5), CPUAffinity= and NUMAPolicy=; Compose
        specification, cpuset; docker-run(1)
    """

    def judge(workload: Workload) -> Iterator[Finding]:
        bound = [b for b in bindings(workload) if b.what != NODES]
        if not bound or (workload.launcher == "shell" and not _serves(workload, bound)):
            return
        if _spans_all(host, bound):
            return
        memory = [b.word for b in bindings(workload) if b.what == NODES]
        if binds_memory(workload):
            yield passed(
                f"{bound[0].by} binds the CPUs, and the memory is bound as well",
                subject=workload.name,
                evidence=seen(*(b.word for b in bound), *memory),
                location=bound[0].word.location,
            )
            return
        bound[0].word.settled()
        nodes = _nodes_of(host, bound)
        rest = "the memory but the pool" if places_pool(workload) else "the memory"
        yield warn(
            f"{bound[0].by} {bound[0].word.shown} binds the CPUs, and nothing {rest}",
            subject=workload.name,
            cause="Memory is local only while the node has free pages; then it goes elsewhere.",
            evidence=seen(*(b.word for b in bound)),
            fixes=_bind_memory(workload, bound[0], nodes),
            location=bound[0].word.location,
        )

    yield from for_each(document, judge)
    if document.kind == "systemd":
        yield from _unit_bound(host, document)


def _serves(workload: Workload, bound: list[Binding]) -> bool:
    # taskset is used for all sorts of small programs.
    return is_engine(workload) or any(b.by.startswith("numactl") for b in bound)


def _unit_bound(host: "Host | None", document: Document) -> Iterator[Finding]:
    unit = document.content
    subject = f"unit {unit.name}"
    found = of_unit(unit)
    cpus = [b for b in found if b.what == CPUS]
    policy = unit.last("NUMAPolicy")
    masks = [b for b in found if b.what == NODES]
    if policy and policy.value.text not in ("default", "local") and not masks:
        yield warn(
            f"NUMAPolicy={policy.value.shown} without NUMAMask= names no nodes",
            subject=subject,
            cause="systemd refuses the policy, or it acts on no node.",
            evidence=seen(policy.value),
            fixes=[_unit_fix(policy.value.text, _nodes_of(host, cpus))],
            location=policy.value.location,
        )
        return
    if not cpus or cpus[0].word.text == "numa" or _spans_all(host, cpus):
        return
    told = {binding.by for binding in masks}
    if (policy and policy.value.text != "default") or "AllowedMemoryNodes" in told:
        yield passed(
            f"{cpus[0].by}= binds the CPUs, and the memory is bound as well",
            subject=subject,
            evidence=seen(cpus[0].word, policy.value if policy else masks[0].word),
            location=cpus[0].word.location,
        )
        return
    if any(binds_memory(workload) for workload in document.workloads):
        return
    yield warn(
        f"{cpus[0].by}={cpus[0].word.shown} binds the CPUs, and no NUMAPolicy= the memory",
        subject=subject,
        cause="Memory is local only while the node has free pages; then it goes elsewhere.",
        evidence=seen(cpus[0].word),
        fixes=[_unit_fix("bind", _nodes_of(host, cpus))],
        location=cpus[0].word.location,
    )


def _unit_fix(policy: str, nodes: str) -> Fix:
    text = "\n".join(["[Service]", *unit_lines(nodes=nodes, policy=policy)])
    return Fix("systemd", text, needs_root=True, needs_restart=True, persists=True)


def _spans_all(host: "Host | None", bound: Iterable[Binding]) -> bool:
    """Whether the CPUs of the machine are all in one of the lists."""
    if host is None:
        return any(b.word.text.strip().lower() == "all" for b in bound)
    everyone = set(host.topology.online_cpus)
    return any(
        b.what == CPUS and everyone and set(known_ids(b.word) or ()) >= everyone for b in bound
    ) or any(b.word.text.strip().lower() == "all" for b in bound)


def _nodes_of(host: "Host | None", bound: Iterable[Binding]) -> str:
    """The nodes that lists of CPUs are on, or NODES where the machine is not known."""
    bound = list(bound)
    for binding in bound:
        if binding.what == CPU_NODES and (nodes := known_ids(binding.word)):
            return parsers.format_list(nodes)
    if host is None:
        return "NODES"
    cpus = {cpu for b in bound if b.what == CPUS for cpu in known_ids(b.word) or ()}
    nodes = tuple(node.id for node in host.topology.nodes if set(node.cpus) & cpus)
    return parsers.format_list(nodes) if nodes else "NODES"


def _bind_memory(workload: Workload, first: Binding, nodes: str) -> list[Fix]:
    if first.by.startswith("numactl"):
        return [Fix("numactl", f"numactl --membind={nodes} …\n# beside {first.by}", False, True)]
    if first.by == "taskset":
        return [Fix("numactl", f"numactl --membind={nodes} …\n# in front of it", False, True)]
    if workload.launcher in ("docker", "podman"):
        return [edit(workload, " ".join(docker_options(nodes=nodes)), f"in {workload.name}")]
    if workload.launcher == "quadlet":
        return [edit(workload, f"PodmanArgs=--cpuset-mems={nodes}")]
    return [edit(workload, compose_update(nodes))]


@check(
    "D006",
    name="named-cpus-and-nodes",
    needs=CONTAINERS,
    scope=Scope.FILE,
    severity=Severity.HIGH,
)
def named_cpus_and_nodes(host: "Host | None", document: Document) -> Iterator[Finding]:
    """Lists of CPUs and nodes that are no lists, contradict each other, or are not there.

    Why it matters
        A container whose cpuset names a node or CPU that the machine lacks does not start.
        numactl asked for a node outside of the cpuset is answered EINVAL, which reads as if
        the node were missing; CPUs outside of it are refused the same way. A list of CPUs
        given where nodes are expected is a common slip of the hand.

    When it is harmless
        Never; without --sysroot the lists are compared with each other alone, and not with a
        machine.

    Fix
        Name nodes that are there and inside of the cpuset, or widen the cpuset.

    Source
        cpuset(7); set_mempolicy(2), EINVAL; sched_setaffinity(2), EINVAL; numactl(8);
        runc, config-linux.md (cpus and mems)
    """

    def judge(workload: Workload) -> Iterator[Finding]:
        yield from _judge_lists(host, workload.name, launcher(workload), bindings(workload))

    yield from for_each(document, judge)
    if document.kind == "systemd":
        unit = document.content
        found = of_unit(unit)
        try:
            yield from _judge_lists(host, f"unit {unit.name} settings", "systemd", found)
        except Undecided as error:
            yield undecided(error, f"unit {unit.name} settings", found[0].word.location)


def _judge_lists(
    host: "Host | None", subject: str, by: str, found: list[Binding]
) -> Iterator[Finding]:
    parsed: list[tuple[Binding, frozenset[int]]] = []
    wrong = False
    for binding in found:
        try:
            members = ids(binding.word, binding.what)
        except ParseError as error:
            wrong = True
            yield _wrong(binding, subject, by, str(error), "It is refused when it is used.")
            continue
        if members is None:
            continue
        parsed.append((binding, frozenset(members)))
        if host is not None:
            for finding in _against(host, subject, by, binding, frozenset(members)):
                wrong = True
                yield finding
    for finding in (*_cpus_for_nodes(subject, by, parsed), *_outside(subject, by, parsed)):
        wrong = True
        yield finding
    if parsed and not wrong:
        where = "are there on the machine" if host else "are lists, and contradict no other"
        yield passed(
            f"the CPUs and nodes that are named {where}",
            subject=subject,
            evidence=seen(*(binding.word for binding, _ in parsed)),
            location=parsed[0][0].word.location,
        )


def _wrong(
    binding: Binding, subject: str, by: str, message: str, cause: str, to: str = ""
) -> Finding:
    fix = to or f"# correct the list of line {binding.word.line}"
    return fail(
        f"{binding.by}: {message}",
        subject=subject,
        cause=cause,
        evidence=seen(binding.word),
        fixes=[in_file(binding.word, fix, by=by)],
        location=binding.word.location,
    )


def _against(
    host: "Host", subject: str, by: str, binding: Binding, members: frozenset[int]
) -> Iterator[Finding]:
    topology = host.topology
    if not topology.numa:
        return  # a kernel without NUMA has no nodes that could be missing
    if binding.what == CPUS:
        there = frozenset(topology.online_cpus)
        missing = members - there
        if there and missing:
            text = f"{cpus_text(missing)} of {binding.word.shown} are not there, or offline"
            cause = f"The machine has {cpus_text(there)} online."
            to = f"{parsers.format_list(members & there)}" if members & there else ""
            yield _wrong(binding, subject, by, text, cause, to)
        return
    nodes = {node.id: node for node in topology.nodes}
    missing = members - set(nodes)
    if missing:
        text = f"{nodes_text(missing)} of {binding.word.shown} are not there"
        cause = f"The machine has {nodes_text(nodes)}."
        if missing & set(topology.online_cpus):
            cause += " The numbers look like CPUs."
        kept = members & set(nodes)
        yield _wrong(binding, subject, by, text, cause, parsers.format_list(kept) if kept else "")
        return
    if binding.what == NODES:
        empty = {n for n in members if nodes[n].memory_bytes == 0}
        if empty == members:
            text = f"{nodes_text(empty)} has no memory"
            yield _wrong(binding, subject, by, text, "Binding to it is answered EINVAL.")


def _cpus_for_nodes(
    subject: str, by: str, parsed: list[tuple[Binding, frozenset[int]]]
) -> Iterator[Finding]:
    cpus = {members for binding, members in parsed if binding.what == CPUS}
    for binding, members in parsed:
        if binding.what == NODES and len(members) > _MANY_NODES and members in cpus:
            yield _wrong(
                binding, subject, by,
                f"{binding.word.shown} are the CPUs, given where nodes are expected",
                "Few machines have so many nodes; the container or program is refused.",
                "# the nodes of these CPUs: numactl --hardware",
            )  # fmt: skip


def _outside(
    subject: str, by: str, parsed: list[tuple[Binding, frozenset[int]]]
) -> Iterator[Finding]:
    for outer, allowed in parsed:
        for inner, members in parsed:
            if not outer.outer or inner.outer or inner.what != outer.what:
                continue
            beyond = members - allowed
            if beyond == members or (beyond and not inner.soft and inner.what == CPUS):
                words = cpus_text if inner.what == CPUS else nodes_text
                yield _wrong(
                    inner, subject, by,
                    f"{words(beyond)} of {inner.word.shown} not allowed here: {outer.by} holds "
                    f"{outer.word.shown}",
                    "It is answered EINVAL, though the machine may have what is named.",
                    f"{parsers.format_list(allowed | members)}\n"
                    f"# {outer.by} in line {outer.word.line}, or fewer in line {inner.word.line}",
                )  # fmt: skip
