"""Runs every check on its examples: tests/checks/ID/STATUS-what.tree.

The file's name begins with the worst status the check must give there.
"""

from pathlib import Path

import pytest

from numadoctor.engine import Scope
from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run
from numadoctor.host import FolderRoot, Host
from numadoctor.model import Finding, Status
from tests.lint.examples import lint_tree
from tests.trees import parse_tree

HERE = Path(__file__).parent
EXAMPLES = sorted(HERE.glob("[A-Z][0-9][0-9][0-9]/*.tree"))
WORST_FIRST = ["error", "fail", "warn", "unknown", "info", "pass", "skip"]
CATALOGUE = discover()


def text_of(finding: Finding) -> str:
    parts = [finding.message, finding.cause]
    parts += [f"{e.source}: {e.text}" for e in finding.evidence]
    parts += [f"{f.launcher}: {f.text}" for f in finding.fixes]
    return "\n".join(parts)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_example(path: Path, scratch: Path) -> None:
    tree = parse_tree(path.read_text())
    check = CATALOGUE.checks[path.parent.name]
    if check.scope is Scope.FILE:
        report = lint_tree(check, tree, scratch / "root")
    else:
        host = Host(FolderRoot(str(tree.build(scratch / "root"))))
        report = run(host, [check], tree.targets(host))
    # A check of files says nothing where there is nothing for it.
    statuses = [finding.status.value for finding in report.findings] or ["skip"]
    shown = "\n\n".join(f"{f.status.value} {f.subject}\n{text_of(f)}" for f in report.findings)
    assert min(statuses, key=WORST_FIRST.index) == path.stem.partition("-")[0], shown
    for status, subject in tree.expect:
        assert any(
            f.status.value == status and (not subject or f.subject == subject)
            for f in report.findings
        ), f"no {status} about {subject!r} in\n{shown}"
    for text in tree.says:
        assert text in shown, f"{text!r} is not said in\n{shown}"
    for text in tree.never:
        assert text not in shown, f"{text!r} is said in\n{shown}"
    for launcher in tree.launchers:
        assert any(fix.launcher == launcher for f in report.findings for fix in f.fixes), shown
    for finding in report.findings:
        if finding.status in (Status.WARN, Status.FAIL):
            assert finding.fixes, f"no fix for\n{shown}"
            assert finding.evidence, f"no evidence for\n{shown}"
