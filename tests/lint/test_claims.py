"""What cannot be understood is told, by name and in a folder alike, and passes for nothing."""

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numadoctor.lint.documents import Files
from numadoctor.lint.gathering import gather
from numadoctor.lint.reading import Source, read_files
from numadoctor.lint.recognition import is_claimed
from tests.cli.test_lint import lint
from tests.lint.test_hostile import examples

BROKEN = "services:\n  a: {image: [\n"
NAMES = (
    "docker-compose.yml", "docker-compose.yaml", "compose.yaml", "compose.yml",
    "compose.gpu.yaml", "docker-compose.prod.yml", "vllm-compose.yml", "Chart.yaml",
    "kustomization.yaml", "kubelet-config.yaml", "seccomp-numa.json",
)  # fmt: skip
UNDERSTOOD_BY_NOBODY = {
    "compose.yaml": ["", "# only words\n", "hello\n", "- a\n- b\n", "a: 1\n", "%% [x"],
    "vllm.service": ["ExecStart=x\n", "[Service]\nwhat\n"],
    "vllm.service.d/a.conf": ["hello\n"],
    "vllm.container": ["Image=x\n"],
    "sysctl.d/90-a.conf": ["hello\n"],
    "job.sbatch": ["#!/bin/sh\necho 'x\n"],
    "pod.yaml": ["apiVersion: v1\nkind: Pod\nspec: [\n"],
    "run.sh": ["docker run 'x\n"],
}


def told(path: Path) -> list[str]:
    return gather(read_files([str(path)]), Files()).unread


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_file_that_says_what_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(BROKEN)
    for argument in (name, "."):
        code, output, errors = lint(tmp_path, argument)
        assert (code, errors) == (3, "")
        assert "not examined: " in output
        assert f"{name}:3:1: no YAML" in " ".join(output.split())


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name, texts in UNDERSTOOD_BY_NOBODY.items() for text in texts],
)
def test_by_name_and_in_a_folder(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert len(told(path)) == 1
    assert told(path) == told(tmp_path)


@pytest.mark.parametrize("data", [b"\0\1\2", b"services: \xff\xfe", b"\xff\xfes"])
def test_bytes_that_are_no_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "docker-compose.yml").write_bytes(data)
    assert told(tmp_path) == told(tmp_path / "docker-compose.yml") != []


TEMPLATES = {
    "deployment.yaml": "apiVersion: apps/v1\nkind: Set\n{{- toYaml .Values.x | indent 2 }}\n",
    "pod.yaml": 'apiVersion: v1\nkind: Pod\nmetadata: {name: "{{ .Values.x | default "y" }}"}\n',
    "docker-compose.yml": "services:\n{% for n in nodes %}\n  s{{ n }}: {image: x}\n{% endfor %}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_told_and_break_no_gate(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TEMPLATES[name])
    for argument in (name, "."):
        code, output, _ = lint(tmp_path, argument)
        assert code == 0
        assert "a template" in " ".join(output.split())
        assert lint(tmp_path, argument, "--strict")[0] == 3


def test_what_swarm_fills_in_makes_no_template(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        'services:\n  a:\n    image: x\n    hostname: "{{.Node.Hostname}}"\n    command: [\n'
    )
    assert told(tmp_path) != []


def test_other_files_of_a_repository_may_be_what_they_like(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [\n")
    (tmp_path / "kinds.yaml").write_text("x:\n  kind: [\n")
    (tmp_path / "odd.sh").write_text("#!/bin/sh\necho 'x\n")
    (tmp_path / "picture.json").write_bytes(b"\x89\0")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cmdline").write_bytes(b"python3\0-m\0x\0")
    assert told(tmp_path) == []


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with (tmp_path / "docker-compose.yml").open("wb") as stream:
        stream.truncate(100_000_000)
    assert told(tmp_path) == told(tmp_path / "docker-compose.yml") != []


FILES = examples()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FILES), st.randoms(use_true_random=False))
def test_damaged_files_are_told_alike(file: tuple[str, str], chance: random.Random) -> None:
    """Cut, with bytes changed, or with a piece that stands twice."""
    name, text = file
    data = bytearray(text.encode())
    how = chance.randrange(3)
    at = chance.randint(0, len(data))
    if how == 0:
        del data[at:]
    elif how == 1:
        for _ in range(chance.randint(1, 8)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
    else:
        data[at:at] = data[max(0, at - 30) : at]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(data)
        by_name = gather(read_files([path]), Files())
        in_folder = gather(read_files([folder]), Files())
        found = [[(d.kind, d.file) for d in files.documents] for files in (by_name, in_folder)]
        if is_claimed(Source(path, bytes(data))):
            assert by_name.unread == in_folder.unread
        if in_folder.unread:
            assert by_name.unread == in_folder.unread
        for kind, _ in found[0]:
            # Whatever cannot be understood and was named counts, but for templates.
            assert kind != "unreadable" or by_name.unread or "{{" in text or b"{" in data
