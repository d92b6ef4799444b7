"""The only door to the examined machine.

``Host`` reads through a root, remembers every answer (also the errors), and
offers what checks ask for again and again in parsed form. What was read can be
cited as evidence and, since nothing else reads the machine, recorded.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from numadoctor.host import parsers
from numadoctor.host.root import FACTS as FACTS_FOLDER
from numadoctor.host.root import Root, open_root
from numadoctor.model import Malformed, Missing, ParseError, Undecided, Vanished

if TYPE_CHECKING:
    from numadoctor.model import Evidence, Topology

T = TypeVar("T")

# One screen line or two: evidence is to be looked at, the file is there for the rest.
_EVIDENCE_LENGTH = 240


class Host:
    """A machine as seen through ``root``.

    Every method raises the errors of ``numadoctor.model`` (``Denied``,
    ``Missing``, ``Vanished``, ``Unreadable``, ``TooLarge``, ``Malformed``),
    each with the path, and gives the same answer when asked again.
    """

    def __init__(self, root: Root | None = None) -> None:
        self.root: Root = root or open_root(None)
        self._reads: dict[str, bytes | Undecided] = {}
        self._lists: dict[str, tuple[str, ...] | Undecided] = {}
        self._links: dict[str, str | Undecided] = {}
        self._parsed: dict[tuple[str, object], Any] = {}
        self._facts: dict[str, Any] = {}
        self._derived: dict[object, Any] = {}

    @property
    def live(self) -> bool:
        """Whether this is the machine numadoctor runs on."""
        return self.root.live

    @property
    def name(self) -> str:
        """What the machine calls itself, or the name of the captured folder."""
        try:
            return self.text("/proc/sys/kernel/hostname") or self.root.label or "this machine"
        except Undecided:
            return self.root.label or "this machine"

    def read(self, path: str) -> bytes:
        """The bytes of the file at ``path``.

        :raises TooLarge: it holds more than READ_LIMIT of ``numadoctor.host.root``
        """
        return _remembered(self._reads, path, lambda: self.root.read(path))

    def list(self, path: str) -> tuple[str, ...]:
        """The names in the directory at ``path``, sorted."""
        return _remembered(self._lists, path, lambda: self.root.list(path))

    def link(self, path: str) -> str:
        """Where the symbolic link at ``path`` points, as it is written."""
        return _remembered(self._links, path, lambda: self.root.link(path))

    def has(self, path: str) -> bool:
        """Whether a directory is at ``path``.

        :raises Denied: it may not be listed, so its absence cannot be told
        """
        try:
            self.list(path)
        except Missing:
            return False
        return True

    def parse(self, path: str, parser: Callable[[bytes], T]) -> T:
        """What ``parser`` makes of the file at ``path``.

        :raises Malformed: the parser refused it
        """
        key = (path, parser)
        if key not in self._parsed:
            data = self.read(path)
            try:
                self._parsed[key] = parser(data)
            except ParseError as error:
                raise Malformed(path, None, str(error)) from None
        result: T = self._parsed[key]
        return result

    def text(self, path: str) -> str:
        """The file as text: undecodable bytes escaped, NULs and outer blanks gone."""
        return self.parse(path, parsers.parse_text)

    def integer(self, path: str) -> int:
        """The one number in the file."""
        return self.parse(path, parsers.parse_integer)

    def ids(self, path: str) -> tuple[int, ...]:
        """The ids in a list file (``0-3,8``)."""
        return self.parse(path, parsers.parse_list)

    def choice(self, path: str) -> "parsers.Choice":
        """The selected word among those offered (``always [madvise] never``)."""
        return self.parse(path, parsers.parse_choice)

    def sysctl(self, name: str) -> int:
        """The value of a numeric sysctl, by its dotted name."""
        return self.integer(sysctl_path(name))

    def status(self, proc: str = "/proc/self") -> "parsers.ProcStatus":
        """The status file of the process whose directory is ``proc``.

        :raises Vanished: it ended, and its parent has not asked for its exit status
        """
        path = f"{proc}/status"
        status = self.parse(path, parsers.parse_status)
        # The first thread may end before the others: then the process lives on.
        if status.state in ("Z", "X") and (status.threads or 0) <= 1:
            raise Vanished(path)
        return status

    def environ(self, proc: str = "/proc/self") -> dict[str, str]:
        """The environment the process at ``proc`` was started with."""
        return self.parse(f"{proc}/environ", parsers.parse_environ)

    def optional(self, ask: Callable[[str], T], path: str) -> T | None:
        """``ask(path)``, or None where the file is missing (and only then)."""
        try:
            return ask(path)
        except Missing:
            return None

    def evidence(self, path: str, *containing: str) -> "Evidence":
        """What was read at ``path``, for a finding to cite.

        Only the lines that start with one of the words in ``containing``, if
        any are given. What could not be read is cited as its error.
        """
        from numadoctor.model import Evidence

        try:
            text = self.text(path)
        except Undecided as error:
            return Evidence(path, error.reason)
        if containing:
            lines = [line for line in text.splitlines() if line.lstrip().startswith(containing)]
            text = "\n".join(lines) or f"no line starts with {' or '.join(containing)}"
        if len(text) > _EVIDENCE_LENGTH:
            text = text[: _EVIDENCE_LENGTH - 3] + "..."
        return Evidence(path, text)

    def derive(self, key: object, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once for all who ask with the same key.

        For what is drawn from many reads and asked for by many checks.
        """
        if key not in self._derived:
            self._derived[key] = make()
        derived: T = self._derived[key]
        return derived

    def fact(self, name: str, pid: int | None = None) -> Any:
        """A fact that is no file (see ``numadoctor.host.facts``), as JSON data.

        :param pid: the process it is about, for one that is about a process
        :raises Missing: a captured folder does not hold it
        """
        key = name if pid is None else f"{name}.{pid}"
        return _remembered(self._facts, key, lambda: self._ask(name, pid))

    def state(self, name: str, value: Any) -> None:
        """Take ``value``, JSON data, for a fact that the user states and no machine tells."""
        self._facts[name] = value

    def _ask(self, name: str, pid: int | None) -> Any:
        if self.live:
            from numadoctor.host.facts import FACTS

            return FACTS[name]() if pid is None else FACTS[name](pid)
        import json

        name = name if pid is None else f"{name}.{pid}"
        path = f"{FACTS_FOLDER}/{name}.json"
        try:
            return json.loads(self.read(path))
        except Missing:
            raise Missing(
                path, None, "a captured folder does not hold it", "run numadoctor on the machine"
            ) from None
        except (ValueError, RecursionError) as error:
            raise Malformed(path, None, f"not JSON: {error}") from None

    @cached_property
    def topology(self) -> "Topology":
        """Nodes, CPUs, devices, and what the calling process may use."""
        from numadoctor.host.topology import read_topology

        return read_topology(self)

    @property
    def reads(self) -> Mapping[str, bytes | Undecided]:
        """Every file asked for so far, with its bytes or the error it gave."""
        return self._reads


def sysctl_path(name: str) -> str:
    """``vm.swappiness`` is /proc/sys/vm/swappiness."""
    return "/proc/sys/" + name.replace(".", "/")


def _remembered(memory: dict[str, Any], path: str, ask: Callable[[], T]) -> T:
    if path not in memory:
        try:
            memory[path] = ask()
        except Undecided as error:
            memory[path] = error
    answer = memory[path]
    if isinstance(answer, Undecided):
        # A stored exception would drag the traceback of its first raise along.
        raise answer.with_traceback(None)
    result: T = answer
    return result
