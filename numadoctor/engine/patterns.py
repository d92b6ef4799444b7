"""Regular expressions that people give for names of processes, and that any process can make slow.

Python's matching goes back and forth: ``(a+)+$`` takes twice as long for each further ``a``,
and what it meets is the command line of whoever runs on the machine. Both are bounded.
"""

import re
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from numadoctor.model import ParseError

LONGEST = 4096
"""Characters of a name that are looked at, as many bytes as /proc showed before Linux 4.2."""

SECONDS = 2.0
"""CPU time for all names together."""

_WHAT = "name pattern"


class _TooSlow(Exception):
    pass


class NamePattern:
    """A regular expression.

    :raises ParseError: it is none, or too large for Python's
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            with warnings.catch_warnings():
                # Python tells whoever wrote a program that ``[[a]`` may mean more one day.
                warnings.simplefilter("ignore")
                self._pattern = re.compile(text)
        except re.error as error:
            raise ParseError(_WHAT, text, str(error)) from None
        except (OverflowError, RecursionError, MemoryError):
            raise ParseError(_WHAT, text, "it is too large") from None

    def select(self, names: Mapping[int, Iterable[str]]) -> list[int]:
        """Whose names, or the first ``LONGEST`` characters of one of them, it is found in.

        The time is bounded in the main thread of a program, where the signal for that arrives.

        :raises ParseError: it takes longer than ``SECONDS``
        """
        search = self._pattern.search
        try:
            with _limited(SECONDS):
                return [
                    pid
                    for pid, texts in names.items()
                    if any(search(text[:LONGEST]) for text in texts)
                ]
        except _TooSlow:
            reason = (
                f"matching takes more than {SECONDS:g} s: it repeats what repeats, as (a+)+ does"
            )
            raise ParseError(_WHAT, self.text, reason) from None


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises _TooSlow after so much CPU time: the matching looks for signals on its way."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _TooSlow

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)
