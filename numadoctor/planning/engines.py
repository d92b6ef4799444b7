"""How to start an instance as planned by the options and variables of engines."""

from numadoctor.kernel.nodemask import to_text
from numadoctor.model.plan import PoolPolicy, Snippet
from numadoctor.planning.starting import Start, environment, numactl_options, shell


def _by_gpu(start: Start) -> tuple[int, ...] | None:
    """The node for each GPU, or None where one is unknown."""
    nodes = tuple(node for node in start.nodes_by_gpu if node is not None)
    return nodes if nodes and len(nodes) == len(start.nodes_by_gpu) else None


def vllm(start: Start) -> Snippet:
    """vLLM: workers bound by GPU, and its offloaded KV cache; without GPUs its CPU backend."""
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
            "Each worker is bound to the node of its GPU, and its part of the pool with it; "
            "numactl has to be installed for that."
        )
    else:
        notes.append("The node of a GPU is unknown, so --numa-bind is left out.")
    if start.gib:
        words.append(f"--kv-offloading-size {start.gib} --kv-offloading-backend native")
    text = shell(environment(start)) + " \\\n  ".join(words)
    return Snippet("vllm", text, tuple(notes))


def _vllm_cpu(start: Start) -> Snippet:
    variables = {"VLLM_CPU_OMP_THREADS_BIND": start.cpus}
    if start.gib:
        variables["VLLM_CPU_KVCACHE_SPACE"] = str(start.gib)
    text = (
        f"{shell(variables)}numactl {numactl_options(start.instance, cpus=False)} vllm serve MODEL"
    )
    return Snippet("vllm", text, ("For the CPU backend, the plan having no GPU.",))


def sglang(start: Start) -> Snippet:
    """SGLang: workers bound by GPU, and its hierarchical cache."""
    words = ["python3 -m sglang.launch_server --model-path MODEL"]
    notes = []
    if start.gpus:
        words.append(f"--tp-size {len(start.gpus)}")
    if nodes := _by_gpu(start):
        words.append(f"--numa-node {' '.join(map(str, nodes))}")
        notes.append("Binds each worker to the node of its GPU; numactl has to be installed.")
    elif start.gpus:
        notes.append("The node of a GPU is unknown, so --numa-node is left out.")
    if start.gib and start.gpus:
        # --hicache-size counts 10**9 bytes, and for each rank.
        each = (start.instance.pool_size or 0) // len(start.gpus) // 10**9
        words.append(f"--enable-hierarchical-cache --hicache-size {each}")
        notes.append("--hicache-size is for each of the ranks, in 10^9 bytes.")
    return Snippet("sglang", shell(environment(start)) + " \\\n  ".join(words), tuple(notes))


def lightllm(start: Start) -> Snippet:
    """LightLLM: its CPU cache, which it interleaves itself."""
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
    return Snippet("lightllm", shell(variables) + " \\\n  ".join(words), tuple(notes))
