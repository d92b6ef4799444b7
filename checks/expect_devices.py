"""The devices and CPUs of a plan against the machine, before anything starts."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import check
from numadoctor.host import parsers
from numadoctor.kernel.forecast import predict_bind
from numadoctor.model import (
    Device,
    Evidence,
    Finding,
    Fix,
    Target,
    fail,
    passed,
    unknown,
    warn,
)
from numadoctor.model.binding import cpuset
from numadoctor.model.plan import Instance, Plan
from numadoctor.model.words import cpus_text, listed, nodes_text

from ._expect import PLAN, before_a_start, gpus_of, machine, named, stated, subject

if TYPE_CHECKING:
    from numadoctor.host import Host

_STATUS = "/proc/self/status"


def _is_there(name: str, of: Iterable[Device]) -> bool:
    return any(name in (d.address, *d.names, *d.rdma, *d.interfaces) for d in of)


@check("P050", name="planned-devices", needs=(PLAN,))
def planned_devices(host: "Host", target: Target) -> Iterator[Finding]:
    """The GPUs and NICs of a plan: whether the machine has them, near to the planned memory.

    Why it matters
        A plan outlives the machine it was made for: a GPU fell off the bus and all indices
        behind it moved, a card went to another slot, the plan was copied to a machine
        whose slots are wired otherwise. The engine starts on other GPUs than those that
        the memory was placed for, and nothing tells.

    When it is harmless
        A pool away from its GPUs can be meant, where their node has no room.

    Fix
        Make the plan anew for this machine, or name GPUs by bus id or UUID, which stay:

            numadoctor plan --instances N --gpus-per-instance M -o json=plan.json

    Source
        Documentation/ABI/testing/sysfs-bus-pci, numa_node; docs/plan.md
    """
    plan = before_a_start(host)
    if isinstance(plan, Finding):
        yield plan
        return
    owners: dict[str, str] = {}
    for instance in plan.instances:
        gpus, missing = gpus_of(host, instance)
        taken = [gpu for gpu in gpus if gpu.address in owners]
        for gpu in gpus:
            owners.setdefault(gpu.address, instance.name)
        if instance.gpus or instance.nics:
            yield from named(instance, [_devices(host, plan, instance, missing, taken)])
        yield from named(instance, _away(host, plan, instance, gpus))


def _devices(
    host: "Host", plan: Plan, instance: Instance, missing: list[str], taken: list[Device]
) -> Finding:
    evidence = [stated(plan, instance, "gpus", "nics"), _present(host)]
    about = subject(instance)
    nics = [d for d in host.topology.devices if d.kind == "nic"]
    absent = [name for name in instance.nics or () if not _is_there(name, nics)]
    if missing or absent:
        names = listed([*(f"GPU {word}" for word in missing), *(f"NIC {word}" for word in absent)])
        return fail(
            f"the machine has no {names[:200]}",
            subject=about,
            cause="The engine would not start, or start on other devices than its memory is "
            "planned for.",
            evidence=evidence,
            fixes=(Fix("any", "make the plan anew for this machine: numadoctor plan"),),
        )
    if taken:
        return fail(
            f"GPU {taken[0].address} is planned for another instance as well",
            subject=about,
            cause="Two engines on one GPU share its memory and its time.",
            evidence=evidence,
            fixes=(Fix("any", "give each instance GPUs of its own: numadoctor plan"),),
        )
    return passed("the machine has its GPUs and NICs", subject=about, evidence=evidence)


def _present(host: "Host") -> Evidence:
    gpus = machine(host).gpus
    shown = " ".join(gpu.address for gpu in gpus) or "no GPU"
    return Evidence("/sys/bus/pci/devices", shown[:240])


def _away(host: "Host", plan: Plan, instance: Instance, gpus: list[Device]) -> Iterator[Finding]:
    """GPUs that are far from the planned memory, and those whose node is unknown."""
    if not instance.nodes or len(host.topology.nodes) < 2:
        return
    evidence = [stated(plan, instance, "gpus", "nodes", "policy")]
    memory = [node.id for node in machine(host).memory_nodes]
    for gpu in gpus:
        about = f"{subject(instance)}: gpu {gpu.address}"
        shown = [*evidence, host.evidence(f"/sys/bus/pci/devices/{gpu.address}/numa_node")]
        if gpu.node is None:
            if set(memory) - set(instance.nodes):
                yield unknown(
                    f"whether the pool is near to GPU {gpu.address} cannot be told: its node is "
                    f"unknown ({gpu.node_source})",
                    subject=about,
                    evidence=shown,
                )
            continue
        near = machine(host).nearest(gpu.node, memory)
        if not set(near) & set(instance.nodes):
            yield warn(
                f"the pool is planned on {nodes_text(instance.nodes)}, and GPU {gpu.address} is on "
                f"node {gpu.node}",
                subject=about,
                cause="Each transfer between pool and GPU crosses the link between nodes.",
                evidence=shown,
                fixes=(Fix("any", f"in the plan, nodes: {parsers.format_list(near)}"),),
            )


@check("P054", name="planned-cpus-and-nodes", needs=(PLAN, _STATUS))
def planned_cpus_and_nodes(host: "Host", target: Target) -> Iterator[Finding]:
    """Whether the planned CPUs and nodes exist, are online, and may be used from here.

    Why it matters
        In a job or a container a CPU may exist and not be allowed: numactl and taskset then
        answer "Invalid argument", and engines that ignore that run unbound. Of memory nodes
        the kernel drops without a word those that the cpuset does not allow; only when
        none is left does it answer EINVAL.

    When it is harmless
        If the engine starts in another container or job than numadoctor.

    Fix
        Widen the cpuset where the engine is started, or plan inside of it:

            docker run --cpuset-cpus 1-7,17-23 --cpuset-mems 0 ...

    Source
        sched_setaffinity(2), EINVAL; mpol_set_nodemask() in mm/mempolicy.c; cpuset(7)
    """
    plan = before_a_start(host)
    if isinstance(plan, Finding):
        yield plan
        return
    owners: dict[int, str] = {}
    for instance in plan.instances:
        if instance.cpus:
            yield from named(instance, [_cpus(host, plan, instance, owners)])
        if instance.nodes:
            yield from named(instance, [_nodes(host, plan, instance)])


def _cpus(host: "Host", plan: Plan, instance: Instance, owners: dict[int, str]) -> Finding:
    topology, wanted = host.topology, set(instance.cpus or ())
    about = f"{subject(instance)}: CPUs"
    evidence = [stated(plan, instance, "cpus"), host.evidence(_STATUS, "Cpus_allowed_list")]
    shared = sorted(cpu for cpu in wanted if cpu in owners)
    others = {owners[cpu] for cpu in shared}
    for cpu in wanted:
        owners.setdefault(cpu, instance.name)
    fix = (Fix("any", "make the plan anew for this machine: numadoctor plan"),)
    if absent := wanted - set(topology.present_cpus) - set(topology.online_cpus):
        return fail(
            f"{cpus_text(absent)} do not exist here" if len(absent) > 1
            else f"{cpus_text(absent)} does not exist here",
            subject=about,
            cause="numactl and taskset answer EINVAL or leave these out.",
            evidence=evidence,
            fixes=fix,
        )  # fmt: skip
    if offline := wanted - set(topology.online_cpus):
        return fail(
            f"{cpus_text(offline)}: offline",
            subject=about,
            cause="The CPUs exist and are switched off: nothing runs there.",
            evidence=evidence,
            fixes=(Fix("sysfs", f"echo 1 > /sys/devices/system/cpu/cpu{min(offline)}/online",
                       needs_root=True), *fix),
        )  # fmt: skip
    if topology.allowed.cpus is None:
        return unknown(
            f"whether {cpus_text(wanted)} may be used cannot be told: {topology.allowed.source}",
            subject=about,
            evidence=evidence,
        )
    if denied := wanted - set(topology.allowed.cpus):
        return fail(
            f"{cpus_text(denied)} exist and may not be used here: allowed are "
            f"{cpus_text(topology.allowed.cpus)}",
            subject=about,
            cause="The cpuset of this job, container or service is narrower than the plan.",
            evidence=evidence,
            fixes=(
                *cpuset(wanted),
                Fix("slurm", "srun --exclusive, or ask for the cores of the plan", False, True),
            ),
        )
    if shared:
        return warn(
            f"{cpus_text(shared)} are planned for {listed(sorted(others))} as well",
            subject=about,
            cause="The instances take these CPUs from each other.",
            evidence=evidence,
            fixes=fix,
        )
    return passed(f"{cpus_text(wanted)} may be used", subject=about, evidence=evidence)


def _nodes(host: "Host", plan: Plan, instance: Instance) -> Finding:
    about = f"{subject(instance)}: nodes"
    memory = [node.id for node in host.topology.memory_nodes]
    forecast = predict_bind(instance.nodes or (), host.topology.allowed.nodes, memory)
    evidence = [
        stated(plan, instance, "nodes", "policy"),
        host.evidence(_STATUS, "Mems_allowed_list"),
    ]
    if forecast.effective is None:
        return unknown(
            f"whether {nodes_text(forecast.asked)} may be used cannot be told: "
            f"{host.topology.allowed.source}",
            subject=about,
            evidence=evidence,
        )
    if forecast.effective == forecast.asked:
        return passed(f"{nodes_text(forecast.asked)} may be used", subject=about,
                      evidence=evidence)  # fmt: skip
    left = nodes_text(forecast.effective)
    fixes = forecast.fixes or (Fix("any", "make the plan anew for this machine: numadoctor plan"),)
    return fail(
        f"of {nodes_text(forecast.asked)} the kernel will use {left}",
        subject=about,
        cause=forecast.because,
        evidence=evidence,
        fixes=fixes,
    )
