"""How to start an instance as planned, for each launcher and engine.

Where the words of each are documented stands in docs/plan.md, with the versions
in which they were looked up.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Sequence

from numadoctor.kernel.nodemask import to_text
from numadoctor.model import binding
from numadoctor.model.plan import PoolPolicy, Snippet
from numadoctor.model.units import page_size_folder, page_size_text
from numadoctor.planning import engines
from numadoctor.planning.starting import (
    AMD,
    NVIDIA,
    Start,
    environment,
    gpu_names,
    numactl_options,
    shell,
)

_MOVES_EVERYTHING = (
    "The policy is for all memory of the process, not for the pool alone: where the engine can "
    "place its pool itself, leave the policy out and use the engine's own setting."
)
_FIRST_TOUCH = (
    "Sets CPUs alone: memory follows whoever touches it first, and goes elsewhere when the node "
    "is full."
)


def snippets(start: Start, launchers: Iterable[str]) -> tuple[Snippet, ...]:
    """How to start it with each of ``launchers`` (names of LAUNCHERS)."""
    return tuple(LAUNCHERS[name](start) for name in launchers)


def _policy_notes(start: Start) -> tuple[str, ...]:
    policy = start.instance.policy
    if policy is not None and policy.spreads and len(start.instance.nodes or ()) > 1:
        return (_MOVES_EVERYTHING,)
    return ()


def _numactl(start: Start) -> Snippet:
    notes = list(_policy_notes(start))
    if start.instance.policy is PoolPolicy.WEIGHTED:
        notes.append("Needs numactl 2.0.19 and Linux 6.9.")
    elif start.instance.policy is PoolPolicy.PREFERRED and len(start.instance.nodes or ()) > 1:
        notes.append("Needs numactl 2.0.15 and Linux 5.15.")
    text = f"{shell(environment(start))}numactl {numactl_options(start.instance)} {start.command}"
    return Snippet("numactl", text, tuple(notes))


def _taskset(start: Start) -> Snippet:
    text = f"{shell(environment(start))}taskset -c {start.cpus} {start.command}"
    return Snippet("taskset", text, (_FIRST_TOUCH,))


def _systemd(start: Start) -> Snippet:
    policy = start.instance.policy or PoolPolicy.LOCAL
    notes = list(_policy_notes(start))
    several = len(start.instance.nodes or ()) > 1
    lines = ["[Service]"]
    lines += [f'Environment="{name}={value}"' for name, value in environment(start).items()]
    command = start.command
    if policy is PoolPolicy.WEIGHTED or (policy is PoolPolicy.PREFERRED and several):
        notes.append("systemd has no word for this policy: numactl sets it.")
        lines += binding.unit_lines(start.cpus)
        command = f"/usr/bin/numactl {numactl_options(start.instance, cpus=False)} {start.command}"
    else:
        lines += binding.unit_lines(start.cpus, start.nodes, policy.value)
    lines += ["LimitMEMLOCK=infinity", f"ExecStart={command}"]
    return Snippet("systemd", "\n".join(lines), tuple(notes))


def _inside(start: Start) -> str:
    """The command in a container whose CPUs and nodes are set from outside."""
    policy = start.instance.policy or PoolPolicy.LOCAL
    if policy.spreads or policy is PoolPolicy.PREFERRED:
        return f"numactl {numactl_options(start.instance, cpus=False)} {start.command}"
    # Bound by the cpuset: no call is needed, and no capability.
    return start.command


def _needs_calls(start: Start) -> bool:
    return _inside(start) != start.command


def _shm_size(start: Start) -> str:
    """A pool in /dev/shm needs it there; others still pass messages through it."""
    return f"{max(start.gib, 1) + 1}g"


def _spills(start: Start) -> bool:
    """Whether the pool may go to other nodes, which a cpuset would forbid."""
    return start.instance.policy in (None, PoolPolicy.LOCAL, PoolPolicy.PREFERRED)


def _docker(start: Start) -> Snippet:
    names = ",".join(gpu_names(start))
    words = ["docker run"]
    notes = []
    if start.gpus and start.vendor == AMD:
        words.append("--device /dev/kfd --device /dev/dri")
    elif start.gpus:
        words.append(f"--gpus '\"device={names}\"'")
        notes.append("Inside, the GPUs are numbered from 0.")
    words += binding.docker_options(start.cpus, "" if _spills(start) else start.nodes)
    if _needs_calls(start):
        words.append("--cap-add SYS_NICE")
        notes.append(
            "SYS_NICE lets Docker's profile pass set_mempolicy and mbind; `numadoctor syscalls "
            "--emit-profile` does without it. The image needs numactl."
        )
    words += [f"--shm-size {_shm_size(start)}", "--ulimit memlock=-1"]
    if start.of_huge_pages:
        words.append("-v /dev/hugepages:/dev/hugepages")
    hidden = start.vendor != AMD
    words += [f"-e {name}={shlex.quote(value)}"
              for name, value in environment(start, gpus=not hidden).items()]  # fmt: skip
    text = " \\\n  ".join([*words, f"IMAGE {_inside(start)}"])
    return Snippet("docker", text, (*notes, *_policy_notes(start)))


def _compose(start: Start) -> Snippet:
    lines = [
        "services:",
        f"  {_yaml_name(start.instance.name)}:",
        "    image: IMAGE",
        f"    {binding.compose_line(start.cpus)}",
        "    cap_add: [SYS_NICE]",
        f"    shm_size: {_shm_size(start)}b",
        "    ulimits: {memlock: -1}",
    ]
    if variables := environment(start, gpus=start.vendor == AMD):
        lines.append("    environment:")
        lines += [f"      {name}: {json.dumps(value)}" for name, value in variables.items()]
    if start.gpus and start.vendor == AMD:
        lines.append("    devices: [/dev/kfd, /dev/dri]")
    elif start.gpus:
        ids = json.dumps(gpu_names(start))
        lines += [
            "    deploy:",
            "      resources:",
            "        reservations:",
            f"          devices: [{{driver: nvidia, device_ids: {ids}, capabilities: [gpu]}}]",
        ]
    options = numactl_options(start.instance, cpus=False)
    lines.append(f"    command: {json.dumps(f'numactl {options} {start.command}')}")
    notes = ("Compose has no key for memory nodes: numactl in the image binds, for which SYS_NICE "
             "opens the calls.",)  # fmt: skip
    return Snippet("compose", "\n".join(lines), (*notes, *_policy_notes(start)))


def _yaml_name(name: str) -> str:
    return name if name.isascii() and name.replace("-", "").isalnum() else json.dumps(name)


def _kubernetes(start: Start) -> Snippet:
    one = len(start.instance.nodes or ()) == 1
    limits = [f"cpu: {len(start.instance.cpus or ())}"]
    if start.of_huge_pages:
        size = page_size_text(start.instance.page_size or 2 << 20)
        limits.append(f"hugepages-{size}i: {start.gib}Gi")
        limits.append("memory: MEMORY")
    else:
        limits.append(f"memory: {start.gib}Gi+MEMORY" if start.gib else "memory: MEMORY")
    if start.gpus:
        resource = {AMD: "amd.com/gpu", NVIDIA: "nvidia.com/gpu"}.get(start.vendor, "gpu")
        limits.append(f"{resource}: {len(start.gpus)}")
    lines = [
        "# kubelet configuration of the machine",
        *binding.kubelet_lines(one_node=one),
        'cpuManagerPolicyOptions: {full-pcpus-only: "true"}',
        "topologyManagerScope: pod",
        *([f'reservedSystemCPUs: "{to_text(start.kept)}"'] if start.kept else []),
        "# the container; requests equal to limits (Guaranteed)",
        "resources:",
        "  limits:",
        *(f"    {limit}" for limit in limits),
    ]
    notes = [
        "The kubelet chooses CPUs, node and GPUs itself: what it chose is checked afterwards with "
        "numadoctor check --expect.",
        "MEMORY is what the engine needs beside the pool; memoryManagerPolicy Static also wants "
        "reservedMemory for each node.",
    ]
    if not one:
        notes.append("Kubernetes has no interleave: the engine has to place its pool.")
    return Snippet("kubernetes", "\n".join(lines), tuple(notes))


def _slurm(start: Start) -> Snippet:
    words = ["srun --nodes=1 --ntasks=1 --exclusive"]
    if start.gpus:
        words.append(f"--gpus-per-task={len(start.gpus)}")
    if start.gpus and all(gpu.number >= 0 for gpu in start.gpus):
        words.append(f"--gpu-bind=mask_gpu:{_mask(gpu.number for gpu in start.gpus)}")
    policy = start.instance.policy or PoolPolicy.LOCAL
    bound = (start.instance.nodes or ()) if policy is PoolPolicy.BIND else ()
    words += binding.srun_options(start.instance.cpus or (), bound)
    command, notes = start.command, list(_policy_notes(start))
    if policy not in (PoolPolicy.BIND, PoolPolicy.LOCAL):
        command = f"numactl {numactl_options(start.instance, cpus=False)} {start.command}"
        notes.append("srun binds or prefers and has no interleave: numactl sets the policy.")
    notes.append(
        "Binding needs TaskPlugin=task/affinity, and a job that has the whole machine: masks "
        "are of the CPUs, nodes and GPUs of the machine."
    )
    variables = environment(start, gpus=False)
    text = " \\\n  ".join([*words, f"{_env(variables)}{command}"])
    return Snippet("slurm", text, tuple(notes))


def _env(variables: dict[str, str]) -> str:
    return f"env {shell(variables)}" if variables else ""


def _mask(ids: Iterable[int]) -> str:
    return f"0x{sum(1 << number for number in set(ids)):x}"


LAUNCHERS: dict[str, Callable[[Start], Snippet]] = {
    "numactl": _numactl,
    "taskset": _taskset,
    "systemd": _systemd,
    "docker": _docker,
    "compose": _compose,
    "kubernetes": _kubernetes,
    "slurm": _slurm,
    "vllm": engines.vllm,
    "sglang": engines.sglang,
    "lightllm": engines.lightllm,
}


def huge_page_commands(pages: Sequence[tuple[int, int, int]]) -> Snippet:
    """Commands that give each node its pool.

    :param pages: node, page size in bytes, and pages in all that the pool is to have
    """
    lines = [
        f"echo {total} > /sys/devices/system/node/node{node}/hugepages/"
        f"{page_size_folder(size)}/nr_hugepages"
        for node, size, total in pages
    ]
    return Snippet(
        "sysfs",
        "\n".join(lines),
        ("As root, before memory is fragmented; 1 GiB pages best at boot "
         "(hugepages=NODE:COUNT,NODE:COUNT, Linux 5.16).",),
    )  # fmt: skip
