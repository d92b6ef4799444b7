"""Genuine text for every parser, and ways to damage it."""

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st

from numadoctor.host import parsers

NCCL = b"""\
<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:15:01.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="00000000:18:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="3" gdr="1">
          <nvlink target="ffff:ff:ff.0" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:17:00.0" class="0x020700" link_speed="Unknown" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="-1"/>
</system>
"""


class Sample(NamedTuple):
    """A parser and text that it understands; ``lines``: blanks at line ends mean nothing in it."""

    parse: Callable[[bytes], object]
    text: bytes
    lines: bool = True


STATUS = b"""\
Name:\tpython3
Umask:\t0022
State:\tS (sleeping)
Tgid:\t4242
Ngid:\t0
Pid:\t4243
PPid:\t1
TracerPid:\t0
Uid:\t1000\t1001\t1002\t1003
Gid:\t1000\t1000\t1000\t1000
NStgid:\t4242\t7
NSpid:\t4243\t8
VmLck:\t      64 kB
VmRSS:\t    1624 kB
RssAnon:\t    1000 kB
RssFile:\t     600 kB
RssShmem:\t      24 kB
VmSwap:\t      12 kB
HugetlbPages:\t 1048576 kB
Threads:\t40
CapInh:\t0000000000000001
CapPrm:\t000001fffeffffff
CapEff:\t00000000a80425fb
CapBnd:\t00000000a88425fb
CapAmb:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
Seccomp_filters:\t3
Speculation_Store_Bypass:\tthread vulnerable
Cpus_allowed:\tff,0000ffff
Cpus_allowed_list:\t0-15,32-39
Mems_allowed:\t00000000,00000001,00000101
Mems_allowed_list:\t0,8,32
voluntary_ctxt_switches:\t12
"""

LIMITS = b"""\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max stack size            8388608              unlimited            bytes     
Max locked memory         8388608              16777216             bytes     
Max nice priority         0                    0                    
"""  # noqa: W291

CGROUP = b"""\
9:name=systemd:/user.slice
7:cpu,cpuacct:/
3:cpuset:/slurm/uid_1000/job_77/step:0
0::/kubepods.slice/kubepods-pod1.slice
"""

MEMINFO = b"""\
MemTotal:       263858176 kB
MemFree:        12345 kB
Active(anon):      112 kB
HugePages_Total:      20
Hugepagesize:       2048 kB
DirectMap1G:     1048576 kB
"""

NODE_MEMINFO = b"""\

Node 8 MemTotal:       134217728 kB
Node 8 MemFree:        3755128 kB
Node 8 FilePages:          18554 kB
Node 8 HugePages_Total:    10
Node 8 HugePages_Free:      0
"""

NUMASTAT = b"""\
numa_hit 1218606
numa_miss 0
numa_foreign 3
interleave_hit 1141
local_node 1218606
other_node 0
"""

BUDDYINFO = b"""\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 
Node 0, zone   Normal   1013    589    601    528    629    391    235    144     80     48     51 
Node 8, zone  Movable      1      2      3
"""  # noqa: W291

ZONEINFO = b"""\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 1202
      nr_free_pages 17
  pages free     3840
        boost    0
        min      40
        low      50
        high     60
        promo    70
        spanned  4095
        present  3998
        managed  3841
        cma      0
        protection: (0, 3018, 6218, 6218, 6218)
      nr_free_pages 3840
      numa_hit     0
  pagesets
    cpu: 0
              count:    0
              high:     378
              high_min: 25
  vm stats threshold: 4
  node_unreclaimable:  0
  start_pfn:           1
Node 8, zone  Movable
  pages free     0
        min      32
        low      33
        high     34
        spanned  0
        present  0
        managed  0
        protection: (0, 0, 0, 0, 0)
"""

COMMAND_LINE = (
    b"BOOT_IMAGE=/vmlinuz root=UUID=1-2 ro quiet numa_balancing=0 console=tty0 "
    b'console=ttyS0,115200 dyndbg="file mm +p" "note=a b" hugepagesz=1G -- single\n'
)

MOUNTS = rb"""proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
tmpfs /dev/shm tmpfs rw,nosuid,size=24683656k,mpol=bind=static:0,2-3,8,inode64 0 0
/dev/sda1 /mnt/a\040b\134c ext4 rw,errors=remount-ro 0 0
cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0
"""

MOUNTINFO = rb"""25 24 0:23 / /dev/shm rw,nosuid shared:4 master:1 - tmpfs tmpfs rw,size=24683656k
36 35 98:0 /a\040b /mnt rw,noatime - ext3 /dev/root rw,errors=continue
"""

SWAPS = b"""\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/dm-1                               partition\t8388604\t\t512\t\t-2
/swap\\040file                           file\t\t1024\t\t0\t\t5
"""

CPUINFO = b"""\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC 7763
flags\t\t: fpu vme hypervisor avx2
power management:

processor\t: 1
vendor_id\t: SecondProcessor
flags\t\t: other
"""

MAPS = rb"""00400000-00452000 r-xp 00001000 fd:10 173521                             /usr/bin/a b
7f1000000000-7f1040000000 rw-s 00000000 00:11 5                          /SYSV00000000 (deleted)
7f2000000000-7f2000002000 rw-p 00000000 00:00 0                          [anon:kv pool]
"""

NUMA_MAPS = rb"""00400000 default file=/usr/bin/a\040b mapped=2 N0=2 kernelpagesize_kB=4
7f1000000000 prefer (many):0 file=/SYSV00000000\040(deleted) huge dirty=9 N0=5 N8=4
7f2000000000 bind=static|balancing:0,8 heap anon=9 active=0 N8=9 kernelpagesize_kB=64
"""

SMAPS = b"""\
7f1000000000-7f1040000000 rw-s 00000000 00:11 5                          /pool (deleted)
Size:            1048576 kB
Private_Hugetlb: 1048576 kB
VmFlags: rd wr sh mr mw me ms de ht
7f2000000000-7f2000001000 rw-p 00000000 00:00 0
Rss:                   4 kB
"""

STAT = (
    b"4242 (a) (b) S 1 4242 4242 0 -1 4194304 98 7 3 0 11 12 0 0 20 0 40 0 178892 3133440 381 "
    b"18446744073709551615 1 2 3 0 0 0 0 0 0 0 0 0 17 65 0 0 0 0 0\n"
)

SCHED = b"""\
python3 (4242, #threads: 40)
-------------------------------------------------------------------
se.exec_start                                :       1776321.104137
numa_pages_migrated                          :                  512
current_node=0, numa_group_id=0
numa_faults node=0 task_private=1 task_shared=2 group_private=3 group_shared=4
"""

SYSV = b"""\
       key      shmid perms                  size  cpid  lpid nattch   uid       rss        swap
-559038737          7  1600           68719476736  4242  4243      3  1000 68719476736        0
"""

SAMPLES = {
    "list": Sample(parsers.parse_list, b"0-3,8,250-255\n"),
    "stride": Sample(parsers.parse_list, b"0-1023:2/256\n"),
    "isolcpus": Sample(parsers.parse_isolcpus, b"domain,managed_irq,1-3,9"),
    "map": Sample(parsers.parse_map, b"ff,00000000,0000ffff\n"),
    "mask_digits": Sample(parsers.mask_digits, b"0xff,00000000\n"),
    "integer": Sample(parsers.parse_integer, b"-1\n"),
    "hex": Sample(parsers.parse_hex, b"0x030200\n"),
    "size": Sample(parsers.parse_size, b"2048kB\n"),
    "weight": Sample(parsers.parse_weight, b"255\n"),
    "flag": Sample(parsers.parse_flag, b"enabled\n"),
    "choice": Sample(parsers.parse_choice, b"always [madvise] never\n"),
    "words": Sample(parsers.parse_words, b"cpuset cpu io memory hugetlb\n"),
    "text": Sample(parsers.parse_text, b"AMD EPYC\n"),
    "distance": Sample(parsers.parse_distance, b" 10 17 32\n"),
    "meminfo": Sample(parsers.parse_meminfo, MEMINFO),
    "node_meminfo": Sample(parsers.parse_meminfo, NODE_MEMINFO),
    "counters": Sample(parsers.parse_counters, NUMASTAT),
    "buddyinfo": Sample(parsers.parse_buddyinfo, BUDDYINFO),
    "zoneinfo": Sample(parsers.parse_zoneinfo, ZONEINFO),
    "status": Sample(parsers.parse_status, STATUS),
    "argv": Sample(parsers.parse_argv, b"python3\0-m\0vllm\0--flag=a b\0", lines=False),
    "environ": Sample(parsers.parse_environ, b"A=1\0B=x=y\0A=2\0", lines=False),
    "limits": Sample(parsers.parse_limits, LIMITS),
    "cgroup": Sample(parsers.parse_proc_cgroup, CGROUP),
    "command_line": Sample(parsers.parse_command_line, COMMAND_LINE),
    "mounts": Sample(parsers.parse_mounts, MOUNTS),
    "mountinfo": Sample(parsers.parse_mountinfo, MOUNTINFO),
    "cgroup_limit": Sample(parsers.parse_cgroup_limit, b"274877906944\n"),
    "swaps": Sample(parsers.parse_swaps, SWAPS),
    "cpuinfo": Sample(parsers.parse_cpuinfo, CPUINFO),
    "key_values": Sample(parsers.parse_key_values, b"Node:      255\nStatus:    online\n"),
    "acs": Sample(
        parsers.parse_acs, bytes(256) + bytes.fromhex("0d000114 7f005f00") + bytes(256), False
    ),
    "kfd_properties": Sample(
        parsers.parse_kfd_properties, b"cpu_cores_count 0\nlocation_id 768\nunique_id 17\n"
    ),
    "link_speed": Sample(parsers.parse_link_speed, b"16.0 GT/s PCIe\n", False),
    "nccl_topology": Sample(parsers.parse_nccl_topology, NCCL, lines=False),
    "maps": Sample(parsers.parse_maps, MAPS, lines=False),
    "backing": Sample(parsers.parse_backing, b"rw-s 00000000 00:01 5  /dev/zero", lines=False),
    "numa_maps": Sample(parsers.parse_numa_maps, NUMA_MAPS, lines=False),
    "smaps": Sample(parsers.parse_smaps, SMAPS, lines=False),
    "smaps_rollup": Sample(parsers.parse_smaps_rollup, SMAPS, lines=False),
    "stat": Sample(parsers.parse_stat, STAT),
    "sched": Sample(parsers.parse_sched, SCHED),
    "sysvipc_shm": Sample(parsers.parse_sysvipc_shm, SYSV),
    "oom_kill": Sample(
        parsers.parse_oom_kill,
        b"oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=1,cpuset=/,mems_allowed=0-1,"
        b"global_oom,task_memcg=/system.slice/vllm.service,task=vllm,pid=4242,uid=1000",
        False,
    ),
    "policy": Sample(
        lambda data: parsers.parse_policy(data.decode("latin-1")), b"bind=static:0-1,8", False
    ),
    "page_size_dir": Sample(
        lambda data: parsers.parse_page_size_dir(data.decode("latin-1")), b"hugepages-2048kB", False
    ),
    "bus_id": Sample(
        lambda data: parsers.parse_bus_id(data.decode("latin-1")), b"00000000:C1:0.1", False
    ),
    "numbered": Sample(
        lambda data: parsers.numbered(data.decode("latin-1").split(), "node"), b"node0 node8", False
    ),
}

# Fragments that break parsers: signs, huge numbers, other digits, separators, blanks, escapes.
_TOKENS = rb"""
, : - + / = " \ [ ] 0x _ 1e3 -1 \777 kB unlimited max Node zone pages free mpol= --
"""
_FRAGMENTS = [
    *_TOKENS.split(),
    *[b"", b"\0", b"\n", b"\r\n", b" ", b"\t", b" - ", b"Node 0, zone", b"\x1b[31m"],
    *[b"9" * 19, b"9" * 5000, b"0" * 70, b"f" * 20_000],
    *["\u0663".encode(), "\u00b2".encode(), b"\x80", b"\xff", b"\x85", b"\x1c"],
]

# Each four bytes are one edit. Drawn as plain bytes because that is five times as fast.
EDITS = st.binary(min_size=4, max_size=24)


def damaged(text: bytes, edits: bytes) -> bytes:
    """``text`` after cuts, repetitions, changed bytes and fragments put in place of its parts."""
    for high, low, third, fourth in zip(*[iter(edits)] * 4, strict=False):
        start = (high << 8 | low) % (len(text) + 1)
        part, rest = text[start : start + third % 13], text[start + third % 13 :]
        kind = fourth % (len(_FRAGMENTS) + 6)
        if kind < len(_FRAGMENTS):
            part = _FRAGMENTS[kind]
        elif kind < len(_FRAGMENTS) + 2:
            part *= 2
        elif kind < len(_FRAGMENTS) + 5:
            part = part[:-1] + bytes([third])
        else:
            rest = b""
        text = text[:start] + part + rest
    return text
