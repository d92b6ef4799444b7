"""``numadoctor lint``: what it takes, how it ends, and what it says of bad files."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from numadoctor.lint.reading import LIMIT
from tests.cli.programs import environment
from tests.schemas import validate

COMPOSE = """\
services:
  vllm:
    image: vllm/vllm-openai
    cpuset: 0-31
    command: ["--model", "m", "--numa-bind"]
"""


def lint(
    folder: Path, *arguments: str, stdin: bytes = b"", memory: int = 0
) -> tuple[int, str, str]:
    """Exit code, output and errors; ``memory`` bounds the address space in MiB."""

    def bound() -> None:
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory << 20, memory << 20))

    done = subprocess.run(
        [sys.executable, "-m", "numadoctor", "lint", "--no-config", *arguments],
        input=stdin,
        capture_output=True,
        cwd=folder,
        env=environment(),
        check=False,
        preexec_fn=bound if memory else None,
        timeout=120,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def findings(folder: Path, *arguments: str, stdin: bytes = b"") -> list[dict[str, Any]]:
    _, output, errors = lint(folder, *arguments, "-o", "json", stdin=stdin)
    assert errors == ""
    report = json.loads(output)
    validate("check", report)
    found: list[dict[str, Any]] = report["findings"]
    return found


def test_a_finding_names_file_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    found = {(f["id"], f["status"]): f for f in findings(tmp_path, "compose.yaml")}
    calls = found["D002", "warn"]
    assert calls["location"] == {"file": "compose.yaml", "line": 5, "column": 31}
    assert found["D005", "warn"]["location"] == {"file": "compose.yaml", "line": 4, "column": 13}
    assert {fix["launcher"] for fix in calls["fixes"]} == {"compose"}
    assert any(fix["text"].startswith("cap_add: [SYS_NICE]") for fix in calls["fixes"])


def test_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    assert lint(tmp_path, "compose.yaml")[0] == 0
    assert lint(tmp_path, "compose.yaml", "--fail-on", "warn")[0] == 1
    (tmp_path / "run.sh").write_text("#!/bin/sh\ndocker run img numactl -m 0 serve\n")
    assert lint(tmp_path, ".")[0] == 1
    assert lint(tmp_path, ".", "--fail-on", "never")[0] == 0


def test_standard_input_holds_what_helm_prints(tmp_path: Path) -> None:
    rendered = b"---\n# Source: a.yaml\n---\n" + (
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: llm}\nspec:\n  containers:\n"
        b"  - {name: e, image: vllm/vllm-openai, securityContext: {privileged: true}}\n"
    )
    found = findings(tmp_path, "-", stdin=rendered)
    assert [f["subject"] for f in found if f["status"] == "warn"] == ["Pod llm container e"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing.yaml"], "missing.yaml: no such file or folder"),
        (["--runtime", "lxc", "."], "--runtime lxc: known are docker"),
        (["--runtime", "docker=new", "."], "a version such as 20.10"),
        (["--select", "K001", "."], "numadoctor check"),
        (["--sysroot", "missing", "."], "--sysroot missing"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use_is_told_in_a_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    code, output, errors = lint(tmp_path, *arguments)
    assert (code, output) == (2, "")
    assert told in errors
    assert "Traceback" not in errors


BOMB = (
    "apiVersion: v1\nkind: Pod\na0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
    + "spec: {containers: [*a39]}\n"
)
MERGES = "x0: &x0 {" + ", ".join(f"k{n}: 1" for n in range(3000)) + "}\nservices:\n" + "".join(
    f"  s{n}: {{<<: [*x0, *x0, *x0], image: i}}\n" for n in range(2000)
)  # fmt: skip
BAD: dict[str, tuple[bytes, str]] = {
    "tab.yaml": (b"apiVersion: v1\nkind: Pod\nspec:\n\tx: 1\n", "tab.yaml:4:1: a tab"),
    "open.yaml": (b"apiVersion: v1\nkind: [\n", "open.yaml:3:1: no YAML"),
    "alias.yaml": (b"apiVersion: v1\nkind: *nobody\n", 'alias.yaml:2:7: no anchor "nobody"'),
    "latin.yaml": (b"apiVersion: v1\nkind: P\xf6d\n", "latin.yaml:2:8: not UTF-8: byte 0xf6"),
    "deep.yaml": (b"apiVersion: v1\nkind: " + b"[" * 5000, "maximum nesting depth"),
    "deeper.yaml": (b"apiVersion: v1\nkind: " + b"[" * 150 + b"]" * 150, "100 levels deep"),
    "merges.yaml": (MERGES.encode(), "merge keys that multiply"),
    "null.yaml": (b"apiVersion: v1\nkind: \0\n", "a binary file"),
    "bell.yaml": (b"apiVersion: v1\nkind: \x07\n", "bell.yaml:2:7"),
    "wrong.xml": (b"<system><cpu numaid='0'></system>", "no NCCL topology"),
    "laughs.xml": (b"<!DOCTYPE s [<!ENTITY a 'b'>]>\n<system>&a;</system>", "document type"),
    "quote.sh": (b"#!/bin/sh\nnumactl '-m 0\n", "quote.sh:2:9: a quote that does not end"),
    "bad.service": (b"ExecStart=/bin/true\n", "bad.service:1:1"),
    "key.json": (b'{"defaultAction": "SCMP_ACT_ALLOW",, }', "key.json:1:36"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_file_is_told_with_its_place(tmp_path: Path, name: str) -> None:
    data, told = BAD[name]
    (tmp_path / name).write_bytes(data)
    code, output, errors = lint(tmp_path, name, memory=1500)
    assert (code, errors) == (3, ""), output
    assert told in " ".join(output.split())


def test_a_template_is_not_decided_and_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Pod\n{{- if .Values.x }}\nspec: {}\n")
    code, output, errors = lint(tmp_path, "a.yaml")
    assert (code, errors) == (0, "")
    assert "helm template" in output
    assert lint(tmp_path, "a.yaml", "--strict")[0] == 3


def test_what_aliases_multiply_is_never_built(tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_text(BOMB)
    code, output, errors = lint(tmp_path, "bomb.yaml", memory=1000)
    assert (code, errors) == (0, ""), output


def test_a_file_of_100_megabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.yaml").open("wb") as stream:
        stream.truncate(100_000_000)
    code, output, errors = lint(tmp_path, "large.yaml", memory=500)
    assert (code, errors) == (3, "")
    assert f"larger than {LIMIT >> 20} MiB" in output


def test_10_000_documents(tmp_path: Path) -> None:
    one = (
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec:\n  containers:\n"
        "  - {name: c, image: vllm/vllm-openai}\n"
    )
    (tmp_path / "many.yaml").write_text("".join(one % n for n in range(10_000)))
    code, output, errors = lint(tmp_path, "many.yaml", memory=1500)
    assert (code, errors) == (0, "")
    assert "20,000 passed" in output or "20000 passed" in output


def test_custom_resources_and_other_files_make_no_noise(tmp_path: Path) -> None:
    (tmp_path / "crd.yaml").write_text(
        "apiVersion: example.org/v1\nkind: Gadget\nmetadata: {name: g}\n"
        "spec: {containers: 3, schema: {containers: {type: array}}}\n"
    )
    (tmp_path / "ci.yaml").write_text("on: push\njobs: {a: {steps: []}}\n")
    (tmp_path / "package.json").write_text('{"name": "x", "scripts": {}}')
    (tmp_path / "page.xml").write_text("<html/>")
    (tmp_path / "picture.sh").write_bytes(b"\x89PNG\0\0")
    assert {f["status"] for f in findings(tmp_path, ".")} <= {"pass", "skip"}
    assert {f["id"] for f in findings(tmp_path, ".")} == {"D001"}


def test_links_are_not_followed_out_of_a_folder(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside, inside / ".git", inside / "node_modules"):
        folder.mkdir()
        (folder / "compose.yaml").write_text(COMPOSE)
    (inside / "link").symlink_to(outside)
    (inside / "file.yaml").symlink_to(outside / "compose.yaml")
    (inside / "loop").symlink_to(inside)
    os.mkfifo(inside / "pipe.yaml")
    files = {f["location"]["file"] for f in findings(tmp_path, "inside")}
    assert files == {"inside/compose.yaml"}
    # Whoever names a link means what is behind it.
    assert findings(tmp_path, "inside/file.yaml") != []


def test_the_same_file_is_judged_once(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    assert len(findings(tmp_path, ".", "compose.yaml", "./compose.yaml")) == len(
        findings(tmp_path, "compose.yaml")
    )


def test_line_ends_and_marks_of_other_systems(tmp_path: Path) -> None:
    expected = [
        (f["id"], f["status"], f["location"]["line"]) for f in _judged(tmp_path, COMPOSE.encode())
    ]
    crlf = COMPOSE.replace("\n", "\r\n").encode()
    for data in (crlf, b"\xef\xbb\xbf" + crlf, COMPOSE.encode("utf-16")):
        got = [(f["id"], f["status"], f["location"]["line"]) for f in _judged(tmp_path, data)]
        assert got == expected


def _judged(folder: Path, data: bytes) -> list[dict[str, Any]]:
    (folder / "compose.yaml").write_bytes(data)
    return findings(folder, "compose.yaml")


def test_without_pyyaml_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ImportError\n")
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    (tmp_path / "run.sh").write_text("#!/bin/sh\nnumactl -N 0 -m 0 serve\n")
    code, output, errors = lint(tmp_path, "compose.yaml")
    assert (code, output) == (2, "")
    assert errors.count("\n") == 1
    assert "pip install 'numadoctor[lint]'" in errors
    # Files that need no YAML are judged all the same.
    assert lint(tmp_path, "run.sh")[0] == 0


def test_names_of_files_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    name = "a\x1b[31m\nb.yaml"
    (tmp_path / name).write_text("apiVersion: v1\nkind: [\n")
    code, output, errors = lint(tmp_path, name)
    assert (code, errors) == (3, "")
    assert "\x1b" not in output


def test_formats_for_pipelines_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    lint(tmp_path, "compose.yaml", "-o", "sarif=s.sarif", "-o", "github")
    sarif = json.loads((tmp_path / "s.sarif").read_text())
    result = next(r for r in sarif["runs"][0]["results"] if r["ruleId"] == "D002")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "compose.yaml"
    assert (place["region"]["startLine"], place["region"]["startColumn"]) == (5, 31)
