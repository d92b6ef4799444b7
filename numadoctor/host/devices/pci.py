"""What sysfs tells of one PCI function: its place in the tree, its link, driver and names."""

import posixpath
import re
from collections.abc import Callable
from typing import TypeVar

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import PcieLink, Undecided

PCI = "/sys/bus/pci/devices"

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")

# The kernel prints 255 lanes (0xff) for a link that does not say (max_link_width of a
# device that is no PCI Express one) and 0 for one that is down.
_MOST_LANES = 32

T = TypeVar("T")


def attempt(ask: Callable[..., T], *arguments: object) -> T | None:
    """``ask(*arguments)``, or None where it cannot be had."""
    try:
        return ask(*arguments)
    except Undecided:
        return None


def hexadecimal(host: Host, address: str, name: str) -> int | None:
    """The number in a file like ``vendor`` or ``class``."""
    return attempt(host.parse, f"{PCI}/{address}/{name}", parsers.parse_hex)


def node_file(address: str) -> str:
    """The path of the device's numa_node."""
    return f"{PCI}/{address}/numa_node"


def path_of(host: Host, address: str) -> tuple[str, ...]:
    """The root bus and the bridges above the device, from the root; empty when unknown.

    sysfs shows the tree as folders in folders, which the link in the bus's
    folder leads into. Folders between that are neither (a VMD controller's
    own root bus comes below the controller) are left out.
    """
    target = attempt(host.link, f"{PCI}/{address}")
    if not target:
        return ()
    parts = posixpath.normpath(target).split("/")[:-1]
    # Behind a VMD controller there is a root bus below a device: the tree starts anew.
    roots = [at for at, part in enumerate(parts) if _ROOT_BUS.fullmatch(part)]
    first = roots[-1] if roots else 0
    return tuple(
        part for part in parts[first:] if ADDRESS.fullmatch(part) or _ROOT_BUS.fullmatch(part)
    )


def bridges_above(host: Host, address: str) -> list[str]:
    """The addresses of the bridges (and controllers) above the device, nearest first."""
    target = attempt(host.link, f"{PCI}/{address}")
    parts = posixpath.normpath(target).split("/")[:-1] if target else []
    return [part for part in reversed(parts) if ADDRESS.fullmatch(part)]


def link_name(host: Host, address: str, name: str) -> str:
    """The last part of where a link of the device points (``driver``, ``iommu_group``), or ""."""
    return posixpath.basename(attempt(host.link, f"{PCI}/{address}/{name}") or "")


def iommu_group(host: Host, address: str) -> int | None:
    """The number of the device's IOMMU group, or None."""
    name = link_name(host, address, "iommu_group")
    return int(name) if name.isdecimal() and len(name) < 10 else None


def read_link(host: Host, address: str, path: tuple[str, ...]) -> PcieLink | None:
    """The PCI Express link of the device, or None where sysfs tells nothing of one."""
    own, port = f"{PCI}/{address}", _port_folder(host, address, path)
    link = PcieLink(
        speed=_speed(host, f"{own}/current_link_speed"),
        width=_width(host, f"{own}/current_link_width"),
        max_speed=_speed(host, f"{own}/max_link_speed"),
        max_width=_width(host, f"{own}/max_link_width"),
        port_speed=_speed(host, f"{port}/max_link_speed") if port else None,
        port_width=_width(host, f"{port}/max_link_width") if port else None,
    )
    return None if link[:4] == (None,) * 4 else link


def _port_folder(host: Host, address: str, path: tuple[str, ...]) -> str:
    """The folder of the port above the device, or ""."""
    if not path or not ADDRESS.fullmatch(path[-1]):
        return ""
    folder = f"{PCI}/{path[-1]}"
    if attempt(host.list, folder) is not None:
        return folder
    # Captured folders may lack the links to bridges in the bus's folder; then in the tree.
    target = attempt(host.link, f"{PCI}/{address}") or ""
    return posixpath.dirname(posixpath.normpath(posixpath.join(PCI, target)))


def _speed(host: Host, path: str) -> float | None:
    return attempt(host.parse, path, parsers.parse_link_speed)


def _width(host: Host, path: str) -> int | None:
    lanes = attempt(host.integer, path)
    return lanes if lanes is not None and 0 < lanes <= _MOST_LANES else None


def names_in(host: Host, address: str, folder: str) -> tuple[str, ...]:
    """The names in a folder of the device, ``net`` for instance; with "" in its own."""
    return attempt(host.list, f"{PCI}/{address}/{folder}".rstrip("/")) or ()
