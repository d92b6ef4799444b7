"""Drop-ins belong to their units as systemd has it, wherever both lie."""

from pathlib import Path

import pytest

from numadoctor.lint.documents import Files
from numadoctor.lint.dropins import folders_of
from numadoctor.lint.gathering import gather
from numadoctor.lint.reading import read_files
from tests.lint.test_projects import lay_out

UNIT = "[Service]\nExecStart=/usr/bin/vllm serve m\nCPUAffinity=0-7\nNice={}\n"


def settings(folder: Path, *names: str) -> dict[str, list[str]]:
    """File to the values of Nice= in the order in which they are read."""
    files = gather(read_files([str(folder / n) for n in names] or [str(folder)]), Files())
    assert files.unread == []
    return {
        f"{Path(d.file).relative_to(folder)}"
        + (f" {d.content.name}" if d.content.name != Path(d.file).name else ""): [
            s.value.text for s in d.content.settings if s.name.text == "Nice"
        ]
        for d in files.documents
    }


def nice(value: int) -> str:
    return f"[Service]\nNice={value}\n"


def test_by_the_names_of_the_files(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "a.service": UNIT.format(1), "a.service.d/20.conf": nice(3), "a.service.d/10.conf": nice(2),
        "b.service": UNIT.format(4),
    })  # fmt: skip
    assert settings(tmp_path) == {"a.service": ["1", "2", "3"], "b.service": ["4"]}


@pytest.mark.parametrize("name", ["a.service", "a.service.d/10.conf"])
def test_what_lies_beside_a_file_that_is_named(tmp_path: Path, name: str) -> None:
    lay_out(tmp_path, {
        "a.service": UNIT.format(1), "a.service.d/10.conf": nice(2), "a.service.d/20.conf": nice(3),
    })  # fmt: skip
    assert settings(tmp_path, name) == {"a.service": ["1", "2", "3"]}


def test_units_of_one_name_in_several_folders_are_several(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "prod/a.service": UNIT.format(1), "prod/a.service.d/x.conf": nice(2),
        "test/a.service": UNIT.format(3),
    })  # fmt: skip
    assert settings(tmp_path) == {"prod/a.service": ["1", "2"], "test/a.service": ["3"]}


def test_the_folders_of_a_machine(tmp_path: Path) -> None:
    etc, usr = "etc/systemd/system", "usr/lib/systemd/system"
    lay_out(tmp_path, {
        f"{usr}/a.service": UNIT.format(1), f"{usr}/a.service.d/10.conf": nice(2),
        f"{usr}/a.service.d/20.conf": nice(3), f"{etc}/a.service.d/10.conf": nice(4),
        f"{etc}/service.d/30.conf": nice(5),
    })  # fmt: skip
    assert settings(tmp_path) == {f"{usr}/a.service": ["1", "4", "3", "5"]}


def test_a_folder_of_its_own_for_drop_ins(tmp_path: Path) -> None:
    lay_out(tmp_path, {"units/a.service": UNIT.format(1), "over/a.service.d/x.conf": nice(2)})
    assert settings(tmp_path) == {"units/a.service": ["1", "2"]}


def test_an_instance_of_a_template(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "a@.service": UNIT.format(1), "a@.service.d/all.conf": nice(2),
        "a@0.service.d/own.conf": nice(3),
    })  # fmt: skip
    assert settings(tmp_path) == {"a@.service a@0.service": ["1", "2", "3"]}


def test_drop_ins_of_a_prefix(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "a-b.service": UNIT.format(1), "a-.service.d/x.conf": nice(2), "c.service": UNIT.format(3),
    })  # fmt: skip
    assert settings(tmp_path) == {"a-b.service": ["1", "2"], "c.service": ["3"]}
    assert folders_of("a-b@1.service") == [
        "a-b@1.service.d", "a-b@.service.d", "a-.service.d", "service.d",
    ]  # fmt: skip


@pytest.mark.parametrize("folder", ["a.service.d", "service.d"])
@pytest.mark.parametrize("linked", [True, False], ids=["link to /dev/null", "empty"])
def test_a_drop_in_that_is_masked_says_nothing(tmp_path: Path, folder: str, linked: bool) -> None:
    etc, usr = "etc/systemd/system", "usr/lib/systemd/system"
    lay_out(tmp_path, {
        f"{usr}/a.service": UNIT.format(1), f"{usr}/{folder}/10.conf": nice(2),
        f"{usr}/{folder}/20.conf": nice(3), f"{usr}/{folder}/30.conf": nice(4),
    })  # fmt: skip
    (tmp_path / etc / folder).mkdir(parents=True)
    for name in ("10.conf", "30.conf"):
        path = tmp_path / etc / folder / name
        path.symlink_to("/dev/null") if linked else path.touch()
    assert settings(tmp_path) == {f"{usr}/a.service": ["1", "3"]}


def test_other_links_below_a_folder_are_not_followed(tmp_path: Path) -> None:
    lay_out(tmp_path, {"a.service": UNIT.format(1), "other": nice(2)})
    (tmp_path / "a.service.d").mkdir()
    (tmp_path / "a.service.d/10.conf").symlink_to("../other")
    (tmp_path / "b.service").symlink_to("/dev/null")
    assert settings(tmp_path) == {"a.service": ["1"]}
