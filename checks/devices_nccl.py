"""The topology file that NCCL was given, against the machine."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, Scope, check
from numadoctor.host import parsers
from numadoctor.model import (
    Device,
    Evidence,
    Finding,
    Fix,
    Malformed,
    Missing,
    Target,
    Undecided,
    fail,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.words import count, cpus_text, nodes_text

from ._devices import PCI, gpus, named, node_evidence
from ._envelope import for_target
from ._topology import NODES

if TYPE_CHECKING:
    from numadoctor.host import Host
    from numadoctor.host.parsers import NcclCpu, NcclTopology

_VARIABLE = "NCCL_TOPO_FILE"
_CONFIGURATIONS = ("/etc/nccl.conf",)
# NCCL looks there by itself: nvidia-topologyd writes it on virtual machines (topo.cc).
_DEFAULT = "/var/run/nvidia-topologyd/virtualTopology.xml"
_LINE = re.compile(rf"(?m)^[ \t]*{_VARIABLE}[ \t]*=[ \t]*(\S+)")


@check(
    "G012",
    name="nccl-topology-file",
    needs=(
        "/proc/PID/environ",
        "/proc/PID/ns/mnt",
        "/etc/nccl.conf",
        "/proc/PID/root/etc/nccl.conf",
        _DEFAULT,
        f"/proc/PID/root{_DEFAULT}",
        f"{NODES}/node*/cpumap",
        f"{PCI}/*/numa_node",
    ),
    requires=Requires.NUMA,
    scope=Scope.PROCESS,
)
def nccl_topology_file(host: "Host", target: Target) -> Iterator[Finding]:
    """The topology file given to NCCL contradicts the machine it is used on.

    Why it matters
        With NCCL_TOPO_FILE NCCL believes the file and not sysfs. It takes the node and
        the CPUs of each GPU from there, and binds its threads and buffers to them. A
        file from another machine type, or one in which two nodes have the same mask,
        puts the helpers of half of the GPUs on the wrong socket, and nothing complains.

    When it is harmless
        In a virtual machine that shows no topology the file is the only source; then
        there is nothing to compare it with, which is told.

    Fix
        Unset NCCL_TOPO_FILE where sysfs knows the nodes. Where a file is needed, write
        one on this machine type: NCCL_TOPO_DUMP_FILE=FILE in a run on bare metal.

    Source
        NCCL, "Environment variables" (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE); src/graph/
        topo.cc and xml.cc of NCCL
    """
    asked, source = _asked_for(host, target)
    try:
        path = _in_its_root(host, target, asked)
        topology = host.parse(path, parsers.parse_nccl_topology)
    except Missing:
        if not source:
            yield skip(f"no topology file is given to NCCL in {target.subject}",
                       subject=target.subject)  # fmt: skip
            return
        yield _not_there(host, target, asked, source)
        return
    except Malformed as error:
        yield fail(
            f"NCCL cannot read its topology file {asked}: {error.reason}",
            subject=target.subject,
            cause="It goes on without, or ends.",
            evidence=[*source, Evidence(asked, error.reason)],
            fixes=_drop(host, target),
        )
        return
    yield from _judge(host, target, topology, [*source, Evidence(path, "")])


def _asked_for(host: "Host", target: Target) -> tuple[str, list[Evidence]]:
    """The file, and where it is asked for; nowhere for the one NCCL looks for by itself."""
    value = host.environ(target.proc).get(_VARIABLE)
    if value:
        return value, [Evidence(f"{target.proc}/environ", f"{_VARIABLE}={value}")]
    for configuration in _CONFIGURATIONS:
        try:
            path = _in_its_root(host, target, configuration)
            match = _LINE.search(host.text(path))
        except Undecided:
            continue
        if match:
            return match[1], [Evidence(path, match[0].strip())]
    return _DEFAULT, []


def _in_its_root(host: "Host", target: Target, path: str) -> str:
    """Where a path of the target is for us: its files may be those of a container.

    :raises Undecided: whether it has files of its own cannot be told
    """
    if not path.startswith("/"):
        raise Malformed(path, None, "a path from / on is expected")
    if target.pid is None:
        return path
    try:
        if host.link(f"{target.proc}/ns/mnt") == host.link("/proc/self/ns/mnt"):
            return path
    except Missing:
        return path
    return f"{target.proc}/root{path}"


def _drop(host: "Host", target: Target) -> tuple[Fix, ...]:
    return for_target(
        host,
        target,
        (
            Fix("any", f"unset {_VARIABLE}", needs_restart=True),
            Fix(
                "any",
                "NCCL_TOPO_DUMP_FILE=topology.xml   # in a run on this machine type",
                needs_restart=True,
            ),
        ),
    )


def _not_there(host: "Host", target: Target, path: str, source: list[Evidence]) -> Finding:
    return warn(
        f"the topology file {path} that NCCL is given is not there",
        subject=target.subject,
        cause="NCCL says so in its log alone and goes on with what sysfs tells.",
        evidence=[*source, Evidence(path, "No such file or directory")],
        fixes=_drop(host, target),
    )


def _judge(
    host: "Host", target: Target, file: "NcclTopology", source: list[Evidence]
) -> Iterator[Finding]:
    shown = source[-1].source
    evidence = [e for e in source if e.text]
    wrong = [*_wrong_masks(host, file), *_wrong_nodes(host, file)]
    if wrong:
        texts = [text for text, _ in wrong]
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        yield fail(
            f"NCCL's topology file {shown} contradicts sysfs: {'; '.join(texts[:3])}{more}",
            subject=target.subject,
            cause="NCCL believes the file: threads and buffers go to what it says.",
            evidence=[*evidence, *(item for _, items in wrong[:3] for item in items)],
            fixes=_drop(host, target),
        )
    named_there = {device.address: device for device in file.devices}
    absent = [device for device in gpus(host) if device.address not in named_there]
    if absent and len(absent) < len(gpus(host)):
        yield info(
            f"NCCL's topology file {shown} does not name {named(absent)}",
            subject=f"{target.subject}: GPUs",
            cause="NCCL adds what it finds on the bus, by what sysfs tells.",
            evidence=[*evidence, Evidence(shown, f"{count(len(named_there), 'device')}")],
        )
    open_ = [d for d in _known(host, file) if d.node is None]
    if open_:
        yield unknown(
            f"whether NCCL's topology file {shown} is right about {named(open_[:1])} and "
            f"{len(open_) - 1} more cannot be told: sysfs does not know their node",
            subject=target.subject,
            evidence=[*evidence, *(node_evidence(host, device) for device in open_[:3])],
        )
    elif not wrong:
        yield passed(
            f"NCCL's topology file {shown} agrees with sysfs on {count(len(file.cpus), 'node')} "
            f"and {count(len(_known(host, file)), 'device')}",
            subject=target.subject,
            evidence=[*evidence, Evidence(shown, f"{count(len(file.cpus), 'cpu element')}")],
        )


def _known(host: "Host", file: "NcclTopology") -> list[Device]:
    """The devices of the machine that the file places."""
    placed = {device.address for device in file.devices if device.cpu is not None}
    return [device for device in host.topology.devices if device.address in placed]


def _wrong_masks(host: "Host", file: "NcclTopology") -> Iterator[tuple[str, list[Evidence]]]:
    nodes = {node.id: node for node in host.topology.nodes}
    seen: dict[tuple[int, ...], NcclCpu] = {}
    for cpu in file.cpus:
        if cpu.cpus is None:
            continue
        twin = seen.setdefault(cpu.cpus, cpu)
        if twin is not cpu and twin.node != cpu.node:
            yield (
                f"lines {twin.line} and {cpu.line} give {_place(twin)} and {_place(cpu)} the same "
                f"CPUs, {cpus_text(cpu.cpus)}",
                [host.evidence(f"{NODES}/node{c.node}/cpumap") for c in (twin, cpu)
                 if c.node in nodes],
            )  # fmt: skip
            continue
        if cpu.node is None:
            continue
        node = nodes.get(cpu.node)
        if node is None:
            yield (
                f"line {cpu.line}: this machine has no node {cpu.node}",
                [host.evidence(f"{NODES}/online")],
            )
        elif set(cpu.cpus) & set(host.topology.online_cpus) != set(node.cpus):
            yield (
                f"line {cpu.line}: node {cpu.node} with {cpus_text(cpu.cpus)}, sysfs "
                f"{cpus_text(node.cpus)}",
                [host.evidence(f"{NODES}/node{cpu.node}/cpumap")],
            )


def _place(cpu: "NcclCpu") -> str:
    return "a cpu without a node" if cpu.node is None else f"node {cpu.node}"


def _wrong_nodes(host: "Host", file: "NcclTopology") -> Iterator[tuple[str, list[Evidence]]]:
    there = {device.address: device for device in file.devices}
    for device in _known(host, file):
        entry = there[device.address]
        said = file.cpus[entry.cpu].node if entry.cpu is not None else None
        if said is not None and device.node is not None and said != device.node:
            yield (
                f"line {entry.line}: {named([device])} on node {said}, sysfs "
                f"{nodes_text([device.node])}",
                [node_evidence(host, device)],
            )
