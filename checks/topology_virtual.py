"""Virtual machines that hide the nodes they run on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.host.virtual import CPUINFO, DMI, read_virtual
from numadoctor.model import Evidence, Finding, Target, Topology, passed, warn
from numadoctor.model.units import amount
from numadoctor.model.words import count, listed

from ._topology import NODES, memory_evidence, platform_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host

# More than one socket of most servers has: 64 cores with two threads, and twelve
# channels of one 64 GiB DIMM. A smaller guest fits into one node of its host.
_MANY_CPUS = 128
_MUCH_MEMORY = 768 << 30


@check(
    "T011",
    name="no-virtual-numa",
    needs=(
        CPUINFO,
        f"{DMI}/*",
        f"{NODES}/node*/meminfo",
        "/sys/devices/system/cpu/cpu*/topology/physical_package_id",
    ),
    requires=Requires.NUMA,
)
def no_virtual_numa(host: "Host", target: Target) -> Iterator[Finding]:
    """A large virtual machine has one node: its hypervisor hides the sockets below.

    Why it matters
        A guest that is larger than a node of its host runs on several. With one virtual
        node, half of its accesses are remote at random, the guest's kernel cannot know
        which, and no placement inside the guest can help. GPUs that are passed through
        then have no node either.

    When it is harmless
        When the host keeps the whole guest on one of its nodes, CPUs and memory, which
        a guest of more than one socket's size does not allow.

    Fix
        Give the guest virtual nodes that mirror those of its host, each bound to one.

            libvirt   <numa><cell .../></numa>, <vcpupin>, <numatune><memnode .../>
            VMware    switch CPU hot-add off, which disables virtual NUMA
            QEMU      -numa node,nodeid=0,cpus=...,memdev=m0 with host-nodes=, policy=bind

        In a cloud choose a size that is documented to show its nodes.

    Source
        libvirt, domain XML: guest NUMA topology and NUMA node tuning; QEMU, -numa and
        -object memory-backend-ram; VMware vSphere Resource Management, virtual NUMA
    """
    topology = host.topology
    if len(topology.nodes) > 1:
        nodes = count(len(topology.nodes), "node")
        yield passed(f"the machine shows {nodes}", evidence=[host.evidence(f"{NODES}/online")])
        return
    machine = read_virtual(host)
    node = topology.nodes[0]
    evidence = [*machine.evidence, memory_evidence(host, node), host.evidence(f"{NODES}/online")]
    if not machine.virtual:
        yield passed("the machine is physical and has one node", evidence=evidence)
        return
    reasons = list(_too_large(topology))
    if not reasons:
        yield passed(
            f"this virtual machine ({count(len(topology.online_cpus), 'CPU')}, "
            f"{amount(node.memory_bytes or 0)}) is small enough for one node of its host",
            evidence=evidence,
        )
        return
    yield warn(
        f"a virtual machine ({machine.by}) with {listed(reasons)} shows one node",
        cause="It is larger than one socket of most servers, or says itself that it has several: "
        "part of its memory is remote, and nothing in the guest can tell which part.",
        evidence=[*evidence, _packages(topology)],
        fixes=platform_fixes(host, [], _fixes(machine.by)),
    )


_LIBVIRT = (
    "<cpu><numa><cell id='0' cpus='...' memory='...'/>...</numa></cpu>\n"
    "<numatune><memnode cellid='0' mode='strict' nodeset='0'/>...</numatune>\n"
    "# and a <vcpupin .../> for each virtual CPU"
)
_VMWARE = "switch CPU hot-add off: with it the guest gets no virtual NUMA"
_CLOUD = "choose a size of machine that is documented to show its NUMA nodes"


def _fixes(hypervisor: str) -> dict[str, str]:
    """Launcher to the change, for the hypervisors that fit; for all where it is not known."""
    if hypervisor == "VMware":
        return {"vmware": _VMWARE}
    if hypervisor in ("Amazon EC2", "Google Compute Engine", "Alibaba Cloud", "Hyper-V"):
        return {"any": _CLOUD}
    if hypervisor in ("QEMU", "KVM", "OpenStack", "Xen"):
        return {"libvirt": _LIBVIRT}
    return {"libvirt": _LIBVIRT, "vmware": _VMWARE, "any": _CLOUD}


def _too_large(topology: Topology) -> Iterator[str]:
    packages = {cpu.package for cpu in topology.cpus if cpu.package is not None}
    # Many hypervisors make each CPU a socket unless told: that says nothing.
    if 1 < len(packages) <= len(topology.cpus) // 2:
        yield f"{len(packages)} packages"
    if len(topology.online_cpus) > _MANY_CPUS:
        yield count(len(topology.online_cpus), "CPU")
    memory = topology.nodes[0].memory_bytes or 0
    if memory > _MUCH_MEMORY:
        yield amount(memory)


def _packages(topology: Topology) -> Evidence:
    ids = sorted({str(cpu.package) for cpu in topology.cpus})
    path = "/sys/devices/system/cpu/cpu*/topology/physical_package_id"
    return Evidence(path, f"{count(len(ids), 'value')}: {', '.join(ids[:8])}")
