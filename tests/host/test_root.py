import ctypes
import errno
import itertools
import json
import os
import platform
import socket
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import FolderRoot, LiveRoot, Root, open_root, sample_names
from numadoctor.host.root import ERRORS, LINKS, READ_LIMIT, error_from
from numadoctor.model import (
    Denied,
    Malformed,
    Missing,
    TooLarge,
    Undecided,
    Unreadable,
    Vanished,
)
from tests.kernel.child import in_child

NOBODY = 65534


def lay_out(folder: Path, **files: str | bytes) -> Path:
    """``a__b="x"`` makes the file a/b; a name that ends in ``__`` makes a folder."""
    for name, content in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def stored(folder: Path, path: str, data: object) -> None:
    """Write one of the JSON files that a captured folder keeps for itself."""
    place = folder / path[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(data))


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


_counter = itertools.count()


def fresh(base: Path) -> Path:
    """A new folder for one generated example."""
    place = base / f"tree{next(_counter)}"
    place.mkdir()
    return place


def answer(ask: Callable[[], Any]) -> Any:
    """What ``ask`` returns, or the kind of error it raises."""
    try:
        return ask()
    except Undecided as error:
        return type(error)


def as_other_user(function: Callable[[], Any]) -> Any:
    """``function`` in a child that root's rights do not help."""

    def without_rights() -> Any:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return function()

    return in_child(without_rights)


# Resolution: compared with a model that walks objects instead of strings, and
# with the kernel's own openat2(2).


@dataclass
class Folder:
    """A directory of the model; ``up`` of the top one is itself, as chroot(2) makes it."""

    entries: "dict[str, Folder | str | bytes]" = field(default_factory=dict)
    up: "Folder | None" = None


class Failed(Exception):
    """The lookup ended with this error number."""


def look_up(top: Folder, start: Folder, path: str, budget: list[int]) -> Folder | bytes:
    """What ``path`` names, by recursion: a link is the lookup of its text from where it stands."""
    here: Folder | bytes = top if path.startswith("/") else start
    for part in path.split("/"):
        if not isinstance(here, Folder):
            raise Failed(errno.ENOTDIR)
        if part == "..":
            here = here.up or here
        elif part not in ("", "."):
            if part not in here.entries:
                raise Failed(errno.ENOENT)
            entry = here.entries[part]
            if isinstance(entry, str):
                budget[0] -= 1
                if budget[0] < 0:
                    raise Failed(errno.ELOOP)
                here = look_up(top, here, entry, budget)
            else:
                here = entry
    return here


def model_answer(top: Folder, path: str) -> object:
    try:
        found = look_up(top, top, path, [40])
    except Failed as error:
        return type(error_from(path, error.args[0]))
    return sorted(found.entries) if isinstance(found, Folder) else found


def write_model(folder: Folder, place: Path) -> None:
    place.mkdir(exist_ok=True)
    for name, entry in folder.entries.items():
        if isinstance(entry, Folder):
            write_model(entry, place / name)
        elif isinstance(entry, str):
            (place / name).symlink_to(entry)
        else:
            (place / name).write_bytes(entry)


def root_answer(root: Root, path: str) -> object:
    """The content or the names at ``path``, whichever it has, or the error of reading it."""
    content = answer(lambda: root.read(path))
    if content is Unreadable:
        # A folder is no regular file; a loop cannot be listed either.
        names = answer(lambda: list(root.list(path)))
        return content if names is Missing else names
    return content


NAMES = st.sampled_from("abc")
STEPS = st.lists(st.sampled_from(["a", "b", "c", "..", "..", ".", ""]), min_size=1, max_size=7)
PATHS = st.builds(
    lambda slash, steps: (slash + "/".join(steps)) or ".", st.sampled_from(["", "/"]), STEPS
)
ENTRIES = st.recursive(
    PATHS | st.binary(max_size=3),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


def folder_of(entries: dict[str, Any], up: Folder | None = None) -> Folder:
    made = Folder(up=up)
    for name, entry in entries.items():
        made.entries[name] = folder_of(entry, made) if isinstance(entry, dict) else entry
    return made


class OpenHow(ctypes.Structure):
    """struct open_how of linux/openat2.h."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


OPENAT2 = 437  # the same number on every architecture
RESOLVE_IN_ROOT = 0x10


def kernel_answer(folder: Path, path: str) -> object:
    """What the kernel says when it resolves ``path`` with ``folder`` as its root."""
    libc = ctypes.CDLL(None, use_errno=True)
    top = os.open(folder, os.O_PATH)
    how = OpenHow(os.O_RDONLY | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT)
    descriptor = libc.syscall(OPENAT2, top, path.encode(), ctypes.byref(how), ctypes.sizeof(how))
    number = ctypes.get_errno()
    os.close(top)
    if descriptor < 0:
        return OSError(number, os.strerror(number))
    try:
        return sorted(os.listdir(descriptor))
    except NotADirectoryError:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


@pytest.fixture(scope="module")
def trees(in_memory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=in_memory))


@pytest.fixture(scope="module")
def openat2(trees: Path) -> None:
    """For tests that compare with openat2(2): skipped where the kernel or a filter has it not."""
    found = kernel_answer(trees, "/")
    if isinstance(found, OSError):
        pytest.skip(f"openat2 answers {found} here")


@given(entries=st.dictionaries(NAMES, ENTRIES, min_size=1, max_size=3), path=PATHS)
def test_links_lead_where_a_model_says(trees: Path, entries: dict[str, Any], path: str) -> None:
    top = folder_of(entries)
    place = fresh(trees)
    write_model(top, place)
    assert root_answer(FolderRoot(str(place)), f"/{path}") == model_answer(top, f"/{path}")


@given(entries=st.dictionaries(NAMES, ENTRIES, min_size=1, max_size=3), path=PATHS)
def test_links_lead_where_the_kernel_says(
    openat2: None, trees: Path, entries: dict[str, Any], path: str
) -> None:
    place = fresh(trees)
    write_model(folder_of(entries), place)
    expected = kernel_answer(place, f"/{path}")
    if isinstance(expected, OSError):
        expected = type(error_from(path, expected.args[0]))
    assert root_answer(FolderRoot(str(place)), f"/{path}") == expected


@given(entries=st.dictionaries(NAMES, ENTRIES, min_size=1, max_size=3), path=PATHS)
def test_stored_links_are_as_good_as_real_ones(
    trees: Path, entries: dict[str, Any], path: str
) -> None:
    real, kept = fresh(trees), fresh(trees)
    top = folder_of(entries)
    write_model(top, real)
    write_model(top, kept)
    links = [place for place in kept.rglob("*") if place.is_symlink()]
    stored(kept, LINKS, {f"/{p.relative_to(kept)}": os.readlink(p) for p in links})
    for place in links:
        place.unlink()
    expected, found = (
        root_answer(FolderRoot(str(real)), f"/{path}"),
        root_answer(FolderRoot(str(kept)), f"/{path}"),
    )
    if isinstance(found, list):
        found = [name for name in found if name != ".numadoctor"]
    assert found == expected


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "../../../../../../../../../../etc/passwd",
        "/../../etc/passwd",
        "inner/../../../../etc/passwd",
        "to-etc/passwd",
        "up/up/up/etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/../../../etc/passwd",
        "//etc//passwd",
    ],
)
def test_no_link_leads_out(tmp_path: Path, target: str) -> None:
    assert Path("/etc/passwd").exists()
    outside = tmp_path / "secret"
    outside.write_text("secret")
    folder = lay_out(tmp_path / "root", inner__file="x")
    (folder / "to-etc").symlink_to("/etc")
    (folder / "up").symlink_to("..")
    (folder / "out").symlink_to(target)
    (folder / "beside").symlink_to("../secret")
    (folder / "absolute").symlink_to(outside)
    root = FolderRoot(str(folder))
    for path in ("/out", "/beside", "/absolute", "/../secret", "/inner/../../secret", "/up/secret"):
        assert answer(partial(root.read, path)) is Missing, path
    assert answer(lambda: root.list("/to-etc")) is Missing
    assert root.list("/up") == root.list("/") == root.list("/../..")
    assert root.link("/out") == target


def test_absolute_link_stays_inside(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, etc__passwd="ours", sys__class__x="0")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "block").symlink_to("/sys/class")
    root = FolderRoot(str(folder))
    assert root.read("/link") == b"ours"
    assert root.list("/block") == ("x",)


def test_same_answers_as_a_real_chroot(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, a__b__file="1", etc__passwd="ours")
    links = {"l1": "/a/b", "a/l2": "../../../etc", "a/b/l3": "/l1/../l2/passwd", "loop": "loop"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    paths = [f"/{name}" for name in links] + ["/l1/file", "/l1/..", "/a/l2/passwd", "/a/b/file/.."]

    def in_chroot() -> list[Any]:
        try:
            os.chroot(folder)
        except PermissionError:
            return []
        os.chdir("/")
        return [_plain(root_answer(LiveRoot(), path)) for path in paths]

    expected = in_child(in_chroot)
    if not expected:
        pytest.skip("chroot(2) is not allowed here")
    root = FolderRoot(str(folder))
    assert [_plain(root_answer(root, path)) for path in paths] == expected
    assert "ours" in expected


def _plain(found: object) -> object:
    if isinstance(found, bytes):
        return found.decode()
    return found.__name__ if isinstance(found, type) else found


def test_forty_links_are_followed_and_no_more(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, file="x")
    for n in range(41):
        (folder / f"l{n}").symlink_to(f"l{n - 1}" if n else "file")
    root = FolderRoot(str(folder))
    assert root.read("/l39") == b"x"
    with pytest.raises(Unreadable, match=r"/l40: .*ELOOP") as caught:
        root.read("/l40")
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("links", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "a/a"}])
def test_a_loop_is_told(tmp_path: Path, links: dict[str, str]) -> None:
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    root = FolderRoot(str(tmp_path))
    for ask in (root.read, root.list):
        with pytest.raises(Unreadable) as caught:
            ask("/a/x")
        assert caught.value.errno == errno.ELOOP


# What is no regular file.


@pytest.fixture
def odd_files(tmp_path: Path) -> Iterator[Path]:
    folder = lay_out(tmp_path / "odd", file="x")
    os.mkfifo(folder / "fifo")
    here = os.open(folder, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as endpoint:
        # By way of /proc: a socket's address holds 108 bytes, a temporary path more.
        endpoint.bind(f"/proc/self/fd/{here}/socket")
        yield folder
    os.close(here)


@pytest.mark.parametrize("name", ["fifo", "socket", "folder"])
def test_only_regular_files_are_read(odd_files: Path, name: str) -> None:
    (odd_files / "folder").mkdir()
    for root, path in (
        (FolderRoot(str(odd_files)), f"/{name}"),
        (LiveRoot(), f"{odd_files}/{name}"),
    ):
        with pytest.raises(Unreadable, match="not a regular file"):
            root.read(path)


def test_a_device_is_not_even_opened(tmp_path: Path) -> None:
    # Major 240 is for local use: nothing drives it, so opening it fails with ENXIO.
    try:
        os.mknod(tmp_path / "device", 0o20666, os.makedev(240, 0))
    except PermissionError:
        pytest.skip("mknod(2) is not allowed here")
    with pytest.raises(OSError, match="No such device"):
        os.open(tmp_path / "device", os.O_RDONLY)
    with pytest.raises(Unreadable, match="not a regular file"):
        FolderRoot(str(tmp_path)).read("/device")


def test_a_huge_file_is_refused_without_being_read(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 30)
    root = FolderRoot(str(tmp_path))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"/huge: larger than 64 MiB"):
            root.read("/huge")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_file_that_tells_no_size_is_read_up_to_the_limit() -> None:
    assert os.stat("/proc/kallsyms").st_size == 0
    whole = LiveRoot().read("/proc/kallsyms")
    assert len(whole) > 1 << 17
    assert LiveRoot().read("/proc/kallsyms", len(whole)) == whole
    with pytest.raises(TooLarge):
        LiveRoot().read("/proc/kallsyms", len(whole) - 1)


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_a_file_up_to_the_limit_is_read_whole(tmp_path: Path, size: int) -> None:
    lay_out(tmp_path, file=b"x" * size)
    assert FolderRoot(str(tmp_path)).read("/file", 100) == b"x" * size


def test_one_byte_more_than_the_limit_is_too_large(tmp_path: Path) -> None:
    lay_out(tmp_path, file=b"x" * 101)
    with pytest.raises(TooLarge):
        FolderRoot(str(tmp_path)).read("/file", 100)


def test_the_default_limit() -> None:
    assert READ_LIMIT == 64 << 20


# What may not be read, is not there, or was not readable when the tree was taken.


def test_what_may_not_be_read_is_denied(public: Path) -> None:
    folder = lay_out(public / "root", file="x", closed__inner="x")
    (folder / "file").chmod(0)
    (folder / "closed").chmod(0)

    def look() -> list[str]:
        root = FolderRoot(str(folder))
        asked = [
            lambda: root.read("/file"),
            lambda: root.read("/closed/inner"),
            lambda: root.list("/closed"),
            lambda: root.link("/closed/inner"),
            lambda: LiveRoot().read(f"{folder}/file"),
            lambda: LiveRoot().list(f"{folder}/closed"),
        ]
        return [answer(ask).__name__ for ask in asked]

    assert as_other_user(look) == ["Denied"] * 6
    (folder / "closed").chmod(0o700)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, Denied),
        (errno.EPERM, Denied),
        (errno.ESRCH, Vanished),
        (errno.ENOENT, Missing),
        (errno.ENOTDIR, Missing),
        (errno.ENODEV, Missing),
        (errno.EIO, Unreadable),
        (errno.EINVAL, Unreadable),
        (errno.ELOOP, Unreadable),
    ],
)
def test_each_errno_has_its_error(tmp_path: Path, number: int, kind: type[Undecided]) -> None:
    lay_out(tmp_path, file="x")
    stored(tmp_path, ERRORS, {"/file": number})
    root = FolderRoot(str(tmp_path))
    for ask in (root.read, root.list, root.link):
        with pytest.raises(kind) as caught:
            ask("/file")
        assert type(caught.value) is kind
        assert (caught.value.path, caught.value.errno) == ("/file", number)
        assert errno.errorcode[number] in str(caught.value)


def test_what_a_closed_folder_hid_is_not_missing(tmp_path: Path) -> None:
    lay_out(tmp_path, proc__1__status="x")
    stored(tmp_path, ERRORS, {"/proc/1": errno.EACCES, "/gone": errno.ENOENT})
    root = FolderRoot(str(tmp_path))
    assert root.read("/proc/1/status") == b"x"
    for ask in (root.read, root.list, root.link):
        with pytest.raises(Denied, match="/proc/1/fd/3"):
            ask("/proc/1/fd/3")
        with pytest.raises(Missing, match="/gone/x"):
            ask("/gone/x")
        with pytest.raises(Missing, match="/proc/2/x"):
            ask("/proc/2/x")


@pytest.mark.parametrize("path", ["/absent", "/file/below", "/absent/../file", "/file/..", "/a\0b"])
def test_missing(tmp_path: Path, path: str) -> None:
    lay_out(tmp_path, file="x")
    root = FolderRoot(str(tmp_path))
    for ask in (root.read, root.list):
        with pytest.raises(Missing) as caught:
            ask(path)
        assert caught.value.path == path
    for live_ask in (LiveRoot().read, LiveRoot().list, LiveRoot().link):
        with pytest.raises(Missing):
            live_ask(f"{tmp_path}{path}")


def test_a_process_that_ended_has_vanished() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    os.waitpid(pid, 0)
    try:
        # An open file of a dead process gives ESRCH.
        with pytest.raises(ProcessLookupError):
            os.read(descriptor, 10)
        with pytest.raises(Vanished):
            raise error_from(f"/proc/{pid}/stat", errno.ESRCH)
        with pytest.raises(Missing):
            LiveRoot().read(f"/proc/{pid}/stat")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("path", [ERRORS, LINKS])
@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "{",
        '{"/x": true}',
        '{"/x": null}',
        '{"/x": {}}',
        "\xff",
        "[" * 100_000,
        '{"/x": 1.5}',
    ],
)
def test_a_broken_file_of_our_own_is_told(tmp_path: Path, path: str, content: str) -> None:
    lay_out(tmp_path, **{path[1:].replace("/", "__"): content.encode("latin-1")})
    with pytest.raises(Malformed) as caught:
        FolderRoot(str(tmp_path))
    assert caught.value.path == path


@pytest.mark.parametrize("number", [0, -1, 4096, 10**30])
def test_a_number_that_is_no_errno_is_refused(tmp_path: Path, number: int) -> None:
    stored(tmp_path, ERRORS, {"/x": number})
    with pytest.raises(Malformed, match="no errno"):
        FolderRoot(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "x"),
        ("/", "x"),
        ("x", "y"),
        ("/a/../b", "x"),
        ("/a/./b", "x"),
        ("/a//b", "x"),
        ("/a", ""),
    ],
)
def test_a_stored_link_that_cannot_be_one_is_refused(
    tmp_path: Path, path: str, target: str
) -> None:
    stored(tmp_path, LINKS, {path: target})
    with pytest.raises(Malformed, match="cannot be a link"):
        FolderRoot(str(tmp_path))


def test_our_own_files_may_not_be_hidden(public: Path) -> None:
    folder = lay_out(public / "root", file="x")
    stored(folder, ERRORS, {})
    assert as_other_user(lambda: FolderRoot(str(folder)).label) == "root"
    (folder / ERRORS[1:]).chmod(0)
    assert as_other_user(lambda: answer(lambda: FolderRoot(str(folder))).__name__) == "Denied"


def test_our_own_files_cannot_lead_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text('{"/file": 13}')
    folder = lay_out(tmp_path / "root", file="x")
    (folder / ".numadoctor").mkdir()
    (folder / ERRORS[1:]).symlink_to(outside)
    assert FolderRoot(str(folder)).read("/file") == b"x"


# Names and links.


def test_names_are_sorted_and_undecodable_ones_come_back(tmp_path: Path) -> None:
    hostile = b"\xff\x1b[31m\n"
    (tmp_path / os.fsdecode(hostile)).write_bytes(b"x")
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    root = FolderRoot(str(tmp_path))
    assert root.list("/") == tuple(sorted(("a", "b", os.fsdecode(hostile))))
    assert root.read("/" + os.fsdecode(hostile)) == b"x"


def test_a_link_is_given_as_it_is_written(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, a__file="x")
    (folder / "a" / "link").symlink_to("../../../outside/./x")
    (folder / "b").symlink_to("a")
    root = FolderRoot(str(folder))
    assert root.link("/b/link") == "../../../outside/./x"
    with pytest.raises(Unreadable):
        root.link("/a/file")


def test_stored_links_fill_folders_that_hold_nothing_else(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, sys__devices__x__numa_node="1")
    stored(folder, LINKS, {"/sys/bus/pci/devices/0000:c1:00.0": "../../../devices/x"})
    root = FolderRoot(str(folder))
    assert root.list("/sys") == ("bus", "devices")
    assert root.list("/sys/bus/pci/devices") == ("0000:c1:00.0",)
    assert root.link("/sys/bus/pci/devices/0000:c1:00.0") == "../../../devices/x"
    assert root.read("/sys/bus/pci/devices/0000:c1:00.0/numa_node") == b"1"
    with pytest.raises(Missing):
        root.list("/sys/bus/usb")


# The root itself.


def test_roots_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name, kind in (
        ("absent", Missing),
        ("file", Missing),
        ("file/below", Missing),
        ("loop", Unreadable),
    ):
        with pytest.raises(kind) as caught:
            open_root(str(tmp_path / name))
        assert caught.value.path == str(tmp_path / name)
    with pytest.raises(Unreadable, match="empty"):
        open_root(str(tmp_path / "empty"))
    with pytest.raises(Missing, match="names no folder"):
        open_root("")


def test_a_root_that_may_not_be_listed_is_denied(public: Path) -> None:
    closed = lay_out(public / "closed", file="x")
    closed.chmod(0)
    assert as_other_user(lambda: answer(lambda: open_root(str(closed))).__name__) == "Denied"
    closed.chmod(0o700)


def test_a_root_may_be_reached_through_links(tmp_path: Path) -> None:
    lay_out(tmp_path / "real", file="x")
    (tmp_path / "link").symlink_to("real")
    root = open_root(str(tmp_path / "link"))
    assert root.read("/file") == b"x"
    assert root.label == "link"
    assert not root.live


def test_no_sysroot_is_the_live_machine() -> None:
    for where in (None, "/"):
        root = open_root(where)
        assert root.live
        assert root.read("/proc/sys/kernel/ostype") == b"Linux\n"
    assert f"{platform.release()}\n".encode() == open_root(None).read("/proc/sys/kernel/osrelease")


@pytest.mark.parametrize(
    "name", ["nope", "", "..", "../fixtures/two-socket", "/etc", "two-socket/"]
)
def test_an_unknown_sample_lists_those_there_are(name: str) -> None:
    with pytest.raises(Missing) as caught:
        open_root(f"sample:{name}")
    assert all(known in caught.value.reason for known in sample_names())
    assert caught.value.path == f"sample:{name}"


@pytest.mark.parametrize("name", sample_names())
def test_every_sample_opens(name: str) -> None:
    root = open_root(f"sample:{name}")
    assert root.label == name
    assert "sys" in root.list("/")
