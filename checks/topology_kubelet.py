"""More nodes than the kubelet's Topology Manager accepts."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Missing,
    Target,
    Undecided,
    fail,
    info,
    passed,
    warn,
)

from ._topology import NODES
from ._words import nodes_text

if TYPE_CHECKING:
    from numadoctor.host import Host

_LIMIT = 8
_FOLDER = "/var/lib/kubelet"
_CONFIG = f"{_FOLDER}/config.yaml"
_OPTION = "max-allowable-numa-nodes"

# As YAML or as JSON; the kubelet takes both.
_COMMENT = re.compile(r"(?m)(^|\s)#.*$")
_POLICY = re.compile(r"""(?m)^\s*["']?topologyManagerPolicy["']?\s*:\s*["']?([a-z-]+)""")
_MAXIMUM = re.compile(rf"""["']?{_OPTION}["']?\s*[:=]\s*["']?([0-9]{{1,6}})""")
_POLICY_FLAG = re.compile(r"--topology-manager-policy[= ]([a-z-]+)")
_CONFIG_FLAG = re.compile(r"--config[= ](/\S+)")


@check(
    "T012",
    name="kubelet-node-limit",
    needs=(f"{NODES}/online", _CONFIG, "/proc/*/comm", "/proc/*/cmdline"),
    requires=Requires.NUMA,
)
def kubelet_node_limit(host: "Host", target: Target) -> Iterator[Finding]:
    """The machine has more than 8 nodes, which the kubelet's Topology Manager refuses.

    Why it matters
        With a Topology Manager policy other than none, the kubelet does not start on a
        machine of more than 8 NUMA nodes, unless it is told a higher limit: the manager
        tries all combinations of nodes for each pod, and their number doubles with each
        node. Nodes without CPUs count as well: on some machines each GPU has eight nodes
        for its memory, so that four GPUs and two sockets make more than 30.

    When it is harmless
        Without a kubelet, or with the policy none, which is the default.

    Fix
        Raise the limit (Kubernetes 1.31 and later) in the kubelet's configuration:

            topologyManagerPolicyOptions:
              max-allowable-numa-nodes: "36"

        or do without the Topology Manager: `topologyManagerPolicy: none`.

    Source
        Kubernetes, Control Topology Management Policies on a node; KEP-4622 (beta since
        1.31, stable since 1.35)
    """
    nodes = [node.id for node in host.topology.nodes]
    online = host.evidence(f"{NODES}/online")
    if len(nodes) <= _LIMIT:
        text = f"{len(nodes)} of the {_LIMIT} nodes that a kubelet accepts"
        yield passed(text, evidence=[online])
        return
    message = f"the machine has {len(nodes)} nodes ({nodes_text(nodes)})"
    kubelet = _kubelet(host)
    if kubelet is None:
        yield info(
            f"{message}; a kubelet accepts {_LIMIT} unless told, and none is to be seen here",
            evidence=[online],
        )
        return
    policy, limit, evidence = kubelet
    cited = [online, *evidence]
    if policy == "none":
        yield passed(f"{message}, and the kubelet's Topology Manager is off", evidence=cited)
    elif limit >= len(nodes):
        yield passed(f"{message}, and the kubelet accepts {limit}", evidence=cited)
    elif policy:
        yield fail(
            f"{message}, and the kubelet with Topology Manager policy {policy} accepts {limit}",
            cause="It does not start: nodes without CPUs, such as the memory of GPUs, count too.",
            evidence=cited,
            fixes=[_raise(len(nodes)), _off()],
        )
    else:
        yield warn(
            f"{message}, and a kubelet is here; its Topology Manager, if on, accepts {limit}",
            cause="Which policy it has cannot be told; with any but none it does not start.",
            evidence=cited,
            fixes=[_raise(len(nodes)), _off()],
        )


def _raise(nodes: int) -> Fix:
    text = f'topologyManagerPolicyOptions: {{{_OPTION}: "{nodes}"}}'
    return Fix("kubernetes", text, needs_root=True, needs_restart=True, persists=True)


def _off() -> Fix:
    text = "topologyManagerPolicy: none"
    return Fix("kubernetes", text, needs_root=True, needs_restart=True, persists=True)


def _kubelet(host: "Host") -> tuple[str, int, list[Evidence]] | None:
    """The policy (empty if not known), the limit, and their evidence; None without a kubelet."""
    pid = _pid(host)
    command, evidence = "", []
    if pid is not None:
        command = " ".join(host.parse(f"/proc/{pid}/cmdline", parsers.parse_argv))
        evidence.append(Evidence(f"/proc/{pid}/cmdline", command[:240]))
    match = _CONFIG_FLAG.search(command)
    path = match[1] if match else _CONFIG
    try:
        config = _COMMENT.sub("", host.text(path))
        evidence.append(host.evidence(path, "topologyManager", _OPTION))
    except Undecided as error:
        # Its folder is there, or it runs, and its configuration is not for us to read.
        if pid is None and isinstance(error, Missing) and not host.has(_FOLDER):
            return None
        config = ""
        evidence.append(host.evidence(path))
    return _policy(command, config), _limit(command, config), evidence


def _policy(command: str, config: str) -> str:
    # A flag outranks the file (Kubernetes, Set Kubelet Parameters Via A Configuration File).
    match = _POLICY_FLAG.search(command) or _POLICY.search(config)
    return match[1] if match else ("none" if config else "")


def _limit(command: str, config: str) -> int:
    match = _MAXIMUM.search(command) or _MAXIMUM.search(config)
    return int(match[1]) if match else _LIMIT


def _pid(host: "Host") -> int | None:
    for pid in parsers.numbered(host.optional(host.list, "/proc") or (), ""):
        try:
            if host.text(f"/proc/{pid}/comm") == "kubelet":
                return pid
        except Undecided:
            continue
    return None
