"""The line in which the kernel sums up why it killed a process for want of memory."""

from typing import NamedTuple

from numadoctor.host.parsers._text import decode, error, integer
from numadoctor.host.parsers.lists import parse_list
from numadoctor.model.errors import ParseError

_PREFIX = b"oom-kill:constraint="
_CONSTRAINT = b"CONSTRAINT_"


class OomKill(NamedTuple):
    """One killing.

    :ivar constraint: what narrowed the memory: none, cpuset, memory_policy, memcg
    :ivar nodes: the nodes of the policy or request, or None where it named none
    :ivar allowed: the nodes that the cpuset allowed, or None where it is not told
    :ivar task: the name of the killed process
    :ivar pid: its pid, or None
    :ivar cgroup: its memory control group
    """

    constraint: str
    nodes: tuple[int, ...] | None
    allowed: tuple[int, ...] | None
    task: str
    pid: int | None
    cgroup: str


def parse_oom_kill(line: bytes) -> OomKill:
    """A line of the kernel's log that begins with ``oom-kill:`` (since Linux 5.0).

    Source: dump_oom_victim() in mm/oom_kill.c, cpuset_print_current_mems_allowed().

    :raises ParseError: it is no such line
    """
    start = line.find(_PREFIX)
    if start < 0:
        raise error("oom-kill line", line, "it does not begin with oom-kill:constraint=")
    # cpuset and control group may hold commas; a task's name, too: it stands before ",pid=".
    text = line[start + len(_PREFIX) :]
    constraint, _, rest = text.partition(b",")
    constraint = constraint.removeprefix(_CONSTRAINT)
    if not constraint or not constraint.replace(b"_", b"").isalpha():
        raise error("oom-kill line", line, "it names no constraint")
    return OomKill(
        constraint=decode(constraint).lower(),
        nodes=_nodes(_between(rest, b"nodemask=", (b",cpuset=", b",mems_allowed="))),
        allowed=_nodes(_between(rest, b"mems_allowed=", (b",global_oom", b",oom_memcg="))),
        task=decode(_between(rest, b",task=", (b",pid=",)) or b""),
        pid=_number(_between(rest, b",pid=", (b",uid=",))),
        cgroup=decode(_between(rest, b",task_memcg=", (b",task=",)) or b""),
    )


def _between(text: bytes, begin: bytes, ends: tuple[bytes, ...]) -> bytes | None:
    """What stands between the last ``begin`` and the first of ``ends`` after it."""
    start = text.find(begin)
    if start < 0:
        return None
    start += len(begin)
    found = [place for end in ends if (place := text.find(end, start)) >= 0]
    return text[start : min(found)] if found else text[start:]


def _nodes(text: bytes | None) -> tuple[int, ...] | None:
    """A list of nodes; None for ``(null)`` and what is no list."""
    if not text:
        return None
    try:
        return parse_list(text)
    except ParseError:
        return None


def _number(text: bytes | None) -> int | None:
    try:
        return None if text is None else integer("pid", text.strip())
    except ParseError:
        return None
