"""Machines in memory: the trees that tests/build_fixtures.py builds, read without a disk."""

import errno
from collections.abc import Mapping

from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.model import Missing, Undecided
from tests.build_fixtures import Device, Machine, Node, Package, build, listed

# What stands at a path: text, bytes, or the error of reading it.
Changes = Mapping[str, str | bytes | Undecided]


class TreeRoot:
    """A root over files and symbolic links by absolute path."""

    live = False
    label = "tree"

    def __init__(self, files: Changes, links: Mapping[str, str] | None = None) -> None:
        self.files = dict(files)
        self.links = dict(links or {})

    def _resolve(self, path: str) -> str:
        done: list[str] = []
        steps = path.split("/")[::-1]
        while steps:
            step = steps.pop()
            if step == "..":
                del done[-1:]
            elif step:
                done.append(step)
                target = self.links.get("/" + "/".join(done))
                if target:
                    del done[0 if target.startswith("/") else -1 :]
                    steps += target.split("/")[::-1]
        return "/" + "/".join(done)

    def read(self, path: str, limit: int = 0) -> bytes:
        content = self.files.get(self._resolve(path), Missing(path, errno.ENOENT))
        if isinstance(content, Undecided):
            raise content
        return content.encode() if isinstance(content, str) else content

    def list(self, path: str) -> tuple[str, ...]:
        folder = self._resolve(path)
        if isinstance(error := self.files.get(folder), Undecided):
            raise error
        prefix = folder.rstrip("/") + "/"
        below = {
            other[len(prefix) :].split("/")[0]
            for other in (*self.files, *self.links)
            if other.startswith(prefix)
        }
        if not below:
            raise Missing(path, errno.ENOENT)
        return tuple(sorted(below))

    def link(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        place = path if path in self.links else f"{self._resolve(folder)}/{name}"
        if place not in self.links:
            raise Missing(path, errno.ENOENT)
        return self.links[place]


def host_of(machine: Machine, changes: Changes | None = None) -> Host:
    """The machine as numadoctor sees it, with ``changes`` by path."""
    files, links = build(machine)
    return Host(TreeRoot({**files, **(changes or {})}, links))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Any machine: sparse node ids, CPUs spread anyhow, nodes without either, offline CPUs."""
    ids = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=5)))
    cpus = sorted(draw(st.sets(st.integers(0, 80), min_size=1, max_size=12)))
    homes = {cpu: draw(st.sampled_from(ids)) for cpu in cpus}
    offline = draw(st.sets(st.sampled_from(cpus), max_size=len(cpus) - 1))
    nodes = []
    for node in ids:
        mine = [cpu for cpu in cpus if homes[cpu] == node]
        memory = draw(st.sampled_from([0, 1024, 4096, 1 << 20]))
        far = st.integers(20, 254)
        row = " ".join("10" if other == node else str(draw(far)) for other in ids)
        kind = _kind(memory, any(cpu not in offline for cpu in mine))
        nodes.append(Node(node, listed(mine), memory, row, kind, tier=None))
    package = Package(draw(st.integers(0, 4000)), listed(cpus))
    devices = tuple(
        Device(f"0000:{bus:02x}:00.0", "pci0000:00", 0x030200, 0x10DE, 1, node, (), "gpu", node)
        for bus, node in enumerate(draw(st.lists(st.sampled_from(ids), max_size=3)), 1)
    )
    return Machine(
        "generated", ("", "", ""), (package,), tuple(nodes), devices, offline=listed(offline)
    )


def _kind(memory: int, with_cpus: bool) -> str:
    if with_cpus:
        return "host" if memory else "cpu-only"
    return "memory-only" if memory else "empty"
