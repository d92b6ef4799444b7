"""Devices of a guest: loads drivers, hides numa_node, moves a NIC. Runs inside a guest."""

import contextlib
import ctypes
import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PCI = Path("/sys/bus/pci/devices")
_INIT_MODULE = 175  # x86_64
_NEW_NETWORK = 0x40000000


def load(names: list[str]) -> dict[str, int]:
    """Load modules from /modules in this order; the errno of each: 0, or 17 if it is there."""
    libc = ctypes.CDLL(None, use_errno=True)
    answers = {}
    for name in names:
        image = lzma.decompress(Path(f"/modules/{name}.ko.xz").read_bytes())
        failed = libc.syscall(_INIT_MODULE, image, len(image), b"")
        answers[name] = ctypes.get_errno() if failed else 0
    return answers


def attributes() -> dict[str, dict[str, str]]:
    """By address: class, vendor and numa_node of every PCI device, and where its link leads."""
    return {
        device.name: {
            **{
                name: (device / name).read_text().strip()
                for name in ("class", "vendor", "numa_node")
            },
            "path": os.path.realpath(device),
        }
        for device in sorted(PCI.iterdir())
    }


def topology_with(address: str, numa_node: int) -> dict[str, Any]:
    """``numadoctor topology`` after numa_node of a device was written over; it is put back."""
    from tests.lab.guest_facts import numadoctor

    file = PCI / address / "numa_node"
    before = file.read_text()
    file.write_text(str(numa_node))
    try:
        return {"written": file.read_text().strip(), **numadoctor("topology", "-o", "json")}
    finally:
        file.write_text(before)


@contextlib.contextmanager
def _moved(name: str, environment: dict[str, str]) -> Iterator[int]:
    """A process in a network namespace of its own that has the interface; its pid."""
    from pyroute2 import IPRoute

    pid = os.fork()
    if pid == 0:
        os.setsid()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_NEW_NETWORK):
            os._exit(1)
        os.execve(
            sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], environment
        )
    try:
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{pid}/ns/net") == own or b"sleep" not in _argv(pid):
            time.sleep(0.05)
        with IPRoute() as route:
            (index,) = route.link_lookup(ifname=name)
            route.link("set", index=index, net_ns_pid=pid)
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _argv(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def interfaces(name: str) -> dict[str, Any]:
    """Interfaces with their devices, as told here and of a process that has ``name`` alone.

    Also of that process as somebody without rights sees it, and what ``check`` says of it.
    """
    from numadoctor.host import Host
    from numadoctor.host.devices.network import names_without_rights, read_interfaces
    from tests.lab.guest_facts import numadoctor

    def told(host: Host, proc: str) -> dict[str, str]:
        return {interface.name: interface.device for interface in read_interfaces(host, proc)}

    before = told(Host(), "/proc/self")
    with _moved(name, {"UCX_NET_DEVICES": name}) as pid:
        host = Host()
        answer: dict[str, Any] = {
            "before": before,
            "here": told(host, "/proc/self"),
            "there": told(host, f"/proc/{pid}"),
            "names": list(names_without_rights(host, f"/proc/{pid}")),
            "check": numadoctor("check", "--pid", str(pid), "--select", "G006", "-o", "json", "-v"),
        }
        program = (
            "import os; os.setuid(65534)\n"
            "from numadoctor.host import Host\n"
            "from numadoctor.host.devices.network import read_interfaces\n"
            f"print(read_interfaces(Host(), '/proc/{pid}'))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        answer["nobody"] = done.stderr.decode().strip().splitlines()[-1:]
    return answer
