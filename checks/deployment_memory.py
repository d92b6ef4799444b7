"""Memory that files grant: locked, shared, in huge pages."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.lint.documents import Document
from numadoctor.lint.engines import is_engine
from numadoctor.lint.gpus import gpus_of
from numadoctor.lint.kubernetes import Pod
from numadoctor.lint.nodes import Mapping, Unsettled, Word
from numadoctor.lint.quantity import parse_quantity
from numadoctor.lint.workloads import Workload
from numadoctor.model import (
    Finding,
    Fix,
    Severity,
    Undecided,
    fail,
    passed,
    warn,
)
from numadoctor.model.units import amount, page_size_folder

from ._deployment import CONTAINERS, edit, for_each, quantity, seen, size, undecided

if TYPE_CHECKING:
    from fractions import Fraction

    from numadoctor.host import Host

_GIB = 1 << 30

# What registers memory with an RDMA device, or locks it: such memory counts against
# RLIMIT_MEMLOCK. What CUDA pins does not: its driver pins pages itself.
_REGISTERING = re.compile(
    r"(?i)/dev/infiniband|rdma|--mlock|nixl|mooncake|--disaggregation-mode|ucx|deepep|nvshmem"
)
_REGISTERING_VARIABLES = ("NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "UCX_NET_DEVICES", "MC_", "NIXL_")


@check(
    "D007",
    name="locked-memory",
    needs=CONTAINERS,
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def locked_memory(host: "Host | None", document: Document) -> Iterator[Finding]:
    """A workload that registers memory with RDMA, or locks it, is limited to little of it.

    Why it matters
        ibv_reg_mr and mlock count against RLIMIT_MEMLOCK, which is 8 MiB for units and, by
        way of the engine's own unit, often for containers. Registering a KV pool then fails
        with ENOMEM, and the engine falls back to copies, or ends.

    When it is harmless
        With CAP_IPC_LOCK the limit does not count. What CUDA pins (cudaHostAlloc,
        cudaHostRegister) is not counted either.

    Fix
        `ulimits: {memlock: -1}` in Compose, `--ulimit memlock=-1` for docker and podman,
        `LimitMEMLOCK=infinity` in a unit. Kubernetes has no such setting: the capability
        IPC_LOCK, or the limit of the container runtime's unit.

    Source
        getrlimit(2), RLIMIT_MEMLOCK; ibv_reg_mr(3); systemd.exec(5), LimitMEMLOCK=;
        drivers/infiniband/core/umem.c (ib_umem_get)
    """

    def judge(workload: Workload) -> Iterator[Finding]:
        why = _registers(workload)
        if why is None or workload.launcher == "shell":
            return
        if workload.has("IPC_LOCK") or (workload.privileged and workload.privileged.truth()):
            yield passed(
                "locks memory, and has the capability to",
                subject=workload.name,
                evidence=seen(why, *workload.added),
                location=why.location,
            )
            return
        limit = _limit(workload)
        if limit == -1 or (limit is not None and limit >= _GIB):
            yield passed(
                "locks memory, and may lock it",
                subject=workload.name,
                evidence=seen(why, workload.memlock),
                location=why.location,
            )
            return
        at = workload.memlock or why
        how = f"may lock {amount(limit)}" if limit is not None else "has no limit of its own"
        yield warn(
            f"{why.shown} registers or locks memory, and the workload {how}",
            subject=workload.name,
            cause="Beyond RLIMIT_MEMLOCK (8 MiB unless set) registering is answered ENOMEM.",
            evidence=seen(why, workload.memlock),
            fixes=[_unlimited(workload)],
            location=at.location,
        )

    yield from for_each(document, judge)


def _registers(workload: Workload) -> Word | None:
    words = [w for command in workload.commands for w in command.words]
    for word in (*workload.devices, *words):
        if _REGISTERING.search(word.text):
            return word
    for name, word in workload.environment.items():
        if name.startswith(_REGISTERING_VARIABLES):
            return word
    # A resource is told by its name, not by its number.
    return workload.devices[0] if workload.devices and workload.launcher == "kubernetes" else None


def _limit(workload: Workload) -> int | None:
    """Bytes that may be locked, -1 for any number, None where the file does not say."""
    word = workload.memlock
    if word is None:
        return None
    if word.settled().strip().lower() in ("-1", "infinity", "unlimited"):
        return -1
    return size(word)


def _unlimited(workload: Workload) -> Fix:
    text = {
        "compose": "ulimits: {memlock: -1}",
        "kubernetes": "securityContext: {capabilities: {add: [IPC_LOCK]}}",
        "systemd": "[Service]\nLimitMEMLOCK=infinity",
        "quadlet": "[Container]\nUlimit=memlock=-1:-1",
    }.get(workload.launcher, "--ulimit memlock=-1")
    return edit(workload, text, f"in {workload.name}")


@check(
    "D008",
    name="shared-memory",
    needs=CONTAINERS,
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def shared_memory(host: "Host | None", document: Document) -> Iterator[Finding]:
    """An engine on several GPUs has a /dev/shm of 64 MiB.

    Why it matters
        Workers of one engine exchange data in /dev/shm: NCCL's shared memory transport,
        PyTorch's queues, shared KV pools. A container has 64 MiB of it unless told. What does
        not fit ends with SIGBUS at the first touch, or with "unable to allocate shared memory".

    When it is harmless
        With one GPU, or where all GPUs of the job reach each other directly.

    Fix
        `shm_size` in Compose, `--shm-size` for docker and podman, or the host's own
        (`ipc: host`, which also shows the container the host's segments); in a pod a memory
        volume mounted at /dev/shm, which counts against the memory limit:

            volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]

    Source
        docker-run(1), --shm-size; Compose specification, shm_size; Kubernetes, Volumes,
        emptyDir; NCCL user guide, Shared Memory
    """

    def judge(workload: Workload) -> Iterator[Finding]:
        if not workload.container or not is_engine(workload):
            return
        gpus = gpus_of(workload)
        if gpus is None or gpus.number < 2:
            return
        several = gpus.word
        ipc = workload.ipc.settled().lower() if workload.ipc else ""
        if ipc in ("host", "true") or ipc.startswith(("container:", "service:")):
            yield passed(
                "several GPUs, and the host's shared memory",
                subject=workload.name,
                evidence=seen(several, workload.ipc),
                location=several.location,
            )
            return
        given = _shared(workload)
        if given is None or given >= _GIB:
            yield passed(
                "several GPUs, and shared memory for them",
                subject=workload.name,
                evidence=seen(several, workload.shm),
                location=several.location,
            )
            return
        yield warn(
            f"{several.shown}: several GPUs, and {amount(given)} of /dev/shm",
            subject=workload.name,
            cause="What does not fit ends the worker that touches it with SIGBUS.",
            evidence=seen(several, workload.shm),
            fixes=[_more_shared(workload)],
            location=(workload.shm or several).location,
        )

    yield from for_each(document, judge)


def _shared(workload: Workload) -> int | None:
    """Bytes of /dev/shm; None for as much as the container may have."""
    word = workload.shm
    if word is None:
        return 64 << 20
    if word.settled().endswith("%"):
        reason = "a share of the machine's memory, which the file does not tell"
        raise Unsettled(word.location, f'"{word.shown}" is {reason}')
    # The medium of a volume stands there where no limit does.
    if word.text == "Memory":
        return None
    return int(quantity(word)) if workload.launcher == "kubernetes" else size(word)


def _more_shared(workload: Workload) -> Fix:
    text = {
        "compose": "shm_size: 16gb",
        "quadlet": "[Container]\nShmSize=16g",
        "kubernetes": "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]\n"
        "volumeMounts: [{name: shm, mountPath: /dev/shm}]",
    }.get(workload.launcher, "--shm-size 16g")
    return edit(workload, text, f"in {workload.name}; a GiB or two for each GPU")


_HUGE = re.compile(r"hugepages-([0-9]+[KMG]i)")


@check(
    "D009",
    name="huge-pages",
    needs=("kind kubernetes",),
    scope=Scope.FILE,
    severity=Severity.HIGH,
)
def huge_pages(host: "Host | None", document: Document) -> Iterator[Finding]:
    """A pod's huge pages: limits that its volumes exceed, and pools that the machine lacks.

    Why it matters
        The limit `hugepages-2Mi` becomes hugetlb.2MB.max of the container's cgroup. mmap of
        more succeeds, and the first touch beyond the limit ends the process with SIGBUS. A
        request and a limit that differ are refused by the API server, as are huge pages
        without CPU or memory.

    When it is harmless
        A volume without sizeLimit may hold as much as the limit.

    Fix
        The same figure as request and limit, no less than what the volumes hold; pools on the
        node, before the kubelet starts (`hugepagesz=2M hugepages=N` at boot).

    Source
        Kubernetes, Manage HugePages; Documentation/admin-guide/mm/hugetlbpage.rst and
        cgroup-v2.rst, HugeTLB
    """
    for pod in document.pods:
        for container in document.workloads:
            if container.name.startswith(f"{pod.name} container "):
                try:
                    yield from _judge_huge(host, pod, container)
                except Undecided as error:
                    yield undecided(error, container.name, container.at.location)


def _judge_huge(host: "Host | None", pod: Pod, container: Workload) -> Iterator[Finding]:
    for name, word in container.requests.items():
        if _HUGE.fullmatch(name) and name not in container.limits:
            yield _wrong_huge(
                container, word, f"{name}: {word.shown} requested, and no limit",
                "The API server refuses the pod: of huge pages both must be the same.",
                f"limits: {{{name}: {word.shown}}}",
            )  # fmt: skip
    limits = {name: word for name, word in container.limits.items() if _HUGE.fullmatch(name)}
    for name, word in limits.items():
        limit = quantity(word)
        request = container.requests.get(name, word)
        if quantity(request) != limit:
            yield _wrong_huge(
                container, request, f"{name}: {request.shown} requested, {word.shown} the limit",
                "The API server refuses the pod: of huge pages both must be the same.",
                f"{name}: {word.shown}",
            )  # fmt: skip
        elif not {"cpu", "memory"} & set(container.requests):
            yield _wrong_huge(
                container, word, f"{name} without cpu or memory",
                "The API server refuses the pod: huge pages need a request of cpu or memory.",
                "memory: 1Gi",
            )  # fmt: skip
        elif (volume := _larger_volume(pod, name, limit)) is not None:
            yield _wrong_huge(
                container, volume,
                f"a volume of {volume.shown}, and {name}: {word.shown} the limit",
                "Touching more than the limit ends the process with SIGBUS.",
                f"sizeLimit: {word.shown}",
            )  # fmt: skip
        elif host is not None and (pool := _pool(host, name)) < limit:
            yield _wrong_huge(
                container, word, f"{name}: {word.shown}, and a pool of {amount(pool)}",
                "The pod is not scheduled there, or waits for pages.",
                "# hugepagesz=2M hugepages=N on the kernel command line of the node",
            )  # fmt: skip
        else:
            yield passed(
                f"{name}: {word.shown}, requested and limited alike",
                subject=container.name,
                evidence=seen(word),
                location=word.location,
            )


def _wrong_huge(container: Workload, at: Word, message: str, cause: str, fix: str) -> Finding:
    return fail(
        message,
        subject=container.name,
        cause=cause,
        evidence=seen(at),
        fixes=[edit(container, fix, f"instead of line {at.line}")],
        location=at.location,
    )


def _larger_volume(pod: Pod, name: str, limit: "Fraction") -> Word | None:
    medium = name.replace("hugepages", "HugePages")
    for volume in pod.spec.sequence("volumes").items:
        if isinstance(volume, Mapping):
            kind, held = volume.word("emptyDir", "medium"), volume.word("emptyDir", "sizeLimit")
            huge = kind is not None and kind.text in ("HugePages", medium)
            if huge and held and quantity(held) > limit:
                return held
    return None


def _pool(host: "Host", name: str) -> int:
    match = _HUGE.fullmatch(name)
    assert match is not None
    page = int(parse_quantity(match[1]))
    path = f"/sys/kernel/mm/hugepages/{page_size_folder(page)}/nr_hugepages"
    found = host.optional(host.integer, path)
    return (found or 0) * page
