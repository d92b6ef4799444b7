"""Network interfaces, in this network namespace or in a process's, and the devices behind them.

The kernel answers over netlink (the fact ``links``, through pyroute2); where
that is not recorded, sysfs tells of the namespace it was captured in.
"""

import posixpath
from typing import Any

from numadoctor.host import parsers
from numadoctor.host.devices.pci import ADDRESS, attempt
from numadoctor.host.host import Host
from numadoctor.model import Denied, Interface, Malformed, Missing, Undecided

NET = "/sys/class/net"

# pyroute2 alone takes 0.2 s to load, and half a minute on an emulated machine.
_SECONDS = 60.0


def read_interfaces(host: Host, proc: str = "/proc/self") -> tuple[Interface, ...]:
    """The interfaces in the network namespace of the process at ``proc``, by name.

    :raises Undecided: the process is in another namespace, which may not be
        entered (CAP_SYS_ADMIN is needed) or was not recorded
    """
    if in_own_namespace(host, proc):
        try:
            return _by_netlink(host, None)
        except Undecided:
            return _by_sysfs(host)
    return _by_netlink(host, int(posixpath.basename(proc)))


def in_own_namespace(host: Host, proc: str) -> bool:
    """Whether the process is in the network namespace that sysfs shows.

    :raises Undecided: it may not be asked
    """
    if not posixpath.basename(proc).isdecimal():
        return True
    mine = attempt(host.link, "/proc/self/ns/net")
    try:
        return host.link(f"{proc}/ns/net") == mine
    except Missing:
        if mine is None:  # a captured folder without namespaces: nothing tells them apart
            return True
        raise


def _by_netlink(host: Host, pid: int | None) -> tuple[Interface, ...]:
    path = "links" if pid is None else f"links.{pid}"
    answer = host.fact("links", pid)
    if not isinstance(answer, dict) or not isinstance(answer.get("links"), list):
        raise Malformed(path, None, "it holds no list of links")
    if reason := answer.get("unavailable"):
        hint = "" if pid is None else "entering a network namespace needs CAP_SYS_ADMIN"
        kind = Denied if answer.get("denied") else Undecided
        raise kind(path, None, str(reason), hint)
    try:
        names = {int(entry["index"]): str(entry["name"]) for entry in answer["links"]}
        found = [_interface(host, entry, answer["links"], names, pid) for entry in answer["links"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(path, None, f"a link in it cannot be understood: {error}") from None
    return tuple(sorted(found, key=lambda interface: interface.name))


def _interface(
    host: Host, entry: Any, entries: list[Any], names: dict[int, str], pid: int | None
) -> Interface:
    name = str(entry["name"])
    address = _address_of(host, str(entry.get("bus") or ""), str(entry.get("parent") or ""))
    if not address and pid is None:
        # IFLA_PARENT_DEV_NAME came with Linux 5.14.
        address = _address_by_sysfs(host, name)
    members = [other["name"] for other in entries if other.get("master") == entry["index"]]
    lower = names.get(entry["link"]) if entry.get("link") else None
    return Interface(
        name=name,
        device=address,
        state=str(entry.get("state") or "unknown").lower(),
        kind=str(entry.get("kind") or ""),
        lower=tuple(sorted([*map(str, members), *([lower] if lower and lower != name else [])])),
        speed=_speed(host, name) if pid is None else None,
    )


def _address_of(host: Host, bus: str, parent: str) -> str:
    """The PCI device that a device of another bus (virtio, auxiliary) belongs to, or ""."""
    if ADDRESS.fullmatch(parent):
        return parent
    if not parent or "/" in parent or "/" in bus:
        return ""
    for name in (bus,) if bus else ("virtio", "auxiliary"):
        if target := attempt(host.link, f"/sys/bus/{name}/devices/{parent}"):
            return _last_address(target)
    return ""


def _last_address(path: str) -> str:
    found = [part for part in path.split("/") if ADDRESS.fullmatch(part)]
    return found[-1] if found else ""


def _address_by_sysfs(host: Host, name: str) -> str:
    return _last_address(attempt(host.link, f"{NET}/{name}") or "")


def _speed(host: Host, name: str) -> int | None:
    # -1 or EINVAL where the link is down or virtual.
    speed = attempt(host.integer, f"{NET}/{name}/speed")
    return speed if speed is not None and speed > 0 else None


def _by_sysfs(host: Host) -> tuple[Interface, ...]:
    found = []
    for name in host.list(NET):
        # bonding_masters is a file beside the interfaces.
        entries = attempt(host.list, f"{NET}/{name}")
        if entries is None:
            continue
        lower = [entry.removeprefix("lower_") for entry in entries if entry.startswith("lower_")]
        uevent = attempt(host.read, f"{NET}/{name}/uevent") or b""
        found.append(
            Interface(
                name=name,
                device=_address_by_sysfs(host, name),
                state=attempt(host.text, f"{NET}/{name}/operstate") or "unknown",
                kind=_kind(uevent),
                lower=tuple(lower),
                speed=_speed(host, name),
            )
        )
    return tuple(found)


def _kind(uevent: bytes) -> str:
    try:
        return parsers.parse_key_values(uevent, b"=").get("DEVTYPE", "")
    except parsers.ParseError:
        return ""


def names_without_rights(host: Host, proc: str) -> tuple[str, ...]:
    """Names of the interfaces in the namespace of the process at ``proc``, which all may read.

    :raises Undecided: they may not be read after all
    """
    lines = host.text(f"{proc}/net/dev").splitlines()[2:]
    return tuple(sorted(line.partition(":")[0].strip() for line in lines if ":" in line))


def ask(pid: int | None = None) -> dict[str, Any]:
    """The fact: the links in this network namespace, or in that of a process."""
    from numadoctor.kernel.child import run_steps

    # In a child of its own: who enters a namespace does not come back with certainty.
    (outcome,) = run_steps([lambda: _dump(pid)], _SECONDS)
    if outcome.value is None:
        reason = outcome.unprobed or f"the child was ended by signal {outcome.signal}"
        return {"unavailable": reason, "denied": False, "links": []}
    answer: dict[str, Any] = outcome.value
    return answer


def _dump(pid: int | None) -> dict[str, Any]:
    try:
        from pyroute2 import IPRoute
        from pyroute2.netns import setns
    except ImportError:
        return {"unavailable": "pyroute2 is not installed", "denied": False, "links": []}
    try:
        if pid is not None:
            setns(f"/proc/{pid}/ns/net", flags=0)
        with IPRoute() as route:
            links = [_link(message) for message in route.get_links()]
    except PermissionError as error:
        return {"unavailable": error.strerror or "not permitted", "denied": True, "links": []}
    except OSError as error:
        return {"unavailable": str(error), "denied": False, "links": []}
    return {"unavailable": None, "denied": False, "links": links}


def _link(message: Any) -> dict[str, Any]:
    information = message.get_attr("IFLA_LINKINFO")
    return {
        "index": message["index"],
        "name": message.get_attr("IFLA_IFNAME"),
        "state": message.get_attr("IFLA_OPERSTATE"),
        "parent": message.get_attr("IFLA_PARENT_DEV_NAME"),
        "bus": message.get_attr("IFLA_PARENT_DEV_BUS_NAME"),
        "kind": information.get_attr("IFLA_INFO_KIND") if information else None,
        "link": message.get_attr("IFLA_LINK"),
        "master": message.get_attr("IFLA_MASTER"),
    }
