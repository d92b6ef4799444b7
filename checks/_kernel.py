"""What the checks of kernel settings share: absence, fixes for settings, the size of memory."""

import math
from typing import TYPE_CHECKING

from numadoctor.host import parsers
from numadoctor.model import Finding, Fix, Malformed, Missing, skip

if TYPE_CHECKING:
    from numadoctor.host import Host

MM = "/sys/kernel/mm"
_SYSCTL_FILE = "/etc/sysctl.d/90-numa.conf"
_TMPFILES_FILE = "/etc/tmpfiles.d/90-numa.conf"


def absent(host: "Host", error: Missing, reason: str, beside: str = "") -> Finding:
    """The finding for a setting that this kernel does not have.

    :param reason: what its absence says of the kernel
    :param beside: the folder that every kernel has it in; its own, if empty
    :raises Missing: ``error``, where the folder is not to be seen either, so
        that the absence says nothing of the kernel
    """
    folder = beside or error.path.rpartition("/")[0]
    if not shows(host, folder):
        raise error
    return skip(reason, evidence=(host.evidence(error.path),))


def shows(host: "Host", folder: str) -> bool:
    """Whether what is missing in ``folder`` is missing in the kernel, too.

    A captured tree holds some files of a folder and not others: nothing follows
    from what is not in /proc itself, and in many trees /sys/kernel/mm is there for
    its huge page pools alone.
    """
    found = set(names(host, folder))
    if host.live:
        return bool(found)
    return folder != "/proc" and bool(found - ({"hugepages"} if folder == MM else set()))


def sysctl_fixes(name: str, value: object) -> tuple[Fix, Fix]:
    """Set a sysctl now, and at every start of the machine."""
    return (
        Fix("sysctl", f"sysctl -w {name}={value}", needs_root=True),
        Fix("sysctl", f"{_SYSCTL_FILE}: {name} = {value}", needs_root=True, persists=True),
    )


def sysfs_fixes(path: str, value: object) -> tuple[Fix, Fix]:
    """Write a file of sysfs now, and at every start of the machine (tmpfiles.d(5), type w)."""
    return (
        Fix("sysfs", f"echo {value} > {path}", needs_root=True),
        Fix(
            "systemd",
            f"{_TMPFILES_FILE}:\nw {path} - - - - {value}",
            needs_root=True,
            persists=True,
        ),
    )


def meminfo(host: "Host") -> dict[str, int]:
    """/proc/meminfo, in bytes."""
    return host.parse("/proc/meminfo", parsers.parse_meminfo)


def total_memory(host: "Host") -> int:
    """The machine's memory in bytes.

    :raises Malformed: /proc/meminfo does not say
    """
    return field(meminfo(host), "MemTotal")


def field(values: dict[str, int], name: str, path: str = "/proc/meminfo") -> int:
    """A field of ``path``.

    :raises Malformed: it is not there
    """
    try:
        return values[name]
    except KeyError:
        raise Malformed(path, None, f"it has no {name}") from None


def page_size(host: "Host") -> int:
    """The size of a base page in bytes.

    A captured tree may lack the answer of sysconf(3): MemTotal is the sum of the
    managed pages of all zones (si_meminfo() in mm/show_mem.c), in kB.

    :raises Undecided: neither is to be had
    """
    try:
        return int(host.fact("sysconf")["page_size"])
    except Missing:
        zones = host.parse("/proc/zoneinfo", parsers.parse_zoneinfo)
        managed, memory = sum(zone.managed or 0 for zone in zones), total_memory(host)
        if not managed or not memory:
            raise
        # Memory that was added between the two readings shifts the quotient a
        # little; page sizes are powers of two.
        return int(2 ** round(math.log2(memory / managed)))


def interleave(host: "Host", command: str) -> Fix:
    """Start ``command`` with its memory spread over the nodes with CPUs.

    Not over all nodes: ``--interleave=all`` takes in the memory of GPUs.
    """
    nodes = host.topology.host_nodes or host.topology.memory_nodes
    listed = parsers.format_list(node.id for node in nodes)
    return Fix("numactl", f"numactl --interleave={listed} {command}", needs_restart=True)


def names(host: "Host", folder: str) -> tuple[str, ...]:
    """The names in ``folder``; empty where there is no such folder.

    :raises Denied: it may not be listed
    """
    try:
        return host.list(folder)
    except Missing:
        return ()
