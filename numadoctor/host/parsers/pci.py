"""PCI addresses in their several spellings, and the key and value files of GPU drivers."""

import re
from typing import NamedTuple

from numadoctor.host.parsers._text import BLANK, count, decode, error, lines, refuse_if_lost
from numadoctor.model.errors import ParseError

_BUS_ID = re.compile(
    r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([01]?[0-9a-f])\.([0-7])", re.IGNORECASE | re.ASCII
)

# Where the extended configuration space begins, and the id of the capability in it.
_EXTENDED, _ACS = 0x100, 0x0D
_LINK_SPEED = re.compile(rb"([0-9]{1,4}(?:\.[0-9]{1,2})?) GT/s(?: PCIe)?")


def parse_bus_id(text: str) -> str:
    """The sysfs spelling of a PCI address: ``00000000:C1:00.0`` is ``0000:c1:00.0``.

    The domain has at least four digits in sysfs and eight in NVML; a missing one is 0.

    Source: pci_setup_device() in drivers/pci/probe.c (``%04x:%02x:%02x.%d``).

    :raises ParseError: anything else
    """
    match = _BUS_ID.fullmatch(text.strip())
    if not match:
        raise ParseError("PCI address", text[:200], "it is not domain:bus:device.function")
    domain, bus, device = (int(part or "0", 16) for part in match.groups()[:3])
    return f"{domain:04x}:{bus:02x}:{device:02x}.{match[4]}"


def parse_key_values(data: bytes, separator: bytes = b":") -> dict[str, str]:
    """Lines of a key, a separator and a value, as below /proc/driver/nvidia (``Node:      255``).

    With ``separator=b"="`` a uevent file. Of repeated keys the first counts;
    lines without the separator are left out.

    :raises ParseError: there is text and no line of it can be understood
    """
    found: dict[str, str] = {}
    for line in lines(data):
        key, present, value = line.partition(separator)
        if present and key:
            found.setdefault(decode(key.strip()), decode(value.strip()))
    refuse_if_lost("table of keys and values", data, bool(found))
    return found


def parse_link_speed(data: bytes) -> float | None:
    """The speed of a PCI Express link in GT/s (``16.0 GT/s PCIe``); None for ``Unknown``.

    Source: pci_speed_string() in drivers/pci/pci.c; before Linux 5.5 without ``PCIe``.

    :raises ParseError: anything else
    """
    text = data.strip(BLANK)
    if text.startswith(b"Unknown"):
        return None
    match = _LINK_SPEED.fullmatch(text)
    if not match:
        raise error("link speed", data, "it is not a number of GT/s")
    return float(match[1])


def parse_kfd_properties(data: bytes) -> dict[str, int]:
    """Lines of a name and an unsigned number, as below /sys/class/kfd.

    Source: sysfs_show_64bit_prop() in drivers/gpu/drm/amd/amdkfd/kfd_topology.c.

    :raises ParseError: there is text and no line of it can be understood
    """
    found: dict[str, int] = {}
    for line in lines(data):
        name, _, value = line.partition(b" ")
        number = count(value.strip())
        if number is not None:
            found.setdefault(decode(name), number)
    refuse_if_lost("table of properties", data, bool(found))
    return found


class Acs(NamedTuple):
    """The control register of Access Control Services of a port.

    :ivar request_redirect: requests of one device to another below the same switch are sent up
    :ivar completion_redirect: so are the answers
    :ivar upstream_forwarding: requests that come up to their own port go on to the root
    """

    request_redirect: bool
    completion_redirect: bool
    upstream_forwarding: bool

    @property
    def redirects(self) -> bool:
        """Whether traffic between devices below this port goes by the root complex."""
        return self.request_redirect or self.completion_redirect or self.upstream_forwarding


def parse_acs(data: bytes) -> Acs | None:
    """Access Control Services in a configuration space; None for a device without them.

    Source: PCI Express Base Specification, Access Control Services Extended
    Capability (id 0x000d, control register at 6); include/uapi/linux/pci_regs.h.

    :raises ParseError: the configuration space ends before the extended one (at
        256 bytes, or at 64 without CAP_SYS_ADMIN), or its list of capabilities is a loop
    """
    if len(data) < _EXTENDED + 4:
        reason = f"only {len(data)} bytes of it can be seen; reading on needs CAP_SYS_ADMIN"
        raise ParseError("configuration space", "", reason)
    at, seen = _EXTENDED, set()
    while at:
        if at in seen or at < _EXTENDED or at + 8 > len(data):
            raise ParseError("configuration space", hex(at), "its capabilities lead nowhere")
        seen.add(at)
        header = int.from_bytes(data[at : at + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _ACS:
            control = int.from_bytes(data[at + 6 : at + 8], "little")
            return Acs(bool(control & 4), bool(control & 8), bool(control & 16))
        at = header >> 20 & 0xFFC
    return None
