"""A captured machine with an engine of three processes that share a pool, as files."""

from collections.abc import Mapping

from numadoctor.host import Host
from numadoctor.model import Undecided
from tests.memory import MemoryRoot
from tests.trees import fact

PAGE = 4096


def status(name: str, pid: int, uid: int = 1000, rss_kb: int = 4096) -> str:
    return (
        f"Name:\t{name}\nPid:\t{pid}\nTgid:\t{pid}\nNSpid:\t{pid}\t7\nThreads:\t3\n"
        f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nVmRSS:\t{rss_kb} kB\nVmLck:\t0 kB\nVmSwap:\t8 kB\n"
        "HugetlbPages:\t0 kB\n"
    )


def stat(
    name: str, pid: int, parent: int, start: int = 100, state: str = "S", flags: int = 0x400000
) -> str:
    rest = f"4242 4242 0 -1 {flags} 98 7 3 0 11 12 0 0 20 0 3 0"
    return f"{pid} ({name}) {state} {parent} {rest} {start} 3133440 381 {'0 ' * 28}\n"


MAPS = """\
00400000-00402000 r-xp 00000000 fd:00 7                                  /opt/engine
10000000-10004000 rw-p 00000000 00:00 0                                  [heap]
40000000-50000000 rw-s 00000000 00:01 5                                  /dev/shm/pool
60000000-60800000 rw-p 00000000 00:00 0                                  [anon:weights]
"""

# The first has all of the pool in its page tables, the others a part.
NUMA_MAPS = """\
00400000 default file=/opt/engine mapped=2 N0=2 kernelpagesize_kB=4
10000000 default heap anon=4 dirty=4 N0=3 N1=1 kernelpagesize_kB=4
40000000 interleave:0-1 file=/dev/shm/pool dirty={pool} N0={half} N1={half} kernelpagesize_kB=4
60000000 bind:1 anon=2048 N1=2048 kernelpagesize_kB=4
"""

SMAPS = """\
60000000-60800000 rw-p 00000000 00:00 0                                  [anon:weights]
Size:               8192 kB
AnonHugePages:      6144 kB
Swap:                128 kB
VmFlags: rd wr mr mw me ac hg
"""


def engine() -> dict[str, str]:
    """Pid 10 and its children 11 and 12; and 20, which is somebody else's."""
    files = {"/proc": "1 10 11 12 20 self sys", fact("sysconf"): '{"page_size": 4096, "user": 0}'}
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}
    for pid, parent in parents.items():
        name = {1: "init", 20: "other"}.get(pid, "engine")
        files[f"/proc/{pid}/stat"] = stat(name, pid, parent)
        files[f"/proc/{pid}/status"] = status(name, pid)
        files[f"/proc/{pid}/cmdline"] = f"/opt/{name}\0--port\0{pid}\0"
        files[f"/proc/{pid}/cgroup"] = "0::/system.slice/engine.service\n"
    for pid, half in {10: 32768, 11: 32768, 12: 100}.items():
        files[f"/proc/{pid}/maps"] = MAPS
        files[f"/proc/{pid}/numa_maps"] = NUMA_MAPS.format(pool=2 * half, half=half)
    files["/proc/10/smaps"] = SMAPS
    files["/proc/20/cgroup"] = (
        "12:memory:/docker/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
    )
    files["/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"] = "2097152\n"
    return files


def host(changes: Mapping[str, str | Undecided | None] | None = None) -> Host:
    """The machine with other content for some files; None takes one away."""
    files: dict[str, str | bytes | Undecided] = {**engine()}
    for path, content in (changes or {}).items():
        if content is None:
            del files[path]
        else:
            files[path] = content
    return Host(MemoryRoot(files))
