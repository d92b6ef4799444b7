"""Why a fact could not be had.

Every error names the path (or the fact) it was about, so that a finding drawn
from it can say what to look at. None of them is ever a verdict: a check that
meets one is *undecided*.
"""

import errno as _errno
import os


class Undecided(Exception):
    """A check cannot decide, because a fact is missing.

    Raised by the host for what cannot be read, and by checks for what they
    read but cannot judge. The runner turns it into a finding with status
    ``unknown``.

    :param path: the file or the fact, as the examined machine names it
    :param errno: the error number the kernel gave, or None when it gave none
    :param reason: what is wrong, for a person; derived from ``errno`` if empty
    :param hint: how to let numadoctor look, when that is known
    """

    default_reason = "cannot be decided"

    def __init__(
        self, path: str, errno: int | None = None, reason: str = "", hint: str = ""
    ) -> None:
        self.path = path
        self.errno = errno
        self.reason = reason or (os.strerror(errno) if errno else self.default_reason)
        self.hint = hint
        super().__init__(path, errno, self.reason, hint)

    def __str__(self) -> str:
        code = f" ({_errno.errorcode.get(self.errno, self.errno)})" if self.errno else ""
        text = f"cannot read {self.path}: {self.reason}{code}"
        return f"{text}: {self.hint}" if self.hint else text


class Denied(Undecided):
    """EACCES or EPERM: it is there, and we may not look."""

    default_reason = "permission denied"


class Missing(Undecided):
    """ENOENT, ENOTDIR and the like: it is not there.

    Often an answer of its own (a kernel without the feature): checks that know
    what absence means catch this one.
    """

    default_reason = "not present"


class Vanished(Undecided):
    """ESRCH, or ENOENT below a /proc/PID that was there before: the process ended."""

    default_reason = "the process ended while it was examined"


class OfKernel(Undecided):
    """A thread of the kernel, of which there is nothing to examine."""

    default_reason = "a thread of the kernel, which makes no system calls and has no memory"

    def __str__(self) -> str:
        return f"cannot examine {self.path}: {self.reason}"


class Unreadable(Undecided):
    """Any other error number (EIO, EINVAL, ELOOP, ...)."""

    default_reason = "unreadable"


class TooLarge(Undecided):
    """The file is larger than any genuine one of its kind."""

    default_reason = "larger than numadoctor is willing to read"


class Malformed(Undecided):
    """The file was read and does not hold what its format promises."""

    default_reason = "not in the expected format"

    def __str__(self) -> str:
        return f"cannot understand {self.path}: {self.reason}"


class ParseError(ValueError):
    """A parser met input it cannot give a meaning to.

    :param what: the kind of thing that was to be parsed ("node list")
    :param text: the faulty part of the input
    :param reason: what is wrong with it
    """

    def __init__(self, what: str, text: object, reason: str) -> None:
        shown = repr(text)
        if len(shown) > 60:
            shown = shown[:57] + "..."
        self.what, self.text, self.reason = what, text, reason
        super().__init__(f"bad {what} {shown}: {reason}")
