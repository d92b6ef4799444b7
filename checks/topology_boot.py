"""Boot options that change which nodes, CPUs and memory the kernel sees."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import check
from numadoctor.host import parsers
from numadoctor.model import Finding, Status, Target, Topology, fail, info, passed, warn
from numadoctor.model.words import count

from ._topology import COMMAND_LINE, CPUS, boot_fix

if TYPE_CHECKING:
    from numadoctor.host import Host

_Verdict = tuple[Status, str, str, str]


@check("T010", name="numa-boot-options", needs=(COMMAND_LINE, f"{CPUS}/online", f"{CPUS}/present"))
def numa_boot_options(host: "Host", target: Target) -> Iterator[Finding]:
    """A boot option hides nodes, pretends some, or cuts memory or CPUs.

    Why it matters
        With numa=off (or acpi=off, which takes the tables away) the kernel puts the
        whole machine into one node: every placement call succeeds and changes nothing,
        while half of the accesses stay remote. numa=fake cuts the memory into nodes
        that are no places. mem= drops the highest addresses, which are those of the
        last nodes, and maxcpus= and nr_cpus= leave the CPUs of the last sockets out.

    When it is harmless
        numa=off on a machine with one socket in one node. nr_cpus= that is not below
        the number of CPUs. mem= in a virtual machine that is meant to be small.

    Fix
        Take the option out of GRUB_CMDLINE_LINUX in /etc/default/grub, write the menu
        anew (update-grub, or grub2-mkconfig -o /boot/grub2/grub.cfg) and boot.

    Source
        Documentation/admin-guide/kernel-parameters.txt; Documentation/arch/x86/x86_64/
        boot-options.rst and fake-numa-for-cpusets.rst; numa_setup() in arch/x86/mm/numa.c
    """
    options = host.parse(COMMAND_LINE, parsers.parse_command_line)
    evidence = [host.evidence(COMMAND_LINE)]
    found = False
    for key, value in options:
        verdict = _judged(host, key, value)
        if verdict is None:
            continue
        found = True
        status, subject, message, cause = verdict
        text = key if value is None else f"{key}={value}"
        make = {Status.FAIL: fail, Status.WARN: warn, Status.INFO: info}[status]
        yield make(
            f"{text}: {message}",
            subject=subject,
            cause=cause,
            evidence=evidence,
            fixes=[boot_fix(f"remove {text} from the kernel's command line")],
        )
    if not found:
        yield passed("no boot option changes nodes, CPUs or memory", evidence=evidence)


def _judged(host: "Host", key: str, value: str | None) -> _Verdict | None:
    """Status, subject, sentence and cause for an option that matters; None for any other."""
    text = value or ""
    if key == "numa" and text in ("off", "noacpi"):
        return _no_nodes(host, f"numa={text}")
    if key == "acpi" and text in ("off", "ht"):
        return _no_nodes(host, f"acpi={text}")
    if key == "numa" and text.startswith("fake"):
        cause = "Binding to such a node limits memory and gains nothing; binding to several is "
        cause += "the same as binding to one."
        return Status.WARN, "numa=fake", "the nodes are pretended by the kernel", cause
    if key == "numa" and text == "nohmat":
        cause = "Memory of different speeds cannot be told apart by the kernel, nor by numadoctor."
        return Status.INFO, "numa=nohmat", "the firmware's bandwidth and latency are ignored", cause
    if key == "mem" and text != "nopentium":
        cause = "What is above that address is lost: the memory of the last nodes goes first."
        return Status.WARN, "mem", f"memory is cut at {text}", cause
    if key in ("maxcpus", "nr_cpus", "possible_cpus"):
        return _fewer_cpus(host.topology, key, text)
    return None


def _no_nodes(host: "Host", option: str) -> _Verdict:
    packages = {cpu.package for cpu in host.topology.cpus if cpu.package is not None}
    message = "the kernel ignores the machine's NUMA tables and makes one node of it"
    if len(packages) > 1:
        cause = f"The machine has {len(packages)} packages: memory is local to one of them and "
        cause += "remote to the others, and no policy can tell which."
        return Status.FAIL, option, message, cause
    if packages:
        cause = "The machine has one package, so little is lost, unless that is split into nodes."
        return Status.INFO, option, message, cause
    return Status.WARN, option, message, "How many packages the machine has cannot be told."


def _fewer_cpus(topology: Topology, key: str, text: str) -> _Verdict | None:
    if not text.isascii() or not text.isdigit():
        return None
    # maxcpus=0 means one CPU and no SMP (kernel-parameters.txt).
    limit = max(int(text), 1)
    there = len(topology.online_cpus) if key == "maxcpus" else len(topology.present_cpus)
    if limit > there:
        return None
    if key == "maxcpus":
        if len(topology.present_cpus) <= limit:
            return None
        message = f"{count(limit, 'CPU')} of {len(topology.present_cpus)} were started"
    else:
        message = f"the kernel takes {count(limit, 'CPU')} at most, and has as many"
    cause = "CPUs beyond are not there, and with them perhaps all CPUs of the last nodes."
    return Status.WARN, key, message, cause
