"""The sample hosts: what they are, and what numadoctor must say of them.

See tests/build_fixtures.py for how they become files.
"""

import errno
from dataclasses import replace

from tests.build_fixtures import Access, Device, Machine, Node, Package, status

_NVIDIA, _MELLANOX, _SAMSUNG, _ASPEED, _INTEL = 0x10DE, 0x15B3, 0x144D, 0x1A03, 0x8086

_GB = 1024


def _gpu(address: str, above: str, node: int, *, pci_class: int = 0x030200) -> Device:
    is_on = node if node >= 0 else None
    return Device(address, above, pci_class, _NVIDIA, 0x2330, node, (), "gpu", is_on)


def _nic(address: str, above: str, node: int, name: str) -> Device:
    names = (f"net/{name}", f"infiniband/mlx5_{name.removeprefix('ib')}")
    return Device(address, above, 0x020700, _MELLANOX, 0x1021, node, names, "nic", node)


def _nvme(address: str, above: str, node: int, number: int, source: str = "sysfs") -> Device:
    is_on = node if node >= 0 else 0
    return Device(
        address, above, 0x010802, _SAMSUNG, 0xA80A, node, (f"nvme/nvme{number}",), "storage",
        is_on, source,
    )  # fmt: skip


def _management_vga(node: int) -> Device:
    above = "pci0000:00/0000:00:1c.0"
    return Device("0000:02:00.0", above, 0x030000, _ASPEED, 0x2000, node, (), "other", node)


# Address, root bus and node of the GPUs of a machine with four to a socket.
_SERVER_GPUS = (
    ("18", "15", 0), ("2a", "26", 0), ("3a", "37", 0), ("5d", "59", 0),
    ("9a", "97", 1), ("ab", "a7", 1), ("ba", "b7", 1), ("db", "d7", 1),
)  # fmt: skip

_SERVER_DEVICES = (
    *(
        _gpu(f"0000:{bus}:00.0", f"pci0000:{root}/0000:{root}:01.0", node)
        for bus, root, node in _SERVER_GPUS
    ),
    *(
        _nic(
            f"0000:{int(bus, 16) - 1:02x}:00.0", f"pci0000:{root}/0000:{root}:03.0", node, f"ib{n}"
        )
        for n, (bus, root, node) in enumerate(_SERVER_GPUS)
    ),
    _nvme("0000:01:00.0", "pci0000:00/0000:00:01.0", 0, 0),
    _nvme("0000:03:00.0", "pci0000:00/0000:00:02.0", 0, 1),
    _nvme("0000:81:00.0", "pci0000:80/0000:80:01.0", 1, 2),
    _nvme("0000:82:00.0", "pci0000:80/0000:80:02.0", 1, 3),
    _management_vga(0),
)

# For machines that are not about devices.
_ONE_DRIVE = (_nvme("0000:01:00.0", "pci0000:00/0000:00:01.0", 0, 0),)

_TWO_SOCKET = Machine(
    name="two-socket",
    about=(
        "A server with two sockets of 8 cores (16 threads), 512 GiB each, and 8 GPUs, 8 NICs and",
        "4 NVMe drives, half of each per node; Linux 6.12, without a container.",
        "Everything is set as it should be: every check passes or has nothing to look at.",
    ),
    packages=(Package(0, "0-7,16-23", 2), Package(1, "8-15,24-31", 2)),
    nodes=(
        Node(0, "0-7,16-23", 512 * _GB, "10 21", huge={2048: 1024, 1048576: 0}),
        Node(1, "8-15,24-31", 512 * _GB, "21 10", huge={2048: 1024, 1048576: 0}),
    ),
    devices=_SERVER_DEVICES,
)

_LAPTOP = Machine(
    name="laptop",
    about=(
        "A laptop with one node, 4 cores of 2 threads, 32 GiB, an integrated and a discrete GPU.",
        "The firmware says of no device on which node it is: numa_node is -1.",
        "There is one node, so nothing is wrong: it is told, no more.",
    ),
    packages=(Package(0, "0-7", 2, adjacent=True),),
    nodes=(Node(0, "0-7", 32 * _GB, "10"),),
    cpu_model="Intel(R) Core(TM) i7-1185G7",
    maker="LENOVO",
    product="21CB000GUS",
    swap=8 << 30,
    devices=(
        Device("0000:00:02.0", "pci0000:00", 0x030000, _INTEL, 0x9A49, -1, ("drm/card0",), "gpu",
               0, "only node"),
        replace(_gpu("0000:01:00.0", "pci0000:00/0000:00:06.0", -1), is_on=0, source="only node"),
        _nvme("0000:02:00.0", "pci0000:00/0000:00:1d.0", -1, 0, "only node"),
    ),
    findings=("G001 info machine",),
)  # fmt: skip

_NO_NUMA = Machine(
    name="no-numa",
    about=(
        "A small machine with 4 CPUs and 16 GiB whose kernel was built without CONFIG_NUMA.",
        "There is no /sys/devices/system/node, and all six NUMA calls answer ENOSYS.",
        "Not a fault: the checks that need NUMA are skipped and say why.",
    ),
    devices=(replace(_ONE_DRIVE[0], is_on=None, source="the kernel has no NUMA"),),
    packages=(Package(0, "0-3"),),
    nodes=(Node(0, "0-3", 16 * _GB, "10"),),
    numa=False,
    refused=errno.ENOSYS,
)

_CPUS_WITHOUT_MEMORY = Machine(
    name="cpus-without-memory",
    about=(
        "A machine of four nodes: all 8 CPUs are on node 2, which has no memory;",
        "nodes 0, 1 and 3 have 64 GiB each and no CPUs (DIMMs in the slots of the wrong socket).",
        "Every access is remote.",
    ),
    devices=_ONE_DRIVE,
    packages=(Package(0, "0-7"),),
    nodes=(
        Node(0, "", 64 * _GB, "10 20 20 20", "memory-only"),
        Node(1, "", 64 * _GB, "20 10 20 20", "memory-only"),
        Node(2, "0-7", 0, "20 20 10 20", "cpu-only"),
        Node(3, "", 64 * _GB, "20 20 20 10", "memory-only"),
    ),
    cpu_vendor="AuthenticAMD",
    cpu_model="AMD EPYC 7551P 32-Core Processor",
    findings=("T002 fail machine", "T003 info memory without CPUs"),
)

_GPU_ON_MEMORYLESS_NODE = Machine(
    name="gpu-on-memoryless-node",
    about=(
        "Two sockets whose CPUs are numbered alternately: node 1 has the odd ones.",
        "No DIMM is on node 1, and one of the two GPUs is.",
        "That GPU has no local memory: every buffer it reads is across the link.",
    ),
    packages=(Package(0, "0,2,4,6,8,10,12,14"), Package(1, "1,3,5,7,9,11,13,15")),
    nodes=(
        Node(0, "0,2,4,6,8,10,12,14", 256 * _GB, "10 21"),
        Node(1, "1,3,5,7,9,11,13,15", 0, "21 10", "cpu-only"),
    ),
    devices=(
        _gpu("0000:3b:00.0", "pci0000:3a/0000:3a:00.0", 0),
        _gpu("0000:d8:00.0", "pci0000:d7/0000:d7:00.0", 1),
    ),
    findings=("T002 fail node 1", "G001 info gpu 0000:d8:00.0"),
)

_POWER_GPUS = ("0004:05", "0004:06", "0006:00", "0007:00", "0035:04", "0035:05")

_GPU_MEMORY_NODES = Machine(
    name="gpu-memory-nodes",
    about=(
        "A POWER9 server: nodes 0 and 8 are its sockets, nodes 250 to 255 the memory of its",
        "six GPUs, 15 GiB each, as the driver's numa_status files say; pages of 64 KiB.",
        "Two host nodes: interleave over 0 and 8, not over the memory of the GPUs.",
    ),
    abi="ppc64le",
    cpu_model="POWER9, altivec supported",
    page_size=65536,
    packages=(Package(0, "0-7", 4, adjacent=True), Package(8, "88-95", 4, adjacent=True)),
    nodes=(
        Node(0, "0-7", 128 * _GB, "10 40 80 80 80 80 80 80", tier=None),
        Node(8, "88-95", 128 * _GB, "40 10 80 80 80 80 80 80", tier=None),
        *(
            Node(
                250 + n, "", 15 * _GB, " ".join("10" if k == n + 2 else "80" for k in range(8)),
                "gpu", free=1.0, cache=0.0, tier=None,
            )
            for n in range(6)
        ),
    ),
    devices=tuple(
        _gpu(
            f"{at}:00.0",
            # Two of these GPUs sit on the root bus, four below a bridge.
            f"pci{at}" if at.endswith(":00") else f"pci{at[:4]}:00/{at[:4]}:00:00.0",
            0 if at < "0035" else 8,
        )
        for at in _POWER_GPUS
    ),
    files={
        f"/proc/driver/nvidia/gpus/{at}:00.0/numa_status": (
            f"Node:      {255 - n}\nStatus:    online\nAddress:   40000000000\nSize:      3f0000000"
        )
        for n, at in enumerate(_POWER_GPUS)
    },
    findings=("T003 info gpu memory",),
)  # fmt: skip

_ALL_DISTANCES_10 = Machine(
    name="all-distances-10",
    about=(
        "Eight nodes that all hold the same 8 CPUs and are all at distance 10 from one another:",
        "the kernel was booted with numa=fake, or the firmware's tables are broken.",
        "There is nothing to gain from placement, and no eight sockets.",
    ),
    devices=_ONE_DRIVE,
    packages=(Package(0, "0,2,4,6"), Package(1, "1,3,5,7")),
    nodes=tuple(Node(n, "0-7", 2 * _GB, " ".join(["10"] * 8)) for n in range(8)),
    command_line="BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro numa=fake=8",
    findings=("T005 warn machine", "T010 warn numa=fake"),
)

_HBM_NEARLY_FULL = Machine(
    name="hbm-nearly-full",
    about=(
        "Two sockets (nodes 0 and 1), each with 64 GiB on its package (nodes 2 and 3, no CPUs,",
        "distance 13 from their socket and 23 from the other).",
        "The memory on the packages is nearly full: binding to it would fail.",
    ),
    devices=_ONE_DRIVE,
    packages=(Package(0, "0-7"), Package(1, "8-15")),
    nodes=(
        Node(0, "0-7", 256 * _GB, "10 21 13 23", tier=None),
        Node(1, "8-15", 256 * _GB, "21 10 23 13", tier=None),
        Node(2, "", 64 * _GB, "13 23 10 23", "hbm", free=0.01, cache=0.01, tier=None),
        Node(3, "", 64 * _GB, "23 13 23 10", "hbm", free=0.02, cache=0.01, tier=None),
    ),
    cpu_model="Intel(R) Xeon(R) CPU Max 9480",
    findings=("T003 warn node 2", "T003 warn node 3", "T003 info on-package memory"),
)

_SPLIT_SOCKET = Machine(
    name="split-socket",
    about=(
        "One AMD EPYC socket that the BIOS splits into four nodes (NPS4),",
        "4 cores and 32 GiB each, at distance 12 from one another.",
        "Four nodes, one socket: distances and links are those within a package.",
    ),
    packages=(Package(0, "0-15"),),
    nodes=tuple(
        Node(n, f"{4 * n}-{4 * n + 3}", 32 * _GB,
             " ".join("10" if k == n else "12" for k in range(4)))
        for n in range(4)
    ),
    cpu_vendor="AuthenticAMD",
    cpu_model="AMD EPYC 9554 64-Core Processor",
    devices=(_gpu("0000:c1:00.0", "pci0000:c0/0000:c0:01.1", 2),),
    findings=("T006 info machine",),
)  # fmt: skip

_EPYC_DISTANCE_32 = Machine(
    name="epyc-distance-32",
    about=(
        "Two AMD EPYC sockets, one node each, 8 CPUs and 128 GiB per node,",
        "32 apart: the usual distance between two sockets of this make.",
        "Nothing is wrong.",
    ),
    devices=_ONE_DRIVE,
    packages=(Package(0, "0-7"), Package(1, "8-15")),
    nodes=(Node(0, "0-7", 128 * _GB, "10 32"), Node(1, "8-15", 128 * _GB, "32 10")),
    cpu_vendor="AuthenticAMD",
    cpu_model="AMD EPYC 7763 64-Core Processor",
)

_VM_CUT_PACKAGES = Machine(
    name="vm-cut-packages",
    about=(
        "A KVM guest of 16 CPUs: two packages of 4 cores with 2 threads, CPUs 0-7 and 8-15;",
        "its two nodes hold the even and the odd CPUs, so both threads of a core differ in node.",
        "The virtual nodes do not match the virtual packages: the hypervisor's XML is wrong.",
    ),
    devices=_ONE_DRIVE,
    packages=(Package(0, "0-7", 2, adjacent=True), Package(1, "8-15", 2, adjacent=True)),
    nodes=(
        Node(0, "0,2,4,6,8,10,12,14", 64 * _GB, "10 20"),
        Node(1, "1,3,5,7,9,11,13,15", 64 * _GB, "20 10"),
    ),
    hypervisor=True,
    maker="QEMU",
    product="Standard PC (Q35 + ICH9, 2009)",
    findings=("T007 fail machine",),
)

_VM_NO_VNUMA = Machine(
    name="vm-no-vnuma",
    about=(
        "A KVM guest of 16 CPUs in two packages and 768 GiB with two GPUs passed through,",
        "all on a single node: its hypervisor hides the two sockets it runs on.",
        "Placement within the guest is impossible, and its memory is somewhere on the host.",
    ),
    packages=(Package(0, "0-7"), Package(1, "8-15")),
    nodes=(Node(0, "0-15", 768 * _GB, "10"),),
    hypervisor=True,
    maker="QEMU",
    product="Standard PC (Q35 + ICH9, 2009)",
    devices=tuple(
        replace(_gpu(f"0000:0{n}:00.0", "pci0000:00/0000:00:02.0", -1), is_on=0, source="only node")
        for n in (1, 2)
    ),
    findings=("T011 warn machine", "G001 info machine"),
)

_CXL_TIER = Machine(
    name="cxl-tier",
    about=(
        "Two sockets (nodes 0 and 1) and a CXL memory expander (node 2: no CPUs, 128 GiB) in a",
        "slower memory tier; its distance of 14 alone would make it look like on-package memory.",
        "The tier and the bandwidth that HMAT gives tell what it is.",
    ),
    devices=_ONE_DRIVE,
    packages=(Package(0, "0-7"), Package(1, "8-15")),
    nodes=(
        Node(0, "0-7", 256 * _GB, "10 21 14", access=Access("0", 262144, 98)),
        Node(1, "8-15", 256 * _GB, "21 10 24", access=Access("1", 262144, 98)),
        Node(
            2, "", 128 * _GB, "14 24 10", "cxl", free=0.95, cache=0.0, tier=22,
            access=Access("0", 26624, 255),
        ),
    ),
    cpu_model="INTEL(R) XEON(R) PLATINUM 8592+",
    findings=("T003 info slower memory",),
)  # fmt: skip

_OFFLINE_CPUS = Machine(
    name="offline-cpus",
    about=(
        "Two sockets of 12 CPUs; CPU 3 was taken offline.",
        "/sys/devices/system/cpu/online says 0-2,4-23.",
        "Everything works; a CPU list that names CPU 3 does not.",
    ),
    devices=_ONE_DRIVE,
    packages=(Package(0, "0-11"), Package(1, "12-23")),
    nodes=(Node(0, "0-11", 128 * _GB, "10 21"), Node(1, "12-23", 128 * _GB, "21 10")),
    offline="3",
    findings=("T008 info machine",),
)

_DOCKER_MOUNTS = """\
overlay / overlay rw,relatime,lowerdir=/l/A:/l/B,upperdir=/u/diff,workdir=/u/work 0 0
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
tmpfs /dev tmpfs rw,nosuid,size=65536k,mode=755,inode64 0 0
shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k,inode64 0 0
sysfs /sys sysfs ro,nosuid,nodev,noexec,relatime 0 0
cgroup /sys/fs/cgroup cgroup2 ro,nosuid,nodev,noexec,relatime 0 0
"""

_CONTAINER = replace(
    _TWO_SOCKET,
    name="container-docker",
    about=(
        "The view from a Docker container with Docker's default seccomp profile, as root without",
        "CAP_SYS_NICE, on a machine of two sockets with 4 CPUs each and 64 GiB per node.",
        "The profile answers EPERM to all six NUMA calls; the kernel was never asked.",
    ),
    packages=(Package(0, "0-3"), Package(1, "4-7")),
    nodes=(Node(0, "0-3", 64 * _GB, "10 21"), Node(1, "4-7", 64 * _GB, "21 10")),
    devices=(
        *_ONE_DRIVE,
        _gpu("0000:18:00.0", "pci0000:15/0000:15:01.0", 0),
        _gpu("0000:9a:00.0", "pci0000:97/0000:97:01.0", 1),
    ),
    refused=errno.EPERM,
    facts={
        "numactl": {"path": None, "version": None},
        "sysconf": {"page_size": 4096, "user": 0},
    },
)
_CONTAINER = replace(
    _CONTAINER,
    absent=(
        "/sys/fs/cgroup/system.slice",
        "/proc/2",
        "/sys/devices/system/cpu/cpufreq",
        "/sys/kernel/mm/damon",
    ),
    files={
        # Docker's default bounding set: fourteen capabilities, SYS_NICE is not one.
        "/proc/self/status": status(_CONTAINER, uid=0, bounding=0xA80425FB, seccomp=2),
        "/.dockerenv": "",
        "/proc/1/comm": "python3",
        "/proc/self/cgroup": "0::/",
        "/proc/self/cpuset": "/",
        "/proc/mounts": _DOCKER_MOUNTS,
        "/proc/self/mounts": _DOCKER_MOUNTS,
        "/proc/self/environ": "PATH=/usr/bin:/bin\0HOSTNAME=3f2c61aa90de\0HOME=/root\0",
        "/proc/sys/kernel/hostname": "3f2c61aa90de",
        "/sys/fs/cgroup/memory.max": "max",
        "/sys/fs/cgroup/hugetlb.2MB.max": "max",
        "/sys/fs/cgroup/hugetlb.1GB.max": "max",
        "/etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"',
    },
)

MACHINES = (
    _TWO_SOCKET,
    _LAPTOP,
    _NO_NUMA,
    _CPUS_WITHOUT_MEMORY,
    _GPU_ON_MEMORYLESS_NODE,
    _GPU_MEMORY_NODES,
    _ALL_DISTANCES_10,
    _HBM_NEARLY_FULL,
    _SPLIT_SOCKET,
    _EPYC_DISTANCE_32,
    _VM_CUT_PACKAGES,
    _VM_NO_VNUMA,
    _CXL_TIER,
    _OFFLINE_CPUS,
    _CONTAINER,
)
