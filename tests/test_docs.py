"""The examples in the documents are what the program says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from numadoctor.cli import COMMANDS
from tests.cli.programs import environment

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "commands").glob("*.md"))]
SECONDS = re.compile(r" +[0-9]+\.[0-9] s$", re.MULTILINE)


class Example(NamedTuple):
    """A command that a document shows, and what it says it prints."""

    page: Path
    command: str
    output: str


def examples() -> list[Example]:
    """Those whose output depends on nothing but the project."""
    found = []
    for page in PAGES:
        for block in re.findall(r"(?ms)^```\n(\$ .*?)^```$", page.read_text()):
            command, _, output = block.partition("\n")
            if "sample:" in command or re.match(r"\$ numadoctor (list|explain) ", command + " "):
                found.append(Example(page, command[2:], output))
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.page.stem}-{e.command[:60]}")
def test_an_example_is_what_is_printed(example: Example, tmp_path: Path) -> None:
    """A line ``…`` in a document stands for any number of lines."""
    if "jq " in example.command and not shutil.which("jq"):
        pytest.skip("jq is not installed")
    (tmp_path / "rules").mkdir()
    for rule in re.findall(r"(?ms)^```python\n(.*?)^```$", example.page.read_text()):
        (tmp_path / "rules" / "ours.py").write_text(rule)
    done = subprocess.run(
        ["bash", "-c", example.command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}"),
        check=False,
    )
    printed = SECONDS.sub("", done.stdout)
    at = 0
    for part in re.split(r"(?m)^…\n", SECONDS.sub("", example.output)):
        at = printed.find(part, at)
        assert at >= 0, f"{part}\nis not printed in this place by {example.command}:\n{printed}"
        at += len(part)
    if not example.output.endswith("…\n"):
        assert printed[at:].strip() == ""


def test_the_documents_have_examples_of_every_command_that_has_a_sample() -> None:
    shown = {word for example in EXAMPLES for word in example.command.split() if word in COMMANDS}
    assert shown >= {"check", "topology", "list", "explain"}


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"docs/commands/{name}.md" not in text] == []
    index = (ROOT / "docs" / "commands" / "README.md").read_text()
    assert [name for name in COMMANDS if f"({name}.md)" not in index] == []
