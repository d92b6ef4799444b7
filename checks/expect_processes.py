"""The plan of a deployment against the processes that run: their GPUs and their threads."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.host import parsers
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Target,
    Undecided,
    fail,
    passed,
    skip,
    unknown,
    warn,
)
from numadoctor.model.placement import Thread
from numadoctor.model.plan import Instance, Plan
from numadoctor.model.words import count, cpus_text, listed

from ._expect import (
    NEEDS,
    Assignment,
    assignment,
    gpus_of,
    in_force,
    machine,
    named,
    start_fixes,
    stated,
    subject,
)
from ._placement import looked_at, process_text

if TYPE_CHECKING:
    from numadoctor.host import Host

_AMD = 0x1002

_NONE_OF_IT = "none of the examined processes is of this instance"


@check(
    "P060",
    name="planned-gpus-open",
    needs=NEEDS,
    scope=Scope.PROCESSES,
)
def planned_gpus_open(host: "Host", target: Target) -> Iterator[Finding]:
    """The GPUs that each instance has open against those of the plan.

    Why it matters
        CUDA numbers GPUs by speed unless CUDA_DEVICE_ORDER says otherwise, a container
        numbers its own from 0, and a scheduler hands out what is free. An instance that
        runs on other GPUs than planned has its memory and its CPUs in the wrong place, and
        may share a GPU with the next one.

    When it is harmless
        ROCm opens the render nodes of all GPUs that it can see, whichever it computes on:
        that is not decided. Engines that are still starting have not opened all of theirs:
        a warning.

    Fix
        Name the GPUs by what does not change, and start again:

            CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4,5,6,7
            docker run --gpus '"device=4,5,6,7"' ...

    Source
        CUDA programming guide, CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER; /proc/PID/fd,
        proc_pid_fd(5)
    """
    plan = in_force(host)
    if isinstance(plan, Finding):
        yield plan
        return
    found = assignment(host, plan, looked_at(host, target))
    yield from found.findings()
    for instance in plan.instances:
        if instance.gpus is not None:
            yield from named(instance, [_gpus(host, plan, instance, found)])


def _gpus(host: "Host", plan: Plan, instance: Instance, found: Assignment) -> Finding:
    about, pids = f"{subject(instance)}: GPUs", found.pids[instance.name]
    if not pids:
        return skip(_NONE_OF_IT, subject=about)
    opened, evidence = {}, [stated(plan, instance, "gpus")]
    blind: list[Undecided] = []
    for pid in pids:
        try:
            gpus = found.found.gpus(pid)
        except Undecided as error:
            blind.append(error)
            continue
        opened.update({device.address: device for device in gpus.devices})
        evidence += gpus.evidence[: max(0, 5 - len(evidence))]
    wanted = {gpu.address for gpu in gpus_of(host, instance)[0]}
    fixes = (_visible(host, instance), Fix("any", "or correct gpus in the plan"))
    extra = sorted(set(opened) - wanted)
    if extra and all(device.vendor == _AMD for device in opened.values()):
        return unknown(
            f"has {count(len(opened), 'GPU')} open: which of them it uses cannot be told",
            subject=about,
            cause="ROCm opens every GPU that it can see; a container that is given its own alone "
            "(--device /dev/dri/renderDN) would tell.",
            evidence=evidence,
        )
    if extra:
        return fail(
            f"has GPU {listed(extra[:4])} open, which the plan does not give it",
            subject=about,
            cause="Its memory and CPUs are planned for other GPUs.",
            evidence=evidence,
            fixes=fixes,
        )
    if blind:
        return unknown(
            f"which GPUs it has open cannot be told of {count(len(blind), 'process', 'processes')}",
            subject=about,
            evidence=[*evidence, Evidence(blind[0].path, blind[0].reason)],
        )
    if missing := sorted(wanted - set(opened)):
        return warn(
            f"has not opened GPU {listed(missing[:4])} of its plan",
            subject=about,
            cause="It is still starting, or uses fewer GPUs than planned.",
            evidence=evidence,
            fixes=fixes,
        )
    return passed(f"has its {count(len(wanted), 'GPU')} open and no other", subject=about,
                  evidence=evidence)  # fmt: skip


def _visible(host: "Host", instance: Instance) -> Fix:
    here = machine(host).gpus
    places = [str(here.index(gpu)) for gpu in gpus_of(host, instance)[0] if gpu in here]
    text = f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(places)}"
    return Fix("any", text, needs_restart=True)


@check(
    "P061",
    name="planned-cpus-used",
    needs=NEEDS,
    scope=Scope.PROCESSES,
)
def planned_cpus_used(host: "Host", target: Target) -> Iterator[Finding]:
    """The CPUs that all threads of an instance may run on against those of the plan.

    Why it matters
        Threads inherit the affinity of whoever starts them, and libraries set it anew:
        OpenMP, NCCL's proxies, drivers, engines that bind their workers. A main thread
        that is bound says nothing of forty others. A thread on a CPU of the next instance
        takes its time, and touches memory on the wrong node first.

    When it is harmless
        Helper threads that sleep. Fewer CPUs than planned are told as a pass: they are
        within the plan.

    Fix
        Start the instance with the CPUs of the plan, and turn off what undoes them:

            numactl --physcpubind=1-7,17-23 COMMAND
            docker run --cpuset-cpus 1-7,17-23 ...

        A cpuset cannot be left, whatever a library sets.

    Source
        sched_setaffinity(2); proc_pid_status(5), Cpus_allowed_list; cpuset(7)
    """
    plan = in_force(host)
    if isinstance(plan, Finding):
        yield plan
        return
    found = assignment(host, plan, looked_at(host, target))
    for instance in plan.instances:
        if instance.cpus is not None:
            yield from named(instance, [_cpus(host, plan, instance, found)])


def _cpus(host: "Host", plan: Plan, instance: Instance, found: Assignment) -> Finding:
    about, pids = f"{subject(instance)}: CPUs", found.pids[instance.name]
    if not pids:
        return skip(_NONE_OF_IT, subject=about)
    online, wanted = set(host.topology.online_cpus), set(instance.cpus or ())
    evidence = [stated(plan, instance, "cpus")]
    astray: list[tuple[int, Thread]] = []
    total, unread = 0, 0
    main_astray = False
    for pid in pids:
        try:
            threads = found.found.threads(pid)
        except Undecided as error:
            evidence.append(Evidence(error.path, error.reason))
            unread += 1
            continue
        for thread in threads:
            total += 1
            if thread.cpus is None:
                unread += 1
            elif set(thread.cpus) & online - wanted:
                astray.append((pid, thread))
                main_astray = main_astray or thread.tid == pid
    for pid, thread in astray[:3]:
        path = f"/proc/{pid}/task/{thread.tid}/status"
        evidence.append(host.evidence(path, "Cpus_allowed_list"))
    if astray:
        beyond = set().union(*(thread.cpus or () for _, thread in astray)) & online - wanted
        make = fail if main_astray or 2 * len(astray) > total else warn
        return make(
            f"{len(astray)} of {count(total, 'thread')} may run on {cpus_text(beyond)}, outside of "
            "the plan",
            subject=about,
            cause=f"The first of them is {astray[0][1].name or astray[0][1].tid} of "
            f"{process_text(found.found, astray[0][0])}.",
            evidence=evidence[:6],
            fixes=start_fixes(instance),
        )
    if unread or not total:
        return unknown(
            f"the CPUs of {count(unread, 'thread')} cannot be read"
            if total
            else "no thread of it could be read",
            subject=about,
            evidence=evidence[:6],
        )
    return passed(
        f"its {count(total, 'thread')} may run on CPUs {parsers.format_list(wanted)} alone"
        if total > 1
        else f"its thread may run on CPUs {parsers.format_list(wanted)} alone",
        subject=about,
        evidence=[*evidence, host.evidence(f"/proc/{pids[0]}/status", "Cpus_allowed_list")],
    )
