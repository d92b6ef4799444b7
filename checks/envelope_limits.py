"""Limits on the process: locked and shared memory, its cgroup, folders that allow no code."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.host import parsers
from numadoctor.host.runtime import other_root
from numadoctor.model import (
    Evidence,
    Finding,
    Fix,
    Malformed,
    ParseError,
    Target,
    Undecided,
    fail,
    info,
    passed,
    warn,
)
from numadoctor.model.units import amount
from numadoctor.model.words import nodes_text

from ._envelope import (
    for_target,
    memlock_fixes,
    memory_total,
    mount_line,
    mount_of,
    mounts,
    shm_fixes,
)

if TYPE_CHECKING:
    from numadoctor.host import Host

_CAP_IPC_LOCK = 14

# NCCL registers about this much per process over InfiniBand (channels times
# buffers of 4 MiB, both directions); pools come on top.
_LEAST_LOCKED_FOR_RDMA = 1 << 30

# Below this a locked amount this near to the limit will not grow by a pool.
_NEARLY = 0.9

# What container engines give: Docker and containerd 64 MiB, podman 64,000 KiB.
_ENGINES_SHM = (64 << 20, 64000 << 10)

# torch, NCCL and the message queues of the engines need some hundred MiB there,
# before any pool.
_LEAST_SHM = 1 << 30


@check(
    "E005",
    name="locked-memory-limit",
    needs=(
        "/proc/PID/limits",
        "/proc/PID/status",
        "/proc/PID/uid_map",
        "/sys/class/infiniband",
    ),
    scope=Scope.PROCESS,
)
def locked_memory_limit(host: "Host", target: Target) -> Iterator[Finding]:
    """Limits the memory that the process may lock (RLIMIT_MEMLOCK).

    Why it matters
        mlock(2), memory registered for RDMA (ibv_reg_mr) and, before Linux 5.12, io_uring
        buffers count against this limit; the kernel's default is 8 MiB (64 KiB before
        Linux 5.16). A pool beyond it gives ENOMEM: NCCL over InfiniBand ends with
        "ibv_reg_mr failed with error Cannot allocate memory", --mlock of llama.cpp goes on
        with a warning and unlocked weights, which can be reclaimed and come back on
        another node. Each registered buffer counts, also where several cover one page.

    When it is harmless
        With CAP_IPC_LOCK in the effective set the limit does not act, unless the process is
        in a user namespace of its own (rootless containers). Memory pinned by the
        NVIDIA driver (cudaHostAlloc, cudaHostRegister) does not count against it, and
        neither do hugetlb pages. Without RDMA and without mlock the limit is idle: numadoctor
        tells it and does not warn.

    Fix
        Raise the limit for this process alone; that needs no capability in it:

            docker run --ulimit memlock=-1 ...

        Kubernetes has no field for it: set it on the container runtime, or give the one
        container IPC_LOCK.

    Source
        getrlimit(2); mlock(2); ib_umem_get() in drivers/infiniband/core/umem.c;
        MLOCK_LIMIT in include/uapi/linux/resource.h
    """
    path = f"{target.proc}/limits"
    limits = host.parse(path, parsers.parse_limits)
    if "Max locked memory" not in limits:
        raise Malformed(path, None, "it has no line for locked memory")
    limit = limits["Max locked memory"].soft
    evidence = [host.evidence(path, "Max locked memory")]
    if limit is None:
        yield passed("may lock memory without limit", subject=target.subject, evidence=evidence)
        return
    status = host.status(target.proc)
    evidence.append(host.evidence(f"{target.proc}/status", "CapEff", "VmLck"))
    if status.cap_eff is None:
        raise Malformed(f"{target.proc}/status", None, "it has no CapEff line")
    if status.cap_eff >> _CAP_IPC_LOCK & 1 and _in_first_user_namespace(host, target):
        yield passed(
            f"may lock memory without limit: CAP_IPC_LOCK overrides that of {amount(limit)}",
            subject=target.subject,
            evidence=evidence,
        )
        return
    yield _finite_limit(host, target, limit, status.vm_lck or 0, evidence)


def _in_first_user_namespace(host: "Host", target: Target) -> bool:
    """Whether the process's capabilities are those of the machine: all ids map to themselves.

    capable() asks for the first user namespace: root of a rootless container, or
    inside unshare -r, has CAP_IPC_LOCK and may not use it.
    """
    text = host.optional(host.text, f"{target.proc}/uid_map")
    return text is None or text.split() == ["0", "0", "4294967295"]


def _finite_limit(
    host: "Host", target: Target, limit: int, locked: int, evidence: list[Evidence]
) -> Finding:
    fixes = for_target(host, target, _raise_memlock())
    if locked and locked >= _NEARLY * limit:
        return warn(
            f"{amount(locked)} of at most {amount(limit)} are locked: the next mlock fails",
            subject=target.subject,
            cause="What is not locked can be reclaimed, and comes back on whichever node its next "
            "reader runs on.",
            evidence=evidence,
            fixes=fixes,
        )
    try:
        adapters = host.list("/sys/class/infiniband")
    except Undecided:
        adapters = ()
    if adapters and limit < _LEAST_LOCKED_FOR_RDMA:
        return warn(
            f"may lock {amount(limit)}, and the machine has RDMA adapters ({', '.join(adapters)})",
            subject=target.subject,
            cause="Each buffer that is registered with an adapter counts as locked: beyond the "
            "limit ibv_reg_mr answers ENOMEM and NCCL gives up, or falls back to sockets.",
            evidence=[*evidence, Evidence("/sys/class/infiniband", " ".join(adapters))],
            fixes=fixes,
        )
    return info(
        f"may lock {amount(limit)} of memory; a larger pool cannot be mlocked or registered for "
        "RDMA",
        subject=target.subject,
        cause="Pinned memory of the CUDA driver and hugetlb pages do not count.",
        evidence=evidence,
        fixes=fixes,
    )


def _raise_memlock() -> tuple[Fix, ...]:
    return (
        *memlock_fixes(),
        Fix(
            "slurm",
            "slurmd.service: LimitMEMLOCK=infinity\n"
            "slurm.conf: PropagateResourceLimitsExcept=MEMLOCK",
            needs_root=True,
            needs_restart=True,
            persists=True,
        ),
        Fix(
            "any",
            "/etc/security/limits.d/90-memlock.conf: USER - memlock unlimited\n# for logins",
            needs_root=True,
            needs_restart=True,
            persists=True,
        ),
    )


@check(
    "E006",
    name="shared-memory-size",
    needs=("/proc/PID/mounts", "/proc/meminfo", "/proc/PID/status"),
    scope=Scope.PROCESS,
)
def shared_memory_size(host: "Host", target: Target) -> Iterator[Finding]:
    """Looks at the size of /dev/shm and at a memory policy in its mount options.

    Why it matters
        POSIX shared memory (shm_open, multiprocessing, NCCL's shared transport, the KV
        pools of several engines) is files in /dev/shm. Docker, podman and Kubernetes give
        a container 64 MiB unless told otherwise. A pool that is larger can be created and
        mapped, for tmpfs takes pages only when they are touched: the process gets SIGBUS
        in the middle of its prefault, or "No space left on device".

        The option mpol= gives every file there a memory policy, whoever creates it and
        whatever the policy of the task. It is the one way to interleave the segments of a
        program that cannot be changed, and surprising where it was forgotten.

    When it is harmless
        The kernel's default is half of the machine's memory; nothing is taken until it is
        used. A process without shared memory needs none.

    Fix
        Give it a size; pages count against the memory limit of whoever touches them:

            docker run --shm-size 64g ...

        --ipc=host also shows the host's segments to the container: more than is needed.

    Source
        tmpfs(5), mpol=; shm_overview(7); Documentation/filesystems/tmpfs.rst
    """
    path, table = mounts(host, target)
    mount = mount_of("/dev/shm", table)
    subject = f"{target.subject}: /dev/shm"
    if mount is None:
        raise Malformed(path, None, "it lists no mount that /dev/shm could be on")
    seen = Evidence(path, mount_line(mount))
    # Old systems have no mount of its own there: /dev itself is in memory then.
    if mount.fstype not in ("tmpfs", "devtmpfs"):
        yield warn(
            f"/dev/shm is not in memory: it is on {mount.point} ({mount.fstype})",
            subject=subject,
            cause="Segments of POSIX shared memory take the room of that file system, or "
            "shm_open fails there.",
            evidence=(seen,),
            fixes=(
                Fix("any", "mount -t tmpfs -o rw,nosuid,nodev tmpfs /dev/shm", needs_root=True),
            ),
        )
        return
    yield _shm_size(host, target, mount, seen, subject)
    if mount.options.get("mpol"):
        yield _shm_policy(host, target, mount.options["mpol"] or "", seen, subject)


def _shm_size(
    host: "Host", target: Target, mount: parsers.Mount, seen: Evidence, subject: str
) -> Finding:
    if "ro" in mount.options:
        return fail(
            "/dev/shm is read-only: shm_open fails",
            subject=subject,
            cause="Without shared memory torch, NCCL and every engine with worker processes fail "
            "at start.",
            evidence=(seen,),
            fixes=for_target(host, target, _size_shm(host)),
        )
    text = mount.options.get("size")
    if text is None:
        return passed(
            "/dev/shm may take half of the machine's memory (the kernel's default)",
            subject=subject,
            evidence=(seen,),
        )
    try:
        size = parsers.parse_size(text.encode())
    except ParseError as error:
        raise Malformed(seen.source, None, f"size of /dev/shm: {error}") from None
    if size >= _LEAST_SHM:
        return passed(f"/dev/shm may take {amount(size)}", subject=subject, evidence=(seen,))
    default = " (the default of container engines)" if size in _ENGINES_SHM else ""
    return warn(
        f"/dev/shm may take {amount(size)}{default}: no pool fits",
        subject=subject,
        cause="A larger segment can be created and mapped; the process gets SIGBUS when it "
        "touches what is beyond.",
        evidence=(seen,),
        fixes=for_target(host, target, _size_shm(host)),
    )


def _size_shm(host: "Host") -> tuple[Fix, ...]:
    """Half of the machine's memory, as the kernel itself would give."""
    total = memory_total(host)
    size = f"{max(1, (total or 0) // 2 >> 30)}" if total else "SIZE"
    return (
        *shm_fixes(size),
        Fix(
            "systemd",
            f"mount -o remount,size={size}g /dev/shm",
            needs_root=True,
        ),
        Fix(
            "systemd",
            f"/etc/fstab: tmpfs /dev/shm tmpfs rw,nosuid,nodev,size={size}g 0 0",
            needs_root=True,
            persists=True,
        ),
    )


def _shm_policy(host: "Host", target: Target, text: str, seen: Evidence, subject: str) -> Finding:
    policy = parsers.parse_policy(text)
    if not policy.understood:
        raise Malformed(seen.source, None, f"mpol of /dev/shm: {text}")
    subject = f"{subject} policy"
    host_nodes = {node.id for node in host.topology.host_nodes}
    away = host_nodes - set(policy.nodes)
    if policy.mode in ("bind", "prefer") and policy.nodes and away:
        return warn(
            f"every segment in /dev/shm goes to {nodes_text(policy.nodes)} (mount option "
            f"mpol={text})",
            subject=subject,
            cause=f"Threads and GPUs on {nodes_text(sorted(away))} read it across the socket link, "
            "and a bound node that is full ends in the OOM killer.",
            evidence=(seen,),
            fixes=(
                Fix(
                    "any",
                    f"mount -o remount,mpol=interleave:{parsers.format_list(host_nodes)} /dev/shm",
                    needs_root=True,
                ),
                Fix("any", "mount -o remount,mpol=default /dev/shm", needs_root=True),
            ),
        )
    return info(
        f"every segment in /dev/shm has the policy {text} (mount option mpol)",
        subject=subject,
        cause="It holds for all files there, whatever the policy of the task that creates them; "
        "an mbind of the segment itself wins.",
        evidence=(seen,),
    )


# Variable, where it points if unset, what is built there. Defaults: triton/knobs.py;
# torch/utils/cpp_extension.py; flashinfer/jit/env.py. torch.compile's own default
# is in the temporary folder (torch/_inductor/runtime/cache_dir_utils.py).
_FOLDERS = (
    ("TRITON_CACHE_DIR", "~/.triton/cache", "shared objects by which Triton starts its kernels"),
    ("TORCHINDUCTOR_CACHE_DIR", "", "kernels that torch.compile builds"),
    ("TORCH_EXTENSIONS_DIR", "~/.cache/torch_extensions", "extensions that torch builds"),
    ("FLASHINFER_WORKSPACE_BASE", "~/.cache/flashinfer", "kernels that FlashInfer builds"),
)


@check(
    "E011",
    name="temporary-folder-noexec",
    needs=("/proc/PID/environ", "/proc/PID/cmdline", "/proc/PID/mounts"),
    scope=Scope.PROCESS,
)
def temporary_folder_noexec(host: "Host", target: Target) -> Iterator[Finding]:
    """A folder in which code is built at run time is on a file system mounted noexec.

    Why it matters
        Engines compile while they run: Triton and torch.compile build shared objects and
        load them, and a mapping with PROT_EXEC fails on such a mount ("failed to map
        segment from shared object: Operation not permitted"). SGLang starts its workers
        by a small script around numactl that it writes to /tmp: where that may not run,
        it cannot bind them to their nodes.

    When it is harmless
        A process that neither compiles nor binds its workers that way does not notice.
        noexec on /dev/shm is usual and harmless: data is kept there, no code.

    Fix
        Point the variable to a folder on a file system that allows it, one per user and
        not writable by others:

            TMPDIR=/var/tmp/engine TRITON_CACHE_DIR=/var/cache/engine/triton

        Docker's --tmpfs mounts noexec unless told: --tmpfs /tmp:exec.

    Source
        mount(8), noexec; mmap(2), EPERM; docker run, --tmpfs; systemd.exec(5), ExecPaths=
    """
    environment = host.environ(target.proc)
    path, table = mounts(host, target)
    folders = tuple(_folders(host, target, environment))
    findings: list[Finding] = []
    for name, folder, purpose in folders:
        mount = mount_of(folder, table)
        if mount is None:
            raise Malformed(path, None, f"it lists no mount that {folder} could be on")
        if "noexec" in mount.options:
            findings.append(_noexec(host, target, (name, folder, purpose), path, mount))
    yield from findings
    if not findings:
        shown = ", ".join(dict.fromkeys(folder for _, folder, _ in folders))
        yield passed(
            f"code that is built while the process runs may be loaded: {shown}",
            subject=target.subject,
            evidence=(Evidence(path, "none of them is on a mount with noexec"),),
        )


def _folders(
    host: "Host", target: Target, environment: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Variable, folder and purpose of each place where code is built or run."""
    names = ("TMPDIR", "TEMP", "TMP")
    variable = next((name for name in names if environment.get(name)), "TMPDIR")
    temporary = environment.get(variable) or "/tmp"
    if temporary.startswith("/"):
        yield variable, temporary, "kernels that torch.compile builds"
    # srt/utils/numa_utils.py of SGLang writes its wrapper there, whatever TMPDIR says.
    if any("sglang" in word for word in _argv(host, target)):
        yield "SGLang", "/tmp", "the script by which SGLang starts its workers under numactl"
    home = environment.get("HOME", "")
    for name, default, purpose in _FOLDERS:
        if value := environment.get(name):
            if value.startswith("/"):
                yield name, value, purpose
        elif default and home.startswith("/"):
            folder = default.replace("~", home.rstrip("/"))
            if _is_there(host, f"{other_root(target.proc)}{folder}"):
                yield name, folder, purpose


def _argv(host: "Host", target: Target) -> tuple[str, ...]:
    try:
        return host.parse(f"{target.proc}/cmdline", parsers.parse_argv)
    except Undecided:
        return ()


def _is_there(host: "Host", folder: str) -> bool:
    """Whether the process uses a default: one that nobody made, or may enter, it does not."""
    try:
        return host.has(folder)
    except Undecided:
        return False


def _noexec(
    host: "Host",
    target: Target,
    place: tuple[str, str, str],
    path: str,
    mount: parsers.Mount,
) -> Finding:
    name, folder, purpose = place
    return warn(
        f"{folder} ({name}) is on {mount.point}, which is mounted noexec: {purpose}",
        subject=f"{target.subject}: {name}",
        cause="What is built there cannot be loaded or run (EPERM from mmap with PROT_EXEC, "
        "EACCES from execve).",
        evidence=(Evidence(path, mount_line(mount)),),
        fixes=for_target(host, target, _allow_code(name, mount.point)),
    )


def _allow_code(name: str, point: str) -> tuple[Fix, ...]:
    elsewhere = Fix("any", f"{name}=FOLDER, on a file system without noexec", needs_restart=True)
    unwrapped = Fix("sglang", "SGLANG_NUMA_BIND_V2=0: binds without the script", needs_restart=True)
    return (
        unwrapped if name == "SGLang" else elsewhere,
        Fix("docker", f"--tmpfs {point}:exec", needs_restart=True),
        Fix("podman", f"--tmpfs {point}:exec", needs_restart=True),
        Fix("compose", f'tmpfs: ["{point}:exec"]', needs_restart=True, persists=True),
        Fix("kubernetes", f"mount an emptyDir over {point}", needs_restart=True, persists=True),
        Fix(
            "systemd",
            f"[Service]\nExecPaths={point}\n# if NoExecPaths= is what set it",
            needs_root=True,
            needs_restart=True,
            persists=True,
        ),
        Fix("any", f"mount -o remount,exec {point}", needs_root=True),
    )
