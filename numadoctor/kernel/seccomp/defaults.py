"""What the profiles that container engines bring along do to the six calls, by version.

Read in the profiles: moby profiles/seccomp/default.json, containerd
contrib/seccomp/seccomp_default.go, containers/common pkg/seccomp/seccomp.json.
"""

import errno
import re
from collections.abc import Iterable
from typing import Final

from numadoctor.kernel.facts import HOME_NODE, MOVING, PLACING
from numadoctor.kernel.seccomp.actions import Action, Verdict
from numadoctor.kernel.seccomp.evaluate import capability

# From which version on the policy calls, and the home node call, are listed for CAP_SYS_NICE.
_LISTED: Final = {"docker": (18, 9), "containerd": (1, 6, 16)}
_HOME_LISTED: Final = {"docker": (25, 0, 3), "containerd": (2, 0)}
_NAMES: Final = {
    "docker": "Docker",
    "containerd": "containerd",
    "podman": "podman",
    "crio": "CRI-O",
}


def default_profile_answer(
    runtime: str, version: str | None, call: str, capabilities: Iterable[str] = ()
) -> Verdict:
    """What the default profile of that runtime does to ``call``.

    :param runtime: docker, containerd, podman, crio, or kubernetes (RuntimeDefault, whose
        profile is that of the node's runtime)
    :param version: of the runtime, ``18.06.1-ce``; None stands for one of these years. Of
        kubernetes it says nothing
    :param call: one of the six
    :param capabilities: those in the container's bounding set beside the runtime's own
    :raises KeyError: no such runtime
    """
    nice = bool({"CAP_SYS_NICE", "CAP_ALL"} & set(map(capability, capabilities)))
    if runtime == "kubernetes":
        one, other = (_answer(name, None, call, nice) for name in ("containerd", "crio"))
        if one.same_as(other):
            return one
        return Verdict(
            None,
            None,
            f"{one.answer} with containerd, {other.answer} with CRI-O: the node's runtime decides",
        )
    return _answer(runtime, _numbers(version), call, nice)


def _numbers(version: str | None) -> tuple[int, ...] | None:
    found = re.match(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?", version or "")
    return tuple(int(part or 0) for part in found.groups()) if found else None


def _answer(runtime: str, version: tuple[int, ...] | None, call: str, nice: bool) -> Verdict:
    name = _NAMES[runtime]
    profile = f"{name}'s default profile"
    if runtime not in _LISTED:
        return _podmans(call, profile)
    if call in PLACING:
        since = _since(_LISTED[runtime])
        if version is not None and version < _LISTED[runtime]:
            return _refused(f"{profile} lists it for no capability before {since}")
        if nice:
            return _allowed(f"{profile} lists it for CAP_SYS_NICE since {since}")
        return _refused(f"{profile} lists it for CAP_SYS_NICE alone (since {since})")
    if call in MOVING:
        return _refused(f"{profile} opens it for no capability")
    if nice and version is not None and version >= _HOME_LISTED[runtime]:
        return _allowed(
            f"{profile} lists it for CAP_SYS_NICE since {_since(_HOME_LISTED[runtime])}"
        )
    if nice and version is None:
        reason = f"{profile} lists it for CAP_SYS_NICE since {_since(_HOME_LISTED[runtime])}"
        return Verdict(None, None, f"{reason}; the version is not known")
    reason = f"{profile} does not list it: EPERM, or ENOSYS where runc finds it newer than the rest"
    return Verdict(None, None, reason, closed=True)


def _podmans(call: str, profile: str) -> Verdict:
    if call in PLACING:
        return _allowed(f"{profile} lists it for every container")
    if call == HOME_NODE:
        reason = f"{profile} does not list it, and answers ENOSYS to such calls"
        return Verdict(Action.ERRNO, errno.ENOSYS, reason)
    return _refused(f"{profile} refuses it by name, whatever the capabilities")


def _allowed(reason: str) -> Verdict:
    return Verdict(Action.ALLOW, None, reason)


def _refused(reason: str) -> Verdict:
    return Verdict(Action.ERRNO, errno.EPERM, reason)


def _since(version: tuple[int, ...]) -> str:
    major, minor, *rest = version
    # Docker writes 18.09, containerd 1.6.16.
    return ".".join([str(major), f"{minor:02}" if major == 18 else str(minor), *map(str, rest)])
