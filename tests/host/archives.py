"""Captured machines that stand beside the repository, where they do, and what is known of them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from numadoctor.host import Host

HOSTS = Path(__file__).resolve().parents[3] / "shared" / "hosts"
EXPECTED: dict[str, Any] = (
    json.loads((HOSTS / "expected.json").read_text()) if HOSTS.is_dir() else {}
)
ARCHIVES: list[Any] = sorted(EXPECTED) or [
    pytest.param("", marks=pytest.mark.skip(reason=f"{HOSTS.parent.name}/hosts is not there"))
]

# Half of all files, and nothing reads them.
UNREAD = re.compile("/(cache|cpuidle)/")

Open = Callable[[str], Host]
"""Opens an archive by its name."""
