"""The containers of Kubernetes objects as workloads, wherever a pod template is in them."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from numadoctor.lint.nodes import Mapping, Node, Refused, Sequence, Word, words_of
from numadoctor.lint.shell import Command
from numadoctor.lint.workloads import Workload, commands_of, understood

# Pod templates lie deep in other people's resources: spec.jobTemplate.spec.template.spec,
# spec.replicatedJobs[].template.spec.template.spec.
_DEEPEST, _MOST = 10, 2_000

_GPU_RESOURCES = ("nvidia.com/", "amd.com/gpu", "gpu.intel.com/", "habana.ai/gaudi")


@dataclass(frozen=True)
class Pod:
    """A pod's specification.

    :ivar name: kind and name of the object that it is in
    :ivar spec: the mapping that has ``containers``
    :ivar ray: whether KubeRay makes it, which gives its first container a memory volume as
        /dev/shm (ray-operator, controllers/ray/common/pod.go)
    """

    name: str
    spec: Mapping
    ray: bool = False

    @property
    def containers(self) -> list[Mapping]:
        """Containers and initial containers."""
        return [
            item
            for key in ("containers", "initContainers")
            for item in self.spec.sequence(key).items
            if isinstance(item, Mapping)
        ]

    @property
    def memory_volume(self) -> Word | None:
        """The size limit (or else the medium) of a memory volume that a container has as /dev/shm.

        :returns: None where no container mounts one there
        """
        mounted = {
            mount.word("name")
            for container in self.containers
            for mount in container.sequence("volumeMounts").items
            if isinstance(mount, Mapping) and _text(mount.word("mountPath")) == "/dev/shm"
        }
        names = {word.text for word in mounted if word}
        for volume in self.spec.sequence("volumes").items:
            if isinstance(volume, Mapping) and _text(volume.word("name")) in names:
                return volume.word("emptyDir", "sizeLimit") or volume.word("emptyDir", "medium")
        return None


def _text(word: Word | None) -> str:
    return word.text if word else ""


def is_kubernetes(root: Mapping) -> bool:
    """Whether a document is an object of the Kubernetes API."""
    return root.word("apiVersion") is not None and root.word("kind") is not None


def objects(root: Mapping) -> Iterator[Mapping]:
    """The object itself, or those in a List."""
    if _text(root.word("kind")).endswith("List") and "items" in root.entries:
        for item in root.sequence("items").items:
            if isinstance(item, Mapping):
                yield item
    else:
        yield root


def object_name(root: Mapping) -> str:
    """Kind and name of an object, with its namespace where it has one."""
    name = _text(root.word("metadata", "name")) or _text(root.word("metadata", "generateName"))
    namespace = _text(root.word("metadata", "namespace"))
    return f"{_text(root.word('kind'))} {namespace and namespace + '/'}{name or 'without a name'}"


def pods(root: Mapping) -> Iterator[Pod]:
    """Each pod template in an object: whatever has a list of ``containers`` that have names."""
    name = object_name(root)
    found, ray = 0, False
    if _text(root.word("apiVersion")).startswith("ray.io/"):
        ray = not any(_has_plasma_directory(value) for _, value in root.mapping("spec").items())
    pending: deque[tuple[Node, int]] = deque([(root, 0)])
    for _ in range(_MOST):
        if not pending:
            return
        node, depth = pending.popleft()
        if isinstance(node, Mapping):
            if _is_pod(node):
                found += 1
                yield Pod(name if found == 1 else f"{name} ({found})", node, ray)
                continue
            below = [value for _, value in node.items()]
        else:
            below = node.items if isinstance(node, Sequence) else []
        if depth < _DEEPEST:
            pending.extend((item, depth + 1) for item in below if not isinstance(item, Word))


def made_elsewhere(root: Mapping) -> Iterator[Workload]:
    """What asks for GPUs outside of a pod: its controller makes pods that are not at hand.

    As `spec.predictor.model` of KServe does, whose serving runtime has the container.
    """
    name = object_name(root)
    pending: deque[tuple[Node, int]] = deque([(root, 0)])
    for _ in range(_MOST):
        if not pending:
            return
        node, depth = pending.popleft()
        below = [value for _, value in node.items()] if isinstance(node, Mapping) else []
        if isinstance(node, Mapping):
            for which in ("limits", "requests"):
                for resource, _ in node.mapping("resources", which).items():
                    if resource.text.startswith(_GPU_RESOURCES):
                        hint = "lint its pods (kubectl get pods -o yaml | numadoctor lint -)"
                        told = "asks for GPUs for pods that are made by its controller"
                        refused = Refused(told, resource.line, resource.column, hint)
                        yield Workload(name, "kubernetes", resource, refused=refused)
                        return
        elif isinstance(node, Sequence):
            below = node.items
        if depth < _DEEPEST:
            pending.extend((item, depth + 1) for item in below if not isinstance(item, Word))


def _has_plasma_directory(node: Node, depth: int = 0) -> bool:
    """Whether a group of Ray's says itself where shared memory lies."""
    if isinstance(node, Mapping):
        if "plasma-directory" in node.mapping("rayStartParams").entries:
            return True
        below = [value for _, value in node.items()]
    else:
        below = node.items if isinstance(node, Sequence) else []
    return depth < 3 and any(_has_plasma_directory(one, depth + 1) for one in below)


def _is_pod(node: Mapping) -> bool:
    containers = node.sequence("containers").items
    return bool(containers) and all(
        isinstance(one, Mapping) and ("image" in one.entries or "name" in one.entries)
        for one in containers
    )


def containers(pod: Pod) -> Iterator[Workload]:
    """Each container of a pod."""
    for container in pod.containers:
        name = f"{pod.name} container {_text(container.word('name')) or 'without a name'}"
        at = container.word("name") or container
        make = partial(_container, name, at, pod, container)
        yield understood(name, "kubernetes", at, make)


def _container(name: str, at: Node, pod: Pod, container: Mapping) -> Workload:
    of_pod = pod.spec.mapping("securityContext")
    own = container.mapping("securityContext")
    profile = own if "seccompProfile" in own.entries else of_pod
    limits = _resources(container, "limits")
    return Workload(
        name=name,
        launcher="kubernetes",
        at=at,
        commands=_commands(container),
        environment=_environment(container),
        image=container.word("image"),
        privileged=own.word("privileged"),
        added=tuple(words_of(own.get("capabilities", "add"))),
        dropped=tuple(words_of(own.get("capabilities", "drop"))),
        seccomp=profile.word("seccompProfile", "type"),
        profile=profile.word("seccompProfile", "localhostProfile"),
        shm=pod.memory_volume or _shm_of_ray(pod, container),
        ipc=pod.spec.word("hostIPC"),
        # Kubernetes fills requests in from limits.
        requests={**limits, **_resources(container, "requests")},
        limits=limits,
        gpus=next((w for n, w in limits.items() if n.startswith(_GPU_RESOURCES)), None)
        or _claimed(pod, container),
        runtime=pod.spec.word("runtimeClassName"),
        devices=tuple(word for n, word in limits.items() if n.startswith("rdma/")),
    )


def _shm_of_ray(pod: Pod, container: Mapping) -> Word | None:
    if not pod.ray or container is not pod.containers[0]:
        return None
    return Word(container.file, container.line, container.column, "Memory", "'")


def _claimed(pod: Pod, container: Mapping) -> Word | None:
    """What claims GPUs by Dynamic Resource Allocation, as far as names tell what is claimed."""
    for claim in container.sequence("resources", "claims").items:
        name = claim.word("name") if isinstance(claim, Mapping) else None
        for given in pod.spec.sequence("resourceClaims").items:
            if name and isinstance(given, Mapping) and _text(given.word("name")) == name.text:
                words = [w for _, w in given.items() if isinstance(w, Word)]
                if any("gpu" in word.text.lower() for word in words):
                    return name
    return None


def _commands(container: Mapping) -> tuple[Command, ...]:
    return commands_of([*words_of(container.get("command")), *words_of(container.get("args"))])


def _environment(container: Mapping) -> dict[str, Word]:
    found = {}
    for item in container.sequence("env").items:
        if isinstance(item, Mapping) and (name := item.word("name")):
            value = item.get("value")
            if isinstance(value, Word):
                found[name.text] = value
    return found


def _resources(container: Mapping, which: str) -> dict[str, Word]:
    return {
        name.text: value
        for name, value in container.mapping("resources", which).items()
        if isinstance(value, Word)
    }
