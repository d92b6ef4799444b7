"""Whether pods are aligned with the machine, and kubelets able to do it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.host import parsers
from numadoctor.lint.documents import Document
from numadoctor.lint.kubernetes import Pod
from numadoctor.lint.nodes import Mapping, Node, Word
from numadoctor.lint.workloads import Workload
from numadoctor.model import (
    Finding,
    Fix,
    Severity,
    Undecided,
    fail,
    info,
    passed,
    unknown,
    warn,
)
from numadoctor.model.units import amount

from ._deployment import edit, quantity, seen, undecided
from ._words import nodes_text

if TYPE_CHECKING:
    from fractions import Fraction

    from numadoctor.host import Host

_LIMIT = 8
_OPTION = "max-allowable-numa-nodes"


@check(
    "D010",
    name="pod-alignment",
    needs=("kind kubernetes",),
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def pod_alignment(host: "Host | None", document: Document) -> Iterator[Finding]:
    """A pod with GPUs that the kubelet's static managers leave unaligned.

    Why it matters
        The static CPU Manager and the Static Memory Manager act on pods of class Guaranteed
        alone: each container's requests of CPU and memory equal its limits; and whole CPUs
        are given to containers whose figure is an integer. Any other pod shares the CPUs of
        the whole node, on both sockets, and its memory comes from anywhere.

    When it is harmless
        On nodes whose kubelet has no static managers (the default), nothing is aligned for
        any pod: then this is told and counts for nothing. `--static`, or a kubelet
        configuration that is linted with the pods, says that they have.

    Fix
        Requests equal to limits, for every container of the pod, with a whole number of CPUs:

            resources: {limits: {cpu: "16", memory: 128Gi}}

    Source
        Kubernetes, Pod Quality of Service Classes; Control CPU Management Policies on the
        Node; Utilizing the NUMA-aware Memory Manager
    """
    static = document.files.static
    for pod in document.pods:
        prefix = f"{pod.name} container "
        containers = [w for w in document.workloads if w.name.startswith(prefix)]
        if any(w.gpus or any(n.startswith("hugepages-") for n in w.limits) for w in containers):
            try:
                yield _judge_pod(pod, containers, static)
            except Undecided as error:
                yield undecided(error, pod.name, pod.spec.location)


def _judge_pod(pod: Pod, containers: list[Workload], static: bool) -> Finding:
    told = warn if static else info
    for container in containers:
        for resource in ("cpu", "memory"):
            limit, request = container.limits.get(resource), container.requests.get(resource)
            if limit is None or request is None:
                return _unaligned(told, container, container.at, f"no {resource} limit", resource)
            if quantity(limit) != quantity(request):
                text = f"{resource}: {request.shown} requested, {limit.shown} the limit"
                return _unaligned(told, container, request, text, resource)
    for container in containers:
        cpus = container.limits["cpu"]
        if container.gpus and quantity(cpus) % 1:
            return _unaligned(told, container, cpus, f"cpu: {cpus.shown} is no whole number", "cpu")
    return passed(
        "Guaranteed, with whole CPUs: the static managers align it",
        subject=pod.name,
        evidence=seen(*(word for c in containers for word in c.limits.values())),
        location=pod.spec.location,
    )


def _unaligned(
    told: Callable[..., Finding], container: Workload, at: Node, text: str, resource: str
) -> Finding:
    limit = container.limits.get(resource)
    whole = "whole" not in text
    figure = '"16"' if resource == "cpu" else "128Gi"
    if limit and whole:
        figure = limit.text
    message = f"not Guaranteed ({text}): no CPUs and no memory of its own"
    return told(
        message if whole else f"{text}: it gets no CPUs of its own",
        subject=container.name,
        cause="The kubelet's static managers give CPUs and memory of one node to pods of class "
        "Guaranteed with whole CPUs alone.",
        evidence=seen(at, limit) or seen(container.image),
        fixes=[
            edit(
                container,
                "resources:\n"
                f"  requests: {{{resource}: {figure}}}\n"
                f"  limits: {{{resource}: {figure}}}",
                "the same figure in both, in every container of the pod",
            )
        ],
        location=at.location,
    )


@check(
    "D011",
    name="kubelet-nodes",
    needs=("kind kubelet",),
    scope=Scope.FILE,
    severity=Severity.HIGH,
)
def kubelet_nodes(host: "Host | None", document: Document) -> Iterator[Finding]:
    """A kubelet's Topology Manager on a machine of more than 8 nodes.

    Why it matters
        With a policy other than none the kubelet does not start on a machine of more than 8
        NUMA nodes, unless it is told a higher limit. The memory of GPUs counts: four GPUs
        with eight nodes each and two sockets make 34.

    When it is harmless
        On machines of 8 nodes and fewer; `--sysroot` compares with one. With the policy none.

    Fix
        Raise the limit (Kubernetes 1.31 and later):

            topologyManagerPolicyOptions:
              max-allowable-numa-nodes: "36"

        or do without the Topology Manager: `topologyManagerPolicy: none`.

    Source
        Kubernetes, Control Topology Management Policies on a node; KEP-4622
    """
    root = document.content
    policy = root.word("topologyManagerPolicy")
    option = root.word("topologyManagerPolicyOptions", _OPTION)
    try:
        limit = int(option.settled()) if option else _LIMIT
        name = policy.settled().strip() if policy else "none"
    except ValueError:
        assert option is not None
        yield fail(
            f"{_OPTION}: {option.text} is no number",
            subject=document.file,
            cause="The kubelet does not start.",
            evidence=seen(option),
            fixes=[_kubelet_fix(f'{_OPTION}: "36"', option)],
            location=option.location,
        )
        return
    except Undecided as error:
        yield undecided(error, document.file, root.location)
        return
    if name == "none" or policy is None:
        yield passed(
            "the Topology Manager is off: any number of nodes",
            subject=document.file,
            evidence=seen(policy or root.word("kind")),
            location=(policy or root).location,
        )
        return
    nodes = [node.id for node in host.topology.nodes] if host else []
    if len(nodes) <= limit:
        compared = f"the machine has {len(nodes)}" if host else "not compared with a machine"
        told = passed if host or option else info
        yield told(
            f"Topology Manager policy {name} on machines of at most {limit} nodes; {compared}",
            subject=document.file,
            evidence=seen(policy, option),
            location=policy.location,
        )
        return
    yield fail(
        f"Topology Manager policy {name} accepts {limit} nodes, and the machine has {len(nodes)} "
        f"({nodes_text(nodes)})",
        subject=document.file,
        cause="The kubelet does not start: nodes without CPUs, such as GPU memory, count too.",
        evidence=seen(policy, option),
        fixes=[
            _kubelet_fix(f'topologyManagerPolicyOptions: {{{_OPTION}: "{len(nodes)}"}}', option),
            _kubelet_fix("topologyManagerPolicy: none", policy),
        ],
        location=policy.location,
    )


def _kubelet_fix(text: str, at: Word | None) -> Fix:
    told = f"{text}\n# instead of line {at.line}" if at else text
    return Fix("kubernetes", told, needs_root=True, needs_restart=True, persists=True)


@check(
    "D012",
    name="kubelet-reservations",
    needs=("kind kubelet",),
    scope=Scope.FILE,
    severity=Severity.HIGH,
)
def kubelet_reservations(host: "Host | None", document: Document) -> Iterator[Finding]:
    """Static managers of a kubelet whose reservations do not add up.

    Why it matters
        With memoryManagerPolicy Static the kubelet starts only if `reservedMemory`, summed
        over all nodes, equals kubeReserved + systemReserved + the hard eviction threshold of
        memory (100Mi unless set). With cpuManagerPolicy static it needs a reservation of CPUs
        greater than 0. It ends with an error otherwise, which shows on the node alone.

    When it is harmless
        With the policies none and None, which are the defaults, nothing needs to add up.

    Fix
        Set the last entry of `reservedMemory` so that the sum fits:

            reservedMemory: [{numaNode: 0, limits: {memory: 1124Mi}}]

    Source
        Kubernetes, Utilizing the NUMA-aware Memory Manager, Reserved memory flag;
        pkg/kubelet/cm/memorymanager/memory_manager.go (getSystemReservedMemory);
        Control CPU Management Policies on the Node
    """
    root = document.content
    try:
        found = [*_cpus_reserved(document.file, root), *_memory_reserved(host, document.file, root)]
    except Undecided as error:
        yield undecided(error, document.file, root.location)
        return
    yield from found
    if not found:
        policies = [root.word(name) for name in ("cpuManagerPolicy", "memoryManagerPolicy")]
        shown = [word for word in policies if word]
        yield passed(
            "the reservations that the kubelet's managers need are there"
            if shown
            else "no static manager: no reservation is needed",
            subject=document.file,
            evidence=seen(*shown) or seen(root.word("kind")),
            location=(shown[0] if shown else root).location,
        )


def _cpus_reserved(file: str, root: Mapping) -> Iterator[Finding]:
    policy = root.word("cpuManagerPolicy")
    if policy is None or policy.settled().lower() != "static":
        return
    named = root.word("reservedSystemCPUs")
    figures = [root.word(which, "cpu") for which in ("kubeReserved", "systemReserved")]
    if named or sum(quantity(word) for word in figures if word) > 0:
        return
    yield fail(
        "cpuManagerPolicy static without a reservation of CPUs",
        subject=f"{file} CPUs",
        cause="The kubelet does not start: the static policy needs CPUs for what is no pod.",
        evidence=seen(policy),
        fixes=[_kubelet_fix('reservedSystemCPUs: "0,1"', None)],
        location=policy.location,
    )


def _memory_reserved(host: "Host | None", file: str, root: Mapping) -> Iterator[Finding]:
    policy = root.word("memoryManagerPolicy")
    if policy is None or policy.settled().lower() != "static":
        return
    entries = [e for e in root.sequence("reservedMemory").items if isinstance(e, Mapping)]
    reserved = [word for entry in entries if (word := entry.word("limits", "memory"))]
    total = sum(map(quantity, reserved))
    wanted, parts = _wanted(root)
    if wanted is None:
        yield unknown(
            "the eviction threshold is a share of the memory, which the file does not tell",
            subject=f"{file} memory",
            evidence=seen(*parts),
            location=policy.location,
        )
    elif total != wanted:
        difference = wanted - (total - quantity(reserved[-1]) if reserved else 0)
        last = f"{int(difference) >> 20}Mi"
        yield fail(
            f"reservedMemory sums to {amount(int(total))}, and {amount(int(wanted))} are reserved "
            "(kubeReserved + systemReserved + eviction threshold)",
            subject=f"{file} memory",
            cause="The kubelet does not start: both must be equal.",
            evidence=seen(policy, *reserved, *parts),
            fixes=[_kubelet_fix(f"limits: {{memory: {last}}}", reserved[-1])]
            if reserved
            else [
                _kubelet_fix(f"reservedMemory: [{{numaNode: 0, limits: {{memory: {last}}}}}]", None)
            ],
            location=(reserved[-1] if reserved else policy).location,
        )
    yield from _nodes_reserved(host, file, entries)


def _wanted(root: Mapping) -> "tuple[Fraction | int | None, list[Word]]":
    """Bytes that the kubelet keeps from pods, and the words that say so."""
    figures = [root.word(which, "memory") for which in ("kubeReserved", "systemReserved")]
    eviction = root.word("evictionHard", "memory.available")
    parts = [word for word in (*figures, eviction) if word]
    if eviction and eviction.settled().endswith("%"):
        return None, parts
    threshold = quantity(eviction) if eviction else _default_threshold(root)
    return sum(quantity(word) for word in figures if word) + threshold, parts


def _default_threshold(root: Mapping) -> int:
    """Who sets one hard threshold sets all: the default is left out, unless it is merged."""
    merged = root.word("mergeDefaultEvictionSettings")
    given = bool(root.mapping("evictionHard").entries)
    return 0 if given and not (merged and merged.truth()) else 100 << 20


def _nodes_reserved(host: "Host | None", file: str, entries: list[Mapping]) -> Iterator[Finding]:
    if host is None:
        return
    there = {node.id for node in host.topology.nodes}
    for entry in entries:
        word = entry.word("numaNode")
        if word and word.settled().isdecimal() and int(word.text) not in there:
            yield fail(
                f"reservedMemory for node {word.shown}, which the machine lacks",
                subject=f"{file} node {word.shown}",
                cause=f"The kubelet does not start; the machine has {nodes_text(there)}.",
                evidence=seen(word),
                fixes=[_kubelet_fix(f"numaNode: {parsers.format_list([min(there)])}", word)],
                location=word.location,
            )
