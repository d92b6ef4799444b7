"""Kernel settings in files: sysctls that exist, values that harm, options that mean something."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.lint.documents import Document
from numadoctor.lint.lines import Setting
from numadoctor.lint.nodes import Word
from numadoctor.lint.sysctls import is_known, nearest
from numadoctor.model import (
    Finding,
    Fix,
    Missing,
    Severity,
    Undecided,
    fail,
    info,
    passed,
    warn,
)
from numadoctor.model.words import count

from ._deployment import seen, undecided

if TYPE_CHECKING:
    from numadoctor.host import Host

_THP = "/sys/kernel/mm/transparent_hugepage"

# Names that people write, and what does what they mean.
_MEANT = {
    "vm.transparent_hugepage.enabled": (f"w {_THP}/enabled - - - - {{value}}", "tmpfiles.d"),
    "vm.transparent_hugepage.defrag": (f"w {_THP}/defrag - - - - {{value}}", "tmpfiles.d"),
    "vm.numa_interleave": ("numactl --interleave=all …", "the command that is to be interleaved"),
    "vm.numa_balancing": ("kernel.numa_balancing = {value}", "sysctl.d"),
    "kernel.zone_reclaim_mode": ("vm.zone_reclaim_mode = {value}", "sysctl.d"),
}
_DEBUG = "/sys/kernel/debug/sched/numa_balancing"


def _settings(document: Document) -> list[Setting]:
    """What a file sets: its lines, or ``sysctl -w`` in a script."""
    if document.kind == "sysctl":
        return list(document.content)
    found = []
    for command in document.content:
        words = command.words
        at = next((i for i, w in enumerate(words) if w.text.rpartition("/")[2] == "sysctl"), None)
        if at is None or not {"-w", "--write"} & {word.text for word in words}:
            continue
        for word in words[at + 1 :]:
            name, equals, value = word.text.partition("=")
            if equals and not name.startswith("-"):
                place = Word(word.file, word.line, word.column + len(name) + 1, value)
                found.append(Setting("", Word(word.file, word.line, word.column, name), place))
    return found


@check(
    "D014",
    name="no-such-sysctl",
    needs=("kind sysctl", "kind shell"),
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def no_such_sysctl(host: "Host | None", document: Document) -> Iterator[Finding]:
    """A file sets memory sysctls that no kernel has.

    Why it matters
        systemd-sysctl logs a line and goes on: the setting looks made and is not.
        Transparent huge pages are no sysctl (vm.transparent_hugepage.enabled does not exist,
        the file is in sysfs), neither is an interleave policy; the tunables of NUMA balancing
        moved to debugfs with Linux 5.13.

    When it is harmless
        A kernel with patches may have sysctls that others lack; `--sysroot` looks there.

    Fix
        Set it where it is: in sysfs by a line of tmpfiles.d, or at boot:

            w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise

    Source
        Documentation/admin-guide/sysctl/vm.rst and kernel.rst, mm/transhuge.rst; sysctl.d(5);
        tmpfiles.d(5); commit 8a99b6833c88 ("sched: Move SCHED_DEBUG sysctl to debugfs")
    """
    settings = _settings(document)
    wrong = 0
    for setting in settings:
        name = setting.name
        try:
            name.settled()
            missing = _does_not_exist(host, name.text)
        except Undecided as error:
            wrong += 1
            yield undecided(error, f"{document.file} {name.text}", name.location)
            continue
        if not missing:
            continue
        wrong += 1
        yield fail(
            f"{name.text}: {missing}",
            subject=f"{document.file} {name.text}",
            cause="systemd-sysctl logs it and goes on: the setting looks made and is not.",
            evidence=seen(name, setting.value),
            fixes=[_meant(setting)],
            location=name.location,
        )
    ours = [s for s in settings if _is_ours(s.name.text)]
    if ours and not wrong:
        yield passed(
            f"{count(len(ours), 'memory sysctl')}, each known to the kernel",
            subject=document.file,
            evidence=seen(*(setting.name for setting in ours[:4])),
            location=ours[0].name.location,
        )


def _is_ours(name: str) -> bool:
    return name.startswith(("vm.", "kernel.numa", "kernel.zone"))


def _does_not_exist(host: "Host | None", name: str) -> str:
    """Why a sysctl is none, or empty.

    :raises Undecided: the machine does not tell
    """
    if not _is_ours(name) or "*" in name:
        return ""
    if host is not None:
        path = "/proc/sys/" + name.translate(str.maketrans("./", "/."))
        try:
            host.read(path)
        except Missing:
            # A captured folder holds a few of them; what no kernel has, it lacks for sure.
            return "" if is_known(name) else "there is no such sysctl on the machine"
        return ""
    if is_known(name):
        return ""
    if name.startswith("kernel.numa_balancing_"):
        return "no sysctl since Linux 5.13: it is in debugfs"
    return "there is no such sysctl"


def _meant(setting: Setting) -> Fix:
    name, value = setting.name.text, setting.value.text
    text, where = _MEANT.get(name, ("", ""))
    line = setting.name.line
    if not text and name.startswith("kernel.numa_balancing_"):
        file = name.removeprefix("kernel.numa_balancing_")
        text, where = f"w {_DEBUG}/{file} - - - - {{value}}", "tmpfiles.d"
    if not text:
        near = nearest(name)
        text, where = (f"{near} = {{value}}", "sysctl.d") if near else ("# remove it", "")
    explained = f"# {where}; remove line {line}" if where else f"# line {line}"
    return Fix("any", f"{text.format(value=value)}\n{explained}", needs_root=True, persists=True)


@check(
    "D015",
    name="sysctl-harms-placement",
    needs=("kind sysctl", "kind shell"),
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def sysctl_harms_placement(host: "Host | None", document: Document) -> Iterator[Finding]:
    """Values of sysctls that move, reclaim or withhold the pages of an engine.

    Why it matters
        kernel.numa_balancing = 1 unmaps pages to see who uses them, and migrates what was
        left to first touch. vm.zone_reclaim_mode other than 0 drops the page cache of a node
        (the model's files) rather than use the next node. vm.nr_hugepages takes memory out of
        the pool of all others, for hugetlbfs, SHM_HUGETLB and MAP_HUGETLB alone: transparent
        huge pages need none of it. vm.overcommit_memory = 2 refuses large reservations.

    When it is harmless
        Balancing where nothing is bound and no engine serves; huge pages where an engine
        asks for them; numa_balancing = 2, which is tiering and moves between memory tiers
        alone.

    Fix
        kernel.numa_balancing = 0, vm.zone_reclaim_mode = 0; no vm.nr_hugepages for THP.

    Source
        Documentation/admin-guide/sysctl/kernel.rst (numa_balancing) and vm.rst
        (zone_reclaim_mode, nr_hugepages, overcommit_memory); mm/transhuge.rst
    """
    settings = {setting.name.text: setting for setting in _settings(document)}
    told = False
    for name, judge in _VALUES.items():
        setting = settings.get(name)
        if setting is None:
            continue
        told = True
        try:
            value = setting.value.settled().strip()
        except Undecided as error:
            yield undecided(error, f"{document.file} {name}", setting.value.location)
            continue
        number = (
            int(value, 0) if re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,12}", value) else None
        )
        if number is None:
            yield fail(
                f"{name} = {value}: a number is expected",
                subject=f"{document.file} {name}",
                cause="The kernel refuses it, and keeps what it has.",
                evidence=seen(setting.name, setting.value),
                fixes=[_set(setting, "0")],
                location=setting.value.location,
            )
            continue
        yield judge(setting, number, f"{document.file} {name}")
    if not told and any(_is_ours(name) for name in settings):
        first = next(s for s in settings.values() if _is_ours(s.name.text))
        yield passed(
            "no memory sysctl here moves or withholds pages",
            subject=document.file,
            evidence=seen(first.name, first.value),
            location=first.name.location,
        )


def _set(setting: Setting, value: str) -> Fix:
    text = f"{setting.name.shown} = {value}\n# instead of line {setting.name.line}"
    return Fix("any", text, needs_root=True, persists=True)


def _balancing(setting: Setting, value: int, subject: str) -> Finding:
    if value & 1:
        return warn(
            f"kernel.numa_balancing = {value}: pages are unmapped and migrated",
            subject=subject,
            cause="It costs faults, and moves what an engine left to first touch.",
            evidence=seen(setting.name, setting.value),
            fixes=[_set(setting, str(value & ~1))],
            location=setting.value.location,
        )
    return _fine(setting, value, subject, "tiering alone" if value else "off")


def _reclaim(setting: Setting, value: int, subject: str) -> Finding:
    if value:
        return warn(
            f"vm.zone_reclaim_mode = {value}: a full node reclaims rather than use the next one",
            subject=subject,
            cause="The model's files leave the page cache, and allocations stall.",
            evidence=seen(setting.name, setting.value),
            fixes=[_set(setting, "0")],
            location=setting.value.location,
        )
    return _fine(setting, value, subject, "memory of the next node is used")


def _huge(setting: Setting, value: int, subject: str) -> Finding:
    if not value:
        return _fine(setting, value, subject, "none is withheld")
    return info(
        f"vm.nr_hugepages = {value}: for hugetlb users alone, shared out over all nodes",
        subject=subject,
        cause="Transparent huge pages need none; at run time fewer may be found than asked for.",
        evidence=seen(setting.name, setting.value),
        location=setting.value.location,
    )


def _overcommit(setting: Setting, value: int, subject: str) -> Finding:
    if value == 2:
        return warn(
            "vm.overcommit_memory = 2: reservations beyond the limit are refused",
            subject=subject,
            cause="CUDA and engines reserve far more address space than they use.",
            evidence=seen(setting.name, setting.value),
            fixes=[_set(setting, "0")],
            location=setting.value.location,
        )
    return _fine(setting, value, subject, "reservations are granted")


def _numa_stat(setting: Setting, value: int, subject: str) -> Finding:
    if value == 0:
        return info(
            "vm.numa_stat = 0: the counters of numastat stand still",
            subject=subject,
            evidence=seen(setting.name, setting.value),
            location=setting.value.location,
        )
    return _fine(setting, value, subject, "numastat counts")


def _fine(setting: Setting, value: int, subject: str, what: str) -> Finding:
    return passed(
        f"{setting.name.shown} = {value}: {what}",
        subject=subject,
        evidence=seen(setting.name, setting.value),
        location=setting.value.location,
    )


_VALUES = {
    "kernel.numa_balancing": _balancing,
    "vm.zone_reclaim_mode": _reclaim,
    "vm.nr_hugepages": _huge,
    "vm.overcommit_memory": _overcommit,
    "vm.numa_stat": _numa_stat,
}
