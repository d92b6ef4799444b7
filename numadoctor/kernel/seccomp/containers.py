"""The config.json by which a container runtime started a process, found on the host.

It holds the seccomp profile with all conditions of the engine resolved, and
the capabilities. The container's id is in the process's cgroup.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from numadoctor.model import Undecided

_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_MOST_NAMESPACES: Final = 50

# Bundles by the engine that makes them; {id} is the container's.
_CONTAINERD: Final = (
    "/run/containerd/io.containerd.runtime.v2.task",
    "/run/docker/containerd/daemon/io.containerd.runtime.v2.task",
    "/run/k3s/containerd/io.containerd.runtime.v2.task",
)
_STORAGES: Final = ("overlay", "vfs", "btrfs")
_STORAGE_ROOTS: Final = ("/var/lib/containers/storage", "/run/containers/storage")
_STATES: Final = (
    "/run/runc/{id}/state.json",
    "/run/docker/runtime-runc/moby/{id}/state.json",
    "/run/containerd/runc/k8s.io/{id}/state.json",
    "/run/crun/{id}/status",
)


class Host(Protocol):
    """What is needed of numadoctor.host.Host."""

    def list(self, path: str) -> tuple[str, ...]: ...
    def text(self, path: str) -> str: ...
    def read(self, path: str) -> bytes: ...


class Config(NamedTuple):
    """A runtime's description of a container.

    :ivar path: of the config.json
    :ivar runtime: ``runc`` or ``crun``: who made the filter of it; empty where unknown
    :ivar content: the file
    """

    path: str
    runtime: str
    content: bytes


def find_config(host: Host, pid: int | str) -> Config | None:
    """The config.json of the container that the process is in; None where there is none."""
    for container in container_ids(host, pid):
        for path, runtime in _candidates(host, container):
            try:
                return Config(path, runtime, host.read(path))
            except Undecided:
                continue
    return None


def container_ids(host: Host, pid: int | str) -> tuple[str, ...]:
    """The 64 hex digits that engines name containers by, innermost first."""
    try:
        cgroup = host.text(f"/proc/{pid}/cgroup")
    except Undecided:
        return ()
    return tuple(dict.fromkeys(reversed(_ID.findall(cgroup))))


def _candidates(host: Host, container: str) -> Iterator[tuple[str, str]]:
    for top in _CONTAINERD:
        for namespace in _names(host, top):
            yield f"{top}/{namespace}/{container}/config.json", "runc"
    for root in _STORAGE_ROOTS:
        for kind in _STORAGES:
            yield f"{root}/{kind}-containers/{container}/userdata/config.json", ""
    for state in _STATES:
        path = state.format(id=container)
        if bundle := _bundle(host, path):
            runtime = "crun" if "/crun/" in path else "runc"
            yield posixpath.join(bundle, "config.json"), runtime


def _names(host: Host, folder: str) -> tuple[str, ...]:
    try:
        return tuple(name for name in host.list(folder))[:_MOST_NAMESPACES]
    except Undecided:
        return ()


def _bundle(host: Host, path: str) -> str:
    """What a runtime's own state says of where the container's bundle is, or nothing."""
    try:
        state: Any = json.loads(host.read(path))
    except (Undecided, ValueError, RecursionError):
        return ""
    if not isinstance(state, dict):
        return ""
    if isinstance(state.get("bundle"), str):  # crun
        return str(state["bundle"])
    config = state.get("config")
    labels = config.get("labels") if isinstance(config, dict) else None
    for label in labels if isinstance(labels, list) else ():
        if isinstance(label, str) and label.startswith("bundle=/"):
            return label.removeprefix("bundle=")
    return ""
