import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import environment
from tests.evidence.pastes import EIGHT, HWLOC, NCCL, numactl
from tests.schemas import validate

TWO = numactl({0: [0, 1], 1: [2, 3]}, {0: 1000, 1: 1000}, {0: [10, 21], 1: [21, 10]})


def run(*arguments: str, text: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "numadoctor", "topology", *arguments],
        input=text,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        **more,
    )


def test_an_issue_with_prose_and_fences() -> None:
    issue = f"Hello,\n\n```\n$ nvidia-smi topo -m\n{EIGHT.text()}```\nand\n> " + TWO.replace(
        "\n", "\n> "
    )
    done = run("--from", "-", text=issue)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 NUMA nodes" in done.stdout
    assert "nvidia-smi topo -m (standard input:5)" in done.stdout
    assert "numactl -H (standard input:" in done.stdout


def test_the_json_of_pasted_text_follows_the_schema(tmp_path: Path) -> None:
    for name, text in (("a", EIGHT.text()), ("b", TWO), ("c", HWLOC), ("d", NCCL)):
        (tmp_path / name).write_text(text)
    files = [word for name in "abcd" for word in ("--from", str(tmp_path / name))]
    for more in ([], ["--sysroot", "sample:two-socket"]):
        done = run(*files, *more, "-o", "json")
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        validate("topology", data)
        assert len(data["sources"]) == 4


def test_text_and_picture_at_once(tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    done = run("--sysroot", "sample:two-socket", "-o", f"svg={picture}", "-o", "text")
    assert done.returncode == 0
    assert picture.read_text().startswith("<svg ")
    assert "GPU to NIC:" in done.stdout


def test_what_is_refused_is_told_and_the_rest_is_shown() -> None:
    cut = "\n".join(EIGHT.lines()[:3]) + "\n\n"
    done = run("--from", "-", text=cut + TWO)
    assert done.returncode == 3
    assert done.stderr.startswith("numadoctor: standard input:3: nvidia-smi topo -m is not bel")
    assert "2 NUMA nodes" in done.stdout


def test_nothing_but_refusals() -> None:
    done = run("--from", "-", text="\n".join(EIGHT.lines()[:3]) + "\n")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("numadoctor: cannot understand standard input:3: nvidia-smi")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["", "hello\n", "GPU0\n", "\x00" * 100])
def test_nothing_known_is_an_error_of_use(text: str) -> None:
    done = run("--from", "-", text=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no output of nvidia-smi topo -m, numactl -H" in done.stderr


@pytest.mark.parametrize("name", ["absent", ".", "/dev/zero"])
def test_what_cannot_be_read_is_an_error_of_use(name: str, tmp_path: Path) -> None:
    done = run("--from", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--from {name}: " in done.stderr


def test_a_text_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b" " * ((4 << 20) + 1))
    (tmp_path / "y").write_bytes(b"\n" * 100_001)
    assert "larger than 4 MiB" in run("--from", "x", cwd=tmp_path).stderr
    assert "more than 100000 lines" in run("--from", "y", cwd=tmp_path).stderr


def test_a_hostile_text_does_not_reach_the_terminal() -> None:
    hostile = HWLOC.replace('name="mlx5_0"', 'name="&#x1b;]0;x&#x7;"').replace("0000:19", "0000:19")
    assert "\x1b" not in hostile
    for text in (hostile, HWLOC.replace("mlx5_0", "a\u202eb"), "\x1b]0;x\x07" + TWO):
        done = run("--from", "-", text=text)
        assert "\x1b" not in done.stdout + done.stderr
        assert "\u202e" not in done.stdout + done.stderr


def test_what_is_unknown_is_not_none_at_all() -> None:
    text = "".join(
        f"GPU[{gpu}]\t\t: (Topology) Numa {word}: {node}\n"
        for gpu, node in ((0, 1), (1, 4))
        for word in ("Node", "Affinity")
    )
    done = run("--from", "-", text=text)
    assert done.stdout.startswith(
        "standard input: 2 NUMA nodes, CPUs unknown, memory unknown, 2 GPUs\n"
    )
    assert "distances: unknown" in done.stdout
    assert " 0 CPUs" not in run("--from", "-", "-o", "svg", text=text).stdout


@pytest.mark.parametrize(
    ("name", "word", "number"), [("nvlink-pairs", "NV12", 4), ("mi300x", "XGMI", 28)]
)
def test_links_beside_pci(tmp_path: Path, name: str, word: str, number: int) -> None:
    picture = tmp_path / "x.svg"
    done = run("--sysroot", f"sample:{name}", "-o", "json", "-o", f"svg={picture}")
    data = json.loads(done.stdout)
    validate("topology", data)
    assert [r["relation"] for r in data["relations"]] == [word] * number
    assert data["unknown_links"] == {}
    assert picture.read_text().count(f">{word}<") == 2 * number
    assert f" {word} " in run("--sysroot", f"sample:{name}").stdout


def test_unknown_links_are_told_as_such(tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    told = "NVLink: unknown (nvidia-ml-py is not installed)"
    done = run("--sysroot", "sample:two-socket", "-o", "text", "-o", f"svg={picture}")
    assert told in done.stdout
    assert told in picture.read_text()
    data = json.loads(run("--sysroot", "sample:two-socket", "-o", "json").stdout)
    assert data["unknown_links"] == {"NVLink": "nvidia-ml-py is not installed"}
    assert data["relations"] == []
