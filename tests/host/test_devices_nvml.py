"""NVML through a module made after its documented API: there is no GPU here."""

# ruff: noqa: N802

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.host.devices import nvml
from numadoctor.model import Malformed, Missing, Undecided
from tests.host.machines import TreeRoot
from tests.trees import fact


class NVMLError(Exception):
    """What the library raises."""


class Library:
    """Two GPUs; the second one is cut into MIG devices and supports little else."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        self.shut_down = False

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        self.shut_down = True

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index == 2:
            raise NVMLError("GPU is lost")
        return f"gpu{index}"

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:
        return SimpleNamespace(
            busId={"gpu0": "00000000:18:00.0", "gpu1": b"00010000:9A:00.0"}[handle]
        )

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return f"{'MIG' if handle.startswith('mig') else 'GPU'}-{handle}"

    def nvmlDeviceGetMinorNumber(self, handle: str) -> int:
        return {"gpu0": 1, "gpu1": 0}[handle]

    def nvmlDeviceGetMemoryAffinity(self, handle: str, words: int, scope: int) -> list[int]:
        assert scope == 0
        if handle == "gpu1":
            raise NVMLError("Not Supported")
        return [0b10, 1] + [0] * (words - 2)

    def nvmlDeviceGetCpuAffinity(self, handle: str, words: int) -> list[int]:
        return [0] * words if handle == "gpu1" else [0xFF] + [0] * (words - 1)

    def nvmlDeviceGetNumaNodeId(self, handle: str) -> int:
        if handle == "gpu0":
            raise NVMLError("Not Supported")
        return 10

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return [int(handle == "gpu1")] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index == 2:
            raise NVMLError("Not Found")
        return f"mig{index}"

    def nvmlDeviceGetTopologyCommonAncestor(self, one: str, other: str) -> int:
        return 50

    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
        if handle == "gpu1" or link > 3:
            raise NVMLError("Invalid Argument")
        return int(link != 1)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: str, link: int) -> int:
        return {0: 0, 2: 2, 3: 255}[link]

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: str, link: int) -> Any:
        return SimpleNamespace(busId="00010000:9A:00.0" if link == 0 else "0000:C1:00.0")


def test_what_is_asked_and_how_it_is_kept() -> None:
    library = Library()
    answer = nvml.gather(library)
    assert library.shut_down
    assert json.loads(json.dumps(answer)) == answer
    assert answer == {
        "unavailable": None,
        "driver": "570.86.15",
        "gpus": [
            {
                "index": 0, "address": "0000:18:00.0", "uuid": "GPU-gpu0", "minor": 1,
                "nodes": [1, 64], "cpus": list(range(8)), "memory_node": None, "mig": False,
                "mig_uuids": [], "levels": {"10000:9a:00.0": "SYS"},
                "nvlinks": ["gpu 10000:9a:00.0", "switch", "unknown"], "nvlinks_inactive": 1,
            },
            {
                "index": 1, "address": "10000:9a:00.0", "uuid": "GPU-gpu1", "minor": 0,
                "nodes": None, "cpus": None, "memory_node": 10, "mig": True,
                "mig_uuids": ["MIG-mig0", "MIG-mig1"], "levels": {"0000:18:00.0": "SYS"},
                "nvlinks": [], "nvlinks_inactive": 0,
            },
        ],
    }  # fmt: skip


def test_every_function_asked_for_is_in_the_bindings() -> None:
    pynvml = pytest.importorskip("pynvml")
    asked = [name for name in vars(Library) if name.startswith("nvml")]
    assert [name for name in asked if not hasattr(pynvml, name)] == []
    assert issubclass(pynvml.NVMLError, Exception)
    assert pynvml.NVML_AFFINITY_SCOPE_NODE == 0
    assert pynvml.NVML_NVLINK_MAX_LINKS == nvml._MOST_NVLINKS
    assert nvml._LEVELS == {
        pynvml.NVML_TOPOLOGY_INTERNAL: "X",
        pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
        pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        pynvml.NVML_TOPOLOGY_NODE: "NODE",
        pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }


def test_a_driver_that_does_not_start() -> None:
    class Broken(Library):
        def nvmlInit(self) -> None:
            raise NVMLError("Driver/library version mismatch")

    answer = nvml.gather(Broken())
    assert answer == {"unavailable": "Driver/library version mismatch", "driver": None, "gpus": []}


def test_an_old_library_lacks_functions() -> None:
    class Old(Library):
        def __getattribute__(self, name: str) -> Any:
            if name in ("nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetNumaNodeId"):
                raise AttributeError(name)
            return super().__getattribute__(name)

    told = [(gpu["nodes"], gpu["memory_node"]) for gpu in nvml.gather(Old())["gpus"]]
    assert told == [(None, None), (None, None)]


def nvlinks(library: Library) -> list[tuple[Any, Any]]:
    return [(gpu["nvlinks"], gpu["nvlinks_inactive"]) for gpu in nvml.gather(library)["gpus"]]


class Refused(NVMLError):
    """An error with its number, as the library's have."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


@pytest.mark.parametrize("value", [2, 3, 6])
def test_gaps_between_nvlinks(value: int) -> None:
    """NVML_ERROR_INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND: no such link."""

    class Gaps(Library):
        def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
            if link not in (2, 9):
                raise Refused(value)
            return int(link == 2)

    assert nvlinks(Gaps()) == [(["switch"], 1)] * 2


def test_states_of_nvlinks_that_are_told_as_a_field_alone() -> None:
    class Fields(Library):
        def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
            raise Refused(3)

        def nvmlDeviceGetFieldValues(self, handle: str, fields: list[tuple[int, int]]) -> list[Any]:
            ((number, link),) = fields
            assert number == nvml._STATE_FIELD
            # Inactive, active, asleep; there are no others.
            state = {1: 0, 2: 1, 3: 2}.get(link)
            value = SimpleNamespace(uiVal=state or 0)
            return [SimpleNamespace(nvmlReturn=2 if state is None else 0, value=value)]

    assert nvlinks(Fields())[0] == (["switch", "unknown"], 1)


@pytest.mark.parametrize("value", [4, 15, 999])
def test_nvlinks_that_are_not_told(value: int) -> None:
    """NVML_ERROR_NO_PERMISSION, _GPU_IS_LOST, _UNKNOWN: not none, but unknown."""

    class Silent(Library):
        def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
            raise Refused(value)

    assert nvlinks(Silent()) == [(None, None)] * 2


def test_a_driver_that_does_not_tell_what_an_nvlink_leads_to() -> None:
    class Old(Library):
        def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: str, link: int) -> int:
            raise Refused(3)

    # The address of one of the GPUs tells that it is a GPU; another may be a switch's.
    assert nvlinks(Old())[0] == (["gpu 10000:9a:00.0", "unknown", "unknown"], 1)


def test_numbers_of_errors_are_those_of_the_bindings() -> None:
    pynvml = pytest.importorskip("pynvml")
    assert nvml._NOT_THERE == (
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NOT_FOUND,
    )
    assert pynvml.NVMLError(3).value == 3
    assert pynvml.NVML_FI_DEV_NVLINK_GET_STATE == nvml._STATE_FIELD
    assert pynvml.NVML_NVLINK_STATE_INACTIVE == 0
    assert hasattr(pynvml, "nvmlDeviceGetFieldValues")
    assert {
        pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu",
        pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: "cpu",
        pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch",
    } == nvml._REMOTE_KINDS


def fake_module(folder: Path, text: str) -> None:
    (folder / "pynvml.py").write_text(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ImportError", "nvidia-ml-py is not installed"),
        ("import os; os.abort()", "it ended without an answer (exit -6)"),
        ("import sys; sys.exit(3)", "it ended without an answer (exit 3)"),
        ("print('x')\nraise ImportError", "it ended without an answer (exit 0)"),
        ("import time; time.sleep(60)", "it did not answer within 1 s"),
    ],
)
def test_the_library_runs_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    fake_module(tmp_path, text)
    monkeypatch.syspath_prepend(tmp_path)
    if "sleep" in text:
        monkeypatch.setattr(nvml, "_SECONDS", 1.0)
    assert nvml.ask() == {"unavailable": reason, "driver": None, "gpus": []}


def test_what_the_other_process_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__).parents[2]
    fake_module(
        tmp_path,
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        "from tests.host.test_devices_nvml import Library, NVMLError\n"
        "globals().update({n: getattr(Library(), n) for n in dir(Library) if n[0] == 'n'})\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert nvml.ask() == nvml.gather(Library())


def host(answer: Any) -> Host:
    return Host(TreeRoot({fact("nvml"): json.dumps(answer)}))


def test_the_fact_is_read_back() -> None:
    found = nvml.read_nvml(host(nvml.gather(Library())))
    assert sorted(found) == ["0000:18:00.0", "10000:9a:00.0"]
    gpu = found["10000:9a:00.0"]
    assert (gpu.minor, gpu.memory_node, gpu.mig, gpu.mig_uuids) == (
        0, 10, True, ("MIG-mig0", "MIG-mig1"),
    )  # fmt: skip
    assert nvml.node_of(host(nvml.gather(Library())), "0000:18:00.0") is None  # two nodes


@pytest.mark.parametrize(
    ("nodes", "node"), [([1], 1), ([0], 0), ([], None), (None, None), ([0, 1], None)]
)
def test_the_node_of_a_gpu(nodes: list[int] | None, node: int | None) -> None:
    answer = {"gpus": [{"index": 0, "address": "0000:18:00.0", "nodes": nodes}]}
    assert nvml.node_of(host(answer), "0000:18:00.0") == node
    assert nvml.node_of(host(answer), "0000:19:00.0") is None


@pytest.mark.parametrize(
    "answer",
    [[], {}, {"gpus": 1}, {"gpus": [1]}, {"gpus": [{}]}, {"gpus": [{"index": 0, "address": "x"}]},
     {"gpus": [{"index": 0, "address": "0:0:0.0", "nodes": ["a"]}]}],
)  # fmt: skip
def test_a_recording_of_something_else(answer: Any) -> None:
    with pytest.raises(Malformed):
        nvml.read_nvml(host(answer))


def test_what_is_not_there() -> None:
    with pytest.raises(Missing):
        nvml.read_nvml(Host(TreeRoot({})))
    with pytest.raises(Undecided, match="NVML Shared Library Not Found"):
        nvml.read_nvml(host({"unavailable": "NVML Shared Library Not Found", "gpus": []}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
)


@given(
    st.dictionaries(
        st.sampled_from(["index", "address", "nodes", "mig", "levels", "cpus", "nvlinks"]), JSON
    )
)
def test_any_recording_is_understood_or_undecided(entry: dict[str, Any]) -> None:
    with contextlib.suppress(Undecided):
        nvml.read_nvml(host({"gpus": [entry]}))


def test_without_a_library_nothing_is_loaded() -> None:
    program = "import numadoctor.host.devices, sys; print('pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False\n"
