"""More nodes than the kubelet's Topology Manager accepts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.model import (
    Finding,
    Fix,
    Target,
    fail,
    info,
    passed,
    warn,
)
from numadoctor.model.words import nodes_text

from ._topology import NODES

if TYPE_CHECKING:
    from numadoctor.host import Host

_LIMIT = 8
_OPTION = "max-allowable-numa-nodes"


@check(
    "T012",
    name="kubelet-node-limit",
    needs=(
        f"{NODES}/online",
        "/var/lib/kubelet/config.yaml",
        "/proc/*/comm",
        "/proc/*/cmdline",
        "/*/systemd/system/kubelet.service",
        "/*/systemd/system/kubelet.service.d/*.conf",
        "/usr/lib/systemd/system/kubelet.service",
        "/usr/lib/systemd/system/kubelet.service.d/*.conf",
        "/etc/kubernetes/kubelet.conf.d/*.conf",
        "/etc/default/kubelet",
        "/var/lib/kubelet/kubeadm-flags.env",
    ),
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

        Of several places that say it the last holds: the configuration file, the files of
        --config-dir by their names, the flags, which of a kubelet that does not run are
        those of its unit, of the unit's drop-ins and of their environment files.

    When it is harmless
        Without a kubelet, or with the policy none, which is the default.

    Fix
        Raise the limit (Kubernetes 1.31 and later) in the kubelet's configuration:

            topologyManagerPolicyOptions:
              max-allowable-numa-nodes: "36"

        or do without the Topology Manager: `topologyManagerPolicy: none`.

    Source
        Kubernetes, Control Topology Management Policies on a node; KEP-4622 (beta since
        1.31, stable since 1.35); Set Kubelet Parameters Via A Configuration File
    """
    nodes = [node.id for node in host.topology.nodes]
    online = host.evidence(f"{NODES}/online")
    if len(nodes) <= _LIMIT:
        text = f"{len(nodes)} of the {_LIMIT} nodes that a kubelet accepts"
        yield passed(text, evidence=[online])
        return
    message = f"the machine has {len(nodes)} nodes ({nodes_text(nodes)})"
    from ._kubelet import kubelet_of

    kubelet = kubelet_of(host)
    if kubelet is None:
        yield info(
            f"{message}; a kubelet accepts {_LIMIT} unless told, and none is to be seen here",
            evidence=[online],
        )
        return
    policy, limit = kubelet.policy, kubelet.limit
    cited = [online, *kubelet.evidence]
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
