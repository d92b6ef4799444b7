"""The checks of devices on damaged files: whatever stands there, a verdict or why there is none."""

import errno
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run
from numadoctor.host import Host
from numadoctor.model import Denied, Missing, Status, Target
from tests.build_fixtures import build
from tests.host.machines import TreeRoot
from tests.sample_hosts import MACHINES

CHECKS = [check for check in discover() if check.family == "G"]
SAMPLES = {
    machine.name: build(machine)
    for machine in MACHINES
    if machine.name in ("mi300x", "grace-blackwell", "gpus-permuted", "vm-unplaced-gpus")
}

NASTY = st.one_of(
    st.sampled_from(["", "\0", "-1", "-2", "99999", "Unknown", "0-1", "255", "0x", "a\nb: c\n"]),
    st.binary(max_size=20),
    st.sampled_from([Denied("/x", errno.EACCES), Missing("/x", errno.ENOENT)]),
)
ENVIRONMENT = st.dictionaries(
    st.sampled_from(
        ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NCCL_IB_HCA",
         "UCX_NET_DEVICES", "NCCL_TOPO_FILE", "LOCAL_RANK"]
    ),
    st.text("0123456789,^=:-GPUMIGmlx_/al", max_size=12),
)  # fmt: skip
ABOUT_DEVICES = ("/sys/devices/pci", "/proc/driver", "/sys/class/kfd", "/sys/devices/system/node")


@given(st.data())
def test_damaged_files_give_no_error(data: st.DataObject) -> None:
    files, links = SAMPLES[data.draw(st.sampled_from(sorted(SAMPLES)))]
    paths = sorted(path for path in files if path.startswith(ABOUT_DEVICES))
    changed: dict[str, Any] = {
        path: data.draw(NASTY)
        for path in data.draw(st.lists(st.sampled_from(paths), max_size=6, unique=True))
    }
    proc = "/proc/77"
    environment = data.draw(ENVIRONMENT)
    opened = data.draw(
        st.lists(st.sampled_from(["/dev/nvidia0", "/dev/dri/renderD136"]), max_size=2)
    )
    changed |= {
        f"{proc}/environ": "".join(f"{name}={value}\0" for name, value in environment.items()),
        f"{proc}/cmdline": data.draw(st.sampled_from(["a\0", "a\0--tp\0" + "2\0", "a\0-tp=x\0"])),
        f"{proc}/status": files["/proc/self/status"],
    }
    fds = {f"{proc}/fd/{n}": target for n, target in enumerate(("/dev/null", *opened))}
    host = Host(TreeRoot({**files, **changed}, {**links, **fds}))
    report = run(host, CHECKS, [Target(77, "worker")])
    assert [f.message for f in report.findings if f.status is Status.ERROR] == []
    for finding in report.findings:
        assert "\n" not in finding.message
        assert len(finding.message) < 1000
        if finding.status in (Status.WARN, Status.FAIL):
            assert finding.evidence, finding
            assert finding.fixes, finding


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
)


@pytest.mark.parametrize("name", ["grace-blackwell", "vm-unplaced-gpus"])
@given(st.dictionaries(st.sampled_from(["unavailable", "gpus", "driver"]), JSON))
def test_any_answer_of_nvml_gives_no_error(name: str, answer: dict[str, Any]) -> None:
    files, links = SAMPLES[name]
    recorded = {**files, "/.numadoctor/facts/nvml.json": json.dumps(answer)}
    report = run(Host(TreeRoot(recorded, links)), [c for c in CHECKS if c.id in ("G001", "G002")])
    assert [f.message for f in report.findings if f.status is Status.ERROR] == []
