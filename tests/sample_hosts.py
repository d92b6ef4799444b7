"""The sample hosts: what they are, and what numadoctor must say of them.

See tests/build_fixtures.py for how they become files.
"""

import errno
import json
from dataclasses import replace

from tests.build_fixtures import Access, Device, Machine, Node, Package, status
from tests.sample_engine import engine_files, engine_links

_NVIDIA, _AMD, _MELLANOX, _SAMSUNG = 0x10DE, 0x1002, 0x15B3, 0x144D
_ASPEED, _INTEL, _REALTEK = 0x1A03, 0x8086, 0x10EC

_GB = 1024


def _gpu(
    address: str, above: str, node: int, *, device: int = 0x2330, pci_class: int = 0x030200
) -> Device:
    is_on = node if node >= 0 else None
    return Device(
        address, above, pci_class, _NVIDIA, device, node, (), "gpu", is_on, driver="nvidia"
    )


def _nic(address: str, above: str, node: int, name: str) -> Device:
    names = (f"net/{name}", f"infiniband/mlx5_{name.removeprefix('ib')}")
    return Device(
        address, above, 0x020700, _MELLANOX, 0x1021, node, names, "nic",
        node if node >= 0 else None, driver="mlx5_core",
    )  # fmt: skip


def _nvme(address: str, above: str, node: int, number: int, source: str = "sysfs") -> Device:
    is_on = node if node >= 0 else 0
    return Device(
        address, above, 0x010802, _SAMSUNG, 0xA80A, node, (f"nvme/nvme{number}",), "storage",
        is_on, source, driver="nvme",
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

_KV_POOL = replace(
    _TWO_SOCKET,
    name="kv-pool",
    about=(
        "The server of two-socket with an engine: pid 4242 and eight workers, one for each GPU,",
        "that share a pool of 64 GiB. Nobody gave it a policy: 77 % of it is on node 0.",
        "check --pid 4242 tells that, and that the GPUs of node 1 read it from there.",
    ),
    files={
        **engine_files(),
        "/proc/uptime": "90000.00 2700000.00",
        "/.numadoctor/window.json": json.dumps(
            {"seconds": 0.5, "processes": {"4242": {"minor_faults": 12, "major_faults": 0}}}
        ),
    },
    links=engine_links(),
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
    findings=("T002 fail node 1", "G007 fail node 1"),
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
    findings=("T003 info gpu memory", "G013 warn process"),
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
        "kernel_log": {"visible": False, "lines": [], "records": 0},
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

# GPU 0 to 7 of a machine of eight nodes, in the order of the bus: on which node each is.
_PERMUTED = (("05", 3), ("25", 0), ("45", 2), ("65", 1), ("85", 4), ("a5", 6), ("c5", 7), ("e5", 5))

_GPUS_PERMUTED = Machine(
    name="gpus-permuted",
    about=(
        "Two AMD EPYC sockets of four nodes each (NPS4) with 8 GPUs, one on each node: GPUs 0 to 7",
        "in the order of the bus are on nodes 3, 0, 2, 1, 4, 6, 7, 5; NICs on nodes 1, 3, 5, 7.",
        "No arithmetic finds the node of a GPU, and four GPUs have no NIC on their node.",
    ),
    packages=(Package(0, "0-15"), Package(1, "16-31")),
    nodes=tuple(
        Node(n, f"{4 * n}-{4 * n + 3}", 96 * _GB,
             " ".join("10" if k == n else "12" if k // 4 == n // 4 else "32" for k in range(8)))
        for n in range(8)
    ),
    cpu_vendor="AuthenticAMD",
    cpu_model="AMD EPYC 7763 64-Core Processor",
    devices=(
        *(
            replace(_gpu(f"0000:{bus}:00.0", f"pci0000:{bus[0]}0/0000:{bus[0]}0:01.1", node),
                    link=(16.0, 16))
            for bus, node in _PERMUTED
        ),
        *(
            replace(_nic(f"0000:{bus[0]}1:00.0", f"pci0000:{bus[0]}0/0000:{bus[0]}0:03.1", node,
                         f"ib{n}"), link=(16.0, 16))
            for n, (bus, node) in enumerate((b, k) for b, k in _PERMUTED if k % 2)
        ),
    ),
    findings=("T006 info machine", "G005 info gpus"),
)  # fmt: skip

_GRACE = Machine(
    name="grace-gpu-memory",
    about=(
        "Four Grace Hopper modules: nodes 0 to 3 are the CPUs and their memory; each GPU has eight",
        "nodes, of which the first (4, 12, 20, 28) holds its memory and the others are for MIG.",
        "36 nodes, four of them for ordinary memory; pages of 64 KiB.",
    ),
    abi="aarch64",
    page_size=65536,
    packages=tuple(Package(n, f"{8 * n}-{8 * n + 7}") for n in range(4)),
    nodes=(
        *(
            Node(n, f"{8 * n}-{8 * n + 7}", 480 * _GB,
                 " ".join("10" if k == n else "40" if k < 4 else "80" for k in range(36)))
            for n in range(4)
        ),
        *(
            Node(n, "", 95 * _GB if n % 8 == 4 else 0,
                 " ".join("10" if k == n else "80" for k in range(36)), "gpu" if n % 8 == 4
                 else "empty", free=1.0, cache=0.0, tier=None, huge={})
            for n in range(4, 36)
        ),
    ),
    devices=tuple(
        _gpu(f"{n:02x}09:01:00.0", f"pci{n:02x}09:00/{n:02x}09:00:00.0", n, device=0x2342)
        for n in range(4)
    ),
    files={
        f"/proc/driver/nvidia/gpus/{n:02x}09:01:00.0/numa_status": (
            f"Node:      {4 + 8 * n}\nStatus:    online\n"
            "Address:   400000000000\nSize:      17b000000"
        )
        for n in range(4)
    },
    findings=(
        "T003 info empty nodes", "T003 info gpu memory", "T012 info machine", "G013 warn process",
    ),
)  # fmt: skip

_BLACKWELL_MEMORY = (2, 10, 18, 26)

_GRACE_BLACKWELL = Machine(
    name="grace-blackwell",
    about=(
        "Two Grace CPUs (nodes 0 and 1) with two Blackwell GPUs each, whose memory is on nodes",
        "2, 10, 18 and 26; the nodes between them are not online. Pages of 64 KiB.",
        "Ordinary memory belongs on nodes 0 and 1 alone.",
    ),
    abi="aarch64",
    page_size=65536,
    packages=(Package(0, "0-7"), Package(1, "8-15")),
    nodes=(
        Node(0, "0-7", 480 * _GB, "10 40 80 80 80 80"),
        Node(1, "8-15", 480 * _GB, "40 10 80 80 80 80"),
        *(
            Node(node, "", 184 * _GB, " ".join("10" if k == at + 2 else "80" for k in range(6)),
                 "gpu", free=1.0, cache=0.0, tier=None, huge={})
            for at, node in enumerate(_BLACKWELL_MEMORY)
        ),
    ),
    devices=(
        *(
            _gpu(f"{domain}:01:00.0", f"pci{domain}:00/{domain}:00:00.0", n // 2, device=0x2941)
            for n, domain in enumerate(("0008", "0009", "0018", "0019"))
        ),
        _nic("0000:03:00.0", "pci0000:00/0000:00:00.0", 0, "ib0"),
        _nic("0010:03:00.0", "pci0010:00/0010:00:00.0", 1, "ib1"),
    ),
    files={
        f"/proc/driver/nvidia/gpus/{domain}:01:00.0/numa_status": (
            f"Node:      {node}\nStatus:    online\nAddress:   400000000000\nSize:      2e0000000"
        )
        for domain, node in zip(("0008", "0009", "0018", "0019"), _BLACKWELL_MEMORY, strict=True)
    },
    findings=("T003 info gpu memory", "G013 warn process"),
)  # fmt: skip

_MI300X_BUSES = ("05", "26", "46", "65", "85", "a6", "c6", "e5")


def _kfd() -> dict[str, str]:
    """KFD's topology of eight GPUs that are all joined: nodes 0 and 1 are the sockets."""
    base = "/sys/class/kfd/kfd/topology/nodes"
    files = {
        f"{base}/{n}/properties": f"cpu_cores_count 16\nsimd_count 0\ncpu_core_id_base {16 * n}"
        for n in (0, 1)
    }
    for n, bus in enumerate(_MI300X_BUSES):
        at = f"{base}/{n + 2}"
        files[f"{at}/properties"] = (
            f"cpu_cores_count 0\nsimd_count 1216\nlocation_id {int(bus, 16) << 8}\ndomain 0\n"
            f"drm_render_minor {128 + 8 * n}\nunique_id {0x5C88007C09FD_0000 + n}\nvendor_id 4098\n"
            f"hive_id {0x4D49333030580001}"
        )
        files[f"{at}/io_links/0/properties"] = f"type 2\nnode_from {n + 2}\nnode_to {n // 4}"
        for number, peer in enumerate([p for p in range(8) if p != n], 1):
            files[f"{at}/io_links/{number}/properties"] = (
                f"type 11\nnode_from {n + 2}\nnode_to {peer + 2}\nweight 15"
            )
    return files


def _switch(bus: str) -> str:
    """The way to the switch that a GPU and a NIC share: root bus, root port, upstream port."""
    return f"pci0000:{bus[0]}0/0000:{bus[0]}0:01.1/0000:{bus[0]}1:00.0"


_MI300X = Machine(
    name="mi300x",
    about=(
        "Two sockets (nodes 0 and 1) with four AMD Instinct MI300X each, of the PCI class of",
        "accelerators (0x1200), each below one switch with a NIC; AMD's driver tells of all eight,",
        "and that XGMI joins them all. Everything is set as it should be.",
    ),
    packages=(Package(0, "0-7,16-23", 2), Package(1, "8-15,24-31", 2)),
    nodes=(
        Node(0, "0-7,16-23", 1024 * _GB, "10 32"),
        Node(1, "8-15,24-31", 1024 * _GB, "32 10"),
    ),
    cpu_vendor="AuthenticAMD",
    cpu_model="AMD EPYC 9554 64-Core Processor",
    devices=(
        *(
            Device(
                f"0000:{bus}:00.0", f"{_switch(bus)}/0000:{bus[0]}2:00.0", 0x120000, _AMD,
                0x74A1, n // 4, (f"drm/card{n + 1}", f"drm/renderD{128 + 8 * n}"), "gpu", n // 4,
                driver="amdgpu", group=n,
            )
            for n, bus in enumerate(_MI300X_BUSES)
        ),
        *(
            replace(
                _nic(
                    f"0000:{bus[0]}9:00.0", f"{_switch(bus)}/0000:{bus[0]}2:01.0", n // 4, f"ib{n}"
                ),
                group=8 + n,
            )
            for n, bus in enumerate(_MI300X_BUSES)
        ),
    ),
    files=_kfd(),
)  # fmt: skip

# GPUs by bus, and the place of the one that a bridge joins each to.
_BRIDGED = (("18", 2), ("19", 3), ("3a", 0), ("3b", 1), ("9a", 6), ("9b", 7), ("ba", 4), ("bb", 5))


def _bridges() -> dict[str, object]:
    """What NVML says of GPUs that are joined in pairs, by bridges of twelve NVLinks."""
    return {
        "unavailable": None,
        "driver": "570.86.15",
        "gpus": [
            {
                "index": n, "address": f"0000:{bus}:00.0", "uuid": None, "minor": None,
                "nodes": [n // 4], "cpus": None, "memory_node": None, "mig": False,
                "mig_uuids": [], "levels": {},
                "nvlinks": [f"gpu 0000:{_BRIDGED[peer][0]}:00.0"] * 12, "nvlinks_inactive": 0,
            }
            for n, (bus, peer) in enumerate(_BRIDGED)
        ],
    }  # fmt: skip


_NVLINK_PAIRS = Machine(
    name="nvlink-pairs",
    about=(
        "Two sockets (nodes 0 and 1) with four NVIDIA GPUs each, two below one switch. Bridges of",
        "twelve NVLinks join them in pairs, but not the two of a switch: 0 and 2, 1 and 3, and so",
        "on, as NVML tells. Everything is set as it should be.",
    ),
    packages=(Package(0, "0-7,16-23", 2), Package(1, "8-15,24-31", 2)),
    nodes=(
        Node(0, "0-7,16-23", 512 * _GB, "10 21"),
        Node(1, "8-15,24-31", 512 * _GB, "21 10"),
    ),
    devices=tuple(
        replace(
            _gpu(f"0000:{bus}:00.0", f"{_switch(bus)}/0000:{bus[0]}2:0{n % 2}.0", n // 4), group=n
        )
        for n, (bus, _) in enumerate(_BRIDGED)
    ),
    facts={"nvml": _bridges()},
)

_VM_UNPLACED = Machine(
    name="vm-unplaced-gpus",
    about=(
        "A KVM guest of two nodes with four GPUs, a NIC and a drive passed through:",
        "numa_node is -1 for all of them and for all above, and their local CPUs are all CPUs.",
        "On which node each is cannot be told from within; the hypervisor knows.",
    ),
    packages=(Package(0, "0-7"), Package(1, "8-15")),
    nodes=(Node(0, "0-7", 384 * _GB, "10 20"), Node(1, "8-15", 384 * _GB, "20 10")),
    hypervisor=True,
    maker="QEMU",
    product="Standard PC (Q35 + ICH9, 2009)",
    devices=tuple(
        replace(device, is_on=None, source="numa_node is -1, as it is for the bridges above")
        for device in (
            *(
                _gpu(f"0000:{n:02x}:00.0", f"pci0000:00/0000:00:{n:02x}.0", -1)
                for n in range(4, 8)
            ),
            _nic("0000:08:00.0", "pci0000:00/0000:00:08.0", -1, "ib0"),
            _nvme("0000:09:00.0", "pci0000:00/0000:00:09.0", -1, 0),
        )
    ),
    findings=(
        "G001 warn gpus", "G001 warn nic 0000:08:00.0", "G001 warn storage 0000:09:00.0",
        "G005 unknown nics", "G007 unknown gpus",
    ),
)  # fmt: skip

_ONE_GPU = Machine(
    name="one-gpu",
    about=(
        "A desktop with one node, 8 cores of 2 threads, 64 GiB, one consumer GPU, a NIC, a drive.",
        "The firmware says of no device on which node it is; there is one node.",
        "Nothing is wrong.",
    ),
    packages=(Package(0, "0-15", 2),),
    nodes=(Node(0, "0-15", 64 * _GB, "10"),),
    cpu_vendor="AuthenticAMD",
    cpu_model="AMD Ryzen 9 7950X 16-Core Processor",
    maker="ASUS",
    product="System Product Name",
    devices=tuple(
        replace(device, is_on=0, source="only node")
        for device in (
            replace(
                _gpu("0000:01:00.0", "pci0000:00/0000:00:01.1", -1, device=0x2684,
                     pci_class=0x030000),
                link=(16.0, 16),
            ),
            replace(_nvme("0000:02:00.0", "pci0000:00/0000:00:02.1", -1, 0), link=(16.0, 4)),
            Device("0000:03:00.0", "pci0000:00/0000:00:02.2", 0x020000, _REALTEK, 0x8125, -1,
                   ("net/enp3s0",), "nic", link=(5.0, 1), driver="r8169"),
        )
    ),
    findings=("G001 info machine",),
)  # fmt: skip

MACHINES = (
    _TWO_SOCKET,
    _KV_POOL,
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
    _GPUS_PERMUTED,
    _GRACE,
    _GRACE_BLACKWELL,
    _MI300X,
    _NVLINK_PAIRS,
    _VM_UNPLACED,
    _ONE_GPU,
)
