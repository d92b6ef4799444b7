"""How to start an instance as planned, for each launcher and engine.

Where the words of each are documented stands in docs/plan.md, with the versions
in which they were looked up.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from numadoctor.kernel.nodemask import to_text
from numadoctor.model.plan import Instance, PlannedGpu, PoolBacking, PoolPolicy, Snippet

_NVIDIA, _AMD = "NVIDIA", "AMD"

_MOVES_EVERYTHING = (
    "The policy is for all memory of the process, not for the pool alone: where the engine can "
    "place its pool itself, leave the policy out and use the engine's own setting."
)
_FIRST_TOUCH = (
    "Sets CPUs alone: memory follows whoever touches it first, and goes elsewhere when the node "
    "is full."
)


class Start(NamedTuple):
    """An instance to be started.

    :ivar vendor: of its GPUs: NVIDIA, AMD, or another name
    :ivar nics: their RDMA names, or those of their interfaces
    :ivar rdma: whether ``nics`` are RDMA names
    :ivar cpus_by_gpu: for each GPU, in order, its part of the CPUs
    :ivar nodes_by_gpu: for each GPU, in order, the memory node near to it, or None
    :ivar kept: CPUs that are left out, on all nodes
    :ivar command: what to start, as one line of shell
    """

    instance: Instance
    gpus: tuple[PlannedGpu, ...]
    vendor: str
    nics: tuple[str, ...]
    rdma: bool
    cpus_by_gpu: tuple[tuple[int, ...], ...]
    nodes_by_gpu: tuple[int | None, ...]
    kept: tuple[int, ...]
    command: str

    @property
    def cpus(self) -> str:
        return to_text(self.instance.cpus or ())

    @property
    def nodes(self) -> str:
        return to_text(self.instance.nodes or ())

    @property
    def gib(self) -> int:
        """The pool in whole GiB, rounded up."""
        return -(-(self.instance.pool_size or 0) // (1 << 30))

    @property
    def of_huge_pages(self) -> bool:
        return self.instance.backing is PoolBacking.HUGETLB


def snippets(start: Start, launchers: Iterable[str]) -> tuple[Snippet, ...]:
    """How to start it with each of ``launchers`` (names of LAUNCHERS)."""
    return tuple(LAUNCHERS[name](start) for name in launchers)


def environment(start: Start, *, gpus: bool = True) -> dict[str, str]:
    """The variables that give it its GPUs and NICs.

    :param gpus: the launcher does not hide the other GPUs itself
    """
    variables = {}
    if start.gpus and gpus:
        names = ",".join(gpu_names(start))
        if start.vendor == _AMD:
            variables["HIP_VISIBLE_DEVICES"] = names
        elif start.vendor == _NVIDIA:
            # Without it CUDA puts the fastest first: the indices are those of the bus.
            variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            variables["CUDA_VISIBLE_DEVICES"] = names
    if start.nics and start.rdma:
        # The sign of equality asks for these names: without it mlx5_1 is mlx5_10 too.
        variables["NCCL_IB_HCA"] = "=" + ",".join(start.nics)
    return variables


def gpu_names(start: Start) -> tuple[str, ...]:
    """Its GPUs as drivers and runtimes number them; by UUID where several models are mixed."""
    if all(gpu.number >= 0 for gpu in start.gpus):
        return tuple(str(gpu.number) for gpu in start.gpus)
    return tuple(gpu.uuid or f"(index of {gpu.address})" for gpu in start.gpus)


def _shell(variables: dict[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())


def numactl_options(instance: Instance, *, cpus: bool = True) -> str:
    """The options of numactl for the CPUs and the policy; empty where there is nothing to set."""
    policy, nodes = instance.policy, to_text(instance.nodes or ())
    # --preferred takes one node; several are a policy of their own (Linux 5.15).
    preferred = "--preferred-many" if len(instance.nodes or ()) > 1 else "--preferred"
    option = {
        PoolPolicy.BIND: "--membind",
        PoolPolicy.INTERLEAVE: "--interleave",
        PoolPolicy.WEIGHTED: "--weighted-interleave",
        PoolPolicy.PREFERRED: preferred,
    }.get(policy or PoolPolicy.LOCAL)
    words = [f"--physcpubind={to_text(instance.cpus)}"] if cpus and instance.cpus else []
    if option and nodes:
        words.append(f"{option}={nodes}")
    elif policy is PoolPolicy.LOCAL:
        words.append("--localalloc")
    return " ".join(words)


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
    text = f"{_shell(environment(start))}numactl {numactl_options(start.instance)} {start.command}"
    return Snippet("numactl", text, tuple(notes))


def _taskset(start: Start) -> Snippet:
    text = f"{_shell(environment(start))}taskset -c {start.cpus} {start.command}"
    return Snippet("taskset", text, (_FIRST_TOUCH,))


_SYSTEMD_POLICIES = {
    PoolPolicy.LOCAL: "local",
    PoolPolicy.PREFERRED: "preferred",
    PoolPolicy.BIND: "bind",
    PoolPolicy.INTERLEAVE: "interleave",
}


def _systemd(start: Start) -> Snippet:
    policy = start.instance.policy or PoolPolicy.LOCAL
    notes = list(_policy_notes(start))
    several = len(start.instance.nodes or ()) > 1
    lines = ["[Service]"]
    lines += [f'Environment="{name}={value}"' for name, value in environment(start).items()]
    lines.append(f"CPUAffinity={start.cpus.replace(',', ' ')}")
    command = start.command
    if policy not in _SYSTEMD_POLICIES or (policy is PoolPolicy.PREFERRED and several):
        notes.append("systemd has no word for this policy: numactl sets it.")
        command = f"/usr/bin/numactl {numactl_options(start.instance, cpus=False)} {start.command}"
    else:
        lines.append(f"NUMAPolicy={_SYSTEMD_POLICIES[policy]}")
        if policy is not PoolPolicy.LOCAL:
            lines.append(f"NUMAMask={start.nodes}")
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
    if start.gpus and start.vendor == _AMD:
        words.append("--device /dev/kfd --device /dev/dri")
    elif start.gpus:
        words.append(f"--gpus '\"device={names}\"'")
        notes.append("Inside, the GPUs are numbered from 0.")
    words.append(f"--cpuset-cpus {start.cpus}")
    if not _spills(start):
        words.append(f"--cpuset-mems {start.nodes}")
    if _needs_calls(start):
        words.append("--cap-add SYS_NICE")
        notes.append(
            "SYS_NICE lets Docker's profile pass set_mempolicy and mbind; `numadoctor syscalls "
            "--emit-profile` does without it. The image needs numactl."
        )
    words += [f"--shm-size {_shm_size(start)}", "--ulimit memlock=-1"]
    if start.of_huge_pages:
        words.append("-v /dev/hugepages:/dev/hugepages")
    hidden = start.vendor != _AMD
    words += [f"-e {name}={shlex.quote(value)}"
              for name, value in environment(start, gpus=not hidden).items()]  # fmt: skip
    text = " \\\n  ".join([*words, f"IMAGE {_inside(start)}"])
    return Snippet("docker", text, (*notes, *_policy_notes(start)))


def _compose(start: Start) -> Snippet:
    lines = [
        "services:",
        f"  {_yaml_name(start.instance.name)}:",
        "    image: IMAGE",
        f'    cpuset: "{start.cpus}"',
        "    cap_add: [SYS_NICE]",
        f"    shm_size: {_shm_size(start)}b",
        "    ulimits: {memlock: -1}",
    ]
    if variables := environment(start, gpus=start.vendor == _AMD):
        lines.append("    environment:")
        lines += [f"      {name}: {json.dumps(value)}" for name, value in variables.items()]
    if start.gpus and start.vendor == _AMD:
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
        limits.append(f"hugepages-{_kubernetes_size(start.instance.page_size)}: {start.gib}Gi")
        limits.append("memory: MEMORY")
    else:
        limits.append(f"memory: {start.gib}Gi+MEMORY" if start.gib else "memory: MEMORY")
    if start.gpus:
        resource = {_AMD: "amd.com/gpu", _NVIDIA: "nvidia.com/gpu"}.get(start.vendor, "gpu")
        limits.append(f"{resource}: {len(start.gpus)}")
    policy = "single-numa-node" if one else "restricted"
    lines = [
        "# kubelet configuration of the machine",
        "cpuManagerPolicy: static",
        'cpuManagerPolicyOptions: {full-pcpus-only: "true"}',
        f"topologyManagerPolicy: {policy}",
        "topologyManagerScope: pod",
        "memoryManagerPolicy: Static",
        f'reservedSystemCPUs: "{to_text(start.kept)}"',
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


def _kubernetes_size(size: int | None) -> str:
    return "1Gi" if size == 1 << 30 else f"{(size or 2 << 20) >> 20}Mi"


def _slurm(start: Start) -> Snippet:
    words = ["srun --nodes=1 --ntasks=1 --exclusive"]
    if start.gpus:
        words.append(f"--gpus-per-task={len(start.gpus)}")
    if start.gpus and all(gpu.number >= 0 for gpu in start.gpus):
        words.append(f"--gpu-bind=mask_gpu:{_mask(gpu.number for gpu in start.gpus)}")
    words.append(f"--cpu-bind=mask_cpu:{_mask(start.instance.cpus or ())}")
    policy = start.instance.policy or PoolPolicy.LOCAL
    command, notes = start.command, list(_policy_notes(start))
    if policy is PoolPolicy.BIND:
        words.append(f"--mem-bind=mask_mem:{_mask(start.instance.nodes or ())}")
    elif policy is not PoolPolicy.LOCAL:
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
    return f"env {_shell(variables)}" if variables else ""


def _mask(ids: Iterable[int]) -> str:
    return f"0x{sum(1 << number for number in set(ids)):x}"


def _by_gpu(start: Start) -> tuple[int, ...] | None:
    """The node for each GPU, or None where one is unknown."""
    nodes = tuple(node for node in start.nodes_by_gpu if node is not None)
    return nodes if nodes and len(nodes) == len(start.nodes_by_gpu) else None


def _vllm(start: Start) -> Snippet:
    if not start.gpus:
        return _vllm_cpu(start)
    words = ["vllm serve MODEL", f"--tensor-parallel-size {len(start.gpus)}"]
    notes = []
    if nodes := _by_gpu(start):
        words += [
            f"--numa-bind --numa-bind-nodes {' '.join(map(str, nodes))}",
            f"--numa-bind-cpus {' '.join(to_text(cpus) for cpus in start.cpus_by_gpu)}",
        ]
        notes.append(
            "Each worker is bound to the node of its GPU, and its part of the pool with it."
        )
    else:
        notes.append("The node of a GPU is unknown, so --numa-bind is left out.")
    if start.gib:
        words.append(f"--kv-offloading-size {start.gib} --kv-offloading-backend native")
    text = _shell(environment(start)) + " \\\n  ".join(words)
    return Snippet("vllm", text, tuple(notes))


def _vllm_cpu(start: Start) -> Snippet:
    variables = {"VLLM_CPU_OMP_THREADS_BIND": start.cpus}
    if start.gib:
        variables["VLLM_CPU_KVCACHE_SPACE"] = str(start.gib)
    text = (
        f"{_shell(variables)}numactl {numactl_options(start.instance, cpus=False)} vllm serve MODEL"
    )
    return Snippet("vllm", text, ("For the CPU backend, the plan having no GPU.",))


def _sglang(start: Start) -> Snippet:
    words = ["python3 -m sglang.launch_server --model-path MODEL"]
    notes = []
    if start.gpus:
        words.append(f"--tp-size {len(start.gpus)}")
    if nodes := _by_gpu(start):
        words.append(f"--numa-node {' '.join(map(str, nodes))}")
    elif start.gpus:
        notes.append("The node of a GPU is unknown, so --numa-node is left out.")
    if start.gib and start.gpus:
        # --hicache-size counts 10**9 bytes, and for each rank.
        each = (start.instance.pool_size or 0) // len(start.gpus) // 10**9
        words.append(f"--enable-hierarchical-cache --hicache-size {each}")
        notes.append("--hicache-size is for each of the ranks, in 10^9 bytes.")
    return Snippet("sglang", _shell(environment(start)) + " \\\n  ".join(words), tuple(notes))


def _lightllm(start: Start) -> Snippet:
    variables = environment(start)
    notes = []
    spread = start.instance.policy is PoolPolicy.INTERLEAVE and len(start.instance.nodes or ()) > 1
    if spread:
        variables["LIGHTLLM_ENABLE_NUMA_INTERLEAVE"] = "1"
        notes.append("It interleaves its pool alone, over all nodes it may use: numactl sets CPUs.")
    if start.of_huge_pages:
        variables["LIGHTLLM_HUGE_PAGE_ENABLE"] = "1"
    options = f"--physcpubind={start.cpus}" if spread else numactl_options(start.instance)
    words = [f"numactl {options} python3 -m lightllm.server.api_server --model_dir MODEL"]
    if start.gpus:
        words.append(f"--tp {len(start.gpus)}")
    if start.gib:
        words.append(f"--enable_cpu_cache --cpu_cache_storage_size {start.gib}")
    return Snippet("lightllm", _shell(variables) + " \\\n  ".join(words), tuple(notes))


LAUNCHERS: dict[str, Callable[[Start], Snippet]] = {
    "numactl": _numactl,
    "taskset": _taskset,
    "systemd": _systemd,
    "docker": _docker,
    "compose": _compose,
    "kubernetes": _kubernetes,
    "slurm": _slurm,
    "vllm": _vllm,
    "sglang": _sglang,
    "lightllm": _lightllm,
}


def huge_page_commands(pages: Sequence[tuple[int, int, int]]) -> Snippet:
    """Commands that give each node its pool.

    :param pages: node, page size in bytes, and pages in all that the pool is to have
    """
    lines = [
        f"echo {total} > /sys/devices/system/node/node{node}/hugepages/"
        f"hugepages-{size >> 10}kB/nr_hugepages"
        for node, size, total in pages
    ]
    return Snippet(
        "sysfs",
        "\n".join(lines),
        ("As root, before memory is fragmented; 1 GiB pages best at boot "
         "(hugepages=NODE:COUNT,NODE:COUNT, Linux 5.16).",),
    )  # fmt: skip
