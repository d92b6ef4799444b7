"""What NVIDIA's management library says, through nvidia-ml-py, where that is installed.

The fact ``nvml`` holds it. The library runs in a process of its own: it talks
to a driver that may hang, and a crash of it must not be ours.

Source: the NVML API reference (nvmlDeviceGetMemoryAffinity,
nvmlDeviceGetCpuAffinity, nvmlDeviceGetNumaNodeId, nvmlDeviceGetMinorNumber,
nvmlDeviceGetTopologyCommonAncestor, nvmlDeviceGetNvLinkState,
nvmlDeviceGetNvLinkRemoteDeviceType, nvmlDeviceGetNvLinkRemotePciInfo_v2).
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import Malformed, ParseError, Undecided

_SECONDS = 20.0

# Words of 64 bits: room for 1024 nodes and 8192 CPUs, the most that kernels are built for.
_NODE_WORDS, _CPU_WORDS = 16, 128

# nvmlGpuTopologyLevel_t in nvml.h.
_LEVELS = {0: "X", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# nvmlIntNvLinkDeviceType_t in nvml.h.
_REMOTE_KINDS = {0: "gpu", 1: "cpu", 2: "switch"}
_MOST_NVLINKS = 36
# NVML_ERROR_INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND: the GPU has no such link. Gaps are
# possible: which links a board uses is up to its maker.
_NOT_THERE = (2, 3, 6)
# NVML_FI_DEV_NVLINK_GET_STATE; a link that sleeps is up too.
_STATE_FIELD = 165


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU as NVML has it. None where NVML does not tell.

    :ivar index: NVML's own, by bus address; CUDA's order is another
    :ivar nodes: nodes whose memory is nearest
    :ivar cpus: CPUs that are nearest
    :ivar memory_node: the node that is this GPU's own memory
    :ivar mig: whether it is cut into MIG devices
    :ivar mig_uuids: those there are
    :ivar levels: address of another GPU to PIX, PXB, PHB, NODE or SYS
    :ivar nvlinks: what each active NVLink leads to: "gpu ADDRESS", "switch", "cpu"
    :ivar nvlinks_inactive: NVLinks that it has and that are not up
    """

    index: int
    address: str
    uuid: str = ""
    minor: int | None = None
    nodes: tuple[int, ...] | None = None
    cpus: tuple[int, ...] | None = None
    memory_node: int | None = None
    mig: bool | None = None
    mig_uuids: tuple[str, ...] = ()
    levels: dict[str, str] = field(default_factory=dict)
    nvlinks: tuple[str, ...] | None = None
    nvlinks_inactive: int | None = None


def read_nvml(host: Host) -> dict[str, NvmlGpu]:
    """NVML's GPUs by address.

    :raises Undecided: nvidia-ml-py or the driver is not there, or a recording lacks the fact
    """
    answer = host.fact("nvml")
    if not isinstance(answer, dict) or not isinstance(answer.get("gpus"), list):
        raise Malformed("nvml", None, "it holds no list of GPUs")
    if reason := answer.get("unavailable"):
        raise Undecided(
            "nvml", None, str(reason), "pip install 'numadoctor[gpu]' beside NVIDIA's driver"
        )
    try:
        gpus = [_gpu(entry) for entry in answer["gpus"]]
    except (ParseError, KeyError, TypeError, ValueError) as error:
        raise Malformed("nvml", None, f"a GPU in it cannot be understood: {error}") from None
    return {gpu.address: gpu for gpu in gpus}


def _gpu(entry: Any) -> NvmlGpu:
    return NvmlGpu(
        index=int(entry["index"]),
        address=parsers.parse_bus_id(str(entry["address"])),
        uuid=str(entry.get("uuid") or ""),
        minor=_number(entry.get("minor")),
        nodes=_ids(entry.get("nodes")),
        cpus=_ids(entry.get("cpus")),
        memory_node=_number(entry.get("memory_node")),
        mig=None if entry.get("mig") is None else bool(entry["mig"]),
        mig_uuids=tuple(map(str, entry.get("mig_uuids") or ())),
        levels={str(key): str(value) for key, value in (entry.get("levels") or {}).items()},
        nvlinks=None if entry.get("nvlinks") is None else tuple(map(str, entry["nvlinks"])),
        nvlinks_inactive=_number(entry.get("nvlinks_inactive")),
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _ids(value: Any) -> tuple[int, ...] | None:
    return None if value is None else tuple(int(number) for number in value)


def node_of(host: Host, address: str) -> int | None:
    """The one node NVML says is nearest to the GPU, or None."""
    try:
        gpu = read_nvml(host).get(address)
    except Undecided:
        return None
    return gpu.nodes[0] if gpu and gpu.nodes and len(gpu.nodes) == 1 else None


def ask() -> dict[str, Any]:
    """The fact: NVML's answers, by a process of its own."""
    import subprocess

    # The path too: it is what `python3 -I numadoctor.pyz` made it, and the child's would not be.
    program = (
        f"import sys; sys.path = {sys.path!r}; "
        "from numadoctor.host.devices import nvml; nvml.main()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        # Not waited for: a process that hangs in the driver does not die.
        child.kill()
        return _none(f"it did not answer within {_SECONDS:g} s")
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        return _none(f"it ended without an answer (exit {child.returncode})")
    return answer


def _none(reason: str) -> dict[str, Any]:
    return {"unavailable": reason, "driver": None, "gpus": []}


def main() -> None:
    """Print the fact as JSON; what runs in the process of its own."""
    try:
        import pynvml
    except ImportError:
        answer = _none("nvidia-ml-py is not installed")
    else:
        answer = gather(pynvml)
    print(json.dumps(answer))


def gather(library: Any) -> dict[str, Any]:
    """What the library ``pynvml`` says of every GPU."""
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return _none(str(error))
    try:
        return {
            "unavailable": None,
            "driver": _text(_try(library, "nvmlSystemGetDriverVersion")),
            "gpus": _gpus(library),
        }
    except library.NVMLError as error:
        return _none(str(error))
    finally:
        library.nvmlShutdown()


def _gpus(library: Any) -> list[dict[str, Any]]:
    handles = {}
    for index in range(library.nvmlDeviceGetCount()):
        # One GPU that fell off the bus must not hide the others.
        handle = _try(library, "nvmlDeviceGetHandleByIndex", index)
        information = None if handle is None else _try(library, "nvmlDeviceGetPciInfo", handle)
        if information is not None:
            handles[index] = handle, parsers.parse_bus_id(_text(information.busId) or "")
    return [
        _told(library, index, handle, address, handles.values())
        for index, (handle, address) in handles.items()
    ]


def _told(
    library: Any, index: int, handle: Any, address: str, others: Iterable[tuple[Any, str]]
) -> dict[str, Any]:
    def ask_(name: str, *arguments: Any) -> Any:
        return _try(library, name, handle, *arguments)

    mode = ask_("nvmlDeviceGetMigMode")
    return {
        "index": index,
        "address": address,
        "uuid": _text(ask_("nvmlDeviceGetUUID")),
        "minor": ask_("nvmlDeviceGetMinorNumber"),
        # 0: the scope is the node (NVML_AFFINITY_SCOPE_NODE).
        "nodes": _bits(ask_("nvmlDeviceGetMemoryAffinity", _NODE_WORDS, 0)),
        "cpus": _bits(ask_("nvmlDeviceGetCpuAffinity", _CPU_WORDS)),
        "memory_node": ask_("nvmlDeviceGetNumaNodeId"),
        "mig": None if mode is None else bool(mode[0]),
        "mig_uuids": _mig_uuids(library, handle) if mode and mode[0] else [],
        "levels": {
            other: _LEVELS[level]
            for far, other in others
            if other != address
            and (level := ask_("nvmlDeviceGetTopologyCommonAncestor", far)) in _LEVELS
        },
        **_nvlinks(library, handle, [other for _, other in others]),
    }


def _mig_uuids(library: Any, handle: Any) -> list[str]:
    count = _try(library, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    devices = [
        _try(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, n) for n in range(count)
    ]
    uuids = [_text(_try(library, "nvmlDeviceGetUUID", device)) for device in devices if device]
    return [uuid for uuid in uuids if uuid]


def _nvlinks(library: Any, handle: Any, addresses: Sequence[str]) -> dict[str, Any]:
    """What each NVLink leads to, and how many are not up; None where NVML does not tell."""
    found: list[str] = []
    inactive = 0
    for link in range(_MOST_NVLINKS):
        try:
            state = _state(library, handle, link)
        except (AttributeError, library.NVMLError):
            return {"nvlinks": None, "nvlinks_inactive": None}
        if state is None:
            continue
        if state:
            found.append(_remote(library, handle, link, addresses))
        else:
            inactive += 1
    return {"nvlinks": found, "nvlinks_inactive": inactive}


def _state(library: Any, handle: Any, link: int) -> int | None:
    """Whether a link is up; None where the GPU has no such link."""
    try:
        state: int = library.nvmlDeviceGetNvLinkState(handle, link)
    except library.NVMLError as error:
        if getattr(error, "value", _NOT_THERE[0]) not in _NOT_THERE:
            raise
    else:
        return state
    # From Hopper on NCCL asks for this field instead, and for the function where it is not told.
    fields = _try(library, "nvmlDeviceGetFieldValues", handle, [(_STATE_FIELD, link)])
    return int(fields[0].value.uiVal) if fields and not fields[0].nvmlReturn else None


def _remote(library: Any, handle: Any, link: int, addresses: Sequence[str]) -> str:
    told = _try(library, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
    kind = _REMOTE_KINDS.get(told, "unknown")
    if kind not in ("gpu", "unknown"):
        return kind
    remote = _try(library, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
    address = parsers.parse_bus_id(_text(remote.busId) or "") if remote else ""
    # Drivers that do not tell the kind tell the address all the same.
    return f"gpu {address}" if address and (kind == "gpu" or address in addresses) else kind


def _try(library: Any, name: str, *arguments: Any) -> Any:
    """The answer of a function, or None: not supported, no permission, or not in this release."""
    try:
        return getattr(library, name)(*arguments)
    except (library.NVMLError, AttributeError):
        return None


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _bits(words: Any) -> list[int] | None:
    """The set bits of 64-bit words; an empty set says nothing."""
    if words is None:
        return None
    members = [
        64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1
    ]
    return members or None
