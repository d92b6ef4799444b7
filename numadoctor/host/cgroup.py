"""Where a process stands in the cgroup trees, v1 and v2, and the limits that act on it."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import Missing, Undecided


@dataclass(frozen=True)
class Cgroup:
    """The directories of a process's cgroups.

    :ivar host: where they are read
    :ivar directories: controller name to its directory; the v2 tree is ""
    :ivar tops: controller name to the directory where its tree is mounted
    :ivar no_prefix: the cpuset tree has files named cpus and mems (its own
        file system of before cgroups, and the noprefix mount option)
    """

    host: Host
    directories: dict[str, str]
    tops: dict[str, str]
    no_prefix: bool = False

    @property
    def unified(self) -> bool:
        """Whether the process's controllers are those of a cgroup v2 tree."""
        return "" in self.directories

    @property
    def cpuset(self) -> str | None:
        """The directory of its cpuset, or None where there is none to be seen."""
        directory = self.directories.get("cpuset")
        if directory is not None:
            return directory
        return self._nearest("cpuset.cpus.effective")

    def cpuset_file(self, what: str) -> str:
        """The file that lists its ``cpus`` or ``mems``."""
        directory = self.directories.get("cpuset")
        if directory is None:
            return f"{self.cpuset}/cpuset.{what}.effective"
        return f"{directory}/{what}" if self.no_prefix else f"{directory}/cpuset.{what}"

    def _nearest(self, name: str) -> str | None:
        """The nearest v2 directory that has ``name``, from the process's upwards."""
        for directory in self.ancestors(""):
            try:
                self.host.read(f"{directory}/{name}")
            except Undecided:
                continue
            return directory
        return None

    def ancestors(self, controller: str) -> Iterator[str]:
        """Its directory in that tree and all above it: a limit of any of them acts."""
        directory, top = self.directories.get(controller), self.tops.get(controller)
        if directory is None or top is None:
            return
        while directory.startswith(top):
            yield directory
            if directory == top:
                return
            directory = posixpath.dirname(directory)

    def limit(self, v2: str, v1_controller: str, v1: str) -> tuple[int, str] | None:
        """The tightest limit in bytes and the file that sets it; None where nothing limits.

        :param v2: the file in a v2 directory ("memory.max")
        :param v1_controller: the controller of the v1 file ("memory")
        :param v1: the file in a v1 directory ("memory.limit_in_bytes")
        :raises Denied: a file is there and may not be read
        :raises Malformed: a file holds no limit
        """
        controller, name = (v1_controller, v1) if v1_controller in self.directories else ("", v2)
        tightest: tuple[int, str] | None = None
        for directory in self.ancestors(controller):
            path = f"{directory}/{name}"
            try:
                value = self.host.parse(path, parsers.parse_cgroup_limit)
            except Missing:
                continue
            if value is not None and (tightest is None or value < tightest[0]):
                tightest = value, path
        return tightest


def read_cgroup(host: Host, proc: str) -> Cgroup:
    """Where the process at ``proc`` stands; empty where mounts or membership cannot be read."""
    memberships = _memberships(host, proc)
    directories: dict[str, str] = {}
    tops: dict[str, str] = {}
    no_prefix = False
    for mount in _mounts(host, proc):
        if mount.fstype == "cgroup2":
            names = [""]
        elif mount.fstype == "cpuset":
            names, no_prefix = ["cpuset"], True
        elif mount.fstype == "cgroup":
            names = [option for option in mount.options if option in memberships]
            no_prefix = no_prefix or ("cpuset" in names and "noprefix" in mount.options)
        else:
            continue
        for name in names:
            if name in memberships and name not in directories:
                directories[name] = _inside(host, mount.point, memberships[name])
                tops[name] = mount.point
    return Cgroup(host, directories, tops, no_prefix)


def _inside(host: Host, point: str, path: str) -> str:
    # In a container without a cgroup namespace the path is the host's, and
    # what is mounted is the container's own part of the tree.
    directory = posixpath.normpath(f"{point}/{path}").rstrip("/")
    if not directory.startswith(point.rstrip("/")):
        return point
    try:
        return directory if host.has(directory) else point
    except Undecided:
        return directory


def _mounts(host: Host, proc: str) -> tuple[parsers.Mount, ...]:
    for path in (f"{proc}/mounts", "/proc/mounts"):
        try:
            return host.parse(path, parsers.parse_mounts)
        except Undecided:
            continue
    return ()


def _memberships(host: Host, proc: str) -> dict[str, str]:
    """Controller to path; "" is the v2 tree."""
    paths: dict[str, str] = {}
    try:
        for entry in host.parse(f"{proc}/cgroup", parsers.parse_proc_cgroup):
            for name in entry.controllers or ("",):
                paths[name] = entry.path
    except Undecided:
        pass
    if "cpuset" not in paths:
        # /proc/PID/cpuset names the cpuset in whichever tree it is.
        try:
            path = host.text(f"{proc}/cpuset") or "/"
        except Undecided:
            return paths
        paths.setdefault("", path)
        if paths[""] == path or "" not in paths:
            paths["cpuset"] = path
    return paths
