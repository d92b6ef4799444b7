"""An instance that is to be started, and what all launchers say of it in the same words."""

import shlex
from typing import NamedTuple

from numadoctor.kernel.nodemask import to_text
from numadoctor.model import binding
from numadoctor.model.plan import Instance, PlannedGpu, PoolBacking

NVIDIA, AMD = "NVIDIA", "AMD"


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


def environment(start: Start, *, gpus: bool = True) -> dict[str, str]:
    """The variables that give it its GPUs and NICs.

    :param gpus: the launcher does not hide the other GPUs itself
    """
    variables = {}
    if start.gpus and gpus:
        names = ",".join(gpu_names(start))
        if start.vendor == AMD:
            variables["HIP_VISIBLE_DEVICES"] = names
        elif start.vendor == NVIDIA:
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


def shell(variables: dict[str, str]) -> str:
    """The variables as a shell sets them for one command."""
    return "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())


def numactl_options(instance: Instance, *, cpus: bool = True) -> str:
    """The options of numactl for the CPUs and the policy; empty where there is nothing to set."""
    on, nodes = (instance.cpus or ()) if cpus else (), instance.nodes or ()
    if instance.policy is None:
        return binding.numactl_options(on)
    policy = instance.policy.value
    # --preferred takes one node; several are a policy of their own (Linux 5.15).
    if policy == "preferred" and len(nodes) > 1:
        policy = "preferred-many"
    return binding.numactl_options(on, nodes, policy)
