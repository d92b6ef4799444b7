"""What a check is, and the decorator that declares one."""

import enum
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numadoctor.model import Finding, Severity

# A host and a target; for checks of files the host (or None) and a document.
CheckFunction = Callable[[Any, Any], Iterator[Finding]]

FAMILIES = {
    "T": "topology",
    "G": "GPUs, NICs, storage",
    "K": "kernel settings",
    "E": "envelope: container, cgroup, scheduler, limits, system calls",
    "P": "process placement",
    "D": "deployment files",
}

# The family of the built-in checks of files; it has no others.
FILE_FAMILY = "D"

# A site's or another package's checks may have a family of their own.
OTHER_FAMILY = "checks from elsewhere"

_ID = re.compile(r"[A-Z][0-9]{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Requires(enum.Enum):
    """What a machine must have for a check to apply; without it the runner skips the check."""

    NOTHING = "nothing"
    NUMA = "a kernel with NUMA"
    SEVERAL_NODES = "more than one NUMA node"


class Scope(enum.Enum):
    """What a check is about: the machine (runs once), or each process or document it is given.

    ``PROCESSES`` runs once for all processes that were named, so that memory they share is
    judged with all who share it; it is skipped where none was.
    """

    MACHINE = "machine"
    PROCESS = "process"
    PROCESSES = "processes"
    FILE = "file"


@dataclass(frozen=True)
class Check:
    """A declared check: a generator of findings and what is to be known about it.

    :ivar id: family letter and three digits; never reused
    :ivar name: a few words joined by hyphens, for people and waivers
    :ivar needs: the files and facts it looks at, ``*`` standing for any name;
        for checks of files the kinds of documents (``kind compose``)
    :ivar severity: how much harm it does when it fails
    :ivar origin: the module or file that declares it
    """

    id: str
    name: str
    function: CheckFunction
    needs: tuple[str, ...]
    requires: Requires
    scope: Scope
    severity: Severity
    origin: str

    @property
    def family(self) -> str:
        return self.id[0]

    def is_called(self, word: str) -> bool:
        """Whether ``word`` is its id or its name, in capitals or not."""
        return word.upper() == self.id or word.lower() == self.name

    def answers_to(self, word: str) -> bool:
        """Whether ``word`` is its id, its name or its family."""
        return word.upper() == self.family or self.is_called(word)

    @property
    def documentation(self) -> str:
        """The whole docstring, dedented: a summary line, then titled sections."""
        import inspect

        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.documentation.partition("\n")[0]

    @cached_property
    def sections(self) -> dict[str, str]:
        """Section title to text. A title is a line of its own whose text below is indented."""
        import inspect

        sections: dict[str, list[str]] = {}
        current: list[str] = []
        for line in self.documentation.splitlines()[1:]:
            if line and not line[0].isspace():
                current = sections.setdefault(line.strip().rstrip(":"), [""])
            else:
                current.append(line)
        return {title: inspect.cleandoc("\n".join(lines)) for title, lines in sections.items()}


def check(
    id: str,
    *,
    name: str,
    needs: tuple[str, ...],
    requires: Requires = Requires.NOTHING,
    scope: Scope = Scope.MACHINE,
    severity: Severity = Severity.MEDIUM,
) -> Callable[[CheckFunction], Check]:
    """Declare the decorated generator to be a check.

    :raises ValueError: the id, the name or the needs are not in the agreed form
    """
    if not _ID.fullmatch(id):
        raise ValueError(f"bad check id {id!r}: a family letter and three digits are expected")
    if not _NAME.fullmatch(name):
        raise ValueError(f"bad check name {name!r}: lower-case words joined by hyphens expected")

    # A lone string instead of a tuple of them would be a tuple of letters.
    if not needs or min(map(len, needs)) < 2:
        raise ValueError(f"bad needs {needs!r}: a tuple of paths or facts expected")

    def declare(function: CheckFunction) -> Check:
        return Check(id, name, function, needs, requires, scope, severity, function.__module__)

    return declare
