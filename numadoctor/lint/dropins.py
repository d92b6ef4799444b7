"""Drop-ins made part of their units, and of instances, as systemd loads them (systemd.unit(5))."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from numadoctor.lint.recognition import DROP_IN, full_path
from numadoctor.lint.units import Unit

if TYPE_CHECKING:
    from numadoctor.lint.documents import Document

# Where systemd looks for units, the first first; an earlier file of a name hides a later.
ROOTS = (
    "etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system",
    "usr/lib/systemd/system", "lib/systemd/system", "etc/containers/systemd",
    "run/containers/systemd", "usr/share/containers/systemd",
)  # fmt: skip


def unit_name(path: str) -> str:
    """The unit that a file is about: its own name, or that of the folder of drop-ins."""
    if DROP_IN.search(full_path(path)):
        return full_path(path).split("/")[-2].removesuffix(".d")
    return os.path.basename(path)


def is_drop_in(path: str) -> bool:
    """Whether a file adds to a unit."""
    return DROP_IN.search(full_path(path)) is not None


def folders_of(name: str) -> list[str]:
    """The folders whose drop-ins a unit has, the most particular first.

    ``a-b@1.service`` has those of ``a-b@1.service.d``, ``a-b@.service.d``,
    ``a-.service.d`` and ``service.d``.
    """
    stem, _, kind = name.rpartition(".")
    names = [name]
    template, at, instance = stem.partition("@")
    if at and instance:
        names.append(f"{template}@.{kind}")
    parts = template.split("-")
    names += [f"{'-'.join(parts[:count])}-.{kind}" for count in range(len(parts) - 1, 0, -1)]
    return [f"{one}.d" for one in (*names, kind)]


def with_drop_ins(documents: Iterable["Document"]) -> list["Document"]:
    """The documents, drop-ins made part of their units where those are there."""
    documents = list(documents)
    systemd = [d for d in documents if d.kind == "systemd"]
    if not systemd:
        return documents
    drop_ins = [d for d in systemd if is_drop_in(d.file)]
    mains = [d for d in systemd if not is_drop_in(d.file)]
    instances = list(_instances(drop_ins, mains))
    gone = {id(template) for template, _ in instances}
    mains = [d for d in mains if id(d) not in gone] + [made for _, made in instances]
    for main in mains:
        found = [d for d in drop_ins if _belongs(d, main, mains)]
        gone |= {id(d) for d in found}
        settings = list(main.content.settings)
        for drop_in in _in_order(found, main.content.name):
            settings += drop_in.content.settings
        main.content = Unit(main.content.name, tuple(settings))
    _put_into_slices(mains)
    return [d for d in (*documents, *(made for _, made in instances)) if id(d) not in gone]


def _instances(
    drop_ins: list["Document"], mains: list["Document"]
) -> Iterator[tuple["Document", "Document"]]:
    """Templates that drop-ins make instances of, each with the instance."""
    there = {d.content.name for d in mains}
    for name in sorted({d.content.name for d in drop_ins} - there):
        template = re.sub(r"@[^@]+\.", "@.", name, count=1)
        for main in mains:
            if template != name and main.content.name == template:
                unit = Unit(name, main.content.settings)
                yield main, replace(main, content=unit, name=f"{main.file} as {name}")


def _put_into_slices(mains: list["Document"]) -> None:
    """Tell units of the slices that they are in, where there is one slice of the name."""
    slices = {d.content.name: d.content for d in mains if d.content.name.endswith(".slice")}
    for main in mains:
        named = main.content.last("Slice")
        if named and named.value.text.endswith(".slice"):
            # `a-b.slice` lies in `a.slice` (systemd.slice(5)).
            parts = named.value.text.removesuffix(".slice").split("-")
            names = [f"{'-'.join(parts[:count])}.slice" for count in range(len(parts), 0, -1)]
            found = tuple(slices[name] for name in names if name in slices)
            main.content = replace(main.content, slices=found) if found else main.content


def _place(path: str) -> tuple[str, str]:
    """Where a unit, or the folder of a drop-in, lies: the root of a machine, and which folder."""
    folder = os.path.dirname(full_path(path))
    if is_drop_in(path):
        folder = os.path.dirname(folder)
    for root in ROOTS:
        if folder.endswith(f"/{root}"):
            return folder.removesuffix(f"/{root}"), root
    return folder, ""


def _belongs(drop_in: "Document", main: "Document", mains: list["Document"]) -> bool:
    """Whether systemd reads a drop-in for a unit, as far as their places tell."""
    folder = f"{drop_in.content.name}.d"
    names = folders_of(main.content.name)
    if folder not in names:
        return False
    (place, one), (other, two) = _place(drop_in.file), _place(main.file)
    if place == other and (bool(one) == bool(two)):
        return True
    # Of a repository that keeps them apart, a unit of that name which is the only one is meant.
    own = [d for d in mains if folder in folders_of(d.content.name)]
    return folder in names[:2] and len(own) == 1


def _in_order(drop_ins: list["Document"], name: str) -> list["Document"]:
    """By the names of their files; of several of one name the one that systemd finds first."""
    folders = folders_of(name)

    def rank(drop_in: "Document") -> tuple[int, int]:
        root = _place(drop_in.file)[1]
        particular = folders.index(f"{drop_in.content.name}.d")
        return particular, ROOTS.index(root) if root else 0

    found: dict[str, Document] = {}
    for drop_in in sorted(drop_ins, key=rank):
        found.setdefault(os.path.basename(drop_in.file), drop_in)
    return [found[base] for base in sorted(found)]
