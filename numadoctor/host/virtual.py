"""Whether the machine is a virtual one, and what tells so."""

from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import Evidence, Missing, Undecided

CPUINFO = "/proc/cpuinfo"
DMI = "/sys/class/dmi/id"

# Words in what firmware calls the maker or the product of a virtual machine.
# Amazon and Google give their metal machines the same maker: those are told by
# the CPU's flag, which comes first.
_MAKERS = (
    ("qemu", "QEMU"),
    ("kvm", "KVM"),
    ("vmware", "VMware"),
    ("virtualbox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("xen", "Xen"),
    ("openstack", "OpenStack"),
    ("virtual machine", "Hyper-V"),
    ("bhyve", "bhyve"),
    ("amazon ec2", "Amazon EC2"),
    ("google compute engine", "Google Compute Engine"),
    ("alibaba cloud ecs", "Alibaba Cloud"),
    ("cloud hypervisor", "Cloud Hypervisor"),
)


class Virtual(NamedTuple):
    """Whether a machine is virtual.

    :ivar by: the hypervisor, as far as it is known; empty on a physical machine
    """

    virtual: bool
    by: str
    evidence: tuple[Evidence, ...]


def read_virtual(host: Host) -> Virtual:
    """Whether ``host`` runs under a hypervisor.

    On x86 the ``hypervisor`` flag of the CPU (CPUID leaf 1, ECX bit 31, which is
    kept for this) decides; elsewhere what firmware calls the machine.

    :raises Undecided: there is nothing to tell it by
    """
    maker, named = _from_firmware(host)
    try:
        flag = host.parse(CPUINFO, parsers.parse_cpuinfo).hypervisor
    except Undecided:
        if named is None:
            raise
        flag = None
    if flag is not None:
        text = f"the flag hypervisor is {'' if flag else 'not '}among the CPU's flags"
        found = (Evidence(CPUINFO, text), *((named,) if flag and named else ()))
        return Virtual(flag, (maker or "a hypervisor") if flag else "", found)
    if named is None:
        raise Missing(f"{DMI}/sys_vendor", None, "nothing tells whether the machine is virtual")
    return Virtual(bool(maker), maker, (named,))


def _from_firmware(host: Host) -> tuple[str, Evidence | None]:
    """The hypervisor's name (empty for none), and the text that was looked at."""
    seen: Evidence | None = None
    for path in (
        f"{DMI}/product_name",
        f"{DMI}/sys_vendor",
        "/proc/device-tree/hypervisor/compatible",
        "/proc/device-tree/model",
    ):
        try:
            text = host.text(path)
        except Undecided:
            continue
        for word, name in _MAKERS:
            if word in text.lower():
                return name, host.evidence(path)
        seen = seen or host.evidence(path)
    return "", seen
