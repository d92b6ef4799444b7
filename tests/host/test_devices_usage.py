"""Which GPUs a process uses: descriptors, variables, rank."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import FolderRoot, Host, sample_names
from numadoctor.host.devices.opened import opened_devices
from numadoctor.host.devices.usage import present_devices, read_usage
from numadoctor.host.root import sample_folder
from numadoctor.model import Denied, Device, Missing
from tests.build_fixtures import build
from tests.host.machines import Changes, TreeRoot
from tests.sample_hosts import MACHINES

SERVER = next(machine for machine in MACHINES if machine.name == "two-socket")
FILES, LINKS = build(SERVER)
PROC = "/proc/77"


def host(
    opened: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    changes: Changes | None = None,
) -> Host:
    links = {f"{PROC}/fd/{n}": target for n, target in enumerate(("/dev/null", *opened))}
    text = "".join(f"{name}={value}\0" for name, value in (environment or {}).items())
    files = {**FILES, f"{PROC}/environ": text, f"{PROC}/cmdline": "python3\0", **(changes or {})}
    return Host(TreeRoot(files, {**LINKS, **links}))


def addresses(devices: tuple[Device, ...]) -> list[str]:
    return [device.address.split(":")[1] for device in devices]


def test_a_worker_with_one_gpu_open() -> None:
    usage = read_usage(host(("/dev/nvidia4", "/dev/nvidiactl", "/dev/nvidia-uvm")), PROC)
    assert addresses(usage.devices) == ["9a"]
    assert usage.certain
    assert [e.text for e in usage.evidence] == ["/dev/nvidia4"]


def test_minor_numbers_are_no_indices() -> None:
    swapped: Changes = {
        f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information": f"Device Minor: {minor}\n"
        for bus, minor in (("18", 4), ("9a", 0))
    }
    usage = read_usage(host(("/dev/nvidia4",), changes=swapped), PROC)
    assert addresses(usage.devices) == ["18"]


def test_variables_choose_among_what_is_open() -> None:
    every = tuple(f"/dev/nvidia{n}" for n in range(8))
    usage = read_usage(host(every, {"CUDA_VISIBLE_DEVICES": "6,2"}), PROC)
    assert addresses(usage.devices) == ["ba", "3a"]
    assert not usage.certain
    assert any("hides from its runtime" in remark for remark in usage.remarks)


def test_descriptors_win_where_nothing_is_in_common() -> None:
    usage = read_usage(host(("/dev/nvidia1",), {"CUDA_VISIBLE_DEVICES": "6"}), PROC)
    assert addresses(usage.devices) == ["2a"]
    assert usage.certain


@pytest.mark.parametrize(
    ("environment", "title", "bus"),
    [
        ({"LOCAL_RANK": "5"}, "python3", "ab"),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "7,6,5,4"}, "python3", "ba"),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, "python3", "5d"),
        ({}, "VLLM::Worker_TP3", "5d"),
        ({"LOCAL_RANK": "0"}, "VLLM::Worker_TP3", "5d"),
        ({}, "sglang::scheduler_TP2", "3a"),
    ],
)
def test_rank(environment: dict[str, str], title: str, bus: str) -> None:
    every = tuple(f"/dev/nvidia{n}" for n in range(8))
    usage = read_usage(host(every, environment, {f"{PROC}/cmdline": f"{title}\0"}), PROC)
    assert addresses(usage.devices) == [bus]
    assert (usage.because, usage.certain) == ("its rank", False)


@pytest.mark.parametrize("rank", ["8", "-1", "", "x", "\u0661", "9999"])
def test_a_rank_that_is_none(rank: str) -> None:
    every = tuple(f"/dev/nvidia{n}" for n in range(8))
    assert len(read_usage(host(every, {"LOCAL_RANK": rank}), PROC).devices) == 8


def test_a_minor_of_no_known_gpu_is_told() -> None:
    opened = opened_devices(host(("/dev/nvidia9",)), PROC, host().topology.devices)
    assert (opened.devices, opened.unmapped) == ((), ("/dev/nvidia9",))


def test_what_cannot_be_read() -> None:
    denied = host(changes={f"{PROC}/fd": Denied(f"{PROC}/fd", errno.EACCES)})
    usage = read_usage(denied, PROC)
    assert (usage.opened, len(usage.devices)) == (None, 8)
    nothing = host(changes={f"{PROC}/environ": Missing(f"{PROC}/environ", errno.ENOENT)})
    assert read_usage(nothing, PROC).visible is None


def test_an_rdma_device_by_its_verbs_file() -> None:
    changes: Changes = {"/sys/class/infiniband_verbs/uverbs3/ibdev": "mlx5_4\n"}
    found = host(("/dev/infiniband/uverbs3",), changes=changes)
    opened = opened_devices(found, PROC, found.topology.devices)
    assert addresses(opened.devices) == ["99"]
    assert read_usage(found, PROC).because == "all of them"


def test_a_container_sees_the_gpus_it_was_given() -> None:
    files = {
        path: text
        for path, text in FILES.items()
        if not path.startswith("/proc/driver/nvidia/gpus/") or "0000:9a" in path
    }
    assert addresses(present_devices(Host(TreeRoot(files, LINKS)))) == ["9a"]


@given(st.lists(st.text("/dvnia0123456789renD-ls", max_size=14), max_size=6))
def test_any_descriptors(targets: list[str]) -> None:
    links = {f"{PROC}/fd/{n}": target for n, target in enumerate(targets) if target}
    found = Host(TreeRoot({**FILES, f"{PROC}/fd/99/x": ""}, {**LINKS, **links}))
    opened = opened_devices(found, PROC, found.topology.devices)
    assert len(opened.devices) + len(opened.unmapped) <= len(set(targets))


@pytest.mark.parametrize("name", sample_names())
def test_every_sample_tells_what_the_caller_uses(name: str) -> None:
    usage = read_usage(Host(FolderRoot(sample_folder(name))))
    assert usage.opened is not None or not usage.devices
    assert not usage.remarks
