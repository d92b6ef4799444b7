"""What the seccomp filter that a file gives a workload answers to the six calls."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from numadoctor.kernel.seccomp import (
    Profile,
    ProfileError,
    Verdict,
    default_profile_answer,
    evaluate,
    parse_profile,
)
from numadoctor.kernel.seccomp.actions import Action
from numadoctor.lint.nodes import Mapping, Node, Unsettled
from numadoctor.lint.workloads import Workload, capability
from numadoctor.model import Location

if TYPE_CHECKING:
    from numadoctor.lint.documents import Files

# The release for which a profile's minKernel rules are judged: whoever lints does not
# sit on the machine. No rule of a default profile asks for a newer one.
KERNEL = "6.8"

_LOCALHOST = "/var/lib/kubelet/seccomp/"


@dataclass(frozen=True)
class Filter:
    """Where a workload's filter comes from.

    :ivar name: in words: ``Docker's default profile``, ``profile numa.json``
    :ivar at: the word that chose it, or the workload itself
    :ivar chosen: whether the file says so, rather than leaving it to the engine
    :ivar profile: a profile of one's own
    :ivar runtime: whose default profile it is, or who evaluates the own one
    :ivar version: of the runtime, where it is known
    """

    name: str
    at: Node
    chosen: bool
    runtime: str
    version: str | None = None
    profile: Profile | None = None
    unfiltered: bool = False

    def answer(self, workload: Workload, call: str) -> Verdict:
        """What the filter does to a call of the workload."""
        if self.unfiltered:
            return Verdict(Action.ALLOW, None, self.name)
        added = [capability(word.settled()) for word in workload.added]
        if "ALL" in added and not workload.has("SYS_NICE"):
            added = [name for name in added if name != "ALL"]
        if self.profile is None:
            return default_profile_answer(self.runtime, self.version, call, added)
        dropped = [capability(word.settled()) for word in workload.dropped]
        return evaluate(self.profile, call, added, self.runtime, dropped=dropped, kernel=KERNEL)


_DEFAULTS = {
    "docker": "Docker's default profile",
    "containerd": "containerd's default profile",
    "podman": "podman's default profile",
    "crio": "CRI-O's default profile",
    "kubernetes": "the container runtime's default profile",
}


def filter_of(workload: Workload, files: "Files") -> Filter:
    """The filter of a container.

    :raises Undecided: its profile is not at hand, is no profile, or is filled in later
    """
    if workload.privileged and workload.privileged.truth():
        return Filter("privileged: no filter", workload.privileged, True, "", unfiltered=True)
    runtime = _runtime(workload, files)
    version = files.version if files.runtime == runtime else None
    word = workload.seccomp
    if word is None:
        if workload.launcher == "kubernetes":
            return Filter("no seccompProfile: no filter", workload.at, False, "", unfiltered=True)
        return Filter(_DEFAULTS[runtime], workload.at, False, runtime, version)
    text = word.settled()
    if text.lower() == "unconfined":
        return Filter("unconfined: no filter", word, True, "", unfiltered=True)
    if text in ("RuntimeDefault", "builtin"):
        return Filter(_DEFAULTS[runtime], word, True, runtime, version)
    if text == "Localhost":
        word = workload.profile
        if word is None:
            raise Unsettled(workload.at.location, "Localhost without a localhostProfile")
        text = word.settled()
    folder = _LOCALHOST if workload.launcher == "kubernetes" else ""
    profile = files.profile(word, folder, workload.near)
    return Filter(f"profile {text}", word, True, runtime, version, profile)


def _runtime(workload: Workload, files: "Files") -> str:
    if workload.launcher in ("docker", "compose"):
        return files.runtime if files.runtime in ("docker", "containerd", "podman") else "docker"
    if workload.launcher in ("podman", "quadlet"):
        return "podman"
    return files.runtime or "kubernetes"


def read_profile(file: str, data: bytes) -> Profile:
    """The seccomp profile in a file.

    :raises Unsettled: it is no profile; with the place of what is wrong
    """
    try:
        return parse_profile(data)
    except ProfileError as error:
        place = Location(file, error.line or None, error.column or None)
        raise Unsettled(place, f"no seccomp profile: {_brief(error)}") from None


def _brief(error: ProfileError) -> str:
    return error.reason.partition(" (known:")[0]


def place_of_rule(root: Node, verdict: Verdict) -> Node:
    """The rule that decided, in a profile that was read with places, or its default action."""
    if not isinstance(root, Mapping):
        return root
    profile = root if "defaultAction" in root.entries else root.mapping("linux", "seccomp")
    rules = profile.sequence("syscalls").items
    if verdict.rule is not None and verdict.rule < len(rules):
        return rules[verdict.rule]
    return profile.word("defaultAction") or profile
