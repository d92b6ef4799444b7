"""The cache folder: what the lab downloads and builds, kept under a key of its inputs."""

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_WEEK = 7 * 24 * 3600


def folder() -> Path:
    """``$NUMADOCTOR_LAB_CACHE``, or ``numadoctor-lab`` in the user's cache; made if absent."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numadoctor-lab"
    path = Path(os.environ.get("NUMADOCTOR_LAB_CACHE") or default)
    path.mkdir(parents=True, exist_ok=True)
    return path


def entry(kind: str, inputs: Any, build: Callable[[Path], None]) -> Path:
    """The folder that ``build`` fills for these inputs, built at most once.

    A build that fails leaves nothing. Entries of the same kind that nobody
    used for a week are removed when another one is built.

    :param kind: names the entry: ``root-arm64``
    :param inputs: whatever the content depends on, as JSON data
    :param build: is given an empty folder to fill
    """
    text = json.dumps(inputs, sort_keys=True)
    path = folder() / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    with lock(kind):
        if not path.exists():
            _remove_unused(kind)
            draft = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=folder()))
            try:
                # 0755, which mkdtemp does not give: a container's user must be able to enter.
                draft.chmod(0o755)
                build(draft)
                draft.rename(path)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        os.utime(path)
    return path


@functools.cache
def scratch() -> Path:
    """A folder for this process, removed when it ends, or by the next one when it was killed."""
    with lock("session"):
        for old in folder().glob("session-*"):
            with contextlib.suppress(OSError), (old / "lock").open("w") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
        path = Path(tempfile.mkdtemp(prefix="session-", dir=folder()))
        path.chmod(0o755)  # a container's user must be able to enter
        own = (path / "lock").open("w")
        fcntl.flock(own, fcntl.LOCK_EX)

    def remove() -> None:
        own.close()
        shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return path


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Only one process at a time, whichever checkout it runs from."""
    with (folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_unused(kind: str) -> None:
    for old in folder().glob(f"{kind}-????????????????"):
        if time.time() - old.stat().st_mtime > _WEEK:
            shutil.rmtree(old, ignore_errors=True)
    for draft in folder().glob(f".{kind}-*"):  # of a build that was killed: we hold the lock
        shutil.rmtree(draft, ignore_errors=True)


def main() -> None:
    """Remove it all, for ``make lab-clean``."""
    shutil.rmtree(folder())


if __name__ == "__main__":
    main()
