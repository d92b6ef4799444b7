"""Two binders at once: launchers, wrappers, runtimes and engines that undo each other."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.host.binders import Binder, Role, read_binders
from numadoctor.model import Evidence, Finding, Fix, Target, info, passed, warn

from ._envelope import for_target

if TYPE_CHECKING:
    from numadoctor.host import Host

_KMP, _GNU, _OPENMP = "Intel/LLVM OpenMP", "GNU OpenMP", "OpenMP"


@check(
    "E010",
    name="two-binders",
    needs=("/proc/PID/environ", "/proc/PID/cmdline", "/proc/PID/status"),
    scope=Scope.PROCESS,
)
def two_binders(host: "Host", target: Target) -> Iterator[Finding]:
    """Finds settings of several tools that bind the same threads or the same memory.

    Why it matters
        Each of them calls sched_setaffinity(2) or set_mempolicy(2), and the last call
        wins; only the cpuset holds against all. Who is last is not who the user thinks:

        Slurm, mpirun, numactl and taskset set the mask before the program starts. An
        engine that binds its workers by GPU sets it anew: TensorRT-LLM with
        TLLM_NUMA_AWARE_WORKER_AFFINITY=1 always, and without the variable it clears a
        mask that it finds narrowed; with 0 it leaves it. SGLang and vLLM --numa-bind
        leave it alone where they find it narrowed, unless told the nodes. Memory that
        was touched before the mask moved stays where it is.

        OpenMP takes its places from the mask early (GNU's when its library is loaded,
        LLVM's at the first parallel region): a mask that is moved later leaves its threads
        behind, outside of it. Of its variables LLVM's and Intel's runtime takes
        KMP_AFFINITY before GOMP_CPU_AFFINITY before OMP_PROC_BIND;
        GNU's takes OMP_PROC_BIND before GOMP_CPU_AFFINITY and does not know
        KMP_AFFINITY. Which of the two runs depends on what was loaded first.

        NCCL_IGNORE_CPU_AFFINITY=1 lets NCCL's proxy threads run on all CPUs near the GPU,
        outside of the job's mask.

    When it is harmless
        One tool for the mask and OpenMP for threads inside of it is the usual and right
        combination, as is one for CPUs and another for memory. A policy for one mapping
        (LightLLM's interleaved pool) wins over the policy of the task for that mapping,
        which is what it is for.

    Fix
        Keep one binder for CPUs and one for memory: the engine's own, where it knows the
        GPUs, or the launcher's, where the scheduler shares the machine between jobs.

    Source
        srun(1), --cpu-bind and --mem-bind; numactl(8); "CPU Affinity configuration in
        TensorRT LLM"; python/sglang/srt/utils/numa_utils.py of SGLang;
        vllm/utils/numa_utils.py of vLLM; the libgomp manual, GOMP_CPU_AFFINITY;
        openmp/runtime/src/kmp_settings.cpp of LLVM; NCCL user guide, environment variables
    """
    binders = read_binders(host, target.proc)
    online = set(host.topology.online_cpus)
    acting = [b for b in binders if not (b.cpus and online and set(b.cpus) >= online)]
    findings = [
        finding
        for first, second in combinations(acting, 2)
        if (finding := _conflict(host, target, first, second))
    ]
    yield from findings
    if not findings:
        names = ", ".join(dict.fromkeys(binder.name for binder in acting))
        yield passed(
            f"binders that do not collide: {names}" if acting else "nothing binds this process",
            subject=target.subject,
            # The environment itself is never cited: it holds tokens and passwords.
            evidence=_seen(acting) or (Evidence(f"{target.proc}/environ", "no such variable"),),
        )


def _seen(binders: Sequence[Binder]) -> tuple[Evidence, ...]:
    return tuple(Evidence(binder.source, binder.setting) for binder in binders)


def _conflict(host: "Host", target: Target, first: Binder, second: Binder) -> Finding | None:
    """What is to be said of two binders of which ``first`` acts earlier, or None."""
    if first.memory and second.memory:
        return _collision(host, target, first, second, _of_memory(first, second))
    if (first.memory and second.pool) or (first.pool and second.memory):
        policy, pool = (first, second) if second.pool else (second, first)
        return _told(
            target,
            policy,
            pool,
            f"{pool.name}'s policy holds for its pool, {policy.name}'s for all other memory",
        )
    if Role.NONE in (first.role, second.role):
        return None
    told = _TOLD.get((first.role, second.role))
    if told:
        return _told(target, first, second, told.format(a=first.name, b=second.name))
    cause = _cause(first, second)
    return _collision(host, target, first, second, cause) if cause else None


def collision_cause(first: Binder, second: Binder) -> str:
    """Why two binders, of which ``first`` acts earlier, undo each other; empty if they do not."""
    if first.memory and second.memory:
        return _of_memory(first, second)
    return "" if Role.NONE in (first.role, second.role) else _cause(first, second)


# Pairs that work as meant and are worth knowing.
_TOLD = {
    (Role.LAUNCH, Role.YIELD): "{b} finds the CPUs narrowed by {a} and leaves them so",
    (Role.LAUNCH, Role.HELPERS): "{b}'s helper threads leave the CPUs that {a} gave the job",
}

_CAUSES = {
    (Role.LAUNCH, Role.LAUNCH): "Both set the same mask before the program starts; the inner of "
    "the two, which runs last, wins and may take CPUs of other jobs, unless a cpuset forbids it.",
    (Role.LAUNCH, Role.REWRITE): "{b} sets the mask anew after the start and wins; what was "
    "touched until then stays on the nodes that {a} chose.",
    (Role.LAUNCH, Role.CLEAR): "{b} clears a mask that it finds narrowed, so that {a} is undone "
    "and the threads run anywhere in the cpuset.",
    (Role.REWRITE, Role.REWRITE): "Both set the mask after the start; the one that happens to "
    "run last wins.",
    (Role.REWRITE, Role.THREADS): "OpenMP takes its places from the mask early (GNU's when its "
    "library is loaded): its threads may run outside of the mask that {a} sets later.",
    (Role.CLEAR, Role.THREADS): "{a} widens the mask again; the threads of {b} stay on the places "
    "they took before.",
}


def _cause(first: Binder, second: Binder) -> str:
    if first.role is Role.THREADS and second.role is Role.THREADS:
        return _of_threads({first.name, second.name})
    return _CAUSES.get((first.role, second.role), "").format(a=first.name, b=second.name)


def _of_threads(names: set[str]) -> str:
    if _KMP in names:
        return (
            "LLVM's and Intel's runtime obeys KMP_AFFINITY and ignores the other; GNU's does not "
            "know KMP_AFFINITY and obeys the other. Which of them runs depends on what is loaded "
            "first."
        )
    return (
        "GNU's runtime obeys OMP_PROC_BIND and ignores GOMP_CPU_AFFINITY; LLVM's and Intel's does "
        "the opposite. Which of them runs depends on what is loaded first."
    )


def _of_memory(first: Binder, second: Binder) -> str:
    later = "the inner of the two, which runs last, wins"
    if second.role is Role.REWRITE and first.role is not Role.REWRITE:
        later = f"{second.name} sets it anew for its workers and wins"
    elif first.role is Role.REWRITE and second.role is not Role.REWRITE:
        later = f"{first.name} sets it anew for its workers and wins"
    return f"A task has one memory policy: {later}."


def _told(target: Target, first: Binder, second: Binder, text: str) -> Finding:
    return info(text, subject=_subject(target, first, second), evidence=_seen((first, second)))


def _collision(host: "Host", target: Target, first: Binder, second: Binder, cause: str) -> Finding:
    what = "memory" if first.memory and second.memory else "threads"
    fixes = tuple(
        Fix(*binder.off, needs_restart=True) for binder in (first, second) if binder.off[1]
    )
    return warn(
        f"{first.name} and {second.name} both bind the {what}: {first.setting}; {second.setting}",
        subject=_subject(target, first, second),
        cause=cause,
        evidence=_seen((first, second)),
        fixes=for_target(host, target, fixes),
    )


def _subject(target: Target, first: Binder, second: Binder) -> str:
    return f"{target.subject}: {first.name} and {second.name}"
