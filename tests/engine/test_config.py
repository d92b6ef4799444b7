from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.engine.config import Config, find_config, read_config
from numadoctor.engine.files import BadFile
from numadoctor.engine.thresholds import THRESHOLDS, set_thresholds, threshold
from numadoctor.engine.waivers import Waiver
from numadoctor.model import Severity
from tests.engine.complaints import suppress_and_keep

WHOLE = """
select = ["E", "K"]
ignore = ["K011", "numa-balancing"]
fail-on = "warn"
strict = true

[severities]
K001 = "high"

[thresholds]
off-node = 0.25

[[waivers]]
id = "K001"
subject = "node *"
host = "gpu-*"
reason = "measured: no effect with pinned pools"
expires = 2026-12-31

[[waivers]]
id = "swap"
reason = "until the new disks are there"
expires = "2027-01-31"
"""


@pytest.fixture(autouse=True)
def _default_thresholds() -> Any:
    yield
    set_thresholds({})


def read(folder: Path, text: str, name: str = "numadoctor.toml") -> Config:
    (folder / name).write_text(text)
    return read_config(str(folder / name))


def test_every_setting(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    assert config == Config(
        file=str(tmp_path / "numadoctor.toml"),
        select=("E", "K"),
        ignore=("K011", "numa-balancing"),
        fail_on="warn",
        strict=True,
        severities={"K001": Severity.HIGH},
        thresholds={"off-node": 0.25},
        waivers=(
            Waiver(
                "K001",
                "measured: no effect with pinned pools",
                "node *",
                "gpu-*",
                date(2026, 12, 31),
            ),
            Waiver("swap", "until the new disks are there", expires=date(2027, 1, 31)),
        ),
    )


def test_thresholds_are_in_force(tmp_path: Path) -> None:
    read(tmp_path, WHOLE)
    assert threshold("off-node") == 0.25
    assert threshold("off-node-most") == THRESHOLDS["off-node-most"].value


def test_the_same_in_pyproject(tmp_path: Path) -> None:
    text = WHOLE.replace("[severities]", "[tool.numadoctor.severities]")
    text = text.replace("[thresholds]", "[tool.numadoctor.thresholds]")
    text = text.replace("[[waivers]]", "[[tool.numadoctor.waivers]]")
    ours = read(tmp_path, f"[project]\nname = 'x'\n[tool.numadoctor]{text}", "pyproject.toml")
    assert ours.waivers == read(tmp_path, WHOLE).waivers
    assert ours.select == ("E", "K")


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Config(file=str(tmp_path / "numadoctor.toml"))


WRONG = [
    ("select = 'E'", "select: a list of ids, family letters or names is expected, not 'E'"),
    ("select = [1]", "select[0]: text is expected, not 1"),
    ("selct = []", "selct: no such key: did you mean select?"),
    ("xyz = 1", "xyz: no such key; select, ignore, fail-on, strict, severities"),
    ("fail-on = 'info'", "fail-on: one of fail, warn, never is expected, not 'info'"),
    ("fail-on = [1]", "fail-on: one of fail, warn, never is expected, not [1]"),
    ("strict = 'yes'", "strict: true or false is expected, not 'yes'"),
    ("severities = 1", "severities: a table is expected, not 1"),
    ("[severities]\nK001 = 'grave'", "severities.K001: one of high, medium, low is expected"),
    ("[severities]\nK001 = [1]", "severities.K001: one of high, medium, low is expected, not [1]"),
    ("thresholds = []", "thresholds: a table is expected, not []"),
    ("[thresholds]\noff-nod = 1", "thresholds: bad threshold 'off-nod': there is none"),
    ("[thresholds]\noff-node = 'x'", "a number from 0 on is expected"),
    ("[thresholds]\noff-node = nan", "a number from 0 on is expected"),
    ("[thresholds]\noff-node = 2", "a share is between 0 and 1"),
    ("[thresholds]\noff-node = 2027-01-01", "a number from 0 on is expected"),
    ("waivers = {}", "waivers: tables [[waivers]] are expected, not {}"),
    ("waivers = [1]", "waivers[0]: a table is expected, not 1"),
    ("[[waivers]]\nreason = 'x'", "waivers[0].id: is missing: a check is expected"),
    ("[[waivers]]\nid = 'K001'", "waivers[0].reason: is missing: why it is accepted is expected"),
    ("[[waivers]]\nid = 'K001'\nreason = ' '", "waivers[0].reason: text is expected, not ' '"),
    ("[[waivers]]\nid = 'K001'\nreason = 5", "waivers[0].reason: text is expected, not 5"),
    (
        "[[waivers]]\nid = 'a'\nreason = 'b'\n[[waivers]]\nid = 'K001'\nresaon = 'x'",
        "waivers[1].resaon: no such key: did you mean reason?",
    ),
    (
        "[[waivers]]\nid='a'\nreason='b'\nexpires = 'soon'",
        "waivers[0].expires: a day is expected (2027-01-31), not 'soon'",
    ),
    (
        "[[waivers]]\nid='a'\nreason='b'\nexpires = 2027-01-31T10:00:00",
        "waivers[0].expires: a day is expected (2027-01-31), not 2027-01-31T10:00:00",
    ),
    ("[[waivers]]\nid='a'\nreason='b'\nexpires = 12", "waivers[0].expires: a day is expected"),
    ("select = [", "not TOML: "),
    ("a = 1\na = 2", "not TOML: "),
    ("x = " + "[" * 20_000, "not TOML: "),
    ("x = " + "9" * 5_000, "not TOML: "),
    ('"a\\u001b[31m" = 1', r"'a\x1b[31m': no such key"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_is_wrong_is_told_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadFile) as raised:
        read(tmp_path, text)
    told = str(raised.value)
    assert told.startswith(f"{tmp_path / 'numadoctor.toml'}: ")
    assert message in told
    assert "\n" not in told
    assert len(told) < 2000


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"# \xe9\n")
    (tmp_path / "huge").write_bytes(b"#" * (17 << 20))
    for name, reason in (
        ("absent", "cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
        ("latin", "not UTF-8: byte 3"),
        ("huge", "larger than 16 MiB"),
        ("a\0b", "no file can have this name"),
    ):
        with pytest.raises(BadFile, match=reason):
            read_config(f"{tmp_path}/{name}")


def test_pyproject_without_our_table(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"has no table \[tool.numadoctor\]"):
        read(tmp_path, "[tool.other]\n", "pyproject.toml")
    with pytest.raises(BadFile, match=r"tool.numadoctor: a table is expected, not 1"):
        read(tmp_path, "[tool]\nnumadoctor = 1\n", "pyproject.toml")


SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates()
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["select", "ignore", "fail-on", "strict", "severities", "thresholds", "waivers", "x"]
)


@given(st.dictionaries(KEYS, VALUE, max_size=4))
def test_any_data_is_settings_or_is_complained_of(data: dict[str, Any]) -> None:
    from numadoctor.engine.config import _Reader

    with suppress_and_keep() as complaints:
        config = _Reader("f").config(data, "")
        assert "x" not in data
        assert all(waiver.reason.strip() for waiver in config.waivers)
    assert all(c.startswith("f: ") and "\n" not in c for c in complaints)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace")))
def test_any_bytes_are_settings_or_are_complained_of(data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".toml") as file:
        file.write(data)
        file.flush()
        with suppress_and_keep() as complaints:
            read_config(file.name)
        assert all("\n" not in complaint for complaint in complaints)


# Where it is looked for.


def test_the_nearest_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert find_config() is None
    (tmp_path / "pyproject.toml").write_text("[tool.numadoctor]\n")
    assert find_config() == "../../pyproject.toml"
    (tmp_path / "numadoctor.toml").write_text("")
    assert find_config() == "../../numadoctor.toml"
    (tmp_path / "a" / ".numadoctor.toml").write_text("")
    assert find_config() == "../.numadoctor.toml"
    (inner / "pyproject.toml").write_text("[tool.ruff]\nx = 'numadoctor'\n")
    assert find_config() == "../.numadoctor.toml"
    (inner / "pyproject.toml").write_text("[tool.numadoctor\n")
    assert find_config() == "../.numadoctor.toml"
    (inner / "pyproject.toml").write_text("tool = 1 # numadoctor\n")
    assert find_config() == "../.numadoctor.toml"


def test_the_search_ends_at_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numadoctor.toml").write_text("")
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    assert find_config() is None


def test_a_folder_that_is_gone_has_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_config() is None
