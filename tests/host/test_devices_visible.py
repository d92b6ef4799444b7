"""What the variables of runtimes leave visible."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host, open_root
from numadoctor.host.devices.visible import Visible, visible_devices
from numadoctor.model import Device
from tests.host.machines import TreeRoot
from tests.trees import fact

BUSES = ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")
NO_NVML = Host(TreeRoot({}))


def uuid(number: int) -> str:
    return f"GPU-{number}aaaaaaa-0000-0000-0000-00000000000{number}"


GPUS = tuple(
    Device(f"0000:{bus}:00.0", 0x030200, 0x10DE, 0x2330, "gpu", n // 4, "sysfs", uuid=uuid(n))
    for n, bus in enumerate(BUSES)
)


def seen(environment: dict[str, str], devices: tuple[Device, ...] = GPUS) -> Visible:
    return visible_devices(NO_NVML, environment, devices)


def ranks(visible: Visible, devices: tuple[Device, ...] = GPUS) -> list[int]:
    return [devices.index(device) for device in visible.devices]


@pytest.mark.parametrize(
    ("value", "expected", "ignored"),
    [
        ("3,6,5,4,0,7,1,2", [3, 6, 5, 4, 0, 7, 1, 2], ()),
        ("0", [0], ()),
        (" 1 , 2 ", [1, 2], ()),
        ("", [], ()),
        ("  ", [], ()),
        ("-1", [], ("-1",)),
        ("0,2,-1,1", [0, 2], ("-1", "1")),
        ("0,8,1", [0], ("8", "1")),
        ("NoDevFiles", [], ("NoDevFiles",)),
        ("1,,2", [1], ("", "2")),
        ("all", [], ("all",)),
        ("\u0661", [], ("\u0661",)),
        ("0x1", [], ("0x1",)),
        ("99999999999999999999", [], ("99999999999999999999",)),
        (uuid(5), [5], ()),
        ("GPU-5", [5], ()),
        ("GPU-5AAA", [5], ()),
        (f"{uuid(7)},0", [7, 0], ()),
        # A prefix has to be of one GPU alone.
        ("GPU-,0", [], ("GPU-", "0")),
        ("GPU-99", [], ("GPU-99",)),
        (f"MIG-{uuid(3)}/1/0", [3], ()),
    ],
)
def test_cuda_visible_devices(value: str, expected: list[int], ignored: tuple[str, ...]) -> None:
    visible = seen({"CUDA_VISIBLE_DEVICES": value})
    assert (ranks(visible), visible.ignored) == (expected, ignored)
    assert visible.settings == (f"CUDA_VISIBLE_DEVICES={value}",)
    assert visible.certain


def test_without_variables_all_are_seen() -> None:
    visible = seen({"PATH": "/bin"})
    assert (ranks(visible), visible.settings, visible.certain) == (list(range(8)), (), True)


def test_named_twice_is_open() -> None:
    visible = seen({"CUDA_VISIBLE_DEVICES": "1,1"})
    assert not visible.certain
    assert "named twice" in visible.remarks[0]


def test_several_models_are_counted_by_speed() -> None:
    mixed = (GPUS[0]._replace(device=0x2204), *GPUS[1:3])
    visible = seen({"CUDA_VISIBLE_DEVICES": "0"}, mixed)
    assert not visible.certain
    assert "by speed" in visible.remarks[-1]
    assert set(visible.devices) == set(mixed)
    ordered = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert (ranks(seen(ordered, mixed), mixed), seen(ordered, mixed).certain) == ([0], True)
    by_uuid = seen({"CUDA_VISIBLE_DEVICES": "GPU-2"}, mixed)
    assert (ranks(by_uuid, mixed), by_uuid.certain) == ([2], True)


def test_uuids_that_no_file_tells() -> None:
    nameless = tuple(gpu._replace(uuid="") for gpu in GPUS)
    visible = seen({"CUDA_VISIBLE_DEVICES": "GPU-5"}, nameless)
    assert not visible.certain
    assert len(visible.devices) == 8


def test_nvml_tells_uuids_and_mig_devices() -> None:
    nameless = tuple(gpu._replace(uuid="") for gpu in GPUS)
    gpus = [
        {"index": n, "address": gpu.address, "uuid": gpu.uuid, "mig_uuids": [f"MIG-{n}"]}
        for n, gpu in enumerate(GPUS)
    ]
    host = Host(TreeRoot({fact("nvml"): json.dumps({"unavailable": None, "gpus": gpus})}))
    visible = visible_devices(host, {"CUDA_VISIBLE_DEVICES": "GPU-5"}, nameless)
    assert (ranks(visible, nameless), visible.certain) == ([5], True)
    visible = visible_devices(host, {"CUDA_VISIBLE_DEVICES": "MIG-2,MIG-3"}, nameless)
    assert ranks(visible, nameless) == [2, 3]
    assert "the first alone" in visible.remarks[-1]


@pytest.mark.parametrize(
    ("given_", "cuda", "expected", "certain"),
    [
        ("all", None, list(range(8)), True),
        ("void", None, list(range(8)), True),
        ("4,5", None, [4, 5], True),
        # The toolkit's order does not count: inside, CUDA counts along the bus.
        ("5,4", "0", [4], True),
        (f"{uuid(6)},{uuid(2)}", "1,0", [6, 2], True),
        ("4,9", "0", [0], False),
    ],
)
def test_container_toolkit(
    given_: str, cuda: str | None, expected: list[int], certain: bool
) -> None:
    environment = {"NVIDIA_VISIBLE_DEVICES": given_}
    if cuda is not None:
        environment["CUDA_VISIBLE_DEVICES"] = cuda
    visible = seen(environment)
    assert (ranks(visible), visible.certain) == (expected, certain)


@given(st.permutations(range(8)), st.integers(0, 8))
def test_any_permutation_is_the_order_of_ranks(order: list[int], length: int) -> None:
    value = ",".join(map(str, order[:length]))
    visible = seen({"CUDA_VISIBLE_DEVICES": value})
    assert ranks(visible) == order[:length]
    by_uuid = ",".join(uuid(n) for n in order[:length])
    assert ranks(seen({"CUDA_VISIBLE_DEVICES": by_uuid})) == order[:length]


@given(
    st.dictionaries(
        st.sampled_from(
            ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
             "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"]
        ),
        st.text(max_size=12) | st.from_regex(r"(GPU-|MIG-)?[0-9,a-]{0,12}", fullmatch=True),
    )
)  # fmt: skip
def test_any_environment_leaves_devices_that_are_there(environment: dict[str, str]) -> None:
    visible = seen(environment)
    assert set(visible.devices) <= set(GPUS)
    assert len(set(visible.devices)) == len(visible.devices)


# AMD: KFD's topology of the sample tells order and ids.

MI300X = Host(open_root("sample:mi300x"))
AMD = tuple(device for device in MI300X.topology.devices if device.kind == "gpu")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ROCR_VISIBLE_DEVICES": "6,7"}, [6, 7]),
        ({"ROCR_VISIBLE_DEVICES": "6,7", "HIP_VISIBLE_DEVICES": "1"}, [7]),
        ({"HIP_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        # HIP takes CUDA's variable where its own is not set.
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "5"}, [5]),
        ({"ROCR_VISIBLE_DEVICES": "4,5,6", "GPU_DEVICE_ORDINAL": "2,1"}, [6, 5]),
        ({"GPU_DEVICE_ORDINAL": "2,1", "HIP_VISIBLE_DEVICES": "0"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-5c88007c09fd0003,0"}, [3, 0]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-5C88007C09FD0003"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "9"}, []),
    ],
)  # fmt: skip
def test_amd(environment: dict[str, str], expected: list[int]) -> None:
    visible = visible_devices(MI300X, environment, AMD)
    assert ([AMD.index(device) for device in visible.devices], visible.certain) == (expected, True)


def test_amd_without_kfd_is_open() -> None:
    visible = visible_devices(NO_NVML, {"ROCR_VISIBLE_DEVICES": "1"}, AMD)
    assert visible.devices == (AMD[1],)
    assert not visible.certain
    assert visible_devices(NO_NVML, {}, AMD).certain


def test_rocr_says_nothing_of_other_vendors() -> None:
    visible = visible_devices(MI300X, {"ROCR_VISIBLE_DEVICES": ""}, (*GPUS[:2], *AMD))
    assert visible.devices == GPUS[:2]
