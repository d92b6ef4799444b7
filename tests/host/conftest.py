"""What tests of captured machines share."""

import tarfile
from pathlib import Path

import pytest

from numadoctor.host import FolderRoot, Host
from tests.host.archives import EXPECTED, HOSTS, UNREAD, Open


@pytest.fixture(scope="session")
def opened(in_memory: Path) -> Open:
    """Unpack an archive, once."""
    unpacked: dict[str, Host] = {}

    def open_archive(name: str) -> Host:
        if name not in unpacked:
            folder = in_memory / name
            with tarfile.open(HOSTS / name) as archive:
                members = [m for m in archive if not UNREAD.search(m.name)]
                # Links that lead out of the folder are part of what is tested.
                if hasattr(tarfile, "fully_trusted_filter"):
                    archive.extractall(folder, members, filter="fully_trusted")
                else:
                    archive.extractall(folder, members)
            unpacked[name] = Host(FolderRoot(str(folder / EXPECTED[name]["folder"])))
        return unpacked[name]

    return open_archive
