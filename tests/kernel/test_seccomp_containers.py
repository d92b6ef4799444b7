"""Where the runtimes keep what they were told of a container."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host, open_root
from numadoctor.kernel.seccomp.containers import container_ids, find_config
from tests.trees import Tree

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
CONFIG = json.dumps({"linux": {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}}})
DOCKER = f"0::/system.slice/docker-{ID}.scope\n"


def host(folder: Path, files: dict[str, str]) -> Host:
    return Host(open_root(str(Tree(files=files).build(folder))))


@pytest.mark.parametrize(
    ("cgroup", "path", "runtime"),
    [
        (DOCKER, f"/run/containerd/io.containerd.runtime.v2.task/moby/{ID}/config.json", "runc"),
        (
            f"0::/kubepods.slice/kubepods-podx.slice/cri-containerd-{ID}.scope\n",
            f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json",
            "runc",
        ),
        (
            f"12:pids:/kubepods/burstable/podx/{ID}\n1:name=systemd:/kubepods/burstable/podx/{ID}\n",
            f"/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json",
            "runc",
        ),
        (
            f"0::/machine.slice/libpod-{ID}.scope/container\n",
            f"/var/lib/containers/storage/overlay-containers/{ID}/userdata/config.json",
            "",
        ),
        (
            f"0::/kubepods.slice/crio-{ID}.scope\n",
            f"/run/containers/storage/overlay-containers/{ID}/userdata/config.json",
            "",
        ),
    ],
)
def test_each_runtimes_own_place(cgroup: str, path: str, runtime: str, tmp_path: Path) -> None:
    found = find_config(host(tmp_path, {"/proc/7/cgroup": cgroup, path: CONFIG}), 7)
    assert found is not None
    assert (found.path, found.runtime, found.content) == (path, runtime, CONFIG.encode())


@pytest.mark.parametrize(
    ("state", "text", "runtime"),
    [
        (f"/run/runc/{ID}/state.json", {"config": {"labels": ["a=b", "bundle=/b/1"]}}, "runc"),
        (f"/run/crun/{ID}/status", {"bundle": "/b/1", "pid": 7}, "crun"),
    ],
)
def test_a_runtime_of_its_own_says_where_the_bundle_is(
    state: str, text: dict[str, object], runtime: str, tmp_path: Path
) -> None:
    files = {
        "/proc/7/cgroup": DOCKER,
        state: json.dumps(text),
        "/b/1/config.json": CONFIG,
    }
    found = find_config(host(tmp_path, files), 7)
    assert found is not None
    assert (found.path, found.runtime) == ("/b/1/config.json", runtime)


def test_the_innermost_container_is_looked_for_first(tmp_path: Path) -> None:
    cgroup = f"0::/docker/{OTHER}/kubelet/kubepods/podx/{ID}\n"
    assert container_ids(host(tmp_path, {"/proc/7/cgroup": cgroup}), 7) == (ID, OTHER)


@pytest.mark.parametrize(
    "cgroup",
    [None, "", "0::/user.slice\n", f"0::/{ID}0\n", "0::/docker/0123456789ab\n", "\xff::\n"],
)
def test_no_container_no_config(cgroup: str | None, tmp_path: Path) -> None:
    files = {} if cgroup is None else {"/proc/7/cgroup": cgroup}
    files["/proc/7/comm"] = "x\n"
    assert find_config(host(tmp_path, files), 7) is None


states = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["config", "labels", "bundle"]), inner)
    ),
)


@given(st.text(max_size=40) | states.map(json.dumps))
def test_a_hostile_state_leads_nowhere(text: str) -> None:
    class Fake:
        def list(self, path: str) -> tuple[str, ...]:
            return ()

        def text(self, path: str) -> str:
            return DOCKER

        def read(self, path: str) -> bytes:
            from numadoctor.model import Missing

            if path.endswith("state.json"):
                return text.encode("utf-8", "replace")
            raise Missing(path)

    assert find_config(Fake(), 7) is None
