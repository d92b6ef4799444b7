"""Processes that have GPUs open, of which all but the files of bus and driver is there.

Runs in a guest, in a mount namespace of its own.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from numadoctor.kernel import policy
from numadoctor.kernel.policy import Mode
from tests.lab import guest_victims as victims
from tests.lab.guest_cases import Told, diagnosed
from tests.lab.guest_victims import MIB, victim

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS of unshare(2)
_PRIVATE = 0x4000 | 0x40000  # MS_REC and MS_PRIVATE of mount(2)
_BUS = Path("/sys/bus/pci/devices")
_DRIVER = Path("/proc/driver")
_BLOCK = 16 * MIB


def _install(gpus: Mapping[int, int]) -> None:
    """Let this process and its children see GPUs, by minor number on which node.

    :raises OSError: mounting is refused
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    if libc.mount(None, b"/", None, _PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount /")
    for path in (_BUS, _DRIVER, Path("/dev")):
        if libc.mount(b"tmpfs", str(path).encode(), b"tmpfs", 0, None):
            raise OSError(ctypes.get_errno(), f"mount {path}")
    for minor, node in gpus.items():
        address = f"0000:{0x41 + minor:02x}:00.0"
        device, driver = _BUS / address, _DRIVER / "nvidia/gpus" / address
        for folder in (device, driver):
            folder.mkdir(parents=True)
        files = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": node}
        for name, content in files.items():
            (device / name).write_text(f"{content}\n")
        (driver / "information").write_text(f"Model: \t\t H100\nDevice Minor: \t {minor}\n")
        Path(f"/dev/nvidia{minor}").touch()


def _open(gpus: Mapping[int, int]) -> None:
    for minor in gpus:
        os.open(f"/dev/nvidia{minor}", os.O_RDWR)


def pinned_blocks(nodes: list[int], places: list[int]) -> Told:
    """One process with four GPUs on the first node and two on the last; a block on each place."""
    gpus = {minor: nodes[0] if minor < 4 else nodes[-1] for minor in range(6)}
    _install(gpus)

    def build() -> None:
        _open(gpus)
        for node in places:
            victims.shared(_BLOCK).touch_on(node)  # adjacent private ones become one mapping

    with victim(build) as (pid, _):
        return diagnosed(pid, ids=("P001",))


def interleaved_buffers(nodes: list[int]) -> Told:
    """A process with a GPU that interleaves all it has."""
    gpus = {0: nodes[0]}
    _install(gpus)

    def build() -> None:
        policy.set_mempolicy(Mode.INTERLEAVE, nodes)
        _open(gpus)
        victims.private(_BLOCK).touch()

    with victim(build) as (pid, _):
        return diagnosed(pid, ids=("P001", "P013"))
