import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import OomKill, format_list, parse_oom_kill
from numadoctor.model import ParseError

NODES = st.frozensets(st.integers(0, 300), min_size=1, max_size=8)
# What the kernel allows in a task's name, less what ends it in this line.
NAMES = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=15).filter(
    lambda name: ",pid=" not in name
)


def line(
    constraint: str = "CPUSET",
    nodes: str = "(null)",
    allowed: str = "0",
    task: str = "python3",
    memcg: str = "global_oom",
) -> bytes:
    return (
        f"oom-kill:constraint=CONSTRAINT_{constraint},nodemask={nodes},cpuset=docker,"
        f"mems_allowed={allowed},{memcg},task_memcg=/docker/1,task={task},pid=77,uid=0"
    ).encode()


def test_a_cpuset_that_was_full() -> None:
    assert parse_oom_kill(line()) == OomKill("cpuset", None, (0,), "python3", 77, "/docker/1")


def test_a_limit_of_a_control_group_names_it_in_between() -> None:
    found = parse_oom_kill(line("MEMCG", memcg="oom_memcg=/docker/1"))
    assert (found.constraint, found.allowed, found.cgroup) == ("memcg", (0,), "/docker/1")


def test_the_prefix_of_a_log_does_not_matter() -> None:
    assert parse_oom_kill(b"[12345.678] " + line()) == parse_oom_kill(line())


@given(nodes=NODES, allowed=NODES, task=NAMES)
def test_what_was_written_is_read(
    nodes: frozenset[int], allowed: frozenset[int], task: str
) -> None:
    text = line("MEMORY_POLICY", format_list(nodes), format_list(allowed), task)
    found = parse_oom_kill(text)
    assert found.constraint == "memory_policy"
    assert (found.nodes, found.allowed) == (tuple(sorted(nodes)), tuple(sorted(allowed)))
    assert (found.task, found.pid) == (task, 77)


@pytest.mark.parametrize(
    "text",
    [b"", b"Out of memory: Killed process 77", b"oom-kill:constraint=", b"oom-kill:constraint=1"],
)
def test_other_lines_are_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="bad oom-kill line"):
        parse_oom_kill(text)


def test_what_is_cut_is_unknown() -> None:
    found = parse_oom_kill(b"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(nu")
    assert found == OomKill("none", None, None, "", None, "")
