"""One walk over every check: what each must have, whoever wrote it."""

import contextlib
import importlib
import importlib.util
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from numadoctor.checks import FAMILY
from numadoctor.engine.discovery import discover
from numadoctor.engine.registry import FAMILIES, FILE_FAMILY, Check, Scope
from numadoctor.engine.runner import run
from numadoctor.host import FolderRoot, Host, open_root, sample_names
from numadoctor.host.cgroup import read_cgroup
from numadoctor.host.facts import FACTS
from numadoctor.host.root import FACTS as FACTS_FOLDER
from numadoctor.host.runtime import read_runtimes
from numadoctor.host.virtual import read_virtual
from numadoctor.lint.documents import KINDS
from numadoctor.model import Finding, Status, Undecided
from tests.lint.examples import lint_tree
from tests.trees import Tree, parse_tree

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "tests" / "checks"
SECTIONS = ["Why it matters", "When it is harmless", "Fix", "Source"]

CATALOGUE = discover()
CHECKS = list(CATALOGUE)
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)


@cache
def generate() -> ModuleType:
    """docs/generate.py, which is a program and in no package."""
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples(check: Check) -> list[Path]:
    return sorted((EXAMPLES / check.id).glob("*.tree"))


# Declarations.


def test_all_checks_could_be_loaded() -> None:
    assert CATALOGUE.problems == []
    assert len(CHECKS) >= 40


def test_ids_and_names_are_unique() -> None:
    for attribute in ("id", "name", "summary"):
        counts = Counter(getattr(check, attribute) for check in CHECKS)
        assert [value for value, count in counts.items() if count > 1] == []
    # A name must not be taken for an id or a family.
    assert not [c.name for c in CHECKS if re.fullmatch("[a-z]([0-9]{3})?", c.name)]


def test_modules_tell_families_and_families_tell_files_from_machines() -> None:
    """By that alone a command knows which modules to load."""
    assert sorted(set(FAMILY.values())) == sorted(FAMILIES)
    for path in sorted((ROOT / "checks").glob("*.py")):
        module = importlib.import_module(f"numadoctor.checks.{path.stem}")
        declared = [value for value in vars(module).values() if isinstance(value, Check)]
        if path.stem.startswith("_"):
            assert declared == [], "a module of no topic is not looked at"
            continue
        assert declared, path.stem
        for check in declared:
            assert check.origin == module.__name__, check.id
            assert check.family == FAMILY[path.stem.partition("_")[0]], check.id
            assert (check.family == FILE_FAMILY) == (check.scope is Scope.FILE), check.id
            assert CATALOGUE.checks[check.id] is check


@every_check
def test_declaration(check: Check) -> None:
    assert check.family in FAMILIES
    assert list(check.sections) == SECTIONS
    for title, text in check.sections.items():
        assert len(text) > 5, title
    assert re.fullmatch(r"[A-Z].{20,110}\.", check.summary), check.summary


@every_check
def test_needs_are_paths_or_facts(check: Check) -> None:
    assert len(set(check.needs)) == len(check.needs)
    for need in check.needs:
        if check.scope is Scope.FILE:
            assert need.removeprefix("kind ") in KINDS, need
            continue
        fact = need.removeprefix("fact ")
        assert need.startswith("/") if fact == need else fact in FACTS, need
        assert not need.endswith("/")


@every_check
def test_the_documentation_fits_a_screen(check: Check) -> None:
    assert "privileged" not in check.sections["Fix"]
    for line in check.documentation.splitlines():
        assert len(line) <= 96, line


# Documents.


def test_generated_pages_are_in_step() -> None:
    """``make docs`` writes them."""
    pages = generate().pages()
    stale = set((ROOT / "docs" / "checks").glob("*.md")) - set(pages)
    assert stale == set()
    assert [p.name for p, text in pages.items() if not p.exists() or p.read_text() != text] == []


def test_each_check_has_its_page() -> None:
    pages = {path.name for path in generate().pages()}
    assert {f"{check.id}.md" for check in CHECKS} <= pages


# Examples.


def test_every_folder_of_examples_is_a_checks() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if re.fullmatch("[A-Z][0-9]{3}", path.name)}
    assert folders == {check.id for check in CHECKS}


@every_check
def test_examples(check: Check) -> None:
    """One on which it passes, one on which it finds something, one that leaves it undecided."""
    found = Counter(path.stem.partition("-")[0] for path in examples(check))
    assert set(found) <= {status.value for status in Status} - {"error"}
    assert found["pass"]
    assert found["fail"] + found["warn"] + found["info"]
    assert found["unknown"]


@every_check
def test_examples_are_understood(check: Check) -> None:
    for path in examples(check):
        tree = parse_tree(path.read_text())
        assert path.stem.partition("-")[2], f"{path} does not say what it is an example of"
        assert tree.files or tree.links or tree.errors or tree.removed or tree.base, path
        assert tree.base is None or tree.base in sample_names(), path
        for status, _ in tree.expect:
            assert status in {s.value for s in Status}, path


# What they say and look at.


@dataclass(frozen=True)
class Tried:
    """What a check did on a host.

    :ivar read: the files and facts it asked for beyond what the host reads for
        everyone; only on examples, which no other check looked at before
    """

    where: str
    findings: tuple[Finding, ...]
    read: frozenset[str]


def try_on(check: Check, where: str, host: Host, tree: Tree) -> Tried:
    targets = tree.targets(host)
    # What the machine is, and in what it all runs, belongs to no check.
    for common in (
        lambda: host.topology,
        lambda: read_runtimes(host),
        lambda: read_virtual(host),
        lambda: read_cgroup(host, "/proc/self"),
        lambda: host.fact("sysconf"),
    ):
        with contextlib.suppress(Undecided):
            common()
    before = set(host.reads)
    findings = run(host, [check], targets).findings
    asked = {
        re.sub(rf"^{re.escape(FACTS_FOLDER)}/(.*)\.json$", r"fact \1", path)
        for path in set(host.reads) - before
    }
    return Tried(where, findings, frozenset(asked - {"/proc/sys/kernel/hostname"}))


def _linted(check: Check, path: Path, scratch: Path) -> tuple[Finding, ...]:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        return lint_tree(check, parse_tree(path.read_text()), Path(folder) / "root").findings


@cache
def sample_host(name: str) -> Host:
    """One for all checks: it remembers what it read."""
    return Host(open_root(f"sample:{name}"))


@cache
def tried(id: str, scratch: Path) -> tuple[Tried, ...]:
    """The check on its examples and on every sample host."""
    check = CATALOGUE.checks[id]
    if check.scope is Scope.FILE:
        return tuple(Tried(path.name, _linted(check, path, scratch), frozenset())
                     for path in examples(check))  # fmt: skip
    found = [
        Tried(f"sample:{name}", run(sample_host(name), [check]).findings, frozenset())
        for name in sample_names()
    ]
    for path in examples(check):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            tree = parse_tree(path.read_text())
            host = Host(FolderRoot(str(tree.build(Path(folder) / "root"))))
            found.append(try_on(check, path.name, host, tree))
    return tuple(found)


def findings(check: Check, scratch: Path) -> Iterator[tuple[str, Finding]]:
    for one in tried(check.id, scratch):
        for finding in one.findings:
            yield f"{one.where}: {finding}", finding


@every_check
def test_what_a_check_says(check: Check, in_memory: Path) -> None:
    for told, finding in findings(check, in_memory):
        assert finding.status is not Status.ERROR, told
        assert finding.message, told
        assert "\n" not in finding.message, told
        assert not finding.message.endswith("."), told
        assert len(finding.message) < 600, told
        assert finding.cause == "" or finding.cause.endswith("."), told
        # A subject stays the same between runs.
        assert not re.search(r"\bpid\b|0x[0-9a-f]{6}", finding.subject), told
        if finding.status in (Status.WARN, Status.FAIL):
            assert finding.fixes, told
        if finding.status in (Status.WARN, Status.FAIL, Status.PASS):
            assert finding.evidence, told
        for evidence in finding.evidence:
            assert evidence.source, told
            assert len(evidence.text) <= 400, told


@every_check
def test_fixes_are_the_smallest(check: Check, in_memory: Path) -> None:
    for told, finding in findings(check, in_memory):
        for fix in finding.fixes:
            wrong = r"--privileged|privileged: *true|run as root|chmod 777"
            assert not re.search(wrong, fix.text), told
            assert fix.text.strip() == fix.text, told
            assert re.fullmatch("[a-z][a-z-]*", fix.launcher), told
            if fix.launcher == "sysctl":
                assert fix.needs_root, told
                assert fix.persists == ("/etc/sysctl.d/" in fix.text), told
            if fix.launcher == "sysfs":
                assert not fix.persists, told
                assert fix.text.startswith("echo "), told
            if fix.launcher == "grub":
                assert (fix.needs_root, fix.needs_restart, fix.persists) == (True, True, True), told


@every_check
def test_long_lines_of_fixes_are_explanations(check: Check, in_memory: Path) -> None:
    """A command is not broken on the screen, so one that is no command must say so (``# ``)."""
    in_words = ("bios", "vmware")
    long = {
        line
        for _, finding in findings(check, in_memory)
        for fix in finding.fixes
        if fix.launcher not in in_words
        for line in fix.text.splitlines()
        if len(line) > 76 and not re.match("# |{|echo |w /|/etc/|-device |<", line)
    }
    assert long == set()


def matches(path: str, need: str) -> bool:
    """Whether ``need`` covers ``path``.

    ``*`` stands for any name, or a part of one, ``PID`` for a process; a control
    group is any number of folders deep.
    """
    pattern = re.escape(need).replace("/PID/", "/[^/]+/")
    if need.startswith("/sys/fs/cgroup/"):
        pattern = pattern.replace(r"/\*/", "/(.*/)?")
    return re.fullmatch(pattern.replace(r"\*", "[^/]*"), path) is not None


@every_check
def test_what_is_read_is_declared(check: Check, in_memory: Path) -> None:
    # The kubelet's own command line names the file of its configuration, NCCL's variable its own.
    elsewhere = {"/etc/kubelet.yaml", "/opt/topo.xml"}
    read = {path for one in tried(check.id, in_memory) for path in one.read} - elsewhere
    assert {path for path in read if not any(matches(path, need) for need in check.needs)} == set()
