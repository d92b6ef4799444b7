import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from numadoctor.engine.catalogue import Catalogue
from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run
from numadoctor.host import Host
from numadoctor.model import Status
from tests.engine.plugins import install, plugin, write

BUILT_IN = set(discover().checks)


def added(catalogue: Catalogue) -> set[str]:
    assert set(catalogue.checks) >= BUILT_IN, "a plugin took built-in checks away"
    return set(catalogue.checks) - BUILT_IN


def test_built_in_checks_are_found_in_order() -> None:
    catalogue = discover()
    assert catalogue.problems == []
    ids = [check.id for check in catalogue]
    assert ids == sorted(ids)
    assert len(ids) > 20
    assert {check.origin.rpartition(".")[0] for check in catalogue} == {"numadoctor.checks"}


def test_checks_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, b=plugin("X002", "second"), a=plugin(), _private=plugin("X003", "third"))
    (tmp_path / "notes.txt").write_text("no Python")
    (tmp_path / ".hidden.py").write_text("raise SystemExit")
    catalogue = discover([str(tmp_path)])
    assert catalogue.problems == []
    assert added(catalogue) == {"X001", "X002"}
    assert catalogue.checks["X001"].origin == str(tmp_path / "a.py")


def test_two_folders_may_have_files_of_one_name(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / "one", rules=plugin("X001", "one")),
        write(tmp_path / "two", rules=plugin("X002", "two")),
    ]
    assert added(discover(map(str, folders))) == {"X001", "X002"}


def test_a_file_may_declare_dataclasses(tmp_path: Path) -> None:
    source = "from __future__ import annotations\nfrom dataclasses import dataclass, KW_ONLY\n"
    source += "@dataclass\nclass Limit:\n    _: KW_ONLY\n    value: int = 3\n" + plugin()
    catalogue = discover([str(write(tmp_path, rules=source))])
    assert catalogue.problems == []
    assert added(catalogue) == {"X001"}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no\\nway')", "cannot be loaded: RuntimeError: no way"),
        ("raise SystemExit(0)", "cannot be loaded: SystemExit: 0"),
        ("def broken(:", "cannot be loaded: SyntaxError: "),
        ("import no_such_module_at_all", "cannot be loaded: ModuleNotFoundError: "),
        ("raise BaseException", "cannot be loaded: BaseException"),
        ("raise MemoryError", "cannot be loaded: MemoryError"),
        ("def f(): f()\nf()", "cannot be loaded: RecursionError: "),
        ("\0", "null bytes"),
        ("raise ValueError('x' * 1000000)", "cannot be loaded: ValueError: xxx"),
        (
            "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
            "cannot be loaded: E: its message cannot be had",
        ),
        ("x = 1", "declares no check"),
        ("def check_something(host, target): pass", "declares no check"),
        (plugin("K1"), "cannot be loaded: ValueError: bad check id 'K1'"),
        (plugin(name="Bad Name"), "cannot be loaded: ValueError: bad check name"),
    ],
)
def test_a_bad_file_is_one_problem_and_the_rest_runs(
    tmp_path: Path, source: str, reason: str
) -> None:
    write(tmp_path, bad=source, good=plugin("X777", "good"))
    catalogue = discover([str(tmp_path)])
    assert added(catalogue) == {"X777"}
    (problem,) = catalogue.problems
    assert problem.origin.endswith("bad.py")
    told = f"{problem.origin.rpartition(':')[2]}: {problem.reason}"
    assert reason in told
    assert "\n" not in told
    assert len(problem.reason) < 400


def test_an_interrupt_is_not_swallowed(tmp_path: Path) -> None:
    write(tmp_path, bad="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        discover([str(tmp_path)])


def test_an_id_stays_with_its_first_owner(tmp_path: Path) -> None:
    built_in = discover().checks["K001"]
    write(tmp_path, a=plugin("K001", "mine"), b=plugin("X001", "one"), c=plugin("X001", "two"))
    catalogue = discover([str(tmp_path)])
    assert catalogue.checks["K001"].function is built_in.function
    assert catalogue.checks["X001"].name == "one"
    assert [(Path(p.origin).name, p.reason) for p in catalogue.problems] == [
        ("a.py", f"check id K001 is taken by {built_in.name} of {built_in.origin}"),
        ("c.py", f"check id X001 is taken by one of {tmp_path / 'b.py'}"),
    ]


def test_an_id_of_a_family_that_no_command_asked_for_is_taken(tmp_path: Path) -> None:
    write(tmp_path, a=plugin("D010", "mine"), b=plugin("D999", "other"))
    catalogue = discover([str(tmp_path)])
    owner = catalogue.checks["D010"]
    assert [p.reason for p in catalogue.problems] == [
        f"check id D010 is taken by {owner.name} of numadoctor.checks.deployment_pods"
    ]
    assert added(catalogue) == {"D999"}


def test_a_file_may_import_a_built_in_check(tmp_path: Path) -> None:
    origin = discover().checks["K001"].origin
    source = f"from {origin} import *\nimport {origin} as m\n"
    source += "again = next(c for c in vars(m).values() if getattr(c, 'id', '') == 'K001')\n"
    catalogue = discover([str(write(tmp_path, rules=source + plugin()))])
    assert catalogue.problems == []
    assert added(catalogue) == {"X001"}


def test_a_folder_that_cannot_be_listed_is_a_problem(tmp_path: Path) -> None:
    catalogue = discover([str(tmp_path / "absent")])
    assert added(catalogue) == set()
    (problem,) = catalogue.problems
    assert problem.reason == "cannot be listed: No such file or directory"


def test_what_a_plugin_prints_goes_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    discover([str(write(tmp_path, loud="print('hello')\n" + plugin()))])
    assert capsys.readouterr() == ("", "hello\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path whose modules are forgotten again."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


GROUP = "[numadoctor.checks]\n"


def test_checks_of_an_installed_distribution(site: Path) -> None:
    entry = GROUP + "rules = site_rules\none = site_more:site_check\nholder = site_more:Holder\n"
    more = plugin("X002", "alone") + "\nclass Holder:\n    inner = site_check\n"
    install(site, entry, site_rules=plugin(), site_more=more)
    catalogue = discover()
    assert catalogue.problems == []
    assert added(catalogue) == {"X001", "X002"}
    assert catalogue.checks["X001"].origin == "site_rules"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("site_absent", "ModuleNotFoundError"),
        ("site_rules:absent", "AttributeError"),
        ("site_rules:NUMBER", "TypeError"),
        ("site_plain", "declares no check"),
        ("site_raises", "ZeroDivisionError"),
    ],
)
def test_a_bad_entry_point_is_one_problem(site: Path, value: str, reason: str) -> None:
    install(
        site,
        f"{GROUP}bad = {value}\ngood = site_good\n",
        site_rules=plugin() + "\nNUMBER = 1\n",
        site_plain="",
        site_raises="1 / 0",
        site_good=plugin("X777", "good"),
    )
    catalogue = discover()
    assert added(catalogue) == {"X777"}
    (problem,) = catalogue.problems
    assert problem.origin == f"entry point bad ({value})"
    assert reason in problem.reason


def test_other_entry_points_are_left_alone(site: Path) -> None:
    install(site, "[console_scripts]\nx = site_raises:main\n", site_raises="1 / 0")
    assert discover().problems == []
    assert "site_raises" not in sys.modules


def test_odd_places_on_the_path_are_passed_over(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "file").write_text("x")
    (site / "broken.dist-info").mkdir()
    (site / "folder.dist-info" / "entry_points.txt").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site / "file"), str(site / "absent"), ""])
    assert discover().problems == []


def test_problems_become_error_findings(tmp_path: Path) -> None:
    catalogue = discover([str(write(tmp_path, bad="1 / 0"))])
    report = run(Host(), [], problems=catalogue.problems)
    (finding,) = report.findings
    assert (finding.status, finding.name) == (Status.ERROR, "plugin-not-loaded")
    assert str(tmp_path / "bad.py") in finding.message
    assert "ZeroDivisionError: division by zero" in finding.message
    assert report.exit_code == 3
