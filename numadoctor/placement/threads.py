"""The threads of a process: where each may run, where it ran last, and its own memory policy."""

from contextlib import suppress
from typing import TYPE_CHECKING

from numadoctor.host import parsers
from numadoctor.model import Malformed, Undecided
from numadoctor.model.placement import Policy, Thread
from numadoctor.placement.processes import optional
from numadoctor.placement.walk import first_policy, task_policy

if TYPE_CHECKING:
    from numadoctor.host import Host


def read_threads(host: "Host", pid: int | None) -> tuple[Thread, ...]:
    """The threads of a process by id; a thread that ends meanwhile is left out.

    On a live machine the policy of a thread is read from the first line of its
    numa_maps, for which one small mapping is walked.

    :param pid: None for the calling process
    :raises Denied, Missing, Vanished: the threads cannot be listed
    """
    folder = f"/proc/{'self' if pid is None else pid}/task"
    threads = []
    for tid in parsers.numbered(host.list(folder), ""):
        with suppress(Undecided):
            status = host.status(f"{folder}/{tid}")
            stat = optional(host.parse, f"{folder}/{tid}/stat", parsers.parse_stat)
            threads.append(
                Thread(
                    tid,
                    status.name or "",
                    status.cpus_allowed,
                    status.mems_allowed,
                    stat.last_cpu if stat else None,
                    optional(read_policy, host, f"{folder}/{tid}/numa_maps"),
                )
            )
    return tuple(threads)


def read_policy(host: "Host", path: str) -> Policy:
    """The policy of a task, from its numa_maps at ``path``; on a live machine from one line of it.

    :raises Denied, Missing, Vanished, Unreadable: as any file
    :raises Malformed: it holds no mapping, or a policy that is not known
    """
    policy = task_policy(path) if host.live else host.parse(path, first_policy)
    if policy is None:
        raise Malformed(path, None, "it has no mapping")
    if not policy.understood:
        raise Malformed(path, None, f"the policy {policy.text} is not known")
    return policy
