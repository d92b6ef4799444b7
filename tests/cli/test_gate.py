"""Settings, waivers, baselines and formats of ``check``, from the command line on."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from numadoctor.cli import main
from numadoctor.cli.gate import FORMATS
from numadoctor.engine.discovery import discover
from tests.cli.programs import Done, in_process, numadoctor
from tests.engine.plugins import plugin, write

BROKEN = ["check", "--sysroot", "sample:container-docker", "--select", "E,K"]
FIT = ["check", "--sysroot", "sample:two-socket", "--select", "K"]
Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in ("COLUMNS", "NO_COLOR", "NUMADOCTOR_DEBUG", "SOURCE_DATE_EPOCH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: in_process(capsys, main, *arguments)


def error(done: Done) -> str:
    """The one line that says what was wrong."""
    assert (done.code, done.out) == (2, "")
    (message,) = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    return message


# Formats.


def test_several_formats_at_once(run: Run) -> None:
    files = {name: f"out.{name}" for name in FORMATS if name != "text"}
    outputs = [part for name, file in files.items() for part in ("-o", f"{name}={file}")]
    done = run(*BROKEN, *outputs, "-o", "text")
    assert done.code == 1
    assert "not fit" in done.out
    assert all(Path(file).read_text().strip() for file in files.values())
    # Nothing is left beside them.
    assert {path.name for path in Path().iterdir()} == {*files.values(), ".git"}


@pytest.mark.parametrize(
    ("name", "codes"), [("nagios", (0, 2)), ("npd", (0, 1)), ("junit", (0, 1)), ("tap", (0, 1))]
)
def test_plugins_speak_by_the_codes_of_who_calls_them(
    run: Run, name: str, codes: tuple[int, int]
) -> None:
    assert (run(*FIT, "-o", name).code, run(*BROKEN, "-o", name).code) == codes
    # Into a file they are a report among others.
    assert run(*BROKEN, "-o", f"{name}=x").code == 1


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "text"])
def test_the_same_host_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    first = numadoctor(*BROKEN, "-o", name, env={"PYTHONHASHSEED": "1"})
    second = numadoctor(
        *BROKEN, "-o", name, env={"PYTHONHASHSEED": "2", "HOME": str(tmp_path), "TZ": "Asia/Tokyo"}
    )
    assert first == second
    assert first.err == ""


def test_one_file_that_cannot_be_written_harms_no_other(run: Run) -> None:
    Path("good.xml").write_text("before")
    done = run(*BROKEN, "-o", "sarif=absent/x.sarif", "-o", "junit=good.xml", "-o", "text")
    assert error(done) == "Error: cannot write absent/x.sarif: No such file or directory"
    assert Path("good.xml").read_text().startswith("<?xml")


def test_a_full_disk_leaves_what_was_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("r.json").write_text("before")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "cannot write r.json: No space left" in error(run(*FIT, "-o", "json=r.json"))
    assert Path("r.json").read_text() == "before"
    assert {path.name for path in Path().iterdir()} == {"r.json", ".git"}


def test_two_formats_for_one_file(run: Run) -> None:
    assert "several formats for one file: x" in error(run(*FIT, "-o", "json=x", "-o", "sarif=x"))


def test_an_extra_that_is_missing_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    done = run(*FIT, "-o", "prometheus")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "numadoctor: this needs prometheus_client: pip install 'numadoctor[metrics]'\n"
    )


# Settings.

WAIVE = """
[[waivers]]
id = "E001"
host = "3f2c*"
reason = "CAP_SYS_NICE comes with the next image"
expires = 2999-12-31
"""


def test_settings_are_found_and_told(run: Run) -> None:
    Path("numadoctor.toml").write_text(WAIVE)
    done = run(*BROKEN)
    assert done.code == 0
    assert "fit, with" in done.out
    assert "waived until 2999-12-31: CAP_SYS_NICE comes with the next image" in " ".join(
        done.out.split()
    )
    assert "settings: numadoctor.toml" in done.out
    assert run(*BROKEN, "--no-config").code == 1


def test_settings_that_were_named(run: Run) -> None:
    Path("ci.toml").write_text(WAIVE + "[severities]\nE008 = 'high'\n")
    done = run(*BROKEN, "--config", "ci.toml", "-o", "json")
    data = json.loads(done.out)
    assert (done.code, data["suppressed"], data["summary"]["fail"]) == (0, 3, 0)
    assert data["remarks"] == []
    waived = [f for f in data["findings"] if f["suppressed"]]
    assert {f["id"] for f in waived} == {"E001"}
    assert {f["status"] for f in waived} == {"fail"}
    assert waived[0]["suppressed"] == {
        "kind": "waiver",
        "reason": "CAP_SYS_NICE comes with the next image",
        "expires": "2999-12-31",
    }
    assert {f["severity"] for f in data["findings"] if f["id"] == "E008"} == {"high"}


def test_an_expired_waiver(run: Run) -> None:
    Path("numadoctor.toml").write_text(WAIVE.replace("2999", "2020"))
    done = run(*BROKEN)
    assert done.code == 1
    assert "expired on 2020-12-31" in done.out


def test_words_of_the_settings_that_stand_for_nothing_are_told(run: Run) -> None:
    Path("numadoctor.toml").write_text(
        "[severities]\nK00l = 'low'\nswap = 'low'\n"
        "[[waivers]]\nid = 'numa-balancng'\nreason = 'x'\n"
    )
    done = run(*FIT)
    assert "severity of K00l: there is no such check" in done.out
    assert "waiver of numa-balancng: there is no such check" in done.out
    assert "swap" not in done.out


ALL_COMMANDS = """
select = ["D002", "kubelet-managers", "K"]
ignore = ["D", "D010", "p004", "compose-is-none"]
[severities]
D002 = "low"
D99 = "low"
D = "low"
[[waivers]]
id = "%s"
reason = "x"
"""


def test_one_file_of_settings_serves_all_commands(run: Run, tmp_path: Path) -> None:
    """What it says of checks that this command does not run is looked at all the same."""
    names = {check.id: check.name for check in discover()}
    text = ALL_COMMANDS.replace("kubelet-managers", names["D011"])
    Path("numadoctor.toml").write_text(text.replace("compose-is-none", names["E001"]) % "d010")
    (tmp_path / "compose.yaml").write_text("services: {engine: {image: vllm/vllm-openai}}\n")
    told = {
        "settings: numadoctor.toml",
        "severity of D99: there is no such check",
        "severity of D: there is no such check",
    }
    done = run("check", "--sysroot", "sample:two-socket", "-o", "json")
    report = json.loads(done.out)
    assert set(report["remarks"]) == told
    assert {finding["id"][0] for finding in report["findings"]} == {"K"}
    report = json.loads(run("lint", "compose.yaml", "--ignore", "P004", "-o", "json").out)
    assert set(report["remarks"]) == told
    assert report["findings"] == []

    Path("numadoctor.toml").write_text(text % "d010")
    assert error(run("check")).startswith('Error: no check "compose-is-none": ')
    assert error(run("lint", "compose.yaml")).startswith('Error: no check "compose-is-none": ')
    Path("numadoctor.toml").write_text('select = ["D0"]\n')
    for command in (["check"], ["lint", "compose.yaml"]):
        assert 'no check "D0": did you mean D02' in error(run(*command))
    Path("numadoctor.toml").write_text('select = ["D"]\n')
    assert error(run("check")) == "Error: D is a check of deployment files: numadoctor lint"
    assert error(run("lint", "compose.yaml", "--select", "K001,e")) == (
        "Error: K001, e are checks of machines and processes: numadoctor check"
    )


def test_a_site_takes_no_id_of_a_family_that_is_not_run(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "rules", a=plugin("D010", "mine"), b=plugin("X001", "other"))
    owner = discover().checks["D010"].name
    done = run(*FIT[:3], "--select", "X", "--checks-dir", "rules", "-v")
    taken = f"check id D010 is taken by {owner} of numadoctor.checks.deployment_pods"
    assert f"a.py: {taken}" in " ".join(done.out.split())
    assert "Passed X001 right" in " ".join(done.out.split())
    assert done.code == 3


def test_what_the_command_line_says_goes_before_the_settings(run: Run) -> None:
    Path("numadoctor.toml").write_text('select = ["K"]\nfail-on = "never"\n')
    command = ["check", "--sysroot", "sample:container-docker"]
    assert "E001" not in run(*command).out
    done = run(*command, "--select", "E", "--fail-on", "fail")
    assert done.code == 1
    assert run(*command, "--select", "E").code == 0


def test_strict_and_ignore_of_the_settings(run: Run) -> None:
    Path("numadoctor.toml").write_text('ignore = ["E001"]\nstrict = true\n')
    assert run(*BROKEN).code == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select = 5", "numadoctor.toml: select: a list of ids"),
        ("[[waivers]]\nid = 'K001'", "numadoctor.toml: waivers[0].reason: is missing"),
        ("select = ['K0']", 'no check "K0"'),
        ("[", "numadoctor.toml: not TOML"),
    ],
)
def test_bad_settings_are_one_line(run: Run, text: str, message: str) -> None:
    Path("numadoctor.toml").write_text(text)
    assert message in error(run(*FIT[:3]))


def test_files_that_are_not_there(run: Run) -> None:
    assert "no.toml: cannot be read: No such file" in error(run(*FIT, "--config", "no.toml"))
    assert "no.json: cannot be read: No such file" in error(run(*FIT, "--baseline", "no.json"))
    assert "a report and the baseline in one file" in error(
        run(*FIT, "-o", "json=b", "--write-baseline", "b")
    )
    assert "exclude each other" in error(run(*FIT, "--config", "x", "--no-config"))


# Baselines.


def test_only_new_findings_count(run: Run) -> None:
    assert run(*BROKEN, "--write-baseline", "b.json").code == 1
    first = Path("b.json").read_text()
    done = run(*BROKEN, "--baseline", "b.json", "--strict", "--fail-on", "warn")
    assert done.code == 0
    assert "in the baseline" in done.out
    assert "FAIL" not in done.out
    # What is known stays known when it is written anew.
    run(*BROKEN, "--baseline", "b.json", "--write-baseline", "b.json")
    assert Path("b.json").read_text() == first
    data = json.loads(first)
    data["findings"] = [entry for entry in data["findings"] if entry["subject"] != "mbind"]
    Path("b.json").write_text(json.dumps(data))
    done = run(*BROKEN, "--baseline", "b.json")
    assert done.code == 1
    assert "1 problem" in done.out
    assert "FAIL  E001  mbind is refused" in done.out


def test_what_is_gone_is_told(run: Run) -> None:
    run(*BROKEN, "--write-baseline", "b.json")
    done = run("check", "--sysroot", "sample:two-socket", "--baseline", "b.json")
    assert "findings are gone that b.json knows" in " ".join(done.out.split())


def test_what_is_no_baseline(run: Run) -> None:
    Path("b.json").write_text("{}")
    assert "b.json: no baseline: schema_version 1 is expected" in error(
        run(*FIT, "--baseline", "b.json")
    )
