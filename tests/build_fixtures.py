"""Builds the sample hosts of fixtures/ from the descriptions in tests/sample_hosts.py.

``python -m tests.build_fixtures`` writes them anew; a test asserts that what is
committed equals what is built. Everything is derived from the description
alone, never from numadoctor's own reading of it, so that the two can be compared.
"""

import errno
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[1] / "fixtures"

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

NODES = "/sys/devices/system/node"
CPUS = "/sys/devices/system/cpu"

Files = dict[str, str]


@dataclass(frozen=True)
class Package:
    """A socket. Its CPUs are numbered first threads first, or siblings side by side.

    :ivar threads: hardware threads per core
    """

    id: int
    cpus: str
    threads: int = 1
    adjacent: bool = False

    def cores(self) -> list[tuple[int, ...]]:
        """The CPUs of each core."""
        cpus = ids(self.cpus)
        count = len(cpus) // self.threads
        if self.adjacent:
            return [
                tuple(cpus[core * self.threads : (core + 1) * self.threads])
                for core in range(count)
            ]
        return [tuple(cpus[core::count]) for core in range(count)]


@dataclass(frozen=True)
class Access:
    """What HMAT says of a node's memory: MiB/s and nanoseconds, seen from ``nodes``."""

    nodes: str
    bandwidth: int
    latency: int


@dataclass(frozen=True)
class Node:
    """A node. ``memory`` in MiB; ``distance`` as its file has it.

    :ivar free: share of the memory that is free
    :ivar cache: share of the memory that is page cache
    :ivar huge: pages by page size in kB, all of them free
    :ivar kind: what numadoctor must call it
    """

    id: int
    cpus: str
    memory: int
    distance: str
    kind: str = "host"
    free: float = 0.8
    cache: float = 0.1
    huge: Mapping[int, int] = field(default_factory=lambda: {2048: 0, 1048576: 0})
    tier: int | None = 4
    access: Access | None = None


@dataclass(frozen=True)
class Device:
    """A PCI function below ``above``: the root bus and the bridges.

    :ivar node: what numa_node says
    :ivar names: folders that name it, ``net/ens1``
    :ivar kind: what numadoctor must call it; "" if it must leave it out
    :ivar is_on: the node numadoctor must find
    :ivar link: GT/s and lanes, now and at most; of the port above too, where that is wider
    :ivar driver: what is bound to it
    :ivar group: its IOMMU group, which lets it through; the ports above it then have
        configuration spaces, the root port with access control on, those below with it off
    """

    address: str
    above: str
    pci_class: int
    vendor: int
    device: int
    node: int
    names: tuple[str, ...] = ()
    kind: str = ""
    is_on: int | None = None
    source: str = "sysfs"
    link: tuple[float, int] | None = None
    driver: str = ""
    group: int | None = None


@dataclass(frozen=True)
class Machine:
    """A sample host.

    :ivar about: the three lines of its README
    :ivar files: files beyond those that every sample has, or instead of them
    :ivar links: symbolic links in the same way
    :ivar absent: files and folders that it lacks
    :ivar refused: the errno with which every NUMA call is answered
    :ivar facts: facts by name, instead of the usual ones
    :ivar findings: what the checks of the T and G families must give, apart from
        passes and skips: "T003 info node 2"
    """

    name: str
    about: tuple[str, str, str]
    packages: tuple[Package, ...]
    nodes: tuple[Node, ...]
    devices: tuple[Device, ...] = ()
    numa: bool = True
    abi: str = "x86_64"
    cpu_vendor: str = "GenuineIntel"
    cpu_model: str = "Intel(R) Xeon(R) Platinum 8480+"
    maker: str = "Supermicro"
    product: str = "SYS-821GE-TNHR"
    hypervisor: bool = False
    page_size: int = 4096
    release: str = "6.12.0-1-generic"
    command_line: str = "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro"
    offline: str = ""
    isolated: str = ""
    swap: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    refused: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    @property
    def present(self) -> list[int]:
        return sorted(cpu for package in self.packages for cpu in ids(package.cpus))

    @property
    def online(self) -> list[int]:
        return sorted(set(self.present) - set(ids(self.offline)))

    @property
    def memory(self) -> int:
        return sum(node.memory for node in self.nodes) * MIB


def ids(text: str) -> list[int]:
    """The numbers in a list like ``0-3,8``."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def listed(numbers: Iterable[int]) -> str:
    """The numbers as a list like ``0-3,8``."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def mask(numbers: Iterable[int], width: int) -> str:
    """The numbers as a map of ``width`` bits, in comma-separated words of 32."""
    value = sum(1 << number for number in numbers)
    digits = f"{value:0{(width + 3) // 4}x}"
    head = len(digits) % 8
    words = [digits[:head]] if head else []
    words += [digits[at : at + 8] for at in range(head, len(digits), 8)]
    return ",".join(words)


def build(machine: Machine) -> tuple[Files, dict[str, str]]:
    """The files and the symbolic links of a machine's root, by absolute path."""
    files: Files = {}
    links: dict[str, str] = {}
    parts = [_cpus, _system, _memory, _settings, _process, _devices, _facts]
    if machine.numa:
        parts.append(_nodes)
    for part in parts:
        part(machine, files, links)
    files.update(machine.files)
    links.update(machine.links)
    for gone in machine.absent:
        for table in (files, links):
            for path in [p for p in table if p == gone or p.startswith(f"{gone}/")]:
                del table[path]
    return {
        p: t if not t or t.endswith(("\n", "\0")) else f"{t}\n" for p, t in files.items()
    }, links


def _cpus(machine: Machine, files: Files, links: dict[str, str]) -> None:
    width = machine.present[-1] + 1
    offline = ids(machine.offline)
    files[f"{CPUS}/online"] = listed(machine.online)
    files[f"{CPUS}/offline"] = machine.offline or "\n"
    files[f"{CPUS}/present"] = files[f"{CPUS}/possible"] = listed(machine.present)
    files[f"{CPUS}/isolated"] = machine.isolated or "\n"
    files[f"{CPUS}/nohz_full"] = "  (null)"
    for cpu in offline:
        files[f"{CPUS}/cpu{cpu}/online"] = "0"
    for package in machine.packages:
        for core, cpus in enumerate(package.cores()):
            there = [cpu for cpu in cpus if cpu not in offline]
            for cpu in there:
                folder = f"{CPUS}/cpu{cpu}/topology"
                files[f"{folder}/physical_package_id"] = str(package.id)
                files[f"{folder}/core_id"] = str(core)
                files[f"{folder}/core_cpus"] = mask(there, width)
                if not machine.hypervisor:
                    files[f"{CPUS}/cpufreq/policy{cpu}/scaling_governor"] = "performance"
                    links[f"{CPUS}/cpu{cpu}/cpufreq"] = f"../cpufreq/policy{cpu}"


def _nodes(machine: Machine, files: Files, links: dict[str, str]) -> None:
    width = machine.present[-1] + 1
    every = listed(node.id for node in machine.nodes)
    files[f"{NODES}/online"] = files[f"{NODES}/possible"] = every
    files[f"{NODES}/has_cpu"] = listed(node.id for node in machine.nodes if node.cpus)
    with_memory = listed(node.id for node in machine.nodes if node.memory)
    files[f"{NODES}/has_memory"] = files[f"{NODES}/has_normal_memory"] = with_memory
    for node in machine.nodes:
        folder = f"{NODES}/node{node.id}"
        online = [cpu for cpu in ids(node.cpus) if cpu in machine.online]
        files[f"{folder}/cpumap"] = mask(online, width)
        files[f"{folder}/cpulist"] = listed(online) or "\n"
        files[f"{folder}/distance"] = node.distance
        files[f"{folder}/meminfo"] = _node_meminfo(node)
        files[f"{folder}/numastat"] = (
            "numa_hit 48211934\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 1723\n"
            "local_node 48190211\nother_node 21723"
        )
        for cpu in ids(node.cpus):
            links[f"{folder}/cpu{cpu}"] = f"../../cpu/cpu{cpu}"
            links[f"{CPUS}/cpu{cpu}/node{node.id}"] = f"../../node/node{node.id}"
        if node.memory:
            _pools(f"{folder}/hugepages", node.huge, files)
            weights = "/sys/kernel/mm/mempolicy/weighted_interleave"
            files[f"{weights}/node{node.id}"] = "1"
        if node.access:
            _access(folder, node.access, files, links)
    tiers = {node.tier for node in machine.nodes if node.memory and node.tier is not None}
    for tier in sorted(tiers):
        path = f"/sys/devices/virtual/memory_tiering/memory_tier{tier}/nodelist"
        files[path] = listed(n.id for n in machine.nodes if n.memory and n.tier == tier)


def _access(folder: str, access: Access, files: Files, links: dict[str, str]) -> None:
    for access_class in (0, 1):
        base = f"{folder}/access{access_class}/initiators"
        files[f"{base}/read_bandwidth"] = files[f"{base}/write_bandwidth"] = str(access.bandwidth)
        files[f"{base}/read_latency"] = files[f"{base}/write_latency"] = str(access.latency)
        for node in ids(access.nodes):
            links[f"{base}/node{node}"] = f"../../../node{node}"


def _pools(folder: str, pools: Mapping[int, int], files: Files) -> None:
    for size, count in pools.items():
        base = f"{folder}/hugepages-{size}kB"
        files[f"{base}/nr_hugepages"] = files[f"{base}/free_hugepages"] = str(count)
        files[f"{base}/surplus_hugepages"] = "0"


def _node_sizes(node: Node) -> dict[str, int]:
    """What a node's meminfo says, in kB."""
    total = node.memory * 1024
    huge = sum(size * count for size, count in node.huge.items())
    free, cache = int(total * node.free), int(total * node.cache)
    anonymous = total - free - cache - huge
    return {
        "MemTotal": total,
        "MemFree": free,
        "MemUsed": total - free,
        "Active(anon)": anonymous * 3 // 4,
        "Active(file)": cache // 2,
        "Inactive(file)": cache - cache // 2,
        "Dirty": 64 if cache else 0,
        "FilePages": cache,
        "AnonPages": anonymous * 3 // 4,
        "Shmem": 0,
        "SReclaimable": anonymous // 8,
        "SUnreclaim": anonymous // 8,
        "AnonHugePages": 0,
    }


def _node_meminfo(node: Node) -> str:
    sizes = _node_sizes(node)
    lines = [f"Node {node.id} {key + ':':16}{size:>12} kB" for key, size in sizes.items()]
    count = node.huge.get(2048, 0)
    for key, value in (("Total", count), ("Free", count), ("Surp", 0)):
        lines.append(f"Node {node.id} HugePages_{key}:{value:>6}")
    return "\n".join(lines)


def _memory(machine: Machine, files: Files, links: dict[str, str]) -> None:
    sums: dict[str, int] = {}
    huge: dict[int, int] = {}
    for node in machine.nodes:
        for key, size in _node_sizes(node).items():
            sums[key] = sums.get(key, 0) + size
        for page, count in node.huge.items():
            huge[page] = huge.get(page, 0) + count
    total, free = sums["MemTotal"], sums["MemFree"]
    sizes = {
        "MemTotal": total,
        "MemFree": free,
        "MemAvailable": free + sums["FilePages"] * 9 // 10,
        "Buffers": 2048,
        "Cached": sums["FilePages"],
        "SwapCached": 0,
        "SwapTotal": machine.swap // KIB,
        "SwapFree": machine.swap // KIB,
        "AnonPages": sums["AnonPages"],
        "Shmem": sums["Shmem"],
        "CommitLimit": total // 2 + machine.swap // KIB,
        "Committed_AS": sums["AnonPages"],
    }
    lines = [f"{key + ':':16}{size:>12} kB" for key, size in sizes.items()]
    count = huge.get(2048, 0)
    pages = {"Total": count, "Free": count, "Rsvd": 0, "Surp": 0}
    lines += [f"HugePages_{key + ':':6}{value:>12}" for key, value in pages.items()]
    lines += ["Hugepagesize:           2048 kB"]
    files["/proc/meminfo"] = "\n".join(lines)
    _pools("/sys/kernel/mm/hugepages", huge, files)
    for size in huge:
        base = f"/sys/kernel/mm/hugepages/hugepages-{size}kB"
        files[f"{base}/nr_overcommit_hugepages"] = files[f"{base}/resv_hugepages"] = "0"
    files["/proc/buddyinfo"] = "\n".join(_buddy_line(*zone) for zone in _zones(machine))
    files["/proc/zoneinfo"] = "\n".join(_zone_text(machine, *zone) for zone in _zones(machine))


def _zones(machine: Machine) -> Iterator[tuple[int, str, int, int]]:
    """Node, name, pages managed and pages free of each zone."""
    low = 2 * GIB // machine.page_size
    for position, node in enumerate(n for n in machine.nodes if n.memory):
        pages = node.memory * MIB // machine.page_size
        free = int(pages * node.free)
        if position == 0 and pages > 2 * low and machine.abi == "x86_64":
            # Pages below 4 GiB are what the allocator takes last, so they are free.
            spared = min(low, free // 2)
            yield node.id, "DMA32", low, spared
            pages, free = pages - low, free - spared
        yield node.id, "Normal", pages, free


def _buddy_line(node: int, zone: str, managed: int, free: int) -> str:
    counts = [0] * 11
    counts[10] = free * 97 // 100 >> 10
    rest = free - (counts[10] << 10)
    for order in range(9, -1, -1):
        counts[order] = rest // 2 >> order if order else rest
        rest -= counts[order] << order
    return f"Node {node}, zone {zone:>8} " + " ".join(f"{count:>6}" for count in counts)


_MIN_FREE = 128 * MIB


def _zone_text(machine: Machine, node: int, zone: str, managed: int, free: int) -> str:
    every = sum(n.memory for n in machine.nodes) * MIB // machine.page_size
    least = _MIN_FREE // machine.page_size * managed // every
    # __setup_per_zone_wmarks(): a quarter of min, or watermark_scale_factor (0.1 %) of the zone.
    step = max(least // 4, managed // 1000)
    marks = {"boost": 0, "min": least, "low": least + step, "high": least + 2 * step}
    sizes = {"spanned": managed, "present": managed, "managed": managed, "cma": 0}
    lines = [f"Node {node}, zone {zone:>8}", f"  pages free     {free}"]
    lines += [f"        {key:8} {value}" for key, value in {**marks, **sizes}.items()]
    return "\n".join([*lines, "        protection: (0, 0, 0, 0, 0)"])


def _system(machine: Machine, files: Files, links: dict[str, str]) -> None:
    files["/proc/version"] = f"Linux version {machine.release} (gcc) #1 SMP PREEMPT_DYNAMIC"
    files["/proc/sys/kernel/osrelease"] = machine.release
    files["/proc/sys/kernel/hostname"] = machine.name
    files["/proc/cmdline"] = machine.command_line
    files["/proc/cpuinfo"] = _cpuinfo(machine)
    files["/proc/1/comm"] = "systemd"
    files["/proc/2/comm"] = "kthreadd"
    files["/etc/os-release"] = 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"'
    files["/proc/sysvipc/shm"] = _NO_SEGMENTS
    files["/proc/swaps"] = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"
    if machine.swap:
        files["/proc/swaps"] += f"\n/dev/nvme0n1p3 partition\t{machine.swap // KIB}\t\t0\t\t-2"
    if machine.abi == "x86_64":
        links["/sys/class/dmi/id"] = "../../devices/virtual/dmi/id"
        files["/sys/devices/virtual/dmi/id/sys_vendor"] = machine.maker
        files["/sys/devices/virtual/dmi/id/product_name"] = machine.product


def _cpuinfo(machine: Machine) -> str:
    if machine.abi == "aarch64":
        return "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f"
    if machine.abi == "ppc64le":
        return f"processor\t: 0\ncpu\t\t: {machine.cpu_model}\nrevision\t: 2.2 (pvr 004e 1202)"
    flags = "fpu msr pae cx8 apic sse2 ht syscall nx pdpe1gb lm avx2 avx512f"
    return (
        f"processor\t: 0\nvendor_id\t: {machine.cpu_vendor}\nmodel name\t: {machine.cpu_model}\n"
        f"flags\t\t: {flags}{' hypervisor' if machine.hypervisor else ''}"
    )


def _settings(machine: Machine, files: Files, links: dict[str, str]) -> None:
    vm = {
        "compaction_proactiveness": "20",
        "max_map_count": "1048576",
        "min_free_kbytes": str(_MIN_FREE // KIB),
        "nr_hugepages": str(sum(node.huge.get(2048, 0) for node in machine.nodes)),
        "nr_overcommit_hugepages": "0",
        "overcommit_memory": "0",
        "overcommit_ratio": "50",
        "swappiness": "10",
        "watermark_boost_factor": "15000",
        "watermark_scale_factor": "10",
    }
    kernel = {"shmmax": "18446744073692774399", "shmall": "18446744073692774399"}
    if machine.numa:
        vm |= {"numa_stat": "1", "zone_reclaim_mode": "0"}
        kernel |= {"numa_balancing": "0"}
        files["/sys/kernel/mm/numa/demotion_enabled"] = "false"
    files.update({f"/proc/sys/vm/{name}": value for name, value in vm.items()})
    files.update({f"/proc/sys/kernel/{name}": value for name, value in kernel.items()})
    mm = "/sys/kernel/mm"
    files[f"{mm}/transparent_hugepage/enabled"] = "always [madvise] never"
    files[f"{mm}/transparent_hugepage/defrag"] = "always defer defer+madvise [madvise] never"
    shmem = "always within_size advise [never] deny force"
    files[f"{mm}/transparent_hugepage/shmem_enabled"] = shmem
    files[f"{mm}/damon/admin/kdamonds/nr_kdamonds"] = "0"
    ksm = {"run": "0", "pages_shared": "0", "pages_sharing": "0"}
    if machine.numa:
        ksm |= {"merge_across_nodes": "1"}
    files.update({f"{mm}/ksm/{name}": value for name, value in ksm.items()})


_MOUNTS = """\
/dev/nvme0n1p2 / ext4 rw,relatime 0 0
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0
cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0
tmpfs /dev/shm tmpfs rw,nosuid,nodev,inode64 0 0
tmpfs /tmp tmpfs rw,nosuid,nodev,inode64 0 0
hugetlbfs /dev/hugepages hugetlbfs rw,nosuid,nodev,relatime,pagesize=2M 0 0
"""

_LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max file size             unlimited            unlimited            bytes     
Max data size             unlimited            unlimited            bytes     
Max stack size            8388608              unlimited            bytes     
Max core file size        0                    unlimited            bytes     
Max resident set          unlimited            unlimited            bytes     
Max processes             2061237              2061237              processes 
Max open files            1024                 1048576              files     
Max locked memory         {memlock:<20} {memlock:<20} bytes     
Max address space         unlimited            unlimited            bytes     
Max file locks            unlimited            unlimited            locks     
Max pending signals       2061237              2061237              signals   
Max msgqueue size         819200               819200               bytes     
Max nice priority         0                    0                    
Max realtime priority     0                    0                    
Max realtime timeout      unlimited            unlimited            us        
"""  # noqa: W291

_CGROUP = "/sys/fs/cgroup/system.slice/engine.service"


def status(
    machine: Machine,
    *,
    cpus: str | None = None,
    mems: str | None = None,
    uid: int = 1000,
    bounding: int = 0x1FFFFFFFFFF,
    seccomp: int = 0,
) -> str:
    """A /proc/self/status; everything is allowed unless ``cpus`` or ``mems`` say otherwise."""
    allowed_cpus = machine.online if cpus is None else ids(cpus)
    memory_nodes = [node.id for node in machine.nodes if node.memory] if machine.numa else [0]
    allowed_mems = memory_nodes if mems is None else ids(mems)
    capabilities = bounding if uid == 0 else 0
    fields = {
        "Name": "python3",
        "Umask": "0022",
        "State": "R (running)",
        "Tgid": "4242",
        "Pid": "4242",
        "PPid": "4200",
        "Uid": "\t".join([str(uid)] * 4),
        "Gid": "\t".join([str(uid)] * 4),
        "NSpid": "4242",
        "VmLck": "       0 kB",
        "VmRSS": "   14336 kB",
        "HugetlbPages": "       0 kB",
        "Threads": "1",
        "CapInh": f"{0:016x}",
        "CapPrm": f"{capabilities:016x}",
        "CapEff": f"{capabilities:016x}",
        "CapBnd": f"{bounding:016x}",
        "CapAmb": f"{0:016x}",
        "NoNewPrivs": "0",
        "Seccomp": str(seccomp),
        "Seccomp_filters": "1" if seccomp == 2 else "0",
        "Cpus_allowed": mask(allowed_cpus, machine.present[-1] + 1),
        "Cpus_allowed_list": listed(allowed_cpus),
        "Mems_allowed": mask(allowed_mems, 1024 if machine.numa else 1),
        "Mems_allowed_list": listed(allowed_mems),
    }
    return "\n".join(f"{key}:\t{value}" for key, value in fields.items())


def _process(machine: Machine, files: Files, links: dict[str, str]) -> None:
    files["/proc/self/status"] = status(machine)
    files["/proc/self/comm"] = "python3"
    links.update({f"/proc/self/fd/{number}": "/dev/null" for number in range(3)})
    files["/proc/self/cmdline"] = "python3\0-m\0numadoctor\0check\0"
    files["/proc/self/limits"] = _LIMITS.format(memlock="unlimited")
    files["/proc/self/environ"] = "PATH=/usr/local/bin:/usr/bin:/bin\0HOME=/home/serve\0"
    files["/proc/mounts"] = files["/proc/self/mounts"] = _MOUNTS
    files["/proc/self/cgroup"] = "0::/system.slice/engine.service"
    files["/proc/self/cpuset"] = "/system.slice/engine.service"
    nodes = listed(node.id for node in machine.nodes if node.memory)
    for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/system.slice", _CGROUP):
        files[f"{folder}/cgroup.controllers"] = "cpuset cpu io memory hugetlb pids"
        files[f"{folder}/cpuset.cpus.effective"] = listed(machine.online)
        files[f"{folder}/cpuset.mems.effective"] = nodes
    for folder in ("/sys/fs/cgroup/system.slice", _CGROUP):
        files[f"{folder}/cpuset.cpus"] = files[f"{folder}/cpuset.mems"] = "\n"
        files[f"{folder}/memory.max"] = files[f"{folder}/memory.high"] = "max"
        files[f"{folder}/hugetlb.2MB.max"] = files[f"{folder}/hugetlb.1GB.max"] = "max"


def _devices(machine: Machine, files: Files, links: dict[str, str]) -> None:
    for device in machine.devices:
        above = device.above.split("/")
        folder = f"/sys/devices/{device.above}/{device.address}"
        _function(machine, folder, device, files, links)
        for depth in range(1, len(above)):
            bridge = Device(
                above[depth], "", 0x060400, 0x8086, 0x352A, device.node, link=device.link
            )
            if device.group is not None:
                files[f"/sys/devices/{'/'.join(above[: depth + 1])}/config"] = _config(depth == 1)
            path = "/sys/devices/" + "/".join(above[: depth + 1])
            if f"{path}/class" not in files:
                _function(machine, path, bridge, files, links)


def _function(
    machine: Machine, folder: str, device: Device, files: Files, links: dict[str, str]
) -> None:
    links[f"/sys/bus/pci/devices/{device.address}"] = f"../../../{folder.removeprefix('/sys/')}"
    files[f"{folder}/class"] = f"0x{device.pci_class:06x}"
    files[f"{folder}/vendor"] = f"0x{device.vendor:04x}"
    files[f"{folder}/device"] = f"0x{device.device:04x}"
    if machine.numa:
        files[f"{folder}/numa_node"] = str(device.node)
    near = [cpu for node in machine.nodes if node.id == device.node for cpu in ids(node.cpus)]
    # A device of unknown node is near all CPUs (cpumask_of_pcibus()).
    files[f"{folder}/local_cpulist"] = listed(near or machine.online)
    for name in device.names:
        files[f"{folder}/{name}/uevent"] = ""
    if device.link:
        speed, width = f"{device.link[0]:.1f} GT/s PCIe", str(device.link[1])
        files[f"{folder}/max_link_speed"], files[f"{folder}/max_link_width"] = speed, width
        if device.kind:
            files[f"{folder}/current_link_speed"] = speed
            files[f"{folder}/current_link_width"] = width
    if device.group is not None:
        up = "../" * (folder.count("/") - 1)
        links[f"{folder}/iommu_group"] = f"{up}kernel/iommu_groups/{device.group}"
        files[f"/sys/kernel/iommu_groups/{device.group}/type"] = "identity"
    if device.driver:
        up = "../" * (folder.count("/") - 1)
        links[f"{folder}/driver"] = f"{up}bus/pci/drivers/{device.driver}"
    if device.vendor == 0x10DE and device.pci_class >> 16 == 0x03:
        gpu = f"/proc/driver/nvidia/gpus/{device.address}"
        minor = sum(path.endswith("/information") for path in files)
        files[f"{gpu}/information"] = (
            f"Model: \t\t {_MODELS.get(device.device, 'NVIDIA GPU')}\n"
            f"GPU UUID: \t {uuid(device.address)}\nBus Location: \t {device.address}\n"
            f"Device Minor: \t {minor}"
        )


def _config(redirects: bool) -> str:
    """The configuration space of a port with Access Control Services (PCI Express, 7.7.11)."""
    capability = "\x0d\0\x01\0\x1d\0" + ("\x1d\0" if redirects else "\0\0")
    return "\0" * 256 + capability + "\0" * 248


_MODELS = {
    0x2330: "NVIDIA H100 80GB HBM3",
    0x2342: "NVIDIA GH200 120GB",
    0x2941: "NVIDIA GB200",
    0x2684: "NVIDIA GeForce RTX 4090",
}


def uuid(address: str) -> str:
    """The UUID of the GPU at ``address``: any, and always the same."""
    digits = address.replace(":", "").replace(".", "").rjust(12, "0")
    return f"GPU-{digits[4:12]}-5d1e-4c8b-9f00-{digits[-12:]}"


# In the order of numadoctor.kernel.abi.CALLS: number by ABI, and the answer to
# the probe's form, which the kernel takes or calls invalid.
_CALLS: tuple[tuple[str, dict[str, int], int], ...] = (
    ("mbind", {"x86_64": 237, "ppc64le": 259, "aarch64": 235}, 0),
    ("set_mempolicy", {"x86_64": 238, "ppc64le": 261, "aarch64": 237}, errno.EINVAL),
    ("get_mempolicy", {"x86_64": 239, "ppc64le": 260, "aarch64": 236}, 0),
    ("set_mempolicy_home_node", {"x86_64": 450, "ppc64le": 450, "aarch64": 450}, errno.EINVAL),
    ("move_pages", {"x86_64": 279, "ppc64le": 301, "aarch64": 239}, 0),
    ("migrate_pages", {"x86_64": 256, "ppc64le": 258, "aarch64": 238}, errno.EINVAL),
)
_MODES = ("MPOL_PREFERRED_MANY", "MPOL_WEIGHTED_INTERLEAVE", "MPOL_F_NUMA_BALANCING")
_ADVICE = ("MADV_POPULATE_WRITE", "MADV_COLLAPSE")


# What sysvipc_shm_proc_show() in ipc/shm.c writes where there is no segment.
_NO_SEGMENTS = (
    "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid"
    "      atime      dtime      ctime                   rss                  swap"
)


def _facts(machine: Machine, files: Files, links: dict[str, str]) -> None:
    facts = {
        "syscalls": _syscalls(machine),
        "effect": _effect(machine),
        "features": _features(machine.refused),
        "numactl": {"path": "/usr/bin/numactl", "version": "2.0.19"},
        "sysconf": {"page_size": machine.page_size, "user": 1000},
        "shared_files": {"files": [], "unread": 0},
        "kernel_log": {"visible": True, "lines": [], "records": 1500},
        "nvml": {"unavailable": "nvidia-ml-py is not installed", "driver": None, "gpus": []},
        **machine.facts,
    }
    for name, value in facts.items():
        files[f"/.numadoctor/facts/{name}.json"] = json.dumps(value, indent=1)


def _syscalls(machine: Machine) -> dict[str, Any]:
    calls = []
    for name, numbers, usual in _CALLS:
        answer = machine.refused or usual
        calls.append(
            {
                "name": name,
                "number": numbers[machine.abi],
                "returned": -1 if answer else 0,
                "errno": answer,
                "signal": None,
                "unprobed": None,
            }
        )
    return {"abi": machine.abi, "unprobed": None, "calls": calls}


def _effect(machine: Machine) -> dict[str, Any]:
    pages = [
        {
            "call": call,
            "node": node.id,
            "observed": None if machine.refused else node.id,
            "method": None if machine.refused else "move_pages",
            "errno": machine.refused,
            "signal": None,
            "unprobed": None,
        }
        for node in machine.nodes
        if node.memory
        for call in ("mbind", "set_mempolicy")
    ]
    return {"unprobed": None, "pages": pages}


def _features(refused: int | None) -> dict[str, Any]:
    reason = f"the call is answered {errno.errorcode[refused]}" if refused else None
    mode = {"available": None if refused else True, "errno": refused or 0, "reason": reason}
    home_node = {**mode, "errno": refused or errno.EINVAL}
    if refused == errno.ENOSYS:
        home_node |= {"available": False, "reason": None}
    advice = {"available": True, "errno": 0, "reason": None}
    return {
        **dict.fromkeys(_MODES, mode),
        **dict.fromkeys(_ADVICE, advice),
        "set_mempolicy_home_node": home_node,
    }


def expected(machine: Machine) -> dict[str, Any]:
    """What numadoctor must say of the machine."""
    order = [node.id for node in machine.nodes]
    return {
        "numa": machine.numa,
        "nodes": [
            {
                "id": node.id,
                "kind": node.kind,
                "cpus": [cpu for cpu in ids(node.cpus) if cpu in machine.online],
                "memory_bytes": node.memory * MIB,
                "distances": dict(
                    zip(map(str, order), map(int, node.distance.split()), strict=True)
                ),
            }
            for node in machine.nodes
            if machine.numa
        ],
        "devices": [
            {
                "address": device.address,
                "class": f"0x{device.pci_class:06x}",
                "kind": device.kind,
                "node": device.is_on,
                "node_source": device.source,
            }
            for device in sorted(machine.devices, key=lambda device: device.address)
            if device.kind
        ],
        "findings": sorted(machine.findings),
    }


def write(machine: Machine, folder: Path) -> None:
    """Write the sample to ``folder``, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    files, links = build(machine)
    files["/.numadoctor/links.json"] = json.dumps(dict(sorted(links.items())), indent=1) + "\n"
    for path, text in files.items():
        place = folder / "root" / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
    (folder / "README").write_text("\n".join(machine.about) + "\n")
    (folder / "expected.json").write_text(json.dumps(expected(machine), indent=1) + "\n")


def main() -> None:
    """Write all samples anew."""
    from tests.sample_hosts import MACHINES

    for machine in MACHINES:
        write(machine, FIXTURES / machine.name)


if __name__ == "__main__":
    main()
