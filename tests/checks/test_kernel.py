"""The checks of kernel settings against independent models, and on machines made by chance."""

import errno
import json
from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from numadoctor.checks import _kernel
from numadoctor.checks.kernel_balancing import damon_migration, numa_balancing, numad
from numadoctor.checks.kernel_hugepages import fragmentation, huge_page_pools
from numadoctor.checks.kernel_limits import cpu_governor, kernel_features
from numadoctor.checks.kernel_reclaim import watermarks
from numadoctor.checks.kernel_tiering import tiers_and_weights
from numadoctor.engine import Check
from numadoctor.engine.runner import run
from numadoctor.host import Host
from numadoctor.host.parsers import BuddyRow, parse_buddyinfo
from numadoctor.model import Denied, Finding, Missing, Status, Undecided

NODES = "/sys/devices/system/node"
POOLS = "/sys/kernel/mm/hugepages"


class Files:
    """A root whose files are a dictionary; folders follow from their paths."""

    label = "files"

    def __init__(self, files: Mapping[str, str | int | Undecided], live: bool = False) -> None:
        self.files, self.live = files, live

    def read(self, path: str, limit: int = 0) -> bytes:
        content = self.files.get(path)
        if content is None:
            raise Missing(path, errno.ENOENT)
        if isinstance(content, Undecided):
            raise content
        return str(content).encode()

    def list(self, path: str) -> tuple[str, ...]:
        inside = [p.removeprefix(f"{path}/") for p in self.files if p.startswith(f"{path}/")]
        if not inside:
            raise Missing(path, errno.ENOENT)
        return tuple(sorted({p.partition("/")[0] for p in inside}))

    def link(self, path: str) -> str:
        raise Missing(path, errno.ENOENT)


def machine(nodes: int = 2, memory_kb: int = 1 << 26) -> dict[str, str | int | Undecided]:
    """The files of a machine whose nodes have two CPUs each."""
    files: dict[str, str | int | Undecided] = {
        "/sys/devices/system/cpu/online": f"0-{2 * nodes - 1}",
        "/proc/meminfo": f"MemTotal: {nodes * memory_kb} kB",
        "/.numadoctor/facts/sysconf.json": '{"page_size": 4096}',
    }
    for node in range(nodes):
        folder = f"{NODES}/node{node}"
        files[f"{folder}/cpulist"] = f"{2 * node}-{2 * node + 1}"
        files[f"{folder}/distance"] = " ".join(
            "10" if other == node else "21" for other in range(nodes)
        )
        files[f"{folder}/meminfo"] = f"Node {node} MemTotal: {memory_kb} kB"
    return files


def findings(
    check: Check, files: Mapping[str, str | int | Undecided], live: bool = False
) -> tuple[Finding, ...]:
    return run(Host(Files(files, live)), [check]).findings


def only(check: Check, files: Mapping[str, str | int | Undecided], live: bool = False) -> Finding:
    (finding,) = findings(check, files, live)
    return finding


@pytest.mark.parametrize(
    ("live", "files", "shown"),
    [
        (True, ["/sys/kernel/mm/hugepages/x"], True),
        (False, ["/sys/kernel/mm/hugepages/x"], False),
        (False, ["/sys/kernel/mm/hugepages/x", "/sys/kernel/mm/ksm/run"], True),
        (True, ["/sys/kernel/y"], False),
    ],
)
def test_a_captured_folder_of_pools_alone_tells_nothing_of_the_rest(
    live: bool, files: list[str], shown: bool
) -> None:
    host = Host(Files(dict.fromkeys(files, ""), live))
    assert _kernel.shows(host, "/sys/kernel/mm") is shown


def test_what_is_absent_from_proc_is_absent_from_the_kernel_on_a_live_machine_only() -> None:
    files = machine() | {"/proc/version": "Linux"}
    del files["/.numadoctor/facts/sysconf.json"]
    assert only(fragmentation, files, live=True).status is Status.SKIP
    assert only(fragmentation, files).status is Status.UNKNOWN


@pytest.mark.parametrize("size", [4096, 8192, 16384, 65536])
@given(st.integers(1 << 18, 1 << 33), st.floats(0.9, 1.1))
def test_page_size_follows_from_the_managed_pages(size: int, pages: int, drift: float) -> None:
    low = pages // 7
    files: dict[str, str | int | Undecided] = {
        "/proc/meminfo": f"MemTotal: {int(pages * size * drift) // 1024} kB",
        "/proc/zoneinfo": f"Node 0, zone DMA32\n managed {low}\n"
        f"Node 1, zone Normal\n managed {pages - low}\n",
    }
    assert _kernel.page_size(Host(Files(files))) == size


@pytest.mark.parametrize("meminfo", ["MemTotal: 0 kB", "MemFree: 12 kB"])
def test_page_size_is_not_guessed(meminfo: str) -> None:
    files: dict[str, str | int | Undecided] = {
        "/proc/meminfo": meminfo,
        "/proc/zoneinfo": "Node 0, zone Normal\n managed 1000\n",
    }
    with pytest.raises(Undecided):
        _kernel.page_size(Host(Files(files)))


POLICIES = st.sampled_from(
    ["default", "bind:0", "interleave:0-1", "weighted interleave:0-1", "prefer (many):0", "local",
     "bind=static|balancing:0", "prefer:1", "bind=relative:0-1"]
)  # fmt: skip


@given(st.lists(st.tuples(POLICIES, st.booleans()), min_size=1))
def test_balancing_is_harmless_only_if_no_mapping_is_left_to_it(
    mappings: list[tuple[str, bool]],
) -> None:
    lines = [
        f"{0x7F0000000000 + number:x} {policy} file=/a\\040default"
        + (" huge dirty=1 N0=1 kernelpagesize_kB=2048" if huge else " anon=1 N0=1")
        for number, (policy, huge) in enumerate(mappings)
    ]
    files = machine() | {
        "/proc/sys/kernel/numa_balancing": 1,
        "/proc/self/numa_maps": "\n".join(lines) + "\n",
    }
    left = [policy for policy, huge in mappings if not huge]
    exposed = any(policy == "default" or "balancing" in policy for policy in left)
    finding = only(numa_balancing, files)
    if exposed or not left:
        assert finding.status is Status.WARN
    else:
        assert finding.status is Status.INFO
        assert all(policy in finding.message for policy in left)


@given(st.integers(0, 3))
def test_the_fix_for_balancing_keeps_the_other_bit(value: int) -> None:
    finding = only(numa_balancing, machine() | {"/proc/sys/kernel/numa_balancing": value})
    commands = [fix.text for fix in finding.fixes if fix.text.startswith("sysctl")]
    assert commands == ([f"sysctl -w kernel.numa_balancing={value & 2}"] if value & 1 else [])


def pool_files(counts: Mapping[int, tuple[int, int]], kb: int = 2048) -> dict[str, int]:
    files = {f"{POOLS}/hugepages-{kb}kB/nr_hugepages": sum(total for total, _ in counts.values())}
    for node, (total, free) in counts.items():
        folder = f"{NODES}/node{node}/hugepages/hugepages-{kb}kB"
        files |= {f"{folder}/nr_hugepages": total, f"{folder}/free_hugepages": free}
    return files


@given(st.lists(st.integers(0, 40) | st.integers(0, 1 << 20), min_size=2, max_size=8))
def test_uneven_pools_are_made_even_by_the_fixes(counts: list[int]) -> None:
    assume(any(counts))
    pools = {node: (count, count) for node, count in enumerate(counts)}
    files = machine(len(counts)) | pool_files(pools)
    finding = next(f for f in findings(huge_page_pools, files) if f.subject == "2 MiB pages")
    most, least = max(counts), min(counts)
    if most - least <= 1 or (most - least) * 10 <= most:
        assert finding.status is Status.PASS
        return
    assert finding.status is Status.WARN
    commands = [fix.text for fix in finding.fixes if fix.launcher == "sysfs"]
    for command in commands:
        value, path = command.removeprefix("echo ").split(" > ")
        assert int(files[path]) < int(value)  # type: ignore[arg-type]
        files[path] = int(value)
    assert only(huge_page_pools, files).status is Status.PASS
    boot = next(fix.text for fix in finding.fixes if fix.launcher == "grub")
    assert boot == "hugepagesz=2M hugepages=" + ",".join(f"{n}:{most}" for n in pools)


@given(st.integers(0, 1 << 18), st.sampled_from([64, 2048, 32768, 524288, 1048576, 16777216]))
def test_a_pool_is_told_in_bytes_of_its_own_page_size(count: int, kb: int) -> None:
    finding = only(huge_page_pools, pool_files({}, kb) | {
        f"{POOLS}/hugepages-{kb}kB/nr_hugepages": count, f"{NODES}/possible": "0",
        **{path: text for path, text in machine(1).items() if "cpu" in path},
    })  # fmt: skip
    from numadoctor.model.units import amount

    if count:
        assert amount(count * kb * 1024) in finding.message
        assert f"{count:,} pages of {amount(kb * 1024)}" in finding.message
    else:
        assert finding.status is Status.SKIP


COUNTS = st.lists(st.integers(0, 100_000), min_size=11, max_size=11)


@given(st.lists(st.tuples(st.integers(0, 1), COUNTS), min_size=1, max_size=4))
def test_large_blocks_are_those_of_2_mib(rows: list[tuple[int, list[int]]]) -> None:
    text = "".join(
        f"Node {node}, zone {'Normal' if number else 'DMA32':>8} {' '.join(map(str, counts))}\n"
        for number, (node, counts) in enumerate(rows)
    )
    assert parse_buddyinfo(text.encode())[0] == BuddyRow(rows[0][0], "DMA32", tuple(rows[0][1]))
    found = findings(fragmentation, machine() | {"/proc/buddyinfo": text})
    for node in (0, 1):
        mine = [counts for n, counts in rows if n == node]
        free = sum(count << (12 + order) for counts in mine for order, count in enumerate(counts))
        large = sum((c[9] << 21) + (c[10] << 22) for c in mine)
        verdicts = [f.status for f in found if f.subject == f"node {node}"]
        if not free:
            assert verdicts == []
        elif 2 * large >= free:
            assert verdicts == [Status.PASS]
        else:
            little = free * 20 < (1 << 36)
            assert verdicts == [Status.INFO if little or 10 * large >= free else Status.WARN]


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 19), st.integers(0, 1 << 19))
def test_a_node_is_judged_by_its_watermarks(free: int, low: int, gap: int) -> None:
    def zone(node: int, name: str, free: int) -> str:
        return (
            f"Node {node}, zone {name}\n pages free {free}\n min {low // 2}\n low {low}\n"
            f" high {low + gap}\n managed {1 << 30}\n pagesets\n"
        )

    text = zone(0, "DMA", 1 << 19) + zone(0, "Normal", free) + zone(1, "Normal", 1 << 29)
    found = findings(watermarks, machine() | {"/proc/zoneinfo": text})
    expected = Status.WARN if free < low else Status.INFO if free < low + gap else Status.PASS
    assert {f.subject: f.status for f in found} == {"node 0": expected, "node 1": Status.PASS}


@given(st.lists(st.integers(1, 255), min_size=2, max_size=6), st.booleans())
def test_weights_are_judged_among_the_sockets(weights: list[int], automatic: bool) -> None:
    folder = "/sys/kernel/mm/mempolicy/weighted_interleave"
    files = machine(len(weights)) | {
        f"{folder}/node{node}": weight for node, weight in enumerate(weights)
    }
    finding = only(tiers_and_weights, files | {f"{folder}/auto": str(automatic).lower()})
    if len(set(weights)) == 1:
        assert finding.status is Status.PASS
        return
    assert finding.status is (Status.INFO if automatic else Status.WARN)
    commands = {fix.text for fix in finding.fixes if fix.launcher == "sysfs"}
    assert commands == {
        f"echo {min(weights)} > {folder}/node{node}"
        for node, weight in enumerate(weights)
        if weight != min(weights)
    }


SERVICES = "/sys/fs/cgroup/system.slice"
JOURNAL = {f"{SERVICES}/systemd-journald.service/cgroup.procs": "1"}
KTHREADD = {"/proc/2/comm": "kthreadd"}


@pytest.mark.parametrize(
    ("live", "files", "status"),
    [
        # A container that runs systemd has services of its own.
        (True, JOURNAL, Status.UNKNOWN),
        (True, JOURNAL | KTHREADD, Status.PASS),
        (True, KTHREADD, Status.PASS),
        (True, {"/proc/2/comm": "bash"}, Status.UNKNOWN),
        (True, KTHREADD | {"/proc/900/comm": "numad"}, Status.WARN),
        # With services to go by, no process is read.
        (True, JOURNAL | KTHREADD | {"/proc/900/comm": "numad"}, Status.PASS),
        (True, JOURNAL | {f"{SERVICES}/numad.service/cgroup.procs": "9"}, Status.WARN),
        (False, JOURNAL, Status.PASS),
        (False, {}, Status.UNKNOWN),
        (True, {"/run/numad.pid": "7", "/proc/7/comm": "numad"}, Status.WARN),
        (True, {"/run/numad.pid": "7", "/proc/7/comm": "numademo"}, Status.UNKNOWN),
    ],
)
def test_numad_is_absent_only_where_the_machine_is_seen(
    live: bool, files: dict[str, str], status: Status
) -> None:
    assert only(numad, machine() | files, live).status is status


def test_damon_that_may_not_be_read_is_unknown_even_if_a_module_is_off() -> None:
    folder = "/sys/kernel/mm/damon/admin/kdamonds"
    files = machine() | {
        f"{folder}/nr_kdamonds": Denied(f"{folder}/nr_kdamonds", errno.EACCES),
        "/sys/module/damon_reclaim/parameters/enabled": "N",
    }
    # No thread is configured: there is nothing of which the state would be needed.
    assert only(damon_migration, files).status is Status.PASS
    files[f"{folder}/0/state"] = Denied(f"{folder}/0/state", errno.EACCES)
    assert only(damon_migration, files).status is Status.UNKNOWN


@given(
    st.dictionaries(
        st.integers(0, 7), st.sampled_from(["performance", "schedutil", "powersave"]), min_size=1
    )
)
def test_each_governor_is_named_with_its_cpus(by_cpu: dict[int, str]) -> None:
    files = machine(4)
    for cpu, name in by_cpu.items():
        folder = f"/sys/devices/system/cpu/cpufreq/policy{cpu}"
        files |= {f"{folder}/scaling_governor": name, f"{folder}/scaling_driver": "acpi-cpufreq"}
    finding = only(cpu_governor, files)
    used = set(by_cpu.values())
    if len(used) > 1:
        assert finding.status is Status.WARN
        assert all(name in finding.message for name in used)
        for node in range(4):
            mine = {by_cpu[cpu] for cpu in (2 * node, 2 * node + 1) if cpu in by_cpu}
            assert len(mine) < 2 or f"node {node}" not in finding.message
    else:
        expected = {"performance": Status.PASS, "schedutil": Status.INFO, "powersave": Status.WARN}
        assert finding.status is expected[used.pop()]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
RECORD = st.fixed_dictionaries(
    {"available": st.none() | st.booleans(), "errno": st.integers(), "reason": st.none()}
)


@given(
    JSON | st.dictionaries(st.sampled_from(["MADV_COLLAPSE", "MPOL_PREFERRED_MANY"]), RECORD | JSON)
)
def test_a_recorded_fact_of_any_form_is_never_taken_for_more_than_it_says(answer: object) -> None:
    files = machine() | {"/.numadoctor/facts/features.json": json.dumps(answer)}
    found = findings(kernel_features, files)
    # Four of the six features are never answered.
    assert found[0].status is Status.UNKNOWN
    assert not any(f.status is Status.ERROR for f in found)
    if isinstance(answer, dict):
        lacking = [
            name
            for name, record in answer.items()
            if isinstance(record, dict) and record.get("available") is False
        ]
        told = " ".join(f.message for f in found if f.status is Status.INFO)
        known = {"MADV_COLLAPSE", "MPOL_PREFERRED_MANY"}
        assert all(name in told for name in lacking if name in known)
