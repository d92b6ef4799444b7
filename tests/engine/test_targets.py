import errno

from numadoctor.engine.targets import find_targets
from numadoctor.host import Host
from numadoctor.model import Denied, Target
from tests.memory import MemoryRoot


def test_each_pid_is_a_target_or_a_line() -> None:
    host = Host(
        MemoryRoot(
            {
                "/proc/7/status": "Name:\tvllm\n",
                "/proc/8/status": "Name:\t\n",
                "/proc/9/status": Denied("/proc/9/status", errno.EACCES),
            }
        )
    )
    targets, lines = find_targets(host, [7, 8, 9, 10, 7])
    assert targets == [Target(7, "vllm"), Target(8, "8")]
    assert lines == [
        "pid 9: cannot read /proc/9/status: Permission denied (EACCES)",
        "pid 10: no such process",
    ]


def test_no_pid_is_no_target() -> None:
    assert find_targets(Host(MemoryRoot()), []) == ([], [])
