"""What operators took for something else, and numadoctor must not: kinds, page sizes, residency."""

from pathlib import Path

from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run
from numadoctor.engine.targets import find_targets
from numadoctor.host import FolderRoot, Host
from numadoctor.model import Finding, Status
from numadoctor.model.placement import Kind
from numadoctor.placement import place
from numadoctor.placement.examination import examination
from tests.trees import Tree

GIB, MIB = 1 << 30, 1 << 20
CATALOGUE = discover()

STATUS = """\
Name:	engine
Pid:	7
Threads:	1
Uid:	1000	1000	1000	1000
VmLck:	       0 kB
VmRSS:	       {rss} kB
VmSwap:	       0 kB
HugetlbPages:	 {huge} kB
Cpus_allowed_list:	0-31
Mems_allowed_list:	0-1
"""


def host(scratch: Path, numa_maps: str, maps: str = "", rss: int = 0, huge: int = 0) -> Host:
    files = {
        "/proc/7/status": STATUS.format(rss=rss, huge=huge),
        "/proc/7/stat": f"7 (engine) S 1 {'0 ' * 46}\n",
        "/proc/7/numa_maps": numa_maps,
        "/proc/7/task/7/status": STATUS.format(rss=rss, huge=huge),
        **({"/proc/7/maps": maps} if maps else {}),
    }
    tree = Tree(base="two-socket", files=files, links={"/proc/7/fd/0": "/dev/null"})
    return Host(FolderRoot(str(tree.build(scratch / "root"))))


def findings(machine: Host, *ids: str) -> dict[str, list[Finding]]:
    targets, _ = find_targets(machine, [7])
    checks = [CATALOGUE.checks[id] for id in ids]
    found: dict[str, list[Finding]] = {id: [] for id in ids}
    for finding in run(machine, checks, targets).findings:
        found[finding.id].append(finding)
    return found


KINDS = """\
7f0000000000 default file=/SYSV00000000\\040(deleted) dirty=32768 N0=32768 kernelpagesize_kB=4
7f1000000000 default file=/dev/zero\\040(deleted) dirty=32768 N0=32768 kernelpagesize_kB=4
7f2000000000 default file=/dev/hugepages/kv huge dirty=10 N0=10 kernelpagesize_kB=2048
7f3000000000 default huge anon=10 dirty=10 N0=10 kernelpagesize_kB=2048
"""
KINDS_MAPS = """\
7f0000000000-7f0008000000 rw-s 00000000 00:01 32769                      /SYSV00000000 (deleted)
7f1000000000-7f1008000000 rw-s 00000000 00:01 5                          /dev/zero (deleted)
7f2000000000-7f2001400000 rw-s 00000000 00:2b 12                         /dev/hugepages/kv
7f3000000000-7f3001400000 rw-p 00000000 00:10 31                         /anon_hugepage (deleted)
"""


def test_shared_memory_is_no_page_cache_and_huge_pages_have_their_size(scratch: Path) -> None:
    machine = host(scratch, KINDS, KINDS_MAPS, rss=262144, huge=40960)
    placed = {p.mapping.start: p for p in place(machine, find_targets(machine, [7])[0]).mappings}
    told = [(p.mapping.kind, p.resident) for _, p in sorted(placed.items())]
    assert told == [
        (Kind.SYSV, 128 * MIB),
        (Kind.SHARED_ANONYMOUS, 128 * MIB),
        (Kind.HUGETLB, 20 * MIB),
        (Kind.HUGETLB, 20 * MIB),
    ]
    assert findings(machine, "P005")["P005"][0].status is Status.SKIP


def test_small_huge_pages_are_not_those_of_the_default_size(scratch: Path) -> None:
    """20 MiB in pages of 2 MiB, where the default size is 1 GiB."""
    line = "7f2000000000 bind:0 file=/mnt/huge2m/kv huge dirty=10 N0=10 kernelpagesize_kB=2048\n"
    machine = host(scratch, line, huge=20480)
    found = place(machine, find_targets(machine, [7])[0])
    assert found.resident == 20 * MIB
    passed = findings(machine, "P009")["P009"][0]
    assert passed.status is Status.PASS
    assert "20 MiB" in passed.message


def test_huge_pages_are_resident_though_rss_leaves_them_out(scratch: Path) -> None:
    line = (
        "7f2000000000 bind:0 file=/dev/hugepages/kv huge dirty=512 N0=512 kernelpagesize_kB=2048\n"
    )
    machine = host(scratch, line, rss=0, huge=1 << 20)
    found = examination(machine, find_targets(machine, [7])[0])
    assert found.processes[7].resident == GIB
    assert found.placement.resident == GIB
    assert findings(machine, "P022")["P022"][0].status is Status.PASS


def test_a_few_pages_of_an_own_kind_are_not_lost(scratch: Path) -> None:
    """95 pages bound to node 1, and a library on node 0: bound right, no fault."""
    lines = (
        "7f0000000000 bind:1 anon=95 dirty=95 N1=95 kernelpagesize_kB=4\n"
        "7f1000000000 bind:1 file=/usr/lib/libtorch.so mapped=76800 N0=76800 kernelpagesize_kB=4\n"
    )
    maps = (
        "7f0000000000-7f000005f000 rw-p 00000000 00:00 0 \n"
        "7f1000000000-7f1012c00000 r-xp 00000000 fd:00 55                 /usr/lib/libtorch.so\n"
    )
    found = findings(host(scratch, lines, maps, rss=307580), "P005", "P009")
    assert [f.status for f in found["P009"]] == [Status.PASS]
    assert [f.status for f in found["P005"]] == [Status.INFO]


def test_65_000_mappings_are_nearly_all_that_a_process_may_have(scratch: Path) -> None:
    base, step = 0x7F0000000000, 2 * MIB
    starts = [base + 2 * step * number for number in range(65_000)]
    maps = "".join(f"{s:x}-{s + step:x} rw-p 00000000 00:00 0 \n" for s in starts)
    pages = "anon=512 dirty=512 N0=512 kernelpagesize_kB=4"
    numa = "".join(f"{s:x} bind:{i % 2} {pages}\n" for i, s in enumerate(starts))
    machine = host(scratch, numa, maps, rss=65_000 * 2048)
    limit = scratch / "root" / "proc" / "sys" / "vm" / "max_map_count"
    limit.unlink()
    limit.write_text("65530\n")
    (found,) = findings(machine, "P017")["P017"]
    assert found.status is Status.FAIL
    assert "65,000 mappings of 65,530" in found.message
    assert any(fix.text.startswith("sysctl -w vm.max_map_count=") for fix in found.fixes)


def test_a_pool_cut_into_slabs_is_judged_together(scratch: Path) -> None:
    """Ten thousand mappings of 1 MiB without a policy, on a node without the process's GPU."""
    base, step = 0x7F0000000000, MIB
    starts = [base + 2 * step * number for number in range(10_000)]
    maps = "".join(f"{s:x}-{s + step:x} rw-p 00000000 00:00 0 \n" for s in starts)
    numa = "".join(f"{s:x} default anon=256 N0=256 kernelpagesize_kB=4\n" for s in starts)
    machine = host(scratch, numa, maps, rss=10_000 * 1024)
    link = scratch / "root" / "proc" / "7" / "fd" / "3"
    link.symlink_to("/dev/nvidia4")
    found = findings(machine, "P001", "P009")
    assert [f.status for f in found["P001"]] == [Status.FAIL]
    assert found["P001"][0].subject == "engine: small mappings together"
    assert [f.status for f in found["P009"]] == [Status.UNKNOWN]
