"""How launchers put a process on given CPUs and memory nodes: their words, each written once.

Checked against numactl(8), docker-run(1), the Compose specification, systemd.exec(5),
systemd.resource-control(5), srun(1) and the reference of KubeletConfiguration.
"""

from collections.abc import Collection, Iterable
from typing import TypeAlias

from numadoctor.model.finding import Fix
from numadoctor.model.units import id_list

Ids: TypeAlias = Iterable[int] | str
"""CPUs or nodes; a text stands for itself (``NODES``)."""

_MEMORY_OPTIONS = {
    "bind": "--membind",
    "interleave": "--interleave",
    "weighted-interleave": "--weighted-interleave",
    "preferred": "--preferred",
    "preferred-many": "--preferred-many",
}


def numactl_options(
    cpus: Ids = (), nodes: Ids = (), policy: str = "bind", *, cpu_nodes: Ids = ()
) -> str:
    """Options of numactl.

    :param policy: a mode of set_mempolicy as numactl calls it, or ``local``
    :param cpu_nodes: the nodes whose CPUs all of ``cpus`` are, which is shorter to write
    """
    words = []
    if on := _text(cpu_nodes):
        words.append(f"--cpunodebind={on}")
    elif on := _text(cpus):
        words.append(f"--physcpubind={on}")
    if policy == "local":
        words.append("--localalloc")
    elif to := _text(nodes):
        words.append(f"{_MEMORY_OPTIONS[policy]}={to}")
    return " ".join(words)


def docker_options(cpus: Ids = (), nodes: Ids = ()) -> list[str]:
    """Options of ``docker run`` and ``podman run``: the container's cpuset."""
    named = (("--cpuset-cpus", _text(cpus)), ("--cpuset-mems", _text(nodes)))
    return [f"{name} {text}" for name, text in named if text]


def compose_line(cpus: Ids) -> str:
    """The key of a Compose service."""
    return f'cpuset: "{_text(cpus)}"'


def compose_update(nodes: Ids) -> str:
    """What gives a container of Compose its nodes."""
    return (
        f"docker update --cpuset-mems {_text(nodes)} CONTAINER\n"
        "# after create, before start: Compose has a key for CPUs and none for nodes"
    )


def unit_lines(cpus: Ids = (), nodes: Ids = (), policy: str = "bind") -> list[str]:
    """Lines of a unit's section [Service]; ``policy`` is bind, preferred, interleave or local."""
    lines = [f"CPUAffinity={text}"] if (text := _text(cpus)) else []
    if policy == "local":
        lines.append("NUMAPolicy=local")
    elif text := _text(nodes):
        lines += [f"NUMAPolicy={policy}", f"NUMAMask={text}"]
    return lines


def kubelet_lines(*, one_node: bool) -> list[str]:
    """The kubelet's settings under which pods get CPUs, memory and devices of the same nodes."""
    return [
        "cpuManagerPolicy: static",
        f"topologyManagerPolicy: {'single-numa-node' if one_node else 'restricted'}",
        "memoryManagerPolicy: Static",
    ]


def srun_options(cpus: Iterable[int] = (), nodes: Iterable[int] = ()) -> list[str]:
    """Options of srun for jobs that have the whole machine: its masks are of the machine."""
    named = (("--cpu-bind=mask_cpu", _mask(cpus)), ("--mem-bind=mask_mem", _mask(nodes)))
    return [f"{name}:{mask:#x}" for name, mask in named if mask]


def bind(
    cpus: Iterable[int] = (),
    nodes: Iterable[int] = (),
    policy: str = "bind",
    *,
    cpu_nodes: Iterable[int] = (),
    by: Collection[str] = (),
) -> tuple[Fix, ...]:
    """Start the process on these CPUs, with memory of these nodes, or both.

    :param policy: bind or interleave
    :param cpu_nodes: the nodes whose CPUs all of ``cpus`` are
    :param by: these launchers alone
    """
    cpus, nodes, cpu_nodes = tuple(cpus), tuple(nodes), tuple(cpu_nodes)
    options = numactl_options(cpus, nodes, policy, cpu_nodes=cpu_nodes)
    fixes = [Fix("numactl", f"numactl {options} COMMAND", needs_restart=True)]
    fixes += _of_containers(cpus, nodes)
    if policy == "bind":
        kubelet = "\n".join(kubelet_lines(one_node=len(nodes or cpu_nodes) < 2))
        fixes.append(
            _for_good(
                "kubernetes",
                f"# in the kubelet's configuration; pods Guaranteed, with whole CPUs:\n{kubelet}",
            )
        )
        words = " ".join(srun_options(cpus, nodes))
        # srun(1): masks of CPUs are for jobs to which the whole machine is allocated.
        whole = "--exclusive " if cpus else ""
        fixes.append(Fix("slurm", f"srun {whole}{words} COMMAND", needs_restart=True))
    unit = "\n".join(["[Service]", *unit_lines(cpus, nodes, policy)])
    fixes.append(_for_good("systemd", unit))
    return tuple(fix for fix in fixes if not by or fix.launcher in by)


def cpuset(cpus: Ids = (), nodes: Ids = ()) -> tuple[Fix, ...]:
    """Set the cpuset, which no process can leave: to widen one, or to make one."""
    named = (("AllowedCPUs", _text(cpus)), ("AllowedMemoryNodes", _text(nodes)))
    settings = " ".join(f"{name}={text}" for name, text in named if text)
    return (
        *_of_containers(cpus, nodes),
        Fix("systemd", f"systemctl set-property UNIT {settings}", needs_root=True, persists=True),
    )


def _of_containers(cpus: Ids, nodes: Ids) -> list[Fix]:
    options = " ".join(docker_options(cpus, nodes))
    fixes = [Fix(launcher, options, needs_restart=True) for launcher in ("docker", "podman")]
    if _text(cpus):
        fixes.append(Fix("compose", compose_line(cpus), needs_restart=True, persists=True))
    if _text(nodes):
        fixes.append(Fix("compose", compose_update(nodes), needs_restart=True))
    return fixes


def _for_good(launcher: str, text: str) -> Fix:
    return Fix(launcher, text, needs_root=True, needs_restart=True, persists=True)


def _text(ids: Ids) -> str:
    return ids if isinstance(ids, str) else id_list(ids)


def _mask(ids: Iterable[int]) -> int:
    return sum(1 << number for number in set(ids))
