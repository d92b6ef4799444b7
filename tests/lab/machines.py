"""The machines of the lab as data, and the QEMU command line of each.

``MACHINES`` is the table to add to; docs/lab.md says how.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
LOCAL, REMOTE = 10, 21
"""Distances of a node to itself, and to another one unless the machine says otherwise."""


@dataclass(frozen=True)
class Platform:
    """What machines of one architecture have in common.

    :ivar root: architecture of the root file system, that is, of every process
    :ivar kernels: by version, the architecture and the name (a regular expression) of the package,
        or of the source package (``linux-source-6.1``) of a kernel that the lab compiles
    :ivar qemu: the program and its options
    :ivar console: what the kernel calls the serial line
    """

    root: str
    kernels: Mapping[str, tuple[str, str]]
    qemu: tuple[str, ...]
    console: str


@dataclass(frozen=True)
class Node:
    """One node of a machine.

    :ivar cpus: how many
    :ivar memory: MiB, or 0 for a node without memory
    :ivar initiator: the node whose CPUs reach this memory best, for a node without CPUs in a
        machine with an HMAT
    """

    cpus: int
    memory: int
    initiator: int | None = None


@dataclass(frozen=True)
class Machine:
    """A machine that QEMU emulates.

    :ivar name: platform, what is special, kernel version
    :ivar nodes: by id, those with CPUs first: x86 firmware tables list CPUs before memory, and
        the kernel numbers nodes as it meets them. The kernel has no NUMA where there is none
    :ivar distances: those that are not LOCAL or REMOTE, by source and destination
    :ivar hmat: latency (ns) and bandwidth (MiB/s) by initiator and target; makes an HMAT
    :ivar options: further ones for QEMU, devices for instance
    :ivar modules: of the kernel, which a function of the guest can load from /modules
    :ivar parameters: further ones for the kernel
    :ivar slow: run by `make lab-full` only
    """

    name: str
    platform: Platform
    kernel: str
    nodes: tuple[Node, ...] = ()
    distances: Mapping[tuple[int, int], int] = field(default_factory=dict)
    hmat: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    slow: bool = False

    def distance(self, source: int, destination: int) -> int:
        """What the machine's firmware tells the kernel."""
        default = LOCAL if source == destination else REMOTE
        return self.distances.get((source, destination), default)

    def cpus(self, node: int) -> list[int]:
        """The CPUs of a node; they are numbered from node to node."""
        first = sum(other.cpus for other in self.nodes[:node])
        return list(range(first, first + self.nodes[node].cpus))


def command(machine: Machine, kernel: Path, initrd: Path, accelerator: str = "tcg") -> list[str]:
    """The QEMU command line; the serial line is on standard input and output."""
    platform = machine.platform
    parameters = f"console={platform.console} loglevel=1 panic=-1"  # -1: reboot, that is, exit
    line = [*platform.qemu, "-accel", accelerator, "-nographic", "-nodefaults", "-no-reboot"]
    line += _serial(platform)
    line += ["-kernel", str(kernel), "-initrd", str(initrd)]
    line += ["-append", " ".join((parameters, *machine.parameters))]
    # QEMU gives s390 no nodes: a kernel with NUMA finds one, which has all CPUs and memory.
    numa = machine.nodes and platform.root != "s390x"
    line += _numa(machine) if numa else ["-smp", "2", "-m", "1024"]
    return [*line, *machine.options]


def _serial(platform: Platform) -> list[str]:
    if platform.root == "s390x":  # has no serial port but a console of its own
        return ["-chardev", "stdio,id=console", "-device", "sclpconsole,chardev=console"]
    return ["-serial", "stdio"]


def _processors(per_node: list[int]) -> str:
    count = str(sum(per_node))
    # A socket for each node, as in most real machines; QEMU has no sockets of different sizes.
    return f"{count},sockets={len(per_node)}" if len(set(per_node)) == 1 else count


def _numa(machine: Machine) -> list[str]:
    nodes = machine.nodes
    line = ["-smp", _processors([node.cpus for node in nodes if node.cpus])]
    line += ["-m", str(sum(node.memory for node in nodes))]
    if machine.hmat:
        line += ["-machine", "hmat=on"]
    for number, node in enumerate(nodes):
        described = f"node,nodeid={number}"
        if node.memory:
            size = f"size={node.memory}M"
            line += ["-object", f"memory-backend-ram,id=memory{number},{size}"]
            described += f",memdev=memory{number}"
        if cpus := machine.cpus(number):
            described += f",cpus={cpus[0]}-{cpus[-1]}"
        if node.initiator is not None:
            described += f",initiator={node.initiator}"
        line += ["-numa", described]
    for source in range(len(nodes)):
        for destination in range(len(nodes)):
            value = machine.distance(source, destination)
            line += ["-numa", f"dist,src={source},dst={destination},val={value}"]
    for (initiator, target), (latency, bandwidth) in machine.hmat.items():
        pair = f"hmat-lb,initiator={initiator},target={target},hierarchy=memory"
        line += ["-numa", f"{pair},data-type=access-latency,latency={latency}"]
        line += ["-numa", f"{pair},data-type=access-bandwidth,bandwidth={bandwidth}M"]
    return line


def _debian(architecture: str, flavour: str) -> dict[str, tuple[str, str]]:
    return {
        "6.1": (architecture, rf"linux-image-6\.1\.0-\d+-{flavour}"),
        "6.12": (architecture, rf"linux-image-6\.12\.[^-]+-{flavour}"),
    }


_Q35 = ("qemu-system-x86_64", "-machine", "q35", "-cpu", "max")
X86_64 = Platform("amd64", _debian("amd64", "cloud-amd64-unsigned"), _Q35, "ttyS0")
I386 = Platform("i386", X86_64.kernels, _Q35, "ttyS0")
AARCH64 = Platform(
    "arm64",
    {
        **_debian("arm64", "cloud-arm64-unsigned"),
        "6.12-16k": ("arm64", r"linux-image-6\.12\.[^-]+-arm64-16k-unsigned"),
    },
    # Pointer authentication as the architecture defines it takes most of the time of a boot.
    ("qemu-system-aarch64", "-machine", "virt", "-cpu", "max,pauth-impdef=on"),
    "ttyAMA0",
)
PPC64LE = Platform(
    "ppc64el",
    _debian("ppc64el", "powerpc64le"),
    ("qemu-system-ppc64", "-machine", "pseries", "-cpu", "power9"),
    "hvc0",
)
PPC64 = Platform("ppc64", {"6.1": ("ppc64", "linux-source-6.1")}, PPC64LE.qemu, PPC64LE.console)
S390X = Platform(
    "s390x",
    {**_debian("s390x", "s390x"), "6.1-numa": ("s390x", "linux-source-6.1")},
    ("qemu-system-s390x", "-machine", "s390-ccw-virtio", "-cpu", "max"),
    "ttysclp0",
)

_TWO = (Node(2, 1024), Node(2, 1024))
_FOUR = (Node(1, 512),) * 4
# Half of them without CPUs: eight emulated CPUs on a small machine are slow.
_EIGHT = (Node(1, 512),) * 4 + (Node(0, 512),) * 4
# More nodes than bits in a word of the mask.
_FORTY = (Node(2, 1024), *(Node(0, 64),) * 39)
_EIGHTY = (Node(2, 1024), *(Node(0, 64),) * 79)


def _device(*parts: str) -> list[str]:
    return ["-device", ",".join(parts)]


def _on_node(node: int, devices: tuple[str, ...]) -> tuple[str, ...]:
    """An expander bus on a node, and below it a root port for each of the devices."""
    line = _device("pxb-pcie", f"id=bus{node}", f"bus_nr={64 + 64 * node}", f"numa_node={node}",
                   "bus=pcie.0")  # fmt: skip
    for number, device in enumerate(devices):
        port = f"port{node}{number}"
        line += _device("pcie-root-port", f"id={port}", f"bus=bus{node}",
                        f"chassis={10 * node + number + 1}")  # fmt: skip
        if device == "ati-vga":  # is no PCI Express device
            line += _device("pcie-pci-bridge", f"id={port}b", f"bus={port}")
            line += _device(device, f"bus={port}b", "addr=1", "romfile=")
        else:
            line += _device(device, f"bus={port}")
    return tuple(line)


# Devices on two nodes, and one on the root bus, of which nothing tells the node. The kernels
# have no driver for most of them, which sysfs does not need.
_DEVICES = (
    *_on_node(0, ("e1000e", "virtio-gpu-pci,romfile=")),
    *_on_node(1, ("virtio-net-pci,romfile=", "nvme,serial=1", "ati-vga")),
    *_device("e1000e", "bus=pcie.0", "addr=9"),
)

MACHINES = {
    machine.name: machine
    for machine in (
        Machine("x86_64-2n-6.12", X86_64, "6.12", _TWO),
        Machine("x86_64-4n-6.1", X86_64, "6.1", _FOUR),
        Machine("x86_64-8n-6.12", X86_64, "6.12", _EIGHT),
        Machine(
            "x86_64-tiers-6.12",
            X86_64,
            "6.12",
            (Node(1, 1024), Node(1, 1024), Node(0, 1024, initiator=0)),
            distances={(0, 2): 14, (2, 0): 14, (1, 2): 24, (2, 1): 24},
            hmat={
                (0, 0): (10, 100_000),
                (0, 1): (20, 50_000),
                (0, 2): (100, 10_000),
                (1, 0): (20, 50_000),
                (1, 1): (10, 100_000),
                (1, 2): (150, 8_000),
            },
        ),
        Machine(
            "x86_64-uneven-6.12",
            X86_64,
            "6.12",
            (Node(2, 1024), Node(1, 0), Node(0, 512)),
            distances={(0, 1): 20, (1, 0): 20},
        ),
        Machine(
            "x86_64-devices-6.12",
            X86_64,
            "6.12",
            _TWO,
            options=_DEVICES,
            modules=("failover", "net_failover", "virtio_net"),
        ),
        # Half of each node, and more than the kernel itself needs, is left for what cannot move.
        Machine("x86_64-movable-6.12", X86_64, "6.12", _TWO, parameters=("movablecore=1200M",)),
        Machine("aarch64-2n-6.12", AARCH64, "6.12", _TWO),
        Machine("ppc64le-2n-6.1", PPC64LE, "6.1", _TWO),
        Machine("s390x-none-6.1", S390X, "6.1"),
        Machine("i386-2n-6.12", I386, "6.12", _TWO),
        *(
            Machine(f"x86_64-{len(nodes)}n-{kernel}", X86_64, kernel, nodes, slow=True)
            for kernel in ("6.1", "6.12")
            for nodes in ((Node(2, 1024),), _TWO, _FOUR, _EIGHT)
            if (len(nodes), kernel) not in ((2, "6.12"), (4, "6.1"), (8, "6.12"))
        ),
        *(
            Machine(f"{name}-{len(nodes)}n-{kernel}", platform, kernel, nodes, slow=True)
            for name, platform, kernel in (
                ("aarch64", AARCH64, "6.12"),
                ("ppc64le", PPC64LE, "6.1"),
            )
            for nodes in (_FOUR, _EIGHT)
        ),
        Machine("aarch64-2n-6.1", AARCH64, "6.1", _TWO, slow=True),
        Machine("aarch64-2n-6.12-16k", AARCH64, "6.12-16k", _TWO, slow=True),
        Machine("s390x-1n-6.1-numa", S390X, "6.1-numa", (Node(2, 1024),), slow=True),
        Machine("i386-40n-6.1", I386, "6.1", _FORTY, slow=True),
        Machine("x86_64-80n-6.12", X86_64, "6.12", _EIGHTY, slow=True),
    )
}
"""Every machine by its name."""

# Big-endian, and more nodes than bits in a word. Its firmware has memory in steps of 256 MiB.
# Debian builds no Python for it, so it is none of MACHINES: test_big_endian.py makes its calls.
BIG_ENDIAN = Machine(
    "ppc64-66n-6.1", PPC64, "6.1", (Node(1, 512), Node(1, 256), *(Node(0, 256),) * 64)
)
