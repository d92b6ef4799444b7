"""What the kubelet of a machine is told, by the flags and files that it would be given."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numadoctor.host import parsers
from numadoctor.lint.dropins import ROOTS
from numadoctor.lint.kubelet import flags
from numadoctor.lint.lines import Setting, parse_unit
from numadoctor.lint.nodes import Refused, Word
from numadoctor.lint.units import Unit, commands_of_unit
from numadoctor.lint.variables import parse_environment
from numadoctor.model import Evidence, Missing, Undecided

if TYPE_CHECKING:
    from numadoctor.host import Host

# Nodes that a Topology Manager accepts unless told, and what tells it.
LIMIT = 8
OPTION = "max-allowable-numa-nodes"

_FOLDER = "/var/lib/kubelet"
_CONFIG = f"{_FOLDER}/config.yaml"
_UNIT = "kubelet.service"

# As YAML or as JSON; the kubelet takes both.
_COMMENT = re.compile(r"(?m)(^|\s)#.*$")
_POLICY = re.compile(r"""(?m)^\s*["']?topologyManagerPolicy["']?\s*:\s*["']?([a-z-]+)""")
_MAXIMUM = re.compile(rf"""["']?{OPTION}["']?\s*[:=]\s*["']?([0-9]{{1,6}})""")


@dataclass(frozen=True)
class Kubelet:
    """What a kubelet is told: by flags, and by files, the later of which hold."""

    flags: dict[str, list[Word]]
    texts: list[str]
    evidence: list[Evidence]
    unread: bool = False

    @property
    def policy(self) -> str:
        """Of the Topology Manager; empty where it cannot be told."""
        # A flag outranks the files (Kubernetes, Set Kubelet Parameters Via A Configuration File).
        if given := self.flags.get("topology-manager-policy"):
            return given[-1].text
        found = [match[1] for text in self.texts if (match := _POLICY.search(text))]
        return "" if self.unread else found[-1] if found else "none" if self.texts else ""

    @property
    def limit(self) -> int:
        """How many nodes it accepts."""
        options = self.flags.get("topology-manager-policy-options", [])
        # Flags come last, and replace what files say.
        said = [*self.texts, *(word.text for word in options)]
        found = [match[1] for text in said if (match := _MAXIMUM.search(text))]
        return int(found[-1]) if found else LIMIT


def kubelet_of(host: "Host") -> Kubelet | None:
    """The kubelet of the machine, running or not; None without one."""
    pid = _pid(host)
    evidence: list[Evidence] = []
    unread = False
    if pid is not None:
        argv = host.parse(f"/proc/{pid}/cmdline", parsers.parse_argv)
        words = [Word(f"/proc/{pid}/cmdline", 1, 1, text, "'") for text in argv]
        evidence.append(Evidence(f"/proc/{pid}/cmdline", " ".join(argv)[:240]))
    else:
        # One that does not start is what this is about: its unit tells what it would be given.
        words, read = _of_units(host)
        evidence += [host.evidence(path, "ExecStart", "EnvironmentFile", "ARGS") for path in read]
    given = flags(words)
    config = given["config"][-1].text if "config" in given else _CONFIG
    texts = []
    for path in (config, *_drop_ins(host, given)):
        try:
            texts.append(_COMMENT.sub("", host.text(path)))
            evidence.append(host.evidence(path, "topologyManager", OPTION))
        except Undecided as error:
            # Its folder is there, or it runs, and its configuration is not for us to read.
            if not words and isinstance(error, Missing) and not host.has(_FOLDER):
                return None
            unread = True
            evidence.append(host.evidence(path))
    return Kubelet(given, texts, evidence, unread)


def _drop_ins(host: "Host", given: dict[str, list[Word]]) -> list[str]:
    """The files of ``--config-dir``, in the order in which they are merged."""
    if "config-dir" not in given:
        return []
    folder = given["config-dir"][-1].text.rstrip("/")
    names = host.optional(host.list, folder) or ()
    return [f"{folder}/{name}" for name in sorted(names) if name.endswith(".conf")]


def _of_units(host: "Host") -> tuple[list[Word], list[str]]:
    """The words of the command in the kubelet's unit, and the files that they come from."""
    settings: list[Setting] = []
    read: list[str] = []
    for path in _unit_files(host):
        try:
            settings += parse_unit(host.text(path), path)
        except (Undecided, Refused):
            continue
        read.append(path)
    unit = Unit(_UNIT, tuple(settings))
    variables: dict[str, Word] = {}
    for setting in unit.values("EnvironmentFile"):
        path = setting.value.text.removeprefix("-")
        try:
            variables.update(parse_environment(host.text(path), path))
        except (Undecided, Refused):
            continue
        read.append(path)
    try:
        commands = list(commands_of_unit(Unit(_UNIT, unit.settings, variables)))
    except Refused:
        return [], read
    return [word for command in commands[-1:] for word in command.words], read


def _unit_files(host: "Host") -> Iterator[str]:
    """The unit and its drop-ins, as systemd finds them (systemd.unit(5))."""
    roots = [f"/{root}" for root in ROOTS if root.endswith("systemd/system")]
    units = {root: host.optional(host.list, root) or () for root in roots}
    yield from next(([f"{r}/{_UNIT}"] for r in roots if _UNIT in units[r]), [])
    drop_ins: dict[str, str] = {}
    for root in roots:
        if f"{_UNIT}.d" in units[root]:
            for name in host.optional(host.list, f"{root}/{_UNIT}.d") or ():
                drop_ins.setdefault(name, f"{root}/{_UNIT}.d/{name}")
    yield from (path for name, path in sorted(drop_ins.items()) if name.endswith(".conf"))


def _pid(host: "Host") -> int | None:
    for pid in parsers.numbered(host.optional(host.list, "/proc") or (), ""):
        try:
            if host.text(f"/proc/{pid}/comm") == "kubelet":
                return pid
        except Undecided:
            continue
    return None
