"""Slurm's configuration: GPUs with their cores, and tasks that are bound."""

from collections.abc import Iterator
from itertools import combinations, islice
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.lint.documents import Document
from numadoctor.lint.lines import Setting
from numadoctor.lint.nodes import Word
from numadoctor.model import (
    Finding,
    Fix,
    ParseError,
    Severity,
    Undecided,
    fail,
    info,
    passed,
    warn,
)

from ._deployment import ids, in_file, seen, undecided

if TYPE_CHECKING:
    from numadoctor.host import Host

# More lists of cores than a cluster has kinds of nodes are compared no further.
_MOST = 256


@check(
    "D020",
    name="slurm-resources",
    needs=("kind slurm",),
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def slurm_resources(host: "Host | None", document: Document) -> Iterator[Finding]:
    """Slurm gives GPUs without knowing their CPUs, or binds nothing.

    Why it matters
        Slurm places a job's CPUs near its GPUs only if gres.conf tells which cores are near
        (Cores=, or AutoDetect=nvml or rsmi). Without task/affinity or task/cgroup among
        TaskPlugin the tasks are not bound to the CPUs they were given. Cores= counts cores by
        socket, as Slurm numbers them, not the kernel's CPUs.

    When it is harmless
        On nodes of one socket, or where jobs always take whole nodes and bind themselves.

    Fix
        In gres.conf

            AutoDetect=nvml

        and in slurm.conf

            TaskPlugin=task/affinity,task/cgroup

    Source
        gres.conf(5), Cores and AutoDetect; slurm.conf(5), TaskPlugin; Slurm, Support for
        Multi-core/Multi-thread Architectures
    """
    records = document.content
    found = [*_gres(host, document.file, records), *_task_plugin(document.file, records)]
    yield from found


def _gres(host: "Host | None", file: str, records: list[dict[str, Setting]]) -> Iterator[Finding]:
    gpus = [r for r in records if "name" in r and r["name"].value.text.lower() == "gpu"]
    detected = [r["autodetect"] for r in records if "autodetect" in r]
    on = [s for s in detected if s.value.text.lower() not in ("off", "")]
    # By the nodes of the cluster that the line is for: others may have other cores.
    cores: dict[tuple[str, frozenset[int]], Word] = {}
    wrong = 0
    for record in gpus:
        setting = record.get("cores") or record.get("cpus")
        if setting is None:
            if not on:
                wrong += 1
                yield _no_cores(file, record["name"])
            continue
        try:
            members = ids(setting.value, "cores")
        except ParseError as error:
            wrong += 1
            yield _bad_cores(file, setting, str(error), "slurmd does not start.")
            continue
        except Undecided as error:
            wrong += 1
            yield undecided(error, f"{file} {_name(record)}", setting.value.location)
            continue
        if members and host is not None and max(members) >= len(host.topology.online_cpus):
            wrong += 1
            cause = f"The machine has {len(host.topology.online_cpus)} CPUs online."
            yield _bad_cores(file, setting, f"core {max(members)} is not there", cause)
        if not members:
            wrong += 1
            cause = "Without ids Slurm knows of no core that is near."
            yield _bad_cores(file, setting, "no list of cores", cause)
        else:
            nodes = record["nodename"].value.text if "nodename" in record else ""
            cores.setdefault((nodes, frozenset(members)), setting.value)
    for (one, first), (other, second) in combinations(islice(cores.items(), _MOST), 2):
        if one[0] == other[0] and one[1] & other[1]:
            wrong += 1
            yield warn(
                f"Cores={first.shown} and Cores={second.shown} overlap, and are not the same",
                subject=f"{file} cores {second.shown}",
                cause="GPUs of one node have the same cores, GPUs of two have none in common.",
                evidence=seen(first, second),
                fixes=[
                    in_file(second, f"Cores={first.shown}", f"or other cores, line {second.line}")
                ],
                location=second.location,
            )
    if gpus and not wrong:
        known = on[0].value if on else next(iter(cores.values()))
        yield passed(
            "Slurm knows which cores are near which GPU",
            subject=file,
            evidence=seen(known),
            location=known.location,
        )


def _name(record: dict[str, Setting]) -> str:
    return record["file"].value.text if "file" in record else record["name"].value.text


def _no_cores(file: str, name: Setting) -> Finding:
    return warn(
        "GPUs without Cores= and without AutoDetect=: Slurm takes all cores for near",
        subject=f"{file} line of gpu",
        cause="A job's CPUs and its GPUs may be on different sockets.",
        evidence=seen(name.name, name.value),
        fixes=[
            Fix("slurm", "AutoDetect=nvml\n# or Cores= on each line", True, True, True),
        ],
        location=name.name.location,
    )


def _bad_cores(file: str, setting: Setting, message: str, cause: str) -> Finding:
    return fail(
        f"{setting.name.shown}={setting.value.shown}: {message}",
        subject=f"{file} cores {setting.value.shown}",
        cause=cause,
        evidence=seen(setting.value),
        fixes=[Fix("slurm", "AutoDetect=nvml\n# instead of Cores=", True, True, True)],
        location=setting.value.location,
    )


def _task_plugin(file: str, records: list[dict[str, Setting]]) -> Iterator[Finding]:
    plugins = [r["taskplugin"] for r in records if "taskplugin" in r]
    cluster = [r["clustername"] for r in records if "clustername" in r]
    if plugins:
        setting = plugins[-1]
        text = setting.value.text.lower()
        if setting.value.open:
            try:
                setting.value.settled()
            except Undecided as error:
                yield undecided(error, f"{file} TaskPlugin", setting.value.location)
        elif "affinity" in text or "cgroup" in text:
            yield passed(
                f"TaskPlugin={setting.value.shown} binds tasks",
                subject=f"{file} TaskPlugin",
                evidence=seen(setting.value),
                location=setting.value.location,
            )
        else:
            yield _unbound(file, setting)
    elif cluster:
        yield info(
            "no TaskPlugin: tasks are bound to CPUs if the default of this Slurm does",
            subject=f"{file} TaskPlugin",
            cause="task/affinity and task/cgroup bind; the default depends on the release.",
            evidence=seen(cluster[0].value),
            location=cluster[0].name.location,
        )


def _unbound(file: str, setting: Setting) -> Finding:
    return warn(
        f"TaskPlugin={setting.value.shown}: tasks are not bound to the CPUs they were given",
        subject=f"{file} TaskPlugin",
        cause="They run on all CPUs of the machine, and their memory comes from anywhere.",
        evidence=seen(setting.value),
        fixes=[Fix("slurm", "TaskPlugin=task/affinity,task/cgroup", True, True, True)],
        location=setting.value.location,
    )
