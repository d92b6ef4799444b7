"""``numadoctor interleave`` on this machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from numadoctor.cli import cli
from tests.schemas import validate


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["interleave", *arguments], standalone_mode=False)
    code = result.return_value if result.exception is None else 2
    return int(code or 0), result.output


def data(*arguments: str) -> tuple[int, Any]:
    line = [sys.executable, "-m", "numadoctor", "interleave", "-o", "json", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    validate("interleave", answer)
    return done.returncode, answer


@pytest.mark.parametrize("backing", ["private", "shared", "posix", "sysv", "memfd"])
def test_two_pools_are_compared(backing: str) -> None:
    code, answer = data("--size", "4M", "--backing", backing, "--threads", "2")
    assert code == 0
    assert [pool["mode"] for pool in answer["pools"]] == ["first-touch", "interleave"]
    for pool in answer["pools"]:
        assert pool["length"] == 4 << 20
        if pool["bytes_by_node"] is not None:
            assert sum(pool["bytes_by_node"].values()) == 4 << 20
        assert pool["prefault"]["bytes_per_second"] > 0


def test_text_tells_the_verdict_first_and_fits() -> None:
    code, text = run("--size", "2M")
    assert code == 0
    lines = text.splitlines()
    assert lines[0].endswith(("cannot differ", "pages)", "nothing to place"))
    assert any(line.startswith("first-touch") for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_what_cannot_be_had_exits_one_with_a_fix() -> None:
    code, answer = data("--size", "1000T")
    assert code == 1
    assert answer["pools"] == []
    (finding,) = answer["findings"]
    assert finding["status"] == "fail"
    assert finding["fixes"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--size", "0"], "0 B is too little"),
        (["--size", "-5"], "it is below 0"),
        (["--nodes", "x"], "is not a number"),
        (["--nodes", ""], "names no node"),
        (["--nodes", "0-99999999"], "bad list"),
        (["--nodes", "777"], "there is no node 777"),
        (["--mode", "scatter"], "'scatter' is not one of"),
        (["--backing", "tape"], "'tape' is not one of"),
        (["--backing", "hugetlb", "--huge-page-size", "3M"], "no huge pages of 3 MiB"),
    ],
)
def test_bad_arguments(arguments: list[str], says: str) -> None:
    line = [sys.executable, "-m", "numadoctor", "interleave", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_progress_is_silent_without_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    line = [sys.executable, "-m", "numadoctor", "interleave", "--size", "2M", "-o", f"json={file}"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert json.loads(file.read_text())["size"] == 2 << 20


def test_hold_says_where_the_pool_is() -> None:
    line = [sys.executable, "-m", "numadoctor", "interleave", "--size", "2M", "--hold", "0.01"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "holds interleave at " in done.stderr
