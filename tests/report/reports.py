"""Reports that no examination made: one with a bit of everything, and generated ones."""

from hypothesis import strategies as st

from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Location,
    Report,
    Severity,
    Status,
    Suppression,
)

NASTY = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202eevil\u2066",
    "\u200b\u200d\ufeff",
    "a\nFAIL  T001  forged",
    "a\r\nb\rc\x0b\x0c\x1c\x85\u2028\u2029",
    "\0",
    "\x7f\b\b\b",
    "\udc80\ud800",
    "\U000e0041\ue000\U0010ffff",
    "漢字かな",
    "e\u0301",
    "\xa0\u3000",
    "\t",
    "",
]
CHARACTERS = st.characters(exclude_categories=())
HOSTILE = st.one_of(st.sampled_from(NASTY), st.text(CHARACTERS, max_size=120))

EVIDENCE = st.builds(Evidence, HOSTILE, HOSTILE)
FIX = st.builds(Fix, HOSTILE, HOSTILE, st.booleans(), st.booleans(), st.booleans())
NUMBER = st.none() | st.integers(1, 10**9)
LOCATION = st.builds(Location, HOSTILE.filter(bool), NUMBER, NUMBER)
SUPPRESSION = st.builds(
    Suppression,
    st.sampled_from(["waiver", "baseline"]),
    HOSTILE,
    st.sampled_from(["", "2026-12-31"]),
)


def findings(*, most_fixes: int = 3) -> st.SearchStrategy[Finding]:
    return st.builds(
        Finding,
        status=st.sampled_from(Status),
        message=HOSTILE,
        subject=HOSTILE,
        cause=HOSTILE,
        evidence=st.lists(EVIDENCE, max_size=8).map(tuple),
        fixes=st.lists(FIX, max_size=most_fixes).map(tuple),
        severity=st.sampled_from(Severity),
        id=st.sampled_from(["", "K001", "T001", "X999"]),  # the registry sees to that
        name=HOSTILE,
        source=HOSTILE,
        location=st.none() | LOCATION,
        suppressed=st.none() | SUPPRESSION,
    )


def reports(*, most_fixes: int = 3) -> st.SearchStrategy[Report]:
    return st.builds(
        Report,
        host=HOSTILE,
        target=HOSTILE,
        findings=st.lists(findings(most_fixes=most_fixes), max_size=5).map(tuple),
        exit_code=st.integers(0, 3),
        seconds=st.floats(0, 1000),
        incomplete=st.lists(HOSTILE, max_size=2).map(tuple),
        remarks=st.lists(HOSTILE, max_size=2).map(tuple),
        fail_on=st.sampled_from(["fail", "warn", "never"]),
        strict=st.booleans(),
    )


def finding(status: Status, id: str, message: str, **more: object) -> Finding:
    return Finding(status, message, id=id, name="x", **more)  # type: ignore[arg-type]


_DENIED = "Run numadoctor as the owner of what is examined, or give it the right to read this."
_SYS_NICE = (
    Fix("docker", "--cap-add SYS_NICE\n# for profiles that list the calls", needs_restart=True),
    Fix("kubernetes", "securityContext:\n  capabilities: {add: [SYS_NICE]}", False, True, True),
)
_ENVIRONMENT = "cannot read /proc/7/environ: Permission denied (EACCES)"
_CONFIGURATION = "/etc/sysctl.d/90-numa.conf"
_ONE_NODE = "which makes the machine one node"
_REFUSED = "The filter's default profile opens it for containers with CAP_SYS_NICE alone."

FULL = Report(
    host="gpu-07",
    target="pid 4242 vllm",
    findings=(
        finding(
            Status.FAIL,
            "E001",
            "mbind is refused (EPERM) by a seccomp filter",
            cause=_REFUSED,
            evidence=(
                Evidence("system call mbind (237)", "answers EPERM"),
                Evidence(
                    "/proc/self/status",
                    "Seccomp:\t2\nCapBnd:\t00000000a80425fb\n\nMems_allowed_list:\t0-1",
                ),
            ),
            fixes=_SYS_NICE,
        ),
        finding(
            Status.FAIL,
            "E001",
            "set_mempolicy is refused (EPERM) by a seccomp filter",
            cause=_REFUSED,
            evidence=(
                Evidence("system call set_mempolicy (238)", "answers EPERM"),
                Evidence("system call mbind (237)", "answers EPERM"),
            ),
            fixes=_SYS_NICE,
        ),
        finding(
            Status.ERROR,
            "X001",
            "check X001 (site-rule) crashed: ZeroDivisionError: division by zero",
            cause="The other checks ran.",
            evidence=(Evidence("/etc/numadoctor/rules.py:12", "return 1 / 0"),),
        ),
        finding(
            Status.WARN,
            "K001",
            "automatic NUMA balancing is on over 2 nodes (kernel.numa_balancing = 1)",
            cause="The kernel makes processes fault on their own pages, and moves a page to the "
            "node that faulted on it.",
            evidence=(Evidence("/proc/sys/kernel/numa_balancing", "1"),),
            fixes=(
                Fix("sysctl", "sysctl -w kernel.numa_balancing=0", needs_root=True),
                Fix("sysctl", f"{_CONFIGURATION}: kernel.numa_balancing = 0", True, False, True),
                Fix("bios", f"switch on node interleaving, {_ONE_NODE}", True, True, True),
            ),
        ),
        finding(
            Status.WARN,
            "T012",
            "node 1 has 30 % less memory than node 0",
            evidence=tuple(
                Evidence(f"/sys/devices/system/node/node{n}/meminfo", "x" * 500) for n in range(9)
            ),
        ),
        finding(
            Status.UNKNOWN,
            "K011",
            "cannot read /proc/zoneinfo: Permission denied (EACCES)",
            cause=_DENIED,
            evidence=(Evidence("/proc/zoneinfo", "Permission denied"),),
        ),
        finding(Status.UNKNOWN, "E010", _ENVIRONMENT, cause=_DENIED),
        finding(Status.UNKNOWN, "E011", _ENVIRONMENT, cause=_DENIED),
        finding(
            Status.UNKNOWN,
            "G001",
            "the node of 0000:c1:00.0 is not known: numa_node is -1, and so are its bridges'",
            fixes=(Fix("bios", "update the firmware"),),
        ),
        finding(
            Status.INFO,
            "T003",
            "nodes 250-255 (90 GiB) are the memory of GPUs, not of a socket",
            cause="Interleaving over all nodes would put host memory on them.",
            fixes=(Fix("numactl", "numactl --interleave=0,8 COMMAND", needs_restart=True),),
        ),
        finding(
            Status.PASS,
            "K002",
            "zone_reclaim_mode is 0",
            evidence=(Evidence("/proc/sys/vm/zone_reclaim_mode", "0"),),
        ),
        finding(Status.PASS, "T001", "node masks agree", cause="All three sources say the same."),
        finding(Status.SKIP, "K005", "this kernel has no weighted interleave"),
    ),
    exit_code=1,
    seconds=0.42,
    incomplete=("pid 4343: no such process",),
)  # fmt: skip

FIT = Report("gpu-07", "", (finding(Status.PASS, "K002", "right"),), 0, 1.25)

# What a gate meets: files and lines, waivers, a baseline, names that mean harm.
GATE = Report(
    host="gpu-07",
    target="",
    findings=(
        finding(
            Status.FAIL,
            "D001",
            "service engine: Docker's default profile refuses mbind",
            cause="The file gives the container no CAP_SYS_NICE.",
            fixes=(Fix("compose", "cap_add:\n  - SYS_NICE", needs_restart=True),),
            subject="compose.yaml service engine",
            severity=Severity.HIGH,
            location=Location("deploy/compose.yaml", 12, 5),
        ),
        finding(
            Status.WARN,
            "D001",
            "the whole file is for another machine",
            subject="100%: a,b | c # d",
            location=Location("odd name,\udcff\n\x1b[31m:100%.yaml"),
        ),
        finding(
            Status.WARN,
            "K001",
            "automatic NUMA balancing is on",
            evidence=(Evidence("/proc/sys/kernel/numa_balancing", "1"),),
            suppressed=Suppression("waiver", "measured: no effect here", "2026-12-31"),
        ),
        finding(
            Status.FAIL,
            "E001",
            "mbind is refused",
            subject="mbind",
            suppressed=Suppression("baseline", "known to baseline.json"),
        ),
        finding(Status.UNKNOWN, "K013", "cannot read /sys/x: <&>\"' ]]> \udc80", subject="cpu"),
        finding(
            Status.ERROR, "", "plug-in: cannot be loaded: \x00\r\n::error::no", subject="plugins"
        ),
        finding(Status.INFO, "E009", "runs in Docker"),
        finding(Status.PASS, "K002", "zone_reclaim_mode is 0"),
        finding(Status.PASS, "T001", "node masks agree", subject="node 0"),
        finding(Status.SKIP, "T001", "no CPUs", subject="node 2"),
        finding(Status.SKIP, "K005", "this kernel has no weighted interleave"),
    ),
    exit_code=1,
    seconds=0.42,
    incomplete=("pid 4343: no such process",),
    remarks=("waiver of K002 is not used: nothing here matches it",),
)
