"""Seccomp profiles by the hundred, with capabilities: the same seed gives the same profile."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

CALLS = (
    "mbind",
    "set_mempolicy",
    "get_mempolicy",
    "set_mempolicy_home_node",
    "move_pages",
    "migrate_pages",
)

# Cap, whether podman gives it unasked.
_CAPABILITIES = ("CAP_SYS_NICE", "CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_NET_RAW")
_OPTIONS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((), ()),
    (("SYS_NICE",), ()),
    (("SYS_NICE", "SYS_ADMIN"), ()),
    ((), ("CHOWN",)),
    (("SYS_NICE",), ("CHOWN",)),
    ((), ("ALL",)),
    (("SYS_NICE",), ("ALL",)),
    (("ALL",), ()),
)
_ACTIONS = (
    *["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"] * 4,
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_TRAP",
    "SCMP_ACT_TRACE",
    "SCMP_ACT_LOG",
)
# Several rules that compare otherwise libseccomp does not hold together: those are few.
_OPERATORS = (*["EQ", "MASKED_EQ"] * 6, "NE", "LT", "LE", "GT", "GE")
_NUMBERS = (0, 1, 2, 3, 7, 99, 100, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 64) - 1)
_ERRNOS = (*[0, 1, 13, 38, 95, 4094] * 8, 4095, 5000)  # the last two are refused


@dataclass(frozen=True)
class Generated:
    """A profile, and what the container is given.

    :ivar seed: makes it anew
    :ivar added: capabilities
    :ivar dropped: capabilities
    """

    seed: int
    profile: dict[str, Any]
    added: tuple[str, ...]
    dropped: tuple[str, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """For podman."""
        return (
            *(f"--cap-add={name}" for name in self.added),
            *(f"--cap-drop={name}" for name in self.dropped),
        )

    def write(self, folder: Path) -> Path:
        """The profile as a file in the folder."""
        path = folder / f"{self.seed}.json"
        path.write_text(json.dumps(self.profile, indent=1))
        return path


def generate(seed: int, base: dict[str, Any]) -> Generated:
    """The profile of that number.

    :param base: a profile under which Python runs; its rules for other calls are kept where
        the generated default action is not to allow
    """
    random = Random(seed)
    profile: dict[str, Any] = {}
    if random.random() < 0.5:
        profile["defaultAction"] = "SCMP_ACT_ALLOW"
        rules: list[dict[str, Any]] = []
    else:
        profile["defaultAction"] = "SCMP_ACT_ERRNO"
        if random.random() < 0.6:
            profile["defaultErrnoRet"] = random.choice(_ERRNOS)
        rules = _without(base["syscalls"], CALLS)
    if random.random() < 0.4:
        profile["architectures"] = ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]
    elif random.random() < 0.5:
        profile["archMap"] = [
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
        ]
    own = [_rule(random) for _ in range(random.randint(0, 7))]
    profile["syscalls"] = [*own, *rules] if random.random() < 0.5 else [*rules, *own]
    added, dropped = random.choice(_OPTIONS)
    return Generated(seed, profile, added, dropped)


def _without(rules: Sequence[dict[str, Any]], calls: Sequence[str]) -> list[dict[str, Any]]:
    return [{**rule, "names": [n for n in rule["names"] if n not in calls]} for rule in rules]


def _rule(random: Random) -> dict[str, Any]:
    action = random.choice(_ACTIONS)
    rule: dict[str, Any] = {"names": random.sample(CALLS, random.randint(1, 3)), "action": action}
    # crun refuses an errno for other actions: seldom.
    takes_errno = action in ("SCMP_ACT_ERRNO", "SCMP_ACT_TRACE")
    if random.random() < (0.6 if takes_errno else 0.01):
        rule["errnoRet"] = random.choice(_ERRNOS)
    if random.random() < 0.25:
        rule["args"] = [_argument(random) for _ in range(random.randint(1, 2))]
    if random.random() < 0.3:
        rule["includes"] = _filter(random)
    if random.random() < 0.2:
        rule["excludes"] = _filter(random)
    return rule


def _argument(random: Random) -> dict[str, Any]:
    return {
        "index": random.randrange(6 if random.random() < 0.3 else 3),
        "value": random.choice(_NUMBERS),
        "valueTwo": random.choice(_NUMBERS),
        "op": f"SCMP_CMP_{random.choice(_OPERATORS)}",
    }


def _filter(random: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if random.random() < 0.7:
        found["caps"] = random.sample(_CAPABILITIES, random.randint(1, 2))
    if random.random() < 0.3:
        found["arches"] = random.sample(("amd64", "x86", "x32", "arm64"), 2)
    if random.random() < 0.2:
        found["minKernel"] = random.choice(("3.10", "99.0"))
    return found
