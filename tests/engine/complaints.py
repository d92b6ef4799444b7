"""Files that may be bad: what is said of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from numadoctor.engine.files import BadFile


@contextmanager
def suppress_and_keep() -> Iterator[list[str]]:
    """The complaint about a bad file, if there is one; no other error is let pass."""
    complaints: list[str] = []
    try:
        yield complaints
    except BadFile as error:
        complaints.append(str(error))
