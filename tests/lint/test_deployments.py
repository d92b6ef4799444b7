"""Deployments as users of vLLM, SGLang and their like write them, and all that lint says of each.

A tree holds the files of one folder. Its section /expected has a line for each finding
that is no pass: status, check, subject.
"""

from pathlib import Path

import pytest

from numadoctor.engine.runner import run_on_files
from numadoctor.lint.documents import Files
from numadoctor.lint.gathering import gather
from numadoctor.lint.reading import read_files
from tests.lint.test_hostile import CHECKS
from tests.trees import parse_tree

TREES = sorted((Path(__file__).parent / "deployments").glob("*.tree"))


def told(path: Path, folder: Path) -> list[str]:
    """A line for each finding that is no pass, sorted."""
    tree = parse_tree(path.read_text())
    tree.files.pop("/expected", None)
    root = tree.build(folder)
    files = gather(read_files([str(root)]), Files())
    assert files.unread == []
    report = run_on_files(None, CHECKS, files.documents, name="deployment")
    return sorted(
        f"{f.status.value} {f.id} {f.subject.replace(f'{root}/', '')}"
        for f in report.findings
        if f.status.value not in ("pass", "skip")
    )


@pytest.mark.parametrize("path", TREES, ids=lambda path: path.stem)
def test_all_that_is_said(path: Path, tmp_path: Path) -> None:
    expected = parse_tree(path.read_text()).files["/expected"].splitlines()
    assert told(path, tmp_path / "root") == expected


def test_there_are_many() -> None:
    assert len(TREES) >= 15
