"""Whether kubelets start with the managers they are given, and with the nodes of the machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.lint.documents import Document
from numadoctor.lint.nodes import Mapping, Node, Word
from numadoctor.model import (
    Finding,
    Fix,
    Severity,
    Undecided,
    fail,
    info,
    passed,
    unknown,
)
from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text

from ._deployment import quantity, seen, undecided

if TYPE_CHECKING:
    from fractions import Fraction

    from numadoctor.host import Host

_LIMIT = 8
_OPTION = "max-allowable-numa-nodes"


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

        Flags of a kubelet's unit (drop-ins and environment files included) outrank the files
        of --config-dir, and those its configuration file: all that are linted together count.

    Fix
        Raise the limit (Kubernetes 1.31 and later):

            topologyManagerPolicyOptions:
              max-allowable-numa-nodes: "36"

        or do without the Topology Manager: `topologyManagerPolicy: none`.

    Source
        Kubernetes, Control Topology Management Policies on a node; KEP-4622; Set Kubelet
        Parameters Via A Configuration File
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
            fixes=[_raised(root, 36, option)],
            location=option.location,
        )
        return
    except Undecided as error:
        yield undecided(error, document.file, root.location)
        return
    nodes = [node.id for node in host.topology.nodes] if host else []
    if document.lacks and (policy is None or (name != "none" and not option and nodes[limit:])):
        yield _not_at_hand(document, "policy and limit of the Topology Manager", policy or root)
        return
    if name == "none" or policy is None:
        yield passed(
            "the Topology Manager is off: any number of nodes",
            subject=document.file,
            evidence=seen(policy or root.word("kind")),
            location=(policy or root).location,
        )
        return
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
            _raised(root, len(nodes), option),
            _kubelet_fix(
                "--topology-manager-policy=none"
                if _by_flag(root, "topologyManagerPolicy")
                else "topologyManagerPolicy: none",
                policy,
            ),
        ],
        location=policy.location,
    )


def _not_at_hand(document: Document, what: str, at: Node) -> Finding:
    """Flags alone are known, and the configuration file may say what they do not."""
    return unknown(
        f"{what}: {document.lacks} is not at hand, and flags say only a part",
        subject=document.file,
        cause="Lint it together with the unit.",
        evidence=seen(at),
        location=at.location,
    )


def _by_flag(root: Mapping, key: str) -> bool:
    """Whether a flag says so: then a configuration file could not say otherwise."""
    return key in root.entries and root.key(key).text.startswith("--")


def _raised(root: Mapping, nodes: int, at: Word | None) -> Fix:
    if _by_flag(root, "topologyManagerPolicyOptions"):
        return _kubelet_fix(f"--topology-manager-policy-options={_OPTION}={nodes}", at)
    return _kubelet_fix(f'topologyManagerPolicyOptions: {{{_OPTION}: "{nodes}"}}', at)


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
    policies = [root.word(name) for name in ("cpuManagerPolicy", "memoryManagerPolicy")]
    shown = [word for word in policies if word]
    if document.lacks and (found or None in policies):
        yield _not_at_hand(document, "reservations", shown[0] if shown else root)
        return
    yield from found
    if not found:
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
            fixes=[
                _kubelet_fix(
                    f"memory={last}"
                    if _by_flag(root, "reservedMemory")
                    else f"limits: {{memory: {last}}}",
                    reserved[-1],
                )
            ]
            if reserved
            else [
                _kubelet_fix(f"reservedMemory: [{{numaNode: 0, limits: {{memory: {last}}}}}]", None)
            ],
            location=(reserved[-1] if reserved else policy).location,
        )
    yield from _nodes_reserved(host, file, root, entries)


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


def _nodes_reserved(
    host: "Host | None", file: str, root: Mapping, entries: list[Mapping]
) -> Iterator[Finding]:
    if host is None:
        return
    there = {node.id for node in host.topology.nodes}
    at = "" if _by_flag(root, "reservedMemory") else "numaNode: "
    for entry in entries:
        word = entry.word("numaNode")
        if word and word.settled().isdecimal() and int(word.text) not in there:
            yield fail(
                f"reservedMemory for node {word.shown}, which the machine lacks",
                subject=f"{file} node {word.shown}",
                cause=f"The kubelet does not start; the machine has {nodes_text(there)}.",
                evidence=seen(word),
                fixes=[_kubelet_fix(f"{at}{min(there)}", word)],
                location=word.location,
            )
