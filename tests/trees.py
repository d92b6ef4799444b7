"""Small hosts for tests, written as one readable file each.

A ``.tree`` file is a txtar archive: a few header lines, then one section a file:

    use two-socket
    expect fail node 1
    says 77 %
    never --privileged
    -- /proc/sys/kernel/numa_balancing --
    1
    -- /sys/block -> /sys/class/block --
    -- /proc/1/numa_maps !EACCES --
    -- /sys/kernel/mm/transparent_hugepage removed --

``use NAME`` starts from a sample host of fixtures/, ``pid N`` examines that process and
its descendants instead of the caller. ``expect STATUS [SUBJECT]``
is a finding the check must give, ``says`` and ``never`` are texts that must and
must not stand in its findings, ``launcher`` one a fix must be for; ``lint static`` and
``lint runtime=NAME=VERSION`` are options of lint. A section
makes a file, a symbolic link, a path that gives an errno, or removes one.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from numadoctor.engine.targets import find_targets
from numadoctor.host import Host
from numadoctor.host.root import ERRORS, FACTS, LINKS, sample_folder
from numadoctor.model import Target

_SECTION = re.compile(
    r"-- (?P<path>/\S*)(?: -> (?P<target>\S+)| !(?P<errno>E[A-Z0-9]+)| (?P<removed>removed))? --"
)


@dataclass
class Tree:
    """A parsed .tree file."""

    base: str | None = None
    pids: list[int] = field(default_factory=list)
    expect: list[tuple[str, str]] = field(default_factory=list)
    says: list[str] = field(default_factory=list)
    never: list[str] = field(default_factory=list)
    launchers: list[str] = field(default_factory=list)
    lint: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)

    def targets(self, host: Host) -> tuple[Target, ...]:
        """Whom the example is about."""
        if not self.pids:
            return (Target(),)
        targets, lines = find_targets(host, self.pids, tree=True)
        assert not lines, lines
        return tuple(targets)

    def build(self, folder: Path) -> Path:
        """Lay the tree out below ``folder`` and return it."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.base:
            # What follows replaces files and writes into none.
            copy_sample(self.base, folder, _link)
        for path in self.removed:
            _remove(folder / path[1:])
        for path, target in self.links.items():
            place = folder / path[1:]
            _remove(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)
        for path, text in self.files.items():
            place = folder / path[1:]
            _remove(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            # \0 stands for the NUL byte that some files of /proc hold; those have no lines.
            if "\\0" in text:
                text = text.removesuffix("\n").replace("\\0", "\0")
            place.write_bytes(text.encode())
        if self.errors:
            place = folder / ERRORS[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            known = json.loads(place.read_text()) if place.exists() else {}
            _remove(place)
            place.write_text(json.dumps({**known, **self.errors}))
        return folder


def copy_sample(name: str, folder: Path, copy: Callable[[str, str], object] = shutil.copy2) -> None:
    """Copy the sample host ``name`` to ``folder``, its stored links made into symbolic ones."""
    shutil.copytree(sample_folder(name), folder, dirs_exist_ok=True, copy_function=copy)
    stored = folder / LINKS[1:]
    for path, target in json.loads(stored.read_text()).items():
        place = folder / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    stored.unlink()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    elif place.is_symlink() or place.exists():
        place.unlink()


def fact(name: str) -> str:
    """The path under which a captured folder keeps the fact ``name``."""
    return f"{FACTS}/{name}.json"


def parse_tree(text: str) -> Tree:
    """Read a .tree file; a line that is not understood is an error, not a comment."""
    tree = Tree()
    head, *sections = re.split(r"(?m)^(?=-- /.* --$)", text)
    for line in filter(None, map(str.strip, head.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "#":
            continue
        if word == "use":
            tree.base = rest
        elif word == "expect":
            status, _, subject = rest.partition(" ")
            tree.expect.append((status, subject))
        elif word == "pid":
            tree.pids.append(int(rest))
        elif word in ("says", "never"):
            getattr(tree, word).append(rest)
        elif word == "launcher":
            tree.launchers.append(rest)
        elif word == "lint":
            tree.lint.append(rest)
        else:
            raise ValueError(f"tree header {line!r} is not understood")
    for section in sections:
        title, _, body = section.partition("\n")
        match = _SECTION.fullmatch(title)
        if not match:
            raise ValueError(f"tree section {title!r} is not understood")
        path = match["path"]
        if match["target"]:
            tree.links[path] = match["target"]
        elif match["errno"]:
            tree.errors[path] = int(getattr(errno, match["errno"]))
        elif match["removed"]:
            tree.removed.append(path)
        else:
            tree.files[path] = body
    return tree
