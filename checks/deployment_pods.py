"""Whether pods are aligned with the machine."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.lint.documents import Document
from numadoctor.lint.kubernetes import Pod
from numadoctor.lint.nodes import Node
from numadoctor.lint.workloads import Workload
from numadoctor.model import (
    Finding,
    Severity,
    Undecided,
    info,
    passed,
    warn,
)

from ._deployment import edit, quantity, seen, undecided

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "D010",
    name="pod-alignment",
    needs=("kind kubernetes",),
    scope=Scope.FILE,
    severity=Severity.MEDIUM,
)
def pod_alignment(host: "Host | None", document: Document) -> Iterator[Finding]:
    """A pod with GPUs that the kubelet's static managers leave unaligned.

    Why it matters
        The static CPU Manager and the Static Memory Manager act on pods of class Guaranteed
        alone: each container's requests of CPU and memory equal its limits; and whole CPUs
        are given to containers whose figure is an integer. Any other pod shares the CPUs of
        the whole node, on both sockets, and its memory comes from anywhere.

    When it is harmless
        On nodes whose kubelet has no static managers (the default), nothing is aligned for
        any pod: then this is told and counts for nothing. `--static`, or a kubelet
        configuration that is linted with the pods, says that they have.

    Fix
        Requests equal to limits, for every container of the pod, with a whole number of CPUs:

            resources: {limits: {cpu: "16", memory: 128Gi}}

    Source
        Kubernetes, Pod Quality of Service Classes; Control CPU Management Policies on the
        Node; Utilizing the NUMA-aware Memory Manager
    """
    static = document.files.static
    for pod in document.pods:
        prefix = f"{pod.name} container "
        containers = [w for w in document.workloads if w.name.startswith(prefix)]
        if any(w.gpus or any(n.startswith("hugepages-") for n in w.limits) for w in containers):
            try:
                yield _judge_pod(pod, containers, static)
            except Undecided as error:
                yield undecided(error, pod.name, pod.spec.location)


def _judge_pod(pod: Pod, containers: list[Workload], static: bool) -> Finding:
    told = warn if static else info
    for container in containers:
        for resource in ("cpu", "memory"):
            limit, request = container.limits.get(resource), container.requests.get(resource)
            if limit is None or request is None:
                return _unaligned(told, container, container.at, f"no {resource} limit", resource)
            if quantity(limit) != quantity(request):
                text = f"{resource}: {request.shown} requested, {limit.shown} the limit"
                return _unaligned(told, container, request, text, resource)
    for container in containers:
        cpus = container.limits["cpu"]
        if container.gpus and quantity(cpus) % 1:
            return _unaligned(told, container, cpus, f"cpu: {cpus.shown} is no whole number", "cpu")
    return passed(
        "Guaranteed, with whole CPUs: the static managers align it",
        subject=pod.name,
        evidence=seen(*(word for c in containers for word in c.limits.values())),
        location=pod.spec.location,
    )


def _unaligned(
    told: Callable[..., Finding], container: Workload, at: Node, text: str, resource: str
) -> Finding:
    limit = container.limits.get(resource)
    whole = "whole" not in text
    figure = '"16"' if resource == "cpu" else "128Gi"
    if limit and whole:
        figure = limit.text
    message = f"not Guaranteed ({text}): no CPUs and no memory of its own"
    return told(
        message if whole else f"{text}: it gets no CPUs of its own",
        subject=container.name,
        cause="The kubelet's static managers give CPUs and memory of one node to pods of class "
        "Guaranteed with whole CPUs alone.",
        evidence=seen(at, limit) or seen(container.image),
        fixes=[
            edit(
                container,
                "resources:\n"
                f"  requests: {{{resource}: {figure}}}\n"
                f"  limits: {{{resource}: {figure}}}",
                "the same figure in both, in every container of the pod",
            )
        ],
        location=at.location,
    )
