"""What a seccomp profile does to a NUMA call, without running it.

Three programs turn the file into a filter. The engine *loads* it: Docker and
podman apply ``includes`` and ``excludes``, containerd knows none of them. The
OCI runtime (runc or crun) hands the rules to libseccomp, and runc puts a stub
before them that answers ENOSYS to calls newer than any in the profile.
libseccomp merges the rules of one call.
"""

import errno as _errno
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from numadoctor.kernel.abi import CALLS, Abi, by_name
from numadoctor.kernel.seccomp.actions import MAX_ERRNO, Action, Verdict
from numadoctor.kernel.seccomp.architectures import (
    NATIVE,
    SCMP_ARCHITECTURES,
    engine_name,
    scmp_name,
)
from numadoctor.kernel.seccomp.matching import Candidate, clash, decide
from numadoctor.kernel.seccomp.numbers import Newest
from numadoctor.kernel.seccomp.profile import Profile, Rule, path_text


class Way(NamedTuple):
    """Who reads a profile and who makes the filter.

    :ivar loader: ``docker`` (moby), ``common`` (containers/common), or ``oci`` (the
        runtime's form as it is)
    :ivar runtime: ``runc`` or ``crun``
    """

    loader: str
    runtime: str


WAYS: Final[dict[str, tuple[Way, ...]]] = {
    "docker": (Way("docker", "runc"),),
    "containerd": (Way("oci", "runc"),),
    "podman": (Way("common", "crun"),),
    "crio": (Way("common", "crun"), Way("common", "runc")),
    "kubernetes": (Way("oci", "runc"), Way("common", "crun"), Way("common", "runc")),
}
RUNTIMES: Final = tuple(WAYS)
"""The runtimes whose way with profiles is known."""

_WAY_NAMES: Final = {"docker": "Docker", "oci": "containerd", "common": "podman or CRI-O"}

_DOCKERS_CAPABILITIES: Final = (
    "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP "
    "NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE"
)
_DEFAULT_CAPABILITIES: Final = {
    "docker": _DOCKERS_CAPABILITIES,
    "oci": _DOCKERS_CAPABILITIES,
    "common": "CHOWN DAC_OVERRIDE FOWNER FSETID KILL NET_BIND_SERVICE SETFCAP SETGID SETPCAP "
    "SETUID SYS_CHROOT",
}

_PERMISSIVE: Final = (Action.ALLOW, Action.LOG, Action.TRACE)


@dataclass(frozen=True)
class Circumstances:
    """What a profile's answer depends on beside the profile.

    :ivar capabilities: the bounding set, ``CAP_...``; "all" of them if None
    :ivar abi: of the process that makes the call
    :ivar kernel: its version as numbers, None where it is not known
    :ivar arguments: those of one call, or None for whatever a program may pass
    """

    capabilities: frozenset[str] | None
    abi: Abi
    kernel: tuple[int, ...] | None
    arguments: Sequence[int] | None


def evaluate(
    profile: Profile,
    call: str,
    capabilities: Iterable[str] = (),
    runtime: str | Way = "docker",
    arch: str = "x86_64",
    *,
    dropped: Iterable[str] = (),
    kernel: str | None = None,
    arguments: Sequence[int] | None = None,
) -> Verdict:
    """What becomes of ``call`` in a container with that profile.

    :param call: one of the six
    :param capabilities: those added to the runtime's own, ``SYS_NICE`` or ``CAP_SYS_NICE``
        or ``ALL``
    :param runtime: one of ``RUNTIMES``, or a way of its own
    :param arch: the ABI of the process; its machine is the 64-bit one of that family
    :param dropped: capabilities taken away from the runtime's own
    :param kernel: the release it runs on; this machine's if None
    :param arguments: of one call; None asks for whatever a program may pass, and the
        answer is unknown where that matters
    :raises UnknownAbi: the table has no such ABI
    :raises KeyError: no such runtime
    """
    abi = by_name(arch)
    verdicts = []
    for way in (runtime,) if isinstance(runtime, Way) else WAYS[runtime]:
        held = bounding_set(way, capabilities, dropped, profile.capabilities)
        found = Circumstances(held, abi, _version(kernel or os.uname().release), arguments)
        verdicts.append((way, answer(profile, call, way, found)))
    (first_way, first), *others = verdicts
    closed = all(verdict.refused for _, verdict in verdicts)
    for way, other in others:
        if not first.same_as(other):
            reason = f"{_told(first_way, first)}; {_told(way, other)}"
            return Verdict(None, None, reason, first.rule, closed)
    return first


def _told(way: Way, verdict: Verdict) -> str:
    return f"{_WAY_NAMES[way.loader]} with {way.runtime}: {verdict.answer} ({verdict.reason})"


def bounding_set(
    way: Way,
    added: Iterable[str],
    dropped: Iterable[str] = (),
    given: Iterable[str] | None = None,
) -> frozenset[str] | None:
    """The capabilities of a container's bounding set; None means all.

    :param given: of a config.json, instead of the engine's own
    """
    added, dropped = set(map(capability, added)), set(map(capability, dropped))
    own = _DEFAULT_CAPABILITIES[way.loader].split() if given is None else given
    held = set() if "CAP_ALL" in dropped else set(map(capability, own))
    if "CAP_ALL" in added:
        return None
    return frozenset((held - dropped) | added)


def capability(name: str) -> str:
    """``sys_nice`` and ``CAP_SYS_NICE`` as the latter."""
    name = name.upper()
    return name if name.startswith("CAP_") else f"CAP_{name}"


def _version(release: str) -> tuple[int, ...] | None:
    found = re.match(r"(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?", release)
    return tuple(int(part or 0) for part in found.groups()) if found else None


def answer(profile: Profile, call: str, way: Way, found: Circumstances) -> Verdict:
    """What becomes of ``call`` where one engine and one runtime are at work."""
    if profile.empty:
        return Verdict(Action.ALLOW, None, "the profile asks for no filter at all")
    architectures = _architectures(profile, way, found.abi)
    loads = [(rule, _loads(rule, way, found)) for rule in profile.rules]
    loaded = [rule for rule, counts in loads if counts is not False]
    if refusal := _refusal(profile, loaded, way, architectures):
        return Verdict(Action.NO_START, None, refusal)
    default = _default(profile, way)
    own, native = scmp_name(found.abi), scmp_name(by_name(NATIVE[found.abi.name]))
    if problem := _clash(loaded, way, default, _least_width(architectures)):
        return problem
    if own not in (*architectures, native):
        return Verdict(
            Action.KILL_THREAD,
            None,
            f"{own} is not among the profile's architectures: libseccomp ends the caller",
        )
    for rule, counts in loads:
        if counts is None and call in _names(rule, way):
            where = path_text(("syscalls", rule.place))
            reason = f"{where} counts from or up to a kernel version, and the kernel's is not known"
            return Verdict(None, None, reason, rule.place)
    return _filter(call, way, found, default, loaded, own in architectures)


def _default(profile: Profile, way: Way) -> Candidate:
    number = _number(profile.default_errno, profile.default_errno_name, way)
    action = profile.default or Action.KILL_THREAD
    reason = "no rule of the profile names the call: its default action"
    return Candidate(_verdict(action, number, reason), data=_data(action, number))


def _data(action: Action, number: int | None) -> int:
    return (_errno.EPERM if number is None else number) & 0xFFFF if action is Action.TRACE else 0


def _verdict(action: Action, number: int | None, reason: str, rule: int | None = None) -> Verdict:
    told = (_errno.EPERM if number is None else number) & 0xFFFF
    return Verdict(action, min(told, MAX_ERRNO) if action is Action.ERRNO else None, reason, rule)


def _number(number: int | None, name: str, way: Way) -> int | None:
    """``errno`` of podman's form stands above ``errnoRet``; others do not read it."""
    if name and way.loader == "common":
        return getattr(_errno, name, None)
    return number


def _names(rule: Rule, way: Way) -> tuple[str, ...]:
    old = (rule.old_name,) if rule.old_name and way.loader != "oci" else ()
    return rule.names or old


def _architectures(profile: Profile, way: Way, abi: Abi) -> tuple[str, ...]:
    if profile.architectures or way.loader == "oci":
        return profile.architectures
    native = scmp_name(by_name(NATIVE[abi.name]))
    for name, others in profile.arch_map:
        if name == native:
            return (name, *others)
    return ()


def _refusal(
    profile: Profile, rules: Sequence[Rule], way: Way, architectures: Iterable[str]
) -> str:
    """Why the container would not start with these rules of the profile, or nothing."""
    for name in architectures:
        if name not in SCMP_ARCHITECTURES:
            return f"{way.runtime} refuses the unknown architecture {name!r}"
    if profile.default is None:
        return f"{way.runtime} refuses a profile without defaultAction"
    if profile.default is Action.NOTIFY:
        return f"{way.runtime} refuses SCMP_ACT_NOTIFY as defaultAction"
    notifies = any(rule.action is Action.NOTIFY for rule in rules)
    if notifies and (not profile.listener or way.loader == "docker"):
        return f"{way.runtime} refuses SCMP_ACT_NOTIFY without listenerPath"
    default = (profile.default, profile.default_errno, profile.default_errno_name)
    refusals = [_errno_refusal("defaultAction", *default, way)]
    for rule in rules:
        where = path_text(("syscalls", rule.place))
        refusals.append(_errno_refusal(where, rule.action, rule.errno, rule.errno_name, way))
    return next(filter(None, refusals), "")


def _errno_refusal(where: str, action: Action, number: int | None, name: str, way: Way) -> str:
    if way.loader == "common" and name and not hasattr(_errno, name):
        return f"the engine refuses the unknown errno {name!r} of {where}"
    given = _number(number, name, way)
    if way.runtime == "crun" and given is not None and action not in (Action.ERRNO, Action.TRACE):
        return f"crun refuses an errno for the action of {where}"
    if action is Action.ERRNO and given is not None and given & 0xFFFF >= MAX_ERRNO:
        return f"libseccomp refuses the errno {given} of {where}"
    return ""


def _least_width(architectures: Iterable[str]) -> int:
    """Bits of an argument in the smallest of the architectures."""
    narrow = {scmp_name(by_name(name)) for name in NATIVE if by_name(name).word_size == 4}
    return 32 if narrow & set(architectures) else 64


def _clash(rules: Sequence[Rule], way: Way, default: Candidate, width: int) -> Verdict | None:
    """Two rules for any one call that libseccomp does not take together.

    Where that is not sure the six calls alone count: profiles for others that
    people use have started containers.
    """
    candidates: dict[str, list[Candidate]] = {}
    for rule in rules:
        for name in _names(rule, way) if rule.action is not Action.NOTIFY else ():
            candidates.setdefault(name, []).append(_candidate(rule, way))
    for name, naming in candidates.items():
        if sum(bool(one.conditions) for one in naming) > 1:
            alive = [one for one in naming if not one.acts_as(default)]
            found = clash(alive, width)
            if found and (name in CALLS or not found.unknown):
                return found
    return None


def _candidate(rule: Rule, way: Way) -> Candidate:
    number = _number(rule.errno, rule.errno_name, way)
    reason = f"{path_text(('syscalls', rule.place))} names it"
    verdict = _verdict(rule.action, number, reason, rule.place)
    return Candidate(verdict, rule.conditions, _data(rule.action, number))


def _loads(rule: Rule, way: Way, found: Circumstances) -> bool | None:
    """Whether the engine passes the rule on; None where the kernel's version is missing."""
    if way.loader == "oci":
        return True
    name = engine_name(found.abi)
    includes, excludes = rule.includes, rule.excludes
    if name in excludes.architectures or any(_holds(found, c) for c in excludes.capabilities):
        return False
    if includes.architectures and name not in includes.architectures:
        return False
    if not all(_holds(found, c) for c in includes.capabilities):
        return False
    if way.loader == "common":  # reads no minKernel
        return True
    return _kernel_fits(includes.min_kernel, excludes.min_kernel, found.kernel)


def _holds(found: Circumstances, name: str) -> bool:
    return found.capabilities is None or name in found.capabilities


def _kernel_fits(
    at_least: tuple[int, ...] | None, below: tuple[int, ...] | None, kernel: tuple[int, ...] | None
) -> bool | None:
    if at_least is None and below is None:
        return True
    if kernel is None:
        return None

    def reached(version: tuple[int, ...]) -> bool:
        return kernel[: len(version)] >= version

    return not (below and reached(below)) and (not at_least or reached(at_least))


def _filter(
    call: str,
    way: Way,
    found: Circumstances,
    default: Candidate,
    rules: Sequence[Rule],
    listed: bool,
) -> Verdict:
    """What the filter made of the loaded rules does.

    :param listed: whether the profile lists the architecture itself
    """
    naming = [rule for rule in rules if call in _names(rule, way)]
    if not naming:
        return _behind_stub(call, way, found, default.verdict, rules, listed)
    # Both runtimes pass over what changes nothing.
    candidates = [
        one for one in (_candidate(rule, way) for rule in naming) if not one.acts_as(default)
    ]
    if not candidates:
        place = naming[0].place
        reason = f"{path_text(('syscalls', place))} names it, with the default action"
        return replace(default.verdict, reason=reason, rule=place)
    return decide(call, found.abi, candidates, default.verdict, found.arguments)


def _behind_stub(
    call: str, way: Way, found: Circumstances, default: Verdict, rules: Sequence[Rule], listed: bool
) -> Verdict:
    """The default action, or ENOSYS where runc finds the call newer than the profile."""
    number = found.abi.numbers[call]
    enosys = Verdict(
        Action.ERRNO,
        _errno.ENOSYS,
        "the call is newer than any that the profile names: runc answers ENOSYS",
    )
    if way.runtime != "runc" or default.action in _PERMISSIVE or number is None:
        return default
    if default.same_as(enosys):
        return default
    names = {name for rule in rules for name in _names(rule, way)}
    if not names:
        return default  # runc makes no stub for a profile without a call
    older = Newest(names, found.abi).is_older_than(number)
    if older is False:
        return default
    if older and listed:
        return enosys
    why = (
        "whether runc answers ENOSYS depends on the libseccomp it was built with"
        if older is None
        else "whether runc answers ENOSYS where the profile lists no architecture depends on its "
        "version"
    )
    return Verdict(None, None, f"{default.answer} or ENOSYS: {why}", closed=True)
