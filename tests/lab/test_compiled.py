"""How the lab compiles a kernel, shown with a source that is compiled in no time."""

import shutil
from pathlib import Path

import pytest

from tests.lab import compiled, debian
from tests.lab.machines import BIG_ENDIAN, MACHINES

# What is to be booted is what make makes of the configuration.
MAKEFILE = """allnoconfig:
	grep -v UNKNOWN $(KCONFIG_ALLCONFIG) > .config
bzImage:
	mkdir -p arch/$(ARCH)/boot
	{ echo $(CROSS_COMPILE); cat .config; } > arch/$(ARCH)/boot/bzImage
"""


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says what a kernel for s390x has."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")

    def source(package: str, into: Path) -> Path:
        (into / package).mkdir(parents=True)
        (into / package / "Makefile").write_text(MAKEFILE)
        return into / package

    monkeypatch.setenv("NUMADOCTOR_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_HERE", tmp_path)
    monkeypatch.setattr(compiled, "_source", source)
    monkeypatch.setattr(debian, "require", lambda part: None)
    (tmp_path / "kernels").mkdir()
    return tmp_path / "kernels" / "s390x.config"


def test_kernel_is_kept_without_its_source(wanted: Path) -> None:
    wanted.write_text("CONFIG_NUMA=y\n")
    image = compiled.kernel("s390x", "linux-source-6.1")
    assert image.read_text() == "s390x-linux-gnu-\nCONFIG_NUMA=y\n"
    assert list(image.parent.iterdir()) == [image]
    assert compiled.kernel("s390x", "linux-source-6.1") == image
    wanted.write_text("CONFIG_NUMA=y\nCONFIG_SMP=y\n")
    assert compiled.kernel("s390x", "linux-source-6.1") != image


def test_kernel_without_what_was_asked_for_is_none(wanted: Path) -> None:
    wanted.write_text("CONFIG_NUMA=y\nCONFIG_UNKNOWN=y\n")
    with pytest.raises(debian.Unavailable, match=r"for s390x drops CONFIG_UNKNOWN=y$"):
        compiled.kernel("s390x", "linux-source-6.1")


def test_what_make_says_is_told(wanted: Path) -> None:
    wanted.write_text("CONFIG_UNKNOWN=y\n")  # leaves grep nothing, which makes make fail
    with pytest.raises(RuntimeError, match=r"(?s)allnoconfig: .*Error 1"):
        compiled.kernel("s390x", "linux-source-6.1")


def test_every_kernel_that_is_compiled_has_nodes() -> None:
    kernels = [one.platform.kernels[one.kernel] for one in (*MACHINES.values(), BIG_ENDIAN)]
    found = {architecture for architecture, name in kernels if name.startswith("linux-source-")}
    assert found == {"ppc64", "s390x"}
    for architecture in found:
        wanted = (compiled._HERE / "kernels" / f"{architecture}.config").read_text()
        assert "CONFIG_NUMA=y" in wanted.splitlines()
