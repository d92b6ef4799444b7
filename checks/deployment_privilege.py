"""More privilege than NUMA placement needs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.kernel import remedy
from numadoctor.lint.documents import Document
from numadoctor.lint.engines import POLICY_CALLS, is_engine, needs
from numadoctor.lint.nodes import Word
from numadoctor.lint.workloads import Workload, capability
from numadoctor.model import Finding, Fix, Severity, info, passed, warn

from ._deployment import CONTAINERS, add_capability, edit, for_each, instead, launcher, seen

if TYPE_CHECKING:
    from numadoctor.host import Host

# Capabilities that people add for NUMA calls, and that open more than those.
_TOO_MUCH = ("ALL", "SYS_ADMIN")


@check(
    "D013",
    name="less-privilege-is-enough",
    needs=CONTAINERS,
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def less_privilege_is_enough(host: "Host | None", document: Document) -> Iterator[Finding]:
    """An engine runs with all rights of the machine, where placement needs one profile entry.

    Why it matters
        A privileged container has every capability, every device and no seccomp filter: a
        flaw in a model server is then a flaw of the machine. NUMA calls need none of it: the
        kernel asks for no capability, so a seccomp profile that lists them, or at most
        CAP_SYS_NICE, is enough. GPUs and InfiniBand are given by device.

    When it is harmless
        Where something else needs it: a driver container, a node agent. Then waive this.

    Fix
        Remove it, and give what is needed: the profile entry or CAP_SYS_NICE for memory
        policies, CAP_IPC_LOCK (or memlock) for RDMA, devices by name.

    Source
        mbind(2), set_mempolicy(2), ERRORS; docker-run(1); Kubernetes, Pod Security Standards
    """

    def judge(workload: Workload) -> Iterator[Finding]:
        if not workload.container or not (is_engine(workload) or needs(workload)):
            return
        privileged = workload.privileged
        if privileged and privileged.truth():
            yield warn(
                "an engine that has all rights of the machine; placement needs none of them",
                subject=workload.name,
                cause="Memory policies need no capability: a profile that lists the calls does.",
                evidence=seen(privileged),
                fixes=_instead_of(workload, privileged),
                location=privileged.location,
            )
            return
        for word in workload.added:
            if capability(word.settled()) in _TOO_MUCH:
                yield warn(
                    f"capability {word.shown}: memory policies need SYS_NICE at most",
                    subject=workload.name,
                    cause="It opens mounts, devices and more of the machine besides.",
                    evidence=seen(word),
                    fixes=_instead_of(workload, word),
                    location=word.location,
                )
                return
        seccomp = workload.seccomp
        if seccomp and seccomp.settled().lower() == "unconfined" and needs(workload):
            yield info(
                "no seccomp filter at all; a profile that lists three calls would do",
                subject=workload.name,
                cause="The kernel itself refuses NUMA calls to nobody.",
                evidence=seen(seccomp),
                fixes=_profile(workload),
                location=seccomp.location,
            )
            return
        yield passed(
            "an engine with no more rights than placement needs",
            subject=workload.name,
            evidence=seen(*workload.added, workload.image) or seen(_first(workload)),
            location=workload.at.location,
        )

    yield from for_each(document, judge)


def _first(workload: Workload) -> Word | None:
    for command in workload.commands:
        return command.words[0]
    return workload.at if isinstance(workload.at, Word) else None


def _profile(workload: Workload) -> list[Fix]:
    return [fix for fix in remedy.profile(POLICY_CALLS) if fix.launcher == launcher(workload)]


def _instead_of(workload: Workload, word: Word) -> list[Fix]:
    remove = edit(workload, f"# remove the option in line {word.line}; for memory policies:")
    if workload.launcher == "kubernetes":
        # Without a seccompProfile a pod has no filter: nothing needs to be added.
        text = "securityContext: {allowPrivilegeEscalation: false}"
        return [edit(workload, text, f"{instead(word)}; memory policies need no right at all")]
    kept = [w for w in workload.added if capability(w.text) not in _TOO_MUCH]
    names = ", ".join([*(w.text for w in kept), "SYS_NICE"])
    if workload.launcher == "compose":
        return [*_profile(workload), edit(workload, f"cap_add: [{names}]", instead(word))]
    return [remove, *_profile(workload), add_capability(workload)]
