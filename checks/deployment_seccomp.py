"""What seccomp profiles answer to the NUMA calls, whoever will use them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.kernel import remedy
from numadoctor.kernel.seccomp import Verdict, evaluate
from numadoctor.lint.documents import Document
from numadoctor.lint.filters import KERNEL, place_of_rule, read_profile
from numadoctor.lint.nodes import Mapping, Word
from numadoctor.model import (
    Evidence,
    Finding,
    Severity,
    Undecided,
    info,
    passed,
    unknown,
    warn,
)
from numadoctor.model.words import listed

from ._deployment import answered, in_file, undecided

if TYPE_CHECKING:
    from numadoctor.host import Host

_PLACING = ("mbind", "set_mempolicy", "get_mempolicy")


@check(
    "D004",
    name="seccomp-profile",
    needs=("kind seccomp",),
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def seccomp_profile(host: "Host | None", document: Document) -> Iterator[Finding]:
    """What a seccomp profile answers to the NUMA calls, whoever will use it.

    Why it matters
        A profile that was copied before Docker 18.09 lists mbind, set_mempolicy and
        get_mempolicy for no capability: adding CAP_SYS_NICE to the container then changes
        nothing. One whose default errno is 38 (ENOSYS) makes programs believe that the
        kernel has no NUMA.

    When it is harmless
        For programs that set no memory policy. move_pages, migrate_pages and
        set_mempolicy_home_node are closed in all default profiles, and seldom needed.

    Fix
        One entry, first in `syscalls`, opens all six and grants no capability:

            {"names": ["mbind", "set_mempolicy", "get_mempolicy",
              "set_mempolicy_home_node", "move_pages", "migrate_pages"],
              "action": "SCMP_ACT_ALLOW"}

    Source
        config-linux.md of the OCI runtime specification, seccomp; profiles/seccomp/seccomp.go
        of moby; seccomp_rule_add(3)
    """
    try:
        profile = read_profile(document.file, document.data)
    except Undecided as error:
        yield undecided(error, document.file, document.content.location)
        return
    runtime = document.files.runtime or "docker"
    without = {c: evaluate(profile, c, (), runtime, kernel=KERNEL) for c in _PLACING}
    with_nice = {c: evaluate(profile, c, ["SYS_NICE"], runtime, kernel=KERNEL) for c in _PLACING}
    closed = [call for call in _PLACING if not without[call].open]
    if not closed:
        yield passed(
            "mbind, set_mempolicy and get_mempolicy are open without any capability",
            subject=document.file,
            evidence=[_evidence(document, without["mbind"])],
            location=document.content.location,
        )
        return
    first = without[closed[0]]
    place = place_of_rule(document.content, first)
    fixes = [in_file(place, remedy.profile_rule(closed), 'first in "syscalls"')]
    if all(with_nice[call].open for call in closed):
        yield info(
            f"{listed(closed)} are open to containers with CAP_SYS_NICE alone",
            subject=document.file,
            cause="The kernel asks for no capability: an entry of its own spares it.",
            evidence=[_evidence(document, first)],
            fixes=fixes,
            location=place.location,
        )
        return
    undecidable = [call for call in closed if not without[call].refused]
    told = unknown if undecidable else warn
    looks = " ENOSYS makes programs believe that the kernel has no NUMA." * (
        first.answer == "ENOSYS"
    )
    yield told(
        f"{listed(closed)} will be {answered(first)}, whatever the capabilities"
        if not undecidable
        else f"{listed(closed)}: {first.reason}",
        subject=document.file,
        cause=f"{first.reason[0].upper()}{first.reason[1:]}.{looks}",
        evidence=[_evidence(document, first)],
        fixes=fixes,
        location=place.location,
    )


def _evidence(document: Document, verdict: Verdict) -> Evidence:
    place = place_of_rule(document.content, verdict)
    if isinstance(place, Mapping):
        action = place.word("action")
        return Evidence(str(place.location), action.text if action else "a rule")
    return Evidence(
        str(place.location), f"defaultAction {place.text}" if isinstance(place, Word) else ""
    )
