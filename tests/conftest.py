"""How hard generated tests try, and where trees of files go.

NUMADOCTOR_HYPOTHESIS is default, ci or thorough.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine must not fail a test: nothing here is about time.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("default", _COMMON, max_examples=200)
settings.register_profile("ci", _COMMON, max_examples=100, derandomize=True)
settings.register_profile("thorough", _COMMON, max_examples=10_000)
settings.load_profile(os.environ.get("NUMADOCTOR_HYPOTHESIS", "default"))


@pytest.fixture(scope="session")
def in_memory() -> Iterator[Path]:
    """A folder for trees of many small files: in memory where there is room; removed at the end.

    Making and removing them on a disk takes most of the time of the tests that do.
    """
    shm = "/dev/shm"
    room = os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 1 << 30
    with tempfile.TemporaryDirectory(
        prefix="numadoctor-test-", dir=shm if room else None
    ) as folder:
        yield Path(folder)


@pytest.fixture
def scratch(in_memory: Path) -> Iterator[Path]:
    """A folder of a test's own in ``in_memory``."""
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        yield Path(folder)
