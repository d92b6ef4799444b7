"""Where a process stands in the cgroup trees, v1 and v2, and the limits that act on it."""

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from numadoctor.host import parsers
from numadoctor.host.host import Host
from numadoctor.model import Missing, Undecided

# The controller name under which the one v2 tree is kept; /proc/PID/cgroup names it so, too.
UNIFIED = ""


class Cgroup(NamedTuple):
    """The directories of a process's cgroups.

    :ivar directories: controller name to its directory; UNIFIED is the v2 tree
    :ivar tops: controller name to the directory where its tree is mounted
    :ivar no_prefix: the cpuset tree has files named cpus and mems (its own
        file system of before cgroups, and the noprefix mount option)
    """

    host: Host
    proc: str
    directories: dict[str, str]
    tops: dict[str, str]
    no_prefix: bool = False

    @property
    def unified(self) -> bool:
        """Whether the process is in a cgroup v2 tree that can be seen (perhaps beside v1)."""
        return UNIFIED in self.directories

    @property
    def cpuset(self) -> str | None:
        """The directory of its cpuset, or None where there is none to be seen.

        In v2 the nearest one above that has the controller: below it nothing narrows.
        """
        return self.directories.get("cpuset") or self._nearest("cpuset.cpus.effective")

    @property
    def cpuset_top(self) -> str | None:
        """Where the tree of that cpuset is mounted."""
        return self.tops.get("cpuset" if "cpuset" in self.directories else UNIFIED)

    def cpuset_file(self, what: str) -> str:
        """The file that lists its ``cpus`` or ``mems``."""
        if "cpuset" not in self.directories:
            return f"{self.cpuset}/cpuset.{what}.effective"
        return f"{self.directories['cpuset']}/{'' if self.no_prefix else 'cpuset.'}{what}"

    def _nearest(self, name: str) -> str | None:
        for directory in self.ancestors(UNIFIED):
            try:
                self.host.read(f"{directory}/{name}")
            except Missing:
                continue
            except Undecided:
                pass
            return directory
        return None

    def ancestors(self, controller: str) -> Iterator[str]:
        """Its directory in that tree and all above it: a limit of any of them acts."""
        directory, top = self.directories.get(controller), self.tops.get(controller)
        while directory is not None and top is not None:
            yield directory
            if directory == top:
                return
            directory = posixpath.dirname(directory)

    def limit(self, v2: str, v1_controller: str, v1: str | None) -> tuple[int, str] | None:
        """The tightest limit (in the file's unit) and the file that sets it; None if unlimited.

        Limits above the part of the tree that is mounted here cannot be seen.

        :param v2: the file in a v2 directory ("memory.max")
        :param v1_controller: the controller of the v1 file ("memory")
        :param v1: the file in a v1 directory ("memory.limit_in_bytes"); None where
            v1 has no such limit
        :raises Missing: the process's cgroup is not to be seen at all
        :raises Denied: a file is there and may not be read
        :raises Malformed: a file holds no limit
        """
        controller, name = v1_controller, v1
        if controller not in self.directories:
            controller, name = UNIFIED, v2
        if controller not in self.directories:
            raise self._unseen()
        if name is None:
            return None
        tightest: tuple[int, str] | None = None
        for directory in self.ancestors(controller):
            path = f"{directory}/{name}"
            try:
                value = self.host.parse(path, parsers.parse_cgroup_limit)
            except Missing:
                # The root has no limits, and no directory below one that does
                # not hand the controller down.
                continue
            if value is not None and (tightest is None or value < tightest[0]):
                tightest = value, path
        return tightest

    def _unseen(self) -> Undecided:
        try:
            self.host.read(f"{self.proc}/cgroup")
        except Undecided as error:
            return error
        return Missing(f"{self.proc}/cgroup", None, "the cgroup tree it names is not mounted here")


def read_cgroup(host: Host, proc: str) -> Cgroup:
    """Where the process at ``proc`` stands; empty where mounts or membership cannot be read."""
    memberships = _memberships(host, proc)
    directories: dict[str, str] = {}
    tops: dict[str, str] = {}
    no_prefix = False
    for mount in _mounts(host, proc):
        for name in _controllers(mount, memberships):
            # The first mount of a tree is as good as any other of it.
            if name in memberships and name not in directories:
                tops[name] = posixpath.normpath(mount.point)
                directories[name] = _inside(host, tops[name], memberships[name])
                if name == "cpuset":
                    no_prefix = mount.fstype == "cpuset" or "noprefix" in mount.options
    return Cgroup(host, proc, directories, tops, no_prefix)


def _controllers(mount: parsers.Mount, memberships: dict[str, str]) -> list[str]:
    if mount.fstype == "cgroup2":
        return [UNIFIED]
    if mount.fstype == "cpuset":
        return ["cpuset"]
    if mount.fstype == "cgroup":
        return [option for option in mount.options if option in memberships]
    return []


def _inside(host: Host, top: str, path: str) -> str:
    """The directory of the cgroup ``path`` in the tree mounted at ``top``.

    In a container without a cgroup namespace the path is the machine's, and
    mounted is the container's own part of the tree. Outside of the reader's
    namespace it begins with ``/..`` (cgroup_namespaces(7)).
    """
    directory = posixpath.normpath(f"{top}/{path}")
    if directory != top and not directory.startswith(f"{top.rstrip('/')}/"):
        return top
    try:
        return directory if host.has(directory) else top
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
    """Controller to path."""
    paths: dict[str, str] = {}
    try:
        for entry in host.parse(f"{proc}/cgroup", parsers.parse_proc_cgroup):
            for name in entry.controllers or (UNIFIED,):
                paths[name] = entry.path
    except Undecided:
        pass
    if "cpuset" not in paths:
        # /proc/PID/cpuset names the cpuset in whichever tree it is; kernels and
        # captured trees without /proc/PID/cgroup have it.
        try:
            path = host.text(f"{proc}/cpuset") or "/"
        except Undecided:
            return paths
        if UNIFIED not in paths:
            paths["cpuset"] = paths[UNIFIED] = path
    return paths
