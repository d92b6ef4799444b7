"""Pasted outputs as the programs print them, from values that nobody's machine has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges
  NV#  = Connection traversing a bonded set of # NVLinks
"""


@dataclass
class Smi:
    """A machine, and how ``nvidia-smi topo -m`` prints it.

    :ivar cpus: list of CPUs of each GPU; "" for an empty cell
    :ivar relations: of each pair (i, j), i < j, of devices by their numbers
    """

    gpus: int
    nics: Sequence[str]
    cpus: Sequence[str]
    nodes: Sequence[str]
    relations: dict[tuple[int, int], str]
    labels: int = 3
    named: bool = False
    rows: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        gpus = [f"GPU{number}" for number in range(self.gpus)]
        return [*gpus, *(nic if self.named else f"NIC{n}" for n, nic in enumerate(self.nics))]

    def relation(self, one: int, other: int) -> str:
        return self.relations.get((min(one, other), max(one, other)), "SYS")

    def lines(self) -> list[str]:
        labels = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"][: self.labels]
        names = self.names
        lines = ["\t" + "\t".join([*names, *labels])]
        for one, name in enumerate(names):
            cells = [" X " if o == one else self.relation(one, o) for o in range(len(names))]
            # As the driver prints it: one more tab after the NUMA affinity.
            tail = ["", "", "", ""]
            if one < self.gpus:
                tail = [self.cpus[one], self.nodes[one], "", "N/A"]
            tail = tail[: {1: 1, 2: 2, 3: 4}[self.labels]]
            lines.append("\t".join([name, *cells, *tail]))
        return lines

    def text(self) -> str:
        text = "\n".join(self.lines()) + "\n" + LEGEND
        if self.nics and not self.named:
            names = "".join(f"  NIC{n}: {nic}\n" for n, nic in enumerate(self.nics))
            text += f"\nNIC Legend:\n\n{names}"
        return text

    def truth(self) -> dict[tuple[str, str], str]:
        names = self.names
        return {
            (names[i], names[j]): self.relation(i, j)
            for i in range(len(names))
            for j in range(len(names))
            if i != j
        }


EIGHT = Smi(
    gpus=4,
    nics=("mlx5_0", "mlx5_4"),
    cpus=("0-13,28-41", "0-13,28-41", "14-27,42-55", ""),
    nodes=("0", "0", "1", "1"),
    relations={
        (0, 1): "NV12", (2, 3): "NV12", (0, 4): "PIX", (1, 4): "NODE", (2, 5): "PXB", (3, 5): "PHB",
    },
)  # fmt: skip


def numactl(
    cpus: Mapping[int, Sequence[int]],
    sizes: Mapping[int, int],
    distances: Mapping[int, Sequence[int]],
    *,
    compress: bool = False,
) -> str:
    """``numactl -H`` of these nodes; sizes in MiB."""
    nodes = list(cpus)
    lines = [f"available: {len(nodes)} nodes ({_ranges(nodes)})"]
    for node in nodes:
        listed = " ".join(map(str, cpus[node]))
        if compress and cpus[node]:
            listed = f"{_ranges(cpus[node]).replace(',', ', ')} ({len(cpus[node])})"
        lines.append(f"node {node} cpus: {listed}")
        lines.append(f"node {node} size: {sizes[node]} MB")
        lines.append(f"node {node} free: {sizes[node] // 2} MB")
    lines.append("node distances:")
    lines.append("node " + "".join(f"{node: 4d} " for node in nodes))
    lines += [f"{n:>3}: " + "".join(f"{d: 4d} " for d in distances[n]) for n in nodes]
    return "\n".join(lines) + "\n"


def _ranges(ids: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in ids:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in runs)


def lscpu(cpus: dict[int, str], *, indent: str = "") -> str:
    """``lscpu`` of these nodes, the lines about NUMA and some others."""
    lines = [
        "Architecture:            x86_64",
        f"{indent}On-line CPU(s) list:   0-55",
        "Model name:              Some CPU: of a vendor",
        f"{indent}NUMA node(s):          {len(cpus)}",
        *(f"{indent}NUMA node{node} CPU(s):     {listed}" for node, listed in cpus.items()),
        "Vulnerabilities:         none",
    ]
    return "\n".join(lines) + "\n"


def rocm(nodes: Sequence[int], links: Sequence[str]) -> str:
    """``rocm-smi --showtopo``; ``links`` of neighbours in a row, all others are PCIE."""
    names = [f"GPU{n}" for n in range(len(nodes))]
    near = {frozenset(pair): link for pair, link in zip(pairwise(names), links, strict=True)}

    def table(title: str, own: str, cell: dict[str, str]) -> list[str]:
        rows = [
            f"{one:<7}"
            + "".join(
                f"{own if one == o else cell[near.get(frozenset((one, o)), 'PCIE')]:<13}"
                for o in names
            )
            for one in names
        ]
        return [f"{title:=^80}", " " * 7 + "".join(f"{n:<13}" for n in names), *rows, ""]

    lines = [
        f"{' ROCm System Management Interface ':=^80}",
        *table(" Weight between two GPUs ", "0", {"XGMI": "15", "PCIE": "72"}),
        *table(" Hops between two GPUs ", "0", {"XGMI": "1", "PCIE": "3"}),
        *table(" Link Type between two GPUs ", "0", {"XGMI": "XGMI", "PCIE": "PCIE"}),
        f"{' Numa Nodes ':=^80}",
    ]
    for number, node in enumerate(nodes):
        lines.append(f"GPU[{number}]\t\t: (Topology) Numa Node: {node}")
        lines.append(f"GPU[{number}]\t\t: (Topology) Numa Affinity: {node}")
    return "\n".join([*lines, f"{' End of ROCm SMI Log ':=^80}"]) + "\n"


HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" nodeset="0x00000101" \
allowed_cpuset="0x0000000f" allowed_nodeset="0x00000101">
    <object type="Package" os_index="0" cpuset="0x00000003" nodeset="0x00000001">
      <object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x1" local_memory="4096"/>
      <object type="PU" os_index="0" cpuset="0x1"/>
      <object type="PU" os_index="1" cpuset="0x2"/>
      <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[10-1f]">
        <object type="Bridge" bridge_type="1-1" pci_busid="0000:10:01.0" pci_type="0604 [1:2] 0">
          <object type="PCIDev" pci_busid="0000:18:00.0" pci_type="0302 [10de:2330] [1:1] a1"/>
          <object type="PCIDev" pci_busid="0000:19:00.0" pci_type="0207 [15b3:1021] [1:1] 00">
            <object type="OSDev" name="mlx5_0" osdev_type="3"/>
          </object>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" nodeset="0x00000100">
      <object type="NUMANode" os_index="8" cpuset="0x0000000c" nodeset="0x100" local_memory="8192"/>
      <object type="PU" os_index="2" cpuset="0x4"/>
      <object type="PU" os_index="3" cpuset="0x8"/>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 8 </indexes>
    <u64values length="12">10 40 41 10 </u64values>
  </distances2>
</topology>
"""

NCCL = """<system version="1">
  <cpu numaid="0" affinity="00000000,000003ff" arch="x86_64">
    <pci busid="0000:17:00.0" class="0x060400" link_speed="32 GT/s" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" link_speed="32 GT/s" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"/>
      </pci>
      <pci busid="0000:19:00.0" class="0x020700" link_speed="32 GT/s" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="-1" affinity="">
    <pci busid="0000:98:00.0" class="0x030200"/>
  </cpu>
</system>
"""
