"""What this project tells its users to deploy passes its own lint."""

import re
from pathlib import Path

from numadoctor.engine.runner import run_on_files
from numadoctor.lint.documents import Files
from numadoctor.lint.gathering import gather
from numadoctor.lint.reading import Source, read_files
from numadoctor.model import Finding, Status
from tests.lint.test_hostile import CHECKS

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?ms)^( *)```(\w*)\n(.*?)^\1```")
ENDINGS = {
    "yaml": "yaml",
    "yml": "yaml",
    "json": "json",
    "sh": "sh",
    "bash": "sh",
    "ini": "service",
}


def wrong(sources: list[Source]) -> list[str]:
    report = run_on_files(None, CHECKS, gather(sources, Files()).documents, name="ours")
    return [f"{f.id} {f.location}: {f.message}" for f in report.findings if _counts(f)]


def _counts(finding: Finding) -> bool:
    return finding.status in (Status.FAIL, Status.WARN, Status.ERROR, Status.UNKNOWN)


def snippets() -> list[Source]:
    """The blocks of the documents that say, or show, of which kind they are."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if "checks" in page.parts:
            continue  # pages of checks show what is wrong, too
        for number, (indent, language, text) in enumerate(BLOCK.findall(page.read_text())):
            text = re.sub(rf"(?m)^{indent}", "", text)
            ending = ENDINGS.get(language)
            if not language and text.startswith(("[Service]", "[Container]")):
                ending = "service"
            if ending:
                name = f"{page.relative_to(ROOT)}.{number}.{ending}"
                found.append(Source(name, text.encode(), asked=False))
    return found


def test_the_files_of_deploy() -> None:
    assert (ROOT / "deploy").is_dir()
    assert wrong(list(read_files([str(ROOT / "deploy")]))) == []


def test_the_snippets_of_the_documents() -> None:
    assert len(snippets()) >= 5
    assert wrong(snippets()) == []
