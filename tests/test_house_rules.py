"""Rules of docs/architecture.md that a reviewer should not have to look for."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from numadoctor.cli import COMMANDS

ROOT = Path(__file__).parents[1]


class Import(NamedTuple):
    """One import statement that is carried out: not one for type checkers."""

    file: str
    line: int
    module: str
    at_start: bool


def modules() -> dict[str, Path]:
    """The project's modules by their dotted names."""
    found = {}
    for folder, package in (("numadoctor", "numadoctor"), ("checks", "numadoctor.checks")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join((package, *(part for part in parts if part != "__init__")))
            found[name] = path
    return found


MODULES = modules()


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imports(name: str, path: Path) -> Iterator[Import]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def walk(node: ast.AST, at_start: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if _is_for_type_checkers(child):
                continue
            names: list[str] = []
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                base = f"{package}." * (child.level == 1) + (child.module or "")
                # ``from numadoctor.host import parsers`` imports a module.
                dotted = [f"{base}.{alias.name}" for alias in child.names]
                names = [base, *(name for name in dotted if name in MODULES)]
            for name in names:
                yield Import(
                    str(path.relative_to(ROOT)), getattr(child, "lineno", 0), name, at_start
                )
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, at_start and not inside)

    yield from walk(ast.parse(path.read_text()), True)


IMPORTS = {name: list(_imports(name, path)) for name, path in MODULES.items()}


def of(package: str) -> list[Import]:
    """All imports of a package's modules."""
    inside = (name for name in MODULES if name == package or name.startswith(f"{package}."))
    return [one for name in inside for one in IMPORTS[name]]


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def ours(imports: list[Import]) -> list[Import]:
    return [one for one in imports if within(one.module, "numadoctor")]


# Arrows go one way: package to what it may import of ours, itself aside.
ARROWS = {
    "numadoctor.model": (),
    "numadoctor.kernel": ("numadoctor.model",),
    "numadoctor.report": ("numadoctor.model",),
    # A host asks for facts that are no file, the topology of a host for its samples.
    "numadoctor.host": ("numadoctor.model", "numadoctor.kernel", "numadoctor.fixtures"),
    "numadoctor.evidence": ("numadoctor.model", "numadoctor.host"),
    "numadoctor.engine": ("numadoctor.model", "numadoctor.host", "numadoctor.checks"),
    "numadoctor.placement": ("numadoctor.model", "numadoctor.host", "numadoctor.kernel"),
    "numadoctor.lint": ("numadoctor.model", "numadoctor.host", "numadoctor.kernel"),
    # Plans that people write are read as deployment files are.
    "numadoctor.planning": (
        "numadoctor.model",
        "numadoctor.host",
        "numadoctor.kernel",
        "numadoctor.lint",
    ),
}


@pytest.mark.parametrize("package", sorted(ARROWS))
def test_arrows_go_one_way(package: str) -> None:
    assert [
        one for one in ours(of(package)) if not within(one.module, package, *ARROWS[package])
    ] == []


def test_nobody_imports_the_command_line_but_itself() -> None:
    users = {
        name
        for name, imports in IMPORTS.items()
        for i in imports
        if within(i.module, "numadoctor.cli")
    }
    assert {name for name in users if not within(name, "numadoctor.cli")} == {"numadoctor.__main__"}


# What a check may have beside the host that it is given: pure functions.
_FOR_CHECKS = (
    "numadoctor.checks", "numadoctor.engine", "numadoctor.host", "numadoctor.kernel",
    "numadoctor.model", "numadoctor.placement", "numadoctor.planning",
    "numadoctor.lint",
)  # fmt: skip
_REACHES_THE_MACHINE = (
    "numadoctor.host.root", "numadoctor.host.facts", "numadoctor.kernel.syscalls",
    "numadoctor.kernel.probe", "numadoctor.kernel.child", "numadoctor.kernel.process",
    "numadoctor.kernel.seccomp.tracing", "numadoctor.kernel.seccomp.running",
    "numadoctor.planning.documents", "numadoctor.lint.reading",
)  # fmt: skip
_STANDARD = {
    "collections",
    "dataclasses",
    "errno",
    "functools",
    "itertools",
    "math",
    "re",
    "typing",
}


def test_checks_reach_the_machine_through_their_host_alone() -> None:
    wrong = [
        one
        for one in of("numadoctor.checks")
        if not within(one.module, *_FOR_CHECKS, *_STANDARD)
        or within(one.module, *_REACHES_THE_MACHINE)
    ]
    assert wrong == []
    for name, path in MODULES.items():
        if within(name, "numadoctor.checks"):
            called = {
                node.func.id
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert called & {"open", "exec", "eval", "__import__", "print", "input"} == set(), name


HEAVY = {
    "psutil",
    "pynvml",
    "pyroute2",
    "tabulate",
    "yaml",
    "importlib.metadata",
    "asyncio",
    "email",
    "http",
    "urllib",
}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_heavy_modules_are_loaded_by_who_needs_them(name: str) -> None:
    assert [one for one in IMPORTS[name] if one.at_start and within(one.module, *HEAVY)] == []


def test_the_start_loads_nothing_of_ours_but_the_command_group() -> None:
    assert {one.module for one in IMPORTS["numadoctor.cli"] if one.at_start} == {
        "importlib", "typing", "click", "numadoctor",
    }  # fmt: skip
    assert [one for one in IMPORTS["numadoctor"] if one.at_start] == []


def test_node_ids_are_names_and_not_indices() -> None:
    pattern = re.compile(r"range\(\s*len\([^()]*node", re.IGNORECASE)
    assert [name for name, path in MODULES.items() if pattern.search(path.read_text())] == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_starts_with_what_it_is_for(name: str) -> None:
    text = ast.get_docstring(ast.parse(MODULES[name].read_text())) or ""
    assert len(text) > 15


def test_public_functions_say_what_they_do() -> None:
    silent = []
    for name, path in MODULES.items():
        if within(name, "numadoctor.cli", "numadoctor.report"):
            continue  # their functions are told by the command and the format
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                silent += [] if ast.get_docstring(node) else [f"{name}.{node.name}"]
    assert silent == []


# Documents.


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_a_page_that_names_its_options(name: str) -> None:
    page = (ROOT / "docs" / "commands" / f"{name}.md").read_text()
    assert page.startswith(f"# numadoctor {name}\n")
    assert re.search("exits? code|[Ee]xits? [0-9]|exit-codes.md", page)
    command = importlib.import_module(f"numadoctor.cli.{name}").command
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert any(
                f"`{option}" in page for option in (*parameter.opts, *parameter.secondary_opts)
            ), parameter.opts


def test_links_in_the_documents_lead_somewhere() -> None:
    dead = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert dead == []
