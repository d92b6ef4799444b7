"""What NVIDIA's kernel driver tells of its GPUs below /proc/driver/nvidia/gpus."""

from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.devices.pci import attempt
from numadoctor.host.host import Host
from numadoctor.model import ParseError, Undecided

NVIDIA_GPUS = "/proc/driver/nvidia/gpus"


class Information(NamedTuple):
    """The ``information`` file of a GPU (kernel module, nv-procfs.c).

    :ivar minor: N of /dev/nvidiaN, or None
    """

    model: str = ""
    uuid: str = ""
    minor: int | None = None


def folders(host: Host) -> dict[str, str]:
    """Address in sysfs's spelling to the folder of the GPU; empty without the driver."""
    found = {}
    for name in attempt(host.list, NVIDIA_GPUS) or ():
        try:
            found[parsers.parse_bus_id(name)] = f"{NVIDIA_GPUS}/{name}"
        except ParseError:
            continue
    return found


def information(host: Host, folder: str) -> Information:
    """What the driver calls the GPU; empty where it does not tell."""
    fields = attempt(host.parse, f"{folder}/information", parsers.parse_key_values) or {}
    minor = fields.get("Device Minor", "")
    uuid = fields.get("GPU UUID", "")
    return Information(
        fields.get("Model", ""),
        # Without rights, or before the first use, the driver prints question marks.
        "" if "?" in uuid else uuid,
        int(minor) if minor.isdecimal() and len(minor) < 5 else None,
    )


def gpu_memory_nodes(host: Host) -> dict[int, str]:
    """Node id to the address of the GPU whose memory it is.

    From the ``numa_status`` files of NVIDIA's driver (kernel module,
    nv-procfs.c), which it writes on machines where GPU memory is coherent.
    """
    nodes = {}
    for address, folder in folders(host).items():
        try:
            values = host.parse(f"{folder}/numa_status", parsers.parse_key_values)
            nodes[int(values["Node"])] = address
        except (Undecided, KeyError, ValueError):
            continue
    return nodes
