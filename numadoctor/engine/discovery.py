"""Finds the checks: those built in, those of other packages, and a site's own files.

Loading somebody's check may fail in any way; that never keeps the other
checks from running. What could not be loaded is returned as a problem.
"""

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from functools import partial
from types import ModuleType

from numadoctor.engine.catalogue import Catalogue, Problem
from numadoctor.engine.oneline import one_line
from numadoctor.engine.registry import Check

ENTRY_POINT_GROUP = "numadoctor.checks"


def discover(checks_dirs: Iterable[str] = ()) -> Catalogue:
    """Gather the checks that there are; a family of those built in is loaded when it is needed."""
    catalogue = Catalogue(_built_in())
    _add_entry_points(catalogue)
    for folder in checks_dirs:
        _add_folder(catalogue, folder)
    return catalogue


def _declared(source: object) -> list[Check]:
    """The checks in a module or a class; a check stands for itself."""
    if isinstance(source, Check):
        return [source]
    return [value for value in vars(source).values() if isinstance(value, Check)]


def _built_in() -> dict[str, Callable[[], list[Check]]]:
    """Family to what imports its modules and gives their checks."""
    package = importlib.import_module("numadoctor.checks")
    modules: dict[str, list[str]] = {}
    for _, name, _ in pkgutil.iter_modules(package.__path__):
        if not name.startswith("_"):
            family = package.FAMILY[name.partition("_")[0]]
            modules.setdefault(family, []).append(f"{package.__name__}.{name}")
    return {family: partial(_of_modules, names) for family, names in modules.items()}


def _of_modules(names: Iterable[str]) -> list[Check]:
    return [check for name in names for check in _declared(importlib.import_module(name))]


def _add_entry_points(catalogue: Catalogue) -> None:
    for name, value in _entry_points():
        _guarded(catalogue, f"entry point {name} ({value})", partial(_load, value))


def _load(value: str) -> object:
    module, _, attribute = value.partition(":")
    loaded: object = importlib.import_module(module.strip())
    for part in filter(None, attribute.strip().split(".")):
        loaded = getattr(loaded, part)
    return loaded


def _entry_points() -> list[tuple[str, str]]:
    # importlib.metadata takes longer to import than all built-in checks
    # together, and nearly every machine has no plugin: look for the group's
    # name in the metadata first.
    group = f"[{ENTRY_POINT_GROUP}]".encode()
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    found = group in file.read()
            except OSError:
                continue
            if found:
                from importlib.metadata import entry_points

                return [(e.name, e.value) for e in entry_points(group=ENTRY_POINT_GROUP)]
    return []


def _add_folder(catalogue: Catalogue, folder: str) -> None:
    try:
        names = sorted(n for n in os.listdir(folder) if n.endswith(".py") and n[0] not in "._")
    except OSError as error:
        catalogue.problems.append(Problem(folder, f"cannot be listed: {error.strerror}"))
        return
    for name in names:
        path = os.path.join(folder, name)
        _guarded(catalogue, path, partial(_import_file, path))


def _import_file(path: str) -> ModuleType:
    # The path is the module's name: two folders may have files of one name, and
    # a complaint about a check names the file.
    spec = importlib.util.spec_from_file_location(path, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass in the file looks its module up there.
    sys.modules[path] = module
    spec.loader.exec_module(module)
    return module


def _guarded(catalogue: Catalogue, origin: str, load: Callable[[], object]) -> None:
    try:
        # What a plugin prints must not end up in the report.
        with redirect_stdout(sys.stderr):
            checks = _declared(load())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise anything, SystemExit included
        catalogue.problems.append(Problem(origin, f"cannot be loaded: {one_line(error)}"))
        return
    if not checks:
        catalogue.problems.append(Problem(origin, "declares no check"))
    catalogue.add(checks)
