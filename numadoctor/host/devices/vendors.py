"""Vendors of PCI devices, and what a device is by its class: from the table in vendors.tsv."""

from collections.abc import Mapping
from functools import cache
from pkgutil import get_data
from typing import NamedTuple

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086

# PCI Code and ID Assignment Specification: base class and sub-class to the kind.
# 0x0b40 (co-processor) is what vector engines and QuickAssist carry.
_KINDS_BY_SUBCLASS = {0x0300: "gpu", 0x0302: "gpu", 0x0380: "gpu", 0x0B40: "accelerator"}
_KINDS_BY_BASE = {0x12: "accelerator", 0x02: "nic", 0x01: "storage"}


class Vendor(NamedTuple):
    """A line of the table.

    :ivar kinds: class code (16 bits) and device id, or None for any, to the kind
    """

    name: str
    kinds: Mapping[tuple[int, int | None], str] = {}


@cache
def vendors() -> Mapping[int, Vendor]:
    """The table, by vendor id."""
    # By the loader: it is no file of its own where numadoctor is one zip file.
    table = get_data(__package__, "vendors.tsv")
    lines = table.decode().splitlines() if table else []
    return {
        int(number, 16): Vendor(name, dict(map(_rule, rules)))
        for number, name, *rules in (line.split("\t") for line in lines if line[:1] != "#")
    }


def _rule(text: str) -> tuple[tuple[int, int | None], str]:
    place, _, kind = text.partition("=")
    code, _, device = place.partition("/")
    return (int(code, 16), int(device, 16) if device else None), kind


def vendor_name(vendor: int) -> str:
    """What people call the vendor, or "" for one that is not in the table."""
    known = vendors().get(vendor)
    return known.name if known else ""


def device_kind(pci_class: int, vendor: int, device: int | None = None) -> str:
    """gpu, accelerator, nic, storage or other.

    :param pci_class: the 24-bit class code
    """
    code = pci_class >> 8
    known = vendors().get(vendor)
    if known and (kind := known.kinds.get((code, device)) or known.kinds.get((code, None))):
        return kind
    return _KINDS_BY_SUBCLASS.get(code) or _KINDS_BY_BASE.get(code >> 8, "other")
