"""A tree in a zip file answers as the same tree on a disk."""

import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.root import FolderRoot, sample_folder, sample_names
from numadoctor.host.zipped import ZippedTree, folders
from numadoctor.model import Undecided


@pytest.fixture(scope="module")
def archive(in_memory: Path) -> str:
    target = in_memory / "samples.zip"
    with zipfile.ZipFile(target, "w") as out:
        for name in sample_names():
            top = Path(sample_folder(name))
            for path in sorted(top.rglob("*")):
                if path.is_file():
                    out.write(path, f"samples/{name}/root/{path.relative_to(top)}")
        out.writestr("samples/__init__.py", "")
    return str(target)


def answer(root: FolderRoot, what: str, path: str) -> object:
    try:
        return getattr(root, what)(path)
    except Undecided as error:
        return type(error), error.errno


def both(archive: str, sample: str) -> tuple[FolderRoot, FolderRoot]:
    zipped = FolderRoot(sample, sample, ZippedTree(archive, f"samples/{sample}/root"))
    return FolderRoot(sample_folder(sample), sample), zipped


def test_samples_are_found(archive: str) -> None:
    assert folders(archive, "samples", "root") == sample_names()


@pytest.mark.parametrize("sample", ["two-socket", "gpu-memory-nodes", "container-docker"])
def test_every_file_and_folder_is_the_same(archive: str, sample: str) -> None:
    disk, zipped = both(archive, sample)
    assert disk.label == zipped.label
    pending, seen = ["/"], 0
    # A tree that links into itself has no end.
    while pending and seen < 500:
        folder = pending.pop(0)
        for what in ("list", "read", "link"):
            assert answer(disk, what, folder) == answer(zipped, what, folder), (what, folder)
        names = answer(disk, "list", folder)
        if isinstance(names, tuple):
            pending += [f"{folder.rstrip('/')}/{name}" for name in names]
        seen += 1
    assert seen > 100


PARTS = st.sampled_from(
    ["sys", "proc", "devices", "system", "node", "node0", "cpu", "meminfo", "self", "bus", "pci",
     "..", ".", "", "nope", "cpulist", "online", "\0", "ü"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=7), st.sampled_from(["read", "list", "link"]))
def test_any_path_gives_the_same_answer(archive: str, parts: list[str], what: str) -> None:
    path = "/" + "/".join(parts)
    disk, zipped = both(archive, "two-socket")
    expected, found = answer(disk, what, path), answer(zipped, what, path)
    if what == "link" and path.rpartition("/")[2] in ("", ".", ".."):
        # Nobody asks where a folder points; the errors differ.
        assert isinstance(found[0], type) if isinstance(found, tuple) else not found
    else:
        assert found == expected
