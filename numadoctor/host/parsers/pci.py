"""PCI addresses in their several spellings, and the key and value files of GPU drivers."""

import re

from numadoctor.host.parsers._text import decode, lines, refuse_if_lost
from numadoctor.model.errors import ParseError

_BUS_ID = re.compile(
    r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([01]?[0-9a-f])\.([0-7])", re.IGNORECASE | re.ASCII
)


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
