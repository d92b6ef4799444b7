"""The services of a Docker Compose file as workloads (the Compose Specification)."""

from collections.abc import Iterator
from functools import partial

from numadoctor.lint.nodes import Mapping, Node, Refused, Sequence, Word, words_of
from numadoctor.lint.shell import Command
from numadoctor.lint.workloads import Workload, commands_in, commands_of, understood

_TOP = frozenset(
    ("services", "include", "networks", "volumes", "secrets", "configs", "models", "name")
)
_STARTED = frozenset(("image", "build", "extends", "command", "deploy"))


def is_compose(root: Mapping, claimed: bool = False) -> bool:
    """Whether a document is a Compose file: services, each with an image, a build or a model.

    :param claimed: its name says so, and it may be a part that is laid over another file
    """
    if "apiVersion" in root.entries:
        return False
    if claimed:
        return bool(_TOP & set(root.entries))
    return any(
        isinstance(service, Mapping) and _STARTED & set(service.entries)
        for _, service in root.mapping("services").items()
    )


def services(root: Mapping, near: str = "") -> Iterator[Workload]:
    """Each service.

    :param near: the file beside which relative paths begin
    """
    found = root.get("services")
    if isinstance(found, Word) and not found.null:
        yield _odd(found, found)
    for name, service in found.items() if isinstance(found, Mapping) else ():
        if isinstance(service, Mapping):
            make = partial(_service, name, service, near)
            yield understood(f"service {name.text}", "compose", name, make)
        else:
            yield _odd(name, service)


def _odd(name: Word, value: Node) -> Workload:
    refused = Refused("a mapping is expected here", value.line, value.column)
    return Workload(f"service {name.shown}", "compose", name, refused=refused)


def _service(name: Word, service: Mapping, near: str) -> Workload:
    return Workload(
        name=f"service {name.text}",
        launcher="compose",
        at=name,
        commands=_commands(service),
        environment=environment(service.get("environment")),
        image=service.word("image"),
        privileged=service.word("privileged"),
        added=tuple(words_of(service.get("cap_add"))),
        dropped=tuple(words_of(service.get("cap_drop"))),
        seccomp=security_option(words_of(service.get("security_opt"))),
        near=near,
        cpus=service.word("cpuset"),
        shm=service.word("shm_size") or _tmpfs(service),
        ipc=service.word("ipc"),
        memlock=_memlock(service),
        gpus=_gpus(service),
        runtime=service.word("runtime"),
        devices=tuple(words_of(service.get("devices"))),
    )


def _commands(service: Mapping) -> tuple[Command, ...]:
    entry, command = service.get("entrypoint"), service.get("command")
    if isinstance(entry, Sequence) or (isinstance(command, Sequence) and entry is None):
        return commands_of([*words_of(entry), *words_of(command)])
    words = [word for node in (entry, command) for word in words_of(node)]
    if len(words) == 1 or isinstance(entry, Word):
        return tuple(one for word in words for one in commands_in(word))
    return ()


def environment(node: Node | None) -> dict[str, Word]:
    """Variables, given as a mapping or as ``NAME=value`` entries."""
    if isinstance(node, Mapping):
        return {name.text: value for name, value in node.items() if isinstance(value, Word)}
    found = {}
    for word in words_of(node):
        name, equals, value = word.text.partition("=")
        if equals:
            found[name] = Word(word.file, word.line, word.column, value, word.style or "'")
    return found


def security_option(words: list[Word]) -> Word | None:
    """The value of ``seccomp=…`` or ``seccomp:…`` among security options; the last counts."""
    found = None
    for word in words:
        for prefix in ("seccomp=", "seccomp:"):
            if word.text.startswith(prefix):
                value = word.text[len(prefix) :]
                found = Word(word.file, word.line, word.column, value, word.style or "'")
    return found


def _tmpfs(service: Mapping) -> Word | None:
    """The size of a tmpfs that is mounted over /dev/shm."""
    for word in words_of(service.get("tmpfs")):
        path, _, options = word.text.partition(":")
        for option in options.split(",") if path == "/dev/shm" else ():
            if option.startswith("size="):
                return Word(word.file, word.line, word.column, option[5:], word.style or "'")
    return None


def _memlock(service: Mapping) -> Word | None:
    return service.word("ulimits", "memlock") or service.word("ulimits", "memlock", "soft")


def _gpus(service: Mapping) -> Word | None:
    if gpus := service.word("gpus"):
        return gpus
    for device in service.sequence("gpus").items:
        if isinstance(device, Mapping) and device.entries:
            any_of_it = next(iter(device.entries.values()))[0]
            return device.word("count") or _device_ids(device) or any_of_it
    for device in service.sequence("deploy", "resources", "reservations", "devices").items:
        if isinstance(device, Mapping):
            for word in words_of(device.get("capabilities")):
                if word.text in ("gpu", "nvidia"):
                    return device.word("count") or _device_ids(device) or word
    # The Container Device Interface, as `docker run --device` takes it.
    return next((w for w in words_of(service.get("devices")) if "nvidia.com/gpu" in w.text), None)


def _device_ids(device: Mapping) -> Word | None:
    """The ids as `docker run --gpus` would be given them; those that are UUIDs tell no number."""
    words = words_of(device.get("device_ids"))
    if not words or not all(word.text.isdecimal() for word in words):
        return None
    text = "device=" + ",".join(word.text for word in words)
    return Word(words[0].file, words[0].line, words[0].column, text, words[0].style or "'")
